"""Sockets of the libzmq at a path, in a process that has no other: does what is asked on its standard input, and says how it went.

It needs nothing but the standard library: `libzmq.py` is the other side.
"""

import ctypes
import pickle
import struct
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_long, c_short, c_size_t, c_void_p
from pathlib import Path

LAST_ENDPOINT = 32
DONTWAIT, SNDMORE = 1, 2
POLLIN = 1
PAIR = 0
EAGAIN = 11


class Message(ctypes.Structure):
    # 64 bytes since 4.1, aligned as pointers are.
    _fields_ = (("_", c_void_p * 8),)


class PollItem(ctypes.Structure):
    _fields_ = (("socket", c_void_p), ("fd", c_int), ("events", c_short), ("revents", c_short))


def load(path):
    """The functions that are used; those of a wheel find their libsodium only if it is there already."""
    for sodium in Path(path).parent.glob("libsodium*"):
        ctypes.CDLL(str(sodium), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(path, use_errno=True)
    for name, result, *arguments in (
        ("ctx_new", c_void_p),
        ("socket", c_void_p, c_void_p, c_int),
        ("close", c_int, c_void_p),
        ("setsockopt", c_int, c_void_p, c_int, c_void_p, c_size_t),
        ("getsockopt", c_int, c_void_p, c_int, c_void_p, POINTER(c_size_t)),
        ("bind", c_int, c_void_p, c_char_p),
        ("connect", c_int, c_void_p, c_char_p),
        ("send", c_int, c_void_p, c_char_p, c_size_t, c_int),
        ("msg_init", c_int, POINTER(Message)),
        ("msg_recv", c_int, POINTER(Message), c_void_p, c_int),
        ("msg_data", c_void_p, POINTER(Message)),
        ("msg_size", c_size_t, POINTER(Message)),
        ("msg_more", c_int, POINTER(Message)),
        ("msg_close", c_int, POINTER(Message)),
        ("poll", c_int, POINTER(PollItem), c_int, c_long),
        ("socket_monitor", c_int, c_void_p, c_char_p, c_int),
        ("strerror", c_char_p, c_int),
    ):
        function = getattr(library, f"zmq_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class Process:
    """The sockets of this process, each under a number."""

    def __init__(self, path):
        self._zmq = load(path)
        self._context = self._zmq.zmq_ctx_new()
        self._sockets = {}
        self._next = 0

    def about(self):
        """The version, and whether it has CURVE."""
        numbers = [c_int() for _ in range(3)]
        self._zmq.zmq_version(*map(byref, numbers))
        return tuple(number.value for number in numbers), bool(self._zmq.zmq_has(b"curve"))

    def socket(self, kind):
        self._next += 1
        self._sockets[self._next] = self._checked(self._zmq.zmq_socket(self._context, kind))
        return self._next

    def set(self, number, option, value):
        given = value if isinstance(value, bytes) else struct.pack("@i", value)
        self._call("setsockopt", number, option, given, len(given))

    def bind(self, number, endpoint):
        self._call("bind", number, endpoint.encode())
        value, size = ctypes.create_string_buffer(256), c_size_t(256)
        self._call("getsockopt", number, LAST_ENDPOINT, value, byref(size))
        return value.value

    def connect(self, number, endpoint):
        self._call("connect", number, endpoint.encode())

    def close(self, number):
        self._call("close", number)
        del self._sockets[number]

    def send(self, number, messages):
        """Sends messages; gives how many were taken before there was no room for long."""
        for sent, frames in enumerate(messages):
            for at, frame in enumerate(frames):
                more = SNDMORE if at + 1 < len(frames) else 0
                if self._zmq.zmq_send(self._sockets[number], frame, len(frame), more) < 0:
                    if at == 0 and ctypes.get_errno() == EAGAIN:
                        return sent
                    self._fail()
        return len(messages)

    def receive(self, number, count):
        """So many messages."""
        return [self._received(self._sockets[number]) for _ in range(count)]

    def poll(self, number, timeout_ms):
        item = PollItem(self._sockets[number], 0, POLLIN, 0)
        return self._checked(self._zmq.zmq_poll(byref(item), 1, timeout_ms))

    def monitor(self, number, events):
        """A socket that receives what happens to another one."""
        endpoint = b"inproc://monitor-%d" % number
        self._call("socket_monitor", number, endpoint, events)
        monitor = self.socket(PAIR)
        self._call("connect", monitor, endpoint)
        return monitor

    def _received(self, socket):
        frames, message, more = [], Message(), True
        while more:
            self._zmq.zmq_msg_init(byref(message))
            self._checked(self._zmq.zmq_msg_recv(byref(message), socket, 0))
            data, size = self._zmq.zmq_msg_data(byref(message)), self._zmq.zmq_msg_size(byref(message))
            frames.append(ctypes.string_at(data, size))
            more = self._zmq.zmq_msg_more(byref(message))
            self._zmq.zmq_msg_close(byref(message))
        return frames

    def _call(self, name, number, *arguments):
        return self._checked(getattr(self._zmq, f"zmq_{name}")(self._sockets[number], *arguments))

    def _checked(self, result):
        if result is None or result < 0:
            self._fail()
        return result

    def _fail(self):
        number = ctypes.get_errno()
        raise OSError(number, self._zmq.zmq_strerror(number).decode())


def main():
    process = Process(sys.argv[1])
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            # Whatever waits is not worth waiting for.
            return
        try:
            answer = True, getattr(process, name)(*arguments)
        except OSError as error:
            answer = False, error.args
        pickle.dump(answer, sys.stdout.buffer, protocol=5)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

"""Peers that mean no good: TCP servers that say anything but what a protocol asks for."""

import contextlib
import itertools
import socket
import threading
import time

import zmq

SIGNATURE = b"\xff\0\0\0\0\0\0\0\x01\x7f"
CHUNK = b"x" * 60_000


def greeting(kind=b"ROUTER"):
    """A greeting of ZMTP 3.0 without security, and the metadata of a socket."""
    metadata = b"\x05READY\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind
    return SIGNATURE + b"\x03\0NULL" + b"\0" * 48 + bytes([4, len(metadata)]) + metadata


def long_frame(size, *, more=False):
    """The head of a long frame."""
    return bytes([2 | more]) + size.to_bytes(8, "big")


INFO = b'INFO {"server_id": "hostile", "max_payload": 1048576, "headers": true}\r\n'
PONG = b"PONG\r\n"

# What each says: pieces, the last of them without end where it is a generator; then it waits, or closes.
ZMTP = {
    "another protocol": lambda _: [b"SSH-2.0-OpenSSH_9.2\r\n" * 4],
    "endless lines": lambda _: itertools.repeat(CHUNK),
    "half a greeting": lambda _: [SIGNATURE + b"\x03"],
    "a greeting of no mechanism": lambda _: [SIGNATURE + b"\x03\0" + b"\xff" * 52],
    "a frame of 8 EiB": lambda kind: [greeting(kind), long_frame(1 << 62), CHUNK],
    "a frame of 1 GiB": lambda kind: itertools.chain([greeting(kind), long_frame(1 << 30)], itertools.repeat(CHUNK)),
    "a message without end": lambda kind: itertools.chain(
        [greeting(kind)], itertools.repeat(long_frame(len(CHUNK), more=True) + CHUNK)
    ),
    "messages without end": lambda kind: itertools.chain([greeting(kind)], itertools.repeat(b"\0\x01x" * 20_000)),
    "commands of no sense": lambda kind: [greeting(kind), b"\x04\xff" + b"\xff" * 255],
    "nothing after its greeting": lambda kind: [greeting(kind)],
}

NATS = {
    "another protocol": lambda: [b"HTTP/1.1 400 Bad Request\r\n\r\n"],
    "an endless line": lambda: itertools.repeat(CHUNK),
    "an INFO of no sense": lambda: [b"INFO {\r\n"],
    "nothing after its INFO": lambda: [INFO],
    "a message of 1 GiB": lambda: itertools.chain([INFO, PONG * 9, b"MSG a 1 1073741824\r\n"], itertools.repeat(CHUNK)),
    "messages without end": lambda: itertools.chain([INFO, PONG * 9], itertools.repeat(b"MSG a 1 1\r\nx\r\n" * 4000)),
    "sizes of no sense": lambda: [
        INFO,
        PONG * 9,
        b"MSG a 1 -5\r\nMSG\r\nHMSG a 1 99 5\r\n12345\r\nMSG a 1 " + b"9" * 5000 + b"\r\n",
    ],
    "pings without end": lambda: itertools.chain([INFO, PONG * 9], itertools.repeat(b"PING\r\n" * 10_000)),
}


class Hostile:
    """A TCP server that sends these pieces to everyone, and reads nothing.

    Args:
        pieces: Returns the pieces of a connection.
        closes: Whether it closes each connection at once instead.
    """

    def __init__(self, pieces=tuple, *, closes=False):
        self._pieces = pieces
        self._closes = closes
        self._stops = threading.Event()
        self.has_connection = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._stops.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._speak, args=(connection,), daemon=True).start()

    def _speak(self, connection):
        self.has_connection.set()
        with connection, contextlib.suppress(OSError):
            connection.settimeout(1)
            for piece in () if self._closes else self._pieces():
                while True:
                    try:
                        connection.sendall(piece)
                    except TimeoutError:
                        if self._stops.is_set():
                            return
                    break
                if self._stops.is_set():
                    return
            if not self._closes:
                self._stops.wait(60)


class Garbler:
    """A ROUTER that answers whatever comes with frames of no sense."""

    ANSWERS = (
        [b""],
        [b"\xff" * 100],
        [b"", b"DGBX\x01"],
        [b"OK"],
        [b"", b"201", b"{"],
        [b"", b"201", b"[" * 5000],
        [b"\x05"] * 40,
    )

    def __init__(self):
        self._stops = threading.Event()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.bind("tcp://127.0.0.1:*")
        self.endpoint = self._socket.last_endpoint.decode()

    def __enter__(self):
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def _run(self):
        answers = itertools.cycle(self.ANSWERS)
        while not self._stops.is_set():
            if self._socket.poll(20):
                peer, *_ = self._socket.recv_multipart()
                self._socket.send_multipart([peer, *next(answers)])
        self._socket.close(linger=0)
        self._context.term()

    def __exit__(self, *_):
        self._stops.set()
        self._thread.join(20)


def slowly(data, seconds):
    """A byte at a time."""
    for byte in data:
        yield bytes([byte])
        time.sleep(seconds)

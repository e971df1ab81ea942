"""Peers of ZMTP with every byte written by hand."""

import socket
import struct

from peers.waiting import PATIENCE_S

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)


def ready(kind, identity=b""):
    """READY of RFC 37, with the properties of a socket."""
    named = {b"Socket-Type": kind, b"Identity": identity}
    body = b"\x05READY" + b"".join(
        bytes([len(name)]) + name + struct.pack(">I", len(value)) + value for name, value in named.items()
    )
    return bytes([4, len(body)]) + body


class Stranger:
    """A connection with every byte written by hand."""

    def __init__(self, endpoint, receive_buffer=None):
        host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
        self.stream = socket.socket()
        if receive_buffer is not None:
            self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.stream.settimeout(PATIENCE_S)
        self.stream.connect((host, int(port)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()

    def shake(self, kind, identity=b""):
        self.stream.sendall(GREETING)
        assert self.take(64)[:12] == GREETING[:12]
        self.stream.sendall(ready(kind, identity))
        head = self.take(2)
        assert head[0] == 4
        self.take(head[1])
        return self

    def take(self, count):
        taken = b""
        while len(taken) < count:
            more = self.stream.recv(count - len(taken))
            assert more, "it was hung up on"
            taken += more
        return taken

    def send(self, data):
        """Sends as much as is taken; whether that was all."""
        try:
            self.stream.sendall(data)
        except OSError:
            return False
        return True

    def send_message(self, *frames):
        """Sends a message."""
        for at, frame in enumerate(frames):
            more = at < len(frames) - 1
            short = len(frame) < 256
            self.stream.sendall(
                bytes([more, len(frame)]) if short else bytes([2 | more]) + struct.pack(">Q", len(frame))
            )
            self.stream.sendall(frame)

    def take_message(self):
        """The frames of the next message."""
        frames, more = [], True
        while more:
            flags = self.take(1)[0]
            size = self.take(1)[0] if not flags & 2 else struct.unpack(">Q", self.take(8))[0]
            frames.append(self.take(size))
            more = flags & 1
        return frames

    def ends(self):
        """Waits until it is hung up on."""
        try:
            while self.stream.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

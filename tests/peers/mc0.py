"""mc0 packed by hand: what the tests send to our roles, and what they expect of them."""

from typing import NamedTuple

import zmq

ANY = "tcp://127.0.0.1:*"


def pack(verb, *headers, body=None):
    """A message with the empty frame in front that every original has; `headers` are pairs."""
    pairs = [frame for pair in headers for frame in pair]
    return [b"", verb, *pairs, *([] if body is None else [b"", *body])]


def connect(ttl=None):
    return pack(b"CONNECT", (b"VERSION", b"0.3"), *([] if ttl is None else [(b"TTL", b"%d" % ttl)]))


def sub(*topics, id_=None):
    return pack(b"SUB", *_id(id_), body=topics)


def unsub(*topics, id_=None):
    return pack(b"UNSUB", *_id(id_), body=topics)


def put(topic, *body, id_=None, headers=()):
    return pack(b"PUT", *_id(id_), (b"TOPIC", topic), *headers, body=body)


def message(topic, *body, headers=()):
    return pack(b"MESSAGE", (b"TOPIC", topic), *headers, body=body)


def noop(id_=None):
    return pack(b"NOOP", *_id(id_))


def ok(id_):
    return pack(b"OK", (b"ID", id_))


def error(text, id_=None):
    return pack(b"ERROR", (b"MESSAGE", text), *_id(id_))


def _id(id_):
    return [] if id_ is None else [(b"ID", id_)]


class Received(NamedTuple):
    """A received message: its peer, its frames, and its ID."""

    peer: bytes
    frames: list[bytes]
    id: bytes | None

    @property
    def verb(self):
        return self.frames[1]


def understood(peer, frames):
    id_ = None
    for key, value in zip(frames[2::2], frames[3::2], strict=False):
        if key == b"":
            break
        if key == b"ID":
            id_ = value
    return Received(peer, frames, id_)


class Middleware:
    """A raw ROUTER that sends what the test says."""

    def __init__(self, socket):
        self.socket = socket
        self.endpoint = socket.last_endpoint.decode()

    def hears(self, verb=None):
        """The next message; of this verb, passing over signs of life and those that leave."""
        while True:
            peer, *frames = self.socket.recv_multipart()
            said = understood(peer, frames)
            if verb is None or said.verb == verb:
                return said
            assert frames in (noop(), pack(b"DISCONNECT")), f"{frames} came before {verb}"

    def is_silent(self, for_ms):
        return not self.socket.poll(for_ms, zmq.POLLIN)

    def say(self, peer, frames):
        self.socket.send_multipart([peer, *frames])

    def confirms(self, verb):
        """Answers the next message of this verb, and gives it."""
        said = self.hears(verb)
        self.say(said.peer, ok(said.id))
        return said

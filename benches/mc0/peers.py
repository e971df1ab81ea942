"""mc0 packed by hand, for bare sockets."""

from __future__ import annotations

from collections.abc import Sequence


def sub(*topics: bytes, id_: bytes) -> list[bytes]:
    """A SUB that is answered."""
    return [b"", b"SUB", b"ID", id_, b"", *topics]


def unsub(*topics: bytes, id_: bytes) -> list[bytes]:
    """An UNSUB that is answered."""
    return [b"", b"UNSUB", b"ID", id_, b"", *topics]


def put(topic: bytes, *body: bytes, id_: bytes | None = None) -> list[bytes]:
    """A PUT, answered if it has an ID."""
    headers = [] if id_ is None else [b"ID", id_]
    return [b"", b"PUT", *headers, b"TOPIC", topic, b"", *body]


def noop(id_: bytes) -> list[bytes]:
    """A NOOP that is answered."""
    return [b"", b"NOOP", b"ID", id_]


def answers(frames: Sequence[bytes], id_: bytes) -> bool:
    """Whether this is the OK of what had this ID."""
    return frames == [b"", b"OK", b"ID", id_]

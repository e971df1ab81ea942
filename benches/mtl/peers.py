"""MTL packed by hand, for bare sockets."""

from __future__ import annotations

import json
import struct
from typing import Any

import zmq

OPEN = {"protocol": {"name": "MTL", "version": 1}, "virtual-host": "/"}

EMPTY = b"\0\0\0\0"

PING = [b"\x08", b""]
PONG = [b"\x09", b""]


def short(text: str) -> bytes:
    """A short string."""
    data = text.encode()
    return bytes([len(data)]) + data


def lease(sequence: int, text: str) -> list[bytes]:
    """A Lease."""
    return [b"\x01" + struct.pack(">Q", sequence) + short(text), b""]


def response(sequence: int, status: int) -> list[bytes]:
    """A Response."""
    return [b"\x02" + struct.pack(">Q", sequence), b"%d" % status]


def summon(sequence: int, resource: str) -> list[bytes]:
    """A Summon."""
    return [b"\x03" + struct.pack(">Q", sequence) + short(resource), b""]


def dismiss(sequence: int, resource: str) -> list[bytes]:
    """A Dismiss."""
    return [b"\x04" + struct.pack(">Q", sequence) + short(resource), b""]


def content(sequence: int, body: bytes, resource: str = "", table: bytes = EMPTY) -> list[bytes]:
    """A Content."""
    return [b"\x05" + struct.pack(">Q", sequence) + short(resource) + table, body]


def confirm(sequence: int, *, multiple: bool = False) -> list[bytes]:
    """A Confirm."""
    return [b"\x06" + struct.pack(">Q?", sequence, multiple), b""]


def reject(sequence: int, *, multiple: bool = False, recycle: bool = False) -> list[bytes]:
    """A Reject."""
    return [b"\x07" + struct.pack(">Q??", sequence, multiple, recycle), b""]


def sequence_of(header: bytes) -> int:
    """The sequence in a header."""
    return int.from_bytes(header[1:9])


def ask(socket: zmq.Socket[bytes], name: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
    """The status and the body of the reply to a command, over a DEALER."""
    socket.send_multipart([b"", name.encode(), json.dumps(body or {}).encode()])
    _, status, said = socket.recv_multipart()
    return int(status), json.loads(said)


def enter(control: zmq.Socket[bytes], profile: str = "queue") -> None:
    """Opens a session without a login, and selects a profile."""
    assert ask(control, "Connection.Open", OPEN)[0] == 201
    assert ask(control, "Connection.Profile", {"profile": profile})[0] == 200


def leased(control: zmq.Socket[bytes], kind: str, resource: str, confirm: str = "full", **more: Any) -> str:
    """A lease: `kind` is Reader or Writer."""
    body = {"resources": [resource], "confirm": confirm, **more}
    status, said = ask(control, f"Connection.{kind}", body)
    assert status == 202, said
    return said["lease"]


def said(data: zmq.Socket[bytes]) -> list[bytes]:
    """What comes next but for heartbeats."""
    while (frames := data.recv_multipart()) in (PING, PONG):
        if frames == PING:
            data.send_multipart(PONG)
    return frames


def redeem(data: zmq.Socket[bytes], text: str, *summons: str) -> None:
    """Shows a lease, and summons resources."""
    for number, command in enumerate([lease(1, text), *(summon(2 + at, name) for at, name in enumerate(summons))]):
        data.send_multipart(command)
        assert (frames := said(data)) == response(number + 1, 200), frames

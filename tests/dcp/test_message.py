"""Messages without sockets, held against the vectors that Rust reads as well."""

import json
import pickle
from pathlib import Path

import pytest
import zmq

from peers.dcp import HEAD, PING, register, reply, request
from trunkline import DecodeError, dcp, error_kinds
from trunkline.errors import LocalProtocolError

FILES = sorted((Path(__file__).parents[1] / "vectors" / "dcp").glob("*.json"))
VECTORS = [vector for file in FILES for vector in json.loads(file.read_text())]

TYPES = ["register", "ping", "pong", "request", "reply", "reconnect"]


def of(*, which):
    return [
        pytest.param(vector, id=vector["id"], marks=pytest.mark.req(*vector["requirements"]))
        for vector in VECTORS
        if which in vector
    ]


def frames_of(vector):
    return [bytes.fromhex(frame) for frame in vector["frames"]]


def said(message):
    said = {"type": message.type}
    if message.service is not None:
        said["service"] = message.service.hex()
    if message.type in ("request", "reply"):
        said["client"] = message.client and message.client.hex()
        said["metadata"] = [part.hex() for part in message.metadata]
        said["data"] = [part.hex() for part in message.data]
    return said


def test_there_are_vectors():
    assert len(VECTORS) > 80


@pytest.mark.parametrize("vector", of(which="decoded"))
def test_messages_say_what_the_vectors_say(vector):
    frames, settings = frames_of(vector), vector.get("settings", {})
    message = dcp.decode(frames, **settings)
    assert said(message) == vector["decoded"]
    # The bytes are kept, and survive pickling.
    assert dcp.encode(message) == tuple(frames)
    again = pickle.loads(pickle.dumps(message))
    assert again == message
    assert hash(again) == hash(message)
    assert dcp.encode(again) == tuple(frames)
    if vector.get("canonical"):
        parts = {
            name: getattr(message, name)
            for name in ("service", "client", "metadata", "data")
            if getattr(message, name) is not None and (name in vector["decoded"])
        }
        built = dcp.Message(message.type, **parts)
        assert built == message
        assert dcp.encode(built) == tuple(frames)


@pytest.mark.parametrize("vector", of(which="error"))
def test_errors_are_those_of_the_vectors(vector):
    with pytest.raises(DecodeError) as caught:
        dcp.decode(frames_of(vector), **vector.get("settings", {}))
    error = caught.value
    assert error.protocol == "dcp"
    assert {"kind": error.kind, "frame": error.frame, "offset": error.offset} == vector["error"]
    assert error.kind in error_kinds()


def test_frames_may_be_anything_like_bytes():
    frames = request(b"echo", b"x" * 2000, client=b"C", metadata=[b"m"])
    for kind in (memoryview, bytearray, zmq.Frame):
        message = dcp.decode([kind(frame) for frame in frames])
        assert dcp.encode(message) == tuple(frames)
    with pytest.raises(TypeError):
        dcp.decode(["text"])


def test_equal_is_what_says_the_same():
    message = dcp.Message("request", service=b"echo", data=[b"x"])
    assert message == dcp.decode(request(b"echo", b"x"))
    assert message != dcp.decode(request(b"echo", b"y"))
    assert message != dcp.decode(request(b"echo", b"x", client=b"C"))
    assert message != request(b"echo", b"x")
    # How wide a type is written is not part of what is said.
    wide = dcp.decode([*HEAD, b"\x02\0\0\0"], compat_dagbox=True)
    assert wide == dcp.Message("ping")
    assert dcp.encode(wide) == (*HEAD, b"\x02\0\0\0")
    assert len({message, dcp.Message("request", service=b"echo", data=b"x"), wide}) == 2


def test_shows_what_it_is():
    assert repr(dcp.decode(PING)) == "Message('ping')".replace("'", '"')
    assert repr(dcp.decode(register(b"echo"))) == "Message(\"register\", service=b'echo')"
    assert repr(dcp.decode(reply(b"C", b"abc", metadata=[b"m"]))) == (
        "Message(\"reply\", client=b'C', metadata=(b'm',), data=<1 part, 3 bytes>)"
    )
    assert repr(dcp.Reply([b"abc", b""])) == "Reply(data=<2 parts, 3 bytes>, metadata=())"


@pytest.mark.parametrize(
    ("type_", "parts", "error"),
    [
        ("register", {}, LocalProtocolError),
        ("register", {"service": b"echo", "data": [b"x"]}, LocalProtocolError),
        ("ping", {"service": b"echo"}, LocalProtocolError),
        ("ping", {"data": []}, LocalProtocolError),
        ("request", {"data": [b"x"]}, LocalProtocolError),
        ("request", {"service": b"echo", "client": b""}, LocalProtocolError),
        ("request", {"service": b"echo", "metadata": [b""]}, LocalProtocolError),
        ("reply", {"data": [b"x"]}, LocalProtocolError),
        ("reply", {"client": b"C", "service": b"echo"}, LocalProtocolError),
        ("answer", {}, ValueError),
        ("request", {"service": "echo"}, TypeError),
    ],
    ids=str,
)
def test_what_would_be_no_message_is_refused(type_, parts, error):
    with pytest.raises(error):
        dcp.Message(type_, **parts)


@pytest.mark.parametrize("role", ["broker", "worker", "client"])
def test_a_role_takes_what_it_is_sent(role):
    never = {"broker": {"reconnect"}, "worker": {"ping"}, "client": {*TYPES} - {"reply"}}[role]
    for type_ in TYPES:
        parts = {"service": b"echo"} if type_ in ("register", "request") else {}
        parts |= {"client": b"C"} if type_ == "reply" else {}
        frames = dcp.encode(dcp.Message(type_, **parts))
        if type_ in never:
            with pytest.raises(DecodeError, match="unexpected_type"):
                dcp.decode(frames, role=role)
        else:
            assert dcp.decode(frames, role=role).type == type_
    with pytest.raises(ValueError, match="unknown DCP role"):
        dcp.decode(PING, role="proxy")


def test_replies_compare_and_pickle():
    one = dcp.Reply(b"x", [b"m"])
    assert one == dcp.Reply([b"x"], [b"m"])
    assert one not in (dcp.Reply(b"x"), dcp.Reply(b"y", [b"m"]), (b"x",))
    assert pickle.loads(pickle.dumps(one)) == one
    assert len({one, dcp.Reply([b"x"], [b"m"])}) == 1

"""Messages without sockets, held against the vectors that Rust reads as well."""

import json
import pickle
from pathlib import Path

import pytest
import zmq

from trunkline import DecodeError, error_kinds, mc0
from trunkline.errors import LocalProtocolError

FILES = sorted((Path(__file__).parents[1] / "vectors" / "mc0").glob("*.json"))
VECTORS = [vector for file in FILES for vector in json.loads(file.read_text())]


def of(*, which):
    return [
        pytest.param(vector, id=vector["id"], marks=pytest.mark.req(*vector["requirements"]))
        for vector in VECTORS
        if which in vector
    ]


def frames_of(vector):
    return [bytes.fromhex(frame) for frame in vector["frames"]]


def unhex(text):
    return bytes.fromhex(text).decode(errors="surrogateescape")


def expected(decoded):
    """What a message of a vector says, in Python."""
    said = {"id": None, "topic": None, "topics": (), "body": (), "version": None, "ttl_ms": None, "text": None}
    for name, value in decoded.items():
        match name:
            case "verb" | "leading_delimiter" | "ttl_ms":
                said[name] = value
            case "headers":
                said[name] = tuple((unhex(key), unhex(value)) for key, value in value)
            case "positional" | "body":
                said[name] = tuple(map(bytes.fromhex, value))
            case "topics":
                said[name] = tuple(map(unhex, value))
            case _:
                said[name] = unhex(value)
    return said


def test_there_are_vectors():
    assert len(VECTORS) > 120


@pytest.mark.parametrize("vector", of(which="decoded"))
def test_messages_say_what_the_vectors_say(vector):
    frames = frames_of(vector)
    message = mc0.decode(frames)
    said = expected(vector["decoded"])
    assert {name: getattr(message, name) for name in said} == said
    # The bytes are kept, and survive pickling.
    assert mc0.encode(message) == tuple(frames)
    again = pickle.loads(pickle.dumps(message))
    assert again == message
    assert hash(again) == hash(message)
    assert mc0.encode(again) == tuple(frames)
    if vector.get("canonical"):
        built = mc0.Message(message.verb, message.headers, message.positional)
        assert built == message
        assert mc0.encode(built) == tuple(frames)


@pytest.mark.parametrize("vector", of(which="error"))
def test_errors_are_those_of_the_vectors(vector):
    with pytest.raises(DecodeError) as caught:
        mc0.decode(frames_of(vector))
    error = caught.value
    assert error.protocol == "mc0"
    assert {"kind": error.kind, "frame": error.frame, "offset": error.offset} == vector["error"]
    assert error.kind in error_kinds()


def test_frames_may_be_anything_like_bytes():
    frames = [b"", b"PUT", b"TOPIC", b"runs", b"", b"x" * 2000]
    for kind in (memoryview, bytearray, zmq.Frame):
        assert mc0.encode(mc0.decode([kind(frame) for frame in frames])) == tuple(frames)
    with pytest.raises(TypeError):
        mc0.decode(["text"])


@pytest.mark.req("MC0-05", "MC0-11")
def test_text_is_str_or_bytes_and_bytes_that_are_no_text_are_kept():
    built = mc0.Message("PUT", {"TOPIC": "Läufe", "X-A": b"\xff"}, [b"x"])
    assert mc0.encode(built) == (b"", b"PUT", b"TOPIC", "Läufe".encode(), b"X-A", b"\xff", b"", b"x")
    assert built.topic == "Läufe"
    assert built.headers == (("TOPIC", "Läufe"), ("X-A", "\udcff"))
    assert mc0.Message("PUT", built.headers, [b"x"]) == built
    assert mc0.Message("PUT", [[b"TOPIC", "Läufe"], (b"X-A", b"\xff")], (b"x",)) == built


@pytest.mark.req("MC0-07")
def test_a_message_is_written_in_its_own_style():
    bare = mc0.Message("SUB", positional=[b"runs"], leading_delimiter=False)
    assert mc0.encode(bare) == (b"SUB", b"", b"runs")
    assert not bare.leading_delimiter
    assert mc0.decode([b"SUB", b"", b"runs"]) == bare
    # They are compared by their frames.
    assert bare != mc0.Message("SUB", positional=[b"runs"])
    assert bare != (b"SUB", b"", b"runs")
    assert len({bare, mc0.decode([b"SUB", b"", b"runs"]), mc0.Message("NOOP")}) == 2


def test_shows_what_it_is():
    assert repr(mc0.Message("NOOP")) == 'Message("NOOP")'
    assert repr(mc0.Message("SUB", positional=[b"a", b"b"])) == "Message(\"SUB\", topics=('a', 'b'))"
    assert repr(mc0.Message("PUT", {"TOPIC": "runs"}, [b"abc", b""])) == (
        "Message(\"PUT\", headers=(('TOPIC', 'runs'),), positional=<2 frames, 3 bytes>)"
    )


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("PING",), LocalProtocolError),
        (("noop",), LocalProtocolError),
        (("",), LocalProtocolError),
        (("PUT",), LocalProtocolError),
        (("OK",), LocalProtocolError),
        (("CONNECT", {"TTL": "-1"}), LocalProtocolError),
        (("CONNECT", {"TTL": str(24 * 60 * 60 * 1000 + 1)}), LocalProtocolError),
        (("CONNECT", {"VERSION": "1.0"}), LocalProtocolError),
        (("NOOP", {"": "x"}), LocalProtocolError),
        (("SUB", (), [b"x"] * 10_000), LocalProtocolError),
        (("NOOP", {"ID": 7}), TypeError),
        (("NOOP", "ID"), TypeError),
        (("NOOP", ["ID"]), TypeError),
        (("NOOP", 7), TypeError),
        (("SUB", (), ["runs"]), TypeError),
        (("SUB", (), b"runs"), TypeError),
        ((b"NOOP",), TypeError),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_would_be_no_message_is_refused(arguments, error):
    with pytest.raises(error):
        mc0.Message(*arguments)

"""The vectors in `tests/vectors`, which Rust reads as well: what the package says of them, and the naive decoder."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgpack as reference
import pytest
import zmq
from differential import naive, ours, theirs

from trunkline import DecodeError, cdtp, error_kinds, msgpack

FILES = sorted((Path(__file__).parents[1] / "vectors" / "cdtp").glob("*.json"))
VECTORS = [vector for file in FILES for vector in json.loads(file.read_text())]
VARIANTS = ("S", "A", "B", "2")


def _requirements(vector: dict[str, Any]) -> Any:
    return pytest.param(vector, id=vector["id"], marks=pytest.mark.req(*vector["requirements"]))


def _frames(vector: dict[str, Any]) -> list[bytes]:
    return [bytes.fromhex(frame) for frame in vector["frames"]]


def _settings(vector: dict[str, Any]) -> dict[str, Any]:
    return {"accept": VARIANTS, "strict": True} | vector.get("settings", {})


def _plain(value: Any) -> Any:
    """A value of the package, written as in the vectors."""
    match value:
        case bytes():
            return {"bin": value.hex()}
        case msgpack.Ext():
            return {"ext": [value.code, value.data.hex()]}
        case msgpack.Timestamp():
            return {"timestamp": [value.seconds, value.nanoseconds]}
        case float():
            special = not math.isfinite(value) or str(value) == "-0.0"
            return {"f64": str(value) if special else value}
        case dict():
            return {"map": [[_plain(key), _plain(member)] for key, member in value.items()]}
        case list() if value and all(isinstance(member, tuple) for member in value):
            return {"map": [[_plain(key), _plain(member)] for key, member in value]}
        case list():
            return [_plain(member) for member in value]
        case _:
            return value


def _as_python_has_it(value: Any) -> Any:
    """A value of a vector with what Python does not keep taken out: the width of a number."""
    if isinstance(value, dict):
        return {{"f32": "f64"}.get(key, key): _as_python_has_it(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_as_python_has_it(member) for member in value]
    return value


def _tags(pairs: list[Any]) -> dict[str, Any]:
    return {name: _as_python_has_it(value) for name, value in pairs}


@pytest.mark.parametrize("vector", [_requirements(vector) for vector in VECTORS if "decoded" in vector])
def test_messages_say_what_the_vectors_say(vector: dict[str, Any]) -> None:
    decoded = cdtp.decode(_frames(vector), **_settings(vector))
    expected = vector["decoded"]
    messages = list(decoded) if isinstance(decoded, cdtp.Batch) else [decoded]
    records = expected.get("records", [expected])
    assert len(messages) == len(records)
    for message, record in zip(messages, records, strict=True):
        assert message.variant == expected["variant"]
        assert message.sender == expected["sender"]
        assert message.type == expected["type"]
        assert message.sequence == record["sequence"]
        assert {name: _plain(value) for name, value in message.tags.items()} == _tags(record["tags"])
        stamp = expected.get("timestamp")
        assert message.timestamp_ns == (stamp and stamp[0] * 10**9 + stamp[1])
        payload = record.get("payload", vector["frames"][1:])
        assert [frame.hex() for frame in message.payload] == payload


@pytest.mark.parametrize("vector", [_requirements(vector) for vector in VECTORS if "decoded" in vector])
def test_decoded_messages_are_written_as_they_were_read(vector: dict[str, Any]) -> None:
    frames = _frames(vector)
    assert [bytes(frame) for frame in cdtp.encode(cdtp.decode(frames, **_settings(vector)))] == frames


@pytest.mark.parametrize("kind", [bytearray, memoryview, zmq.Frame])
def test_frames_may_be_anything_like_bytes(kind: Any) -> None:
    for vector in VECTORS:
        if "decoded" in vector:
            frames = _frames(vector)
            message = cdtp.decode([kind(frame) for frame in frames], **_settings(vector))
            assert [bytes(frame) for frame in cdtp.encode(message)] == frames


@pytest.mark.parametrize("vector", [_requirements(vector) for vector in VECTORS if "decoded" in vector])
def test_decoded_messages_survive_pickling(vector: dict[str, Any]) -> None:
    message = cdtp.decode(_frames(vector), **_settings(vector))
    assert cdtp.encode(pickle.loads(pickle.dumps(message))) == cdtp.encode(message)


@pytest.mark.parametrize("vector", [_requirements(vector) for vector in VECTORS if "error" in vector])
def test_errors_are_those_of_the_vectors(vector: dict[str, Any]) -> None:
    with pytest.raises(DecodeError) as caught:
        cdtp.decode(_frames(vector), **_settings(vector))
    error = caught.value
    assert error.protocol == "cdtp"
    assert {"kind": error.kind, "frame": error.frame, "offset": error.offset} == vector["error"]


@pytest.mark.parametrize("vector", [_requirements(vector) for vector in VECTORS])
def test_the_naive_decoder_agrees(vector: dict[str, Any]) -> None:
    settings = _settings(vector)
    accept, strict = tuple(settings["accept"]), settings["strict"]
    assert theirs(_frames(vector), accept, strict=strict) == ours(_frames(vector), accept, strict=strict)
    if "error" in vector:
        with pytest.raises(naive.DecodeFaultError) as caught:
            naive.decode(_frames(vector), accept, strict=strict)
        assert {"kind": caught.value.kind, "frame": caught.value.frame, "offset": caught.value.offset} == vector[
            "error"
        ]


def test_every_error_kind_has_a_vector() -> None:
    assert len(VECTORS) > 150
    files = (Path(__file__).parents[1] / "vectors").glob("*/*.json")
    vectors = [vector for file in files for vector in json.loads(file.read_text())]
    assert {vector["error"]["kind"] for vector in vectors if "error" in vector} == set(error_kinds())


@pytest.mark.req("CDTP-03")
def test_an_error_says_what_its_kind_means() -> None:
    with pytest.raises(DecodeError) as raised:
        cdtp.decode([bytes.fromhex("a54344545002 a144 00 90")], accept="S")
    assert "unsupported_version in frame 0 at byte 0 of a CDTP message" in str(raised.value)
    assert "that is not accepted" in str(raised.value)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.args) == (str(raised.value), raised.value.args)
    by_hand = DecodeError("cdtp", "bad_type", 0, 7)
    assert str(by_hand) == "bad_type in frame 0 at byte 7 of a CDTP message"


def test_one_header_may_be_accepted_by_itself() -> None:
    frames = [bytes.fromhex("a54344545001 a144 d6ff00000000 80"), b"x"]
    assert cdtp.decode(frames, accept="S") == cdtp.decode(frames, accept=["S"])
    with pytest.raises(DecodeError, match="unsupported_version"):
        cdtp.decode(frames, accept="2")
    with pytest.raises(ValueError, match="accept: unknown CDTP header"):
        cdtp.decode(frames, accept="SA")  # type: ignore[arg-type]  # one header, not several


@pytest.mark.req("CDTP-22")
def test_a_batch_is_a_sequence() -> None:
    records = [[number, {}, []] for number in (1, 2, 3, 2)]
    frame = b"\xa5CDTP\x02\xa1D\x00" + reference.packb(records)
    batch = cdtp.decode([frame])
    assert isinstance(batch, cdtp.Batch)
    assert isinstance(batch, Sequence)
    messages = [batch[number] for number in range(4)]
    assert list(reversed(batch)) == messages[::-1]
    for cut in (slice(1, 3), slice(None, None, -1), slice(-1, None), slice(5, 9), slice(None, None, 2)):
        assert batch[cut] == tuple(messages[cut])
    assert [batch.index(message) for message in messages] == [0, 1, 2, 1]
    assert batch.index(messages[1], 2) == 3
    assert batch.index(messages[1], -1) == 3
    assert [batch.count(message) for message in messages] == [1, 2, 1, 2]
    assert messages[1] in batch
    assert "x" not in batch
    assert batch.count("x") == 0
    for value, *bounds in ((messages[1], 0, 1), (messages[0], 1), ("x",)):
        with pytest.raises(ValueError, match="not in the batch"):
            batch.index(value, *bounds)
    with pytest.raises(IndexError):
        batch[4]

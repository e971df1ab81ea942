"""The codec alone: the vectors of `tests/vectors/chirp`, which Rust reads as well, and what users build."""

import hashlib
import json
import pickle
from pathlib import Path

import pytest

from trunkline import DecodeError, chirp

FILES = sorted((Path(__file__).parents[1] / "vectors" / "chirp").glob("*.json"))
VECTORS = [
    pytest.param(vector, id=vector["id"], marks=pytest.mark.req(*vector["requirements"]))
    for file in FILES
    for vector in json.loads(file.read_text())
]


def frames(vector):
    return [bytes.fromhex(frame) for frame in vector["frames"]]


def is_good(parameter):
    return "decoded" in parameter.values[0]


@pytest.mark.parametrize("vector", [vector for vector in VECTORS if is_good(vector)])
def test_datagrams_say_what_the_vectors_say(vector):
    message = chirp.decode(frames(vector))
    said = {name: getattr(message, name) for name in ("kind", "group", "host", "port")}
    assert {**said, "service": message.service.name.lower()} == vector["decoded"]
    assert list(chirp.encode(message)) == frames(vector)
    assert chirp.decode(frames(vector)[0]) == message
    assert chirp.decode(memoryview(frames(vector)[0])) == message


@pytest.mark.parametrize("vector", [vector for vector in VECTORS if not is_good(vector)])
def test_errors_are_those_of_the_vectors(vector):
    with pytest.raises(DecodeError) as caught:
        chirp.decode(frames(vector))
    error = caught.value
    assert error.protocol == "chirp"
    assert {"kind": error.kind, "frame": error.frame, "offset": error.offset} == vector["error"]


@pytest.mark.req("CHIRP-03")
def test_names_are_hashed_both_ways():
    assert chirp.hash_name("Det.One") == hashlib.md5(b"det.one").hexdigest()
    assert chirp.hash_name("Det.One", lower_case=False) == hashlib.md5(b"Det.One").hexdigest()
    assert chirp.hash_name("DÉT") == hashlib.md5("dét".encode()).hexdigest()


def test_messages_are_frozen_comparable_and_picklable():
    message = chirp.Message("offer", chirp.hash_name("lab"), chirp.hash_name("d"), chirp.Service.DATA, 1)
    assert pickle.loads(pickle.dumps(message)) == message
    assert len({message, chirp.decode(chirp.encode(message))}) == 1
    with pytest.raises(AttributeError):
        message.port = 2


@pytest.mark.parametrize(
    "field", [{"kind": "bye"}, {"host": "00"}, {"group": "+" * 32}, {"group": "é" * 16}, {"service": 5}]
)
def test_refuses_what_no_datagram_can_say(field):
    fields = {"kind": "offer", "group": "0" * 32, "host": "F" * 32, "service": chirp.Service.DATA, "port": 1}
    with pytest.raises(ValueError, match=r"offer|hexadecimal|service"):
        chirp.encode(chirp.Message(**{**fields, **field}))


def test_refuses_a_port_beyond_16_bits():
    with pytest.raises(OverflowError):
        chirp.encode(chirp.Message("offer", "0" * 32, "0" * 32, chirp.Service.DATA, 65536))

"""Messages without sockets, held against the vectors that Rust reads as well."""

import json
import math
import pickle
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline import DecodeError, error_kinds, mtl
from trunkline.errors import LocalProtocolError

sys.path.insert(0, str(Path(__file__).parents[1] / "interop"))
from naive import mtl as naive

FILES = sorted((Path(__file__).parents[1] / "vectors" / "mtl").glob("*.json"))
VECTORS = [vector for file in FILES for vector in json.loads(file.read_text())]
FIELDS = ("sequence", "lease", "resource", "properties", "multiple", "recycle", "status", "body")
AFTER_TIME = 253_402_300_800


def of(*, which):
    return [
        pytest.param(vector, id=vector["id"], marks=pytest.mark.req(*vector["requirements"]))
        for vector in VECTORS
        if which in vector
    ]


def frames_of(vector):
    return [bytes.fromhex(frame) for frame in vector["frames"]]


def value_of(said):
    """A value of a field table as Python has it."""
    match said:
        case {"f64": number}:
            return float(number)
        case {"decimal": [places, digits]}:
            return Decimal(digits).scaleb(-places)
        case {"bin": text}:
            return bytes.fromhex(text)
        case {"time": seconds}:
            return datetime.fromtimestamp(seconds, UTC) if seconds < AFTER_TIME else seconds
        case {"map": pairs}:
            return {name: value_of(value) for name, value in pairs}
        case list():
            return [value_of(value) for value in said]
        case _:
            return said


def expected(decoded):
    """What a message of the data flow says, in Python."""
    said = dict.fromkeys(FIELDS) | decoded
    if decoded["type"] == "content":
        said["properties"] = {name: value_of(value) for name, value in decoded["properties"]}
        said["body"] = bytes.fromhex(decoded["body"])
    return said


def said_by(message):
    """What a message says, in a form in which NaN is itself, and True is not 1."""
    match message:
        case mtl.Command():
            return repr({"name": message.name, "body": message.body})
        case mtl.Reply():
            return repr({"status": message.status, "body": message.body})
        case _:
            return repr({name: getattr(message, name) for name in ("type", *FIELDS)})


def test_there_are_vectors():
    assert len(VECTORS) > 300


@pytest.mark.parametrize("vector", of(which="decoded"))
def test_messages_say_what_the_vectors_say(vector):
    frames, decoded = frames_of(vector), vector["decoded"]
    message = mtl.decode(frames)
    if "type" in decoded:
        said = expected(decoded)
        assert said_by(message) == repr({name: said[name] for name in ("type", *FIELDS)})
        assert mtl.encode(message) == tuple(frames)
    else:
        assert said_by(message) == repr(decoded)
        assert mtl.encode(message) == tuple(frames)
    again = pickle.loads(pickle.dumps(message))
    assert again == message
    assert hash(again) == hash(message)
    assert mtl.encode(again) == mtl.encode(message)
    if vector.get("canonical"):
        if "type" in decoded:
            given = {name: value for name, value in expected(decoded).items() if value is not None}
            built = mtl.Message(given.pop("type"), **given)
        elif "name" in decoded:
            built = mtl.Command(decoded["name"], decoded["body"])
        else:
            built = mtl.Reply(decoded["status"], decoded["body"])
        assert built == message
        assert mtl.encode(built) == tuple(frames)


@pytest.mark.parametrize("vector", of(which="error"))
def test_errors_are_those_of_the_vectors(vector):
    with pytest.raises(DecodeError) as caught:
        mtl.decode(frames_of(vector))
    error = caught.value
    assert error.protocol == "mtl"
    assert {"kind": error.kind, "frame": error.frame, "offset": error.offset} == vector["error"]
    assert error.kind in error_kinds()


def ours(frames):
    """What the package says; of JSON not where its fault is, which the naive decoder does not know."""
    try:
        message = mtl.decode(frames)
    except DecodeError as error:
        return (error.kind, error.frame, 0 if error.kind == "bad_json" else error.offset)
    return said_by(message)


def theirs(frames):
    """What the naive decoder says, in the same form."""
    try:
        found = naive.decode(frames)
    except naive.DecodeFaultError as fault:
        return (fault.kind, fault.frame, fault.offset)
    if "type" not in found:
        return repr(found)
    found = dict.fromkeys(FIELDS) | found
    return repr({name: plain(found[name]) for name in ("type", *FIELDS)})


def plain(value):
    if isinstance(value, naive.Time):
        return datetime.fromtimestamp(value, UTC) if value < AFTER_TIME else int(value)
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value


@pytest.mark.parametrize("vector", of(which="frames"))
def test_the_naive_decoder_agrees(vector):
    frames = frames_of(vector)
    assert theirs(frames) == ours(frames)
    if "error" in vector:
        error = vector["error"]
        assert theirs(frames)[:2] == (error["kind"], error["frame"])


@st.composite
def frames_that_something_has_happened_to(draw):
    frames = frames_of(draw(st.sampled_from(VECTORS)))
    for _ in range(draw(st.integers(0, 3))):
        if not frames:
            break
        at = draw(st.integers(0, len(frames) - 1))
        frame = frames[at]
        place = draw(st.integers(0, len(frame)))
        over = draw(st.integers(0, 3))
        frames[at] = frame[:place] + draw(st.binary(max_size=3)) + frame[place + over :]
    return frames


@pytest.mark.req("MTL-07", "MTL-08", "MTL-32", "MTL-33", "MTL-59", "MTL-60")
@settings(max_examples=1000, deadline=None)
@given(frames_that_something_has_happened_to())
def test_both_say_the_same(frames):
    assert ours(frames) == theirs(frames)


@pytest.mark.req("MTL-33")
@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=3))
def test_both_say_the_same_of_any_bytes(frames):
    assert ours(frames) == theirs(frames)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@pytest.mark.req("MTL-07", "MTL-08")
@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.booleans())
def test_json_is_read_as_others_write_it_and_others_read_ours(body, compact):
    separators = (",", ":") if compact else (" ,\n", " :\t")
    reply = mtl.decode([b"200", json.dumps(body, separators=separators, ensure_ascii=compact).encode()])
    assert repr(reply.body) == repr(body)
    assert repr(json.loads(mtl.encode(mtl.Reply(200, reply.body))[1])) == repr(body)
    command = mtl.Command("A.B", body)
    assert pickle.loads(pickle.dumps(command)) == command


@pytest.mark.parametrize("first", [b"Queue.Info", b"200"])
def test_what_was_decoded_is_encoded_bit_for_bit(first):
    frames = (first, b'{ "b": 1.0, "a": "\\u00e4" , "b": 1e2 }\n')
    message = mtl.decode(frames)
    assert mtl.encode(message) == frames
    assert mtl.encode(pickle.loads(pickle.dumps(message))) == frames
    # What it says is what counts.
    assert message == mtl.decode([first, b'{"b": 100.0, "a": "\xc3\xa4"}'])


def test_json_of_any_size_is_decoded():
    body = json.dumps({"big": "x" * (2 << 20)}).encode()
    assert len(mtl.decode([b"A.B", body]).body["big"]) == 2 << 20


def test_frames_may_be_anything_like_bytes():
    frames = [b"\x05" + bytes(7) + b"\x01\x04jobs" + bytes(4), b"x" * 2000]
    for kind in (memoryview, bytearray, zmq.Frame):
        assert mtl.encode(mtl.decode([kind(frame) for frame in frames])) == tuple(frames)
    with pytest.raises(TypeError):
        mtl.decode(["text"])


@pytest.mark.req("MTL-07")
def test_json_has_127_levels_at_most():
    def nested(depth):
        return [b"A.B", b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"]

    command = mtl.decode(nested(127))
    assert mtl.decode(mtl.encode(command)) == command
    assert mtl.Command("A.B", command.body) == command
    with pytest.raises(DecodeError, match="bad_json"):
        mtl.decode(nested(128))
    with pytest.raises(ValueError, match="more than 127 deep"):
        mtl.Command("A.B", {"a": [command.body["a"]]})


@pytest.mark.parametrize("text", [",", '\\",[{', ""], ids=["text", "escapes", "none"])
def test_json_has_a_million_values_at_most(text):
    """Counted before any of them is made; what stands in text is none."""

    def reply(count):
        return [b"200", b'{"a":["%b"' % text.encode() + b",[]" * count + b"]}"]

    # The object, its name, the array, and two for each that follows.
    most = (1_000_000 - 3) // 2
    assert len(mtl.decode(reply(most)).body["a"]) == most + 1
    with pytest.raises(DecodeError, match="bad_json"):
        mtl.decode(reply(most + 1))


def test_are_compared_by_what_they_say():
    ping = mtl.Message("ping")
    assert ping == mtl.decode([b"\x08", b""])
    assert ping != mtl.Message("pong")
    assert ping != (b"\x08", b"")
    assert ping != mtl.Reply(200)
    assert mtl.Reply(200, {"status": "OK"}) == mtl.decode([b"200", b'{ "status" : "OK" }'])
    assert mtl.Reply(200) != mtl.Reply(201)
    assert mtl.Command("A.B") == mtl.Command("A.B", {})
    assert mtl.Command("A.B") != mtl.Command("a.b")
    assert mtl.Command("A.B", {"a": 1}) != mtl.Command("A.B", {"a": 2})
    assert len({ping, mtl.Message("ping"), mtl.Command("A.B"), mtl.Reply(200), mtl.Reply(200)}) == 3
    with pytest.raises(TypeError):
        sorted([ping, mtl.Message("pong")])
    with pytest.raises(AttributeError):
        ping.sequence = 1


@pytest.mark.req("MTL-26")
def test_show_what_they_are_and_no_lease():
    assert repr(mtl.Message("lease", sequence=1, lease="secret")) == 'Message("lease", sequence=1, lease=…)'
    assert repr(mtl.Message("ping")) == 'Message("ping")'
    assert (
        repr(mtl.Message("summon", sequence=2, resource="jobs")) == "Message(\"summon\", sequence=2, resource='jobs')"
    )
    assert repr(mtl.Message("response", sequence=2, status=403)) == 'Message("response", sequence=2, status=403)'
    assert repr(mtl.Message("confirm", sequence=3, multiple=True)) == 'Message("confirm", sequence=3, multiple=True)'
    content = mtl.Message("content", sequence=4, resource="", properties={"a": 1}, body=b"abc")
    assert repr(content) == "Message(\"content\", sequence=4, resource='', properties={'a': 1}, body=<3 bytes>)"
    assert repr(mtl.Command("Queue.List")) == 'Command("Queue.List", {})'
    assert repr(mtl.Reply(200, {"status": "OK"})) == "Reply(200, {'status': 'OK'})"


@pytest.mark.req("MTL-32", "MTL-45", "MTL-51", "MTL-53", "MTL-59")
@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"type": "hello"}, LocalProtocolError, "hello"),
        ({"type": "ping", "sequence": 1}, LocalProtocolError, "a ping has no sequence"),
        ({"type": "ping", "body": b""}, LocalProtocolError, "a ping has no body"),
        ({"type": "summon", "resource": "jobs", "lease": "x"}, LocalProtocolError, "a summon has no lease"),
        ({"type": "lease", "lease": "x", "resource": "jobs"}, LocalProtocolError, "a lease has no resource"),
        ({"type": "confirm", "recycle": True}, LocalProtocolError, "a confirm has no recycle"),
        ({"type": "response", "status": 200, "multiple": True}, LocalProtocolError, "a response has no multiple"),
        ({"type": "confirm", "status": 200}, LocalProtocolError, "a confirm has no status"),
        ({"type": "confirm", "properties": {}}, LocalProtocolError, "a confirm has no properties"),
        ({"type": "lease"}, LocalProtocolError, "a lease needs lease="),
        ({"type": "summon"}, LocalProtocolError, "a summon needs resource="),
        ({"type": "dismiss"}, LocalProtocolError, "a dismiss needs resource="),
        ({"type": "response"}, LocalProtocolError, "a response needs status="),
        ({"type": "response", "status": 199}, LocalProtocolError, "status must be from 200 to 599"),
        ({"type": "response", "status": 600}, LocalProtocolError, "status must be from 200 to 599"),
        ({"type": "summon", "resource": "r" * 256}, LocalProtocolError, "resource must be at most 255"),
        ({"type": "lease", "lease": "ä" * 128}, LocalProtocolError, "lease must be at most 255"),
        ({"type": "summon", "resource": "a\n"}, LocalProtocolError, "resource must be printable"),
        ({"type": "content", "resource": "a\x7f"}, LocalProtocolError, "resource must be printable"),
        ({"type": "confirm", "sequence": -1}, OverflowError, "int"),
        ({"type": "confirm", "sequence": 2**64}, OverflowError, "int"),
        ({"type": "confirm", "sequence": "1"}, TypeError, "sequence"),
        ({"type": "content", "properties": [1]}, TypeError, "properties"),
        ({"type": "content", "body": "text"}, TypeError, "body"),
        ({"type": "summon", "resource": b"jobs"}, TypeError, "resource"),
    ],
    ids=str,
)
def test_what_would_be_no_message_is_refused(arguments, error, says):
    arguments = dict(arguments)
    with pytest.raises(error, match=says):
        mtl.Message(arguments.pop("type"), **arguments)


@pytest.mark.req("MTL-07", "MTL-08")
@pytest.mark.parametrize(
    ("made", "error", "says"),
    [
        (lambda: mtl.Command("Open"), LocalProtocolError, "Class.Method"),
        (lambda: mtl.Command(""), LocalProtocolError, "Class.Method"),
        (lambda: mtl.Command(".Open"), LocalProtocolError, "Class.Method"),
        (lambda: mtl.Command("A.B\n"), LocalProtocolError, "Class.Method"),
        (lambda: mtl.Command("A.B", [1]), TypeError, "body"),
        (lambda: mtl.Command("A.B", {1: 2}), TypeError, "body"),
        (lambda: mtl.Command("A.B", {"a": b"x"}), TypeError, "body"),
        (lambda: mtl.Command("A.B", {"a": math.nan}), ValueError, "body"),
        (lambda: mtl.Command("A.B", {"a": math.inf}), ValueError, "body"),
        (lambda: mtl.Command("A.B", {"a": 2**64}), ValueError, "body"),
        (lambda: mtl.Command("A.B", {"a": -(2**63) - 1}), ValueError, "body"),
        (lambda: mtl.Command("A.B", {"a": "\ud800"}), UnicodeEncodeError, "surrogates"),
        (lambda: mtl.Reply(199), LocalProtocolError, "200 to 599"),
        (lambda: mtl.Reply(600), LocalProtocolError, "status must be from 200 to 599"),
        (lambda: mtl.Reply(200, "OK"), TypeError, "body"),
        (lambda: mtl.encode(b"x"), TypeError, "Message"),
    ],
)
def test_what_would_be_no_command_and_no_reply_is_refused(made, error, says):
    with pytest.raises(error, match=says):
        made()

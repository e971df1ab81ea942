"""Messages written from what was read of them."""

from __future__ import annotations

import json
import struct

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peers.together import ALPHABET
from trunkline import mtl
from trunkline.columns import Decoder, protocols

OF = {"requests": "dcp", "topics": "mc0", "contents": "mtl", "rollout": "cdt", "gaps": "cdtp", "runs": "cdtp"}
EVENT = "kaa.v1.events.cdp.endpoint.config.ConfigUpdated"
RESPONSE = "kaa.v1.service.cmx.cmx2cdp.ConfigResponse"


def before(protocol, frames):
    """How many frames stand before the header: none of data of MTL, which begins with a small number."""
    if protocol == "mtl":
        return 1 if frames[:1] == [b""] else 0
    return {"cdtp": 0, "dcp": 1, "mc0": 1}[protocol]


def columns(protocol, messages):
    """The columns of messages: frames, and of CDT a subject."""
    rows = []
    for frames, topic in messages:
        at = 0 if protocol == "cdt" else before(protocol, frames)
        header = None if protocol == "cdt" or at >= len(frames) else frames[at]
        payload = frames if protocol == "cdt" else frames[at + 1 :]
        rows.append((frames[:at] if protocol != "cdt" else [], header, payload, topic))
    envelope, header, payload, topic = zip(*rows, strict=True) if rows else ([], [], [], [])
    found = {
        "envelope": pa.array(envelope, pa.list_(pa.binary())),
        "header": pa.array(header, pa.binary()),
        "payload": pa.array(payload, pa.list_(pa.binary())),
        "n_frames": pa.array([len(frames) for frames, _ in messages], pa.int32()),
        "n_bytes": pa.array([sum(map(len, frames)) for frames, _ in messages], pa.int64()),
        "topic": pa.array(topic, pa.string()),
    }
    return {name: found[name] for name, _, _ in Decoder(protocol).protocol.inputs}


def decoder(protocol):
    options = {} if protocol == "cdtp" else {"payload": True}
    return Decoder(protocol, **options)


def back(protocol, structs):
    """The frames of structs."""
    return [
        None
        if row is None
        else [*row["envelope"], *([row["header"]] if row["header"] is not None else []), *(row["payload"] or [])]
        for row in decoder(protocol).encode_structs(structs).to_pylist()
    ]


def there_and_back(protocol, messages):
    structs = decoder(protocol).decode_structs(**columns(protocol, messages))
    return structs, back(protocol, structs)


def told(name):
    return [each[2] if isinstance(each[2], tuple) else (each[2], None) for each in ALPHABET[name]]


@pytest.mark.parametrize("name", OF)
def test_recorded_messages_come_back_bit_for_bit(name):
    protocol = OF[name]
    messages = told(name)
    structs, found = there_and_back(protocol, messages)
    assert None not in structs.to_pylist()
    # A header of CDTP does not say its payload, a lease not more than its hash, and a reading of CDT passes over what is not its own.
    if protocol == "cdtp":
        assert found == [frames[:1] for frames, _ in messages]
    elif protocol == "cdt":
        assert [json.loads(frames[0]) for frames in found] == [
            {**json.loads(frames[0]), "timestamp": 1} | json.loads(again[0])
            for (frames, _), again in zip(messages, found, strict=True)
        ]
    else:
        leases = [frames[0][:1] == b"\x01" for frames, _ in messages]
        assert [each for each, lease in zip(found, leases, strict=True) if not lease] == [
            frames for (frames, _), lease in zip(messages, leases, strict=True) if not lease
        ]


FRAMES = st.lists(
    st.one_of(st.just(b""), st.binary(max_size=20), st.sampled_from([b"PUT", b"DGBX\x01", b"200", b"{}"])),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("protocol", [known.name for known in protocols()])
@settings(max_examples=150, deadline=None)
@given(messages=st.lists(FRAMES, min_size=1, max_size=5))
def test_what_is_no_message_comes_back_as_it_was(protocol, messages):
    # An answer without a body says that nobody has heard.
    rows = [([frames[0] or b"x"], EVENT) if protocol == "cdt" else (frames, None) for frames in messages]
    structs, found = there_and_back(protocol, rows)
    for said, (frames, _), again in zip(structs.to_pylist(), rows, found, strict=True):
        if said is not None and said["error"] is not None:
            assert again == (frames[:1] if protocol == "cdtp" else frames)


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False),
        st.text(max_size=80),
        st.binary(max_size=80),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=8,
)
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=20)
TAGS = st.dictionaries(st.text(max_size=8), VALUES, max_size=5)


def in_order(value):
    """The same with keys in byte order."""
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value, key=str.encode)}
    return [in_order(member) for member in value] if isinstance(value, list) else value


def header(variant, sender, seconds, nanos, kind, sequence, tags):
    packed = msgpack.packb("CDTP" + ("\2" if variant == "2" else "\1")) + msgpack.packb(sender)
    if variant in "SA":
        packed += msgpack.packb(msgpack.Timestamp(seconds, nanos))
    if variant in "AB":
        packed += msgpack.packb(kind) + msgpack.packb(sequence)
    return packed + msgpack.packb(in_order(tags), use_bin_type=True)


@settings(max_examples=200, deadline=None)
@given(
    variant=st.sampled_from("SAB"),
    sender=st.text(min_size=1, max_size=30),
    at=st.tuples(st.integers(0, 2**33), st.integers(0, 10**9 - 1)),
    kind=st.integers(0, 2),
    sequence=st.integers(0, 2**63 - 1),
    tags=TAGS,
)
def test_canonical_headers_come_back_bit_for_bit(variant, sender, at, kind, sequence, tags):
    if variant == "A":
        made = header("S", sender, *at, kind, sequence, {})[:-1] + msgpack.packb(kind) + msgpack.packb(sequence)
        made += msgpack.packb(in_order(tags), use_bin_type=True)
    else:
        made = header(variant, sender, *at, kind, sequence, tags)
    payload = [b"\x80"] if kind else [b"x"]
    structs, found = there_and_back("cdtp", [([made, *payload], None)])
    assert structs.to_pylist()[0]["error"] is None
    assert found == [[made]]


@settings(max_examples=100, deadline=None)
@given(
    records=st.lists(
        st.tuples(st.integers(0, 2**40), TAGS, st.lists(st.binary(max_size=9), max_size=3)), min_size=1, max_size=3
    )
)
def test_records_say_the_same_when_they_are_read_again(records):
    made = msgpack.packb("CDTP\2") + msgpack.packb("D") + msgpack.packb(0)
    made += msgpack.packb([[number, in_order(tags), blocks] for number, tags, blocks in records], use_bin_type=True)
    structs, found = there_and_back("cdtp", [([made], None)])
    assert structs.to_pylist()[0]["error"] is None
    again, _ = there_and_back("cdtp", [(found[0], None)])
    # Bytes of all frames are those of the header, whose tags may have been in more bytes.
    assert again.to_pylist()[0]["records"] == structs.to_pylist()[0]["records"]


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=20),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from([b"User.Login", b"Queue.Create", b"200", b"404"]),
    body=st.dictionaries(st.text(max_size=6), JSON, max_size=4),
)
def test_commands_and_replies_say_the_same_when_they_are_read_again(name, body):
    made = json.dumps(in_order(body), separators=(",", ":"), ensure_ascii=False).encode()
    structs, found = there_and_back("mtl", [([b"", name, made], None)])
    assert structs.to_pylist()[0]["error"] is None
    assert (found[0][:2], json.loads(found[0][2])) == ([b"", name], json.loads(made))
    again, twice = there_and_back("mtl", [(found[0], None)])
    assert again.equals(structs)
    assert twice == found


@settings(max_examples=150, deadline=None)
@given(
    sequence=st.integers(0, 2**64 - 1),
    resource=WORDS,
    properties=st.dictionaries(
        WORDS.filter(bool),
        st.one_of(
            st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=30)
        ),
        max_size=5,
    ),
    body=st.binary(max_size=40),
)
def test_contents_come_back_bit_for_bit(sequence, resource, properties, body):
    name = resource.encode()
    made = struct.pack(">BQB", 5, sequence, len(name)) + name + mtl.encode_table(in_order(properties))
    structs, found = there_and_back("mtl", [([made, body], None)])
    assert structs.to_pylist()[0]["error"] is None
    assert found == [[made, body]]


@settings(max_examples=150, deadline=None)
@given(
    texts=st.tuples(*[st.text(min_size=1, max_size=12)] * 6),
    timestamp=st.integers(0, 253_402_300_799_999),
    timeout=st.integers(-1, 2**40),
    status=st.integers(200, 599),
    content=st.none() | st.binary(max_size=40),
    codec=st.sampled_from(["json", "avro"]),
)
def test_bodies_say_the_same_when_they_are_read_again(texts, timestamp, timeout, status, content, codec):
    names = ("correlation_id", "endpoint_message_id", "app_version_name", "endpoint_id", "config_id", "reason_phrase")
    said = dict(zip(names, texts, strict=True)) | {
        "timestamp_ms": timestamp,
        "timeout_ms": timeout,
        "status_code": status,
    }
    said |= {"type": "ConfigResponse", "content": content, "content_type": None if content is None else "t"}
    said["content_bytes"] = None if content is None else len(content)
    writing = Decoder("cdt", codec=codec, payload=True)
    made = writing.encode_structs(pa.array([said])).to_pylist()[0]["payload"]
    inputs = columns("cdt", [(made, RESPONSE)])
    found = writing.decode_structs(**inputs).to_pylist()[0]
    assert {name: found[name] for name in said} == said
    assert writing.encode_structs(writing.decode_structs(**inputs)).to_pylist()[0]["payload"] == made


@pytest.mark.parametrize(
    ("protocol", "said", "words"),
    [
        ("cdtp", {"variant": "S"}, "row 0: sender is missing"),
        ("cdtp", {"variant": "C", "sender": "D"}, 'row 0: variant: there is no "C"'),
        ("cdtp", {"variant": "B", "sender": "D", "type": "DAT", "sequence": -1}, "sequence is missing, or below 0"),
        ("cdtp", {"variant": "S", "sender": "D", "timestamp_ns": 1, "tags": "{}"}, "tags is .*, it must be a VARIANT"),
        (
            "cdtp",
            {"variant": "2", "sender": "D", "type": "DAT", "sequence": 1, "payload_frames": 2**40},
            "more than a header holds",
        ),
        (
            "cdtp",
            {"variant": "2", "sender": "D", "type": "DAT", "sequence": 1, "payload_bytes": 2**62},
            "more than a header holds",
        ),
        ("dcp", {"type": "request"}, "row 0: service is missing"),
        ("dcp", {"type": "ask"}, 'there is no "ask"'),
        ("dcp", {"type": "reply", "client": b"c", "data_parts": 2}, "data is missing: decode with it"),
        ("mc0", {"verb": "PUT"}, "row 0: topic is missing"),
        ("mtl", {"type": "content", "sequence": 1, "resource": "r" * 300}, "resource has more than 255 bytes"),
        ("mtl", {"type": "reply", "status": 99}, "status is missing, or none"),
        ("mtl", {"type": "command", "name": "Login"}, "this is no message of mtl: bad_command in frame 1"),
        ("mc0", {"verb": "CONNECT", "ttl_ms": -1}, "this is no message of mc0"),
        ("cdt", {"type": "ConfigUpdated"}, "row 0: timestamp_ms is missing"),
    ],
)
def test_what_no_message_can_say_is_refused(protocol, said, words):
    with pytest.raises(ValueError, match=words):
        Decoder(protocol).encode_structs(pa.array([said]))


def test_a_variant_whose_values_stand_in_several_places_is_refused():
    """It would be as large as one likes: each level refers to the next ten times."""
    value = b"\x00"
    for _ in range(12):
        value = bytes([0b11, 10, *[0] * 10, len(value) & 0xFF]) + value
    value = b"\x02\x01\x00\x00" + bytes([len(value) & 0xFF]) + value
    tags = pa.StructArray.from_arrays(
        [pa.array([value], pa.binary()), pa.array([b"\x01\x01\x00\x01a"], pa.binary())], names=["value", "metadata"]
    )
    said = {"variant": ["B"], "sender": ["D"], "type": ["DAT"], "sequence": [1]}
    structs = pa.StructArray.from_arrays([*(pa.array(each) for each in said.values()), tags], names=[*said, "tags"])
    with pytest.raises(ValueError, match="values in several places"):
        Decoder("cdtp").encode_structs(structs)


def test_columns_of_their_own_are_written_too():
    said = pa.array(
        [
            {
                "variant": "B",
                "sender": "D",
                "type": "DAT",
                "sequence": 7,
                "tag_run": 5,
                "tag_b": b"x",
                "tag_a": "y",
                "tag_n": None,
            }
        ]
    )
    [frames] = Decoder("cdtp").encode_structs(said).to_pylist()
    assert frames["header"] == msgpack.packb("CDTP\1") + b"\xa1D\0\7" + msgpack.packb({"a": "y", "b": b"x", "run": 5})
    assert frames["payload"] is None
    with pytest.raises(ValueError, match="must be of structs"):
        Decoder("cdtp").encode_structs(pa.array([1]))

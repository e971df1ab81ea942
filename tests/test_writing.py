"""Messages written from what was read of them."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import struct

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peers.together import ALPHABET
from trunkline import capture, cdtp, mc0, mtl
from trunkline._native.analysis import Fold
from trunkline.columns import Decoder, protocols

OF = {name: Fold(name).protocol for name in Fold.NAMES}
EVENT = "kaa.v1.events.cdp.endpoint.config.ConfigUpdated"


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
    return Decoder(protocol, payload=True)


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


def messages_of(name):
    return [each[2] if isinstance(each[2], tuple) else (each[2], None) for each in ALPHABET[name]]


@pytest.mark.parametrize("name", OF)
def test_recorded_messages_come_back_bit_for_bit(name):
    protocol = OF[name]
    messages = messages_of(name)
    structs, found = there_and_back(protocol, messages)
    assert None not in structs.to_pylist()
    # A lease does not say more than its hash, and a reading of CDT passes over what is not its own.
    if protocol == "cdt":
        assert [json.loads(frames[0]) for frames in found] == [
            {**json.loads(frames[0]), "timestamp": 1} | json.loads(again[0])
            for (frames, _), again in zip(messages, found, strict=True)
        ]
    else:
        leases = [frames[0][:1] == b"\x01" for frames, _ in messages]
        assert [each for each, lease in zip(found, leases, strict=True) if not lease] == [
            frames for (frames, _), lease in zip(messages, leases, strict=True) if not lease
        ]


def widened(array):
    """The same with texts and bytes of wide offsets, as `spark.sql.execution.arrow.useLargeVarTypes` makes them."""
    kind = array.type
    if pa.types.is_struct(kind):
        parts = [widened(array.field(at)) for at in range(kind.num_fields)]
        fields = [field.with_type(part.type) for field, part in zip(kind, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())
    wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    return array.cast(wide[kind]) if kind in wide else array


@pytest.mark.parametrize("name", OF)
def test_columns_of_wide_offsets_are_written_as_well(name):
    protocol = OF[name]
    structs = decoder(protocol).decode_structs(**columns(protocol, messages_of(name)))
    assert back(protocol, widened(structs)) == back(protocol, structs)


FRAMES = st.lists(
    st.one_of(st.just(b""), st.binary(max_size=20), st.sampled_from([b"PUT", b"DGBX\x01", b"200", b"{}"])),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("protocol", [known.name for known in protocols()])
@settings(max_examples=150, deadline=None)
@given(messages=st.lists(FRAMES, min_size=1, max_size=5))
def test_what_is_no_message_comes_back_as_it_was(protocol, messages):
    # An answer without a body reports that there is no subscriber.
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


def header(variant, sender, seconds, nanos, kind, sequence, tags):
    packed = msgpack.packb("CDTP" + ("\2" if variant == "2" else "\1")) + msgpack.packb(sender)
    if variant in "SA":
        packed += msgpack.packb(msgpack.Timestamp(seconds, nanos))
    if variant in "AB":
        packed += msgpack.packb(kind) + msgpack.packb(sequence)
    return packed + msgpack.packb(tags, use_bin_type=True)


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
        made += msgpack.packb(tags, use_bin_type=True)
    else:
        made = header(variant, sender, *at, kind, sequence, tags)
    payload = [b"\x80"] if kind else [b"x"]
    structs, found = there_and_back("cdtp", [([made, *payload], None)])
    assert structs.to_pylist()[0]["error"] is None
    assert found == [[made, *payload]]


@settings(max_examples=100, deadline=None)
@given(
    records=st.lists(
        st.tuples(st.integers(0, 2**40), TAGS, st.lists(st.binary(max_size=9), max_size=3)), min_size=1, max_size=3
    )
)
def test_records_come_back_bit_for_bit(records):
    made = msgpack.packb("CDTP\2") + msgpack.packb("D") + msgpack.packb(0)
    made += msgpack.packb([[number, tags, blocks] for number, tags, blocks in records], use_bin_type=True)
    structs, found = there_and_back("cdtp", [([made], None)])
    assert structs.to_pylist()[0]["error"] is None
    assert found == [[made]]


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
    made = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
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
    made = struct.pack(">BQB", 5, sequence, len(name)) + name + mtl.encode_table(properties)
    structs, found = there_and_back("mtl", [([made, body], None)])
    assert structs.to_pylist()[0]["error"] is None
    assert found == [[made, body]]


# What CDT says in each kind of message, and the subject of one; what comes last is in JSON alone.
ANSWERED = ("correlation_id", "endpoint_message_id", "app_version_name", "endpoint_id", "config_id")
EVENT_FIELDS = ("correlation_id", "originator_replica_id", "app_version_name", "endpoint_id", "config_id")
KINDS = {
    "ConfigRequest": ("service.cdp.cmx2cdp", ANSWERED, ()),
    "ConfigResponse": ("replica.r1.cmx2cdp", (*ANSWERED, "status_code", "reason_phrase", "content"), ()),
    "ConfigPush": ("service.cmx.cmx2cdp", (*ANSWERED, "content"), ()),
    "ConfigPushResponse": ("replica.r1.cmx2cdp", (*ANSWERED, "status_code", "reason_phrase"), ()),
    "ConfigNewAvailable": ("events.cdp.endpoint.config", EVENT_FIELDS, ("content",)),
    "ConfigUpdated": ("events.cdp.endpoint.config", EVENT_FIELDS, ()),
}
TEXT = st.text(min_size=1, max_size=12)


@pytest.mark.parametrize("codec", ["json", "avro"])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=80, deadline=None)
@given(
    texts=st.fixed_dictionaries(dict.fromkeys({*ANSWERED, *EVENT_FIELDS, "reason_phrase"}, TEXT)),
    times=st.tuples(st.integers(0, 253_402_300_799_999), st.integers(-1, 2**40)),
    status=st.integers(200, 599),
    content=st.none() | st.binary(max_size=40),
)
def test_bodies_say_the_same_when_they_are_read_again(kind, codec, texts, times, status, content):
    subject, in_both, in_json = KINDS[kind]
    fields = in_both if codec == "avro" else (*in_both, *in_json)
    said = {"type": kind} | dict(zip(("timestamp_ms", "timeout_ms"), times, strict=True))
    said |= {name: text for name, text in texts.items() if name in fields}
    if "status_code" in fields:
        said["status_code"] = status
    if "content" in fields:
        is_there = content is not None
        said |= {"content": content, "content_type": "t" if is_there else None}
        said["content_bytes"] = len(content) if is_there else None
    writing = Decoder("cdt", codec=codec, payload=True)
    made = writing.encode_structs(pa.array([said])).to_pylist()[0]["payload"]
    structs = writing.decode_structs(**columns("cdt", [(made, f"kaa.v1.{subject}.{kind}")]))
    found = structs.to_pylist()[0]
    # Where it was said is in the subject, and the time is there a second time.
    derived = {"instance", "replica", "originator", "timestamp"}
    assert {name: value for name, value in found.items() if value is not None and name not in derived} == {
        name: value for name, value in said.items() if value is not None
    }
    assert writing.encode_structs(structs).to_pylist()[0]["payload"] == made


PART = st.binary(max_size=12)
FILLED = st.binary(min_size=1, max_size=12)


def comes_back(protocol, said):
    """Whether what is written of a struct says the same when it is read."""
    reading = decoder(protocol)
    kind = reading.decode_structs(**columns(protocol, [([b"x"], None)])).type
    whole = {field.name: said.get(field.name) for field in kind}
    [frames] = back(protocol, pa.array([whole], kind))
    assert reading.decode_structs(**columns(protocol, [(frames, None)])).to_pylist() == [whole]


@settings(max_examples=200, deadline=None)
@given(
    kind=st.sampled_from(["register", "ping", "pong", "request", "reply", "reconnect"]),
    service=FILLED,
    client=FILLED,
    metadata=st.lists(FILLED, max_size=3),
    data=st.lists(PART, max_size=3),
)
def test_messages_of_dcp_say_the_same_when_they_are_read_again(kind, service, client, metadata, data):
    said = {"type": kind}
    if kind in ("register", "request"):
        said["service"] = service
    if kind in ("request", "reply"):
        said |= {"client": client, "metadata": metadata}
        said |= {"data": data, "data_parts": len(data), "data_bytes": sum(map(len, data))}
    comes_back("dcp", said)


NAME = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=10)


@settings(max_examples=300, deadline=None)
@given(
    verb=st.sampled_from(["CONNECT", "DISCONNECT", "SUB", "UNSUB", "PUT", "NOOP", "MESSAGE", "OK", "ERROR"]),
    name=NAME,
    topics=st.lists(NAME, min_size=1, max_size=3),
    ttl_ms=st.integers(0, 86_400_000),
    headers=st.dictionaries(st.text("ABCxyz-é1", max_size=5).map("X-{}".format), NAME, max_size=3),
    body=st.lists(PART, min_size=1, max_size=3),
)
def test_messages_of_mc0_say_the_same_when_they_are_read_again(verb, name, topics, ttl_ms, headers, body):
    said = {"verb": verb, "id": name, "headers": list(headers.items())}
    if verb == "CONNECT":
        said |= {"version": "0", "ttl_ms": ttl_ms}
    elif verb in ("SUB", "UNSUB"):
        said["topics"] = topics
    elif verb in ("PUT", "MESSAGE"):
        said |= {"topic": name, "body": body, "body_frames": len(body), "body_bytes": sum(map(len, body))}
    elif verb == "ERROR":
        said["text"] = name
    comes_back("mc0", said)


@pytest.mark.parametrize(
    ("protocol", "said", "words"),
    [
        ("cdtp", {"variant": "S"}, "row 0: sender is missing"),
        ("cdtp", {"variant": "C", "sender": "D"}, 'row 0: variant: there is no "C"'),
        ("cdtp", {"variant": "B", "sender": "D", "type": "DAT", "sequence": -1}, "sequence is missing, or below 0"),
        ("cdtp", {"variant": "S", "sender": "D", "timestamp_ns": 1, "tags": "{}"}, "tags is .*, it must be a VARIANT"),
        (
            "cdtp",
            {"variant": "2", "sender": "D", "type": "DAT", "sequence": 1, "tags": None, "payload_frames": 2**40},
            "row 0: payload is missing: decode with it",
        ),
        (
            "cdtp",
            {"variant": "B", "sender": "D", "type": "DAT", "sequence": 1, "tag_run": 1},
            r'row 0: tags are missing: decode with tags="variant", or with "\*": "variant" beside those by name',
        ),
        ("dcp", {"type": "request"}, "row 0: service is missing"),
        ("dcp", {"type": "ask"}, 'there is no "ask"'),
        ("dcp", {"type": "reply", "client": b"c", "data_parts": 2}, "data is missing: decode with it"),
        ("mc0", {"verb": "PUT"}, "row 0: topic is missing"),
        (
            "mtl",
            {"type": "content", "sequence": 1, "resource": "r" * 300, "properties": None},
            "resource has more than 255 bytes",
        ),
        ("mtl", {"type": "content", "sequence": 1, "resource": "r"}, "row 0: properties are missing: decode with"),
        ("mtl", {"type": "reply", "status": 99}, "status is missing, or none"),
        ("mtl", {"type": "reply", "status": 200}, "row 0: json is missing: decode with"),
        ("mtl", {"type": "command", "name": "", "json": None}, "this is no message of mtl: bad_command in frame 1"),
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
                "tags": None,
                "tag_run": 5,
                "tag_b": b"x",
                "tag_a": "y",
                "tag_n": None,
            }
        ]
    )
    [frames] = Decoder("cdtp").encode_structs(said).to_pylist()
    assert frames["header"] == msgpack.packb("CDTP\1") + b"\xa1D\0\7" + msgpack.packb({"run": 5, "b": b"x", "a": "y"})
    assert frames["payload"] is None
    with pytest.raises(ValueError, match="must be of structs"):
        Decoder("cdtp").encode_structs(pa.array([1]))


def test_no_tag_is_left_out_in_silence():
    made = msgpack.packb("CDTP\1") + b"\xa1D\0\7" + msgpack.packb({"gain": 1.5, "run": 7, "site": {"crate": 0}})
    given = columns("cdtp", [([made, b"x"], None)])
    whole = Decoder("cdtp", tags={"run": "bigint", "*": "variant"}).decode_structs(**given)
    [frames] = Decoder("cdtp").encode_structs(whole).to_pylist()
    # A tag with a field of its own comes last.
    assert frames["header"] == msgpack.packb("CDTP\1") + b"\xa1D\0\7" + msgpack.packb(
        {"gain": 1.5, "site": {"crate": 0}, "run": 7}
    )
    for tags, words in (
        ({"run": "bigint"}, "row 0: tags are missing"),
        (None, "tags are missing"),
        ("json", "VARIANT"),
    ):
        some = Decoder("cdtp", tags=tags).decode_structs(**given)
        with pytest.raises(ValueError, match=words):
            Decoder("cdtp").encode_structs(some)


def test_what_roles_have_sent_comes_back_bit_for_bit(tmp_path):
    tags = {"z": 1, "a": {"y": [1.5, None], "b": b"\0"}, "m": "text"}
    with cdtp.Recorder(tmp_path / "cdtp", bind="tcp://127.0.0.1:*") as recorder:
        for header in ("S", "A", "B", "2"):
            with cdtp.Sender("D", header=header, connect=recorder.endpoints[0]) as sender:
                if header != "S":
                    sender.begin_run(tags)
                for payload in (b"x", [b"y", b""]):
                    sender.send(payload, tags=tags)
        recorder.wait(count=12, timeout_s=20)
    with (
        mc0.Middleware(bind="tcp://127.0.0.1:*", capture=tmp_path / "mc0") as bus,
        mc0.Connector(connect=bus.endpoints[0]) as connector,
    ):
        connector.subscribe("runs")
        connector.put("runs", b"body", headers={"X-Z": "1", "X-A": "2"})
        connector.receive(timeout_s=10)
    with (
        mtl.Server(
            bind="tcp://127.0.0.1:*", users={"ada": "sesame"}, resources=["jobs"], capture=tmp_path / "mtl"
        ) as server,
        mtl.Client(connect=server.endpoints, user="ada", password="sesame") as client,
        client.writer("jobs") as writer,
        client.reader(["jobs"]) as reader,
    ):
        reader.summon("jobs")
        at = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
        writer.send(b"x", properties={"z": 2**40, "a": decimal.Decimal("1.50"), "five": decimal.Decimal(5), "at": at})
        reader.receive(timeout_s=10).confirm()
    for protocol in ("cdtp", "mc0", "mtl"):
        rows = capture.open(tmp_path / protocol).read_all().combine_chunks()
        # Without the topic, which names the resource of contents that leave it out.
        names = {name for name, _, _ in Decoder(protocol).protocol.inputs} - {"topic"}
        structs = decoder(protocol).decode_structs(**{name: rows[name].chunk(0) for name in names})
        found = decoder(protocol).encode_structs(structs).to_pylist()
        assert rows.num_rows >= 8
        for row, again in zip(rows.to_pylist(), found, strict=True):
            assert again == {name: row[name] for name in ("envelope", "header", "payload")}

"""Messages of MTL as columns, held against a decoder that shares nothing with the package."""

import hashlib
import json
import math
import struct
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import VariantVal

from interop.naive import mtl as naive
from peers.mtl import ANY, PING, Peers, confirm, content, lease, reject, response
from peers.waiting import until
from trunkline import capture, columns, mtl
from trunkline.errors import DecodeError, LocalProtocolError

VECTORS = Path(__file__).parent.parent / "vectors" / "mtl"
FILES = ("control.json", "data.json", "tables.json", "errors.json")
ALL = [vector for file in FILES for vector in json.loads((VECTORS / file).read_text())]
NAMES = (
    "flow",
    "name",
    "status",
    "type",
    "sequence",
    "resource",
    "lease_hash",
    "multiple",
    "recycle",
    "properties",
    "json",
    "body_bytes",
    "body",
    "error",
    "_corrupt_record",
)
FRAMES = pa.list_(pa.binary())
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def batch(messages, topics=None, **counts):
    """The columns of a capture, of messages without an envelope."""
    return {
        "envelope": pa.array([[] for _ in messages], FRAMES),
        "header": pa.array([frames[0] if frames else None for frames in messages], pa.binary()),
        "payload": pa.array([frames[1:] for frames in messages], FRAMES),
        **({} if topics is None else {"topic": pa.array(topics, pa.string())}),
        **{name: pa.array(values, pa.int64()) for name, values in counts.items()},
    }


def rows(given, **options):
    decoder = columns.Decoder("mtl", **{"payload": True, **options})
    return [row for _, decoded in decoder.decode_rows(**given) for row in decoded.to_pylist()]


def plain(variant):
    """What Spark's own reader makes of a VARIANT."""
    return None if variant is None else VariantVal(variant["value"], variant["metadata"]).toPython()


def expected(value):
    """What a VARIANT is to have of a value of the naive decoder's."""
    match value:
        case naive.Time():
            return EPOCH + timedelta(seconds=value) if value < 253_402_300_800 else expected(int(value))
        case int() if value >= 2**63:
            return Decimal(value)
        case Decimal() if -value.as_tuple().exponent > 38:
            return float(value)
        case list():
            return [expected(each) for each in value]
        case dict():
            return {name: expected(each) for name, each in value.items()}
    return value


def exact(value):
    """Text in which True is not 1, 1.0 is not 1, and NaN is itself; of a decimal its value."""
    match value:
        case list():
            return [exact(each) for each in value]
        case dict():
            return {name: exact(each) for name, each in value.items()}
        case Decimal():
            return f"Decimal({value.normalize() if value else 0})"
        case bytearray():
            return repr(bytes(value))
        case datetime():
            return value.isoformat()
    return repr(value)


def unpacked(frames):
    """What the naive decoder says of recorded frames, which may have an envelope; no data has one."""
    if len(frames) == 2 or b"" not in frames:
        return naive.decode(frames)
    inner = frames[frames.index(b"") + 1 :]
    if len(inner) == 2 and inner[0][:1] < b" ":
        kind = "bad_command"
        raise naive.DecodeFaultError(kind, 0, 0)
    return naive.decode(inner)


def said(frames, topic=None):
    """What is to be found in the row of a message."""
    row = dict.fromkeys(NAMES)
    try:
        found = unpacked(frames)
    except naive.DecodeFaultError as fault:
        return row | {"error": fault.kind, "_corrupt_record": frames}
    if "type" not in found:
        row |= {"flow": "control", "json": expected(found["body"]), "type": "command" if "name" in found else "reply"}
        row |= {"name": found.get("name"), "status": found.get("status")}
        shown = found["body"].get("lease")
    else:
        row |= {"flow": "data"} | {name: found[name] for name in set(found) & set(row)}
        shown = found.get("lease")
    if "properties" in found:
        row |= {"properties": expected(found["properties"]), "body_bytes": len(found["body"])}
        row["resource"] = found["resource"] or ("" if topic is None else topic)
    if isinstance(shown, str):
        row["lease_hash"] = hashlib.sha256(shown.encode()).hexdigest()[:16]
    return row


def found(row):
    read = {"properties": plain(row["properties"]), "json": plain(row["json"])}
    return exact(row | read | {"sequence": None if row["sequence"] is None else int(row["sequence"])})


@pytest.mark.req("MTL-07", "MTL-08", "MTL-32", "MTL-33", "MTL-59", "MTL-60")
def test_every_vector_is_a_row():
    messages = [[bytes.fromhex(frame) for frame in vector["frames"]] for vector in ALL]
    messages = [frames for frames in messages if frames]
    assert len(messages) > 300
    for vector, row in zip(filter(lambda each: each["frames"], ALL), rows(batch(messages)), strict=True):
        frames = [bytes.fromhex(frame) for frame in vector["frames"]]
        assert found(row) == exact(said(frames)), vector["id"]
        if len(frames) == 2:
            assert row["error"] == vector.get("error", {}).get("kind")


def test_a_message_is_the_same_in_any_envelope():
    messages = [[b"Queue.Info", b'{"name": "jobs"}'], [b"200", b'{"status": "OK"}'], [b"Queue.Info", b"{"]]
    given = batch(messages)
    for envelope in ([b""], [b"\x00\x01\x02\x03", b""]):
        wrapped = rows(given | {"envelope": pa.array([envelope] * 3, FRAMES)})
        bare = rows(given)
        assert [row["_corrupt_record"] for row in wrapped] == [None, None, [*envelope, b"Queue.Info", b"{"]]
        assert [row | {"_corrupt_record": 0} for row in wrapped] == [row | {"_corrupt_record": 0} for row in bare]


LETTERS = {
    "t": st.sampled_from([b"\0", b"\1"]),
    "b": st.binary(min_size=1, max_size=1),
    "B": st.binary(min_size=1, max_size=1),
    **dict.fromkeys("sUu", st.binary(min_size=2, max_size=2)),
    **dict.fromkeys("Iif", st.binary(min_size=4, max_size=4)),
    **dict.fromkeys("lLd", st.binary(min_size=8, max_size=8)),
    "D": st.tuples(st.integers(0, 45), st.integers(-(2**31), 2**31 - 1)).map(lambda pair: struct.pack(">Bi", *pair)),
    "T": (st.integers(0, 2**64 - 1) | st.integers(0, 253_402_300_900)).map(lambda seconds: struct.pack(">Q", seconds)),
    "V": st.just(b""),
}


def long(held):
    return struct.pack(">I", len(held)) + held


def packed(fields):
    return b"".join(bytes([len(name.encode())]) + name.encode() + value for name, value in fields.items())


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
SCALARS = st.one_of(
    *(values.map(letter.encode().__add__) for letter, values in LETTERS.items()),
    (TEXTS.map(str.encode) | st.binary(max_size=8)).map(lambda held: b"S" + long(held)),
    st.binary(max_size=70).map(lambda held: b"x" + long(held)),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda values: b"A" + long(b"".join(values)))
        | st.dictionaries(TEXTS, inner, max_size=4).map(lambda fields: b"F" + long(packed(fields)))
    ),
    max_leaves=12,
)


@pytest.mark.req("MTL-60")
@settings(max_examples=400, deadline=None)
@given(st.dictionaries(TEXTS, VALUES, max_size=8), st.sampled_from(["", "jobs"]), st.none() | st.just("one"))
def test_a_table_of_any_letters_goes_through_a_variant(fields, resource, topic):
    frames = content(1, resource, b"body", long(packed(fields)))
    (row,) = rows(batch([frames], [topic]))
    assert found(row) == exact(said(frames, topic))
    (text,) = rows(batch([frames], [topic]), properties="json")
    assert json.loads(text["properties"]) == json.loads(
        json.dumps(expected(said(frames)["properties"]), default=as_json), parse_constant=str
    )


def as_json(value):
    """As Spark writes it."""
    match value:
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}+00:00".rjust(25, "0")
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case bytes():
            import base64

            return base64.b64encode(value).decode()
    raise TypeError(value)


TABLE = {
    "flag": (True, "boolean"),
    "count": (-(2**40), "bigint"),
    "gain": (1.5, "double"),
    "price": (Decimal("12.50"), "double"),
    "whole": (3, "double"),
    "text": ("ä", "string"),
    "raw": (b"\0\xff", "binary"),
    "since": (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "timestamp"),
}


def test_properties_asked_for_by_name_have_a_column_each():
    fields = {name: value for name, (value, _) in TABLE.items()} | {"other": [1, {"a": None}]}
    types = {name: kind for name, (_, kind) in TABLE.items()}
    given = batch([content(1, "jobs", b"", mtl.encode_table(fields)), content(2, "jobs", b""), PING])
    first, *others = rows(given, properties=types | {"missing": "bigint", "*": "variant"})
    for name, (value, _) in TABLE.items():
        assert first[f"property_{name}"] == value, name
    assert first["property_missing"] is None
    assert plain(first["properties"]) == {"other": [1, {"a": None}]}
    for row, rest in zip(others, ({}, None), strict=True):
        assert {row[f"property_{name}"] for name in types} == {None}
        assert plain(row["properties"]) == rest
    (text, *_) = rows(given, properties={"raw": "binary", "since": "timestamp", "*": "json"})
    assert json.loads(text["properties"])["price"] == 12.5
    assert "properties" not in rows(given, properties=None)[0]
    assert "properties" not in rows(given, properties={"flag": "boolean"})[0]


@pytest.mark.parametrize("kind", ["boolean", "bigint", "double", "string", "binary", "timestamp"])
def test_a_property_of_another_type_is_null_or_fails(kind):
    for name, (value, own) in TABLE.items():
        given = batch([content(1, "jobs", b"", mtl.encode_table({name: value}))])
        fits = kind == own or (kind, own) == ("double", "bigint") or (kind, name) == ("bigint", "whole")
        (row,) = rows(given, properties={name: kind})
        assert (row[f"property_{name}"] is not None) == fits, name
        assert row["error"] is None
        if fits:
            rows(given, properties={name: kind}, mode="FAILFAST")
        else:
            with pytest.raises(DecodeError) as raised:
                rows(given, properties={name: kind}, mode="FAILFAST")
            assert raised.value.kind == "tag_type"


def test_json_is_a_column_each_likewise():
    body = {"name": "jobs", "messages": 2**63, "share": 0.5, "dead-letter": None, "deep": {"a": [1, "x", {}]}, "n": 7}
    given = batch([[b"Queue.Info", json.dumps(body).encode()], [b"200", b"{}"], content(1, "jobs", b"")])
    (first, second, third) = rows(given)
    assert exact(plain(first["json"])) == exact(body | {"messages": Decimal(2**63)})
    assert plain(second["json"]) == {}
    assert third["json"] is None
    (first, *_) = rows(given, json={"name": "string", "n": "bigint", "share": "double", "*": "json"})
    assert (first["json_name"], first["json_n"], first["json_share"]) == ("jobs", 7, 0.5)
    assert json.loads(first["json"]) == {name: body[name] for name in ("messages", "dead-letter", "deep")}


def test_a_resource_that_is_left_out_is_that_of_the_row():
    messages = [content(1, "", b"x"), content(2, "own", b"x"), confirm(3), content(4, "", b"x")]
    given = rows(batch(messages, ["jobs", "jobs", "jobs", None]))
    assert [row["resource"] for row in given] == ["jobs", "own", None, ""]
    assert [row["resource"] for row in rows(batch(messages))] == ["", "own", None, ""]


@pytest.mark.req("MTL-34")
def test_a_lease_is_known_by_its_hash_alone():
    real, other = "0123456789abcdef" * 2, "…0011"
    kept = "…" + hashlib.sha256(real.encode()).hexdigest()[:16]
    replies = [[b"202", json.dumps({"lease": one, "port": 1}).encode()] for one in (real, kept)]
    given = rows(batch([*replies, lease(1, real), lease(1, kept), lease(1, other), [b"202", b'{"lease": 5}']]))
    hashes = [row["lease_hash"] for row in given]
    assert hashes[:4] == [kept[1:]] * 4
    assert hashes[4:] == [hashlib.sha256(other.encode()).hexdigest()[:16], None]


def test_a_body_that_is_left_out_is_counted():
    messages = [content(1, "jobs", b"x" * 100)[:1], content(2, "jobs", b"")[:1], PING[:1], content(3, "", b"abc")]
    sizes = [len(messages[0][0]) + 100, len(messages[1][0]), 1, None]
    given = rows(batch(messages, n_frames=[2, 2, 2, None], n_bytes=sizes), payload=False)
    assert [row["body_bytes"] for row in given] == [100, 0, None, 3]
    assert {row["error"] for row in given} == {None}
    for count in (None, 1, 3):
        (row,) = rows(batch(messages[:1], n_frames=[count]), payload=False)
        assert row["error"] == "bad_frame_count"
    # What a response answers is in its body.
    (row,) = rows(batch([response(1, 200)[:1]], n_frames=[2]))
    assert row["error"] == "bad_status"


def test_modes():
    messages = [PING, [b"\x05", b"body"], [b"Queue.Info", b"{}"]]
    given = batch(messages)
    kept = rows(given)
    assert [row["error"] for row in kept] == [None, "truncated", None]
    assert [row["_corrupt_record"] for row in kept] == [None, messages[1], None]
    dropped = rows(given, mode="DROPMALFORMED")
    assert [row["type"] for row in dropped] == ["ping", "command"]
    assert "_corrupt_record" not in dropped[0]
    with pytest.raises(DecodeError, match="truncated in frame 0 at byte 1") as raised:
        rows(given, mode="FAILFAST")
    assert "row 1 of the batch" in raised.value.__notes__[0]


def test_what_there_is_none_of_is_refused():
    with pytest.raises(LocalProtocolError, match="tags does not apply to MTL messages"):
        columns.Decoder("mtl", tags="json")
    with pytest.raises(LocalProtocolError, match="unknown type"):
        columns.Decoder("mtl", properties={"run": "date"})
    with pytest.raises(LocalProtocolError, match="only in case"):
        columns.Decoder("mtl", json={"run": "bigint", "Run": "bigint"})
    with pytest.raises(ValueError, match="topic is Int64"):
        rows(batch([PING]) | {"topic": pa.array([1])})
    decoder = columns.Decoder("mtl", payload=True)
    assert columns.needed(decoder, {"type"}) == {
        "envelope": False,
        "header": False,
        "payload": True,
        "n_frames": False,
    }
    assert columns.needed(decoder, {"resource"})["topic"] is False
    assert not columns.needed(decoder, {"body"})["payload"]


def test_properties_that_no_variant_holds_are_null_and_said_so():
    fields = {"run": 7, "big": b"x" * (17 << 20)}
    given = batch([content(1, "jobs", b"", mtl.encode_table(fields)), content(2, "jobs", b"")])
    first, second = rows(given, properties={"run": "bigint", "*": "variant"})
    assert (first["error"], first["properties"], first["property_run"]) == ("properties_exceed_variant", None, 7)
    assert (second["error"], plain(second["properties"])) == (None, {})
    (first, _) = rows(given, properties={"big": "binary", "*": "variant"})
    assert (first["error"], len(first["property_big"])) == (None, 17 << 20)


def test_json_that_a_server_would_not_read_is_decoded():
    (row,) = rows(batch([[b"Queue.Info", json.dumps({"big": "x" * (2 << 20)}).encode()]]))
    assert (row["error"], row["name"], len(plain(row["json"])["big"])) == (None, "Queue.Info", 2 << 20)


@pytest.mark.req("MTL-34", "MTL-45", "MTL-47", "MTL-51", "MTL-53")
def test_a_capture_of_a_server_decodes(open_socket, context, tmp_path):  # noqa: ARG001 - servers end before it does
    with ExitStack() as stack:
        options = {"bind": ANY, "users": {"ada": "sesame"}, "resources": ["jobs"], "capture": tmp_path / "capture"}
        server = mtl.Server(**options)
        stack.callback(lambda: server.close(drain_s=0))
        peers = Peers(open_socket, server)
        leases = {}
        for kind in ("Writer", "Reader"):
            control = peers.control("queue", user="ada", password="sesame")
            leases[kind] = control.lease(kind, ["jobs"], "full")
        writer, reader = (peers.data(leases[kind]) for kind in ("Writer", "Reader"))
        reader.send_multipart([b"\x03" + struct.pack(">Q", 2) + b"\x04jobs", b""])
        assert reader.recv_multipart() == response(2, 200)
        table = mtl.encode_table({"priority": 3, "since": EPOCH})
        for sequence in (1, 2, 3):
            writer.send_multipart(content(sequence, "", b"x" * 1000 * sequence, table))
        for _ in range(3):
            reader.recv_multipart()
        reader.send_multipart(confirm(2, multiple=True))
        reader.send_multipart(reject(3, recycle=False))
        writer.send_multipart([b"\x05junk", b"body"])
        until(lambda: server.stats.dropped.get("truncated") == 1)

    opened = capture.open(tmp_path / "capture")
    assert opened.info().errors == {"truncated": 1}
    decoded = opened.decode("mtl", payload=True).read_all().sort_by("seq").to_pylist()
    raw = opened.read_all().sort_by("seq").to_pylist()
    assert len(decoded) == len(raw)
    for row, one in zip(decoded, raw, strict=True):
        frames = [one["header"], *one["payload"]]
        should = said(frames, one["topic"])
        # A recording has the hash in place of the lease.
        shown = [word for frame in frames for word in hashes(frame)]
        should["lease_hash"] = shown[0] if shown else None
        if should["error"]:
            should["_corrupt_record"] = [*one["envelope"], *frames]
        for name in set(NAMES) - {"json", "properties"}:
            assert row[name] == should[name], (name, one)
        for name in ("json", "properties"):
            assert (row[name] and json.loads(row[name])) == json.loads(json.dumps(should[name], default=as_json)), one
        for name in ("capture_id", "segment", "seq", "received_at_ns", "endpoint", "direction", "peer"):
            assert row[name] == one[name]
    contents = [row for row in decoded if row["type"] == "content"]
    assert [row["direction"] for row in contents].count("in") == 3
    assert {row["resource"] for row in contents} == {"jobs"}
    given = {row["lease_hash"] for row in decoded if row["status"] == 202 and row["lease_hash"]}
    assert given == {row["lease_hash"] for row in decoded if row["type"] == "lease"}
    assert given == {hashlib.sha256(one["lease"].encode()).hexdigest()[:16] for one in leases.values()}
    texts = " ".join(row["json"] for row in decoded if row["json"])
    assert "sesame" not in texts
    assert not any(one["lease"] in texts for one in leases.values())
    # Bodies of contents stay on disk; all else is the same.
    without = opened.decode("mtl").read_all().sort_by("seq").to_pylist()
    assert without == [{name: value for name, value in row.items() if name != "body"} for row in decoded]
    heads = {row["type"]: one["n_head"] for row, one in zip(decoded, raw, strict=True) if row["flow"] == "data"}
    assert heads == {"lease": 0, "response": 1, "summon": 0, "content": 0, "confirm": 0, "reject": 0}


def hashes(frame):
    """What stands in place of a lease."""
    mark = "…".encode()
    at = frame.find(mark)
    digits = frame[at + len(mark) : at + len(mark) + 16] if at >= 0 else b""
    return [digits.decode()] if len(digits) == 16 and digits.isalnum() else []


def test_numbers_are_exact():
    letters = {"f": b"f" + struct.pack(">f", 0.1), "d": b"d" + struct.pack(">d", math.pi), "U": b"U\xff\xff"}
    (row,) = rows(batch([content(2**64 - 1, "jobs", b"", long(packed(letters)))]))
    assert row["sequence"] == Decimal(2**64 - 1)
    assert exact(plain(row["properties"])) == exact({"f": 0.10000000149011612, "d": math.pi, "U": -1})

"""DCP messages put together by hand, as tables."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.classic.dataframe import DataFrame

from peers.older import again, copied
from peers.recorded import line
from trunkline import capture, spark
from trunkline.errors import DecodeError, LocalProtocolError

VECTORS = Path(__file__).parent.parent / "vectors" / "dcp"
H = b"DGBX\x01"
NOTHING = dict.fromkeys(("type", "service", "client", "metadata", "data", "data_parts", "data_bytes"))


def vectors(*, compat_dagbox=False):
    """The frames of each vector for a reader of any role, and what is to be found in its row."""
    for file in ("messages.json", "errors.json"):
        for vector in json.loads((VECTORS / file).read_text()):
            settings = vector.get("settings", {})
            if settings.get("role") or settings.get("compat_dagbox", False) != compat_dagbox:
                continue
            frames = [bytes.fromhex(frame) for frame in vector["frames"]]
            if "error" in vector:
                yield frames, NOTHING | {"error": vector["error"]["kind"], "_corrupt_record": frames}
            else:
                yield frames, row_of(vector["decoded"])


def row_of(decoded):
    def bytes_of(value):
        return [bytes.fromhex(part) for part in value] if isinstance(value, list) else bytes.fromhex(value)

    said = {name: value if name == "type" else value and bytes_of(value) for name, value in decoded.items()}
    for name in ("service", "client"):
        if decoded.get(name) == "":
            said[name] = b""
    data = said.get("data")
    counts = {} if data is None else {"data_parts": len(data), "data_bytes": sum(map(len, data))}
    return NOTHING | said | counts | {"error": None, "_corrupt_record": None}


@pytest.fixture
def captured(tmp_path):
    """Makes a capture of messages, numbered by `seq`, each with a direction and a peer."""

    def make(messages, **options):
        lines = tmp_path / "messages.jsonl"
        with lines.open("w") as file:
            for at, (direction, peer, frames) in enumerate(messages):
                file.write(line(frames, at, direction=direction, peer=peer))
        capture.import_(lines, tmp_path / "capture", protocol="dcp", **options)
        return str(tmp_path / "capture")

    return make


def plain(row, names):
    """A row as values of Python's own."""

    def value(found):
        if isinstance(found, bytearray | bytes):
            return bytes(found)
        return [bytes(part) for part in found] if isinstance(found, list) else found

    return {name: value(row[name]) for name in names}


@pytest.mark.req("DCP-08", "DCP-18", "DCP-26")
def test_every_vector_is_a_row(session, captured):
    expected = list(vectors())
    kinds = {row["error"] for _, row in expected}
    assert len(expected) > 60
    assert {row["type"] for _, row in expected} >= {"register", "ping", "pong", "request", "reply", "reconnect"}
    assert len(kinds) == 9, "every kind but that of a role, and none"
    path = captured([("in", b"p", frames) for frames, _ in expected], segment_bytes=2000)
    rows = session.read.parquet(path)
    found = spark.decode(rows, "dcp", payload=True).orderBy("seq").collect()
    names = list(expected[0][1])
    assert [plain(row, names) for row in found] == [row for _, row in expected]
    assert {(bytes(row["peer"]), row["direction"]) for row in found} == {(b"p", "in")}
    assert [row["error"] for row in rows.orderBy("seq").collect()] == [row["error"] for _, row in expected]

    # Data that stays in the JVM is counted alike, and nothing of what is no message is lost.
    names.remove("data")
    without = spark.decode(rows, "dcp").orderBy("seq").collect()
    assert [plain(row, names) for row in without] == [plain(row, names) for _, row in expected]
    counted = spark.decode(rows.drop("n_frames", "n_bytes"), "dcp")
    assert counted.orderBy("seq").collect() == without
    arrow = capture.open(path).decode("dcp").read_all()
    assert [plain(row, names) for row in arrow.to_pylist()] == [plain(row, names) for row in without]
    assert arrow.schema.names == counted.columns


def test_all_ways_give_the_same_values(session):
    frames = [frames for frames, _ in vectors()]
    rows = session.createDataFrame([(at, *split(each)) for at, each in enumerate(frames)], SCHEMA).union(
        session.createDataFrame([(len(frames), None, None, None)], SCHEMA)
    )
    columns = ("envelope", "header", "payload")
    assert (
        spark.decode(rows, "dcp").orderBy("seq").collect()
        == spark.decode(rows.withColumn("n_head", F.when(F.col("seq") % 2 == 0, F.size("payload"))), "dcp")
        .orderBy("seq")
        .collect()
    )
    decoded = spark.decode(rows, "dcp", payload=True).orderBy("seq").collect()
    structs = rows.select("seq", spark.from_dcp(*columns, data=True).alias("d")).orderBy("seq").collect()
    pandas = rows.select("seq", spark.pandas_udfs.dcp(*columns, data=True).alias("d")).orderBy("seq").collect()
    assert structs == pandas
    assert structs[-1]["d"] is None
    assert [(row["seq"], *row["d"]) for row in structs[:-1]] == decoded[:-1]
    assert set(decoded[-1][1:]) == {None}
    for function in (spark.from_dcp, spark.pandas_udfs.dcp):
        without = rows.select("seq", function(*map(F.col, columns)).alias("d")).orderBy("seq").collect()
        assert [row["d"] and row["d"].asDict() for row in without] == [
            row["d"] and {name: value for name, value in row["d"].asDict().items() if name != "data"} for row in structs
        ]


SCHEMA = "seq bigint, envelope array<binary>, header binary, payload array<binary>"


def split(frames):
    """As a capture does: up to and with the first empty frame, one frame, the rest."""
    at = frames.index(b"") + 1 if b"" in frames else 0
    return frames[:at], frames[at] if at < len(frames) else None, frames[at + 1 :]


def test_columns_are_those_of_the_contract(session):
    rows = session.createDataFrame([], spark.capture_schema())
    decoded = spark.decode(rows, "dcp", payload=True)
    assert [f"{field.name} {field.dataType.simpleString()}" for field in decoded.schema] == [
        "capture_id string",
        "segment bigint",
        "seq bigint",
        "received_at_ns bigint",
        "endpoint string",
        "peer binary",
        "direction string",
        "type string",
        "service binary",
        "client binary",
        "metadata array<binary>",
        "data_parts int",
        "data_bytes bigint",
        "data array<binary>",
        "error string",
        "_corrupt_record array<binary>",
        "received_at timestamp",
    ]
    assert "_corrupt_record" not in spark.decode(rows, "dcp", mode="DROPMALFORMED").columns
    assert decoded.count() == 0


def test_data_stays_in_the_jvm(session, captured, monkeypatch):
    data = [b"x" * 1_000_000, b""]
    good = [
        [b"", H, b"\x04", b"", b"", b"m", b"", *data],
        [b"", H, b"\x04", b"s", b"c", b"", b"", *data],
        [b"", H, b"\x05", b"c", b"", b"m", b"n", b"", *data],
    ]
    rows = session.read.parquet(captured([("in", b"p", frames) for frames in good]))
    decoded = spark.decode(rows, "dcp").orderBy("seq").collect()
    assert [(row["data_parts"], row["data_bytes"]) for row in decoded] == [(2, 1_000_000)] * 3
    assert [len(row["metadata"]) for row in decoded] == [1, 0, 2]
    assert spark.decode(rows.drop("n_frames", "n_bytes"), "dcp").orderBy("seq").collect() == decoded
    struct = spark.from_dcp("envelope", "header", "payload", n_head="n_head")
    assert [row[0]["data_bytes"] for row in rows.select(struct).collect()] == [1_000_000] * 3
    # What goes to Python is what the function is given.
    monkeypatch.setattr(DataFrame, "mapInArrow", lambda sent, *_: sent)
    sent = spark.decode(rows, "dcp").orderBy("seq").select(F.transform("payload", F.octet_length)).collect()
    assert [row[0] for row in sent] == [[1, 0, 0, 1, 0], [1, 1, 1, 0, 0], [1, 1, 0, 1, 1, 0]]
    whole = spark.decode(rows.drop("n_head"), "dcp").select(
        F.aggregate("payload", F.lit(0), lambda n, f: n + F.length(f))
    )
    assert {row[0] // 1_000_000 for row in whole.collect()} == {1}


def test_rows_recorded_before_there_was_n_head_decode_alike(session, tmp_path):
    path = copied("without-n-head", tmp_path / "capture")
    again(path)
    whole = session.read.parquet(str(path / "0000000000.parquet"))
    for rows in (session.read.parquet(str(path)), session.read.schema(spark.capture_schema()).parquet(str(path))):
        for protocol in ("cdtp", "dcp"):
            found = spark.decode(rows, protocol, payload=True).drop("segment", "tags")
            old = spark.decode(whole, protocol, payload=True).drop("segment", "tags").orderBy("seq").collect()
            assert found.where("seq < 13").orderBy("seq").collect() == old
            assert found.where("seq >= 13").withColumn("seq", F.col("seq") - 13).orderBy("seq").collect() == old
            counted = spark.decode(rows, protocol).drop("segment", "tags")
            shown = [name for name in counted.columns if name != "seq"]
            assert (
                counted.where("seq >= 13").orderBy("seq").select(shown).collect()
                == counted.where("seq < 13").orderBy("seq").select(shown).collect()
            )


def test_what_is_no_message_keeps_its_data(session):
    data = b"x" * 1000
    bad = {
        "bad_type": [b"", H, b"\x04\0\0\0", b"s", b"", b"", data],
        "bad_protocol": [b"", b"DGBZ\x01", b"\x04", b"s", b"", b"", data],
        "bad_delimiter": [b"hop", b"", H, b"\x04", b"s", b"", b"", data],
        "missing_delimiter": [b"", H, b"\x04", b"s", b"c", b"m", b"", b"", data],
        "missing_client": [b"", H, b"\x05", b"", b"", b"", data],
        "bad_frame_count": [b"", H, b"\x01", b"s", b"", b"", data],
    }
    rows = session.createDataFrame([(at, *split(each)) for at, each in enumerate(bad.values())], SCHEMA)
    expected = [{"error": kind, "_corrupt_record": frames} for kind, frames in bad.items()]
    found = spark.decode(rows, "dcp").orderBy("seq").collect()
    assert [plain(row, expected[0]) for row in found] == expected


def test_modes(session):
    bad, good = [b"", b"DGBX\x02", b"\x02"], [b"", H, b"\x02"]
    rows = session.createDataFrame([(at, *split(each)) for at, each in enumerate([good, bad, good])], SCHEMA)
    dropped = spark.decode(rows, "dcp", mode="DROPMALFORMED").orderBy("seq").collect()
    assert [(row["seq"], row["type"]) for row in dropped] == [(0, "ping"), (2, "ping")]
    with pytest.raises(PythonException, match="unsupported_version in frame 1 at byte 4 of a DCP message"):
        spark.decode(rows, "dcp", mode="FAILFAST").collect()
    with pytest.raises(PythonException, match="unsupported_version in frame 1"):
        rows.select(spark.from_dcp("envelope", "header", "payload", mode="FAILFAST")).collect()
    for function in (spark.from_dcp, spark.pandas_udfs.dcp):
        with pytest.raises(LocalProtocolError, match="DROPMALFORMED"):
            function("envelope", "header", "payload", mode="DROPMALFORMED")


@pytest.mark.req("DCP-11")
def test_types_of_four_bytes_are_an_option(session, captured):
    expected = list(vectors(compat_dagbox=True))
    path = captured([("in", b"p", frames) for frames, _ in expected])
    names = [name for name in expected[0][1] if name != "data"]
    found = spark.decode(session.read.parquet(path), "dcp", compat_dagbox=True).orderBy("seq").collect()
    assert [plain(row, names) for row in found] == [plain(row, names) for _, row in expected]
    assert {row["error"] for row in found} == {None, "bad_type"}


def test_what_cannot_be_is_refused_when_the_plan_is_made(session, captured):
    rows = session.createDataFrame([], spark.capture_schema())
    for option, value in {"tags": None, "accept": ("S",), "strict": False}.items():
        with pytest.raises(LocalProtocolError, match=f"{option} does not apply to DCP"):
            spark.decode(rows, "dcp", **{option: value})
    with pytest.raises(LocalProtocolError, match="compat_dagbox does not apply to CDTP"):
        spark.decode(rows, "cdtp", compat_dagbox=True)
    for name in ("envelope", "header", "payload"):
        with pytest.raises(LocalProtocolError, match=f"no column {name}"):
            spark.decode(rows.drop(name), "dcp")
    with pytest.raises(LocalProtocolError, match="envelope is string"):
        spark.decode(rows.withColumn("envelope", F.lit("text")), "dcp")
    path = captured([("in", None, [b"", H, b"\x09"])])
    with pytest.raises(DecodeError, match="bad_type in frame 2 at byte 0 of a DCP message"):
        capture.open(path).decode("dcp", mode="FAILFAST").read_all()


def test_a_capture_of_several_protocols_has_each_in_its_table(session, tmp_path):
    lines = tmp_path / "lines.jsonl"
    lines.write_text(line([b"", H, b"\x02"], protocol="dcp") + line([b"\0"], protocol="cdtp"))
    capture.import_(lines, tmp_path / "capture")
    read = session.read.parquet(str(tmp_path / "capture"))
    assert [(row["seq"], row["type"]) for row in spark.decode(read, "dcp").collect()] == [(0, "ping")]
    assert [(row["seq"], row["error"]) for row in spark.decode(read, "cdtp").collect()] == [(1, "bad_header")]
    table = pa.Table.from_batches(capture.open(tmp_path / "capture").decode("dcp"))
    assert table["seq"].to_pylist() == [0]

import datetime as dt
import decimal
import gzip
import json
import re
from base64 import b64decode

import msgpack
import pyarrow.parquet as pq
import pytest
import reference as wire
from pyspark.errors import PythonException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql import types

from trunkline import capture, spark
from trunkline.columns import protocols
from trunkline.errors import LocalProtocolError

STAMP = 1_795_251_125_873_012_345


def plan(df, capsys):
    capsys.readouterr()
    df.explain("formatted")
    return capsys.readouterr().out


def refused(match):
    return pytest.raises(LocalProtocolError, match=match)


@pytest.mark.req("CDTP-22", "CDTP-23")
def test_recorded_traffic_decodes_completely(session, recorded):
    rows = session.read.parquet(recorded)
    found = [row.asDict() for row in spark.decode(rows, "cdtp", payload=True).collect()]
    expected = []
    for file in sorted(wire.DATA.glob("*.jsonl.gz")):
        with gzip.open(file) as lines:
            for line in map(json.loads, lines):
                frames = [b64decode(frame) for frame in line["frames"]]
                about = {"received_at_ns": line["received_at_ns"], "endpoint": line["endpoint"]}
                expected += [about | row for row in wire.rows_of(frames)]
    found.sort(key=lambda row: (row["seq"], row["record"]))
    for row in found:
        row["tags"] = row["tags"].toPython()
        row["payload"] = [bytes(frame) for frame in row["payload"]]
    assert [{name: row[name] for name in expected[0]} for row in found] == expected
    assert len(expected) > 5000
    assert len({row["capture_id"] for row in found}) == 1
    assert {row["_corrupt_record"] for row in found} == {None}


def test_columns_are_those_of_the_contract(session, recorded):
    rows = session.read.parquet(recorded)
    decoded = spark.decode(rows, "cdtp", tags={"run": "bigint", "*": "variant"}, payload=True)
    assert [f"{field.name} {field.dataType.simpleString()}" for field in decoded.schema] == [
        "capture_id string",
        "segment bigint",
        "seq bigint",
        "received_at_ns bigint",
        "endpoint string",
        "record int",
        "variant string",
        "sender string",
        "timestamp_ns bigint",
        "timestamp timestamp",
        "type string",
        "sequence bigint",
        "tag_run bigint",
        "tags variant",
        "payload_frames int",
        "payload_bytes bigint",
        "payload array<binary>",
        "error string",
        "_corrupt_record binary",
        "received_at timestamp",
    ]
    assert "_corrupt_record" not in spark.decode(rows, "cdtp", mode="DROPMALFORMED").columns
    assert not {"tags", "payload"} & set(spark.decode(rows, "cdtp", tags=None).columns)


@pytest.mark.parametrize("protocol", [known.name for known in protocols()])
def test_when_a_row_was_received_is_a_time_axis(session, captured, protocol):
    """Of whatever protocol, to the microsecond below, before 1970 too."""
    path = captured((1_700_000_000_123_456_789, protocol, "in", None, [b"x"]), (-1, protocol, "in", None, [b"x"]))
    rows = session.read.parquet(str(path))
    decoded = spark.decode(rows, protocol)
    assert decoded.columns[-1] == "received_at"
    found = decoded.orderBy("seq").selectExpr("unix_micros(received_at)", "received_at_ns").collect()
    assert [tuple(row) for row in found] == [(1_700_000_000_123_456, 1_700_000_000_123_456_789), (-1, -1)]
    alone = spark.decode(rows, protocol, columns=["received_at"])
    assert alone.columns == ["received_at"]
    (window,) = alone.where("received_at > '2000-01-01'").groupBy(F.window("received_at", "1 minute")).count().collect()
    assert window["count"] == 1
    assert "received_at" not in spark.decode(rows.drop("received_at_ns"), protocol).columns


def test_a_stream_has_a_watermark_by_when_rows_were_received(session, captured):
    path = captured((1_700_000_000_000_000_000, "cdtp", "in", None, [b"x"]))
    rows = (
        session.readStream.schema(spark.capture_schema()).option("pathGlobFilter", "[0-9]*.parquet").parquet(str(path))
    )
    late = spark.decode(rows, "cdtp", tags=None).withWatermark("received_at", "1 minute")
    counted = late.groupBy(F.window("received_at", "1 minute")).count()
    query = counted.writeStream.format("memory").queryName("received").outputMode("complete").start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert [row["count"] for row in session.table("received").collect()] == [1]


def test_only_the_columns_that_are_wanted_pass_through_python(session, recorded, capsys):
    rows = session.read.parquet(recorded)
    some = spark.decode(
        rows, "cdtp", tags={"trigger_number": "bigint"}, columns=["sequence", "tag_trigger_number", "seq"]
    )
    whole = spark.decode(rows, "cdtp", tags={"trigger_number": "bigint"})
    assert some.columns == ["seq", "sequence", "tag_trigger_number"]
    assert some.exceptAll(whole.select(some.columns)).count() == 0
    assert some.where("tag_trigger_number IS NOT NULL").count() > 1000
    sent = re.search(r"MapInArrow\nInput \[\d+\]: \[(.*)\]", plan(some, capsys))
    assert [name.partition("#")[0] for name in sent[1].split(", ")] == ["seq", "header", "n_frames"]
    with refused("no column tags"):
        spark.decode(rows, "cdtp", tags=None, columns=["tags", "sender"])


def test_all_three_ways_give_the_same_values(table):
    """All vectors, good and bad, and a null among them."""
    vectors = list(wire.vectors())
    headers = [frames[0] for frames, _ in vectors]
    headers.insert(3, None)
    counts = [len(frames) for frames, _ in vectors]
    counts.insert(3, 1)
    tags = {"v": "bigint", "a": "double", "k": "string", "t": "timestamp", "b": "binary", "f": "boolean"}
    rows = table(headers, counts)
    decoded = spark.decode(rows, "cdtp", tags=tags).collect()
    structs = rows.select("seq", spark.from_cdtp("header", "n_frames", tags=tags).alias("d")).collect()
    pandas = rows.select("seq", spark.pandas_udfs.cdtp("header", "n_frames", tags=tags).alias("d")).collect()
    assert structs == pandas
    assert len(structs) == len(headers) > 60
    by_seq = {}
    for row in decoded:
        by_seq.setdefault(row["seq"], []).append(row.asDict())
    of_message = ("variant", "sender", "timestamp_ns", "timestamp", "type", "error", "_corrupt_record")
    of_record = ("sequence", "payload_frames", "payload_bytes", *(f"tag_{name}" for name in tags))
    for seq, struct in structs:
        if headers[seq] is None:
            assert struct is None
            continue
        found = struct.asDict(recursive=True)
        records = found["records"] if found["variant"] == "2" else [found]
        assert [
            {name: found[name] for name in of_message} | {name: each[name] for name in of_record} for each in records
        ] == [{name: row[name] for name in of_message + of_record} for row in by_seq.get(seq, [])]
        if found["variant"] == "2":
            assert found["sequence"] is None
        else:
            assert found["records"] is None


def test_what_is_no_message_keeps_its_bytes_and_the_reason(table):
    bad = [(frames, kind) for frames, kind in wire.vectors() if kind is not None]
    rows = table([frames[0] for frames, _ in bad], [len(frames) for frames, _ in bad])
    found = spark.decode(rows, "cdtp").orderBy("seq").collect()
    assert [(row["error"], bytes(row["_corrupt_record"])) for row in found] == [
        (kind, frames[0]) for frames, kind in bad
    ]
    assert {row["sender"] for row in found} | {row["tags"] for row in found} == {None}
    assert len(bad) > 30


def test_modes(table):
    rows = table([wire.b(1), b"junk", wire.b(2)])
    dropped = spark.decode(rows, "cdtp", mode="DROPMALFORMED")
    assert [row["seq"] for row in dropped.orderBy("seq").collect()] == [0, 2]
    with pytest.raises(PythonException, match="bad_header in frame 0"):
        spark.decode(rows, "cdtp", mode="FAILFAST").collect()
    with pytest.raises(PythonException, match="bad_header in frame 0"):
        rows.select(spark.from_cdtp("header", mode="FAILFAST")).collect()
    for function in (spark.from_cdtp, spark.pandas_udfs.cdtp):
        with refused("DROPMALFORMED"):
            function("header", mode="DROPMALFORMED")


def test_only_what_is_accepted_is_a_message(table):
    rows = table([wire.s(), wire.b(1), wire.b(1) + b"\x00"])
    found = spark.decode(rows, "cdtp", accept=("B",), strict=False).orderBy("seq").collect()
    assert [row["error"] for row in found] == ["unsupported_version", None, None]
    assert [row["error"] for row in spark.decode(rows, "cdtp").orderBy("seq").collect()] == [
        None,
        None,
        "trailing_bytes",
    ]


def test_what_cannot_be_is_refused_when_the_plan_is_made(table):
    rows = table([wire.b(1)])
    with refused("'smtp'"):
        spark.decode(rows, "smtp")
    with refused("LENIENT"):
        spark.decode(rows, "cdtp", mode="LENIENT")
    with refused("date"):
        spark.decode(rows, "cdtp", tags={"run": "date"})
    with refused("for a name|each name"):
        spark.decode(rows, "cdtp", tags="all")
    with refused("for a name|each name"):
        spark.decode(rows, "cdtp", tags=["run"])
    with refused("at least one column"):
        spark.decode(rows, "cdtp", columns=[])
    with refused("at least one column"):
        spark.decode(rows, "cdtp", columns="sender")
    with refused(r"\*"):
        spark.decode(rows, "cdtp", tags={"*": "string"})
    with refused("only in case"):
        spark.decode(rows, "cdtp", tags={"run": "bigint", "Run": "bigint"})
    with refused("a pandas UDF takes typed tags"):
        spark.pandas_udfs.cdtp("header", tags={"*": "variant"})
    with refused("no column header"):
        spark.decode(rows.drop("header"), "cdtp")
    with refused("no column payload"):
        spark.decode(rows, "cdtp", payload=True)
    with refused("header is string, but must be binary: set spark.sql.parquet.binaryAsString to false"):
        spark.decode(rows.withColumn("header", F.lit("text")), "cdtp")
    with pytest.raises(ValueError, match="X"):
        spark.decode(rows, "cdtp", accept=("X",))


def test_tags_of_every_type_survive_parquet(session, table, tmp_path):
    values = {
        "big": 2**64 - 1,
        "small": -(2**63),
        "text": "ü",
        "bin": b"\xff\x00",
        "yes": True,
        "half": 0.5,
        "none": None,
        "when": msgpack.Timestamp(1, 5),
        "ext": msgpack.ExtType(5, b"e"),
        "list": [1, [2, {"x": "y"}]],
        "odd": {1: "one"},
    }
    rows = table([wire.b(1, values), wire.b(2, {}), wire.b(3, {"big": 7, "half": 3, "text": 1})])
    types = {
        "big": "bigint",
        "small": "bigint",
        "text": "string",
        "bin": "binary",
        "yes": "boolean",
        "half": "double",
        "when": "timestamp",
    }
    whole, typed = str(tmp_path / "whole"), str(tmp_path / "typed")
    spark.decode(rows, "cdtp").write.parquet(whole)
    spark.decode(rows, "cdtp", tags={**types, "*": "variant"}).write.parquet(typed)
    read = session.read.parquet(whole).orderBy("seq").collect()
    first = read[0]["tags"].toPython()
    assert first == {
        **{name: wire.variant_of(value) for name, value in values.items()},
        "big": decimal.Decimal(2**64 - 1),
    }
    assert read[1]["tags"].toPython() == {}
    exact = session.read.parquet(whole).select(F.expr("variant_get(tags, '$.big', 'decimal(20,0)')")).first()[0]
    assert exact == 2**64 - 1
    found = [row.asDict() for row in session.read.parquet(typed).orderBy("seq").collect()]
    assert [(row["tag_big"], row["tag_small"], row["tag_text"], row["tag_half"]) for row in found] == [
        (None, -(2**63), "ü", 0.5),
        (None, None, None, None),
        (7, None, None, 3.0),
    ]
    assert (bytes(found[0]["tag_bin"]), found[0]["tag_yes"]) == (b"\xff\x00", True)
    assert found[0]["tags"].toPython().keys() == values.keys() - types.keys()
    assert found[2]["error"] is None


def test_a_tag_of_another_type_ends_a_query_that_is_to_fail_fast(table):
    with pytest.raises(PythonException, match="tag_type"):
        spark.decode(table([wire.b(1, {"run": "7"})]), "cdtp", tags={"run": "bigint"}, mode="FAILFAST").collect()


def test_nanoseconds_are_exact_beside_nulls(table):
    rows = table([wire.a(1, ns=STAMP), wire.b(2), None, b"junk", wire.a(3, ns=STAMP + 1)])
    expected = [STAMP, None, None, None, STAMP + 1]
    assert [row["timestamp_ns"] for row in spark.decode(rows, "cdtp").orderBy("seq").collect()] == expected
    for function in (spark.from_cdtp, spark.pandas_udfs.cdtp):
        found = rows.select("seq", function("header", "n_frames").alias("d")).orderBy("seq").select("d.timestamp_ns")
        assert [row[0] for row in found.collect()] == expected


def test_microseconds_are_rounded_down_before_1970_too(table):
    rows = table([wire.s(ns=-1), wire.s(ns=-1000), wire.s(ns=1999)])
    expected = [-1, -1, 1]
    for found in (
        spark.decode(rows, "cdtp").select("seq", "timestamp"),
        rows.select("seq", spark.from_cdtp("header").alias("d")).select("seq", "d.timestamp"),
        rows.select("seq", spark.pandas_udfs.cdtp("header").alias("d")).select("seq", "d.timestamp"),
    ):
        assert [row[0] for row in found.orderBy("seq").select(F.unix_micros("timestamp")).collect()] == expected


def test_what_bigint_cannot_hold_is_null_and_said(table):
    far = msgpack.Timestamp(10**11, 0)
    header = b"".join(map(msgpack.packb, ("CDTP\x01", "d", far, 0, 2**63, {"run": 1})))
    row = (
        spark.decode(table([wire.b(2**63), header, wire.b(2**63 - 1)]), "cdtp", mode="FAILFAST")
        .orderBy("seq")
        .collect()
    )
    assert [(each["sequence"], each["error"]) for each in row] == [
        (None, "sequence_exceeds_bigint"),
        (None, "timestamp_exceeds_bigint"),
        (2**63 - 1, None),
    ]
    assert row[1]["timestamp"] == dt.datetime.fromtimestamp(10**11)  # noqa: DTZ006 - as pyspark collects them


def test_a_filter_does_not_decode_twice(session, recorded, capsys):
    rows = session.read.parquet(recorded)
    decoded = spark.decode(rows, "cdtp", tags={"run": "bigint"}).where("type = 'DAT' AND tag_run IS NULL")
    assert plan(decoded, capsys).count("MapInArrow") == 2  # once in the tree, once below it
    struct = rows.select(spark.from_cdtp("header", "n_frames").alias("d"))
    filtered = struct.where("d.type = 'DAT'").select("d.sender", "d.sequence")
    assert plan(filtered, capsys).count("ArrowEvalPython") == 2
    assert filtered.count() == rows.select(spark.from_cdtp("header").alias("d")).where("d.type = 'DAT'").count()


def test_payload_stays_in_the_jvm(session, recorded, capsys):
    rows = session.read.parquet(recorded)
    with_sizes = plan(spark.decode(rows, "cdtp"), capsys)
    scanned = with_sizes[with_sizes.index("ReadSchema") :].splitlines()[0]
    assert "header:binary" in scanned
    assert "payload" not in scanned
    counted = spark.decode(rows.drop("n_frames", "n_bytes"), "cdtp")
    # The frames are counted below, and what is counted is sent.
    sent = re.search(r"MapInArrow\nInput \[\d+\]: \[(.*)\]", plan(counted, capsys))
    assert [name.partition("#")[0] for name in sent[1].split(", ")][-3:] == ["header", "n_frames", "n_bytes"]
    given = spark.decode(rows, "cdtp").select("seq", "record", "payload_frames", "payload_bytes")
    again = counted.select("seq", "record", "payload_frames", "payload_bytes")
    assert given.exceptAll(again).count() == 0
    assert given.where("payload_frames IS NULL OR payload_bytes IS NULL").count() == 0


def test_without_counts_they_are_null_and_nothing_is_missing(table):
    row = spark.decode(table([wire.s()]).drop("n_frames"), "cdtp").first()
    assert (row["error"], row["payload_frames"], row["payload_bytes"]) == (None, None, None)
    assert spark.decode(table([wire.s()], 1), "cdtp").first()["error"] == "missing_payload"


def test_rows_of_other_protocols_are_left_out(table):
    rows = table([wire.b(1), wire.b(2)]).withColumn("protocol", F.when(F.col("seq") == 0, "dcp").otherwise("cdtp"))
    assert [row["sequence"] for row in spark.decode(rows, "cdtp").collect()] == [2]


def test_a_record_is_a_row(table):
    header = wire.two([5, {"n": 1}, [b"ab", b"c"]], [6, {}, []], kind=0)
    found = (
        spark.decode(table([header, wire.two()], 1), "cdtp", tags={"n": "bigint"}).orderBy("seq", "record").collect()
    )
    assert [
        (row["record"], row["sequence"], row["tag_n"], row["payload_frames"], row["payload_bytes"]) for row in found
    ] == [
        (0, 5, 1, 2, 3),
        (1, 6, None, 0, 0),
    ]


@pytest.mark.req("CDTP-07")
def test_json_is_what_spark_makes_of_the_variant(table):
    values = {
        "big": [2**64 - 1, 2**53 + 1, -(2**63), 0],
        "text": 'ü"\n\x00\u2028',
        "bin": [b"\xff\x00", b""],
        "odd": {1: "one", "x": {2.5: None}},
        "numbers": [0.5, -1e300, float("nan"), float("inf"), float("-inf")],
        "when": [msgpack.Timestamp(1, 5), msgpack.Timestamp(2**33, 999_999_999)],
        "ext": msgpack.ExtType(5, b"e"),
        "nested": {"b": {"c": [[], {}, True, None]}, "a": 1},
    }
    rows = table([wire.b(1, values), wire.b(2, {}), b"junk"])
    texts = [row["tags"] for row in spark.decode(rows, "cdtp", tags="json").orderBy("seq").collect()]
    variants = spark.decode(rows, "cdtp").orderBy("seq").select(F.to_json("tags").alias("tags")).collect()
    assert [text and json.loads(text) for text in texts] == [
        row["tags"] and json.loads(row["tags"]) for row in variants
    ]
    assert texts[1:] == ["{}", None]
    assert json.loads(texts[0])["big"] == [2**64 - 1, 2**53 + 1, -(2**63), 0]
    assert json.loads(texts[0])["numbers"][2:] == ["NaN", "Infinity", "-Infinity"]
    for function in (spark.from_cdtp, spark.pandas_udfs.cdtp):
        given = rows.select("seq", function("header", "n_frames", tags="json").alias("cdtp")).orderBy("seq")
        assert [row["tags"] for row in given.select("cdtp.tags").collect()] == texts


ODD = ["a`b.c", "", " ", "a b", "ü.\u202e", "tags", "*x", "a,b:int", "x" * 300, "'; DROP", "$.a", "\\"]


def test_tags_of_any_name_become_columns(table):
    rows = table([wire.b(1, {name: number for number, name in enumerate(ODD)})])
    decoded = spark.decode(rows, "cdtp", tags=dict.fromkeys(ODD, "bigint"))
    assert decoded.columns[-len(ODD) - 4 : -4] == [f"tag_{name}" for name in ODD]
    assert list(decoded.first())[-len(ODD) - 4 : -4] == list(range(len(ODD)))
    functions = rows.select(spark.from_cdtp("header", tags=dict.fromkeys(ODD, "bigint")).alias("cdtp"))
    assert [functions.first()["cdtp"][f"tag_{name}"] for name in ODD] == list(range(len(ODD)))


def test_columns_of_any_name_beside_the_header_are_no_matter(table):
    rows = table([wire.b(5)])
    for name in ODD:
        rows = rows.withColumn(name, F.lit(1)) if name not in rows.columns else rows
    assert spark.decode(rows, "cdtp", tags=None).first()["sequence"] == 5
    with refused("two columns are named header"):
        spark.decode(rows.select("*", F.lit(2).alias("Header")), "cdtp", tags=None)


def test_columns_of_ones_own_are_kept(table):
    rows = table([wire.two([1, {}, [b"x"]], [2, {}, []]), b"junk"], frames=1).withColumns(
        {"Site": F.lit("hall"), "a.`b": F.col("seq") * 2, "when": F.current_date(), "n_bytes": F.lit(9)}
    )
    found = spark.decode(rows)
    assert found.columns[:4] == ["seq", "Site", "a.`b", "when"]
    assert "n_bytes" not in found.columns
    rows_found = [(row["seq"], row["Site"], row["a.`b"], row["sequence"]) for row in found.collect()]
    assert sorted(rows_found, key=str) == [(0, "hall", 0, 1), (0, "hall", 0, 2), (1, "hall", 2, None)]
    assert spark.decode(rows, columns=["Site", "sender"]).columns == ["Site", "sender"]
    for name in ("sender", "Variant", "received_at", "tag_run"):
        with refused(f"decode makes a column {name.lower()} itself: rename or drop that of the table"):
            spark.decode(rows.withColumn(name, F.lit(1)), tags={"run": "bigint"})


def test_types_have_sparks_names(table):
    rows = table([wire.b(1, tags={"n": 5, "x": 1.5, "s": "a"})])
    by_name = {"n": "int", "x": "float", "s": "string"}
    by_type = {"n": types.IntegerType(), "x": types.FloatType(), "s": types.StringType(), "*": types.VariantType()}
    for tags in (by_name, by_type):
        found = spark.decode(rows, tags=tags).select("tag_n", "tag_x", "tag_s")
        assert found.dtypes == [("tag_n", "bigint"), ("tag_x", "double"), ("tag_s", "string")]
        assert [tuple(row) for row in found.collect()] == [(5, 1.5, "a")]


def test_that_all_rows_are_of_another_protocol_is_said(session, recorded, caplog):
    rows = session.read.parquet(recorded)
    assert spark.decode(rows, "dcp").count() == 0
    number = rows.count()
    assert caplog.messages == [f"none of {number:,} rows is dcp: name the protocol that was recorded"]
    assert capture.open(recorded).decode("dcp").read_all().num_rows == 0
    assert caplog.messages[1:] == [f"none of {number:,} rows is dcp: name the protocol that was recorded, cdtp"]
    caplog.clear()
    spark.decode(rows)
    capture.open(recorded).decode(mode="DROPMALFORMED").read_all()
    assert caplog.messages == []


def test_names_of_columns_are_found_in_any_case(table):
    rows = table([wire.b(1)]).withColumnRenamed("header", "Header").withColumnRenamed("seq", "SEQ")
    row = spark.decode(rows, "cdtp").first()
    assert (row["seq"], row["sequence"]) == (0, 1)


def test_a_capture_is_plain_parquet(session, recorded, tmp_path):
    rows = session.read.parquet(recorded)
    assert rows.schema == session.read.schema(spark.capture_schema()).parquet(recorded).schema
    assert rows.columns == capture.schema().names
    assert rows.count() == pq.read_table(recorded).num_rows
    empty = session.read.schema(spark.capture_schema()).parquet(str(tmp_path))
    assert spark.decode(empty, "cdtp").count() == 0


def test_a_stream_of_segments_is_decoded(session, recorded):
    segments = session.readStream.schema(spark.capture_schema()).parquet(recorded)
    messages = spark.decode(segments, "cdtp", tags=None).groupBy("sender").count()
    query = messages.writeStream.format("memory").queryName("senders").outputMode("complete")
    query.trigger(availableNow=True).start().awaitTermination()
    batch = spark.decode(session.read.parquet(recorded), "cdtp", tags=None).groupBy("sender").count()
    assert sorted(session.table("senders").collect()) == sorted(batch.collect())

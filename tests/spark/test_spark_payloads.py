"""Payloads as columns of Spark: in tables, functions, the data source and SQL."""

import decimal
import json
import struct

import numpy as np
import pytest
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from peers import cdtp as wire
from peers import dcp as dcp_wire
from peers import mc0 as mc0_wire
from peers import mtl as mtl_wire
from trunkline import Layout, capture, spark
from trunkline.errors import LocalProtocolError
from trunkline.spark import pandas_udfs

LAYOUT = "n u8, big u64, half f16, id bytes[2], fixed u16[2], hits (channel u16, charge f32)[]"
HITS = [(1, 0.5), (2, 1.5)]
FRAME = struct.pack("<BQe2s2H", 200, 2**64 - 1, 1.5, b"ab", 1, 65535) + b"".join(
    struct.pack("<Hf", *hit) for hit in HITS
)
ROW = {
    "payload_n": 200,
    "payload_big": decimal.Decimal(2**64 - 1),
    "payload_half": 1.5,
    "payload_id": bytearray(b"ab"),
    "payload_fixed": [1, 65535],
    "payload_hits": [{"channel": channel, "charge": charge} for channel, charge in HITS],
}
TYPES = {
    "payload_n": "smallint",
    "payload_big": "decimal(20,0)",
    "payload_half": "float",
    "payload_id": "binary",
    "payload_fixed": "array<int>",
    "payload_hits": "array<struct<channel:int,charge:float>>",
}
NOTHING = dict.fromkeys(TYPES)

PUSH = "kp1.svc.cdp.source-1.cmx2cdp.config"
BOTH = {
    "cdtp": ([wire.header_s(), FRAME], [wire.header_s(), b"x"]),
    "dcp": (dcp_wire.request(b"echo", FRAME), dcp_wire.request(b"echo", b"x")),
    "mc0": (mc0_wire.put(b"runs", FRAME), mc0_wire.put(b"runs", b"x")),
    "mtl": (mtl_wire.content(1, "jobs", FRAME), mtl_wire.content(2, "jobs", b"x")),
}


@pytest.fixture
def both(captured):
    """A capture of a message of each protocol whose payload is of the layout, and of one whose is not."""
    return captured(
        *((at, protocol, "in", b"p", frames) for protocol, two in BOTH.items() for at, frames in enumerate(two))
    )


def fields(rows):
    return [
        {name: value for name, value in row.asDict(recursive=True).items() if name in TYPES} | {"error": row.error}
        for row in rows
    ]


@pytest.mark.parametrize("protocol", BOTH)
def test_decode_the_source_and_a_capture_have_the_same_columns(session, both, protocol):
    rows = session.read.format("trunkline").load(str(both))
    decoded = spark.decode(rows, protocol, payload=LAYOUT)
    assert {name: of for name, of in decoded.dtypes if name in TYPES} == TYPES
    expected = [ROW | {"error": None}, NOTHING | {"error": "payload_short"}]
    assert fields(decoded.orderBy("seq").collect()) == expected
    options = {"protocol": protocol, "decode": True, "payload": LAYOUT}
    sourced = session.read.format("trunkline").options(**options).load(str(both))
    assert sourced.dtypes == decoded.dtypes or protocol == "cdtp"
    assert fields(sourced.orderBy("seq").collect()) == expected
    local = capture.open(both).decode(protocol, payload=LAYOUT).read_all()
    assert local["error"].to_pylist() == [None, "payload_short"]
    for name in TYPES:
        first = local[name].to_pylist()[0]
        assert first == (int(ROW[name]) if name == "payload_big" else ROW[name])


def test_the_columns_of_a_query_decode_alone(session, both):
    rows = session.read.format("trunkline").load(str(both))
    some = spark.decode(rows, "dcp", payload=LAYOUT, columns=["payload_n", "service"])
    assert sorted(some.columns) == ["payload_n", "service"]
    assert sorted(row.payload_n or 0 for row in some.collect()) == [0, 200]
    aggregated = spark.decode(rows, "dcp", payload=LAYOUT, columns=["payload_fixed"])
    total = aggregated.select(F.aggregate("payload_fixed", F.lit(0), lambda a, b: a + b).alias("total"))
    assert sorted(row.total or 0 for row in total.collect()) == [0, 65536]


def test_conditions_are_about_fields(session, both):
    options = {"protocol": "dcp", "decode": True, "payload": LAYOUT, "where": "payload_n > 1"}
    rows = session.read.format("trunkline").options(**options).load(str(both))
    assert [row.payload_n for row in rows.select("payload_n").collect()] == [200]


def test_modes(session, both):
    rows = session.read.format("trunkline").load(str(both))
    assert spark.decode(rows, "mc0", payload=LAYOUT, mode="DROPMALFORMED").count() == 1
    with pytest.raises(PythonException, match="payload_short in frame 5 at byte 0"):
        spark.decode(rows, "mc0", payload=LAYOUT, mode="FAILFAST").collect()


@pytest.mark.parametrize("room", [spark, pandas_udfs])
def test_column_functions(session, both, room):
    rows = session.read.format("trunkline").load(str(both))
    prefix = "from_" if room is spark else ""
    options = {"tags": None}

    def of(protocol, *columns, **options):
        function = getattr(room, prefix + protocol)
        of_protocol = rows.where(rows.protocol == protocol).orderBy("seq")
        said = [row.said for row in of_protocol.select(function(*columns, **options).alias("said")).collect()]
        return fields(said)

    expected = [ROW | {"error": None}, NOTHING | {"error": "payload_short"}]
    assert of("cdtp", "header", "n_frames", payload=LAYOUT, frames="payload", **options) == expected
    frames = ("envelope", "header", "payload")
    assert of("dcp", *frames, data=Layout(LAYOUT), n_head="n_head") == expected
    assert of("mc0", *frames, body=LAYOUT) == expected
    plain = {"properties": None, "json": None}
    assert of("mtl", *frames, body=LAYOUT, **plain) == expected


def test_headers_of_cdtp_alone_have_no_payload_and_no_error(session, both):
    rows = session.read.format("trunkline").load(str(both)).where("protocol = 'cdtp'")
    said = rows.select(spark.from_cdtp("header", "n_frames", payload=LAYOUT).alias("said")).collect()
    assert fields([row.said for row in said]) == [NOTHING | {"error": None}] * 2


def test_blocks_of_records_are_frames(session, captured):
    records = [wire.batch([1, 2])]
    path = captured((1, "cdtp", "in", None, records))
    rows = session.read.format("trunkline").load(str(path))
    found = spark.decode(rows, "cdtp", payload="text utf8", tags=None).orderBy("record").collect()
    assert len(found) == 2
    plain = spark.decode(rows, "cdtp", payload=True, tags=None).orderBy("record").collect()
    for ours, theirs in zip(found, plain, strict=True):
        is_one = len(theirs.payload) == 1
        assert ours.error == (None if is_one else "payload_frames")
        assert ours.payload_text == (bytes(theirs.payload[0]).decode() if is_one else None)


def test_sql(session, both):
    session.read.format("trunkline").load(str(both)).createOrReplaceTempView("payload_rows")
    spark.register(session, dcp={"payload": LAYOUT}, cdtp={"payload": LAYOUT, "tags": None})
    found = session.sql(
        "SELECT from_dcp(envelope, header, payload) said FROM payload_rows WHERE protocol = 'dcp' ORDER BY seq"
    )
    expected = [ROW | {"error": None}, NOTHING | {"error": "payload_short"}]
    assert fields([row.said for row in found.collect()]) == expected
    found = session.sql(
        "SELECT from_cdtp(header, n_frames, n_bytes, payload) said FROM payload_rows WHERE protocol = 'cdtp' ORDER BY seq"
    )
    assert fields([row.said for row in found.collect()]) == expected
    spark.register(session)


def test_other_kinds_of_layouts(session, captured):
    frames = [json.dumps({"temperature": 1.5, "more": {"x": [1]}}).encode(), b"no"]
    path = captured(*((at, "mc0", "in", b"p", mc0_wire.put(b"t", frame)) for at, frame in enumerate(frames)))
    rows = session.read.format("trunkline").load(str(path))
    found = spark.decode(rows, "mc0", payload="json: temperature double, * variant").orderBy("seq").collect()
    assert [row.payload_temperature for row in found] == [1.5, None]
    assert found[0].payload_rest.toPython() == {"more": {"x": [1]}}
    assert [row.error for row in found] == [None, "payload_json"]
    whole = spark.decode(rows, "mc0", payload="json: variant").orderBy("seq").collect()
    assert whole[0].payload_value.toPython() == {"temperature": 1.5, "more": {"x": [1]}}
    dtype = np.dtype([("a", "u1"), ("b", "u1")])
    assert [row.payload_a for row in spark.decode(rows, "mc0", payload=dtype).orderBy("seq").collect()] == [None, 110]
    assert spark.decode(rows, "mc0", payload="utf8").orderBy("seq").first().payload_value == frames[0].decode()


def test_names_with_quotes_and_dots(session, captured):
    path = captured((1, "mc0", "in", b"p", mc0_wire.put(b"t", b"\x01\x02")))
    rows = session.read.format("trunkline").load(str(path))
    row = spark.decode(rows, "mc0", payload="`a.b``c` u8, `d e` u8").first()
    assert (row["payload_a.b`c"], row["payload_d e"]) == (1, 2)


def test_what_is_refused(session, both):
    rows = session.read.format("trunkline").load(str(both))
    with pytest.raises(LocalProtocolError, match="payload: line 1, column 5: expected a type"):
        spark.decode(rows, "dcp", payload="adc u17[]")
    with pytest.raises(LocalProtocolError, match="the payloads of several protocols have no common columns"):
        spark.decode(rows, "*", payload="adc u16[]")
    for options, words in [
        ({"protocol": "dcp", "decode": True, "payload": "adc u17[]"}, "option payload: line 1, column 5: expected"),
        ({"protocol": "dcp", "payload": "adc u16[]"}, "option payload: is for .*: set decode to true"),
        ({"protocol": "*", "decode": True, "payload": "adc u16[]"}, "the payloads of several protocols have no common"),
        (
            {"protocol": "dcp", "decode": True, "payload": "adc u16[]", "where": "payload_n = 1"},
            "where: 1:1: no column 'payload_n', did you mean 'payload_adc'",
        ),
    ]:
        with pytest.raises(PySparkException, match=words):
            session.read.format("trunkline").options(**options).load(str(both)).collect()


def test_a_report_says_the_same_as_without_spark(session, both, tmp_path):
    locally = capture.report(both, tmp_path / "local.html", payload=LAYOUT).to_dict()["sections"]["payloads"]
    of_segments = spark.report(both, tmp_path / "spark.html", payload=LAYOUT).to_dict()["sections"]["payloads"]
    assert of_segments == locally
    assert {each["protocol"] for each in locally} == set(BOTH)
    only = capture.Selection(where="payload_n > 1")
    chosen = [
        write(both, tmp_path / "chosen.html", payload=LAYOUT, selection=only).to_dict()
        for write in (capture.report, spark.report)
    ]
    assert 0 < chosen[0]["rows"] < capture.open(both).info().messages
    for report in chosen:
        report.pop("made_at", None)
    assert chosen[0] == chosen[1]
    rows = session.read.format("trunkline").load(str(both))
    of_rows = spark.report(rows, tmp_path / "rows.html", payload=LAYOUT).to_dict()["sections"]["payloads"]
    assert of_rows == locally

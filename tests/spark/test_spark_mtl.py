"""MTL messages put together by hand, as tables."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.classic.dataframe import DataFrame

from peers.mtl import PING, Peers, confirm, content, lease, reject, response, summon
from peers.waiting import until
from trunkline import capture, mtl, spark
from trunkline.errors import LocalProtocolError

SCHEMA = "seq bigint, envelope array<binary>, header binary, payload array<binary>, topic string"
FIELDS = {
    "run": 5,
    "price": Decimal("-12.50"),
    "tiny": Decimal("1E-30"),
    "big": Decimal(2**31 - 1),
    "since": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "first": datetime(1970, 1, 1, tzinfo=UTC),
    "last": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    "raw": b"\0\xff",
    "deep": [1, {"a": [None, True, "ä"]}, 0.5],
}
MESSAGES = [
    [
        b"",
        b"Connection.Writer",
        b'{"resources": ["jobs"], "confirm": "full", "odd": [1.5, null, {"a": 18446744073709551615}]}',
    ],
    [b"id", b"", b"202", b'{"lease": "\xe2\x80\xa60123456789abcdef", "port": 5}'],
    lease(1, "…0123456789abcdef"),
    response(1, 200),
    summon(2, "jobs"),
    content(2**64 - 1, "jobs", b"body", mtl.encode_table(FIELDS)),
    content(3, "", b""),
    confirm(3, multiple=True),
    reject(4, recycle=True),
    PING,
    [b"Queue.Info", b"no json"],
    [b"\x05", b"x" * 100],
    [b"", b"one"],
]


def split(frames):
    """As a capture does."""
    at = frames.index(b"") + 1 if b"" in frames[:2] and len(frames) > 2 else 0
    return frames[:at], frames[at], frames[at + 1 :]


@pytest.fixture
def rows(session):
    given = [(at, *split(frames), "one") for at, frames in enumerate(MESSAGES)]
    return session.createDataFrame([*given, (len(given), None, None, None, None)], SCHEMA)


@pytest.fixture
def served(open_socket, context, tmp_path):  # noqa: ARG001 - the server ends before it does
    """A capture of a server, through which three contents went."""
    with mtl.Server(
        bind="tcp://127.0.0.1:*", anonymous=True, resources=["jobs"], capture=tmp_path / "capture"
    ) as server:
        peers = Peers(open_socket, server)
        writer, reader = peers.writer(confirm="full"), peers.reader(confirm="full")
        for sequence in (1, 2, 3):
            writer.send_multipart(content(sequence, "", b"x" * 100_000, mtl.encode_table({"run": sequence})))
            assert reader.recv_multipart()[1] == b"x" * 100_000
        reader.send_multipart(confirm(3, multiple=True))
        until(lambda: any(resource.confirmed == 3 for resource in server.stats.resources))
    return str(tmp_path / "capture")


def test_columns_are_those_of_the_contract(session):
    empty = session.createDataFrame([], spark.capture_schema())
    decoded = spark.decode(empty, "mtl", payload=True, properties={"run": "bigint", "*": "variant"})
    assert [f"{field.name} {field.dataType.simpleString()}" for field in decoded.schema] == [
        "capture_id string",
        "segment bigint",
        "seq bigint",
        "received_at_ns bigint",
        "endpoint string",
        "direction string",
        "peer binary",
        "flow string",
        "name string",
        "status int",
        "type string",
        "sequence decimal(20,0)",
        "resource string",
        "lease_hash string",
        "multiple boolean",
        "recycle boolean",
        "property_run bigint",
        "properties variant",
        "json variant",
        "body_bytes bigint",
        "body binary",
        "error string",
        "_corrupt_record array<binary>",
        "received_at timestamp",
    ]
    assert "_corrupt_record" not in spark.decode(empty, "mtl", mode="DROPMALFORMED").columns
    assert decoded.count() == 0


@pytest.mark.req("MTL-60")
def test_variants_are_what_spark_takes_them_for(rows):
    decoded = spark.decode(rows, "mtl").where("sequence = 18446744073709551615")
    (row,) = decoded.select(
        F.expr("variant_get(properties, '$.price', 'decimal(9,2)')"),
        F.expr("variant_get(properties, '$.tiny', 'decimal(38,30)')"),
        F.expr("variant_get(properties, '$.big', 'bigint')"),
        F.expr("unix_seconds(variant_get(properties, '$.since', 'timestamp'))"),
        F.expr("unix_seconds(variant_get(properties, '$.last', 'timestamp'))"),
        F.expr("variant_get(properties, '$.raw', 'binary')"),
        F.expr("variant_get(properties, '$.deep[1].a[2]', 'string')"),
        F.expr("schema_of_variant(properties)"),
    ).collect()
    assert row[:7] == (
        Decimal("-12.50"),
        Decimal("1E-30"),
        2**31 - 1,
        int(FIELDS["since"].timestamp()),
        253_402_300_799,
        bytearray(FIELDS["raw"]),
        "ä",
    )
    for part in ("price: DECIMAL(3,1)", "raw: BINARY", "run: BIGINT", "since: TIMESTAMP"):
        assert part in row[7]


def test_json_text_is_what_spark_writes_of_the_variant(rows):
    as_text = spark.decode(rows, "mtl", properties="json", json="json")
    as_variant = spark.decode(rows, "mtl")
    for name in ("properties", "json"):
        texts = [row[0] for row in as_text.orderBy("seq").select(name).collect()]
        written = [row[0] for row in as_variant.orderBy("seq").select(F.to_json(name)).collect()]
        assert [text and json.loads(text) for text in texts] == [text and json.loads(text) for text in written]
        # Compared as text, as Spark decides how times are written.
        ordered = [text and json.dumps(json.loads(text, parse_float=str), sort_keys=True) for text in texts]
        assert ordered == [text and json.dumps(json.loads(text, parse_float=str), sort_keys=True) for text in written]


def test_all_ways_give_the_same_values(rows):
    columns = ("envelope", "header", "payload")
    options = {"properties": {"run": "bigint", "*": "json"}, "json": "json"}
    decoded = spark.decode(rows, "mtl", payload=True, **options).orderBy("seq").collect()
    given = {**options, "topic": "topic", "body": True}
    structs = rows.select("seq", spark.from_mtl(*columns, **given).alias("m")).orderBy("seq").collect()
    pandas = rows.select("seq", spark.pandas_udfs.mtl(*columns, **given).alias("m")).orderBy("seq").collect()
    assert structs == pandas
    assert structs[-1]["m"] is None
    assert [(row["seq"], *row["m"]) for row in structs[:-1]] == decoded[:-1]
    assert set(decoded[-1][1:]) == {None}
    assert [row["resource"] for row in decoded if row["type"] == "content"] == ["jobs", "one"]
    assert [row["lease_hash"] for row in decoded if row["lease_hash"]] == ["0123456789abcdef"] * 2
    assert [row["error"] for row in decoded[-4:]] == ["bad_json", "truncated", "empty_header", None]
    for function in (spark.from_mtl, spark.pandas_udfs.mtl):
        bare = rows.select("seq", function(*map(F.col, columns), properties=None, json=None).alias("m"))
        found = bare.orderBy("seq").collect()
        assert [row["m"] and row["m"]["resource"] for row in found[5:7]] == ["jobs", ""]
        assert not {"body", "properties", "json"} & set(found[0]["m"].asDict())


def test_a_capture_of_a_server_decodes_and_bodies_stay_in_the_jvm(session, served, monkeypatch):
    rows = session.read.parquet(served)
    options = {"properties": {"run": "bigint"}, "json": "json"}
    decoded = spark.decode(rows, "mtl", **options).orderBy("seq")
    contents = decoded.where("type = 'content'").collect()
    assert len(contents) == 6
    assert {(row["resource"], row["body_bytes"]) for row in contents} == {("jobs", 100_000)}
    assert sorted(row["property_run"] for row in contents) == [1, 1, 2, 2, 3, 3]
    assert decoded.where("error IS NOT NULL").count() == 0
    assert decoded.where("type = 'response' AND status = 200").count() == 3
    assert decoded.where("type = 'reply' AND lease_hash IS NOT NULL").count() == 2
    (settled,) = decoded.where("type = 'confirm' AND direction = 'in'").collect()
    assert (settled["sequence"], settled["multiple"]) == (Decimal(3), True)
    # Without counts the JVM counts, and without topics they are unknown.
    uncounted = spark.decode(rows.drop("n_frames", "n_bytes"), "mtl", **options).orderBy("seq")
    assert uncounted.collect() == decoded.collect()
    untold = spark.decode(rows.drop("topic"), "mtl").where("type = 'content'")
    assert {row["resource"] for row in untold.collect()} == {"", "jobs"}
    struct = spark.from_mtl("envelope", "header", "payload", n_head="n_head", topic="topic")
    found = rows.select(struct.alias("m")).where("m.type = 'content'").collect()
    assert {(row["m"]["resource"], row["m"]["body_bytes"]) for row in found} == {("jobs", 100_000)}
    arrow = capture.open(served).decode("mtl", **options).read_all()
    assert sorted(arrow["seq"].to_pylist()) == [row["seq"] for row in decoded.collect()]
    # What goes to Python is what the function is given.
    monkeypatch.setattr(DataFrame, "mapInArrow", lambda sent, *_: sent)
    sent = spark.decode(rows, "mtl").select(F.transform("payload", F.octet_length)).collect()
    assert max((size for row in sent for size in row[0]), default=0) < 1000


def test_modes(rows):
    good = [at for at in range(len(MESSAGES) + 1) if at not in {10, 11, 12}]
    dropped = spark.decode(rows, "mtl", mode="DROPMALFORMED").orderBy("seq").collect()
    assert [row["seq"] for row in dropped] == good
    with pytest.raises(PythonException, match="bad_json in frame 1"):
        spark.decode(rows, "mtl", mode="FAILFAST").collect()
    with pytest.raises(PythonException, match="bad_json in frame 1"):
        rows.select(spark.from_mtl("envelope", "header", "payload", mode="FAILFAST")).collect()
    with pytest.raises(PythonException, match="tag_type"):
        spark.decode(rows.where("seq = 5"), "mtl", mode="FAILFAST", properties={"run": "string"}).collect()
    for function in (spark.from_mtl, spark.pandas_udfs.mtl):
        with pytest.raises(LocalProtocolError, match="DROPMALFORMED"):
            function("envelope", "header", "payload", mode="DROPMALFORMED")


def test_what_cannot_be_is_refused_when_the_plan_is_made(session):
    rows = session.createDataFrame([], spark.capture_schema())
    for option, value in {"tags": None, "accept": ("S",), "compat_dagbox": False}.items():
        with pytest.raises(LocalProtocolError, match=f"{option} does not apply to MTL"):
            spark.decode(rows, "mtl", **{option: value})
    for name in ("envelope", "header", "payload"):
        with pytest.raises(LocalProtocolError, match=f"no column {name}"):
            spark.decode(rows.drop(name), "mtl")
    with pytest.raises(LocalProtocolError, match="topic is int, but must be string"):
        spark.decode(rows.withColumn("topic", F.lit(1)), "mtl")
    # Of other protocols it is not looked at.
    assert spark.decode(rows.withColumn("topic", F.lit(1)), "mc0").count() == 0
    with pytest.raises(LocalProtocolError, match="typed tags and properties"):
        spark.pandas_udfs.mtl("envelope", "header", "payload", properties="variant")

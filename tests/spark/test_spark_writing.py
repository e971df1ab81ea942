"""Columns of structs encoded into frames, by the column functions and in SQL."""

from __future__ import annotations

import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F  # noqa: N812

from trunkline import cdtp, spark
from trunkline._protocols import RECORDED
from trunkline.errors import LocalProtocolError

FROM = {
    "cdtp": lambda: spark.from_cdtp("header", "n_frames", n_bytes="n_bytes"),
    "dcp": lambda: spark.from_dcp("envelope", "header", "payload", data=True),
    "mc0": lambda: spark.from_mc0("envelope", "header", "payload", body=True),
    "mtl": lambda: spark.from_mtl("envelope", "header", "payload", body=True),
    "cdt": lambda: spark.from_cdt(F.get("payload", F.lit(0)), "topic", content=True),
}
TO = {protocol.name: getattr(spark, f"to_{protocol.name}") for protocol in RECORDED}


def of(session, path, protocol):
    return session.read.format("trunkline").option("protocol", protocol).load(str(path))


def again(protocol):
    """What is read of the frames in the struct `frames`."""
    named = [F.col(f"frames.{name}") for name in ("envelope", "header", "payload")]
    if protocol == "cdtp":
        return spark.from_cdtp(named[1], "n_frames", n_bytes="n_bytes")
    if protocol == "cdt":
        return spark.from_cdt(F.get(named[2], F.lit(0)), "topic", content=True)
    reading = getattr(spark, f"from_{protocol}")
    return reading(*named, **{"data" if protocol == "dcp" else "body": True})


@pytest.mark.parametrize("protocol", TO)
def test_what_was_read_is_read_again(session, every_protocol, protocol):
    rows = of(session, every_protocol, protocol)
    written = rows.withColumn("said", FROM[protocol]()).withColumn("frames", TO[protocol]("said"))
    found = written.select("said", again(protocol).alias("again"), "frames").selectExpr(
        "to_json(said) AS said", "to_json(again) AS again", "frames IS NULL AS is_null"
    )
    table = found.collect()
    assert table
    for row in table:
        # An answer without a body is of no kind.
        assert row.again == row.said or (protocol == "cdt" and row.is_null)


def test_sql_writes_messages(session, every_protocol):
    spark.register(session, dcp={"payload": True})
    of(session, every_protocol, "dcp").createOrReplaceTempView("rows")
    found = session.sql(
        "SELECT header, to_dcp(from_dcp(envelope, header, payload)) AS frames, envelope, payload FROM rows"
    ).collect()
    assert found
    assert all(
        (row.frames.envelope, row.frames.header, row.frames.payload) == (row.envelope, row.header, row.payload)
        for row in found
    )
    with pytest.raises(LocalProtocolError, match="which Spark cannot register"):
        session.udf.register("to_dcp", spark.to_dcp)


def test_a_field_that_is_wrong_ends_the_query_with_its_name(session):
    rows = session.sql("SELECT named_struct('type', 'request', 'client', cast('c' AS binary)) AS message")
    with pytest.raises(PythonException, match="row 0: service is missing"):
        rows.select(spark.to_dcp("message")).collect()


def test_payloads_of_cdtp2_come_back_where_they_were_decoded(session):
    made = bytes(
        cdtp.encode(cdtp.Message("D", [b"ab", b""], variant="2", type="DAT", sequence=1, tags={"z": 1, "a": 2}))[0]
    )
    rows = session.createDataFrame([(made, 1)], "header binary, n_frames int")
    whole = rows.select(spark.to_cdtp(spark.from_cdtp("header", "n_frames", payload=True)).alias("frames"))
    assert bytes(whole.collect()[0].frames.header) == made
    for tags, payload, missing in (("variant", False, "payload is"), ({"z": "bigint"}, True, "tags are")):
        some = rows.select(spark.to_cdtp(spark.from_cdtp("header", "n_frames", tags=tags, payload=payload)))
        with pytest.raises(PythonException, match=f"row 0: {missing} missing: decode with"):
            some.collect()

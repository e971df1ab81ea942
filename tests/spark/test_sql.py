"""Column functions under their names in SQL."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F  # noqa: N812

from trunkline import LocalProtocolError, spark
from trunkline._protocols import RECORDED


@pytest.fixture
def rows(session, every_protocol):
    frame = session.read.parquet(str(every_protocol))
    frame.createOrReplaceTempView("rows")
    return frame


CALLS = {
    "cdtp": (
        "from_cdtp(header, n_frames, n_bytes)",
        lambda: spark.from_cdtp("header", "n_frames", n_bytes="n_bytes", tags="json"),
    ),
    "dcp": ("from_dcp(envelope, header, payload)", lambda: spark.from_dcp("envelope", "header", "payload")),
    "mc0": ("from_mc0(envelope, header, payload)", lambda: spark.from_mc0("envelope", "header", "payload")),
    "mtl": (
        "from_mtl(envelope, header, payload, topic)",
        lambda: spark.from_mtl("envelope", "header", "payload", topic="topic", properties="json", json="json"),
    ),
    "cdt": ("from_cdt(payload[0], topic)", lambda: spark.from_cdt("body", "topic")),
}


def test_every_protocol_is_called():
    assert list(CALLS) == [protocol.name for protocol in RECORDED]


@pytest.mark.parametrize("protocol", CALLS)
def test_sql_gives_what_the_column_function_gives(session, rows, protocol):
    call, function = CALLS[protocol]
    # Values of VARIANT are never equal.
    spark.register(session, cdtp={"tags": "json"}, mtl={"properties": "json", "json": "json"})
    where = f"protocol = '{protocol}'"
    found = session.sql(f"select {call} as d from rows where {where} order by seq").select("d.*")
    given = rows.where(where).orderBy("seq").withColumn("body", F.col("payload")[0])
    expected = given.select(function().alias("d")).select("d.*")
    assert found.schema == expected.schema
    assert [row["error"] is None for row in found.collect()] == [True, False]
    assert found.collect() == expected.collect()


@pytest.mark.usefixtures("rows")
def test_options_are_chosen_at_registration(session):
    spark.register(session, cdtp={"tags": {"run": "bigint"}}, dcp={"payload": True})
    (first, second) = session.sql(
        "select from_cdtp(header).tag_run r from rows where protocol = 'cdtp' order by seq"
    ).collect()
    assert (first.r, second.r) == (7, None)
    asked = session.sql(
        "select from_dcp(envelope, header, payload).data d from rows where protocol = 'dcp' order by seq"
    )
    assert [row.d for row in asked.collect()] == [[b"hello"], None]
    with pytest.raises(LocalProtocolError, match="smtp cannot be decoded: choose from cdtp, dcp"):
        spark.register(session, smtp={})
    with pytest.raises(TypeError, match="nope"):
        spark.register(session, cdtp={"nope": 1})
    with pytest.raises(TypeError, match="session takes a Spark session"):
        spark.register("session")


@pytest.mark.usefixtures("rows")
def test_a_null_is_a_null_struct(session):
    spark.register(session)
    nothing = "cast(null as binary)"
    found = session.sql(f"select from_cdtp({nothing}) a, from_cdt({nothing}, 'x') b from rows limit 1").first()
    assert (found.a, found.b) == (None, None)


@pytest.mark.usefixtures("rows")
def test_wrong_numbers_of_arguments_are_named(session):
    spark.register(session)
    with pytest.raises(Exception, match="from_dcp takes envelope, header, payload, not 2 columns"):
        session.sql("select from_dcp(envelope, header) from rows").collect()


@pytest.mark.parametrize("name", CALLS)
def test_functions_of_columns_are_not_registered_as_functions_of_values(session, name):
    for function in (getattr(spark, f"from_{name}"), getattr(spark.pandas_udfs, name)):
        with pytest.raises(LocalProtocolError, match=r"is a function of columns.*spark\.register\(session\)"):
            session.udf.register(f"from_{name}", function)

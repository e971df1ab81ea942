"""CDT in Spark: decoded captures, column functions, and the way of a configuration."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from trunkline import LocalProtocolError, cdt, spark

REQUESTS = "kaa.v1.service.cdp.cmx2cdp.ConfigRequest"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A capture by a target: two configurations, of which one is taken on."""
    directory, url = tmp_path_factory.mktemp("cdt") / "runs", "memory://spark-tests"
    with (
        cdt.Target("cdp", servers=url, capture=directory) as target,
        cdt.Source("cmx", target="cdp", servers=url) as source,
    ):
        first = target.put("app-1", "e-1", b"{}")
        second = target.put("app-1", "e-2", b"[1]")
        source.pull("app-1", "e-1")
        source.pull("app-1", "e-1")
        source.report_applied("app-1", "e-1", first)
        target.receive(timeout_s=10)
    return directory, first, second


def test_a_capture_is_a_table(session, recorded):
    directory, first, _ = recorded
    rows = session.read.parquet(str(directory))
    table = spark.decode(rows, "cdt", payload=True)
    kept = ["capture_id", "segment", "seq", "received_at_ns", "direction", "topic", "reply_to"]
    assert table.columns[: len(kept)] == kept
    answers = table.where("type = 'ConfigResponse'").select("config_id", "content", "status_code", "content_bytes")
    assert [tuple(row) for row in answers.collect()] == [(first, b"{}", 200, 2)] * 2
    assert table.where("error is not null").count() == 0
    few = spark.decode(rows, "cdt", columns=["type", "endpoint_id"])
    assert few.where("type = 'ConfigRequest'").select("endpoint_id").distinct().collect() == [("e-1",)]


def test_columns_of_bodies_of_ones_own(session):
    body = json.dumps(
        {
            "correlationId": "c",
            "timestamp": 1490303342158,
            "timeout": 5,
            "endpointMessageId": "m",
            "appVersionName": "a",
            "endpointId": "e",
        }
    ).encode()
    given = [(body, REQUESTS), (b"bad", REQUESTS), (b"x", "other"), (None, REQUESTS)]
    schema = StructType([StructField("body", BinaryType()), StructField("topic", StringType())])
    table = session.createDataFrame(given, schema)
    for function in (spark.from_cdt, spark.pandas_udfs.cdt):
        found = table.select(function("body", "topic").alias("said")).collect()
        said = [row.said for row in found]
        assert (said[0].type, said[0].endpoint_id, said[0].timeout_ms, said[0].instance) == (
            "ConfigRequest",
            "e",
            5,
            "cdp",
        )
        assert (said[1].error, bytes(said[1]._corrupt_record)) == ("bad_json", b"bad")
        assert (said[2].type, said[2].error) == (None, None)
        assert said[3] is None


def test_the_way_of_a_configuration(session, recorded):
    directory, first, second = recorded
    table = spark.decode(session.read.parquet(str(directory)), "cdt")
    rows = {row.endpoint_id: row for row in spark.rollout(table).collect()}
    assert set(rows) == {"e-1", "e-2"}
    assert (rows["e-1"].config_id, rows["e-1"].pulls, rows["e-1"].reports) == (first, 2, 1)
    assert rows["e-1"].available_at <= rows["e-1"].pulled_at <= rows["e-1"].applied_at
    assert rows["e-1"].time_to_applied_ns > 0
    assert (rows["e-2"].config_id, rows["e-2"].applied_at, rows["e-2"].time_to_applied_ns) == (second, None, None)


def test_the_way_is_told_by_the_first_of_each_step(session):
    schema = StructType(
        [
            StructField("received_at_ns", LongType()),
            StructField("type", StringType()),
            StructField("app_version_name", StringType()),
            StructField("endpoint_id", StringType()),
            StructField("config_id", StringType()),
            StructField("status_code", IntegerType()),
        ]
    )
    ours = ("a", "e", "v")
    given = [
        (9_000, "ConfigUpdated", *ours, None),
        (1_000, "ConfigNewAvailable", *ours, None),
        (2_000, "ConfigResponse", *ours, 404),
        (4_000, "ConfigResponse", *ours, 200),
        (3_000, "ConfigNewAvailable", *ours, None),
        (7_000, "ConfigUpdated", *ours, None),
        (5_000, "ConfigUpdated", "a", "e", "w", None),
        (6_000, "ConfigNewAvailable", "a", "e", "w", None),
        (1_000, None, None, None, None, None),
    ]
    rows = {row.config_id: row for row in spark.rollout(session.createDataFrame(given, schema)).collect()}
    assert set(rows) == {"v", "w"}
    one = rows["v"]
    assert (one.announcements, one.pulls, one.reports, one.time_to_applied_ns) == (2, 1, 2, 6_000)
    micros = [getattr(one, f"{name}_at").microsecond for name in ("available", "pulled", "applied")]
    assert micros == [1, 4, 7]
    assert (rows["w"].time_to_applied_ns, rows["w"].pulled_at) == (None, None)


def test_a_missing_column_is_named(session):
    with pytest.raises(LocalProtocolError, match="status_code"):
        spark.rollout(session.range(1).select(F.lit(1).alias("received_at_ns")))

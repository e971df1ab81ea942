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
    one = rows["e-1"]
    # Its own announcement came back to it.
    assert table.where(f"type = 'ConfigNewAvailable' AND config_id = '{first}'").count() == 2
    assert (one.config_id, one.announcements, one.pulls, one.reports) == (first, 1, 2, 1)
    assert rows["e-1"].available_at <= rows["e-1"].pulled_at <= rows["e-1"].applied_at
    assert rows["e-1"].time_to_applied_ns > 0
    assert (rows["e-2"].config_id, rows["e-2"].applied_at, rows["e-2"].time_to_applied_ns) == (second, None, None)


def test_the_way_is_told_by_the_first_of_each_step(session):
    schema = StructType(
        [
            StructField("received_at_ns", LongType()),
            StructField("direction", StringType()),
            StructField("type", StringType()),
            StructField("correlation_id", StringType()),
            StructField("app_version_name", StringType()),
            StructField("endpoint_id", StringType()),
            StructField("config_id", StringType()),
            StructField("status_code", IntegerType()),
        ]
    )
    ours = ("a", "e", "v")
    given = [
        (9_000, "in", "ConfigUpdated", "c1", *ours, None),
        (1_000, "in", "ConfigNewAvailable", "c2", *ours, None),
        (2_000, "in", "ConfigResponse", "c3", *ours, 404),
        (4_000, "in", "ConfigResponse", "c4", *ours, 200),
        (3_000, "in", "ConfigNewAvailable", "c5", *ours, None),
        (7_000, "in", "ConfigUpdated", "c6", *ours, None),
        # Of the other role, and by the same id: not what came back.
        (8_000, "in", "ConfigUpdated", "own", *ours, None),
        (8_500, "out", "ConfigNewAvailable", "own", *ours, None),
        # Sent, and not received by any role.
        (8_600, "out", "ConfigUpdated", "lost", *ours, None),
        # Came back, as it did to another who recorded it.
        (2_500, "out", "ConfigNewAvailable", "back", *ours, None),
        (2_600, "in", "ConfigNewAvailable", "back", *ours, None),
        (2_700, "in", "ConfigNewAvailable", "back", *ours, None),
        # An application may use an id for several.
        (5_500, "in", "ConfigNewAvailable", "back", "a", "e", "w", None),
        (5_000, "in", "ConfigUpdated", "c7", "a", "e", "w", None),
        (6_000, "in", "ConfigNewAvailable", "c8", "a", "e", "w", None),
        (1_000, "in", None, "c9", None, None, None, None),
    ]
    rows = {row.config_id: row for row in spark.rollout(session.createDataFrame(given, schema)).collect()}
    assert set(rows) == {"v", "w"}
    one = rows["v"]
    assert (one.announcements, one.pulls, one.reports, one.time_to_applied_ns) == (4, 1, 4, 6_000)
    micros = [getattr(one, f"{name}_at").microsecond for name in ("available", "pulled", "applied")]
    assert micros == [1, 4, 7]
    assert (rows["w"].time_to_applied_ns, rows["w"].pulled_at) == (None, None)


def test_what_a_role_tells_itself_is_counted_once(session, tmp_path):
    url = "memory://spark-once"
    with (
        cdt.Recorder(tmp_path / "tap", servers=url),
        cdt.Target("cdp", servers=url, capture=tmp_path / "target") as target,
        cdt.Source("cmx", target="cdp", servers=url, capture=tmp_path / "source") as source,
    ):
        config_id = target.put("app-1", "e-1", b"{}")
        source.pull("app-1", "e-1")
        source.report_applied("app-1", "e-1", config_id)
        target.receive(timeout_s=10)
        source.receive(timeout_s=10)
    for name in ("tap", "target", "source"):
        decoded = spark.decode(session.read.parquet(str(tmp_path / name)), "cdt")
        [row] = spark.rollout(decoded).collect()
        assert (name, row.announcements, row.pulls, row.reports) == (name, 1, 1, 1)


def test_a_missing_column_is_named(session):
    with pytest.raises(LocalProtocolError, match="status_code"):
        spark.rollout(session.range(1).select(F.lit(1).alias("received_at_ns")))

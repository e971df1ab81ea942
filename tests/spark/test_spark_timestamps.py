"""Times in a session in which TIMESTAMP stands for a time without a zone."""

from __future__ import annotations

import datetime as dt

import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from trunkline import spark
from trunkline._protocols import RECORDED
from trunkline.spark import pandas_udfs


@pytest.fixture
def without_zones(session):
    settings = {"spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.sql.session.timeZone": "America/New_York"}
    before = {name: session.conf.get(name) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    yield session
    for name, value in before.items():
        session.conf.set(name, value)


def times(kind, path=""):
    """The types of the times in a schema, by their names."""
    if isinstance(kind, StructType):
        return {name: each for field in kind for name, each in times(field.dataType, f"{path}.{field.name}").items()}
    if hasattr(kind, "elementType"):
        return times(kind.elementType, path)
    return {path: type(kind)} if isinstance(kind, TimestampType | TimestampNTZType) else {}


def test_a_time_is_an_instant_whatever_a_timestamp_is(without_zones, every_protocol):
    session = without_zones

    def of(protocol):
        return session.read.format("trunkline").option("protocol", protocol).load(str(every_protocol))

    said = pandas_udfs.cdtp("header", "n_frames", tags={"run": "timestamp"})
    tables = [spark.decode(of(protocol.name), protocol.name) for protocol in RECORDED]
    tables += [spark.decode(of("cdtp"), "*"), spark.decode(of("cdtp"), tags={"run": "timestamp"})]
    tables += [of("cdtp").select(spark.from_cdtp("header", tags={"run": "timestamp"}), said)]
    tables += [of("cdt").select(spark.from_cdt(F.get("payload", F.lit(0)), "topic"))]
    tables += [spark.topics(spark.decode(of("mc0"), "mc0")), spark.rollout(spark.decode(of("cdt"), "cdt"))]
    found = [times(table.schema) for table in tables]
    assert sum(map(len, found)) > 12
    assert {each for table in found for each in table.values()} == {TimestampType}


def test_a_time_is_the_same_everywhere(without_zones, every_protocol):
    rows = without_zones.read.format("trunkline").option("protocol", "cdtp").load(str(every_protocol))
    said = rows.select("header", "n_frames", spark.from_cdtp("header", "n_frames").alias("one"))
    both = (
        spark.decode(rows)
        .select(F.unix_micros("timestamp").alias("at"), "timestamp_ns", "timestamp")
        .where("at IS NOT NULL")
    )
    [row] = both.collect()
    assert row.at == row.timestamp_ns // 1000
    assert row.timestamp.astimezone(dt.UTC).timestamp() * 10**6 == row.at
    assert [each.at for each in said.select(F.unix_micros("one.timestamp").alias("at")).collect() if each.at] == [
        row.at
    ]

"""Tables of CDT messages with Avro bodies, by `trunkline capture decode`, `capture export` and `spark decode`."""

from __future__ import annotations

import json

import pyarrow.parquet
import pytest

from peers.recorded import write
from trunkline import cdt

UPDATED = "kaa.v1.events.cdp.endpoint.config.ConfigUpdated"


@pytest.fixture
def recorded(run, tmp_path):
    messages = [
        cdt.ConfigUpdated(
            correlation_id="c", timestamp_ms=1, app_version_name="app-1", endpoint_id=endpoint, config_id="v"
        )
        for endpoint in ("e-1", "e-2")
    ]
    write(tmp_path / "lines", [[cdt.encode(one, codec="avro")] for one in messages], protocol="cdt", topic=UPDATED)
    run("capture", "import", "lines", "--capture", "capture")
    return tmp_path / "capture"


def endpoints(path):
    table = pyarrow.parquet.read_table(path)
    assert set(table.column("error").to_pylist()) == {None}
    return sorted(table.column("endpoint_id").to_pylist())


def test_a_capture_is_decoded_by_the_codec_that_is_said(run, recorded, tmp_path):
    run("capture", "decode", recorded, "avro.parquet", "--codec", "avro")
    assert endpoints(tmp_path / "avro.parquet") == ["e-1", "e-2"]
    run("capture", "decode", recorded, "json.parquet", "--codec", "json")
    table = pyarrow.parquet.read_table(tmp_path / "json.parquet")
    assert table.column("error").to_pylist() == ["bad_json"] * 2
    run("capture", "export", recorded, "avro.jsonl", "--codec", "avro", "--where", "endpoint_id = 'e-2'")
    [row] = map(json.loads, (tmp_path / "avro.jsonl").read_text().splitlines())
    assert (row["type"], row["endpoint_id"], row["config_id"]) == ("ConfigUpdated", "e-2", "v")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spark_decodes_and_selects_by_the_codec_that_is_said(run_in_jvm, recorded, tmp_path):
    condition = ("--where", "endpoint_id = 'e-2'")
    out, _ = run_in_jvm(
        "spark", "decode", recorded, "out", "--protocol", "cdt", "--codec", "avro", *condition, "--json"
    )
    assert json.loads(out)["rows"] == 1
    assert endpoints(tmp_path / "out") == ["e-2"]

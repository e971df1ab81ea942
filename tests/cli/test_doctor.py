"""`trunkline doctor`."""

from __future__ import annotations

import json
from importlib import metadata

import zmq

import trunkline


def test_it_lists_what_there_is(run):
    out, err = run("doctor")
    assert err == ""
    lines = dict(line.split(maxsplit=1) for line in out.splitlines() if not line.startswith("extra "))
    assert trunkline.__version__ in lines["trunkline"]
    assert lines["libzmq"] == zmq.zmq_version()
    assert lines["roles"] == "run over zmtp"
    assert "extra spark" in out
    assert f"pyspark {metadata.version('pyspark')}" in out


def test_each_finding_is_a_line_for_machines(run):
    findings = [json.loads(line) for line in run("doctor", "--json")[0].splitlines()]
    assert {finding["event"] for finding in findings} == {"finding"}
    assert all(finding["state"] in ("ok", "note") for finding in findings)
    names = [finding["name"] for finding in findings]
    assert {"python", "pyzmq", "CURVE", "nats-server", "java", "open files", "clock"} <= set(names)
    # Each extra but `all`, which is the others.
    extras = set(metadata.metadata("trunkline").get_all("Provides-Extra")) - {"all"}
    assert {name.removeprefix("extra ") for name in names if name.startswith("extra ")} == extras


def test_what_is_broken_is_said(run, tmp_path):
    (tmp_path / "bin").mkdir()
    out, _ = run("doctor", env={"JAVA_HOME": str(tmp_path)})
    (line,) = (line for line in out.splitlines() if line.startswith("java"))
    assert "it has no working bin/java" in line

"""`trunkline demo`."""

from __future__ import annotations

import json
import signal

import pytest

from peers.processes import descendants, is_gone
from peers.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_whole_of_it(run, tmp_path):
    (tmp_path / "tmp").mkdir()
    out, _ = run("demo", "--output", "kept[1]", "--json", env={"TMPDIR": str(tmp_path / "tmp")})
    *senders, report = map(json.loads, out.splitlines())
    assert {event["event"] for event in senders} == {"sender"}
    found = {event["sender"]: event for event in senders}
    assert found["Tracker.fast"]["messages"] > 1_000_000
    assert {variant for event in senders for variant in event["variants"]} == {"S", "A", "B", "2"}
    assert sum(event["missing"] or 0 for event in senders) > 0
    malformed = [event["malformed"] for event in senders]
    assert {kind for kinds in malformed for kind in kinds} == {
        "bad_header",
        "bad_protocol",
        "trailing_bytes",
        "truncated",
    }
    assert report["path"] == "kept[1]/trunkline-demo.html"
    assert "Tracker.fast" in (tmp_path / report["path"]).read_text()
    info = json.loads(run("capture", "info", "kept[1]/capture", "--json")[0])
    assert sum(info["errors"].values()) == sum(sum(kinds.values()) for kinds in malformed)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept[1]", "tmp"]


@pytest.mark.parametrize(
    ("when", "number"),
    [("sender processes", signal.SIGTERM), ("recording", signal.SIGINT), ("starting Spark", signal.SIGTERM)],
)
def test_a_signal_cuts_it_off_and_nothing_is_left(start, tmp_path, when, number):
    (tmp_path / "tmp").mkdir()
    command = start("demo", env={"TMPDIR": str(tmp_path / "tmp")})
    if when == "recording":
        until(lambda: list((tmp_path / "tmp").glob("*/trunkline-demo-*/capture")))
    else:
        command.logged(when)
    left = descendants(command.process.pid)
    command.signal(number)
    out, _ = command.end(130)
    assert out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]
    assert list((tmp_path / "tmp").iterdir()) == []
    assert all(map(is_gone, left))


def test_a_place_that_is_taken_is_refused(run, tmp_path):
    (tmp_path / "kept").mkdir()
    _, err = run("demo", "--output", "kept", returncode=1)
    assert "kept" in err.splitlines()[-1]
    assert "choose another name" in err.splitlines()[-1]

"""The table of metrics and the dashboard are made from the counters of the roles, and name nothing else."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tools import alerts, metrics

from trunkline._metrics.collector import metrics_of, role_name

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"\b(?:trunkline|process)_[a-z0-9_]+\b")


def known():
    """What samples are called, of all roles."""
    made = [metrics.ROLE_UP, metrics.LEFT_OUT, *(metric for kind in metrics.kinds() for metric in metrics_of(kind))]
    # Those of a process are the library's.
    process = {"process_resident_memory_bytes", "process_cpu_seconds_total"}
    return {series for metric in made for series in metric.series} | process


@pytest.fixture(scope="module")
def dashboard():
    return json.loads(metrics.DASHBOARD.read_text())


def panels(dashboard):
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", ())


def expressions(dashboard):
    return [target["expr"] for panel in panels(dashboard) for target in panel.get("targets", ())]


def test_the_table_has_every_metric_of_every_role():
    text = metrics.tables()
    listed = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    for kind in metrics.kinds():
        assert f"\n## {role_name(kind)}\n" in text
        for metric in metrics_of(kind):
            assert {metric.name, *metric.series} & listed, metric.name
    assert len(listed) > 170


def test_the_dashboard_is_the_one_that_is_made():
    assert metrics.DASHBOARD.read_text() == metrics.text(), "run make generated"


def test_every_metric_of_a_query_exists(dashboard):
    seen, names = expressions(dashboard), known()
    assert len(seen) > 150
    for expression in seen:
        found = NAME.findall(expression)
        assert found
        assert set(found) <= names, expression


def test_there_is_a_row_for_every_role(dashboard):
    rows = [panel for panel in dashboard["panels"] if panel["type"] == "row"]
    assert [row["title"] for row in rows] == ["All roles", *map(role_name, metrics.kinds())]
    assert all(row["panels"] for row in rows[1:])


def test_every_panel_has_a_place_and_a_number_of_its_own(dashboard):
    numbers = [panel["id"] for panel in panels(dashboard)]
    assert len(numbers) == len(set(numbers)) > 70
    places = [tuple(panel["gridPos"][side] for side in "xywh") for panel in dashboard["panels"]]
    for x, _, width, _ in places:
        assert 0 <= x <= x + width <= 24
    for panel in panels(dashboard):
        assert panel["title"]
        letters = [target["refId"] for target in panel.get("targets", ())]
        assert len(letters) == len(set(letters))


def test_who_looks_chooses_the_source_and_the_instance(dashboard):
    assert [variable["name"] for variable in dashboard["templating"]["list"]] == ["datasource", "job", "instance"]
    assert all('job=~"$job", instance=~"$instance"' in expression for expression in expressions(dashboard))
    for panel in panels(dashboard):
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"


def test_the_pages_name_no_metric_that_is_not_there():
    names = known() | {name.removesuffix("_bucket") for name in known()} | {"trunkline_build_info"}
    seen = 0
    for page in (ROOT / "docs" / "operate.md", ROOT / "docs" / "reference" / "metrics.md"):
        for name in NAME.findall(page.read_text()):
            seen += 1
            assert name in names or name.endswith("_"), name
    assert seen >= 6


def test_the_alerts_are_those_that_are_made():
    assert alerts.RULES.read_text() == alerts.text(), "run make generated"


def test_every_alert_is_about_a_counter_and_says_what_helps():
    (group,) = yaml.safe_load(alerts.RULES.read_text())["groups"]
    assert len(group["rules"]) == len(alerts.ALERTS) + 1
    for rule in group["rules"]:
        found = NAME.findall(rule["expr"])
        assert found, rule["alert"]
        assert set(found) <= known()
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert all(rule["annotations"][part] for part in ("summary", "description"))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_takes_the_alerts():
    subprocess.run(["promtool", "check", "rules", alerts.RULES], check=True)

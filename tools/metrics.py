"""The metrics of all roles: the tables of the documentation, and a dashboard of Grafana, made from the counters.

Run: python tools/metrics.py writes the dashboard anew.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools.options import roles

from trunkline._metrics.collector import HISTOGRAM, LEFT_OUT, ROLE_UP, Metric, metrics_of, role_name
from trunkline._metrics.counters import COUNTER, GAUGE
from trunkline.capture.shipping import Shipment
from trunkline.cli.commands.spark_stream import StreamProgress

# What runs on and is no role.
OTHERS: tuple[type[Any], ...] = (Shipment, StreamProgress)

DASHBOARD = Path(__file__).parents[1] / "docs" / "grafana" / "trunkline.json"

_WHERE = 'job=~"$job", instance=~"$instance"'
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}

# Counters of problems, beside those of dropped messages.
_BAD = {
    "lost",
    "late",
    "failed",
    "errors",
    "expired",
    "rejected",
    "not_found",
    "capture_lost",
    "turned_away",
    "refused",
    "timeouts",
    "retries",
    "reconnects",
    "at_risk",
    "chirp_dropped",
    "duplicate_keys",
}

# Panels in a line of the dashboard, which has 24 columns, and how high one is.
_ACROSS, _HIGH = 3, 8


def kinds() -> list[type[Any]]:
    """The classes of all that has metrics."""
    return [*(role.kind for role in roles()), *OTHERS]


def tables() -> str:
    """All metrics, in Markdown: a table for each role and each command that is none."""
    lines = ["## Of every role", "", *_table([ROLE_UP, LEFT_OUT])]
    for kind in kinds():
        lines += ["", f"## {role_name(kind)}", "", *_table(metrics_of(kind))]
    return "\n".join(lines)


def _table(metrics: Sequence[Metric]) -> Iterator[str]:
    yield from ("| metric | type | labels | meaning |", "|---|---|---|---|")
    for metric in metrics:
        name = metric.name if metric.kind == HISTOGRAM else metric.series[0]
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{name}` | {metric.kind} | {labels} | {metric.help.replace('|', chr(92) + '|')} |"


def dashboard() -> dict[str, Any]:
    """A dashboard: how all roles are, and a row that unfolds for each kind of role."""
    panels: list[dict[str, Any]] = [_row("All roles", 0), *_placed(_overview(), 1)]
    top = 1 + _HIGH
    for kind in kinds():
        row = _row(role_name(kind), top)
        panels.append({**row, "collapsed": True, "panels": _placed(_panels(metrics_of(kind)), top + 1)})
        top += 1
    return {
        "title": "trunkline",
        "uid": "trunkline",
        "tags": ["trunkline"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": list(_variables())},
        "panels": _numbered(panels),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}
    for name, label, where in (("job", "Job", ""), ("instance", "Instance", '{job=~"$job"}')):
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": f"label_values({ROLE_UP.name}{where}, {name})", "refId": name},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
            "hide": 0,
        }


def _overview() -> Iterator[dict[str, Any]]:
    up = [(f"{ROLE_UP.name}{{{_WHERE}}}", "{{role}} {{instance}}")]
    yield {
        **_panel("Serving", up, "short"),
        "type": "stat",
        "options": {"colorMode": "background", "graphMode": "none", "reduceOptions": {"calcs": ["lastNotNull"]}},
        "fieldConfig": {
            "defaults": {
                "mappings": [
                    {
                        "type": "value",
                        "options": {
                            "0": {"text": "no", "color": "red", "index": 0},
                            "1": {"text": "yes", "color": "green", "index": 1},
                        },
                    }
                ]
            },
            "overrides": [],
        },
    }
    of = "{{instance}}"
    yield _panel("Memory", [(f"process_resident_memory_bytes{{{_WHERE}}}", of)], "bytes")
    yield _panel("Processor", [(f"rate(process_cpu_seconds_total{{{_WHERE}}}[$__rate_interval])", of)], "percentunit")


def _panels(metrics: Sequence[Metric]) -> Iterator[dict[str, Any]]:
    """The panels of a role: what passes, what is there now, what went wrong, how long it takes, and who is busy."""
    own = [metric for metric in metrics if metric.part is None]
    counters = [metric for metric in own if metric.kind == COUNTER]
    passing = [metric for metric in counters if not metric.labels and metric.field not in _BAD]
    for title, unit, shown in (("A second", "", "short"), ("Bytes a second", "bytes", "Bps")):
        rates = [(_rate(metric), _legend(metric)) for metric in passing if metric.unit == unit]
        if rates:
            yield _panel(title, rates, shown)
    for title, unit, shown in (("Now", "", "short"), ("Bytes now", "bytes", "bytes")):
        levels = [metric for metric in own if metric.kind == GAUGE and metric.unit == unit]
        if levels:
            yield _panel(title, [(f"{metric.series[0]}{{{_WHERE}}}", _legend(metric)) for metric in levels], shown)
    bad = [(_rate(metric), _legend(metric)) for metric in counters if metric.labels or metric.field in _BAD]
    if bad:
        yield _panel("Dropped and lost, a second", bad, "short")
    for metric in own:
        if metric.kind == HISTOGRAM:
            yield _panel(
                "Latency", [(_quantile(metric, at), f"{at:.0%} {{{{instance}}}}") for at in (0.5, 0.9, 0.99)], "s"
            )
    for _, rows in groupby((metric for metric in metrics if metric.part is not None), key=lambda metric: metric.field):
        busy = next(metric for metric in rows if metric.kind == COUNTER)
        title = f"Busiest {busy.field}: {busy.part} a second".replace("in_", "in")
        yield _panel(
            title, [(f"topk(10, {_rate(busy)})", " ".join(f"{{{{{label}}}}}" for label in busy.labels))], "short"
        )


def _rate(metric: Metric) -> str:
    return f"rate({metric.series[0]}{{{_WHERE}}}[$__rate_interval])"


def _quantile(metric: Metric, at: float) -> str:
    return f"histogram_quantile({at}, sum by (le, instance) ({_rate(metric)}))"


def _legend(metric: Metric) -> str:
    labels = "".join(f" {{{{{label}}}}}" for label in metric.labels)
    return f"{metric.field.replace('_', ' ')}{labels} {{{{instance}}}}"


def _panel(title: str, queries: Sequence[tuple[str, str]], unit: str) -> dict[str, Any]:
    targets = [
        {"refId": _ref(at), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
        for at, (expression, legend) in enumerate(queries)
    ]
    return {
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
    }


def _ref(at: int) -> str:
    """The letter of a query: A to Z, then AA."""
    return (_ref(at // 26 - 1) if at >= 26 else "") + chr(ord("A") + at % 26)


def _row(title: str, top: int) -> dict[str, Any]:
    return {
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": {"h": 1, "w": 24, "x": 0, "y": top},
        "panels": [],
    }


def _placed(panels: Iterator[dict[str, Any]], top: int) -> list[dict[str, Any]]:
    width = 24 // _ACROSS
    return [
        {**panel, "gridPos": {"h": _HIGH, "w": width, "x": at % _ACROSS * width, "y": top + at // _ACROSS * _HIGH}}
        for at, panel in enumerate(panels)
    ]


def _numbered(panels: Sequence[dict[str, Any]], first: int = 1) -> list[dict[str, Any]]:
    numbered = []
    for panel in panels:
        inner = _numbered(panel.get("panels", ()), first + 1)
        numbered.append({"id": first, **panel, **({"panels": inner} if "panels" in panel else {})})
        first += 1 + len(inner)
    return numbered


def text() -> str:
    """The file of the dashboard."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    DASHBOARD.parent.mkdir(exist_ok=True)
    DASHBOARD.write_text(text())

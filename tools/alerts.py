"""Alert rules for Prometheus, of the counters of the roles.

Run: python tools/alerts.py writes them anew.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools.metrics import kinds

from trunkline._metrics.collector import ROLE_UP, metrics_of
from trunkline.options import DEFAULTS

RULES = Path(__file__).parents[1] / "docs" / "grafana" / "alerts.yml"


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule.

    Attributes:
        name: What it is called.
        counter: The name of the counters in `stats` that it is about, as of any role that has one.
        condition: What a series must come to, with the series in place of ``{}``.
        lasts: How long, as Prometheus writes it.
        severity: How bad that is: `critical` where data is lost or a role does not serve, else `warning`.
        summary: What has happened, in one sentence.
        action: What helps.
    """

    name: str
    counter: str
    condition: str
    lasts: str
    severity: str
    summary: str
    action: str


ALERTS = (
    Alert(
        "TrunklineRowsLost",
        "capture_lost",
        "increase({}[5m]) > 0",
        "0m",
        "critical",
        "A capture has lost rows: it could not keep up, or failed.",
        "Look at the disk and the log of the role; capture_overflow='block' slows senders down instead.",
    ),
    Alert(
        "TrunklineDeletedUnshipped",
        "deleted_unshipped",
        "increase({}[1h]) > 0",
        "0m",
        "critical",
        "Retention has deleted segments that were not shipped.",
        "Look at trunkline capture ship; raise keep_bytes or keep_days until it has caught up.",
    ),
    Alert(
        "TrunklineDiskLow",
        "free_bytes",
        f"{{}} < {DEFAULTS['warn_free_bytes']}",
        "5m",
        "warning",
        "The disk of a capture has less than 10 GiB left.",
        "Free some space, ship and delete segments, or set keep_bytes.",
    ),
    Alert(
        "TrunklineMessagesMissed",
        "sender_missed",
        "increase({}[5m]) > 0",
        "0m",
        "critical",
        "Sequence numbers of a sender were skipped.",
        "trunkline capture runs says which; look at the sender's queue and at_risk.",
    ),
    Alert(
        "TrunklineMessagesAtRisk",
        "at_risk",
        "increase({}[5m]) > 0",
        "0m",
        "warning",
        "A receiver left while messages were on their way to it.",
        "Compare with what the receiver has; see the guarantees of CDTP.",
    ),
    Alert(
        "TrunklineDropping",
        "dropped",
        "rate({}[5m]) > 0",
        "10m",
        "warning",
        "Messages have been dropped for ten minutes.",
        "The label kind says why; the log of the role names the peer, the frame and the offset.",
    ),
    Alert(
        "TrunklineBacklog",
        "queued",
        "min_over_time({}[10m]) > 0",
        "10m",
        "warning",
        "Messages have waited for ten minutes without a pause.",
        "The reader is too slow, or gone: look at its process and its connection.",
    ),
    Alert(
        "TrunklineTurnedAway",
        "turned_away",
        "increase({}[5m]) > 0",
        "5m",
        "warning",
        "Connections are closed at once, as there are too many.",
        "Raise max_connections, or look for the host that makes them.",
    ),
    Alert(
        "TrunklineRefused",
        "refused",
        "increase({}[5m]) > 0",
        "5m",
        "warning",
        "CURVE clients are refused.",
        "A key is missing from the allow-list, or a stranger tries: the log names its address.",
    ),
)


def series(counter: str) -> list[str]:
    """The series of a counter, of all roles that have it."""
    return [metric.series[0] for kind in kinds() for metric in metrics_of(kind) if _is(metric.series[0], counter)]


def _is(name: str, counter: str) -> bool:
    # After the role's name: trunkline_cdtp_receiver_dropped_total.
    return "_".join(name.removesuffix("_total").split("_")[3:]) == counter


def text() -> str:
    """The file of the rules."""
    return "\n".join(["# Written by tools/alerts.py.", "groups:", "- name: trunkline", "  rules:", *_rules(), ""])


def _rules() -> Iterator[str]:
    up = f"{ROLE_UP.series[0]} == 0"
    yield from _rule(
        "TrunklineRoleDown",
        up,
        "1m",
        "critical",
        "A role does not serve.",
        "Ask /healthz for its state, and look at its log.",
    )
    for alert in ALERTS:
        expression = " or ".join(alert.condition.format(name) for name in series(alert.counter))
        yield from _rule(alert.name, expression, alert.lasts, alert.severity, alert.summary, alert.action)


def _rule(name: str, expression: str, lasts: str, severity: str, summary: str, action: str) -> Iterator[str]:
    # JSON's strings are strings of YAML.
    yield f"  - alert: {name}"
    yield f"    expr: {json.dumps(expression)}"
    yield f"    for: {lasts}"
    yield f"    labels: {{severity: {severity}}}"
    yield "    annotations:"
    yield f"      summary: {json.dumps(summary + ' {{ $labels.job }} at {{ $labels.instance }}')}"
    yield f"      description: {json.dumps(action)}"


if __name__ == "__main__":
    RULES.write_text(text())

"""The plot of runs over time, a row per sender."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trunkline._conditions import IN_PROGRESS, condition_text, is_bad
from trunkline._text import moment, readable, span
from trunkline.report.clock import seconds, ticks
from trunkline.report.model import BUCKETS, Clock
from trunkline.report.scales import Scale
from trunkline.report.svg import Canvas, beside, cut

if TYPE_CHECKING:
    from trunkline.report.cdtp_runs import RunBar

__all__ = ["Timeline"]

# The least width of a visible bar.
_LEAST = 1.2


@dataclass(frozen=True, slots=True)
class Timeline:
    """A bar per run from its first message to its last, a row per sender.

    Attributes:
        runs: The runs; those that come first cover the others.
        clock: The time buckets.
    """

    runs: Sequence[RunBar]
    senders: Sequence[str]
    clock: Clock

    def draw(self, label: str) -> str:
        """The plot."""
        names = [cut(readable(sender)) for sender in self.senders]
        canvas = Canvas(max(115, 58 + 21.6 * len(names)), left=beside(names))
        across = Scale(0, BUCKETS * self.clock.bucket_ns / 1e9, canvas.left, canvas.right)
        canvas.across(across, *ticks(self.clock))
        middles = dict(zip(self.senders, canvas.rows(names), strict=True))
        each = (canvas.bottom - canvas.top) / len(names)
        # Bad runs are drawn last, so that good ones do not hide them.
        for run in reversed(self.runs):
            tone = "bad" if is_bad(run.condition) else "open" if run.condition == IN_PROGRESS else "good"
            begin, end = (across(seconds(self.clock, at)) for at in (run.first_received_at_ns, run.last_received_at_ns))
            height = (0.8 if tone == "bad" else 0.5) * each
            canvas.bar(
                begin,
                middles[run.sender] - height / 2,
                max(end - begin, _LEAST),
                height,
                tone,
                # Distinguishes consecutive runs.
                opacity=1 if run.ordinal % 2 else 0.6,
                tip=_words(run),
            )
        return canvas.svg(label)


def _words(run: RunBar) -> str:
    name = f"{readable(run.sender)}, run {run.ordinal:,}" + (f" ({readable(run.run_id)})" if run.run_id else "")
    took = span(run.last_received_at_ns - run.first_received_at_ns)
    return f"{name}: {condition_text(run.condition, ', ')}, from {moment(run.first_received_at_ns)}, {took}"

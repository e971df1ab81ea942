"""The plot of runs over time, a row a sender."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl

from trunkline._text import moment, readable, span
from trunkline.report.clock import seconds, time_axis
from trunkline.report.model import BUCKETS, Clock
from trunkline.report.plots import BAD, GOOD, INK, STYLE, Tips, cut, plot, svg

if TYPE_CHECKING:
    from trunkline.report.cdtp_runs import RunBar

__all__ = ["timeline"]

# The least width of a bar, as a share of all, that it is seen at all.
_LEAST = 1 / 300


def timeline(runs: Sequence[RunBar], senders: Sequence[str], clock: Clock) -> str | None:
    """A bar a run from its first message to its last, a row for each of `senders` that has any."""
    spoken = {run.sender for run in runs}
    rows = {sender: row for row, sender in enumerate(sender for sender in senders if sender in spoken)}
    if not rows:
        return None
    least = BUCKETS * clock.bucket_ns / 1e9 * _LEAST
    size = (6.4, max(1.6, 0.8 + 0.3 * len(rows)))
    with mpl.rc_context({**STYLE, "axes.grid": False, "figure.figsize": size}):
        figure, axes = plot()
        tips = Tips()
        # A bad run that is among good ones is not to be hidden by them.
        for run in reversed(runs):
            is_good = run.condition == "GOOD"
            begin, end = (seconds(clock, at) for at in (run.first_received_at_ns, run.last_received_at_ns))
            (bar,) = axes.barh(
                rows[run.sender],
                max(end - begin, least),
                left=begin,
                height=0.5 if is_good else 0.8,
                color=GOOD if is_good else BAD,
                # Runs that follow each other are to be told apart.
                alpha=1 if run.ordinal % 2 else 0.6,
            )
            tips.add(bar, _words(run))
        axes.set_yticks(range(len(rows)), [cut(readable(sender)) for sender in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.tick_params(axis="y", labelcolor=INK)
        time_axis(axes, clock)
        return svg(figure, "Runs over time, one row for each sender", tips=tips)


def _words(run: RunBar) -> str:
    name = f"{readable(run.sender)}, run {run.ordinal:,}" + (f" ({readable(run.run_id)})" if run.run_id else "")
    took = span(run.last_received_at_ns - run.first_received_at_ns)
    return f"{name}: {run.condition.replace('|', ', ')}, from {moment(run.first_received_at_ns)}, {took}"

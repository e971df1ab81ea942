"""The time axis of plots, in UTC."""

from __future__ import annotations

from trunkline._text import moment
from trunkline.report.model import BUCKETS, Clock

__all__ = ["seconds", "ticks"]

_SECOND = 10**9
_DAY = 86_400 * _SECOND

# The distances of marks, in nanoseconds, such that they are at round times.
_FINE = [digit * 10**power for power in range(9) for digit in (1, 2, 5)]
_COARSE = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200]
_STEPS = [*_FINE, *(step * _SECOND for step in _COARSE)]


def seconds(clock: Clock, at_ns: int) -> float:
    """The position of a time on the axis."""
    return (at_ns - clock.first_ns) / 1e9


def ticks(clock: Clock) -> tuple[list[tuple[float, str]], str]:
    """The marks of an axis, in seconds, and its title: the time of day, or the date for a long span."""
    first, length = clock.first_ns, BUCKETS * clock.bucket_ns
    last = first + length
    is_one_day = first // _DAY == last // _DAY
    # Long labels need room.
    most = 4 if length < _SECOND else 6 if is_one_day else 5
    step = next((step for step in _STEPS if length <= most * step), None) or -(-length // (most * _DAY)) * _DAY
    marks = range(-(-first // step) * step, last + 1, step)
    dates = [moment(first)[:10]] if is_one_day else [moment(first)[:10], moment(last)[:10]]
    labels = [(seconds(clock, at), _label(at, step, dated=not is_one_day)) for at in marks]
    return labels, f"UTC, {' to '.join(dates)}"


def _label(at_ns: int, step_ns: int, *, dated: bool) -> str:
    """A time with the precision of the marks."""
    date, time = moment(at_ns).split(" ")
    if step_ns >= _DAY:
        return date
    if step_ns < _SECOND:
        # The fewest decimals that distinguish two marks.
        decimals = len(f"{step_ns / _SECOND:.9f}".rstrip("0").partition(".")[2])
        return f"{time[:8]}.{at_ns % _SECOND:09}"[: 9 + decimals]
    if dated:
        return f"{date[5:]} {time[:5]}"
    return time[:8] if step_ns < 60 * _SECOND else time[:5]

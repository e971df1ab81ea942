"""Axes: the positions of values, and marks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Scale", "decades", "steps", "symlog"]


# Steps that are smaller have too few digits.
_LEAST = 1e-300


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from one value to another.

    Attributes:
        low: The first value.
        high: The last one.
        start: The position of the first value.
        end: The position of the last one.
        bend: The function of a value that is linear along the axis: `math.log10` for a logarithmic one.
    """

    low: float
    high: float
    start: float
    end: float
    bend: Callable[[float], float] = float

    def __call__(self, value: float) -> float:
        """The position of a value."""
        low, high = self.bend(self.low), self.bend(self.high)
        # Halves: the range of doubles is larger than the largest double.
        part = (self.bend(value) / 2 - low / 2) / ((high / 2 - low / 2) or 1)
        return self.start + part * (self.end - self.start)


def symlog(value: float) -> float:
    """For counts that may be 0: linear up to 1, logarithmic from there."""
    return value if value <= 1 else 1 + math.log10(value)


def steps(low: float, high: float, most: int = 5, *, whole: bool = False) -> list[float]:
    """Round values in a range at equal distances, at most `most`; only integers with `whole`.

    ```pycon
    >>> steps(0, 7), steps(0, 2, whole=True), steps(0, 0.3)
    ([0.0, 2.0, 4.0, 6.0], [0.0, 1.0, 2.0], [0.0, 0.1, 0.2, 0.3])
    >>> steps(-1.7e308, 1.7e308), steps(0, 5e-324)
    ([-1e+308, 0.0, 1e+308], [0, 5e-324])

    ```
    """
    if high <= low:
        return [low]
    each = high / most - low / most
    if each < _LEAST:
        return [low, high]
    power = math.floor(math.log10(each))
    sizes = (digit * 10.0**exponent for exponent in (power, power + 1) for digit in (1, 2, 5))
    step = next((size for size in sizes if high / size - low / size <= most and (size >= 1 or not whole)), 1)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{count * step:.12g}") for count in range(first, last + 1)]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten in a range of positive values; with 2 and 5 of each if there are few.

    ```pycon
    >>> decades(3, 4000), decades(3, 30), decades(1.1, 1.3)
    ([10.0, 100.0, 1000.0], [5.0, 10.0, 20.0], [1.1, 1.15, 1.2, 1.25, 1.3])

    ```
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    leading = (1,) if high > 100 * low else (1, 2, 5)
    found = [digit * 10.0**power for power in powers for digit in leading if low <= digit * 10.0**power <= high]
    return found if len(found) > 1 else steps(low, high)

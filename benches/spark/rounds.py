"""Queries of Spark that are run in turn, with the CPU of the JVM and of its Python workers."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benches.measure import RESULTS
from benches.spark.processes import below, stat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Round:
    """What one run of a case took.

    Attributes:
        wall_s: Seconds.
        jvm_us: CPU microseconds a row of the JVM.
        python_us: The same of all its Python workers.
    """

    wall_s: float
    jvm_us: float
    python_us: float

    @property
    def cpu_us(self) -> float:
        """Both together."""
        return self.jvm_us + self.python_us


class Rounds(dict[str, list[Round]]):
    """The rounds of each case."""

    def median(self, name: str, field: str) -> float:
        """The median of a field of a case."""
        return statistics.median(getattr(each, field) for each in self[name])

    def ratio(self, of: str, to: str) -> float:
        """The CPU of a case to that of another."""
        return self.median(of, "cpu_us") / self.median(to, "cpu_us")

    def write(self, name: str, lines: Sequence[str], head: str) -> None:
        """Writes the page of a bench, and its rounds as JSON."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{name}.md").write_text("\n".join(lines))
        data = {case: [vars(each) for each in rounds] for case, rounds in self.items()}
        (RESULTS / f"{name}.json").write_text(json.dumps({"machine": head, "cases": data}, indent=1) + "\n")
        print("\n".join(lines))


def in_turn(plans: Mapping[str, DataFrame], jvm: int, rows: int, rounds: int, warm: int) -> Rounds:
    """Runs all plans one after the other, so many times after `warm` to warm up."""
    for plan in [*plans.values()] * warm:
        measure(plan, jvm, rows)
    measured = Rounds((name, []) for name in plans)
    for _ in range(rounds):
        for name, plan in plans.items():
            measured[name].append(measure(plan, jvm, rows))
    return measured


def cpu_s(jvm: int) -> tuple[float, float]:
    """CPU seconds until now: of the JVM, and of all the processes below it."""
    # Those that have ended count for the one that they ended under.
    used = [sum(map(int, stat(process)[11:15])) for process in below(jvm)]
    ticks = os.sysconf("SC_CLK_TCK")
    return sum(map(int, stat(jvm)[11:13])) / ticks, sum(used) / ticks


def measure(plan: DataFrame, jvm: int, rows: int) -> Round:
    """Runs a plan into nothing."""
    before, start = cpu_s(jvm), time.perf_counter()
    plan.write.format("noop").mode("overwrite").save()
    wall = time.perf_counter() - start
    after = cpu_s(jvm)
    return Round(wall, *((late - early) / rows * 1e6 for early, late in zip(before, after, strict=True)))

"""Roles that run until a signal ends them."""

from __future__ import annotations

import concurrent.futures
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from trunkline import errors
from trunkline.cli.process.signals import Stopping
from trunkline.cli.process.waiting import Pace
from trunkline.cli.terminal.output import Output, Reason
from trunkline.cli.terminal.panel import watching
from trunkline.cli.terminal.stderr import note

__all__ = ["Counting", "Service", "began", "draining", "recorded", "run", "serving"]

# How long the end of a role may take before a terminal shows a note.
_SILENT_S = 0.5


class Counting(Protocol):
    """Something long-running that is no role, with counters."""

    @property
    def stats(self) -> Any:
        """Its counters."""


class Service(Protocol):
    """A role that runs by itself."""

    @property
    def endpoints(self) -> Sequence[str]:
        """Where it listens."""

    @property
    def stats(self) -> Any:
        """Its counters."""

    @property
    def metrics_url(self) -> str | None:
        """Where its metrics are."""

    def wait(self, *, timeout_s: float | None = None) -> None:
        """Waits until it is closed."""

    def close(self, *, drain_s: float = ...) -> None:
        """Ends it."""


def run(
    role: Service,
    stopping: Stopping,
    output: Output,
    *,
    name: str,
    doing: str,
    stats_interval: float | None,
    drain_s: float,
    capture: Path | None = None,
    data_endpoints: Sequence[str] = (),
) -> None:
    """Reports that a role is ready, reports its counters at intervals, and ends it at the first signal."""
    output.ready(name, role.endpoints, doing, data_endpoints=data_endpoints, metrics_url=role.metrics_url)
    pace = Pace(stopping, lambda: output.stats(role.stats), stats_interval)
    where = f"{name.partition('.')[0]} {doing} {' '.join(role.endpoints)}"
    with watching(output, lambda: role.stats, doing=where, capture=capture):
        while not pace.stopped and not _is_over(role, pace.wait_s()):
            pace.look_up()
    with draining(drain_s):
        role.close(drain_s=drain_s)
    output.stopped("signal", role.stats)


@contextmanager
def serving(what: Counting, state: Callable[[], str], at: str | None) -> Iterator[str | None]:
    """Serves metrics while the body runs, and gives the URL; None without `at`.

    Args:
        what: What has the counters; its class has a `metrics_name`.
        state: Returns its state, as that of a role.
        at: Where to serve: HOST:PORT.
    """
    if at is None:
        yield None
        return
    from trunkline._metrics.exposition import served

    scrapes = served(type(what), lambda: what.stats, state, at)
    try:
        yield scrapes.url
    finally:
        scrapes.close()


@contextmanager
def draining(drain_s: float) -> Iterator[None]:
    """Shows a note on a terminal if the end of a role takes long."""
    if not sys.stderr.isatty():
        yield
        return
    text = f"finishing what has arrived, at most {drain_s:g} s; Ctrl-C again ends at once"
    timer = threading.Timer(_SILENT_S, note, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        # Its note comes before the last line.
        timer.join()


def began(begin: Callable[[], object], close: Callable[[], object], pace: Pace) -> bool:
    """Begins a role, which may wait for its peer; returns false if a signal came first.

    Args:
        begin: Begins it, in a thread of its own.
        close: Closes the role, which interrupts `begin`.
        pace: Knows whether a signal has come.
    """
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        beginning = threads.submit(begin)
        while not pace.stopped and not beginning.done():
            concurrent.futures.wait([beginning], pace.wait_s())
        if pace.stopped:
            close()
        try:
            beginning.result()
        except errors.ClosedError:
            if not pace.stopped:
                raise
    return not pace.stopped


def recorded(wait: Callable[..., Reason], received: Callable[[], int], pace: Pace) -> Reason:
    """Waits until a recorder has reached its limit, was idle for too long, or a signal comes.

    Args:
        wait: Waits for the limit, at most for `timeout_s`.
        received: Returns how many messages have come so far.
        pace: Decides when to wake up.
    """
    while not pace.stopped:
        try:
            return wait(timeout_s=pace.wait_s())
        except errors.TimeoutError:
            pace.saw_progress(received())
        if pace.idle:
            return "idle"
        pace.look_up()
    return "signal"


def _is_over(role: Service, timeout_s: float) -> bool:
    try:
        role.wait(timeout_s=timeout_s)
    except errors.TimeoutError:
        return False
    return True

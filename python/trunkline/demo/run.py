"""The demo: each step of the workflow."""

from __future__ import annotations

import importlib
import logging
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from trunkline import cdtp
from trunkline._text import amount, counted, were
from trunkline.cli.process.atomic import whole
from trunkline.cli.process.spark import spark_session, watched
from trunkline.cli.terminal.output import Output
from trunkline.cli.terminal.progress import Progress
from trunkline.demo.traffic import LAYOUT, PLAYERS, Player, Tally
from trunkline.errors import TrunklineError
from trunkline.spark import CdtpSection
from trunkline.spark._missing import needs_extra

if TYPE_CHECKING:
    from trunkline.spark import Report

__all__ = ["DemoError", "run"]

_LOOK_S = 0.2
_PAGE = "trunkline-demo.html"
# The columns that a narrow terminal leaves out, the least important first.
_LEAST = ("header", "last (UTC)", "first (UTC)", "malformed", "per second", "bytes")


class DemoError(TrunklineError):
    """The demo did not find what it had sent."""


def run(keep: Path | None, output: Output) -> None:
    """Runs the demo.

    Args:
        keep: Where capture and report are to stay; if None, the report goes into the working directory.
        output: Where results go.
    """
    _need_spark()
    began = time.monotonic()
    with _folder(keep) as folder:
        capture = folder / "capture"
        output.note(f"{len(PLAYERS)} sender processes, {sum(player.messages for player in PLAYERS):,} messages or more")
        sent = _record(capture, output)
        output.note("starting Spark")
        # Java's second compiler takes longer than this JVM lives.
        os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
        page = (folder if keep is not None else Path.cwd()) / _PAGE
        with spark_session("trunkline demo") as session, watched(session, "Spark is decoding and counting (tasks)"):
            found = _report(capture, page)
    _verify(sent, found)
    _show(found, page if keep is None else keep / page.name, time.monotonic() - began, output)
    if not output.json:
        for line in _next_steps(keep):
            output.line(line)


@needs_extra
def _need_spark() -> None:
    """Checks for missing packages before a million messages are recorded."""
    for package in ("pyspark", "pyarrow", "pandas"):
        importlib.import_module(package)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """The directory of capture and report: `keep` if the demo completes, else a temporary one."""
    if keep is not None:
        with whole(keep) as part:
            part.mkdir(parents=True)
            yield part
        return
    folder = Path(tempfile.mkdtemp(prefix="trunkline-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _record(capture: Path, output: Output) -> Tally:
    """Records the messages of the players; returns their counts."""
    with _players() as players:
        endpoints = [_line(player, process) for player, process in players]
        # Messages are damaged on purpose: no log about them.
        logging.getLogger("trunkline.cdtp").setLevel(logging.ERROR)
        with cdtp.Recorder(capture, connect=endpoints) as recorder:
            began = time.monotonic()
            for _, process in players:
                _pipe(process.stdin).write("begin\n")
                _pipe(process.stdin).flush()
            sent = Tally()
            waiting = {_pipe(process.stdout): at for at, (_, process) in enumerate(players)}
            with Progress("recording", sum(player.messages for player in PLAYERS)) as progress:
                while waiting:
                    ready, _, _ = select.select(list(waiting), [], [], _LOOK_S)
                    for pipe in ready:
                        at = waiting.pop(pipe)
                        sent.add(Tally.from_json(_line(*players[at])))
                    progress.at(recorder.stats.recorded)
            recorder.wait(count=sent.wire, timeout_s=30)
            took = time.monotonic() - began
        stats = recorder.stats
    output.note(
        f"recorded {counted(stats.recorded, 'message')}, {amount(stats.bytes)}, {stats.recorded / took:,.0f} a second"
    )
    if stats.durable != sent.wire:
        message = f"{were(sent.wire, 'message')} sent, but {stats.durable:,} on disk"
        raise DemoError(message)
    return sent


@contextmanager
def _players() -> Iterator[list[tuple[Player, subprocess.Popen[str]]]]:
    players: list[tuple[Player, subprocess.Popen[str]]] = []
    try:
        for player in PLAYERS:
            command = [sys.executable, "-m", "trunkline.demo.player", player.name]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
            players.append((player, process))
        yield players
    finally:
        for _, process in players:
            process.kill()
            process.communicate()


def _line(player: Player, process: subprocess.Popen[str]) -> str:
    line = _pipe(process.stdout).readline().strip()
    if not line:
        message = f"the sender {player.name!r} exited with {process.wait()}"
        raise DemoError(message)
    return line


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _report(capture: Path, page: Path) -> Report:
    from trunkline import spark

    with whole(page) as part:
        return spark.report(capture, part, name="the demo", payload=LAYOUT)


def _verify(sent: Tally, found: Report) -> None:
    """Compares sent messages with those that Spark found."""
    senders = found.section(CdtpSection).senders
    named = {sender.sender: sender for sender in senders if sender.sender is not None}
    seen = Tally(
        wire=found.rows,
        messages=Counter({name: sender.messages for name, sender in named.items()}),
        missing=Counter({name: sender.missing for name, sender in named.items() if sender.missing}),
        malformed=sum((Counter(sender.malformed) for sender in senders), Counter()),
    )
    if seen != sent:
        message = f"sent {sent}, but found {seen}: this is a bug in trunkline"
        raise DemoError(message)


def _show(found: Report, page: Path, took_s: float, output: Output) -> None:
    if output.json:
        for sender in found.section(CdtpSection).senders:
            output.event("sender", **{name: getattr(sender, name) for name in sender.__dataclass_fields__})
        output.event("report", path=str(page), seconds=round(took_s, 1))
        return
    from trunkline.report.payloads import table as fields_of

    output.line("")
    for table in found.section(CdtpSection).tables():
        output.table(table.titles, table.cells, _LEAST)
    output.line("")
    output.line(f"The payloads of the layout {LAYOUT}")
    payloads = fields_of(found.payloads or ())
    output.table(payloads.titles, payloads.cells, ("malformed",))
    output.line("")
    output.line(f"All {found.rows:,} messages sent were found, in {took_s:.0f} s.")
    output.line(f"Plots: {page}")
    output.line("")


def _next_steps(keep: Path | None) -> list[str]:
    if keep is None:
        return [
            "Next: keep the capture and inspect it",
            "  trunkline demo --output demo",
            "  trunkline capture info demo/capture",
            "or record your own senders",
            "  trunkline cdtp record --capture run1 --connect tcp://HOST:PORT",
        ]
    capture = keep / "capture"
    return [
        "Next: inspect the capture, replay it, make a table of it",
        f"  trunkline capture cat {capture} --limit 5",
        f"  trunkline capture replay {capture} --bind tcp://127.0.0.1:23999",
        f"  trunkline spark decode {capture} messages --protocol cdtp --tags run=bigint --payload '{LAYOUT}'",
    ]

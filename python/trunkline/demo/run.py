"""The demo: every part of the main job, one after another."""

from __future__ import annotations

import logging
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from trunkline import cdtp
from trunkline.cli.output import Output, amount
from trunkline.cli.progress import Progress
from trunkline.cli.sparking import spark_session, watched
from trunkline.cli.whole import whole
from trunkline.demo import table
from trunkline.demo.traffic import PLAYERS, Player, Tally
from trunkline.errors import TrunklineError

__all__ = ["DemoError", "run"]

_LOOK_S = 0.2
_REPORT = "trunkline-demo.html"


class DemoError(TrunklineError):
    """The demo did not find what it had sent."""


def run(keep: Path | None, output: Output) -> None:
    """Runs the demo.

    Args:
        keep: Where capture and report are to stay; if None, the report goes into the working directory.
        output: Where results go.
    """
    began = time.monotonic()
    with _folder(keep) as folder:
        capture = folder / "capture"
        output.note(
            f"{len(PLAYERS)} sender processes, {sum(player.messages for player in PLAYERS):,} messages and more"
        )
        sent = _record(capture, output)
        output.note("Spark starts")
        with spark_session("trunkline demo") as session:
            with watched(session, "Spark decodes (tasks)"):
                found = table.read(session, capture)
            _verify(sent, found)
            table.show(found, output)
            with watched(session, "Spark reports (tasks)"):
                report = _report(capture, folder if keep is not None else Path.cwd())
    where = report if keep is None else keep / report.name
    if output.json:
        output.event("report", path=str(where), seconds=round(time.monotonic() - began, 1))
        return
    output.line(f"Everything that was sent has been found, in {time.monotonic() - began:.0f} s. The report: {where}")
    output.line("")
    for line in _next_steps(keep):
        output.line(line)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Where capture and report are made: for good if the demo comes to its end, or for the time being."""
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


def _record(capture: Path, output: Output) -> dict[str, Tally]:
    """Records what the players send; gives what each endpoint has sent."""
    with _players() as players:
        endpoints = [_line(player, process) for player, process in players]
        # What is damaged here is damaged on purpose; a line about each kind would only alarm.
        logging.getLogger("trunkline.cdtp").setLevel(logging.ERROR)
        with cdtp.Recorder(capture, connect=endpoints) as recorder:
            began = time.monotonic()
            for _, process in players:
                _pipe(process.stdin).write("begin\n")
                _pipe(process.stdin).flush()
            tallies: dict[str, Tally] = {}
            waiting = {_pipe(process.stdout): at for at, (_, process) in enumerate(players)}
            with Progress("recording", sum(player.messages for player in PLAYERS)) as progress:
                while waiting:
                    ready, _, _ = select.select(list(waiting), [], [], _LOOK_S)
                    for pipe in ready:
                        at = waiting.pop(pipe)
                        tallies[endpoints[at]] = Tally.from_json(_line(*players[at]))
                    progress.at(recorder.stats.recorded)
            total = sum(tally.wire for tally in tallies.values())
            recorder.wait(count=total, timeout_s=30)
            took = time.monotonic() - began
        stats = recorder.stats
    output.note(f"recorded {stats.recorded:,} messages, {amount(stats.bytes)}, {stats.recorded / took:,.0f} a second")
    if stats.durable != total:
        message = f"{total} messages were sent and {stats.durable} are on disk"
        raise DemoError(message)
    return tallies


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
        message = f"the sender {player.name!r} has ended with {process.wait()}"
        raise DemoError(message)
    return line


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _verify(sent: dict[str, Tally], found: Sequence[table.Line]) -> None:
    """Compares what each endpoint has sent with what Spark has found."""
    for endpoint, tally in sent.items():
        lines = [line for line in found if line.endpoint == endpoint]
        seen = Tally(
            wire=tally.wire,
            messages=Counter({line.sender: line.messages for line in lines if line.sender is not None}),
            missing=Counter({line.sender: line.missing for line in lines if line.sender is not None and line.missing}),
            malformed=sum((Counter(line.malformed) for line in lines), Counter()),
        )
        if seen != tally:
            message = f"{endpoint} has sent {tally}, and {seen} was found: this is a bug in trunkline"
            raise DemoError(message)


def _report(capture: Path, folder: Path) -> Path:
    from trunkline import spark

    report = folder / _REPORT
    with whole(report) as part:
        spark.report(capture, part)
    return report


def _next_steps(keep: Path | None) -> list[str]:
    if keep is None:
        return [
            "Next: keep the capture and look into it",
            "  trunkline demo --output demo",
            "  trunkline capture info demo/capture",
            "or record senders of your own",
            "  trunkline cdtp record --capture run1 --connect tcp://HOST:PORT",
        ]
    capture = keep / "capture"
    return [
        "Next: look into the capture, send it again, make a table of it",
        f"  trunkline capture cat {capture} --limit 5",
        f"  trunkline capture replay {capture} --bind tcp://127.0.0.1:23999",
        f"  trunkline spark decode {capture} messages --protocol cdtp --tags run=bigint",
    ]

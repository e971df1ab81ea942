"""`trunkline dcp worker`: answers by a program, a function, or an echo."""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib
import inspect
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from trunkline import errors
from trunkline.cli.options.dcp import Endpoints, HeartbeatInterval, Liveness, need_heartbeat
from trunkline.cli.options.groups import Capturing, DialingSockets, Segments
from trunkline.cli.options.shared import DrainSeconds, Json, Metrics, StatsInterval, example
from trunkline.cli.process.signals import Stopping
from trunkline.cli.process.waiting import Pace
from trunkline.cli.terminal.output import Output
from trunkline.cli.terminal.panel import watching

if TYPE_CHECKING:
    from trunkline.dcp import Request

__all__ = ["EXAMPLE", "worker"]

EXAMPLE = example("trunkline dcp worker upper --connect tcp://127.0.0.1:23990 --concurrency 4 --exec 'tr a-z A-Z'")


def worker(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="The service to offer.")],
    *,
    connect: Endpoints,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, metavar="N", help="How many requests to process at the same time.")
    ] = 1,
    heartbeat_interval: HeartbeatInterval = 2.5,
    liveness: Liveness = 3,
    command: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="CMD",
            help="Run this program, without a shell, for each request: data on stdin, reply on stdout.",
        ),
    ] = None,
    call: Annotated[
        str | None,
        typer.Option(
            "--call", metavar="MODULE:FUNCTION", help="Call this function with each request; it returns the reply."
        ),
    ] = None,
    echo: Annotated[bool, typer.Option("--echo", help="Reply with the data of the request.")] = False,
    sockets: DialingSockets,
    capturing: Capturing,
    segments: Segments,
    as_json: Json = False,
    stats_interval: StatsInterval = None,
    metrics: Metrics = None,
    drain_seconds: DrainSeconds = 5.0,
) -> None:
    """Answers the requests for a service."""
    need_heartbeat(heartbeat_interval, liveness)
    made, recorded = sockets.keywords(), capturing.keywords(segments)
    programs = _Programs(command) if command is not None else None
    handler = _one_handler(programs, call, echo=echo)
    from trunkline import dcp

    output = Output(json=as_json)
    with (
        Stopping() as stopping,
        programs or contextlib.nullcontext(),
        concurrent.futures.ThreadPoolExecutor(1) as threads,
        dcp.Worker(
            os.fsencode(service),
            connect=connect,
            metrics=metrics,
            **made,
            **recorded,
            concurrency=concurrency,
            heartbeat_interval_s=heartbeat_interval,
            liveness=liveness,
        ) as role,
    ):
        if programs is not None:
            stopping.leaves(programs.end)
        serving = threads.submit(role.serve, handler)
        doing = f"offering {service} to"
        output.ready("dcp.worker", connect, doing, metrics_url=role.metrics_url)
        pace = Pace(stopping, lambda: output.stats(role.stats), stats_interval)
        is_stopped = False
        with watching(output, lambda: role.stats, doing=" ".join((doing, *connect))):
            while not serving.done():
                concurrent.futures.wait([serving], pace.wait_s())
                pace.look_up()
                if pace.stopped and not is_stopped:
                    # Requests in progress are still answered.
                    is_stopped = True
                    role.stop(drain_s=drain_seconds)
        given_up = 0 if programs is None else programs.end()
        if given_up:
            output.note(f"ended programs that had not finished within {drain_seconds:g} s: {given_up}")
        serving.result()
        output.stopped("signal", role.stats)


def _one_handler(programs: _Programs | None, call: str | None, *, echo: bool) -> Callable[[Request], Any]:
    given: list[Callable[[Request], Any]] = []
    if programs is not None:
        given.append(programs)
    if call is not None:
        given.append(_function(call))
    if echo:
        given.append(lambda request: request.data)
    if len(given) != 1:
        message = "Give one of --exec, --call and --echo."
        raise typer.BadParameter(message)
    return given[0]


def _function(name: str) -> Callable[[Request], Any]:
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        message = f"--call takes MODULE:FUNCTION, not {name!r}."
        raise typer.BadParameter(message)
    # As `python -m` has it.
    sys.path.insert(0, str(Path.cwd()))
    try:
        function: Any = importlib.import_module(module_name)
        for attribute in path.split("."):
            function = getattr(function, attribute)
    except (ImportError, AttributeError) as error:
        message = f"--call: {error}."
        raise typer.BadParameter(message) from None
    if not callable(function) or inspect.iscoroutinefunction(function):
        message = f"--call: {name} is not a function that takes a request and returns its reply."
        raise typer.BadParameter(message)
    checked: Callable[[Request], Any] = function
    return checked


class _Programs:
    """A handler that runs a program for each request; none outlives the ``with``."""

    def __init__(self, command: str) -> None:
        try:
            self._arguments = shlex.split(command)
        except ValueError as error:
            message = f"--exec: {error}."
            raise typer.BadParameter(message) from None
        if not self._arguments or shutil.which(self._arguments[0]) is None:
            message = f"--exec: program not found: {command!r}."
            raise typer.BadParameter(message)
        # Reentrant: a signal handler takes it too.
        self._lock = threading.RLock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def __call__(self, request: Request) -> bytes:
        with self._lock:
            self._need_open()
            # In its own session, so that Ctrl-C does not interrupt it.
            program = subprocess.Popen(  # noqa: S603 - it is what the user asks for
                self._arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            self._running.add(program)
        try:
            reply, _ = program.communicate(b"".join(request.data))
        finally:
            with self._lock:
                self._running.discard(program)
        if program.returncode:
            self._need_open()
            raise subprocess.CalledProcessError(program.returncode, self._arguments[0])
        return reply

    def _need_open(self) -> None:
        # A program that we ended has not failed.
        if self._over:
            message = "the worker has ended"
            raise errors.ClosedError(message)

    def end(self) -> int:
        """Ends running commands and their children, as their results cannot be sent any more; returns how many."""
        with self._lock:
            self._over = True
            for program in self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(program.pid, signal.SIGKILL)
            return len(self._running)

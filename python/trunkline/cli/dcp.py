"""`trunkline dcp`: broker, work and ask."""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib
import inspect
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from trunkline import errors
from trunkline._text import counted
from trunkline.cli import running
from trunkline.cli.ending import Stopping
from trunkline.cli.family import Family
from trunkline.cli.flight import Flight
from trunkline.cli.groups import Capturing, DialingSockets, Segments, Sockets, grouped
from trunkline.cli.latency import Latency
from trunkline.cli.lines import given
from trunkline.cli.options import DrainSeconds, Json, Pace, StatsInterval, dials, example, listens, span
from trunkline.cli.output import Output, plain
from trunkline.cli.panel import watching
from trunkline.cli.progress import Progress

if TYPE_CHECKING:
    from trunkline.dcp import Client, Reply, Request

app = typer.Typer(
    cls=Family,
    help="DCP: a service broker; clients send requests, workers answer them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

# A signal that comes just before a wait of Python's own does not end it.
_LOOK_S = 0.2

# As many milliseconds as libzmq can count.
# The service of a broker that says how it is.
_STATUS = b"trunkline.status"

# How long it may take to say so to somebody who wants to know why nobody replies.
_ASIDE_S = 1.0

_LONGEST_SILENCE_S = (2**31 - 1) // 1000

Endpoints = Annotated[
    list[str],
    typer.Option(
        "--connect",
        metavar="ENDPOINT",
        help="Where the broker listens, e.g. tcp://127.0.0.1:23990. Repeatable.",
        callback=dials,
    ),
]
HeartbeatInterval = Annotated[
    float,
    typer.Option(
        "--heartbeat-interval", min=0.001, metavar="S", help="How often workers send a heartbeat.", callback=span
    ),
]
Liveness = Annotated[
    int, typer.Option("--liveness", min=1, metavar="N", help="Missed heartbeats after which a peer is considered dead.")
]


class Overflow(StrEnum):
    """Which request to drop when a queue is full."""

    REJECT_NEWEST = "reject-newest"
    DROP_OLDEST = "drop-oldest"


class ClientAddress(StrEnum):
    """Whose client addresses are trusted."""

    ANY = "any"
    WORKERS_ONLY = "workers-only"


@app.command(epilog=example("trunkline dcp broker --bind tcp://127.0.0.1:23990 --queue-ttl 10"))
@grouped
def broker(
    *,
    bind: Annotated[
        list[str],
        typer.Option(
            "--bind", metavar="ENDPOINT", help="Listen here, e.g. tcp://127.0.0.1:*. Repeatable.", callback=listens
        ),
    ],
    max_queue: Annotated[
        int, typer.Option("--max-queue", min=0, metavar="N", help="How many requests may be queued for one service.")
    ] = 10_000,
    max_queue_bytes: Annotated[
        int, typer.Option("--max-queue-bytes", min=0, metavar="N", help="How many bytes may be queued in total.")
    ] = 256 << 20,
    queue_ttl: Annotated[
        float,
        typer.Option("--queue-ttl", min=0, metavar="S", help="How long a request may stay queued.", callback=span),
    ] = 60.0,
    overflow: Annotated[
        Overflow, typer.Option("--overflow", help="Which request to drop when a queue is full.")
    ] = Overflow.REJECT_NEWEST,
    heartbeat_interval: HeartbeatInterval = 2.5,
    liveness: Liveness = 3,
    requeue: Annotated[
        bool,
        typer.Option(
            "--requeue", help="Give the unfinished requests of a dead worker to another; they may be executed twice."
        ),
    ] = False,
    no_busy_ping_grants: Annotated[
        bool,
        typer.Option("--no-busy-ping-grants", help="Give each worker one request at a time, whatever it asks for."),
    ] = False,
    client_address: Annotated[
        ClientAddress, typer.Option("--client-address", help="Whose client addresses are trusted.")
    ] = ClientAddress.ANY,
    compat_dagbox: Annotated[
        bool, typer.Option("--compat-dagbox", help="Also accept the four-byte types of the original implementation.")
    ] = False,
    no_status: Annotated[
        bool, typer.Option("--no-status", help="Do not answer clients that ask which services there are.")
    ] = False,
    allow_service: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-service", metavar="SERVICE", help="A service that may be registered. Repeatable. [default: all]"
        ),
    ] = None,
    sockets: Sockets,
    capturing: Capturing,
    segments: Segments,
    as_json: Json = False,
    stats_interval: StatsInterval = None,
    drain_seconds: DrainSeconds = 5.0,
) -> None:
    """Queues requests for each service and hands them to workers as they become free."""
    _need_heartbeat(heartbeat_interval, liveness)
    made, recorded = sockets.keywords(), capturing.keywords(segments)
    from trunkline import dcp

    with (
        Stopping(tells=not as_json) as stopping,
        dcp.Broker(
            bind=bind,
            raise_file_limit=True,
            **made,
            **recorded,
            max_queue=max_queue,
            max_queue_bytes=max_queue_bytes,
            queue_ttl_s=queue_ttl,
            overflow=overflow.value,
            heartbeat_interval_s=heartbeat_interval,
            liveness=liveness,
            requeue=requeue,
            busy_ping_grants=not no_busy_ping_grants,
            client_address=client_address.value,
            compat_dagbox=compat_dagbox,
            status=not no_status,
            allowed_services=None if allow_service is None else map(os.fsencode, allow_service),
        ) as role,
    ):
        running.run(
            role,
            stopping,
            Output(json=as_json),
            name="dcp.broker",
            doing="brokering at",
            stats_interval=stats_interval,
            drain_s=drain_seconds,
            capture=capturing.capture,
        )


def _need_heartbeat(interval_s: float, liveness: int) -> None:
    if interval_s * liveness > _LONGEST_SILENCE_S:
        message = f"--heartbeat-interval times --liveness is {_LONGEST_SILENCE_S:,} seconds at most."
        raise typer.BadParameter(message)


_SERVICE_COLUMNS = ("service", "workers", "free", "queued", "requests", "replies", "expired")


@app.command(epilog=example("trunkline dcp services --connect tcp://127.0.0.1:23990"))
@grouped
def services(
    *,
    connect: Endpoints,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.001, metavar="S", help="How long to wait for the answer.", callback=span)
    ] = 5.0,
    sockets: DialingSockets,
    as_json: Json = False,
) -> None:
    """Asks a running broker for its services and their workers."""
    made = sockets.keywords()
    from trunkline import dcp

    output = Output(json=as_json)
    with dcp.Client(connect=connect, **made) as client:
        reply = client.request(_STATUS, b"", timeout_s=timeout)
    status = json.loads(reply.data[0])
    if output.json:
        for service in status["services"]:
            output.event("service", **service)
        return
    output.table(_SERVICE_COLUMNS, [[service[name] for name in _SERVICE_COLUMNS] for service in status["services"]])
    peers = counted(status["peers"], "peer")
    output.note(f"{peers}; {status['received']:,} messages received, {status['sent']:,} sent")


@app.command(
    epilog=example("trunkline dcp worker upper --connect tcp://127.0.0.1:23990 --concurrency 4 --exec 'tr a-z A-Z'")
)
@grouped
def worker(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="The service it offers.")],
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
    drain_seconds: DrainSeconds = 5.0,
) -> None:
    """Answers the requests for a service."""
    _need_heartbeat(heartbeat_interval, liveness)
    made, recorded = sockets.keywords(), capturing.keywords(segments)
    programs = _Programs(command) if command is not None else None
    handler = _one_handler(programs, call, echo=echo)
    from trunkline import dcp

    output = Output(json=as_json)
    pace = Pace(lambda: output.stats(role.stats), stats_interval)
    with (
        Stopping(tells=not as_json) as stopping,
        programs or contextlib.nullcontext(),
        concurrent.futures.ThreadPoolExecutor(1) as threads,
        dcp.Worker(
            os.fsencode(service),
            connect=connect,
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
        output.ready("dcp.worker", connect, f"working on {service} for")
        stopping.calls(lambda: role.stop(drain_s=drain_seconds))
        with watching(output, lambda: role.stats, doing=f"dcp.worker {service}"):
            while not serving.done():
                concurrent.futures.wait([serving], pace.wait_s(_LOOK_S))
                pace.look_up()
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
        message = f"--call: {name} is no function that takes a request and returns its reply."
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
            message = f"--exec: {command!r} is no program that can be found."
            raise typer.BadParameter(message)
        # Reentrant: a signal may come while it is held.
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
            # In a session of its own: Ctrl-C is for us, who let it finish.
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
        # What we have ended ourselves has not failed.
        if self._over:
            message = "the worker has ended"
            raise errors.ClosedError(message)

    def end(self) -> int:
        """Ends what still runs, with all it has started: nobody can be told the result any more. Says how many."""
        with self._lock:
            self._over = True
            for program in self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(program.pid, signal.SIGKILL)
            return len(self._running)


@dataclass(frozen=True, slots=True)
class _Asked:
    requests: int
    replies: int
    timeouts: int
    empty: int
    rate: float
    latency_ms: Latency


@app.command(
    epilog=example(
        "trunkline dcp request upper hello --connect tcp://127.0.0.1:23990 --count 1000 --in-flight 100 --json"
    )
)
@grouped
def request(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="The service.")],
    data: Annotated[
        list[str] | None, typer.Argument(metavar="DATA", help="The parts of the request.", show_default=False)
    ] = None,
    *,
    connect: Endpoints,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="S", help="How long to wait for each reply.", callback=span)
    ] = 5.0,
    retries: Annotated[
        int, typer.Option("--retries", min=0, metavar="N", help="How many times to retry when no reply came in time.")
    ] = 0,
    count: Annotated[int, typer.Option("--count", min=1, metavar="N", help="How many requests to send.")] = 1,
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=1, metavar="N", help="How many requests may be in flight.")
    ] = 1,
    sockets: DialingSockets,
    capturing: Capturing,
    segments: Segments,
    as_json: Json = False,
) -> None:
    """Sends requests to a service, prints the replies, and reports their latency.

    A request that has data and is replied to without any has failed: so a worker answers for a handler that raised.
    """
    made, recorded = sockets.keywords(), capturing.keywords(segments)
    from trunkline import dcp

    output = Output(json=as_json)
    asking = _Asking(service, data or [], timeout, retries)
    with (
        dcp.Client(connect=connect, **made, **recorded) as client,
        Progress(f"asking {service}", count) as progress,
    ):
        asked = asking.ask_all(client, count, in_flight, output, progress)
        # Programs know what they look for; people are told where to look.
        why = "" if as_json or asked.replies else _why(client, service, connect)
    if as_json:
        output.stopped("count", asked)
    else:
        output.note("; ".join(filter(None, (_summary(asked), why))))
    if asked.timeouts or asked.empty:
        raise typer.Exit(1)


def _why(client: Client, service: str, connect: Sequence[str]) -> str:
    """Why nobody replied, as far as the broker says."""
    try:
        reply = client.request(_STATUS, b"", timeout_s=_ASIDE_S)
        workers = {one["service"]: one["workers"] for one in json.loads(reply.data[0])["services"]}
    except errors.TimeoutError:
        return f"no broker answers at {', '.join(connect)}, or it was started with --no-status"
    except (IndexError, KeyError, TypeError, ValueError):
        # It has a service of that name which says something else.
        return ""
    if not workers.get(service):
        return f"the broker answers: it has no worker for {service}"
    return f"the broker answers: {counted(workers[service], 'worker')} of {service} took too long"


class _Asking:
    """The same request, many times."""

    def __init__(self, service: str, data: Sequence[str], timeout_s: float, retries: int) -> None:
        self._service = os.fsencode(service)
        self._data = given(data)
        self._timeout_s = timeout_s
        self._retries = retries
        self._flight: Flight[Reply] = Flight()
        self._latencies_ms: list[float] = []
        self._timeouts = 0
        self._empty = 0

    def ask_all(self, client: Client, count: int, in_flight: int, output: Output, progress: Progress) -> _Asked:
        begun, ended, start = 0, 0, time.monotonic()
        while ended < count:
            while begun < count and begun - ended < in_flight:
                self._flight.submit(begun, lambda: self._ask(client))
                begun += 1
            landed = self._flight.landed()
            if landed is not None:
                ended += 1
                self._tell(*landed, output)
            progress.at(ended)
        took_s = time.monotonic() - start
        return self._asked(count, took_s)

    def _ask(self, client: Client) -> concurrent.futures.Future[Reply]:
        return client.submit(self._service, self._data, timeout_s=self._timeout_s, retries=self._retries)

    def _tell(self, index: int, future: concurrent.futures.Future[Reply], latency_ms: float, output: Output) -> None:
        try:
            reply = future.result()
        except errors.TimeoutError:
            self._timeouts += 1
            if output.json:
                output.event("timeout", index=index)
            else:
                output.note(f"request {index} was not replied to within {self._timeout_s:g} s")
            return
        self._latencies_ms.append(latency_ms)
        is_empty = not reply.data and bool(self._data)
        self._empty += is_empty
        if output.json:
            output.event(
                "reply", index=index, data=reply.data, metadata=reply.metadata, latency_ms=round(latency_ms, 3)
            )
        elif is_empty:
            output.note(f"request {index} was replied to without data: its handler failed, or had none to give")
        else:
            output.line(" ".join(_shown(part) for part in reply.data))

    def _asked(self, count: int, took_s: float) -> _Asked:
        replies = len(self._latencies_ms)
        rate = round(replies / took_s, 1)
        return _Asked(count, replies, self._timeouts, self._empty, rate, Latency.of(self._latencies_ms))


def _shown(part: bytes) -> str:
    text = plain(part)
    return text if isinstance(text, str) else part.hex()


def _summary(asked: _Asked) -> str:
    text = f"{asked.replies:,} of {asked.requests:,} replied to, {asked.rate:,.0f} a second"
    return f"{text}; {asked.latency_ms}" if asked.replies else text

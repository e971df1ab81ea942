"""`trunkline mc0`: subscribe to topics, publish messages, and ping the middleware."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import json
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trunkline import errors
from trunkline._jsonable import named
from trunkline._roles.reachability import unreached
from trunkline._text import counted
from trunkline.cli.commands import mc0_middleware
from trunkline.cli.options.commands import Commands
from trunkline.cli.options.groups import Capturing, DialingSockets, Segments
from trunkline.cli.options.shared import DrainSeconds, Idle, Json, Metrics, StatsInterval, dials, ending_after, example
from trunkline.cli.process import running
from trunkline.cli.process.in_flight import Flight
from trunkline.cli.process.input import given, lines, stands_for_stdin
from trunkline.cli.process.receiving import Printing
from trunkline.cli.process.refusals import is_refused, unless_refused
from trunkline.cli.process.signals import Stopping, closing
from trunkline.cli.process.waiting import Pace
from trunkline.cli.terminal.content import Content, MessageView, Printer, Showing
from trunkline.cli.terminal.latency import Latency, a_second
from trunkline.cli.terminal.output import Output, Reason
from trunkline.cli.terminal.panel import watching
from trunkline.cli.terminal.progress import Progress

if TYPE_CHECKING:
    from trunkline.cli.terminal.json_lines import Line
    from trunkline.mc0 import Connector, Message

app = Commands(help="mc0: a topic bus; the middleware forwards published messages to the subscribers.")

# How long unconfirmed messages may take to reach the middleware.
_LINGER_S = 5.0

Endpoints = Annotated[
    list[str],
    typer.Option(
        "--connect",
        metavar="ENDPOINT",
        help="Where the middleware listens, e.g. tcp://127.0.0.1:61616. Repeatable.",
        callback=dials,
    ),
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", min=0, metavar="S", help="How long to wait for the middleware and each of its answers."),
]


@app.command(epilog=example("trunkline mc0 subscribe alerts runs --connect tcp://127.0.0.1:61616 --json"))
def subscribe(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="The topics.", show_default=False)],
    *,
    connect: Endpoints,
    ttl: Annotated[
        int, typer.Option("--ttl", min=0, metavar="MS", help="How long either end may be silent; 0 disables the limit.")
    ] = 10_000,
    count: Annotated[int | None, ending_after("printing this many messages")] = None,
    idle: Idle = None,
    content: Content,
    sockets: DialingSockets,
    capturing: Capturing,
    segments: Segments,
    as_json: Json = False,
    stats_interval: StatsInterval = None,
    metrics: Metrics = None,
    drain_seconds: DrainSeconds = 5.0,
) -> None:
    """Prints the messages of topics as they arrive; their bodies by default."""
    output = Output(json=as_json)
    printer = content.printer(output)
    made, recorded = sockets.keywords(), capturing.keywords(segments)
    from trunkline import mc0

    reason: Reason = "signal"
    with (
        Stopping() as stopping,
        mc0.Connector(connect=connect, ttl_ms=ttl or None, metrics=metrics, **made, **recorded) as connector,
    ):
        pace = Pace(stopping, lambda: output.stats(connector.stats), stats_interval, idle, output.need_reader)
        printing = Printing(connector.receive, functools.partial(_show, printer), count)
        subscribe = functools.partial(connector.subscribe, *topics, timeout_s=idle)
        try:
            if running.began(subscribe, functools.partial(connector.close, drain_s=0.0), pace):
                subscribed = f"subscribed to {counted(len(topics), 'topic')} at"
                output.ready("mc0.connector", connect, subscribed, metrics_url=connector.metrics_url)
                pace.saw()
                doing = f"subscribed to {', '.join(topics)} at {' '.join(connect)}"
                with watching(
                    output, lambda: connector.stats, doing=doing, prints=True, count=count, counted="messages"
                ):
                    reason = printing.run(pace)
                if reason == "signal":
                    printing.drain()
        except errors.TimeoutError:
            reason = "idle"
        with running.draining(drain_seconds):
            connector.close(drain_s=drain_seconds)
        output.stopped(reason, connector.stats, f"{counted(printing.printed, 'message')} printed")


def _show(printer: Printer, message: Message) -> None:
    if printer.output.json:
        body = printer.payload(message.body)["payload"]
        printer.output.event("message", topic=message.topic, headers=message.headers, body=body)
    elif printer.is_plain:
        printer.output.raw(b"".join(message.body))
    else:
        printer.show(MessageView.of(message))


@dataclass(frozen=True, slots=True)
class Published:
    """The results of published messages."""

    put: int
    confirmed: int
    errors: int
    timeouts: int
    rate: float
    latency_ms: Latency


@app.command(
    epilog=example("trunkline mc0 publish runs 'run 7 begins' --connect tcp://127.0.0.1:61616 --header X-Origin=daq")
)
def publish(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATA",
            help="The frames of the body; @FILE is the content of a file; - alone is standard input, one message per line.",
            show_default=False,
        ),
    ] = None,
    *,
    connect: Endpoints,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="K=V", help="A header to send; K must begin with X-. Repeatable."),
    ] = None,
    no_confirm: Annotated[bool, typer.Option("--no-confirm", help="Do not wait for the middleware's OK.")] = False,
    timeout: Timeout = 5.0,
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="How many times to publish it. [default: 1]")
    ] = None,
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=1, metavar="N", help="How many may be unconfirmed at the same time.")
    ] = 1,
    sockets: DialingSockets,
    capturing: Capturing,
    segments: Segments,
    as_json: Json = False,
) -> None:
    """Publishes messages on a topic, and reports how long the confirmations took."""
    frames = given(data or [])
    is_stdin = stands_for_stdin(frames, count, "message")
    headers = _headers(header or [])
    made, recorded = sockets.keywords(), capturing.keywords(segments)
    from trunkline import mc0

    output = Output(json=as_json)
    total = None if is_stdin else count or 1
    bodies = ([line] for line in lines()) if is_stdin else itertools.repeat(frames, total or 1)
    with (
        mc0.Connector(connect=connect, **made, **recorded) as connector,
        closing(functools.partial(connector.close, drain_s=0.0)),
        Progress(f"publishing to {topic}", total) as progress,
    ):
        publishing = _Publishing(connector, topic, headers, timeout, output, progress)
        with suppress(errors.AuthenticationError), unless_refused(connect):
            if no_confirm:
                publishing.put_all(bodies)
            else:
                publishing.confirm_all(bodies, in_flight)
        published = publishing.published()
    text = _summary(published, confirmed=not no_confirm)
    why = {}
    unanswered = published.timeouts or is_refused(connect)
    if unanswered and not published.confirmed + published.errors:
        text += f"; {_no_middleware(connect)}"
        why = {"why": _why(connect)}
    failed = bool(published.errors or unanswered)
    output.summary("eof" if is_stdin else "count", published, text, failed=failed, **why)


def _headers(given: Sequence[str]) -> list[tuple[str, str]]:
    headers = []
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals or not key.startswith("X-"):
            message = f"--header takes K=V, where K begins with X-, not {pair!r}."
            raise typer.BadParameter(message)
        headers.append((key, value))
    return headers


class _Publishing:
    """Publishes messages on a topic."""

    def __init__(
        self,
        connector: Connector,
        topic: str,
        headers: list[tuple[str, str]],
        timeout_s: float,
        output: Output,
        progress: Progress,
    ) -> None:
        self._connector = connector
        self._topic = topic
        self._headers = headers
        self._timeout_s = timeout_s
        self._output = output
        self._progress = progress
        self._flight: Flight[None] = Flight()
        self._start = time.monotonic()
        self._put = 0
        self._ended = 0
        self._errors = 0
        self._timeouts = 0
        self._latencies_ms: list[float] = []

    def put_all(self, bodies: Iterable[list[bytes]]) -> None:
        """Puts each once, and waits until the middleware has received them, as it answers only refused ones."""
        for body in bodies:
            try:
                self._connector.put(self._topic, body, headers=self._headers, timeout_s=self._timeout_s)
            except errors.TimeoutError:
                self._timed_out(self._put)
            self._put += 1
            self._progress.at(self._put)
        try:
            self._connector.flush(timeout_s=_LINGER_S)
        except errors.TimeoutError as error:
            self._timeouts += error.unsent or 0
            self._output.note(str(error))
        # Their timeout is over.
        self._connector.close(drain_s=0.0 if self._timeouts else _LINGER_S)
        self._errors = self._connector.stats.errors

    def confirm_all(self, bodies: Iterable[list[bytes]], in_flight: int) -> None:
        """Puts each until it is confirmed, with so many in flight."""
        for body in bodies:
            self._flight.submit(self._put, functools.partial(self._submit, body))
            self._put += 1
            while self._put - self._ended >= in_flight or not self._flight.is_empty:
                self._take()
        while self._ended < self._put:
            self._take()

    def _submit(self, body: list[bytes]) -> concurrent.futures.Future[None]:
        return self._connector.submit(self._topic, body, headers=self._headers, timeout_s=self._timeout_s)

    def _take(self) -> None:
        """Waits a little for the next completed one."""
        landed = self._flight.landed()
        self._ended += landed is not None
        self._progress.at(self._ended)
        if landed is None:
            return
        index, future, latency_ms = landed
        try:
            future.result()
        except errors.TimeoutError:
            self._timed_out(index)
        except errors.MiddlewareError as error:
            self._errors += 1
            refused = f"message {index} was refused: {error}"
            self._output.remark("error", refused, index=index, topic=self._topic, text=error.text)
        else:
            self._latencies_ms.append(latency_ms)

    def _timed_out(self, index: int) -> None:
        self._timeouts += 1
        self._output.remark("timeout", f"message {index} timed out after {self._timeout_s:g} s", index=index)

    def published(self) -> Published:
        rate = round(self._put / (time.monotonic() - self._start), 1)
        confirmed = len(self._latencies_ms)
        return Published(self._put, confirmed, self._errors, self._timeouts, rate, Latency.of(self._latencies_ms))


def _summary(published: Published, *, confirmed: bool) -> str:
    text = f"{counted(published.put, 'message')} published{a_second(published.put, published.rate)}"
    if not confirmed:
        # A middleware may drop answers to very many messages.
        return f"{text}; at least {published.errors:,} refused" if published.errors else text
    text += f"; {published.confirmed:,} confirmed"
    text = f"{text}, {published.latency_ms}" if published.confirmed else text
    return f"{text}; {published.errors:,} refused" if published.errors else text


def _why(endpoints: Sequence[str]) -> str:
    """Why no middleware has answered, as a slug."""
    return "refused" if is_refused(endpoints) else "no_middleware"


def _no_middleware(endpoints: Sequence[str]) -> str:
    return f"no middleware answers at {unreached(endpoints)}"


# The status topic of a middleware.
_STATUS = "trunkline.status"

_TOPIC_COLUMNS = ("topic", "subscribers", "puts", "messages", "bytes")


@app.command(epilog=example("trunkline mc0 topics --connect tcp://127.0.0.1:61616"))
def topics(
    *,
    connect: Endpoints,
    timeout: Timeout = 5.0,
    sockets: DialingSockets,
    as_json: Json = False,
) -> None:
    """Lists the topics of a running middleware that have subscribers, and the traffic on each."""
    made = sockets.keywords()
    from trunkline import mc0

    output = Output(json=as_json)
    with mc0.Connector(connect=connect, **made) as connector, unless_refused(connect):
        try:
            connector.subscribe(_STATUS, timeout_s=timeout)
            status = json.loads(b"".join(connector.receive(timeout_s=timeout).body))
        except errors.TimeoutError:
            message = f"{_no_middleware(connect)}, or it was started with --no-status: waited for {timeout:g} s"
            raise errors.TimeoutError(message) from None
        except errors.MiddlewareError as error:
            if "may not subscribe" not in error.text:
                raise
            message = f'{error}: the policy must allow it, by subscribe = ["{_STATUS}"] in the entry of this client'
            raise errors.TrunklineError(message) from None
    topics = [{**topic, "topic": named(topic["topic"]).decode(errors="surrogateescape")} for topic in status["topics"]]
    found = [topic for topic in topics if topic["topic"] != _STATUS]
    output.listing("topic", _TOPIC_COLUMNS, found)
    if not output.json:
        # One of them is this client.
        clients = counted(status["clients"] - 1, "client")
        output.note(f"{clients}; {counted(status['received'], 'message')} received, {status['messages']:,} forwarded")


@dataclass(frozen=True, slots=True)
class Pinged:
    """The results of pings."""

    pings: int
    replies: int
    timeouts: int
    latency_ms: Latency


@app.command(epilog=example("trunkline mc0 ping --connect tcp://127.0.0.1:61616 --count 10"))
def ping(
    *,
    connect: Endpoints,
    timeout: Timeout = 5.0,
    count: Annotated[int, typer.Option("--count", min=1, metavar="N", help="How many requests to send.")] = 1,
    sockets: DialingSockets,
    capturing: Capturing,
    segments: Segments,
    as_json: Json = False,
) -> None:
    """Pings the middleware, and prints the round-trip times."""
    made, recorded = sockets.keywords(), capturing.keywords(segments)
    from trunkline import mc0

    output = Output(json=as_json)
    latencies_ms = []
    with (
        mc0.Connector(connect=connect, **made, **recorded) as connector,
        closing(functools.partial(connector.close, drain_s=0.0)),
        Progress("pinging the middleware", count) as progress,
        suppress(errors.AuthenticationError),
        unless_refused(connect),
    ):
        for index in range(count):
            try:
                latency_ms = round(connector.ping(timeout_s=timeout) * 1000, 3)
            except errors.TimeoutError:
                output.remark("timeout", f"ping {index} was not answered within {timeout:g} s", index=index)
            else:
                latencies_ms.append(latency_ms)
                output.result("pong", f"{latency_ms} ms", index=index, latency_ms=latency_ms)
            progress.at(index + 1)
    replies = len(latencies_ms)
    pinged = Pinged(count, replies, count - replies, Latency.of(latencies_ms))
    answers = f"{replies:,} of {count:,} answered"
    text = f"{answers}; {pinged.latency_ms if replies else _no_middleware(connect)}"
    why = {} if replies else {"why": _why(connect)}
    output.summary("count", pinged, text, failed=bool(pinged.timeouts), **why)


app.command(epilog=mc0_middleware.EXAMPLE)(mc0_middleware.middleware)


def _view(message: Any) -> MessageView:
    names = ("verb", "topic", "topics", "headers", "id", "version", "ttl_ms", "text")
    fields = {name: getattr(message, name) for name in names}
    subject = " ".join(message.topics) or message.topic or ""
    # The other headers are separate fields.
    details = {name: value for name, value in message.headers if name.startswith("X-")}
    details |= {name: fields[name] for name in ("id", "ttl_ms", "text") if fields[name]}
    return MessageView(message.verb, subject, {"type": message.verb, **fields}, details, message.body)


SHOWING = Showing(_view, fields=("verb", "topic", "topics", "headers", "id", "text", "ttl_ms"))


def json_lines() -> dict[str, list[Line]]:
    """The lines of JSON of these commands."""
    from trunkline import mc0
    from trunkline.cli.terminal.json_lines import CHECKED, TIMED_OUT, Maybe, line, role, stopped

    counts = {"topic": str, **dict.fromkeys(("subscribers", "puts", "messages", "bytes"), int)}
    return {
        "mc0 subscribe": [
            *role(mc0.ConnectorStats),
            line("message", topic=str, headers=list[tuple[str, str]], body=list[str]),
        ],
        "mc0 publish": [
            TIMED_OUT,
            line("error", index=int, topic=str, text=str),
            stopped(Published, why=Maybe(Literal["no_middleware", "refused"])),
        ],
        "mc0 topics": [line("topic", **counts)],
        "mc0 ping": [
            line("pong", index=int, latency_ms=float),
            TIMED_OUT,
            stopped(Pinged, why=Maybe(Literal["no_middleware", "refused"])),
        ],
        "mc0 middleware": [CHECKED, *role(mc0.MiddlewareStats)],
    }

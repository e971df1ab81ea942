"""`trunkline mtl send`, `receive`, `queues` and `call`: the commands of a client."""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from trunkline import errors
from trunkline._text import counted
from trunkline.cli.commands.mtl_server import Liveness, PingInterval, Secrets
from trunkline.cli.commands.mtl_users import PasswordFile, password_in
from trunkline.cli.options.groups import Capturing, DialingSockets, Segments
from trunkline.cli.options.shared import Idle, Json, Metrics, StatsInterval, dials, encodable, example
from trunkline.cli.process import running
from trunkline.cli.process.input import given, lines, stands_for_stdin
from trunkline.cli.process.receiving import Printing
from trunkline.cli.process.refusals import unless_refused
from trunkline.cli.process.signals import Stopping, closing
from trunkline.cli.process.waiting import Pace
from trunkline.cli.terminal.content import Content, MessageView, Printer
from trunkline.cli.terminal.latency import Latency, a_second
from trunkline.cli.terminal.output import Output, Reason
from trunkline.cli.terminal.panel import watching
from trunkline.cli.terminal.progress import Progress

if TYPE_CHECKING:
    from trunkline import mtl
    from trunkline.mtl import Reader, Writer
    from trunkline.mtl.client import Confirm

__all__ = ["CALL", "QUEUES", "RECEIVE", "SEND", "Sent", "call", "queues", "receive", "send"]

SEND = example("trunkline mtl send jobs 'build 7' --connect tcp://127.0.0.1:5975 --user ada --property priority=3")
RECEIVE = example("trunkline mtl receive jobs --connect tcp://127.0.0.1:5975 --user ada --json")
QUEUES = example("trunkline mtl queues --connect tcp://127.0.0.1:5975 --user ada")
# The largest window that a server counts to.
_MOST_WINDOW = 100_000

# How long a server may take to answer that it stops sending.
_FAREWELL_S = 1.0

CALL = example("""trunkline mtl call Queue.Info '{"name": "jobs"}' --connect tcp://127.0.0.1:5975 --user ada""")


@dataclass(frozen=True)
class Login:
    """The server that a client connects to, and its login."""

    connect: Annotated[
        list[str],
        typer.Option(
            "--connect",
            metavar="ENDPOINT",
            help="Where the server listens, e.g. tcp://127.0.0.1:5975. Repeatable.",
            callback=dials,
        ),
    ]
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="Log in as this user.", callback=encodable)
    ] = None
    password_file: PasswordFile = None
    profile: Annotated[str, typer.Option("--profile", metavar="NAME", help="The profile.", callback=encodable)] = (
        "queue"
    )
    virtual_host: Annotated[
        str, typer.Option("--virtual-host", metavar="NAME", help="The virtual host.", callback=encodable)
    ] = "/"
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", min=0.001, metavar="S", help="How long to wait for the server and each of its answers."
        ),
    ] = 5.0

    def keywords(self) -> dict[str, Any]:
        """The arguments of a client."""
        password = None
        if self.user is not None:
            # A secret from a file ends with a newline.
            text = os.environ.get("TRUNKLINE_PASSWORD", "").removesuffix("\n").removesuffix("\r")
            password = text or None
        if self.password_file is not None:
            password = password_in(self.password_file)
        return {
            "connect": self.connect,
            "user": self.user,
            "password": password,
            "profile": self.profile,
            "virtual_host": self.virtual_host,
            "timeout_s": self.timeout,
        }


ConfirmOption = Annotated[
    str | None,
    typer.Option("--confirm", metavar="none|full", help="Whether contents are confirmed. [default: as in the profile]"),
]


def _confirm(given: str | None) -> Confirm | None:
    if given == "none":
        return "none"
    if given == "full":
        return "full"
    if given is not None:
        message = f"--confirm must be none or full, not {given!r}."
        raise typer.BadParameter(message)
    return None


@dataclass(frozen=True, slots=True)
class Sent:
    """The results of sent contents."""

    sent: int
    confirmed: int
    rejected: int
    rate: float
    latency_ms: Latency


def send(
    resource: Annotated[str, typer.Argument(metavar="RESOURCE", help="The resource to send to.", callback=encodable)],
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATA",
            help="One content per argument; @FILE is the content of a file; - alone is standard input, one content per line.",
            show_default=False,
        ),
    ] = None,
    *,
    login: Login,
    confirm: ConfirmOption = None,
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="K=V",
            help="A property; V is JSON, or else text. Repeatable.",
            callback=encodable,
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="How many times to send it. [default: 1]")
    ] = None,
    window: Annotated[
        int, typer.Option("--window", min=1, metavar="N", help="How many may be unconfirmed at the same time.")
    ] = 1000,
    ping_interval: PingInterval = 2.5,
    liveness: Liveness = 3,
    sockets: DialingSockets,
    capturing: Capturing,
    segments: Segments,
    secrets: Secrets,
    as_json: Json = False,
) -> None:
    """Sends contents to a resource, and reports whether they were confirmed."""
    bodies = given(data or [""])
    is_stdin = stands_for_stdin(bodies, count, "content")
    confirmed, properties = _confirm(confirm), _properties(property_ or [])
    made, who, recorded = sockets.keywords(), login.keywords(), capturing.keywords(segments)
    recorded["capture_secrets"] = secrets.kept(capturing)
    from trunkline import mtl

    output = Output(json=as_json)
    total = None if is_stdin else len(bodies) * (count or 1)
    repeated = itertools.chain.from_iterable(itertools.repeat(bodies, count or 1))
    contents: Iterable[bytes] = lines() if is_stdin else repeated
    sending: _Sending | None = None
    try:
        with (
            unless_refused(login.connect),
            mtl.Client(ping_interval_s=ping_interval, liveness=liveness, **who, **made, **recorded) as client,
            closing(client.close),
            client.writer(resource, confirm=confirmed, window=window) as writer,
            Progress(f"sending to {resource}", total) as progress,
        ):
            sending = _Sending(writer, properties, output, progress)
            sending.send_all(contents, login.timeout)
    except errors.TrunklineError as error:
        if sending is not None:
            sending.report("timeout" if isinstance(error, errors.TimeoutError) else "error")
        raise
    sending.report("eof" if is_stdin else "count", failed=sending.has_rejected)


def _properties(given: Sequence[str]) -> dict[str, Any]:
    properties = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            message = f"--property takes K=V, not {pair!r}."
            raise typer.BadParameter(message)
        try:
            properties[key] = json.loads(value)
        except ValueError:
            properties[key] = value
    from trunkline import mtl

    try:
        mtl.encode_table(properties)
    except (OverflowError, TypeError, ValueError) as error:
        message = f"{error}."
        raise typer.BadParameter(message, param_hint="--property") from error
    return properties


class _Sending:
    """Sends contents to a resource."""

    def __init__(self, writer: Writer, properties: dict[str, Any], output: Output, progress: Progress) -> None:
        self._writer = writer
        self._properties = properties
        self._output = output
        self._progress = progress
        self._start = time.monotonic()
        self._sent = 0
        self.has_rejected = False

    def send_all(self, contents: Iterable[bytes], timeout_s: float) -> None:
        """Sends each, and waits until all are settled."""
        for body in contents:
            send = functools.partial(self._writer.send, body, properties=self._properties, timeout_s=timeout_s)
            while not self._goes_well(send):
                # Earlier contents were rejected; this one was not sent.
                pass
            self._sent += 1
            self._progress.at(self._sent)
        self._goes_well(functools.partial(self._writer.flush, timeout_s=timeout_s))

    def _goes_well(self, step: Callable[[], None]) -> bool:
        """Takes a step; reports contents that were rejected before it."""
        try:
            step()
        except errors.RemoteProtocolError as error:
            if not error.sequences:
                raise
            self.has_rejected = True
            for sequence in error.sequences:
                self._output.remark("rejected", f"content {sequence - 1} was rejected", index=sequence - 1)
            return False
        return True

    def report(self, reason: Reason, *, failed: bool = False) -> None:
        """Reports why it ended, and the counts."""
        seconds = time.monotonic() - self._start
        stats = self._writer.stats
        latencies = Latency.of([each * 1000 for each in self._writer.times_s])
        sent = Sent(self._sent, stats.confirmed, stats.rejected, round(self._sent / seconds, 1), latencies)
        self._output.summary(reason, sent, _summary(sent, is_confirmed=self._writer.is_confirmed), failed=failed)


def _summary(sent: Sent, *, is_confirmed: bool) -> str:
    text = f"{counted(sent.sent, 'content')} sent{a_second(sent.sent, sent.rate)}"
    if not is_confirmed:
        return f"{text}; {sent.rejected:,} refused" if sent.rejected else text
    text += f"; {sent.confirmed:,} confirmed"
    return f"{text}; {sent.rejected:,} rejected" if sent.rejected else text


def receive(
    resources: Annotated[
        list[str],
        typer.Argument(
            metavar="RESOURCE", help="The resources to receive from.", show_default=False, callback=encodable
        ),
    ],
    *,
    login: Login,
    confirm: ConfirmOption = None,
    window: Annotated[
        int,
        typer.Option(
            "--window", min=1, max=100_000, metavar="N", help="How many contents may be unconfirmed at the same time."
        ),
    ] = 1000,
    count: Annotated[
        int | None,
        typer.Option("--count", min=0, metavar="N", help="End after printing this many contents."),
    ] = None,
    idle: Idle = None,
    content: Content,
    ping_interval: PingInterval = 2.5,
    liveness: Liveness = 3,
    sockets: DialingSockets,
    capturing: Capturing,
    segments: Segments,
    secrets: Secrets,
    as_json: Json = False,
    stats_interval: StatsInterval = None,
    metrics: Metrics = None,
) -> None:
    """Prints the contents of resources as they arrive, and confirms each once it is printed.

    Prints bodies by default.
    """
    output = Output(json=as_json)
    printer = content.printer(output)
    confirmed = _confirm(confirm)
    made, who, recorded = sockets.keywords(), login.keywords(), capturing.keywords(segments)
    recorded["capture_secrets"] = secrets.kept(capturing)
    from trunkline import mtl
    from trunkline.mtl.client import confirmation

    is_full = confirmation(confirmed, login.profile) == "full"
    most = _window(window, count) if is_full else _limit(count)
    reason: Reason = "signal"
    stopping = Stopping()
    # Until the login has succeeded, a signal exits at once.
    with (
        unless_refused(login.connect),
        mtl.Client(
            ping_interval_s=ping_interval, liveness=liveness, metrics=metrics, **who, **made, **recorded
        ) as client,
        client.reader(resources, confirm=confirmed, window=most) as reader,
        stopping,
    ):
        pace = Pace(stopping, lambda: output.stats(reader.stats), stats_interval, idle, output.need_reader)
        taking = _Taking(reader, resources, count, most if is_full else None)

        def take(content: mtl.Content) -> None:
            _show(printer, content)
            # Raises if the output has no reader: the content is not confirmed then.
            output.need_reader()
            taking.printed(content)

        printing = Printing(reader.receive, take, count)

        if running.began(taking.begin, reader.close, pace):
            reading = f"receiving from {counted(len(resources), 'resource')} at"
            output.ready("mtl.client", login.connect, reading, metrics_url=client.metrics_url)
            pace.saw()
            doing = f"receiving from {', '.join(resources)} at {' '.join(login.connect)}"
            with watching(output, lambda: client.stats, doing=doing, prints=True, count=count, counted="contents"):
                reason = printing.run(pace)
            taking.end()
        reader.close()
        output.stopped(reason, reader.stats, f"{counted(printing.printed, 'content')} printed")


def _window(window: int, count: int | None) -> int:
    """How many contents may be unconfirmed: no more than are wanted."""
    # The last ones are confirmed at the end, and would be printed again after a crash before that.
    return window if count is None else min(window, max(1, count // 10))


def _limit(count: int | None) -> int | None:
    """The limit of contents for a server without confirmations."""
    return count if count is not None and 0 < count <= _MOST_WINDOW else None


class _Taking:
    """Summons resources, and dismisses them once enough contents were sent.

    Args:
        reader: The reader.
        resources: The resources.
        count: How many contents are wanted; None for no limit.
        window: How many may be unconfirmed; None if contents are not confirmed.
    """

    def __init__(self, reader: Reader, resources: Sequence[str], count: int | None, window: int | None) -> None:
        self._reader = reader
        self._resources = [] if count == 0 else list(dict.fromkeys(resources))
        # For each confirmed content the server sends another one, up to the last.
        self._free = None if count is None or window is None else count - window
        self._held: list[mtl.Content] = []

    def begin(self) -> None:
        """Summons the resources."""
        for resource in self._resources:
            self._reader.summon(resource)

    def printed(self, content: mtl.Content) -> None:
        """Confirms what was printed, or defers it if the server would send another content for it."""
        if self._free is None:
            content.confirm()
        elif self._free > 0:
            self._free -= 1
            content.confirm()
        else:
            self._held.append(content)

    def end(self) -> None:
        """Dismisses the resources, and confirms what was deferred."""
        if not self._held:
            return
        # If a dismissal fails, printed contents are confirmed all the same.
        with suppress(errors.TrunklineError):
            for resource in self._resources:
                self._reader.dismiss(resource, timeout_s=_FAREWELL_S)
        for content in self._held:
            content.confirm()


def _show(printer: Printer, content: mtl.Content) -> None:
    """Prints a content."""
    fields = {
        "resource": content.resource,
        "sequence": content.sequence,
        "properties": content.properties,
        "redelivered": content.redelivered,
    }
    if printer.output.json:
        printer.output.event("content", **fields, body=printer.payload([content.body])["payload"][0])
    elif printer.is_plain:
        printer.output.raw(content.body)
    else:
        printer.show(
            MessageView(f"content {content.sequence}", content.resource, fields, content.properties, [content.body])
        )


def _no_number(name: str) -> NoReturn:
    message = f"{name} is not a number in JSON"
    raise ValueError(message)


def _number(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _no_number(digits)


_QUEUE_COLUMNS = ("name", "messages", "unconfirmed", "bytes", "readers", "writers")


def _names(client: mtl.Client) -> Iterator[str]:
    """The names of all queues, page by page."""
    page: dict[str, Any] = {}
    while True:
        reply = client.command("Queue.List", page).body
        yield from reply["queues"]
        if not reply.get("more"):
            return
        page = {"after": reply["queues"][-1]}


def queues(
    *,
    login: Login,
    sockets: DialingSockets,
    as_json: Json = False,
) -> None:
    """Lists the queues of a running server and their depths."""
    made, who = sockets.keywords(), login.keywords()
    from trunkline import mtl

    output = Output(json=as_json)
    with unless_refused(login.connect), mtl.Client(**who, **made) as client:
        found = [client.command("Queue.Info", {"name": name}).body for name in _names(client)]
    found = [{name: value for name, value in queue.items() if name != "status"} for queue in found]
    output.listing("queue", _QUEUE_COLUMNS, found)


def call(
    command: Annotated[
        str, typer.Argument(metavar="CLASS.METHOD", help="The command, e.g. Queue.Info.", callback=encodable)
    ],
    body: Annotated[
        str, typer.Argument(metavar="JSON", help="Its arguments, a JSON object.", callback=encodable)
    ] = "{}",
    *,
    login: Login,
    sockets: DialingSockets,
    capturing: Capturing,
    segments: Segments,
    secrets: Secrets,
    as_json: Json = False,
) -> None:
    """Sends a command to a server, and prints the reply."""
    try:
        fields = json.loads(body, parse_constant=_no_number, parse_float=_number)
    except ValueError as error:
        message = f"{body!r} is not valid JSON: {error}."
        raise typer.BadParameter(message, param_hint="JSON") from None
    if not isinstance(fields, dict):
        message = f"{body!r} is not a JSON object."
        raise typer.BadParameter(message, param_hint="JSON")
    made, who, recorded = sockets.keywords(), login.keywords(), capturing.keywords(segments)
    recorded["capture_secrets"] = secrets.kept(capturing)
    from trunkline import mtl

    output = Output(json=as_json)
    with unless_refused(login.connect), mtl.Client(**who, **made, **recorded) as client, closing(client.close):
        try:
            reply = client.command(command, fields)
        except errors.RemoteProtocolError as error:
            if error.status is None:
                raise
            status, answer = error.status, error.body
        else:
            status, answer = reply.status, reply.body
    output.result("reply", f"{status} {json.dumps(answer, ensure_ascii=False)}", status=status, body=answer)
    if status >= 400:
        raise typer.Exit(1)

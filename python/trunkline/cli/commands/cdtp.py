"""`trunkline cdtp`: send, receive and record."""

from __future__ import annotations

import functools
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from trunkline import errors
from trunkline._text import counted, readable
from trunkline.cli.options.commands import Commands
from trunkline.cli.options.groups import Endpoints, Segments, Sockets, Source
from trunkline.cli.options.shared import (
    Chirp,
    ChirpOption,
    DrainSeconds,
    Group,
    Idle,
    Json,
    Metrics,
    StatsInterval,
    encodable,
    ending_after,
    example,
)
from trunkline.cli.process import running
from trunkline.cli.process.input import lines
from trunkline.cli.process.signals import CUT_OFF, Stopping
from trunkline.cli.process.waiting import Pace
from trunkline.cli.terminal.content import Content, MessageView, Printer, Showing
from trunkline.cli.terminal.output import Output, Reason
from trunkline.cli.terminal.panel import watching
from trunkline.cli.terminal.rates import records_of
from trunkline.cli.terminal.streaming import Lines

if TYPE_CHECKING:
    from trunkline.cdtp import Message, Receiver, Sender
    from trunkline.cli.terminal.json_lines import Line

app = Commands(help="CDTP: one sender streams data to one receiver.")


# How many incomplete runs the last line of a recorder names: as text, and as JSON.
_RUNS_SAID = 3
_RUNS_MAX = 1000


class Header(StrEnum):
    """The headers a sender can write."""

    S = "S"
    A = "A"
    B = "B"
    TWO = "2"


@app.command(
    epilog=example("echo hello | trunkline cdtp send --name Detector.one --connect tcp://127.0.0.1:23999 --tag run=7 -")
)
def send(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="One message per file; - is standard input, one message per line."),
    ],
    *,
    name: Annotated[str, typer.Option("--name", help="The sender's name.", callback=encodable)],
    endpoints: Endpoints,
    header: Annotated[Header, typer.Option("--header", help="Which header to write.")] = Header.S,
    group: Group = None,
    chirp: ChirpOption = Chirp.MULTICAST,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag", metavar="K=V", help="A tag; V is parsed as JSON if possible, else taken as a string. Repeatable."
        ),
    ] = None,
    batch_bytes: Annotated[
        int,
        typer.Option("--batch-bytes", min=0, metavar="BYTES", help="With header 2, the size of a batch in bytes."),
    ] = 131_072,
    batch_seconds: Annotated[
        float,
        typer.Option(
            "--batch-seconds",
            min=0,
            metavar="S",
            help="With header 2, how long a message may wait for its batch.",
        ),
    ] = 0.5,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0.001,
            metavar="S",
            help="How long to wait while no receiver takes a message. [default: no limit]",
        ),
    ] = None,
    sockets: Sockets,
    as_json: Json = False,
    stats_interval: StatsInterval = None,
    metrics: Metrics = None,
    drain_seconds: DrainSeconds = 5.0,
) -> None:
    """Sends files as messages, and waits for a receiver."""
    endpoints.check()
    if group is not None and not any(endpoint.startswith("tcp://") for endpoint in endpoints.bind or ()):
        message = "--group offers a TCP endpoint: give --bind one."
        raise typer.BadParameter(message)
    made = sockets.keywords()
    _need_files(files)
    tags = _tags(tag or [])
    from trunkline import cdtp

    output = Output(json=as_json)
    with Stopping() as stopping:
        sender = cdtp.Sender(
            name,
            header=header.value,
            linger_s=drain_seconds,
            batch_bytes=batch_bytes,
            batch_s=batch_seconds,
            group=group,
            chirp=chirp.value,
            metrics=metrics,
            **made,
            **endpoints.keywords(),
        )
        where = endpoints.real(sender.endpoints)
        output.ready("cdtp.sender", where, "sending to", metrics_url=sender.metrics_url)
        pace = Pace(stopping, lambda: output.stats(sender.stats), stats_interval, timeout)
        with watching(output, lambda: sender.stats, doing=" ".join(("sending to", *where))):
            reason = _Sending(sender, pace).send_all(files, tags)
        # Without any receiver so far, do not wait longer for one.
        had_no_receiver = reason == "timeout" and not sender.stats.sent
        what = "record" if header is Header.TWO else "message"
        unsent = 0
        try:
            sender.close(linger_s=0.0 if had_no_receiver else None, interrupted=reason != "eof")
        except errors.TimeoutError as error:
            unsent = error.unsent or 0
            why = (
                f"{counted(unsent, what)} not sent: no receiver took any within {timeout:g} s"
                if had_no_receiver
                else error
            )
            logging.getLogger("trunkline.cdtp").warning("%s: %s", name, why)
        output.stopped(reason, sender.stats, f"{counted(sender.stats.sent, what)} sent")
    if unsent:
        raise typer.Exit(1 if reason == "timeout" else CUT_OFF)


class _Sending:
    """Sends files to receivers."""

    def __init__(self, sender: Sender, pace: Pace) -> None:
        self._sender = sender
        self._pace = pace
        self._ended: Reason | None = None

    def send_all(self, files: Sequence[Path], tags: dict[str, Any]) -> Reason:
        """Sends everything and waits until the transport has accepted it, a timeout without progress, or a signal."""
        for payload in self._payloads(files):
            self._until_done(functools.partial(self._sender.send, payload, tags=tags))
        self._until_done(self._sender.flush)
        return self._ended or "eof"

    def _payloads(self, files: Sequence[Path]) -> Iterator[bytes]:
        for file in files:
            if str(file) == "-":
                yield from lines(self._goes_on)
            elif self._ended is None:
                yield file.read_bytes()

    def _until_done(self, step: Callable[..., object]) -> None:
        while self._goes_on():
            with suppress(errors.TimeoutError):
                step(timeout_s=self._pace.wait_s())
                return

    def _goes_on(self) -> bool:
        self._pace.look_up()
        self._pace.saw_progress(self._sender.stats.sent)
        if self._pace.stopped:
            self._ended = "signal"
        elif self._pace.idle:
            self._ended = "timeout"
        return self._ended is None


def _need_files(files: Sequence[Path]) -> None:
    # Before anything is sent: half a list of messages is of no use.
    for file in files:
        if str(file) != "-" and not os.access(file, os.R_OK):
            reason = "cannot be read" if file.exists() else "does not exist"
            message = f"{str(file)!r} {reason}."
            raise typer.BadParameter(message, param_hint="FILE")
        if file.is_dir():
            message = f"{str(file)!r} is a directory."
            raise typer.BadParameter(message, param_hint="FILE")


def _tags(given: Sequence[str]) -> dict[str, Any]:
    from trunkline import msgpack

    tags: dict[str, Any] = {}
    for pair in given:
        key, equals, text = pair.partition("=")
        if not equals:
            message = f"--tag takes K=V, not {pair!r}."
            raise typer.BadParameter(message)
        try:
            tags[key] = json.loads(text, parse_constant=_no_json)
        except ValueError:
            tags[key] = text
    try:
        msgpack.encode(tags)
    except (OverflowError, ValueError) as error:
        message = f"--tag: {error}."
        raise typer.BadParameter(message) from None
    return tags


def _no_json(constant: str) -> NoReturn:
    """Python reads NaN and Infinity; JSON has neither."""
    raise ValueError(constant)


@app.command(epilog=example("trunkline cdtp receive --connect tcp://127.0.0.1:23999 --count 10 --json"))
def receive(
    *,
    source: Source,
    count: Annotated[
        int | None,
        ending_after(
            "printing this many messages: a CDTP2 message counts once per record, an undecodable one does not count"
        ),
    ] = None,
    idle: Idle = None,
    content: Content,
    sockets: Sockets,
    as_json: Json = False,
    stats_interval: StatsInterval = None,
    metrics: Metrics = None,
    drain_seconds: DrainSeconds = 5.0,
) -> None:
    """Prints messages as they arrive."""
    source.check()
    output = Output(json=as_json)
    printer = content.printer(output)
    made = sockets.keywords()
    from trunkline import cdtp

    with (
        Stopping() as stopping,
        cdtp.Receiver(message_limit=count, metrics=metrics, **made, **source.keywords()) as receiver,
    ):
        where = source.real(receiver.endpoints)
        output.ready("cdtp.receiver", where, f"receiving from{source.words}", metrics_url=receiver.metrics_url)
        pace = Pace(stopping, lambda: output.stats(receiver.stats), stats_interval, idle, output.need_reader)
        printing = _Printing(receiver, printer)
        doing = " ".join(("receiving from", *where)) + source.words
        with watching(output, lambda: receiver.stats, doing=doing, prints=True, count=count, counted="messages"):
            reason = printing.run(count, stopping, drain_seconds, pace)
        receiver.close()
        what = "message" if records_of(receiver.stats) is None else "record"
        output.stopped(reason, receiver.stats, f"{counted(printing.printed, what)} printed")


class _Printing:
    """Prints received messages."""

    def __init__(self, receiver: Receiver, printer: Printer) -> None:
        self._receiver = receiver
        self._printer = printer
        self._lines = Lines(printer.limit) if printer.output.json else None
        self.printed = 0

    def run(self, count: int | None, stopping: Stopping, drain_s: float, pace: Pace) -> Reason:
        with self._printer.output.holding():
            is_stopped = False
            while count is None or self.printed < count:
                if stopping.stopped and not is_stopped:
                    # Messages that have arrived are still printed.
                    is_stopped = True
                    self._receiver.stop(drain_s=drain_s)
                if stopping.overdue(drain_s):
                    return "signal"
                try:
                    message = self._next(pace)
                except errors.TimeoutError:
                    # Messages that are not printed count as progress too.
                    pace.saw_progress(self._receiver.stats.received)
                    if pace.idle:
                        return "idle"
                except errors.ClosedError:
                    if not stopping.stopped:
                        raise
                    return "signal"
                else:
                    pace.saw()
                    self._print(message)
                    self.printed += 1
                pace.look_up()
        return "count"

    def _print(self, message: Message) -> None:
        line = None
        if self._lines is not None:
            # A message with too many tags is printed by the slower path.
            with suppress(errors.DecodeError):
                line = self._lines.of(message)
        if line is None:
            self._printer.event(MessageView.of(message))
        else:
            self._printer.output.line(line)

    def _next(self, pace: Pace) -> Message:
        """The next message. Before it waits, all earlier ones are printed."""
        try:
            return self._receiver.receive(timeout_s=0)
        except errors.TimeoutError:
            self._printer.output.flush()
            return self._receiver.receive(timeout_s=pace.wait_s())


@app.command(
    epilog=example(
        "trunkline cdtp record --capture run7 --connect tcp://127.0.0.1:23999 --connect tcp://127.0.0.1:24000"
    )
)
def record(
    *,
    capture: Annotated[
        Path,
        typer.Option(
            "--capture", metavar="DIR", help="Where to record; an existing capture is continued.", file_okay=False
        ),
    ],
    source: Source,
    count: Annotated[
        int | None,
        ending_after("this many wire messages, undecodable ones included; a CDTP2 message holds many records"),
    ] = None,
    idle: Idle = None,
    segments: Segments,
    sockets: Sockets,
    as_json: Json = False,
    stats_interval: StatsInterval = None,
    metrics: Metrics = None,
    drain_seconds: DrainSeconds = 5.0,
) -> None:
    """Records everything that arrives until the count, the idle time or a signal."""
    source.check()
    made = sockets.keywords()
    from trunkline import cdtp

    output = Output(json=as_json)
    began_ns = time.time_ns()
    with (
        Stopping() as stopping,
        cdtp.Recorder(
            capture,
            limit=count,
            metrics=metrics,
            **made,
            **segments.keywords(),
            **source.keywords(),
        ) as recorder,
    ):
        doing = f"recording to {capture} from{source.words}"
        output.ready("cdtp.recorder", source.real(recorder.endpoints), doing, metrics_url=recorder.metrics_url)
        where = " ".join((doing, *source.real(recorder.endpoints)))
        pace = Pace(stopping, lambda: output.stats(recorder.stats), stats_interval, idle)
        with watching(output, lambda: recorder.stats, doing=where, count=count, capture=capture):
            wait = functools.partial(recorder.wait, count=count)
            reason = running.recorded(wait, lambda: recorder.stats.received, pace)
        with running.draining(drain_seconds):
            recorder.close(drain_s=drain_seconds)
        stats = recorder.stats
        missing = _missing_since(capture, began_ns)
        records = records_of(stats)
        recorded = (
            counted(stats.recorded, "message")
            if records is None
            else f"{counted(records, 'record')} in {counted(stats.recorded, 'wire message')}"
        )
        words = [f"{recorded} recorded", *_words_of(missing)]
        output.stopped(reason, stats, "; ".join(words), missing=missing)


def _missing_since(directory: Path, began_ns: int) -> list[dict[str, Any]]:
    """The incomplete runs with messages since then, at most the last thousand; messages before this recorder count too."""
    from trunkline import capture

    runs = [run for run in capture.open(directory).runs() if run.missed and run.last_received_at_ns >= began_ns]
    return [
        {"sender": run.sender, "run_id": run.run_id, "condition": run.condition, "missed": run.missed}
        for run in runs[-_RUNS_MAX:]
    ]


def _words_of(missing: list[dict[str, Any]]) -> list[str]:
    """The incomplete runs as text; only the first few."""
    words = [
        readable(f"{run['run_id'] or 'a run'} of {run['sender']}: {run['missed']:,} missing ({run['condition']})")
        for run in missing[:_RUNS_SAID]
    ]
    more = len(missing) - len(words)
    return [*words, f"messages missing in {counted(more, 'more run')}"] if more else words


def _view(message: Any) -> MessageView:
    names = ("sender", "variant", "timestamp_ns", "type", "sequence")
    fields = {name: getattr(message, name) for name in names}
    # Tags beyond the limits are left out.
    fields["tags"] = content = None
    with suppress(errors.DecodeError):
        fields["tags"] = message.tags
    name = {"BOR": "config", "EOR": "metadata"}.get(message.type)
    if name is not None:
        with suppress(errors.DecodeError):
            fields[name] = content = getattr(message, name)
    kind = "" if message.type is None else f"{message.type} {message.sequence}"
    details = fields["tags"] if content is None else content
    return MessageView(kind, message.sender, fields, details, message.payload, shows_payload=content is not None)


SHOWING = Showing(
    _view,
    fields=("sender", "variant", "sequence", "timestamp_ns", "tags", "config", "metadata"),
    members=("tags", "config", "metadata"),
)


def json_lines() -> dict[str, list[Line]]:
    """The lines of JSON of these commands."""
    from trunkline import cdtp
    from trunkline.cli.terminal.json_lines import PAYLOAD, Maybe, line, role

    message = {
        "sender": str,
        "variant": Literal["S", "A", "B", "2"],
        "timestamp_ns": int | None,
        "type": str | None,
        "sequence": int | None,
        "tags": Any,
        "config": Maybe(Any),
        "metadata": Maybe(Any),
        **PAYLOAD,
    }
    return {
        "cdtp send": role(cdtp.SenderStats),
        "cdtp receive": [*role(cdtp.ReceiverStats), line("message", **message)],
        "cdtp record": role(cdtp.RecorderStats, missing=list[dict[str, Any]]),
    }

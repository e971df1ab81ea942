"""`trunkline dcp request`: sends requests to a service."""

from __future__ import annotations

import concurrent.futures
import functools
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from trunkline import errors
from trunkline._text import counted
from trunkline.cli.options.dcp import STATUS, Endpoints, no_broker
from trunkline.cli.options.groups import Capturing, DialingSockets, Segments
from trunkline.cli.options.shared import Json, example
from trunkline.cli.process.in_flight import Flight
from trunkline.cli.process.input import parts
from trunkline.cli.process.refusals import unless_refused
from trunkline.cli.process.signals import closing
from trunkline.cli.terminal.content import text_of
from trunkline.cli.terminal.latency import Latency, a_second
from trunkline.cli.terminal.output import Output
from trunkline.cli.terminal.progress import Progress

if TYPE_CHECKING:
    from trunkline.dcp import Client, Reply

__all__ = ["EXAMPLE", "Asked", "request"]

EXAMPLE = example(
    "trunkline dcp request upper hello --connect tcp://127.0.0.1:23990 --count 1000 --in-flight 100 --json"
)

# How long a broker may take to report its status when a request got no reply.
_ASIDE_S = 1.0


@dataclass(frozen=True, slots=True)
class Asked:
    """The results of a number of requests."""

    requests: int
    replies: int
    timeouts: int
    empty: int
    rate: float
    latency_ms: Latency


def request(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="The service.")],
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATA",
            help="The parts of the request, @FILE for what is in a file; - is all of standard input.",
            show_default=False,
        ),
    ] = None,
    *,
    connect: Endpoints,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=0,
            metavar="S",
            help="How long to wait for each reply: for the broker, for a free worker and for its work.",
        ),
    ] = 5.0,
    retries: Annotated[
        int, typer.Option("--retries", min=0, metavar="N", help="How many times to retry when no reply came in time.")
    ] = 0,
    count: Annotated[int, typer.Option("--count", min=1, metavar="N", help="How many requests to send.")] = 1,
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=1, metavar="N", help="How many requests may be in flight.")
    ] = 1,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print the data of replies only, byte for byte, with nothing between them.")
    ] = False,
    sockets: DialingSockets,
    capturing: Capturing,
    segments: Segments,
    as_json: Json = False,
) -> None:
    """Sends requests to a service, prints the replies, and reports their latency.

    An empty reply to a request with data counts as failed: that is how a worker answers when its handler raised.
    """
    if raw and as_json:
        message = "--raw and --json exclude each other."
        raise typer.BadParameter(message)
    made, recorded = sockets.keywords(), capturing.keywords(segments)
    from trunkline import dcp

    output = Output(json=as_json)
    asking = _Asking(service, data or [], timeout, retries, raw=raw)
    with (
        dcp.Client(connect=connect, **made, **recorded) as client,
        closing(functools.partial(client.close, drain_s=0.0)),
        Progress(f"asking {service}", count) as progress,
    ):
        try:
            with unless_refused(connect):
                asking.ask_all(client, count, in_flight, output, progress)
                asked = asking.asked(count)
                why = None if asked.replies else _why(client, service, connect)
        except errors.AuthenticationError:
            asked = asking.asked(count)
            why = _Why("refused", no_broker(connect))
    failed = bool(asked.timeouts or asked.empty or why)
    if why is None:
        output.summary("count", asked, _summary(asked), failed=failed)
    else:
        output.summary("count", asked, f"{_summary(asked)}; {why.text}", failed=failed, why=why.slug)


class _Why(NamedTuple):
    """Why no reply came, as a slug and as text."""

    slug: str
    text: str


def _why(client: Client, service: str, connect: Sequence[str]) -> _Why | None:
    """Why no reply came, as far as the broker knows."""
    try:
        reply = client.request(STATUS, b"", timeout_s=_ASIDE_S)
        workers = {one["service"]: one["workers"] for one in json.loads(reply.data[0])["services"]}
    except errors.TimeoutError:
        return _Why("no_broker", no_broker(connect))
    except (IndexError, KeyError, TypeError, ValueError):
        # A worker offers a service of that name, with other replies.
        return None
    if not workers.get(service):
        return _Why("no_worker", f"the broker answers: it has no worker for {service}")
    return _Why("no_reply", f"the broker answers: {counted(workers[service], 'worker')} of {service} took too long")


class _Asking:
    """Sends the same request many times."""

    def __init__(self, service: str, data: Sequence[str], timeout_s: float, retries: int, *, raw: bool) -> None:
        self._service = os.fsencode(service)
        self._data = parts(data)
        self._timeout_s = timeout_s
        self._retries = retries
        self._raw = raw
        self._flight: Flight[Reply] = Flight()
        self._latencies_ms: list[float] = []
        self._timeouts = 0
        self._empty = 0
        self._start = time.monotonic()

    def ask_all(self, client: Client, count: int, in_flight: int, output: Output, progress: Progress) -> None:
        begun = ended = 0
        while ended < count:
            while begun < count and begun - ended < in_flight:
                self._flight.submit(begun, lambda: self._ask(client))
                begun += 1
            landed = self._flight.landed()
            if landed is not None:
                ended += 1
                self._report(*landed, output)
            progress.at(ended)

    def _ask(self, client: Client) -> concurrent.futures.Future[Reply]:
        return client.submit(self._service, self._data, timeout_s=self._timeout_s, retries=self._retries)

    def _report(self, index: int, future: concurrent.futures.Future[Reply], latency_ms: float, output: Output) -> None:
        try:
            reply = future.result()
        except errors.TimeoutError:
            self._timeouts += 1
            late = f"request {index} timed out after {self._timeout_s:g} s"
            output.remark("timeout", late, index=index)
            return
        self._latencies_ms.append(latency_ms)
        is_empty = not reply.data and bool(self._data)
        self._empty += is_empty
        if output.json:
            output.event(
                "reply", index=index, data=reply.data, metadata=reply.metadata, latency_ms=round(latency_ms, 3)
            )
        elif is_empty:
            output.note(f"request {index}: the reply is empty: its handler failed, or returned nothing")
        elif self._raw:
            output.whole(b"".join(reply.data))
        else:
            output.line(" ".join(text_of([part.removesuffix(b"\n")], None) for part in reply.data))

    def asked(self, count: int) -> Asked:
        """The results so far."""
        replies = len(self._latencies_ms)
        rate = round(replies / (time.monotonic() - self._start), 1)
        return Asked(count, replies, self._timeouts, self._empty, rate, Latency.of(self._latencies_ms))


def _summary(asked: Asked) -> str:
    text = f"{asked.replies:,} of {asked.requests:,} replied to{a_second(asked.replies, asked.rate)}"
    return f"{text}; {asked.latency_ms}" if asked.replies else text

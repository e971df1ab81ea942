"""`trunkline dcp`: broker, worker and client."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trunkline import errors
from trunkline._jsonable import named
from trunkline._text import OWN, counted, text_or_digits
from trunkline.cli.commands import dcp_request, dcp_worker
from trunkline.cli.options.commands import Commands
from trunkline.cli.options.dcp import STATUS, Endpoints, HeartbeatInterval, Liveness, need_heartbeat, no_broker
from trunkline.cli.options.groups import Capturing, DialingSockets, Segments, Sockets
from trunkline.cli.options.shared import DrainSeconds, Json, Metrics, StatsInterval, example, listens
from trunkline.cli.process import running
from trunkline.cli.process.refusals import unless_refused
from trunkline.cli.process.signals import Stopping
from trunkline.cli.terminal.content import MessageView, Showing
from trunkline.cli.terminal.output import Output

if TYPE_CHECKING:
    from trunkline.cli.terminal.json_lines import Line

app = Commands(help="DCP: a service broker; clients send requests, workers answer them.")


class Overflow(StrEnum):
    """Which request to drop when a queue is full."""

    REJECT_NEWEST = "reject-newest"
    DROP_OLDEST = "drop-oldest"


class ClientAddress(StrEnum):
    """Which peers' client addresses are trusted."""

    ANY = "any"
    WORKERS_ONLY = "workers-only"


@app.command(epilog=example("trunkline dcp broker --bind tcp://127.0.0.1:23990 --queue-ttl 10"))
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
        int, typer.Option("--max-queue-bytes", min=0, metavar="BYTES", help="How many bytes may be queued in total.")
    ] = 256 << 20,
    queue_ttl: Annotated[
        float,
        typer.Option("--queue-ttl", min=0, metavar="S", help="How long a request may stay queued."),
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
        bool, typer.Option("--no-status", help="Do not answer clients that ask for the list of services.")
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
    metrics: Metrics = None,
    drain_seconds: DrainSeconds = 5.0,
) -> None:
    """Queues requests for each service and hands them to workers as they become free."""
    need_heartbeat(heartbeat_interval, liveness)
    made, recorded = sockets.keywords(), capturing.keywords(segments)
    from trunkline import dcp

    with (
        Stopping() as stopping,
        dcp.Broker(
            bind=bind,
            raise_file_limit=True,
            metrics=metrics,
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
            doing="broker listening on",
            stats_interval=stats_interval,
            drain_s=drain_seconds,
            capture=capturing.capture,
        )


# The columns that a narrow terminal leaves out, the least important first.
_LEAST_OF_SERVICES = ("free", "replies", "requests")
_SERVICE_COLUMNS = ("service", "workers", "free", "queued", "requests", "replies", "expired")


@app.command(epilog=example("trunkline dcp services --connect tcp://127.0.0.1:23990"))
def services(
    *,
    connect: Endpoints,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.001, metavar="S", help="How long to wait for the broker and its answer.")
    ] = 5.0,
    sockets: DialingSockets,
    as_json: Json = False,
) -> None:
    """Lists the services of a running broker and their workers."""
    made = sockets.keywords()
    from trunkline import dcp

    output = Output(json=as_json)
    with dcp.Client(connect=connect, **made) as client, unless_refused(connect):
        try:
            reply = client.request(STATUS, b"", timeout_s=timeout)
        except errors.TimeoutError:
            message = f"{no_broker(connect)}: waited for {timeout:g} s"
            raise errors.TimeoutError(message) from None
    status = json.loads(reply.data[0])
    # Workers that leave register for an internal service of trunkline.
    services = [{**service, "service": named(service["service"])} for service in status["services"]]
    found = [service for service in services if not service["service"].startswith(OWN.encode())]
    output.listing("service", _SERVICE_COLUMNS, found, _LEAST_OF_SERVICES)
    if not output.json:
        peers = counted(status["peers"], "peer")
        output.note(f"{peers}; {counted(status['received'], 'message')} received, {status['sent']:,} sent")


app.command(epilog=dcp_worker.EXAMPLE)(dcp_worker.worker)
app.command(epilog=dcp_request.EXAMPLE)(dcp_request.request)


_CORRELATION_BYTES = 16


def _is_correlation(part: bytes) -> bool:
    """Whether it is a correlation id of our client: 8 random bytes and a number."""
    return len(part) == _CORRELATION_BYTES and text_or_digits(part).startswith("0x")


def _view(message: Any) -> MessageView:
    fields = {name: getattr(message, name) for name in ("type", "service", "client", "metadata")}
    shown = [part for at, part in enumerate(message.metadata) if at or not _is_correlation(part)]
    details = {"metadata": shown} if shown else {}
    service = "" if message.service is None else message.service.decode(errors="backslashreplace")
    return MessageView(message.type, service, fields, details, message.data)


SHOWING = Showing(_view, fields=("service", "client", "metadata"))


def json_lines() -> dict[str, list[Line]]:
    """The lines of JSON of these commands."""
    from trunkline import dcp
    from trunkline.cli.terminal.json_lines import TIMED_OUT, Maybe, line, role, stopped

    service = dict.fromkeys(("workers", "free", "queued", "requests", "replies", "expired"), int)
    return {
        "dcp broker": role(dcp.BrokerStats),
        "dcp services": [line("service", service=str, **service)],
        "dcp worker": role(dcp.WorkerStats),
        "dcp request": [
            line("reply", index=int, data=list[str], metadata=list[str], latency_ms=float),
            TIMED_OUT,
            stopped(dcp_request.Asked, why=Maybe(Literal["no_broker", "refused", "no_worker", "no_reply"])),
        ],
    }

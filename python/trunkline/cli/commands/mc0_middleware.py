"""`trunkline mc0 middleware`: forwards published messages to subscribers."""

from __future__ import annotations

import signal
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.options.groups import Capturing, Segments, Sockets
from trunkline.cli.options.shared import SOMEWHERE, Check, DrainSeconds, Json, Metrics, StatsInterval, example, listens
from trunkline.cli.process import running
from trunkline.cli.process.reloading import Reloading
from trunkline.cli.process.signals import Stopping
from trunkline.cli.terminal.output import Output

EXAMPLE = example(
    "trunkline mc0 middleware --bind tcp://0.0.0.0:61616 --curve-secret bus.key_secret --curve-allow keys --policy policy.toml"
)


class Overflow(StrEnum):
    """What a full queue of a client does."""

    DROP_NEWEST = "drop-newest"
    DROP_OLDEST = "drop-oldest"
    DISCONNECT = "disconnect"


def middleware(
    context: typer.Context,
    *,
    bind: Annotated[
        list[str],
        typer.Option(
            "--bind", metavar="ENDPOINT", help="Listen here, e.g. tcp://127.0.0.1:*. Repeatable.", callback=listens
        ),
    ],
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            metavar="FILE",
            help="Who may publish and subscribe to what; SIGHUP reloads it. [default: all]",
        ),
    ] = None,
    overflow: Annotated[
        Overflow, typer.Option("--overflow", help="What to drop when the queue of a client is full.")
    ] = Overflow.DROP_NEWEST,
    client_queue_messages: Annotated[
        int,
        typer.Option(
            "--client-queue-messages", min=1, metavar="N", help="How many messages may be queued for one client."
        ),
    ] = 10_000,
    client_queue_bytes: Annotated[
        int,
        typer.Option(
            "--client-queue-bytes", min=1, metavar="BYTES", help="How many bytes may be queued for one client."
        ),
    ] = 16 << 20,
    max_ttl: Annotated[
        int,
        typer.Option(
            "--max-ttl",
            min=0,
            metavar="MS",
            help="The longest TTL a client may ask for: how long it may be silent before it is dropped.",
        ),
    ] = 24 * 60 * 60 * 1000,
    max_topics: Annotated[
        int,
        typer.Option("--max-topics", min=0, metavar="N", help="How many topics may have subscribers at the same time."),
    ] = 100_000,
    no_status: Annotated[
        bool, typer.Option("--no-status", help="Do not answer clients that ask for the list of topics.")
    ] = False,
    sockets: Sockets,
    capturing: Capturing,
    segments: Segments,
    as_json: Json = False,
    stats_interval: StatsInterval = None,
    metrics: Metrics = None,
    drain_seconds: DrainSeconds = 5.0,
    check: Check = False,
) -> None:
    """Forwards what is published on a topic to the clients subscribed to it."""
    made, recorded = sockets.keywords(), {} if check else capturing.keywords(segments)
    from trunkline import mc0

    reloading = Reloading("policy and allow-list stay")
    if policy is not None or sockets.curve_allow is not None:
        signal.signal(signal.SIGHUP, reloading.reload)
    with (
        Stopping() as stopping,
        mc0.Middleware(
            bind=SOMEWHERE if check else bind,
            raise_file_limit=True,
            metrics=None if check else metrics,
            **made,
            **recorded,
            policy=policy,
            overflow=overflow.value,
            client_queue_messages=client_queue_messages,
            client_queue_bytes=client_queue_bytes,
            max_ttl=max_ttl,
            max_topics=max_topics,
            status=not no_status,
        ) as role,
    ):
        if check:
            Output(json=as_json).checked(context)
            return
        reloading.begin(role.reload)
        running.run(
            role,
            stopping,
            Output(json=as_json),
            name="mc0.middleware",
            doing="middleware listening on",
            stats_interval=stats_interval,
            drain_s=drain_seconds,
            capture=capturing.capture,
        )

"""`trunkline mtl server`: authenticate clients, and deliver contents."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.options.groups import Capturing, Segments, Sockets
from trunkline.cli.options.shared import (
    SOMEWHERE,
    Check,
    DrainSeconds,
    Json,
    Metrics,
    StatsInterval,
    encodable,
    example,
    listens,
)
from trunkline.cli.process import running
from trunkline.cli.process.reloading import Reloading
from trunkline.cli.process.signals import Stopping
from trunkline.cli.terminal.output import Output

__all__ = ["EXAMPLE", "Liveness", "PingInterval", "Secrets", "server"]

EXAMPLE = example(
    "trunkline mtl users add ada --file users.toml",
    "trunkline mtl server --bind tcp://0.0.0.0:5975 --users users.toml --profile queue --resource jobs --durable store",
)

PingInterval = Annotated[
    float,
    typer.Option(
        "--ping-interval",
        min=0.001,
        metavar="S",
        help="Ping the other end after this much silence.",
    ),
]
Liveness = Annotated[
    int,
    typer.Option(
        "--liveness", min=2, metavar="N", help="Unanswered pings after which the other end is considered gone."
    ),
]


@dataclass(frozen=True)
class Secrets:
    """Whether a capture contains credentials."""

    capture_secrets: Annotated[
        bool,
        typer.Option(
            "--capture-secrets", help="Record passwords, logins and leases too. [default: placeholders instead]"
        ),
    ] = False

    def kept(self, capturing: Capturing) -> bool:
        """The argument of roles."""
        if self.capture_secrets and capturing.capture is None:
            message = "Nothing is recorded: give --capture, or leave out --capture-secrets."
            raise typer.BadParameter(message)
        return self.capture_secrets


def server(
    context: typer.Context,
    *,
    bind: Annotated[
        list[str],
        typer.Option(
            "--bind", metavar="ENDPOINT", help="Listen here, e.g. tcp://127.0.0.1:*. Repeatable.", callback=listens
        ),
    ],
    data_bind: Annotated[
        list[str] | None,
        typer.Option(
            "--data-bind",
            metavar="ENDPOINT",
            help="Listen for data here. [default: the endpoints of --bind]",
            callback=listens,
        ),
    ] = None,
    users: Annotated[
        Path | None,
        typer.Option("--users", metavar="FILE", help="The users who may log in, see `mtl users`; SIGHUP reloads it."),
    ] = None,
    anonymous: Annotated[bool, typer.Option("--anonymous", help="Also admit clients that do not log in.")] = False,
    virtual_host: Annotated[
        list[str] | None,
        typer.Option(
            "--virtual-host", metavar="NAME", help="A virtual host. Repeatable. [default: /]", callback=encodable
        ),
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option("--profile", metavar="NAME", help="test or queue. Repeatable. [default: both]"),
    ] = None,
    resource: Annotated[
        list[str] | None,
        typer.Option(
            "--resource", metavar="NAME", help="A queue to create at the start. Repeatable.", callback=encodable
        ),
    ] = None,
    durable: Annotated[
        Path | None,
        typer.Option(
            "--durable", metavar="DIR", help="Store the contents of queues here: they survive a power failure."
        ),
    ] = None,
    max_queue: Annotated[
        int, typer.Option("--max-queue", min=1, metavar="N", help="How many contents a queue may hold.")
    ] = 100_000,
    max_queue_bytes: Annotated[
        int, typer.Option("--max-queue-bytes", min=1, metavar="BYTES", help="How many bytes a queue may hold.")
    ] = 256 << 20,
    queue_ttl: Annotated[
        float | None,
        typer.Option(
            "--queue-ttl",
            min=0,
            metavar="S",
            help="How long a content may stay queued. [default: no limit]",
        ),
    ] = None,
    max_queues: Annotated[
        int, typer.Option("--max-queues", min=0, metavar="N", help="How many queues clients may create.")
    ] = 10_000,
    max_user_queues: Annotated[
        int,
        typer.Option("--max-user-queues", min=0, metavar="N", help="How many of them a user who logged in may create."),
    ] = 1000,
    max_recycle: Annotated[
        int,
        typer.Option(
            "--max-recycle",
            min=0,
            metavar="N",
            help="How often a content may be returned before it becomes a dead letter.",
        ),
    ] = 5,
    ping_interval: PingInterval = 2.5,
    liveness: Liveness = 3,
    session_idle: Annotated[
        float,
        typer.Option("--session-idle", min=0, metavar="S", help="How long to keep an idle session."),
    ] = 3600.0,
    lease_idle: Annotated[
        float,
        typer.Option("--lease-idle", min=0, metavar="S", help="How long a lease may stay unused."),
    ] = 30.0,
    sockets: Sockets,
    capturing: Capturing,
    segments: Segments,
    capture_secrets: Secrets,
    as_json: Json = False,
    stats_interval: StatsInterval = None,
    metrics: Metrics = None,
    drain_seconds: DrainSeconds = 5.0,
    check: Check = False,
) -> None:
    """Authenticates clients, and delivers contents from writers to readers."""
    made, recorded = sockets.keywords(), {} if check else capturing.keywords(segments)
    from trunkline import mtl

    reloading = Reloading("users and allow-list stay")
    if users is not None or sockets.curve_allow is not None:
        signal.signal(signal.SIGHUP, reloading.reload)
    with (
        Stopping() as stopping,
        mtl.Server(
            bind=SOMEWHERE if check else bind,
            data_bind=() if check else data_bind or (),
            users=users,
            anonymous=anonymous,
            virtual_hosts=virtual_host or ("/",),
            profiles=profile or ("test", "queue"),
            resources=resource or (),
            durable=None if check else durable,
            max_queue=max_queue,
            max_queue_bytes=max_queue_bytes,
            queue_ttl_s=queue_ttl,
            max_queues=max_queues,
            max_user_queues=max_user_queues,
            max_recycle=max_recycle,
            ping_interval_s=ping_interval,
            liveness=liveness,
            session_idle_s=session_idle,
            lease_idle_s=lease_idle,
            capture_secrets=capture_secrets.kept(capturing),
            raise_file_limit=True,
            metrics=None if check else metrics,
            **made,
            **recorded,
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
            name="mtl.server",
            doing="server listening on",
            stats_interval=stats_interval,
            drain_s=drain_seconds,
            capture=capturing.capture,
            data_endpoints=role.data_endpoints if data_bind else (),
        )

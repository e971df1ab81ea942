"""`trunkline cdt`: configurations of endpoints over NATS."""

from __future__ import annotations

import functools
import os
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trunkline import errors
from trunkline._text import counted
from trunkline.cli import running
from trunkline.cli.ending import Stopped, Stopping
from trunkline.cli.family import Family
from trunkline.cli.groups import Segments, grouped
from trunkline.cli.options import (
    DrainSeconds,
    Idle,
    Json,
    Pace,
    StatsInterval,
    encodable,
    ending_after,
    example,
    span,
)
from trunkline.cli.output import Output, Reason
from trunkline.cli.panel import watching
from trunkline.cli.printing import Printing

if TYPE_CHECKING:
    from trunkline.cdt import ConfigNewAvailable, ConfigUpdated, Recorder

__all__ = ["app"]

app = typer.Typer(
    cls=Family,
    help="Configurations of endpoints over NATS: keep, push, pull and watch them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class Codec(StrEnum):
    """The encoding of bodies."""

    JSON = "json"
    AVRO = "avro"


class Confirm(StrEnum):
    """What a push waits for."""

    NONE = "none"
    STORED = "stored"
    APPLIED = "applied"


# What stands for the key-value store of the server in place of a file.
_JETSTREAM = "jetstream"

_CONFIRM: dict[Confirm, Literal["stored", "applied"] | None] = {
    Confirm.NONE: None,
    Confirm.STORED: "stored",
    Confirm.APPLIED: "applied",
}


@dataclass(frozen=True)
class Nats:
    """Where the NATS is, and who we are there."""

    nats: Annotated[
        list[str] | None,
        typer.Option(
            "--nats",
            metavar="URL",
            help="The NATS server. Repeatable, for a cluster. [default: NATS_URL, or nats://127.0.0.1:4222]",
            callback=encodable,
        ),
    ] = None
    creds: Annotated[
        Path | None, typer.Option("--creds", metavar="FILE", help="A NATS credentials file.", dir_okay=False)
    ] = None
    nkey: Annotated[
        Path | None,
        typer.Option("--nkey", metavar="FILE", help="A file whose first line is the nkey seed.", dir_okay=False),
    ] = None
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            "--tls-ca", metavar="FILE", help="Use TLS, and trust these certificate authorities.", dir_okay=False
        ),
    ] = None
    codec: Annotated[Codec, typer.Option("--codec", help="The encoding of bodies.")] = Codec.JSON

    def keywords(self) -> dict[str, Any]:
        """As roles take them."""
        tls = None
        if self.tls_ca is not None:
            try:
                tls = ssl.create_default_context(cafile=os.fspath(self.tls_ca))
            except ssl.SSLError as error:
                message = f"{self.tls_ca} holds no certificates: {error.reason or error}"
                raise errors.LocalProtocolError(message) from None
        seed = None
        if self.nkey is not None:
            seed = self.nkey.read_bytes().partition(b"\n")[0].strip().decode(errors="replace")
        return {
            "servers": self.nats or os.environ.get("NATS_URL") or "nats://127.0.0.1:4222",
            "credentials": self.creds,
            "nkey_seed": seed,
            "tls": tls,
            "codec": self.codec.value,
        }


App = Annotated[str, typer.Argument(metavar="APP", help="The version of the application.", callback=encodable)]
Endpoint = Annotated[str, typer.Argument(metavar="ENDPOINT", help="The endpoint.", callback=encodable)]
ConfigId = Annotated[str, typer.Argument(metavar="CONFIG_ID", help="The configuration.", callback=encodable)]
TargetName = Annotated[
    str, typer.Option("--target", metavar="NAME", help="The service that stores configurations.", callback=encodable)
]
Name = Annotated[
    str, typer.Option("--name", metavar="NAME", help="The service name of this client.", callback=encodable)
]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.001, metavar="S", help="How long to wait for an answer.", callback=span)
]
StoreFile = Annotated[Path, typer.Option("--store", metavar="FILE", help="The store file of a target.", dir_okay=False)]
Confirming = Annotated[Confirm, typer.Option("--confirm", help="What to wait for.")]


@app.command(epilog=example("trunkline cdt target cdp --store configs.db"))
@grouped
def target(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The service name.", callback=encodable)],
    *,
    store: Annotated[
        Path,
        typer.Option(
            "--store",
            metavar="FILE",
            help="Store them in this file, created if absent; or in jetstream.",
            dir_okay=False,
        ),
    ],
    replica_id: Annotated[
        str | None,
        typer.Option(
            "--replica-id", metavar="R", help="Which replica this is. [default: a random one]", callback=encodable
        ),
    ] = None,
    capture: Annotated[
        Path | None,
        typer.Option("--capture", metavar="DIR", help="Record everything received and sent.", file_okay=False),
    ] = None,
    nats: Nats,
    segments: Segments,
    as_json: Json = False,
    stats_interval: StatsInterval = None,
    drain_seconds: DrainSeconds = 5.0,
) -> None:
    """Stores configurations, answers pulls, takes pushes, and announces changes."""
    made = nats.keywords()
    from trunkline import cdt

    with (
        Stopping(tells=not as_json) as stopping,
        cdt.Target(
            name,
            store=_JETSTREAM if str(store) == _JETSTREAM else store,
            replica_id=replica_id,
            capture=capture,
            capture_options=segments.keywords(),
            # Nobody asks it for any.
            queue_messages=0,
            **made,
        ) as role,
    ):
        running.run(
            role,
            stopping,
            Output(json=as_json),
            name="cdt.target",
            doing=f"keeping configurations as {name} at",
            stats_interval=stats_interval,
            drain_s=drain_seconds,
            capture=capture,
        )


@app.command(epilog=example("trunkline cdt put app-1 endpoint-7 config.json --target cdp --confirm applied"))
@grouped
def put(
    app_version_name: App,
    endpoint: Endpoint,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The configuration; - is standard input.", allow_dash=True)
    ],
    *,
    target: TargetName,
    content_type: Annotated[
        str, typer.Option("--content-type", metavar="T", help="Its type.", callback=encodable)
    ] = "application/json",
    config_id: Annotated[
        str | None,
        typer.Option(
            "--config-id", metavar="ID", help="Its id. [default: a hash of type and content]", callback=encodable
        ),
    ] = None,
    confirm: Confirming = Confirm.STORED,
    timeout: Timeout = 3.0,
    name: Name = "trunkline",
    nats: Nats,
    as_json: Json = False,
) -> None:
    """Pushes a configuration for an endpoint, and waits until it is stored or applied."""
    content = _read(file)
    made = nats.keywords()
    from trunkline import cdt

    with cdt.Source(name, target=target, **made) as source:
        given = source.push(
            app_version_name,
            endpoint,
            content,
            content_type=content_type,
            config_id=config_id,
            confirm=_CONFIRM[confirm],
            timeout_s=timeout,
        )
    _tell_put(Output(json=as_json), confirm, given)


def _read(file: Path) -> bytes:
    if str(file) == "-":
        return b"" if sys.stdin is None else sys.stdin.buffer.read()
    return file.read_bytes()


def _tell_put(output: Output, confirm: Confirm, config_id: str) -> None:
    event = "sent" if confirm is Confirm.NONE else confirm.value
    if output.json:
        # Nobody has said what id it has.
        output.event(event, **({} if confirm is Confirm.NONE else {"config_id": config_id}))
    else:
        output.note(event)
        output.line(config_id)


@app.command(epilog=example("trunkline cdt pull app-1 endpoint-7 --target cdp > config.json"))
@grouped
def pull(
    app_version_name: App,
    endpoint: Endpoint,
    *,
    target: TargetName,
    config_id: Annotated[
        str | None,
        typer.Option(
            "--config-id", metavar="ID", help="Which configuration. [default: the latest]", callback=encodable
        ),
    ] = None,
    timeout: Timeout = 3.0,
    retries: Annotated[int, typer.Option("--retries", min=0, metavar="N", help="How many times to retry.")] = 0,
    output_file: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="Write the content to this file.", dir_okay=False),
    ] = None,
    name: Name = "trunkline",
    nats: Nats,
    as_json: Json = False,
) -> None:
    """Prints the configuration of an endpoint."""
    made = nats.keywords()
    from trunkline import cdt

    with cdt.Source(name, target=target, **made) as source:
        response = source.pull(app_version_name, endpoint, config_id, timeout_s=timeout, retries=retries)
    content = response.content or b""
    output = Output(json=as_json)
    if output_file is not None:
        output_file.write_bytes(content)
    if as_json:
        output.event(
            "config",
            config_id=response.config_id,
            content_type=response.content_type,
            status_code=response.status_code,
            reason_phrase=response.reason_phrase,
            content=content,
        )
    elif output_file is None:
        output.whole(content)
    else:
        output.note(f"{response.config_id}: {counted(len(content), 'byte')} in {output_file}")


@app.command(epilog=example("trunkline cdt applied app-1 endpoint-7 500b6995a7814315088180da7d1305ab"))
@grouped
def applied(
    app_version_name: App,
    endpoint: Endpoint,
    config_id: ConfigId,
    *,
    name: Name = "trunkline",
    nats: Nats,
    as_json: Json = False,
) -> None:
    """Announces that an endpoint has applied a configuration."""
    made = nats.keywords()
    from trunkline import cdt

    with cdt.Source(name, target=name, **made) as source:
        source.report_applied(app_version_name, endpoint, config_id)
    output = Output(json=as_json)
    if as_json:
        output.event("sent", config_id=config_id)
    else:
        output.note("sent")


@app.command(epilog=example("trunkline cdt rollback app-1 endpoint-7 500b6995a7814315088180da7d1305ab --target cdp"))
@grouped
def rollback(
    app_version_name: App,
    endpoint: Endpoint,
    config_id: ConfigId,
    *,
    target: TargetName,
    confirm: Confirming = Confirm.STORED,
    timeout: Timeout = 3.0,
    name: Name = "trunkline",
    nats: Nats,
    as_json: Json = False,
) -> None:
    """Sets an endpoint back to an earlier configuration."""
    made = nats.keywords()
    from trunkline import cdt

    with cdt.Source(name, target=target, **made) as source:
        given = source.rollback(
            app_version_name,
            endpoint,
            config_id,
            confirm=_CONFIRM[confirm],
            timeout_s=timeout,
        )
    _tell_put(Output(json=as_json), confirm, given)


@app.command(epilog=example("trunkline cdt watch app-1 endpoint-7 --json"))
@grouped
def watch(
    app_version_name: Annotated[
        str | None,
        typer.Argument(metavar="APP", help="Only for this version of the application.", callback=encodable),
    ] = None,
    endpoint: Annotated[
        str | None, typer.Argument(metavar="ENDPOINT", help="Only for this endpoint.", callback=encodable)
    ] = None,
    *,
    count: Annotated[int | None, ending_after("printing this many events")] = None,
    idle: Idle = None,
    name: Name = "trunkline",
    nats: Nats,
    as_json: Json = False,
    stats_interval: StatsInterval = None,
) -> None:
    """Prints announcements of new and applied configurations as they arrive."""
    made = nats.keywords()
    from trunkline import cdt

    output = Output(json=as_json)
    reason: Reason = "signal"
    with Stopping(tells=not as_json) as stopping, cdt.Source(name, target=name, **made) as source:

        def receive(*, timeout_s: float | None = None) -> ConfigNewAvailable | ConfigUpdated:
            while True:
                event = source.receive(timeout_s=timeout_s)
                if app_version_name in (None, event.app_version_name) and endpoint in (None, event.endpoint_id):
                    return event

        pace = Pace(lambda: output.stats(source.stats), stats_interval, idle)
        printing = Printing(receive, functools.partial(_show_event, output), count)
        try:
            with stopping.interrupting():
                output.ready("cdt.source", source.endpoints, "watching at")
                pace.saw()
                with watching(output, lambda: source.stats, doing="cdt.source", prints=True):
                    reason = printing.run(pace)
        except Stopped:
            pass
        source.close(drain_s=0.0)
        output.stopped(reason, source.stats, f"{counted(printing.printed, 'event')} printed")


def _show_event(output: Output, event: ConfigNewAvailable | ConfigUpdated) -> None:
    kind = "updated" if type(event).__name__ == "ConfigUpdated" else "new_available"
    if output.json:
        output.event(
            kind,
            app_version_name=event.app_version_name,
            endpoint_id=event.endpoint_id,
            config_id=event.config_id,
            originator=event.originator_replica_id,
            timestamp_ms=event.timestamp_ms,
        )
    else:
        output.line(f"{kind} {event.app_version_name} {event.endpoint_id} {event.config_id}")


@app.command(epilog=example("trunkline cdt status app-1 --store configs.db"))
def status(app_version_name: App, *, store: StoreFile, as_json: Json = False) -> None:
    """Shows which endpoint is to have which configuration, and which have applied it."""
    rows = _looked_up(store, lambda opened: opened.rollout(app_version_name))
    _table(
        Output(json=as_json),
        "endpoint",
        ("endpoint_id", "current", "applied", "since_ms"),
        [(row.endpoint_id, row.current, row.applied, row.since_ms) for row in rows],
    )


@app.command(epilog=example("trunkline cdt history app-1 endpoint-7 --store configs.db"))
def history(app_version_name: App, endpoint: Endpoint, *, store: StoreFile, as_json: Json = False) -> None:
    """Lists the configurations assigned to an endpoint, oldest first."""
    rows = _looked_up(store, lambda opened: opened.history(app_version_name, endpoint))
    _table(
        Output(json=as_json),
        "assignment",
        ("config_id", "content_type", "content_bytes", "since_ms"),
        [(row.config_id, row.content_type, row.content_bytes, row.since_ms) for row in rows],
    )


def _looked_up(store: Path, look: Callable[[Any], Any]) -> Any:
    from trunkline.cdt import SqliteStore

    opened = SqliteStore(store, read_only=True)
    try:
        return look(opened)
    finally:
        opened.close()


def _table(output: Output, event: str, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    if output.json:
        for row in rows:
            output.event(event, **dict(zip(names, row, strict=True)))
        return
    output.table(names, [[_cell(name, value) for name, value in zip(names, row, strict=True)] for row in rows])


def _cell(name: str, value: Any) -> str:
    from datetime import UTC, datetime

    if value is None:
        return "-"
    if name == "since_ms":
        return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return str(value)


@app.command(epilog=example("trunkline cdt record --capture deployment"))
@grouped
def record(
    *,
    capture: Annotated[
        Path,
        typer.Option(
            "--capture", metavar="DIR", help="Where to record; an existing capture is continued.", file_okay=False
        ),
    ],
    count: Annotated[int | None, ending_after("this many messages, undecodable ones included")] = None,
    idle: Idle = None,
    name: Name = "trunkline",
    nats: Nats,
    segments: Segments,
    as_json: Json = False,
    stats_interval: StatsInterval = None,
) -> None:
    """Records all messages of a deployment until the count, the idle time or a signal."""
    made = nats.keywords()
    from trunkline import cdt

    output = Output(json=as_json)
    reason: Reason = "signal"
    with (
        Stopping(tells=not as_json) as stopping,
        cdt.Recorder(capture, name, limit=count, capture_options=segments.keywords(), **made) as recorder,
    ):
        try:
            with stopping.interrupting():
                output.ready("cdt.recorder", recorder.endpoints, f"recording to {capture} from")
                with watching(output, lambda: recorder.stats, doing="cdt.recorder", count=count, capture=capture):
                    reason = _wait(recorder, Pace(lambda: output.stats(recorder.stats), stats_interval, idle))
        except Stopped:
            pass
        recorder.close()
        stats = recorder.stats
        output.stopped(reason, stats, f"{counted(stats.recorded, 'message')} recorded")


def _wait(recorder: Recorder, pace: Pace) -> Reason:
    while True:
        try:
            return recorder.wait(timeout_s=pace.wait_s())
        except errors.TimeoutError:
            pace.saw_progress(recorder.stats.received)
        if pace.idle:
            return "idle"
        pace.look_up()

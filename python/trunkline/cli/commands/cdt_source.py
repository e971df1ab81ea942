"""`trunkline cdt put`, `pull`, `applied`, `rollback` and `watch`: the commands of a source."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trunkline import errors
from trunkline._text import counted, readable
from trunkline.cli.options.cdt import (
    App,
    ConfigId,
    Confirm,
    Confirming,
    Endpoint,
    Name,
    Nats,
    TargetName,
    Timeout,
)
from trunkline.cli.options.shared import (
    Idle,
    Json,
    Metrics,
    StatsInterval,
    encodable,
    ending_after,
    example,
)
from trunkline.cli.process.cdt import opened
from trunkline.cli.process.receiving import Printing
from trunkline.cli.process.signals import Stopping
from trunkline.cli.process.waiting import Pace
from trunkline.cli.terminal.output import Output
from trunkline.cli.terminal.panel import watching

if TYPE_CHECKING:
    from trunkline.cdt import ConfigNewAvailable, ConfigUpdated

__all__ = ["APPLIED", "PULL", "PUT", "ROLLBACK", "WATCH", "applied", "pull", "put", "rollback", "watch"]

PUT = example("trunkline cdt put app-1 endpoint-7 config.json --target cdp --confirm applied")
PULL = example("trunkline cdt pull app-1 endpoint-7 --target cdp > config.json")
APPLIED = example("trunkline cdt applied app-1 endpoint-7 500b6995a7814315088180da7d1305ab --target cdp")
ROLLBACK = example("trunkline cdt rollback app-1 endpoint-7 500b6995a7814315088180da7d1305ab --target cdp")
WATCH = example("trunkline cdt watch app-1 endpoint-7 --json")

_JSON = "application/json"

_CONFIRM: dict[Confirm, Literal["stored", "applied"] | None] = {
    Confirm.NONE: None,
    Confirm.STORED: "stored",
    Confirm.APPLIED: "applied",
}


def put(
    app_version_name: App,
    endpoint: Endpoint,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The configuration; - is standard input.", allow_dash=True)
    ],
    *,
    target: TargetName,
    content_type: Annotated[
        str | None,
        typer.Option(
            "--content-type",
            metavar="T",
            help="The type of the content. [default: application/json]",
            callback=encodable,
        ),
    ] = None,
    config_id: Annotated[
        str | None,
        typer.Option(
            "--config-id",
            metavar="ID",
            help="The id of the configuration. [default: a hash of type and content]",
            callback=encodable,
        ),
    ] = None,
    confirm: Confirming = Confirm.STORED,
    timeout: Timeout = 3.0,
    name: Name = "trunkline",
    nats: Nats,
    as_json: Json = False,
) -> None:
    """Pushes a configuration for an endpoint, and waits until it is stored or applied.

    A file named .json must be JSON unless --content-type names another type.
    """
    content = _read(file)
    if content_type == _JSON or (content_type is None and file.suffix == ".json"):
        _need_json(file, content)
    made = nats.keywords()
    from trunkline import cdt

    with cdt.Source(name, target=target, connect_timeout_s=_to_connect(timeout), **made) as source:
        given = source.push(
            app_version_name,
            endpoint,
            content,
            content_type=_JSON if content_type is None else content_type,
            config_id=config_id,
            confirm=_CONFIRM[confirm],
            timeout_s=timeout,
        )
    _report_put(Output(json=as_json), confirm, given)


def _to_connect(timeout: float) -> float:
    """The timeout of the connection, for a command with this timeout of the answer."""
    from trunkline.cdt.options import DEFAULTS

    return min(timeout, DEFAULTS["connect_timeout_s"])


def _read(file: Path) -> bytes:
    if str(file) == "-":
        return b"" if sys.stdin is None else sys.stdin.buffer.read()
    return file.read_bytes()


def _need_json(file: Path, content: bytes) -> None:
    try:
        json.loads(content)
    except (ValueError, RecursionError) as error:
        where = "standard input" if str(file) == "-" else file
        message = f"{where} is not valid JSON: {error}; another type of content is named by --content-type"
        raise errors.LocalProtocolError(message) from None


def _report_put(output: Output, confirm: Confirm, config_id: str) -> None:
    event = "sent" if confirm is Confirm.NONE else confirm.value
    if output.json:
        # Its id is only known once it is confirmed.
        output.event(event, **({} if confirm is Confirm.NONE else {"config_id": config_id}))
    else:
        output.note(event)
        output.line(readable(config_id))


def pull(
    app_version_name: App,
    endpoint: Endpoint,
    *,
    target: TargetName,
    config_id: Annotated[
        str | None,
        typer.Option(
            "--config-id",
            metavar="ID",
            help="The id of the configuration. [default: the current one]",
            callback=encodable,
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

    with cdt.Source(name, target=target, connect_timeout_s=_to_connect(timeout), **made) as source:
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
        output.note(f"{readable(response.config_id)}: {counted(len(content), 'byte')} in {output_file}")


def applied(
    app_version_name: App,
    endpoint: Endpoint,
    config_id: ConfigId,
    *,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="NAME",
            help="Report nothing unless this service has stored the configuration.",
            callback=encodable,
        ),
    ] = None,
    timeout: Timeout = 3.0,
    name: Name = "trunkline",
    nats: Nats,
    as_json: Json = False,
) -> None:
    """Reports that an endpoint has applied a configuration."""
    made = nats.keywords()
    from trunkline import cdt

    with cdt.Source(name, target=target or name, connect_timeout_s=_to_connect(timeout), **made) as source:
        if target is not None:
            source.pull(app_version_name, endpoint, config_id, timeout_s=timeout)
        source.report_applied(app_version_name, endpoint, config_id)
    output = Output(json=as_json)
    output.remark("sent", "sent", config_id=config_id)


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
    """Returns an endpoint to an earlier configuration."""
    made = nats.keywords()
    from trunkline import cdt

    with cdt.Source(name, target=target, connect_timeout_s=_to_connect(timeout), **made) as source:
        given = source.rollback(
            app_version_name,
            endpoint,
            config_id,
            confirm=_CONFIRM[confirm],
            timeout_s=timeout,
        )
    _report_put(Output(json=as_json), confirm, given)


def watch(
    app_version_name: Annotated[
        str | None,
        typer.Argument(metavar="APP", help="Only events of this application version.", callback=encodable),
    ] = None,
    endpoint: Annotated[
        str | None, typer.Argument(metavar="ENDPOINT", help="Only events of this endpoint.", callback=encodable)
    ] = None,
    *,
    count: Annotated[int | None, ending_after("printing this many events")] = None,
    idle: Idle = None,
    name: Name = "trunkline",
    nats: Nats,
    as_json: Json = False,
    stats_interval: StatsInterval = None,
    metrics: Metrics = None,
) -> None:
    """Prints announcements of new and applied configurations as they arrive."""
    made = nats.keywords()
    from trunkline import cdt

    def make() -> cdt.Source:
        return cdt.Source(name, target=name, metrics=metrics, **made)

    output = Output(json=as_json)
    with Stopping() as stopping, opened(make, stopping, output) as source:
        if source is None:
            return

        def receive(*, timeout_s: float | None = None) -> ConfigNewAvailable | ConfigUpdated:
            while True:
                event = source.receive(timeout_s=timeout_s)
                if app_version_name in (None, event.app_version_name) and endpoint in (None, event.endpoint_id):
                    return event

        printing = Printing(receive, functools.partial(_show_event, output), count)
        output.ready("cdt.source", source.endpoints, "watching for events at", metrics_url=source.metrics_url)
        pace = Pace(stopping, lambda: output.stats(source.stats), stats_interval, idle, output.need_reader)
        with watching(output, lambda: source.stats, doing=" ".join(("watching at", *source.endpoints)), prints=True):
            reason = printing.run(pace)
        source.close(drain_s=0.0)
        output.stopped(reason, source.stats, f"{counted(printing.printed, 'event')} printed")


def _show_event(output: Output, event: ConfigNewAvailable | ConfigUpdated) -> None:
    kind = "updated" if type(event).__name__ == "ConfigUpdated" else "new_available"
    output.result(
        kind,
        readable(f"{kind} {event.app_version_name} {event.endpoint_id} {event.config_id} by {event.originator}"),
        app_version_name=event.app_version_name,
        endpoint_id=event.endpoint_id,
        config_id=event.config_id,
        originator=event.originator,
        originator_replica_id=event.originator_replica_id,
        timestamp_ms=event.timestamp_ms,
    )

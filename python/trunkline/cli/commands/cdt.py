"""`trunkline cdt`: configurations of endpoints over NATS."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline._text import counted
from trunkline.cli.commands import cdt_source, cdt_store
from trunkline.cli.options.cdt import (
    Name,
    Nats,
)
from trunkline.cli.options.commands import Commands
from trunkline.cli.options.groups import Segments
from trunkline.cli.options.shared import (
    DrainSeconds,
    Idle,
    Json,
    Metrics,
    StatsInterval,
    encodable,
    ending_after,
    example,
)
from trunkline.cli.process import running
from trunkline.cli.process.cdt import opened
from trunkline.cli.process.signals import Stopping
from trunkline.cli.process.waiting import Pace
from trunkline.cli.terminal.content import MessageView, Showing
from trunkline.cli.terminal.output import Output
from trunkline.cli.terminal.panel import watching

if TYPE_CHECKING:
    from trunkline.cli.terminal.json_lines import Line

__all__ = ["SHOWING", "app"]

app = Commands(
    help="CDT: configurations of endpoints over NATS; a target stores them, sources pull, push and watch them."
)


# The value of --store for the key-value store of the server.
_JETSTREAM = "jetstream"


@app.command(epilog=example("trunkline cdt target cdp --store configs.db"))
def target(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The service name.", callback=encodable)],
    *,
    store: Annotated[
        Path,
        typer.Option(
            "--store",
            metavar="FILE",
            help="Store configurations in this file, created if absent; or jetstream: in the NATS server.",
            dir_okay=False,
        ),
    ],
    replica_id: Annotated[
        str | None,
        typer.Option("--replica-id", metavar="R", help="The id of this replica. [default: random]", callback=encodable),
    ] = None,
    capture: Annotated[
        Path | None,
        typer.Option("--capture", metavar="DIR", help="Record everything received and sent.", file_okay=False),
    ] = None,
    nats: Nats,
    segments: Segments,
    as_json: Json = False,
    stats_interval: StatsInterval = None,
    metrics: Metrics = None,
    drain_seconds: DrainSeconds = 5.0,
) -> None:
    """Stores configurations, answers pulls, accepts pushes, and announces changes."""
    made = nats.keywords()
    from trunkline import cdt

    def make() -> cdt.Target:
        return cdt.Target(
            name,
            store=_JETSTREAM if str(store) == _JETSTREAM else store,
            replica_id=replica_id,
            capture=capture,
            capture_options=segments.keywords(),
            # No events: the command does not read them.
            queue_messages=0,
            metrics=metrics,
            **made,
        )

    output = Output(json=as_json)
    with Stopping() as stopping, opened(make, stopping, output) as role:
        if role is None:
            return
        running.run(
            role,
            stopping,
            output,
            name="cdt.target",
            doing=f"target {name} connected to",
            stats_interval=stats_interval,
            drain_s=drain_seconds,
            capture=capture,
        )


app.command(epilog=cdt_source.PUT)(cdt_source.put)
app.command(epilog=cdt_source.PULL)(cdt_source.pull)
app.command(epilog=cdt_source.APPLIED)(cdt_source.applied)
app.command(epilog=cdt_source.ROLLBACK)(cdt_source.rollback)
app.command(epilog=cdt_source.WATCH)(cdt_source.watch)
app.command(epilog=cdt_store.STATUS)(cdt_store.status)
app.command(epilog=cdt_store.HISTORY)(cdt_store.history)


@app.command(epilog=example("trunkline cdt record --capture deployment"))
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
    metrics: Metrics = None,
) -> None:
    """Records all messages of a deployment until the count, the idle time or a signal."""
    made = nats.keywords()
    from trunkline import cdt

    def make() -> cdt.Recorder:
        return cdt.Recorder(capture, name, limit=count, capture_options=segments.keywords(), metrics=metrics, **made)

    output = Output(json=as_json)
    with Stopping() as stopping, opened(make, stopping, output) as recorder:
        if recorder is None:
            return
        doing = f"recording to {capture} from"
        output.ready("cdt.recorder", recorder.endpoints, doing, metrics_url=recorder.metrics_url)
        where = " ".join((doing, *recorder.endpoints))
        pace = Pace(stopping, lambda: output.stats(recorder.stats), stats_interval, idle)
        with watching(output, lambda: recorder.stats, doing=where, count=count, capture=capture):
            reason = running.recorded(recorder.wait, lambda: recorder.stats.received, pace)
        recorder.close()
        stats = recorder.stats
        output.stopped(reason, stats, f"{counted(stats.recorded, 'message')} recorded")


_NAMES = (
    *("app_version_name", "endpoint_id", "config_id", "content_type", "status_code", "reason_phrase"),
    *("correlation_id", "originator_replica_id", "timestamp_ms", "timeout_ms"),
)


def _view(message: Any) -> MessageView:
    kind = type(message).__name__
    fields = {name: getattr(message, name) for name in _NAMES if hasattr(message, name)}
    shown = ("config_id", "content_type", "status_code", "reason_phrase")
    details = {name: fields[name] for name in shown if fields.get(name)}
    content = getattr(message, "content", None)
    subject = f"{message.app_version_name}/{message.endpoint_id}"
    return MessageView(kind, subject, {"type": kind, **fields}, details, () if content is None else (content,))


SHOWING = Showing(_view, fields=_NAMES)


def json_lines() -> dict[str, list[Line]]:
    """The lines of JSON of these commands."""
    from trunkline import cdt
    from trunkline.cli.terminal.json_lines import line, of, role

    def configuration(event: str) -> Line:
        fields = dict.fromkeys(("app_version_name", "endpoint_id", "config_id", "originator"), str)
        return line(event, **fields, originator_replica_id=str | None, timestamp_ms=int)

    confirmed = [line("sent"), line("stored", config_id=str), line("pushed", config_id=str)]
    return {
        "cdt target": role(cdt.TargetStats),
        "cdt put": confirmed,
        "cdt rollback": confirmed,
        "cdt pull": [
            line(
                "config",
                **dict.fromkeys(("config_id", "content_type", "reason_phrase", "content"), str),
                status_code=int,
            )
        ],
        "cdt applied": [line("sent", config_id=str)],
        "cdt watch": [*role(cdt.SourceStats), configuration("updated"), configuration("new_available")],
        "cdt status": [of("endpoint", cdt.Rollout)],
        "cdt history": [of("assignment", cdt.Assignment)],
        "cdt record": role(cdt.RecorderStats),
    }

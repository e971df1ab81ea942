"""`trunkline cdt`: configurations of endpoints over NATS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trunkline._text import counted
from trunkline.cli import cdt_source, cdt_store, running
from trunkline.cli.cdt_opening import opened
from trunkline.cli.cdt_options import (
    Name,
    Nats,
)
from trunkline.cli.family import Family
from trunkline.cli.groups import Segments, grouped
from trunkline.cli.options import (
    DrainSeconds,
    Idle,
    Json,
    Metrics,
    StatsInterval,
    encodable,
    ending_after,
    example,
)
from trunkline.cli.output import Output
from trunkline.cli.pace import Pace
from trunkline.cli.panel import watching
from trunkline.cli.signals import Stopping

__all__ = ["app"]

app = typer.Typer(
    cls=Family,
    help="CDT: configurations of endpoints over NATS; a target stores them, sources pull, push and watch them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


# The value of --store for the key-value store of the server.
_JETSTREAM = "jetstream"


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

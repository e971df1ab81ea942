"""`trunkline chirp`: watch and offer."""

from __future__ import annotations

import time
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from trunkline import errors
from trunkline._text import readable
from trunkline.cli.options.commands import Commands
from trunkline.cli.options.shared import (
    Chirp,
    ChirpOption,
    Idle,
    Json,
    Metrics,
    NeededGroup,
    StatsInterval,
    encodable,
    ending_after,
    example,
)
from trunkline.cli.process.receiving import Printing
from trunkline.cli.process.signals import Stopping
from trunkline.cli.process.waiting import Pace
from trunkline.cli.terminal.output import Output, Reason, on_terminal
from trunkline.cli.terminal.panel import watching

if TYPE_CHECKING:
    from trunkline.chirp import Beacon, Event
    from trunkline.cli.terminal.json_lines import Line

app = Commands(help="CHIRP: discovery; the hosts of a group announce the services they offer.")


class Service(StrEnum):
    """The services of CHIRP."""

    CONTROL = "control"
    HEARTBEAT = "heartbeat"
    MONITORING = "monitoring"
    DATA = "data"


@app.command(epilog=example("trunkline chirp watch --group lab --name Detector.one --json"))
def watch(
    *,
    group: NeededGroup,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="N",
            help="A host to show by name; others are shown by their hash. Repeatable.",
            callback=encodable,
        ),
    ] = None,
    count: Annotated[int | None, ending_after("printing this many announcements")] = None,
    idle: Idle = None,
    as_json: Json = False,
    stats_interval: StatsInterval = None,
    metrics: Metrics = None,
) -> None:
    """Asks a group for its services, and prints all announcements."""
    from trunkline import chirp

    output = Output(json=as_json)
    with Stopping() as stopping, chirp.Beacon(group, names=name or (), metrics=metrics) as beacon:
        for service in chirp.Service:
            beacon.request(service)
        output.ready("chirp.beacon", beacon.endpoints, f"watching {group} at", metrics_url=beacon.metrics_url)
        pace = Pace(stopping, lambda: output.stats(beacon.stats), stats_interval, idle, output.need_reader)
        output.stopped(_print_all(beacon, pace, output, f"watching {group}", count), beacon.stats)


@app.command(epilog=example("trunkline chirp offer --group lab --name Detector.one --service data --port 23999"))
def offer(
    *,
    group: NeededGroup,
    name: Annotated[str, typer.Option("--name", metavar="N", help="The name of this host.", callback=encodable)],
    service: Annotated[Service, typer.Option("--service", help="The kind of service.")],
    port: Annotated[int, typer.Option("--port", min=1, max=65535, metavar="P", help="The TCP port of the service.")],
    chirp: ChirpOption = Chirp.MULTICAST,
    as_json: Json = False,
    stats_interval: StatsInterval = None,
    metrics: Metrics = None,
) -> None:
    """Announces a service until it is stopped, answers requests for it, and prints the announcements of others."""
    from trunkline import chirp as room

    output = Output(json=as_json)
    with Stopping() as stopping, room.Beacon(group, name, chirp=chirp.value, metrics=metrics) as beacon:
        beacon.offer(room.Service[service.name], port)
        doing = f"offering {service.value} at port {port} to {group} from"
        output.ready("chirp.beacon", beacon.endpoints, doing, metrics_url=beacon.metrics_url)
        pace = Pace(stopping, lambda: output.stats(beacon.stats), stats_interval)
        _print_all(beacon, pace, output, f"offering {service.value} of {name} to {group}", None)
        output.stopped("signal", beacon.stats)


@app.command("list", epilog=example("trunkline chirp list --group lab --name Detector.one"))
def list_(
    *,
    group: NeededGroup,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="N", help="A host to show by name. Repeatable.", callback=encodable),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.01, metavar="S", help="How long to wait for answers.")
    ] = 1.0,
    as_json: Json = False,
) -> None:
    """Asks a group for its services, prints them, and ends. Exits with 1 if there are none."""
    from trunkline import chirp

    output = Output(json=as_json)
    offers: dict[tuple[str, str], Event] = {}
    with chirp.Beacon(group, names=name or ()) as beacon:
        for service in chirp.Service:
            beacon.request(service)
        end = time.monotonic() + seconds
        with suppress(errors.TimeoutError):
            while True:
                event = beacon.receive(timeout_s=max(end - time.monotonic(), 0))
                if event.kind == "offer":
                    offers[event.host, event.service.name] = event
    for event in sorted(offers.values(), key=lambda offer: (offer.name or offer.host, offer.service)):
        _print(event, output)
    if not offers:
        output.note(f"no services found in group {group}")
        raise typer.Exit(1)


def _print_all(beacon: Beacon, pace: Pace, output: Output, doing: str, count: int | None) -> Reason:
    """Prints announcements until the count, the idle time or a signal; on a terminal with the time."""

    def show(event: Event) -> None:
        _print(event, output, time.strftime("%H:%M:%S ") if on_terminal() else "")

    with watching(output, lambda: beacon.stats, doing=doing, prints=True):
        return Printing(beacon.receive, show, count).run(pace)


def _print(event: Event, output: Output, start: str = "") -> None:
    service = event.service.name.lower()
    where = "" if event.endpoint is None else f" {event.endpoint}"
    text = f"{start}{event.kind} {readable(event.name or event.host)} {service}{where}"
    output.result(event.kind, text, host=event.host, name=event.name, service=service, endpoint=event.endpoint)


def json_lines() -> dict[str, list[Line]]:
    """The lines of JSON of these commands."""
    from trunkline import chirp
    from trunkline.cli.terminal.json_lines import line, role

    def service(event: str) -> Line:
        return line(event, host=str, name=str | None, service=str, endpoint=str | None)

    offers = [service("offer"), service("request"), service("depart")]
    return {
        "chirp watch": [*role(chirp.BeaconStats), *offers],
        "chirp offer": [*role(chirp.BeaconStats), *offers],
        "chirp list": [service("offer")],
    }

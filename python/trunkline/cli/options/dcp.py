"""Options that the commands of DCP share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from trunkline._roles.reachability import unreached
from trunkline.cli.options.shared import dials

__all__ = ["STATUS", "Endpoints", "HeartbeatInterval", "Liveness", "need_heartbeat", "no_broker"]

# The status service of a broker.
STATUS = b"trunkline.status"

# The most milliseconds that libzmq can count.
_LONGEST_SILENCE_S = (2**31 - 1) // 1000

Endpoints = Annotated[
    list[str],
    typer.Option(
        "--connect",
        metavar="ENDPOINT",
        help="Where the broker listens, e.g. tcp://127.0.0.1:23990. Repeatable.",
        callback=dials,
    ),
]
HeartbeatInterval = Annotated[
    float,
    typer.Option("--heartbeat-interval", min=0.001, metavar="S", help="How often workers send a heartbeat."),
]
Liveness = Annotated[
    int, typer.Option("--liveness", min=1, metavar="N", help="Missed heartbeats after which a peer is considered dead.")
]


def need_heartbeat(interval_s: float, liveness: int) -> None:
    """Refuses a silence that is too long to count."""
    if interval_s * liveness > _LONGEST_SILENCE_S:
        message = f"--heartbeat-interval times --liveness must be at most {_LONGEST_SILENCE_S:,} seconds."
        raise typer.BadParameter(message)


def no_broker(endpoints: Sequence[str]) -> str:
    """The error of brokers that do not answer."""
    where = unreached(endpoints)
    is_explained = where != ", ".join(endpoints)
    more = "" if is_explained else ", or it is encrypted, or was started with --no-status"
    return f"no broker answers at {where}{more}"

"""Options that several commands share."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trunkline.errors import LocalProtocolError

if TYPE_CHECKING:
    from trunkline.curve import Curve

__all__ = [
    "Bind",
    "Chirp",
    "ChirpOption",
    "Connect",
    "Count",
    "CurveAllow",
    "CurveSecret",
    "CurveServerKey",
    "DrainSeconds",
    "Group",
    "Idle",
    "Json",
    "NeededGroup",
    "Pace",
    "Senders",
    "StatsInterval",
    "Tags",
    "curve",
    "example",
    "need_endpoint",
    "need_source",
    "tag_columns",
]

Bind = Annotated[
    list[str] | None, typer.Option("--bind", metavar="ENDPOINT", help="Listen here, as tcp://127.0.0.1:*. Repeatable.")
]
Connect = Annotated[
    list[str] | None,
    typer.Option("--connect", metavar="ENDPOINT", help="Dial this, as tcp://127.0.0.1:23999. Repeatable."),
]
CurveSecret = Annotated[
    Path | None, typer.Option("--curve-secret", metavar="FILE", help="Our own secret key: a certificate, or bare Z85.")
]
CurveServerKey = Annotated[
    Path | None,
    typer.Option("--curve-server-key", metavar="FILE", help="The public key of the server we dial; makes us a client."),
]
CurveAllow = Annotated[
    Path | None,
    typer.Option("--curve-allow", metavar="DIR", help="A file for each client key to let in; SIGHUP reads it again."),
]


class Chirp(StrEnum):
    """How announcements go out."""

    MULTICAST = "multicast"
    BROADCAST = "broadcast"


ChirpOption = Annotated[
    Chirp,
    typer.Option("--chirp", help="How announcements go out: by broadcast for releases up to 0.4. Both are heard."),
]
NeededGroup = Annotated[str, typer.Option("--group", metavar="G", help="The CHIRP group.")]
Group = Annotated[str | None, typer.Option("--group", metavar="G", help="Find and be found by CHIRP, in this group.")]
Senders = Annotated[
    list[str] | None,
    typer.Option("--sender", metavar="N", help="Only this sender of the group. Repeatable. [default: all]"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
Count = Annotated[int | None, typer.Option("--count", min=0, metavar="N", help="End after so many messages.")]
Idle = Annotated[
    float | None, typer.Option("--idle", min=0, metavar="S", help="End when nothing has come in for S seconds.")
]
StatsInterval = Annotated[
    float | None, typer.Option("--stats-interval", min=0.01, metavar="S", help="Tell the counters every S seconds.")
]
DrainSeconds = Annotated[
    float,
    typer.Option(
        "--drain-seconds", min=0, metavar="S", help="How long to take in what has arrived, once told to stop."
    ),
]


Tags = Annotated[
    str | None,
    typer.Option(
        "--tags", metavar="K=TYPE,...", help="Tags as columns, as run=bigint,*=variant; or none. [default: variant]"
    ),
]


def tag_columns(given: str | None) -> dict[str, str] | Literal["variant"] | None:
    """What `--tags` says, as decoding takes it."""
    if given is None or given == "variant":
        return "variant"
    if given == "none":
        return None
    columns = {}
    for pair in given.split(","):
        name, equals, kind = pair.rpartition("=")
        if not equals or not name or not kind:
            message = f"--tags takes K=TYPE,... as run=bigint,*=variant, not {given!r}."
            raise typer.BadParameter(message)
        columns[name] = kind
    return columns


def example(*commands: str) -> str:
    """The end of a command's help: what to type."""
    # \\b keeps typer from wrapping what is to be copied.
    return "\n\n".join(("Example:", *(f"\b\n  {command}" for command in commands)))


def need_endpoint(bind: list[str] | None, connect: list[str] | None) -> None:
    """Refuses a role without an endpoint."""
    if not bind and not connect:
        message = "Missing an endpoint: give --bind or --connect."
        raise typer.BadParameter(message)


def need_source(
    bind: list[str] | None, connect: list[str] | None, group: str | None, senders: list[str] | None
) -> None:
    """Refuses a receiver that does not know where its senders are, or knows it in two ways."""
    if group is None:
        if senders:
            message = "--sender chooses among those of a group: give --group."
            raise typer.BadParameter(message)
        if not bind and not connect:
            message = "Missing an endpoint: give --bind, --connect or --group."
            raise typer.BadParameter(message)
    elif bind or connect:
        message = "--group finds the endpoints: leave out --bind and --connect."
        raise typer.BadParameter(message)


def curve(secret: Path | None, server_key: Path | None, allow: Path | None) -> Curve | None:
    """What the `--curve-` options say; SIGHUP reads the allow-list again."""
    if secret is None and server_key is None and allow is None:
        return None
    if secret is None and server_key is None:
        message = "--curve-allow needs --curve-secret, the key of this server."
        raise typer.BadParameter(message)
    from trunkline.curve import Curve

    made = Curve(secret, server_key=server_key, allow=allow)
    if allow is not None:
        signal.signal(signal.SIGHUP, lambda *_: _reload(made))
    return made


def _reload(curve: Curve) -> None:
    try:
        curve.reload()
    except (OSError, LocalProtocolError) as error:
        logging.getLogger("trunkline").warning("the allow-list stays as it was: %s", error)


class Pace:
    """When a command that waits looks up: to tell its counters, or because nothing has come in for too long.

    Args:
        tell: Tells the counters.
        interval_s: How often.
        idle_s: How long nothing may come in.
    """

    def __init__(self, tell: Callable[[], None], interval_s: float | None, idle_s: float | None = None) -> None:
        self._tell = tell
        self._interval_s = interval_s
        self._idle_s = idle_s
        self._told = self._seen = time.monotonic()
        self._progress = 0

    def wait_s(self, at_most: float | None = None) -> float | None:
        """How long to wait before looking up; None for ever."""
        now = time.monotonic()
        waits = [] if at_most is None else [at_most]
        if self._interval_s is not None:
            waits.append(max(self._told + self._interval_s - now, 0))
        if self._idle_s is not None:
            waits.append(max(self._seen + self._idle_s - now, 0))
        return min(waits, default=None)

    def look_up(self) -> None:
        """Tells the counters if it is time to."""
        if self._interval_s is not None and time.monotonic() >= self._told + self._interval_s:
            self._told = time.monotonic()
            self._tell()

    def saw(self) -> None:
        """Something has come in."""
        self._seen = time.monotonic()

    def saw_progress(self, count: int) -> None:
        """So much has come in so far."""
        if count != self._progress:
            self._progress = count
            self.saw()

    @property
    def idle(self) -> bool:
        """Whether nothing has come in for too long."""
        return self._idle_s is not None and time.monotonic() >= self._seen + self._idle_s

"""Groups of options, each one parameter of a command."""

from __future__ import annotations

import functools
import inspect
import signal
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar, get_type_hints

import typer

from trunkline.cli.options.shared import Chirp, ChirpOption, Group, dials, encodable, listens
from trunkline.cli.process.reloading import Reloading

if TYPE_CHECKING:
    from trunkline.curve import Curve

__all__ = ["Capturing", "DialingSockets", "Endpoints", "Keys", "Private", "Segments", "Sockets", "Source", "grouped"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def grouped(command: Callable[Parameters, Result]) -> Callable[..., Result]:
    """A command with its group parameters replaced by their options."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {}
    flat = []
    for name, parameter in inspect.signature(command).parameters.items():
        hint = hints[name]
        if not is_dataclass(hint):
            flat.append(parameter.replace(annotation=hint, kind=parameter.KEYWORD_ONLY))
            continue
        assert isinstance(hint, type)
        groups[name] = hint
        options = get_type_hints(hint, include_extras=True)
        flat += [
            inspect.Parameter(field.name, parameter.KEYWORD_ONLY, default=default, annotation=options[field.name])
            for field in fields(hint)
            for default in [parameter.empty if field.default is MISSING else field.default]
        ]

    @functools.wraps(command)
    def run(**given: Any) -> Result:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return command(**given)  # type: ignore[call-arg]

    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return run


@dataclass(frozen=True)
class Endpoints:
    """Where a role listens, or what it dials."""

    bind: Annotated[
        list[str] | None,
        typer.Option(
            "--bind", metavar="ENDPOINT", help="Listen here, e.g. tcp://127.0.0.1:*. Repeatable.", callback=listens
        ),
    ] = None
    connect: Annotated[
        list[str] | None,
        typer.Option(
            "--connect",
            metavar="ENDPOINT",
            help="Connect to this, e.g. tcp://127.0.0.1:23999. Repeatable.",
            callback=dials,
        ),
    ] = None

    def check(self) -> None:
        """Refuses a role without an endpoint."""
        if not self.bind and not self.connect:
            message = "Missing an endpoint: give --bind or --connect."
            raise typer.BadParameter(message)

    def keywords(self) -> dict[str, Any]:
        """As roles take them."""
        return {"bind": self.bind or (), "connect": self.connect or (), "raise_file_limit": bool(self.bind)}

    def real(self, bound: Sequence[str]) -> list[str]:
        """All endpoints, the bound ones with their actual ports."""
        return [*bound, *(self.connect or ())]


@dataclass(frozen=True)
class Source(Endpoints):
    """Where a receiver finds its senders."""

    group: Group = None
    sender: Annotated[
        list[str] | None,
        typer.Option(
            "--sender",
            metavar="N",
            help="Only this sender of the group. Repeatable. [default: all]",
            callback=encodable,
        ),
    ] = None
    chirp: ChirpOption = Chirp.MULTICAST

    def check(self) -> None:
        """Refuses a receiver with neither endpoints nor a group, or with both."""
        if self.group is None:
            if self.sender:
                message = "--sender selects among the senders of a group: give --group."
                raise typer.BadParameter(message)
            if not self.bind and not self.connect:
                message = "Missing an endpoint: give --bind, --connect or --group."
                raise typer.BadParameter(message)
        elif self.bind or self.connect:
            message = "--group finds the endpoints: leave out --bind and --connect."
            raise typer.BadParameter(message)

    def keywords(self) -> dict[str, Any]:
        """As receivers take it."""
        return {**super().keywords(), "group": self.group, "senders": self.sender or None, "chirp": self.chirp.value}

    @property
    def words(self) -> str:
        """The senders that it finds, as part of the note on what it receives from."""
        return "" if self.group is None else f" the senders of {self.group}"


class Transport(StrEnum):
    """An implementation of ZeroMQ."""

    AUTO = "auto"
    ZMTP = "zmtp"
    LIBZMQ = "libzmq"
    ZEROMQ = "zeromq"


def _keepalive(silent_s: float) -> dict[int, int]:
    """TCP's terms for a host that is silent for so long: half of it, then three probes."""
    import zmq

    probes = 3
    return {
        zmq.TCP_KEEPALIVE: 1,
        zmq.TCP_KEEPALIVE_CNT: probes,
        zmq.TCP_KEEPALIVE_IDLE: int(silent_s / 2),
        zmq.TCP_KEEPALIVE_INTVL: int(silent_s / 2 / probes),
    }


@dataclass(frozen=True)
class Keys:
    """The encryption of an end that dials."""

    curve_secret: Annotated[
        Path | None,
        typer.Option(
            "--curve-secret", metavar="FILE", help="The secret key of this end: a certificate file, or a bare Z85 key."
        ),
    ] = None
    curve_server_key: Annotated[
        Path | None,
        typer.Option(
            "--curve-server-key",
            metavar="FILE",
            help="The public key of the server; this end is then the CURVE client.",
        ),
    ] = None

    def curve(self) -> Curve | None:
        """The CURVE options; an end that dials needs the key of its server."""
        if self.curve_secret is not None and self.curve_server_key is None:
            message = "--curve-secret needs --curve-server-key, the public key of the server."
            raise typer.BadParameter(message)
        return self.keys()

    def keys(self) -> Curve | None:
        """The keys of either side."""
        if self.curve_secret is None and self.curve_server_key is None:
            return None
        from trunkline.curve import Curve

        return Curve(self.curve_secret, server_key=self.curve_server_key)


@dataclass(frozen=True)
class DialingSockets(Keys):
    """The transport and the encryption of a role that dials."""

    transport: Annotated[
        Transport | None,
        typer.Option(
            "--transport",
            help="The ZeroMQ implementation: zmtp is our own; zeromq has no encryption and does not reconnect. [default: zmtp, or libzmq for what zmtp does not support]",
        ),
    ] = None
    keepalive: Annotated[
        float | None,
        typer.Option(
            "--keepalive",
            min=6,
            max=60_000,
            metavar="S",
            help="Give up a peer whose host has not answered for S seconds, idle or busy. [default: 60]",
        ),
    ] = None

    def keywords(self) -> dict[str, Any]:
        """As roles take them."""
        transport = None if self.transport is None else self.transport.value
        if self.keepalive is not None and self.transport is Transport.ZEROMQ:
            message = "--keepalive is not for --transport zeromq."
            raise typer.BadParameter(message)
        options = {} if self.keepalive is None else {"options": _keepalive(self.keepalive)}
        return {"curve": self.curve(), "transport": transport, **options}


@dataclass(frozen=True)
class Sockets(DialingSockets):
    """The transport, the limits and the encryption of a role that may listen."""

    max_connections: Annotated[
        int | None,
        typer.Option(
            "--max-connections",
            min=1,
            metavar="N",
            help="Refuse further connections beyond this many peers. [default: the limit on open files, minus 64]",
        ),
    ] = None

    max_connections_per_host: Annotated[
        int | None,
        typer.Option(
            "--max-connections-per-host",
            min=1,
            metavar="N",
            help="Refuse further connections beyond this many peers of one host. [default: no limit]",
        ),
    ] = None

    max_message_bytes: Annotated[
        int | None,
        typer.Option(
            "--max-message-bytes",
            min=1,
            metavar="BYTES",
            help="Take no frame of more bytes: a peer that sends one is disconnected. [default: 1 GiB]",
        ),
    ] = None

    handshake_timeout: Annotated[
        float | None,
        typer.Option(
            "--handshake-timeout",
            min=0.001,
            metavar="S",
            help="Disconnect a peer whose handshake takes longer than this many seconds. [default: 10; over libzmq 5]",
        ),
    ] = None

    curve_allow: Annotated[
        Path | None,
        typer.Option(
            "--curve-allow",
            metavar="DIR",
            help="The directory of client keys to admit, one file each; SIGHUP reloads it.",
        ),
    ] = None

    def keywords(self) -> dict[str, Any]:
        """As roles take them."""
        limits = {
            "max_connections": self.max_connections,
            "max_connections_per_host": self.max_connections_per_host,
            "max_message_bytes": self.max_message_bytes,
            "handshake_timeout_s": self.handshake_timeout,
        }
        return {**super().keywords(), **{name: limit for name, limit in limits.items() if limit is not None}}

    def curve(self) -> Curve | None:
        """The CURVE options; SIGHUP reads the allow-list again."""
        if self.curve_allow is None:
            return self.keys()
        if self.curve_secret is None and self.curve_server_key is None:
            message = "--curve-allow needs --curve-secret, the key of this server."
            raise typer.BadParameter(message)
        from trunkline.curve import Curve

        made = Curve(self.curve_secret, server_key=self.curve_server_key, allow=self.curve_allow)
        reloading = Reloading("allow-list stays")
        reloading.begin(made.reload)
        signal.signal(signal.SIGHUP, reloading.reload)
        return made


Private = Annotated[
    bool, typer.Option("--private", help="Restrict the capture to this user: directories 0700, files 0600.")
]


@dataclass(frozen=True)
class Segments:
    """The segments of a capture, and its retention."""

    segment_bytes: Annotated[
        int | None,
        typer.Option(
            "--segment-bytes",
            min=1,
            metavar="BYTES",
            help="Publish a segment after this many bytes of frames. [default: 256 MiB]",
        ),
    ] = None
    segment_seconds: Annotated[
        float | None,
        typer.Option(
            "--segment-seconds",
            min=0.1,
            metavar="S",
            help="Publish a segment after this many seconds. [default: 60]",
        ),
    ] = None
    keep_bytes: Annotated[
        int | None,
        typer.Option(
            "--keep-bytes",
            min=0,
            metavar="BYTES",
            help="Delete the oldest segments when the capture exceeds this size.",
        ),
    ] = None
    keep_days: Annotated[
        float | None,
        typer.Option("--keep-days", min=0, metavar="D", help="Delete segments older than this many days."),
    ] = None
    private: Private = False
    warn_free_bytes: Annotated[
        int,
        typer.Option(
            "--warn-free-bytes", min=0, metavar="BYTES", help="Warn when the disk has less free space than this."
        ),
    ] = 10 << 30
    critical_free_bytes: Annotated[
        int,
        typer.Option(
            "--critical-free-bytes", min=0, metavar="BYTES", help="Log a critical message when it has less than this."
        ),
    ] = 3 << 30

    def keywords(self) -> dict[str, Any]:
        """As roles take them."""
        return {
            "segment_bytes": self.segment_bytes,
            "segment_s": self.segment_seconds,
            "keep_bytes": self.keep_bytes,
            "keep_days": self.keep_days,
            "capture_private": self.private,
            "warn_free_bytes": self.warn_free_bytes,
            "critical_free_bytes": self.critical_free_bytes,
        }


class Overflow(StrEnum):
    """What happens when a capture cannot keep up."""

    COUNT = "count"
    BLOCK = "block"


@dataclass(frozen=True)
class Capturing:
    """The capture of a role."""

    capture: Annotated[
        Path | None,
        typer.Option(
            "--capture",
            metavar="DIR",
            help="Record everything received and sent; an existing capture is continued.",
            file_okay=False,
        ),
    ] = None
    capture_overflow: Annotated[
        Overflow,
        typer.Option("--capture-overflow", help="When the disk is slow: drop rows and count them, or stop reading."),
    ] = Overflow.COUNT

    def keywords(self, segments: Segments) -> dict[str, Any]:
        """As roles take them, with the options of segments."""
        if self.capture is None:
            if self != Capturing() or segments != Segments():
                message = "Nothing is recorded: give --capture, or leave out the recording options."
                raise typer.BadParameter(message)
            return {}
        return {**segments.keywords(), "capture": self.capture, "capture_overflow": self.capture_overflow.value}

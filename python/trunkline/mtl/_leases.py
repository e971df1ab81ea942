"""Leases and counters, shared by a client and its data connections."""

from __future__ import annotations

import itertools
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from trunkline._metrics.counters import NO_LATENCIES, Count, Latencies, Level, TransportName, measured
from trunkline._roles.endpoints import what_is_wrong
from trunkline.errors import LeaseRefusedError, RemoteProtocolError

if TYPE_CHECKING:
    from trunkline._native import Outgoing
    from trunkline._native.mtl import Client, Flow, Reply
    from trunkline._roles.notices import Dropped
    from trunkline.options import RoleOptions

__all__ = ["ClientStats", "Connections", "Leasing", "Terms", "checked"]


@dataclass(frozen=True, slots=True)
class ClientStats:
    """Counters of a client since its start, including its data connections.

    Attributes:
        received: Messages received.
        sent: Messages sent.
        dropped: Dropped messages by kind; only kinds that occurred.
        bytes: Bytes of all frames received.
        contents: Contents received, or accepted for sending.
        confirmed: Contents that were confirmed.
        rejected: Contents that were rejected.
        unconfirmed: Contents neither confirmed nor rejected yet.
        latency: How long contents of writers took until they were confirmed or rejected; without confirmation none.
        at_risk: Contents sent without confirmation on a connection that was lost before they were known to have arrived.
        reconnects: Connections re-established.
        capture_lost: Rows dropped because the capture could not keep up.
        connection_failures: Connections that were refused or given up, by reason, e.g. ``too_many_frames`` or
            ``handshake_timeout``; only reasons that occurred, and none over libzmq, which does not tell them.
        transport: The implementation of ZeroMQ that it runs over, e.g. ``"zmtp"``.
    """

    received: Count
    sent: Count
    dropped: Mapping[str, Count]
    bytes: Count
    contents: Count
    confirmed: Count
    rejected: Count
    unconfirmed: Level
    latency: Latencies
    at_risk: Count
    reconnects: Count
    capture_lost: Count
    connection_failures: Mapping[str, Count]
    transport: TransportName


class Connections:
    """The data connections of a client, and the counters of those that have ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # In the order they were opened.
        self._open: dict[Flow, None] = {}
        self._ended: list[dict[str, Any]] = []
        # Connections that were never closed: the garbage collector adds them at any time, so without a lock.
        self._collected: deque[Flow] = deque()

    def __iter__(self) -> Iterator[Flow]:
        """Iterates over the open ones."""
        with self._lock:
            return iter(list(self._open))

    def begin(self, flow: Flow) -> None:
        """Adds an open one."""
        with self._lock:
            self._end_collected()
            self._open[flow] = None

    def end(self, flow: Flow) -> None:
        """Removes a closed one and keeps its final counters."""
        with self._lock:
            self._end(flow)

    def collect(self, flow: Flow) -> None:
        """Removes one that is garbage-collected, closed or not."""
        if flow in self._open:
            self._collected.append(flow)

    def stats(self, control: Mapping[str, Any]) -> ClientStats:
        """The sum of the counters, with those of the control connection."""
        with self._lock:
            self._end_collected()
            flows, ended = list(self._open), self._ended
        return summed([control, *(measured(flow.stats()) for flow in flows), *ended])

    def _end_collected(self) -> None:
        while self._collected:
            self._end(self._collected.popleft())

    def _end(self, flow: Flow) -> None:
        if flow in self._open:
            del self._open[flow]
            self._ended = [_shown(summed([measured(flow.stats()), *self._ended]))]


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a data connection of a client; it counts among the client's `connections`."""

    connections: Connections
    control: Callable[[], Client]
    reads: bool
    resources: Sequence[str]
    is_confirmed: bool
    window: int
    says_window: bool
    timeout_s: float
    heartbeat: Mapping[str, Any]
    capture_secrets: bool
    options: RoleOptions
    on_drop: Callable[[Dropped], object] | None

    @property
    def who(self) -> str:
        """Its name in logs."""
        return "reader" if self.reads else "writer"

    def leasing(self) -> Leasing:
        """Requests a lease, and the endpoint to redeem it at (MTL-26)."""
        body: dict[str, Any] = {"resources": list(self.resources), "confirm": "full" if self.is_confirmed else "none"}
        if self.reads and self.says_window:
            body["window"] = self.window
        name = "Connection.Reader" if self.reads else "Connection.Writer"
        native = self.control()
        return Leasing(native, name, native.call(name, body, None), self.timeout_s)

    def settings(self, endpoint: str, lease: str, max_message_bytes: int) -> dict[str, Any]:
        """The settings of its machine."""
        return {
            "reads": self.reads,
            "resources": list(self.resources),
            "is_confirmed": self.is_confirmed,
            "window": self.window,
            "endpoint": endpoint,
            "lease": lease,
            "timeout_s": self.timeout_s,
            "max_message_bytes": max_message_bytes,
            "capture_secrets": self.capture_secrets,
            **self.heartbeat,
        }


class Leasing:
    """A request for a lease and the endpoint to redeem it at, made in the thread that waits for it (MTL-26).

    Attributes:
        max_message_bytes: The largest frame that the server accepts, if it announced a limit.
    """

    def __init__(self, native: Client, name: str, outgoing: Outgoing, timeout_s: float) -> None:
        self._native = native
        self._name = name
        self._outgoing = outgoing
        self._timeout_s = timeout_s
        self.max_message_bytes = sys.maxsize

    def wait(self) -> tuple[str, str]:
        """The endpoint, and the lease.

        Raises:
            LeaseRefusedError, RemoteProtocolError, AuthenticationError, TimeoutError, ClosedError: No lease was granted.
        """
        reply: Reply = self._native.request(self._outgoing, room_s=self._timeout_s, timeout_s=self._timeout_s)
        said = checked(self._name, reply).body
        lease, port, endpoint = said.get("lease"), said.get("port"), said.get("endpoint")
        if not isinstance(endpoint, str):
            host, _, _ = self._native.endpoint.rpartition(":")
            # Without a host, as over ipc, the port has no meaning.
            has_port = host.startswith("tcp://") and isinstance(port, int) and 0 < port < 1 << 16
            endpoint = f"{host}:{port}" if has_port else None
        if not isinstance(lease, str) or not isinstance(endpoint, str) or len(lease.encode()) > 255:
            message = "invalid lease from the server: its reply has no lease, or no port"
            raise RemoteProtocolError(message, "MTL-26", status=reply.status, body=said)
        wrong = what_is_wrong("connect", endpoint)
        if wrong is not None:
            message = f"invalid lease from the server: its endpoint {endpoint!r} {wrong}"
            raise RemoteProtocolError(message, "MTL-26", status=reply.status, body=said)
        most = said.get("max-message-bytes")
        if isinstance(most, int) and most > 0:
            self.max_message_bytes = most
        return endpoint, lease

    def close(self, _grace_s: float) -> None:
        """Ends the wait of the thread."""
        self._native.cancel(self._outgoing.call)


def _shown(stats: ClientStats) -> dict[str, Any]:
    """Counters as a dataclass."""
    return {field.name: getattr(stats, field.name) for field in fields(stats)}


def summed(all_: Sequence[Mapping[str, Any]]) -> ClientStats:
    """The sum of counters of several connections."""
    by_kind: dict[str, Counter[str]] = {"dropped": Counter(), "connection_failures": Counter()}
    for one, (name, counts) in itertools.product(all_, by_kind.items()):
        counts.update(one[name])
    # A control connection has no latencies of contents.
    latency = sum((one["latency"] for one in all_ if "latency" in one), NO_LATENCIES)
    others: dict[str, Any] = {name: dict(counts) for name, counts in by_kind.items()}
    others |= {"latency": latency, "transport": all_[0]["transport"]}
    names = [field.name for field in fields(ClientStats) if field.name not in others]
    return ClientStats(**others, **{name: sum(one.get(name, 0) for one in all_) for name in names})


def checked(name: str, reply: Reply) -> Reply:
    """The reply, unless its status says that the command failed (MTL-29)."""
    if reply.status < 400:
        return reply
    said = reply.body
    text = f"{name} was answered with {reply.status} {said.get('status', '')}".rstrip()
    if reply.status == 403 and name in ("Connection.Reader", "Connection.Writer"):
        raise LeaseRefusedError(text, reply.status)
    raise RemoteProtocolError(text, status=reply.status, body=said)

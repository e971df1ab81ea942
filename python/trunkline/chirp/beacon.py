"""The only role: offers services, requests them, and reports those of others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from trunkline._arguments import need_callable, need_choice, need_flag, need_names, need_port, need_text, refuse
from trunkline._metrics.counters import Count, Level
from trunkline._native import has_network
from trunkline._native.chirp import Beacon as _Beacon
from trunkline._roles.base import AsyncStream, BlockingRole, Role
from trunkline._roles.notices import Dropped, Notices
from trunkline._roles.options import native_options
from trunkline._text import readable
from trunkline.chirp.datagram import Kind, Service, hash_name
from trunkline.errors import ClosedError, LocalProtocolError
from trunkline.options import spelled_out

__all__ = ["AsyncBeacon", "Beacon", "BeaconStats", "Cast", "Event"]

Cast = Literal["multicast", "broadcast"]

PORT = 7123


@dataclass(frozen=True, slots=True)
class Event:
    """An announcement by another host of the group.

    Attributes:
        kind: "offer": a service that was not there before; "request": it asks for a service; "depart": the end of an offer.
        host: The host, as `hash_name` returns it.
        name: Its name, if it is one of the beacon's `names`.
        service: The service.
        endpoint: Where the service is, e.g. ``tcp://192.0.2.1:23999``; None for a request.
    """

    kind: Kind
    host: str
    name: str | None
    service: Service
    endpoint: str | None


@dataclass(frozen=True, slots=True)
class BeaconStats:
    """Counters of a beacon since its start.

    Attributes:
        received: Datagrams received.
        ignored: Those from this host itself and from other groups.
        dropped: Dropped datagrams by kind; only kinds that occurred.
        sent: Announcements and requests sent; each goes to every network.
        services: Services of others currently offered; at most 1024 are remembered.
    """

    received: Count
    ignored: Count
    dropped: Mapping[str, Count]
    sent: Count
    services: Level


def need_cast(chirp: Cast, *, lower_case: bool = True, port: int = PORT, prefix: str = "") -> None:
    """Refuses invalid options of announcements."""
    need_choice("chirp", chirp, get_args(Cast))
    need_flag(f"{prefix}lower_case", lower_case)
    need_port(f"{prefix}port", port)


def beacon_options(
    group: str,
    name: str | None,
    *,
    chirp: Cast,
    lower_case: bool = True,
    names: Sequence[str] | None = None,
    only_names: bool = False,
    port: int = PORT,
    prefix: str = "",
) -> dict[str, Any]:
    """The settings of a beacon, as the native roles take them; `prefix` comes before the names of a role's own arguments."""
    need_text("group", group)
    need_text("name", name, may_be_none=True)
    need_cast(chirp, lower_case=lower_case, port=port, prefix=prefix)
    need_names("names", names, may_be_none=True)
    return {
        "group": group,
        "name": name,
        "broadcast": chirp == "broadcast",
        "lower_case": lower_case,
        "names": [names] if isinstance(names, str) else list(names or ()),
        "only_names": only_names,
        "port": port,
    }


def warn_of_no_network(notices: Notices) -> None:
    """Warns if no network is up, as while a host starts: peers are found later then."""
    if not has_network():
        notices.log(logging.WARNING, "network", "no network interface is up: peers of the group are found once one is")


def _need_service(service: object) -> None:
    if not isinstance(service, Service):
        refuse("service", "a trunkline.chirp.Service", service)


class _BeaconBase(Role):
    _native: _Beacon | None = None

    @spelled_out()
    def __init__(
        self,
        group: str,
        name: str | None = None,
        *,
        chirp: Cast = "multicast",
        lower_case: bool = True,
        names: Sequence[str] = (),
        on_drop: Callable[[Dropped], object] | None = None,
        port: int = PORT,
        metrics: str | None = None,
    ) -> None:
        need_callable("on_drop", on_drop)
        self.group = group
        self.name = name
        self._port = port
        self._lower_case = lower_case
        self._on_drop = on_drop
        self._metrics_at = metrics
        self._options = beacon_options(group, name, chirp=chirp, lower_case=lower_case, names=names, port=port)
        self._made()

    @property
    def _metrics(self) -> str | None:
        return self._metrics_at

    def _open(self) -> None:
        # No reference to this role, which the callback would keep alive.
        self._notices = notices = Notices("chirp", self.name or self.group, self._on_drop)

        def on_drop(_: str, *dropped: Any) -> None:
            # Other protocols may use this port, so it is no warning (CHIRP-02).
            notices.dropped(Dropped(*dropped), level=logging.DEBUG)

        self._native = _Beacon(native_options({}, grace_s=0.0, finds=True), self._options, on_drop)
        warn_of_no_network(notices)

    @property
    def _beacon(self) -> _Beacon:
        native: _Beacon = self._opened()
        return native

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Where it listens, on every network of this host."""
        return (f"udp://0.0.0.0:{self._port}",)

    @property
    def host(self) -> str | None:
        """What stands for its name in what it announces; None without a name."""
        return None if self.name is None else hash_name(self.name, lower_case=self._lower_case)

    @property
    def stats(self) -> BeaconStats:
        """The current counters; the final ones once closed."""
        return BeaconStats(**self._beacon.stats())

    def offer(self, service: Service, port: int) -> None:
        """Announces a service, and answers requests for it, until `depart` or `close` (CHIRP-05).

        Args:
            service: The service.
            port: Its TCP port, on every address of this host. A different one replaces the previous one.

        Raises:
            LocalProtocolError: The beacon has no name, or the port is 0.
            ClosedError: The beacon is closed.
        """
        _need_service(service)
        need_port("port", port, least=1, error=LocalProtocolError)
        if self.name is None:
            message = "a beacon needs a name to offer a service: give it one"
            raise LocalProtocolError(message)
        self._beacon.check_open()
        self._beacon.offer(service, port)
        self._log("offers", service, f"at port {port}")

    def request(self, service: Service) -> None:
        """Asks who offers a service; those who do answer within 200 ms (CHIRP-05).

        It is asked by multicast and by broadcast, with both hashes where they differ.

        Raises:
            ClosedError: The beacon is closed.
        """
        _need_service(service)
        self._beacon.check_open()
        self._beacon.request(service)
        self._log("requests", service)

    def depart(self, service: Service) -> None:
        """Takes an offer back; without one does nothing.

        Raises:
            ClosedError: The beacon is closed.
        """
        _need_service(service)
        self._beacon.check_open()
        self._beacon.depart(service)
        self._log("departs", service)

    def stop(self) -> None:
        """Takes every offer back and lets iteration end by itself; does not wait, so a signal handler may call it."""
        self._beacon.close(0)

    def _event(self, found: tuple[Kind, str, str | None, int, str | None]) -> Event:
        kind, host, name, service, endpoint = found
        event = Event(kind, host, name, Service(service), endpoint)
        self._log(kind, event.service, f"of {name or host}", endpoint=endpoint, host=host)
        return event

    def _log(self, kind: str, service: Service, *details: str, **fields: str | None) -> None:
        """Logs announcements of this and other hosts, at DEBUG, as there may be many."""
        named = {"kind": kind, "service": service.name.lower(), **fields}
        words = filter(None, (kind, named["service"], *details, fields.get("endpoint")))
        self._notices.log(logging.DEBUG, kind, readable(" ".join(words)), fields=named)


class Beacon(_BeaconBase, BlockingRole):
    """Offers services of a host to its group, and reports what other hosts offer and request.

    Iterate over it, or call `receive`. An offer is reported when it is new, however often it is repeated. A host that
    offers a service at another port, or from another address, has replaced it: that is reported as a "depart" of the
    old endpoint and an "offer" of the new one, so ``endpoints.add`` and ``endpoints.discard`` suffice. Unread
    events beyond 65 536 are lost.

    Offers end with the beacon: at `close`, and when the interpreter exits, as after Ctrl-C. SIGTERM kills a process at once
    unless it is handled: ``signal.signal(signal.SIGTERM, lambda *_: sys.exit())`` makes it a normal exit.

    Args:
        group: The group it belongs to.
        name: The name of this host; without one the beacon only listens and sends requests.
        chirp: How offers and departures are sent: by "multicast", which releases from 0.5 on receive, or by
            "broadcast", for those before. Both are received.
        lower_case: Whether they carry hashes of names in lower case, as releases from 0.7 on do (CHIRP-03). Both match.
        names: Names of other hosts, so that their hashes are recognised.
        on_drop: Called with a `trunkline.Dropped` for each invalid datagram, in the thread that reads.
        port: The UDP port.
        metrics: Where to serve its counters for Prometheus, e.g. ``"127.0.0.1:9100"``; see `trunkline.RoleOptions`.

    Raises:
        OSError: The port cannot be shared, or no network can be joined.

    ```pycon
    >>> from trunkline import chirp
    >>> beacon = chirp.Beacon("tour", "Detector.two")
    >>> beacon.offer(chirp.Service.DATA, 23999)
    >>> with chirp.Beacon("tour", names=["Detector.two"]) as viewer:
    ...     viewer.request(chirp.Service.DATA)
    ...     event = viewer.receive(timeout_s=10)
    ...     event.kind, event.name, event.service
    ...     beacon.depart(chirp.Service.DATA)
    ...     for event in viewer:
    ...         viewer.stop()
    ...     event.kind
    ('offer', 'Detector.two', <Service.DATA: 4>)
    'depart'
    >>> beacon.close()

    ```
    """

    def receive(self, *, timeout_s: float | None = None) -> Event:
        """Waits for an event.

        Args:
            timeout_s: How long to wait; None for no limit, 0 to return at once.

        Raises:
            TimeoutError: Nothing arrived in time.
            ClosedError: The beacon is closed.
        """
        return self._event(self._beacon.receive(timeout_s))

    def __iter__(self) -> Iterator[Event]:
        """Every event until the beacon is closed."""
        while True:
            try:
                event = self.receive()
            except ClosedError:
                self._beacon.raise_failure()
                return
            yield event

    def close(self) -> None:
        """Withdraws every offer, and closes (CHIRP-05)."""
        self._finish(0)


class AsyncBeacon(_BeaconBase, AsyncStream[Event]):
    """`Beacon` for asyncio: opened by ``async with``, iterated by ``async for``.

    ```pycon
    >>> import asyncio
    >>> from trunkline import chirp
    >>> async def main():
    ...     async with chirp.AsyncBeacon("visit", "Detector.two") as beacon:
    ...         beacon.offer(chirp.Service.DATA, 23999)
    ...         async with chirp.AsyncBeacon("visit", names=["Detector.two"]) as viewer:
    ...             viewer.request(chirp.Service.DATA)
    ...             kinds = [(await viewer.receive(timeout_s=10)).kind]
    ...             beacon.depart(chirp.Service.DATA)
    ...             async for event in viewer:
    ...                 kinds.append(event.kind)
    ...                 viewer.stop()
    ...         await beacon.close()
    ...     return kinds, event.name
    >>> asyncio.run(main())
    (['offer', 'depart'], 'Detector.two')

    ```
    """

    async def receive(self, *, timeout_s: float | None = None) -> Event:
        """See `Beacon.receive`."""
        beacon = self._beacon
        return self._event(await self._waits.taken(beacon.poll, timeout_s, "no news came"))

    async def close(self) -> None:
        """See `Beacon.close`."""
        await self._finish(0)

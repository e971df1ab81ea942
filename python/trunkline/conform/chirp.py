"""CHIRP: the beacons of a group, tested by another host of it."""

from __future__ import annotations

import hashlib
import secrets
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from trunkline.conform.checks import Failed, Limits, Skipped, Subject, Suite, TooMuch, Transcript
from trunkline.errors import LocalProtocolError, TrunklineError

__all__ = ["SUITE"]

_ADDRESS, _PORT = "239.192.7.123", 7123
_FORM = struct.Struct("!6sB16s16sBH")
_START = b"CHIRP\x01"
_REQUEST, _OFFER, _DEPART = range(1, 4)
_SERVICES = (1, 2, 3, 4)
_TTL = 8

# How long a beacon may hold back its answer, so that not all speak at the same time.
_JITTER_S = 0.2

_DATAGRAM = 1 << 16


class _Heard(NamedTuple):
    at: float
    data: bytes

    @property
    def is_whole(self) -> bool:
        return len(self.data) == _FORM.size and self.data.startswith(_START)

    @property
    def kind(self) -> int:
        return self.data[6]

    @property
    def group(self) -> bytes:
        return self.data[7:23]

    @property
    def host(self) -> bytes:
        return self.data[23:39]

    @property
    def service(self) -> int:
        return self.data[39]


def _where(subject: Subject) -> tuple[str, int, str]:
    """The address, the port and the name of a group: given by its name, or as udp://ADDRESS:PORT/NAME.

    Raises:
        LocalProtocolError: It is neither.
    """
    if not subject.endpoint.startswith("udp://"):
        return _ADDRESS, _PORT, subject.endpoint
    try:
        parts = urlsplit(subject.endpoint)
        host, port = parts.hostname, parts.port or _PORT
        socket.inet_aton(host or "")
    except (ValueError, OSError):
        host, port = None, 0
    name = unquote(parts.path.removeprefix("/")) if host is not None else ""
    if host is None or not name:
        message = f"{subject.endpoint!r} is neither the name of a group nor like udp://{_ADDRESS}:{_PORT}/lab"
        raise LocalProtocolError(message)
    return host, port, name


def _need_group(subject: Subject) -> None:
    """Refuses what is no group, and what it has not.

    Raises:
        LocalProtocolError: As said.
    """
    _, _, name = _where(subject)
    if not name:
        message = "the name of the group is empty"
        raise LocalProtocolError(message)
    if subject.curve is not None or subject.user is not None or subject.target is not None:
        message = "CHIRP has no keys, logins and targets: leave out --curve-server-key, --user and --target"
        raise LocalProtocolError(message)


def _md5(name: str) -> bytes:
    return hashlib.md5(name.encode(), usedforsecurity=False).digest()


class _Bench:
    """A host of the group, whose beacons are heard on every interface."""

    def __init__(self, subject: Subject, limits: Limits) -> None:
        self.limits = limits
        self.transcript = Transcript()
        self._address, self._port, name = _where(subject)
        self.what = f"group {name} at {self._address}:{self._port}"
        # Releases before 0.7 hash the name as it is, later ones in lower case.
        self.groups = list(dict.fromkeys((_md5(name.lower()), _md5(name))))
        self._host = _md5(f"trunkline.conform.{secrets.token_hex(8)}")
        # All that was heard, other groups too.
        self.heard: list[_Heard] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        if sys.platform != "linux":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._is_multicast = 224 <= int(self._address.partition(".")[0]) < 240
        self._socket.bind(("", self._port))
        self._interfaces = [*self._joined()] if self._is_multicast else [None]
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, _TTL)

    def _joined(self) -> Iterator[bytes | None]:
        """The interfaces on which the socket has joined the group."""
        anywhere, group = socket.inet_aton("0.0.0.0"), socket.inet_aton(self._address)  # noqa: S104 - not to listen
        for index, _ in socket.if_nameindex():
            interface = struct.pack("@i", index)
            try:
                self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + anywhere + interface)
            except OSError:
                continue
            yield anywhere + anywhere + interface

    def request(self, service: int, group: bytes) -> None:
        """Asks a group for a service."""
        datagram = _FORM.pack(_START, _REQUEST, group, self._host, service, 0)
        self.transcript.add(self.transcript.sent, "host", [datagram])
        for interface in self._interfaces:
            try:
                if interface is not None:
                    self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
                self._socket.sendto(datagram, (self._address, self._port))
            except OSError:
                # It may have no address, or be down.
                continue

    def listen(self, for_s: float) -> list[_Heard]:
        """What comes for so long, of whichever group, but for our own."""
        came = []
        for left in self.limits.wait(for_s):
            if not select.select([self._socket], [], [], left)[0]:
                continue
            data = self._socket.recv(_DATAGRAM)
            if not self.limits.take(len(data)):
                raise TooMuch
            heard = _Heard(time.monotonic(), data)
            # What is not CHIRP's at all is of other programs.
            if data.startswith(b"CHIRP") and not (heard.is_whole and heard.host == self._host):
                came.append(heard)
                self.transcript.add(self.transcript.received, "host", [data])
        self.heard += came
        return came

    def mine(self, heard: list[_Heard]) -> list[_Heard]:
        """Those of the group."""
        return [each for each in heard if each.is_whole and each.group in self.groups]

    def speaks(self) -> None:
        """Makes sure that a beacon of the group answers, and hears all that do."""
        if self.mine(self.heard):
            return
        for service in _SERVICES:
            for group in self.groups:
                self.request(service, group)
        if not self.mine(self.listen(_JITTER_S + self.limits.patience_s)):
            message = f"nobody in {self.what} answers"
            raise TrunklineError(message)

    def offers(self) -> list[_Heard]:
        """What was offered in the group, each host and service once.

        Raises:
            Skipped: Nothing was.
        """
        found = {(each.host, each.service): each for each in self.mine(self.heard) if each.kind == _OFFER}
        if not found:
            message = "nobody offers anything"
            raise Skipped(message)
        return [*found.values()]

    def is_answered(self, offer: _Heard, group: bytes) -> bool:
        """Whether a host offers a service again, or leaves, in answer to a request."""
        self.request(offer.service, group)
        end = time.monotonic() + _JITTER_S + self.limits.patience_s
        while time.monotonic() < end:
            came = [(each.kind, each.host, each.service) for each in self.mine(self.listen(_JITTER_S / 4))]
            if any((kind, offer.host, offer.service) in came for kind in (_OFFER, _DEPART)):
                return True
        return False

    def clear(self) -> None:
        """Has nothing to close: all checks share the socket."""

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()


SUITE = Suite(
    "the beacons of a CHIRP group",
    _Bench,
    {
        "CHIRP-07": "datagrams of no sense would disturb the whole group",
    },
    _need_group,
)


@SUITE.check("CHIRP-01", "A beacon has 42 bytes", "CHIRP and version 1, and 36 bytes behind them, in every datagram")
def _whole(bench: _Bench) -> None:
    for each in bench.heard:
        if not each.is_whole:
            message = f"a datagram of {len(each.data)} bytes begins with {each.data[:6]!r}"
            raise Failed(message)
    for each in bench.mine(bench.heard)[:4]:
        bench.transcript.add(bench.transcript.received, "host", [each.data])


@SUITE.check(
    "CHIRP-02",
    "Types and services outside the lists are ignored",
    "types from 1 to 3 and services from 1 to 4, in every datagram of the group",
    needs=("CHIRP-01",),
)
def _known(bench: _Bench) -> None:
    for each in bench.mine(bench.heard):
        if each.kind not in (_REQUEST, _OFFER, _DEPART) or each.service not in _SERVICES:
            message = f"a datagram has the type {each.kind} and the service {each.service}"
            raise Failed(message)


@SUITE.check(
    "CHIRP-04",
    "Multicast or broadcast on port 7123, shared by several beacons",
    "datagrams of the group at the address and the port, which this host shares",
    needs=("CHIRP-01",),
)
def _shared(bench: _Bench) -> None:
    bench.offers()


@SUITE.check(
    "CHIRP-05",
    "Offers, requests, answers and departures at their times",
    "an offer again, within 0.2 s, of each host for each service that it offers, in answer to a request",
    needs=("CHIRP-02",),
)
def _answers(bench: _Bench) -> None:
    for offer in bench.offers():
        if not bench.is_answered(offer, offer.group):
            message = f"host {offer.host.hex()} does not answer a request for service {offer.service}, which it offers"
            raise Failed(message)


@SUITE.check(
    "CHIRP-03",
    "Names are hashed as they are and in lower case",
    "an answer to a request with either hash of the group, where they differ",
    needs=("CHIRP-05",),
)
def _hashes(bench: _Bench) -> None:
    (offer, *_) = bench.offers()
    if len(bench.groups) == 1:
        message = "the name of the group is in lower case: its hashes are the same"
        raise Skipped(message)
    for group in bench.groups:
        if not bench.is_answered(offer, group):
            message = f"host {offer.host.hex()} answers to one of the hashes, as each release does to its own"
            raise Skipped(message)


@SUITE.check(
    "CHIRP-06",
    "Own beacons and other groups are ignored; a new port replaces the old",
    "no offer in answer to a request of another group",
    needs=("CHIRP-05",),
)
def _others(bench: _Bench) -> None:
    offer = bench.offers()[0]
    bench.listen(_JITTER_S)
    bench.request(offer.service, _md5(f"trunkline.conform.{secrets.token_hex(8)}"))
    came = bench.listen(2 * _JITTER_S)
    if any(each.kind == _REQUEST for each in bench.mine(came)):
        message = "another host asks at the same time"
        raise Skipped(message)
    if any(each.is_whole and (each.kind, each.host) == (_OFFER, offer.host) for each in came):
        message = f"host {offer.host.hex()} answers a request of another group"
        raise Failed(message)

"""Peers of ZeroMQ for checks: raw sockets of pyzmq, whose bytes are counted."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import zmq

from trunkline._roles.endpoints import what_is_wrong
from trunkline._text import readable_bytes
from trunkline.conform.checks import BYTES, Failed, Limits, Skipped, Subject, Transcript
from trunkline.conform.relay import Link, dial
from trunkline.errors import LocalProtocolError, TrunklineError

__all__ = ["Greeting", "Peer", "ZmqBench", "need_endpoint", "shown"]

_GREETING_BYTES = 64
_SIGNATURE = b"\xff\0\0\0\0\0\0\0\x01\x7f"
_MECHANISMS = "CURVE takes --curve-server-key, PLAIN --user"
_MILLISECONDS = 1000
# What is sent shortly before a peer is closed still goes out.
_LINGER_MS = 100


def need_endpoint(subject: Subject) -> None:
    """Refuses what cannot be dialled, and what it has not.

    Raises:
        LocalProtocolError: The endpoint is none, or of another transport.
    """
    wrong = what_is_wrong("connect", subject.endpoint)
    if wrong is None and not subject.endpoint.startswith(("tcp://", "ipc://")):
        wrong = "is neither tcp:// nor ipc://"
    if wrong is not None:
        message = f"{subject.endpoint!r} {wrong}"
        raise LocalProtocolError(message)
    if subject.target is not None:
        message = "--target is for cdt alone"
        raise LocalProtocolError(message)


def shown(frames: Sequence[bytes]) -> str:
    """Frames in a line: `·` between them, `∅` for an empty one."""
    cut = [frame if len(frame) <= 40 else frame[:40] + b"..." for frame in frames[:8]]
    text = " · ".join(readable_bytes(frame) or "∅" for frame in cut)
    return f"{text} · … ({len(frames):,} frames)" if len(frames) > len(cut) else text


class Greeting(NamedTuple):
    """What a peer says of itself when it greets.

    Attributes:
        version: The version of ZMTP.
        mechanism: Its mechanism of security.
        kind: The type of its socket; None if that is encrypted.
    """

    version: tuple[int, int]
    mechanism: str
    kind: str | None


def _greeting(head: bytes) -> Greeting | None:
    """The greeting in the first bytes of a peer; None if they are none of ZMTP."""
    if len(head) < _GREETING_BYTES or head[0] != 0xFF or head[9] != 0x7F:
        return None
    mechanism = head[12:32].rstrip(b"\0").decode("ascii", "replace")
    name = b"\x0bSocket-Type"
    at = head.find(name, _GREETING_BYTES)
    kind = None
    if at >= 0:
        start = at + len(name) + 4
        size = int.from_bytes(head[start - 4 : start], "big")
        kind = head[start : start + size].decode("ascii", "replace") if size < 32 else None
    return Greeting((head[10], head[11]), mechanism, kind)


class Peer:
    """A raw socket that is one peer of the subject.

    Attributes:
        name: What results call it.
    """

    def __init__(
        self, name: str, socket: zmq.Socket[bytes], link: Link, limits: Limits, transcript: Transcript
    ) -> None:
        self.name = name
        self._socket = socket
        self.link = link
        self._limits = limits
        self._transcript = transcript

    def send(self, *messages: Sequence[bytes]) -> None:
        """Sends messages, each a sequence of frames."""
        for frames in messages:
            self._limits.check()
            self._transcript.add(self._transcript.sent, self.name, frames)
            try:
                self._socket.send_multipart(frames, zmq.DONTWAIT)
            except zmq.Again:
                message = f"it does not read what {self.name} sends"
                raise Failed(message) from None

    def next(self, within_s: float | None = None) -> list[bytes] | None:
        """The next message; None if none comes in time, or the connection ends before."""
        for left in [0.0] if within_s == 0 else self._limits.wait(within_s):
            ended = self.link.has_ended.is_set()
            if self._socket.poll(int(left * _MILLISECONDS) + 1, zmq.POLLIN):
                frames = self._socket.recv_multipart()
                self._transcript.add(self._transcript.received, self.name, frames)
                return frames
            if ended:
                self._limits.check()
                return None
        return None

    def receive(self, wanted: str = "an answer") -> list[bytes]:
        """The next message.

        Raises:
            Failed: None comes in time, or the connection ends before.
        """
        frames = self.next()
        if frames is None:
            ended = self.link.has_ended.is_set()
            why = "its connection ended" if ended else f"nothing came within {self._limits.patience_s:g} s"
            message = f"{self.name} waited for {wanted}: {why}"
            raise Failed(message)
        return frames

    def expect(self, *messages: Sequence[bytes]) -> None:
        """Receives these messages, one after another, and no other between them."""
        for frames in messages:
            came = self.receive(shown(frames))
            if came != list(frames):
                message = f"{self.name} got {shown(came)}, not {shown(frames)}"
                raise Failed(message)

    def expect_silence(self, why: str = "nothing was to come", for_s: float | None = None) -> None:
        """Makes sure that nothing comes for a short time, or has come if that is 0."""
        frames = self.next(self._limits.silence_s if for_s is None else for_s)
        if frames is not None:
            message = f"{self.name} got {shown(frames)}: {why}"
            raise Failed(message)

    def greeting(self) -> Greeting | None:
        """How the subject has greeted, once it has; None if that is no greeting of ZMTP."""
        for _ in self._limits.wait():
            found = _greeting(self.link.head)
            if self.link.has_ended.wait(0.01) or (found is not None and (found.kind or found.mechanism != "NULL")):
                break
        return _greeting(self.link.head)

    def close(self) -> None:
        """Closes its connection."""
        self._socket.close(_LINGER_MS)


class ZmqBench:
    """The peers of a suite of ZeroMQ.

    Args:
        subject: The implementation under test.
        limits: The limits of all checks.
        kind: The type of the peers' sockets, unless they have another.
        probe: Makes sure that the subject speaks the protocol: takes this bench, and returns whether it does.
        what: The implementation in words.
    """

    def __init__(
        self, subject: Subject, limits: Limits, kind: int, probe: Callable[[ZmqBench], bool], what: str
    ) -> None:
        self.subject = subject
        self.limits = limits
        self.transcript = Transcript()
        self._kind = kind
        self._probe = probe
        self._what = what
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.max_sockets = 1023
        self._peers: list[Peer] = []
        self._names = 0
        # Names of other runs, and of other checks, are other names.
        self._prefix = f"trunkline.conform.{secrets.token_hex(4)}"

    def name(self) -> bytes:
        """A name that nobody else uses."""
        self._names += 1
        return f"{self._prefix}.{self._names}".encode()

    def open(
        self,
        name: str,
        kind: int | None = None,
        *,
        identity: bytes | None = None,
        endpoint: str | None = None,
        encrypted: bool = True,
    ) -> Peer:
        """Connects a peer.

        Args:
            name: What results call it.
            kind: The type of its socket.
            identity: Its routing id; None for one that the subject chooses.
            endpoint: Another endpoint of the same host.
            encrypted: Whether it uses the keys of the subject, if there are any.
        """
        link = Link(dial(endpoint or self.subject.endpoint, self.limits), self.limits)
        socket = self._context.socket(self._kind if kind is None else kind)
        socket.linger = _LINGER_MS
        socket.reconnect_ivl = -1
        socket.maxmsgsize = BYTES
        socket.rcvhwm = socket.sndhwm = 10_000
        if identity is not None:
            socket.routing_id = identity
        if self.subject.user is not None and self._logs_in:
            socket.plain_username = self.subject.user.encode()
            socket.plain_password = (self.subject.password or "").encode()
        if self.subject.curve is not None and encrypted:
            keys = self.subject.curve
            socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = keys
        socket.connect(link.endpoint)
        peer = Peer(name, socket, link, self.limits, self.transcript)
        self._peers.append(peer)
        return peer

    # Whether a user logs in by PLAIN, rather than by the protocol.
    _logs_in = True

    def speaks(self) -> None:
        """Makes sure that the subject speaks ZeroMQ, and the protocol."""
        where = self.subject.endpoint
        peer = self.open("stranger")
        greeting = peer.greeting()
        self.limits.check()
        wanted = "NULL"
        if self.subject.curve is not None:
            wanted = "CURVE"
        elif self.subject.user is not None and self._logs_in:
            wanted = "PLAIN"
        if greeting is None:
            head, has_ended = peer.link.head, peer.link.has_ended.is_set()
            if not head:
                what = "closes the connection at once" if has_ended else "accepts a connection and says nothing"
            elif not _SIGNATURE.startswith(head[:10]):
                what = f"does not speak ZeroMQ: it begins with {shown([head[:32]])}"
            elif has_ended:
                what = f"ends its greeting: it may want another mechanism than {wanted} ({_MECHANISMS})"
            else:
                what = "does not end its greeting"
            message = f"{where} {what}"
            raise TrunklineError(message)
        if greeting.mechanism != wanted:
            message = f"{where} wants {greeting.mechanism or 'no mechanism'}, not {wanted} ({_MECHANISMS})"
            raise TrunklineError(message)
        if not self._probe(self):
            refused = any(each.link.has_ended.is_set() for each in self._peers)
            end = (
                "closes the connection: it may refuse our key or login"
                if refused
                else f"does not answer as {self._what}"
            )
            message = f"{where} speaks ZeroMQ, but {end}"
            raise TrunklineError(message)

    def need_zmtp_3(self) -> None:
        """Fails a check if the subject does not greet by ZMTP 3."""
        greeting = self.open("client").greeting()
        if greeting is None or greeting.version < (3, 0):
            message = f"the greeting is {greeting}"
            raise Failed(message)

    def need_router(self) -> None:
        """Fails a check if the subject's socket is no ROUTER."""
        greeting = self.open("client").greeting()
        if greeting is None or greeting.kind is None:
            message = "the type of its socket is encrypted"
            raise Skipped(message)
        if greeting.kind != "ROUTER":
            message = f"the socket says it is a {greeting.kind}"
            raise Failed(message)

    def need_curve(self, what: str) -> None:
        """Skips a check if the subject is not encrypted."""
        if self.subject.curve is None:
            message = f"the {what} is not encrypted: --curve-server-key says that it is"
            raise Skipped(message)

    def need_refusal(self, name: str, message: Sequence[bytes]) -> None:
        """Fails a check if a peer without a key is answered."""
        stranger = self.open(name, encrypted=False)
        # Refused before it sends, it has no connection to send on: silence as well.
        with suppress(Failed):
            stranger.send(message)
        stranger.expect_silence("it has no key")

    def clear(self) -> None:
        """Closes the peers of a check."""
        for peer in self._peers:
            peer.close()
        self._peers.clear()

    def close(self) -> None:
        """Closes everything."""
        self.clear()
        self._context.term()

"""Clients of a server of MTL."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator, Sequence

import zmq

from trunkline.conform.checks import Failed, Limits, Skipped, Subject, Suite
from trunkline.conform.mtl_wire import (
    CONTENT,
    MECHANISM,
    PING,
    PONG,
    RESOURCE,
    RESPONSE,
    TEST,
    Content,
    Reply,
    lease_of,
    read_content,
    read_reply,
    summon,
)
from trunkline.conform.scram import Scram
from trunkline.conform.sockets import Peer, ZmqBench, need_endpoint, shown

__all__ = ["SUITE", "Bench", "Control", "opening"]


class Control:
    """A control connection: a DEALER that sends the empty frame of a REQ."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def send(self, name: str, body: object) -> None:
        """Sends a command."""
        self.peer.send([b"", name.encode(), json.dumps(body).encode()])

    def receive(self, wanted: str = "a reply") -> Reply:
        """The next reply.

        Raises:
            Failed: None comes in time, or what comes is none.
        """
        frames = self.peer.receive(wanted)
        if frames[:1] != [b""]:
            message = f"{self.peer.name} got {shown(frames)}, without the empty frame of its request"
            raise Failed(message)
        return read_reply(frames[1:])

    def ask(self, name: str, body: object) -> Reply:
        """Sends a command, and returns its reply."""
        self.send(name, body)
        return self.receive(f"the reply to {name}")

    def expect(self, name: str, body: object, *statuses: int) -> Reply:
        """Sends a command, and makes sure of the status of its reply; without statuses, that it is an error."""
        reply = self.ask(name, body)
        if reply.status not in statuses if statuses else reply.status < 400:
            wanted = " or ".join(map(str, statuses)) or "4xx or 5xx"
            message = f"{name} {json.dumps(body)} was answered with {reply.status} {reply.body['status']}, not {wanted}"
            raise Failed(message)
        return reply


def opening(**other: object) -> dict[str, object]:
    """The members of an Open, with others in their place."""
    return {"protocol": {"name": "MTL", "version": 1}, "virtual-host": "/", **other}


class Bench(ZmqBench):
    """Clients of a server."""

    _logs_in = False

    def __init__(self, subject: Subject, limits: Limits) -> None:
        super().__init__(subject, limits, zmq.DEALER, _answers, "a server of MTL")
        self._queues: list[tuple[Control, str]] = []

    def control(self, name: str = "client") -> Control:
        """A control connection on which nothing was said."""
        return Control(self.open(name))

    def opened(self, name: str = "client") -> tuple[Control, Reply]:
        """A control connection, and the reply to its Open."""
        control = self.control(name)
        return control, control.expect("Connection.Open", opening(), 201, 401)

    def ready(self, name: str = "client") -> tuple[Control, list[str]]:
        """A session that is logged in, and the profiles on offer."""
        control, reply = self.opened(name)
        if reply.status == 401:
            reply = self.log_in(control, reply)
        profiles = reply.body.get("profiles")
        return control, [*map(str, profiles)] if isinstance(profiles, list) else []

    def log_in(self, control: Control, challenge: Reply) -> Reply:
        """Logs in by a mechanism that is on offer.

        Raises:
            Skipped: There is none for us.
        """
        offered = [*map(str, challenge.body.get("mechanisms") or ())]
        user = self.subject.user
        if user is None:
            if "ANONYMOUS" in offered:
                return control.expect("Connection.Authorize", {"mechanism": "ANONYMOUS", "response": ""}, 201)
            message = "the server wants a login: --user and --password-file give one"
            raise Skipped(message)
        if MECHANISM not in offered:
            message = f"the server has no {MECHANISM} to log in by"
            raise Skipped(message)
        *_, reply = self.scram(control, user, self.subject.password or "")
        if reply.status != 201:
            message = f"the login as {user} was answered with {reply.status}: is the password right?"
            raise Skipped(message)
        return reply

    def scram(self, control: Control, user: str, password: str) -> Iterator[Reply]:
        """The replies to a login by SCRAM, up to one that is no challenge."""
        scram = Scram(user, password)
        steps: list[Callable[[bytes], bytes]] = [lambda _: scram.first, scram.final, lambda last: _checked(scram, last)]
        challenge = b""
        for step in steps:
            response = base64.b64encode(step(challenge)).decode()
            reply = control.ask("Connection.Authorize", {"mechanism": MECHANISM, "response": response})
            yield reply
            if reply.status != 402:
                return
            challenge = base64.b64decode(str(reply.body.get("challenge", "")))

    def session(self, profile: str = TEST, name: str = "client") -> Control:
        """A session in a profile.

        Raises:
            Skipped: The server has none of this name.
        """
        control, profiles = self.ready(name)
        if profile not in [each.lower() for each in profiles]:
            message = f"the server has no profile {profile}"
            raise Skipped(message)
        control.expect("Connection.Profile", {"profile": profile}, 200)
        return control

    def leased(
        self, control: Control, kind: str, resources: Sequence[str] = (RESOURCE,), confirm: str = "none"
    ) -> tuple[str, str]:
        """The endpoint of a lease, and the lease.

        Raises:
            Skipped: Its endpoint is not what was given.
        """
        asked = {"resources": [*resources], "confirm": confirm}
        reply = control.expect(f"Connection.{kind}", asked, 202)
        port, lease = reply.body.get("port"), reply.body.get("lease")
        if not isinstance(port, int) or not isinstance(lease, str) or not 0 < len(lease.encode()) <= 255:
            message = f"the lease is {json.dumps(reply.body)}, without a port and a lease"
            raise Failed(message)
        if port and self.subject.endpoint.startswith("tcp://"):
            return f"{self.subject.endpoint.rpartition(':')[0]}:{port}", lease
        if reply.body.get("endpoint", self.subject.endpoint) != self.subject.endpoint:
            message = f"data goes to {reply.body['endpoint']}, which was not given"
            raise Skipped(message)
        return self.subject.endpoint, lease

    def flow(
        self,
        kind: str,
        resources: Sequence[str] = (RESOURCE,),
        confirm: str = "none",
        *,
        control: Control | None = None,
    ) -> Peer:
        """A data connection whose lease is accepted, by sequence 1."""
        endpoint, lease = self.leased(control or self.session(), kind, resources, confirm)
        peer = self.open(kind.lower(), endpoint=endpoint)
        peer.send(lease_of(1, lease))
        self.response(peer, 1, 200)
        return peer

    def reader(
        self, resources: Sequence[str] = (RESOURCE,), confirm: str = "none", *, control: Control | None = None
    ) -> Peer:
        """A reader that has summoned its resources, by sequences from 2."""
        peer = self.flow("Reader", resources, confirm, control=control)
        for at, resource in enumerate(resources, 2):
            peer.send(summon(at, resource))
            self.response(peer, at, 200)
        return peer

    def queue(self) -> tuple[Control, str]:
        """A session in the profile `queue`, and a queue of its own there, which is deleted afterwards.

        Raises:
            Skipped: The server has no such profile, or does not create queues.
        """
        control, name = self.session("queue"), self.name().decode()
        if control.ask("Queue.Create", {"name": name}).status != 200:
            message = "the server creates no queue, and its test profile confirms nothing"
            raise Skipped(message)
        self._queues.append((control, name))
        return control, name

    def next(self, peer: Peer, within_s: float | None = None) -> list[bytes] | None:
        """The next message of a data connection that is no Ping, and no content of others; Pings are answered."""
        for left in self.limits.wait(within_s):
            frames = peer.next(left)
            if frames == PING:
                peer.send(PONG)
            elif frames is not None:
                mine = frames[0][:1] != bytes([CONTENT]) or frames[-1].startswith(self._prefix.encode())
                if mine:
                    return frames
            elif peer.link.has_ended.is_set():
                return None
        return None

    def receive(self, peer: Peer, wanted: str) -> list[bytes]:
        """As `next`.

        Raises:
            Failed: None comes in time.
        """
        frames = self.next(peer)
        if frames is None:
            message = f"{peer.name} waited for {wanted}: nothing came within {self.limits.patience_s:g} s"
            raise Failed(message)
        return frames

    def response(self, peer: Peer, sequence: int, *statuses: int) -> None:
        """Makes sure that the next message is the Response to a sequence, with one of these statuses."""
        wanted = f"the Response {' or '.join(map(str, statuses))} to {sequence}"
        frames = self.receive(peer, wanted)
        if frames not in [[struct.pack(">BQ", RESPONSE, sequence), b"%d" % status] for status in statuses]:
            message = f"{peer.name} got {shown(frames)}, not {wanted}"
            raise Failed(message)

    def content(self, peer: Peer, body: bytes) -> Content:
        """Makes sure that the next message is a content with this body."""
        frames = self.receive(peer, f"the content {shown([body])}")
        content = read_content(frames)
        if content.body != body:
            message = f"{peer.name} got {shown([content.body])}, not {shown([body])}"
            raise Failed(message)
        return content

    def quiet(self, peer: Peer, why: str) -> None:
        """Makes sure that nothing comes for a short time."""
        frames = self.next(peer, self.limits.silence_s)
        if frames is not None:
            message = f"{peer.name} got {shown(frames)}: {why}"
            raise Failed(message)

    def fence(self, peer: Peer, sequence: int) -> None:
        """Makes sure that the server has read what was sent before, and has not answered: a resource of nobody's is refused."""
        peer.send(summon(sequence, self.name().decode()))
        self.response(peer, sequence, 400, 404)

    def clear(self) -> None:
        """Deletes the queues of a check, and closes its peers."""
        for control, name in self._queues:
            control.send("Queue.Delete", {"name": name})
        self._queues.clear()
        super().clear()


def _checked(scram: Scram, last: bytes) -> bytes:
    scram.need_server(last)
    return b""


def _answers(bench: ZmqBench) -> bool:
    """Whether there is any answer to Open."""
    peer = bench.open("stranger")
    peer.send([b"", b"Connection.Open", json.dumps(opening()).encode()])
    frames = peer.next()
    return frames is not None and len(frames[-2:]) > 1 and frames[-2].isdigit()


SUITE = Suite(
    "a server of MTL",
    Bench,
    {
        "MTL-02": "clients do this",
        "MTL-06": "the timers of sessions are an hour and longer",
        "MTL-15": "a server may do this whenever it likes",
        "MTL-18": "SCRAM has a fixed number of steps",
        "MTL-31": "a server may do either",
    },
    need_endpoint,
)

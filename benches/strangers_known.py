"""Attacks with bounded damage, and the bounds: on servers, brokers and middlewares, on the admission by keys, and by what is read."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import struct
import tempfile
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from typing import Any

import zmq

from benches import strangers_inputs
from benches.harness import certificates
from benches.processes import RoleProcess
from benches.strangers_targets import ANY, Seen, dialled, running
from trunkline import Curve, cdtp
from trunkline.mtl.mechanisms import ScramSha256
from trunkline.mtl.users import Users

OPEN = {"protocol": {"name": "MTL", "version": 1}, "virtual-host": "/"}
LARGE = 1 << 20


class Control:
    """A control connection of MTL that need not wait for its replies."""

    def __init__(self, role: RoleProcess, **options: Any) -> None:
        self.socket = dialled(role, zmq.DEALER, **options)

    def say(self, name: str, body: dict[str, Any], *envelope: bytes) -> None:
        """Sends a command."""
        self.socket.send_multipart([*envelope, b"", name.encode(), json.dumps(body).encode()])

    def ask(self, name: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Sends a command, and waits for its reply."""
        self.say(name, body)
        _, status, reply = self.socket.recv_multipart()
        return int(status), json.loads(reply)

    def enter(self) -> Control:
        """Opens a session of the queue profile, where no login is needed."""
        self.ask("Connection.Open", OPEN)
        self.ask("Connection.Profile", {"profile": "queue"})
        return self

    def step(self, response: bytes) -> None:
        """Sends a step of a login."""
        body = {"mechanism": "SCRAM-SHA-256", "response": b64encode(response).decode()}
        self.say("Connection.Authorize", body)


def within(seen: Seen, role: RoleProcess, rss_mib: float, wait_ms: float) -> None:
    """Looks at the memory of a role, and at what a friend has waited so far."""
    seen.rss_mib = max(seen.rss_mib, role.rss_mib)
    if seen.rss_mib > rss_mib:
        seen.wrong.append(f"{seen.rss_mib:.0f} MiB, not {rss_mib:.0f}")
    if seen.worst_ms > wait_ms:
        seen.wrong.append(f"a friend waited {seen.worst_ms:.0f} ms, not {wait_ms:.0f}")


def timed(seen: Seen, ask: Callable[[], object]) -> None:
    """A friend asks, and waits."""
    began = time.monotonic()
    ask()
    seen.worst_ms = max(seen.worst_ms, (time.monotonic() - began) * 1000)


@contextlib.contextmanager
def queues(seen: Seen, *options: str) -> Iterator[tuple[RoleProcess, Control]]:
    """A server without logins, and a friend."""
    with running(seen, "mtl", "server", "--bind", ANY, "--anonymous", "--resource", "jobs", *options) as server:
        yield server, Control(server).enter()


def fill(control: Control, count: int, name: str = "q{}") -> None:
    """Creates so many queues."""
    for number in range(count):
        control.say("Queue.Create", {"name": name.format(number)})
        if number % 100 == 99:
            for _ in range(100):
                control.socket.recv_multipart()


def lists(seen: Seen, end: float) -> None:
    """Lists of 10,000 queues with long names that are not read."""
    with queues(seen) as (server, friend):
        fill(friend, 10_000, "{:05}" + "x" * 240)
        deaf = Control(server, rcvhwm=1).enter()
        while time.monotonic() < end and seen.done.get("lists", 0) < 20_000:
            for _ in range(20):
                deaf.say("Queue.List", {})
            seen.add(lists=20)
            timed(seen, lambda: friend.ask("Queue.Info", {"name": "jobs"}))
        within(seen, server, 400, 1000)
        if friend.ask("Queue.Create", {"name": "one more"})[0] != 429:
            seen.wrong.append("more queues than there may be")
        if friend.ask("Queue.Create", {"name": "jobs2", "max-bytes": 1 << 60})[0] != 400:
            seen.wrong.append("a queue of any size")


def envelopes(seen: Seen, end: float) -> None:
    """Logins that fail, in envelopes of a megabyte and in such as are taken."""
    with tempfile.TemporaryDirectory() as folder:
        Users.read({"ada": "sesame"}).write(f"{folder}/users.toml")
        with running(seen, "mtl", "server", "--bind", ANY, "--users", f"{folder}/users.toml") as server:
            while time.monotonic() < end:
                stranger = Control(server)
                for envelope in (b"e" * LARGE, b"e" * 16_000):
                    for _ in range(50):
                        stranger.say("Connection.Open", OPEN, envelope)
                        body = {"mechanism": "SCRAM-SHA-256", "response": "Z2FyYmFnZQ=="}
                        stranger.say("Connection.Authorize", body, envelope)
                seen.add(logins=100)
                friend = Control(server)
                timed(seen, lambda friend=friend: friend.ask("Connection.Open", OPEN))
                stranger.socket.close()
                friend.socket.close()
            within(seen, server, 300, 1000)


def guesses(seen: Seen, end: float) -> None:
    """Guesses of one password, each on a connection of its own, without waiting for the refusals."""
    with tempfile.TemporaryDirectory() as folder:
        Users.read({"ada": "sesame"}).write(f"{folder}/users.toml")
        with running(seen, "mtl", "server", "--bind", ANY, "--users", f"{folder}/users.toml") as server:
            began, guessing, judged = time.monotonic(), [], 0
            while time.monotonic() < end:
                mechanism, stranger = ScramSha256("ada", f"{random.getrandbits(64)}"), Control(server)
                stranger.say("Connection.Open", OPEN)
                stranger.socket.recv_multipart()
                stranger.step(mechanism.step(None))
                status, reply = stranger.socket.recv_multipart()[1:]
                if status == b"402":
                    stranger.step(mechanism.step(b64decode(json.loads(reply)["challenge"])))
                    guessing.append(stranger)
                    seen.add(guesses=1)
                for one in [one for one in guessing if one.socket.poll(0)]:
                    judged += one.socket.recv_multipart()[1] == b"401"
                    guessing.remove(one)
                    one.socket.close()
            # Five at once, and then five in each delay, which is a quarter of a second at first and soon eight.
            most = 5 + 5 * (6 + (time.monotonic() - began) / 8)
            seen.add(judged=judged)
            if judged > most:
                seen.wrong.append(f"{judged} guesses were judged, not {most:.0f}")


def names(seen: Seen, end: float) -> None:
    """Leases of a thousand names, and a reader of one at a time that summons 5000 queues."""
    with queues(seen) as (server, friend):
        fill(friend, 5000)
        stranger = Control(server).enter()
        too_many = {"resources": [f"q{number}" for number in range(1001)]}
        if stranger.ask("Connection.Writer", too_many)[0] != 400:
            seen.wrong.append("a lease of any number of names")
        writer = dialled(server, zmq.DEALER)
        for sequence in range(100):
            body = {"resources": [f"q{number}" for number in range(1000)]}
            lease = stranger.ask("Connection.Writer", body)[1]["lease"].encode()
            one = writer if sequence == 0 else dialled(server, zmq.DEALER)
            one.send_multipart([struct.pack(">BQB", 1, 1, len(lease)) + lease, b""])
        lease = stranger.ask("Connection.Reader", {"confirm": "full", "window": 1})[1]["lease"].encode()
        reader = dialled(server, zmq.DEALER)
        reader.send_multipart([struct.pack(">BQB", 1, 1, len(lease)) + lease, b""])
        for number in range(5000):
            name = f"q{number}".encode()
            reader.send_multipart([struct.pack(">BQB", 3, number + 2, len(name)) + name, b""])
        began, sequence = time.monotonic(), 0
        while time.monotonic() < end:
            timed(seen, lambda: friend.ask("Queue.Info", {"name": "jobs"}))
            seen.add(asked=1)
            sequence += 1
        within(seen, server, 300, 500)
        if sequence / (time.monotonic() - began) < 50:
            seen.wrong.append("a friend was answered less than 50 times a second")


def json_of_a_megabyte(seen: Seen, end: float) -> None:
    """Commands of a megabyte of JSON, by one that has a session and one that has none."""
    text = ('{"name": "jobs", "x": [' + "[]," * 340_000 + "0]}").encode()
    with queues(seen) as (server, friend):
        strangers = Control(server), Control(server).enter()
        for stranger in strangers:
            stranger.socket.sndtimeo = 1000
        while time.monotonic() < end:
            for stranger in strangers:
                for _ in range(20):
                    with contextlib.suppress(zmq.Again):
                        stranger.socket.send_multipart([b"", b"Queue.Info", text])
                while stranger.socket.poll(0):
                    stranger.socket.recv_multipart()
            seen.add(megabytes=40)
            timed(seen, lambda: friend.ask("Queue.Info", {"name": "jobs"}))
        # Most of it waits at libzmq, up to a thousand messages a connection.
        within(seen, server, 1000, 500)


def half_done(seen: Seen, end: float) -> None:
    """Sessions that begin a login, and are left."""
    with tempfile.TemporaryDirectory() as folder:
        Users.read({"ada": "sesame"}).write(f"{folder}/users.toml")
        with running(seen, "mtl", "server", "--bind", ANY, "--users", f"{folder}/users.toml") as server:
            while time.monotonic() < end:
                crowd = [Control(server, routing_id=random.randbytes(248).replace(b"\0", b"x")) for _ in range(200)]
                for one in crowd:
                    one.say("Connection.Open", OPEN)
                    one.step(b"n,,n=" + b"x" * 2000 + b",r=" + b"y" * 2000)
                for one in crowd:
                    one.socket.recv_multipart()
                    one.socket.close()
                seen.add(sessions=200)
            within(seen, server, 200, 1000)
            if server.stats.get("sessions", 0) > 10_000:
                seen.wrong.append("more than 10,000 sessions without a login")


def claims(seen: Seen, end: float) -> None:
    """Peers that claim the routing id of a worker that is there, at a broker."""
    head = [b"", b"DGBX\x01"]
    with running(seen, "dcp", "broker", "--bind", ANY) as broker:
        worker = dialled(broker, zmq.DEALER, routing_id=b"pay", rcvtimeo=5000)
        client = dialled(broker, zmq.DEALER)
        worker.send_multipart([*head, b"\x01", b"pay"])
        worker.recv_multipart()
        # libzmq gives back what such a connection takes only when the role ends.
        while time.monotonic() < end and seen.done.get("claims", 0) < 10_000:
            crowd = [dialled(broker, zmq.DEALER, routing_id=b"pay") for _ in range(20)]
            for one in crowd:
                one.send_multipart([*head, b"\x02"])
            began = time.monotonic()
            client.send_multipart([*head, b"\x04", b"pay", b"", b"", b"card"])
            try:
                while (asked := worker.recv_multipart())[2] != b"\x04":
                    pass
                worker.send_multipart([*head, b"\x05", *asked[4:]])
                client.recv_multipart()
            except zmq.Again:
                seen.wrong.append("another peer had the request of a worker")
                return
            seen.worst_ms = max(seen.worst_ms, (time.monotonic() - began) * 1000)
            for one in crowd:
                one.close()
            seen.add(claims=20)


def deciders(seen: Seen, end: float) -> None:
    """Strangers' keys, at a receiver with a callback that takes 50 ms for each; the friend comes from another address."""
    server, friend = zmq.curve_keypair(), zmq.curve_keypair()

    def allow(key: bytes, _address: str) -> bool:
        time.sleep(0.05)
        return key == friend[0]

    over = threading.Event()
    with cdtp.Receiver(bind=ANY, curve=Curve(server, allow=allow)) as receiver:
        at = receiver.endpoints[0]

        def flood() -> None:
            while not over.is_set():
                crowd = []
                for _ in range(40):
                    public, secret = zmq.curve_keypair()
                    one = zmq.Context.instance().socket(zmq.PUSH)
                    one.linger, one.curve_publickey, one.curve_secretkey = 0, public, secret
                    one.curve_serverkey = server[0]
                    one.connect(at)
                    crowd.append(one)
                time.sleep(0.1)
                for one in crowd:
                    one.close()
                seen.add(strangers=40)

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            time.sleep(1)
            while time.monotonic() < end:
                push = zmq.Context.instance().socket(zmq.PUSH)
                push.linger, push.immediate, push.sndtimeo = 0, 1, 12_000
                push.curve_publickey, push.curve_secretkey, push.curve_serverkey = *friend, server[0]
                push.connect(at.replace("tcp://", "tcp://127.0.0.2:0;"))
                began = time.monotonic()
                try:
                    push.send_multipart([b"", b""])
                except zmq.Again:
                    seen.wrong.append("a friend did not get in")
                seen.worst_ms = max(seen.worst_ms, (time.monotonic() - began) * 1000)
                push.close()
                seen.add(friends=1)
        finally:
            over.set()
            flooding.join()
    if seen.worst_ms > 5000:
        seen.wrong.append(f"a friend waited {seen.worst_ms:.0f} ms")


def subscriptions(seen: Seen, end: float) -> None:
    """Clients of 99,000 subscriptions each that hang up together, at a middleware."""
    with running(seen, "mc0", "middleware", "--bind", ANY) as bus:
        friend = dialled(bus, zmq.DEALER)
        while time.monotonic() < end:
            crowd = [dialled(bus, zmq.DEALER) for _ in range(20)]
            for one in crowd:
                one.send_multipart([b"CONNECT", b"TTL", b"60000"])
                for start in range(0, 99_000, 9000):
                    topics = [b"%d" % number for number in range(start, start + 9000)]
                    one.send_multipart([b"SUB", b"ID", b"x", b"", *topics])
            for one in crowd:
                for _ in range(11):
                    one.recv_multipart()
                one.send_multipart([b"DISCONNECT"])
            for _ in range(20):
                friend.send_multipart([b"NOOP", b"ID", b"1"])
                timed(seen, friend.recv_multipart)
            for one in crowd:
                one.close()
            seen.add(subscriptions=20 * 99_000)
        within(seen, bus, 1500, 1000)


def reloads(seen: Seen, end: float) -> None:
    """SIGHUP after SIGHUP while another key comes and goes, at a recorder with an allow-list."""
    with tempfile.TemporaryDirectory() as folder:
        keys = certificates(folder)
        over = threading.Event()
        with running(seen, "dcp", "broker", "--bind", ANY, *keys.options) as broker:

            def storm() -> None:
                while not over.is_set():
                    (keys.allowed / "other.key").write_bytes(zmq.curve_keypair()[0])
                    broker.signal(signal.SIGHUP)
                    time.sleep(0.003)
                    (keys.allowed / "other.key").unlink()
                    broker.signal(signal.SIGHUP)
                    time.sleep(0.003)

            storming = threading.Thread(target=storm)
            storming.start()
            try:
                while time.monotonic() < end:
                    friend = dialled(broker, zmq.DEALER, rcvtimeo=15_000, **keys.bare)
                    friend.send_multipart([b"", b"DGBX\x01", b"\x02"])
                    try:
                        timed(seen, friend.recv_multipart)
                    except zmq.Again:
                        seen.wrong.append("a friend had no answer")
                    friend.close()
                    seen.add(friends=1)
            finally:
                over.set()
                storming.join()


ATTACKS: dict[str, Callable[[Seen, float], None]] = {
    "lists that are not read": lists,
    "logins that fail, in large envelopes": envelopes,
    "guesses that do not wait": guesses,
    "leases and summons of many names": names,
    "a megabyte of JSON again and again": json_of_a_megabyte,
    "logins that are left half done": half_done,
    "claims of a worker's routing id": claims,
    "a decision of 50 ms on each of many keys": deciders,
    "subscriptions by millions that end together": subscriptions,
    "a storm of reloads": reloads,
    **strangers_inputs.ATTACKS,
}

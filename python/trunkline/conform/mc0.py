"""mc0: a middleware, tested by raw clients."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import zmq

from trunkline.conform.checks import Failed, Limits, Skipped, Subject, Suite
from trunkline.conform.sockets import Peer, ZmqBench, need_endpoint, shown

__all__ = ["SUITE"]

# The time after which a silent client may be forgotten, and how long one without such a time stays silent.
_TTL_MS = 1000
_QUIET_S = 1.0

_ORDERED = 100
_NONSENSE = 100

Pairs = Sequence[tuple[bytes, bytes]]


def _pack(verb: bytes, headers: Pairs = (), positional: Sequence[bytes] | None = None) -> list[bytes]:
    pairs = [frame for pair in headers for frame in pair]
    return [b"", verb, *pairs, *([] if positional is None else [b"", *positional])]


def _plain(frames: Sequence[bytes]) -> list[bytes]:
    """A message without the empty frame that may lead it: that has a requirement of its own."""
    return [*frames[1:]] if frames[:1] == [b""] else [*frames]


def _read(frames: Sequence[bytes]) -> tuple[bytes, list[tuple[bytes, bytes]], list[bytes]]:
    """The verb of a message, its headers, and what follows by position."""
    verb, *rest = _plain(frames) or [b""]
    headers = []
    while rest and rest[0]:
        if len(rest) == 1:
            message = f"{shown(frames)} has a key without a value"
            raise Failed(message)
        headers.append((rest[0], rest[1]))
        rest = rest[2:]
    return verb, headers, rest[1:]


class _Bench(ZmqBench):
    """Clients of a middleware."""

    def __init__(self, subject: Subject, limits: Limits) -> None:
        super().__init__(subject, limits, zmq.DEALER, _answers, "a middleware of mc0")

    def subscriber(self, *topics: bytes, name: str = "subscriber") -> Peer:
        """A client that is subscribed."""
        peer = self.open(name)
        self.accepted(peer, b"SUB", (), topics)
        return peer

    def asks(self, peer: Peer, verb: bytes, headers: Pairs = (), positional: Sequence[bytes] | None = None) -> bytes:
        """Sends a command with an ID of its own, and returns that."""
        name = self.name()
        peer.send(_pack(verb, [(b"ID", name), *headers], positional))
        return name

    def accepted(self, peer: Peer, verb: bytes, headers: Pairs = (), positional: Sequence[bytes] | None = None) -> None:
        """Makes sure that a command is answered with OK, and that this has its ID."""
        name = self.asks(peer, verb, headers, positional)
        _expect(peer, _pack(b"OK", [(b"ID", name)]))

    def refused(self, peer: Peer, verb: bytes, headers: Pairs = (), positional: Sequence[bytes] | None = None) -> None:
        """Makes sure that a command is answered with ERROR."""
        name = self.asks(peer, verb, headers, positional)
        _expect_error(peer, name)


def _answers(bench: ZmqBench) -> bool:
    """Whether there is any answer to what must be answered: a NOOP with an ID, and a PUT without a topic."""
    peer = bench.open("stranger")
    peer.send(_pack(b"NOOP", [(b"ID", bench.name())]), _pack(b"PUT", (), [b"body"]))
    frames = peer.next()
    return frames is not None and _plain(frames)[:1] in ([b"OK"], [b"ERROR"])


def _receive(peer: Peer, wanted: str) -> list[bytes]:
    """The next message that is no sign of life."""
    while True:
        frames = peer.receive(wanted)
        if _plain(frames) != [b"NOOP"]:
            return frames


def _expect(peer: Peer, wanted: Sequence[bytes]) -> None:
    frames = _receive(peer, shown(_plain(wanted)))
    if _plain(frames) != _plain(wanted):
        message = f"{peer.name} got {shown(_plain(frames))}, not {shown(_plain(wanted))}"
        raise Failed(message)


def _expect_error(peer: Peer, name: bytes | None = None) -> list[tuple[bytes, bytes]]:
    """Receives an ERROR, and returns its headers."""
    frames = _receive(peer, "an ERROR")
    verb, headers, _ = _read(frames)
    if verb != b"ERROR" or (name is not None and (b"ID", name) not in headers):
        with_it = "" if name is None else f" with the ID {shown([name])}"
        message = f"{peer.name} got {shown(_plain(frames))}, not an ERROR{with_it}"
        raise Failed(message)
    return headers


def _expect_message(peer: Peer, topic: bytes, *body: bytes, headers: Pairs = ()) -> None:
    _expect(peer, _pack(b"MESSAGE", [(b"TOPIC", topic), *headers], body))


def _put(topic: bytes, *body: bytes, headers: Pairs = ()) -> list[bytes]:
    return _pack(b"PUT", [(b"TOPIC", topic), *headers], body)


SUITE = Suite(
    "a middleware of mc0",
    _Bench,
    {
        "MC0-04": "a middleware may let in every key",
        "MC0-25": "clients do this",
        "MC0-26": "clients do this",
    },
    need_endpoint,
)


@SUITE.check("MC0-02", "Connections speak ZMTP 3", "a greeting of ZMTP 3")
def _zmtp(bench: _Bench) -> None:
    bench.need_zmtp_3()


@SUITE.check("MC0-01", "A connector dials the middleware's ROUTER with a DEALER", "a socket that says it is a ROUTER")
def _router(bench: _Bench) -> None:
    bench.need_router()


@SUITE.check(
    "MC0-17",
    "An OK has the ID, byte for byte",
    "OK with the ID of the NOOP, which may be any bytes",
)
def _oks(bench: _Bench) -> None:
    client = bench.open("client")
    for name in (b"1234", b"1234 ", b"\0\xff", b"0"):
        client.send(_pack(b"NOOP", [(b"ID", name)]))
        _expect(client, _pack(b"OK", [(b"ID", name)]))


@SUITE.check(
    "MC0-16",
    "An ERROR has a text, and the ID if there was one",
    "ERROR with MESSAGE and the ID for a PUT without a topic",
)
def _errors(bench: _Bench) -> None:
    client = bench.open("client")
    name = bench.asks(client, b"PUT", (), [b"body"])
    headers = _expect_error(client, name)
    if not dict(headers).get(b"MESSAGE"):
        message = "the ERROR has no text"
        raise Failed(message)


@SUITE.check(
    "MC0-06",
    "A message is a verb, pairs of a key and a value, an empty frame and what follows by position",
    "OK for each form: no, one and several pairs, no, one and several frames by position",
    needs=("MC0-17",),
)
def _forms(bench: _Bench) -> None:
    client, topic = bench.open("client"), bench.name()
    bench.accepted(client, b"NOOP")
    bench.accepted(client, b"UNSUB", (), [])
    bench.accepted(client, b"UNSUB", (), [topic])
    bench.accepted(client, b"PUT", [(b"TOPIC", topic), (b"X-A", b""), (b"X-B", b"b")], [b"body"])
    bench.accepted(client, b"PUT", [(b"TOPIC", topic)], [b"one", b"", b"three"])


@SUITE.check(
    "MC0-08",
    "What follows by position needs no headers",
    "a subscription by a SUB without headers",
    needs=("MC0-17",),
)
def _without_headers(bench: _Bench) -> None:
    client, topic = bench.open("client"), bench.name()
    client.send(_pack(b"SUB", (), [topic]))
    client.send(_put(topic, b"body"))
    _expect_message(client, topic, b"body")


@SUITE.check(
    "MC0-30",
    "A PUT reaches every subscriber of its topic once, its sender too, or nobody in silence",
    "the MESSAGE once at each of three subscribers, one of which sent it, and nothing for a topic of nobody's",
    needs=("MC0-17",),
)
def _fan_out(bench: _Bench) -> None:
    topic = bench.name()
    subscribers = [bench.subscriber(topic, name=f"subscriber {at}") for at in range(3)]
    subscribers[0].send(_put(topic, b"body"), _put(bench.name(), b"nobody's"))
    for subscriber in subscribers:
        _expect_message(subscriber, topic, b"body")
        bench.accepted(subscriber, b"NOOP")


@SUITE.check(
    "MC0-05",
    "Frames are bytes; what stands in a body is nobody's concern",
    "a body of any bytes at the subscriber, as it was sent",
    needs=("MC0-30",),
)
def _bytes(bench: _Bench) -> None:
    topic = bench.name()
    subscriber = bench.subscriber(topic)
    for body in (bytes(range(256)), b"", b"\xff" * (256 << 10)):
        subscriber.send(_put(topic, body))
        _expect_message(subscriber, topic, body)


@SUITE.check(
    "MC0-07",
    "An empty frame may lead; each is answered in its own style",
    "an answer with a leading empty frame for the client that sends one, and without for the other; messages between them",
    needs=("MC0-30",),
)
def _styles(bench: _Bench) -> None:
    topic = bench.name()
    leading, bare = bench.open("client with a leading frame"), bench.open("client without")
    for peer, start in ((leading, [b""]), (bare, [])):
        peer.send([*start, b"SUB", b"ID", b"1", b"", topic])
        peer.expect([*start, b"OK", b"ID", b"1"])
    for sender, other in ((leading, bare), (bare, leading)):
        start = [b""] if sender is leading else []
        sender.send([*start, b"PUT", b"TOPIC", topic, b"", b"body"])
        other.expect([*([b""] if other is leading else []), b"MESSAGE", b"TOPIC", topic, b"", b"body"])
        sender.expect([*start, b"MESSAGE", b"TOPIC", topic, b"", b"body"])


@SUITE.check(
    "MC0-09",
    "Headers need nothing that follows by position",
    "a MESSAGE without a body, or with an empty frame at its end, for a PUT without any",
    needs=("MC0-30",),
)
def _without_positional(bench: _Bench) -> None:
    topic = bench.name()
    subscriber = bench.subscriber(topic)
    subscriber.send(_pack(b"PUT", [(b"TOPIC", topic)]))
    frames = _plain(_receive(subscriber, "the MESSAGE"))
    if frames not in ([b"MESSAGE", b"TOPIC", topic], [b"MESSAGE", b"TOPIC", topic, b""]):
        message = f"{subscriber.name} got {shown(frames)}"
        raise Failed(message)


@SUITE.check(
    "MC0-10",
    "Keys belong to the protocol unless they begin with X-; those nobody knows are ignored, and travel with a PUT",
    "OK for a NOOP with an unknown key, and a MESSAGE with the unknown key of its PUT",
    needs=("MC0-30",),
)
def _unknown_keys(bench: _Bench) -> None:
    topic = bench.name()
    subscriber = bench.subscriber(topic)
    bench.accepted(subscriber, b"NOOP", [(b"FOO", b"1")])
    subscriber.send(_put(topic, b"body", headers=[(b"FOO", b"1")]))
    _expect_message(subscriber, topic, b"body", headers=[(b"FOO", b"1")])


@SUITE.check(
    "MC0-11",
    "X- headers of a PUT travel with its MESSAGE, in their order",
    "the X- headers as they were sent, and no ID",
    needs=("MC0-30",),
)
def _own_headers(bench: _Bench) -> None:
    topic, name = bench.name(), bench.name()
    subscriber, client = bench.subscriber(topic), bench.open("client")
    headers = [(b"X-B", b"1"), (b"X-A", b"\xff\0"), (b"X-C", b"")]
    client.send(_pack(b"PUT", [headers[0], (b"ID", name), (b"TOPIC", topic), *headers[1:]], [b"body"]))
    _, came, _ = _read(_receive(subscriber, "the MESSAGE"))
    if [pair for pair in came if pair[0].startswith(b"X-")] != headers or b"ID" in dict(came):
        message = f"the headers became {shown([frame for pair in came for frame in pair])}"
        raise Failed(message)


@SUITE.check(
    "MC0-31",
    "A MESSAGE has the topic first, then the other headers, then the body",
    "MESSAGE, TOPIC, the X- header, an empty frame and the body",
    needs=("MC0-30",),
)
def _shape_of_message(bench: _Bench) -> None:
    topic = bench.name()
    subscriber = bench.subscriber(topic)
    subscriber.send(_pack(b"PUT", [(b"X-A", b"1"), (b"TOPIC", topic)], [b"body"]))
    _expect_message(subscriber, topic, b"body", headers=[(b"X-A", b"1")])


@SUITE.check(
    "MC0-12",
    "What has an ID has one OK or one ERROR with it",
    "one OK for each verb that is taken, one ERROR for each that is not",
    needs=("MC0-17", "MC0-16"),
)
def _one_answer(bench: _Bench) -> None:
    client, topic = bench.open("client"), bench.name()
    bench.accepted(client, b"CONNECT", [(b"VERSION", b"0.3")])
    bench.accepted(client, b"SUB", (), [topic])
    bench.accepted(client, b"UNSUB", (), [topic])
    bench.accepted(client, b"PUT", [(b"TOPIC", topic)], [b"body"])
    bench.accepted(client, b"NOOP")
    bench.refused(client, b"CONNECT", [(b"VERSION", b"1.0")])
    bench.refused(client, b"PUT", (), [b"body"])
    bench.refused(client, b"NOSUCHVERB")
    bench.accepted(client, b"DISCONNECT")
    client.expect_silence("each command has had its answer")


@SUITE.check("MC0-13", "The same ID twice has two answers", "two OKs for two NOOPs with the same ID", needs=("MC0-17",))
def _twice(bench: _Bench) -> None:
    client = bench.open("client")
    client.send(*[_pack(b"NOOP", [(b"ID", b"same")])] * 2)
    for _ in range(2):
        _expect(client, _pack(b"OK", [(b"ID", b"same")]))


@SUITE.check(
    "MC0-14",
    "What has no ID and is taken has no answer",
    "no answer before the OK of the NOOP that comes last",
    needs=("MC0-17",),
)
def _silence(bench: _Bench) -> None:
    client, topic = bench.open("client"), bench.name()
    client.send(
        _pack(b"CONNECT", [(b"VERSION", b"0.3")]),
        _pack(b"SUB", (), [topic]),
        _pack(b"UNSUB", (), [topic]),
        _put(topic, b"body"),
        _pack(b"NOOP"),
        _pack(b"DISCONNECT"),
    )
    bench.accepted(client, b"NOOP")


@SUITE.check(
    "MC0-15",
    "What is not taken is answered with ERROR",
    "ERROR for a PUT without a topic that has no ID",
)
def _errors_without_id(bench: _Bench) -> None:
    client = bench.open("client")
    client.send(_pack(b"PUT", (), [b"body"]))
    if b"ID" in dict(_expect_error(client)):
        message = "the ERROR has an ID, which nobody gave"
        raise Failed(message)


@SUITE.check(
    "MC0-18",
    "NOOP goes either way and says that its sender lives",
    "no answer to a NOOP without an ID, OK to one with it, and ERROR to PING, which is no verb",
    needs=("MC0-17",),
)
def _noops(bench: _Bench) -> None:
    client = bench.open("client")
    client.send(_pack(b"NOOP"))
    bench.accepted(client, b"NOOP")
    bench.refused(client, b"PING")


@SUITE.check(
    "MC0-19",
    "The parameters of a CONNECT stand in any order",
    "OK for each order of VERSION, TTL and ID",
    needs=("MC0-17",),
)
def _any_order(bench: _Bench) -> None:
    client, name = bench.open("client"), bench.name()
    parameters = [(b"VERSION", b"0.3"), (b"TTL", b"10000"), (b"ID", name)]
    for headers in itertools.permutations(parameters):
        client.send(_pack(b"CONNECT", headers))
        _expect(client, _pack(b"OK", [(b"ID", name)]))
    client.send(_pack(b"DISCONNECT"))


@SUITE.check(
    "MC0-20",
    "A connector says 0.3; every 0.x is taken, and no version too",
    "OK for no version, 0.1, 0.2 and 0.3, ERROR for 1.0",
    needs=("MC0-17",),
)
def _versions(bench: _Bench) -> None:
    client = bench.open("client")
    for versions in ([], [b"0.1"], [b"0.2"], [b"0.3"]):
        bench.accepted(client, b"CONNECT", [(b"VERSION", version) for version in versions])
    bench.refused(client, b"CONNECT", [(b"VERSION", b"1.0")])


@SUITE.check(
    "MC0-24",
    "A TTL of 0 is none; one that is no number of milliseconds, or too long, is refused",
    "OK for 0, ERROR for -1, abc, nothing, and a number of 20 digits",
    needs=("MC0-17",),
)
def _bad_ttl(bench: _Bench) -> None:
    client = bench.open("client")
    bench.accepted(client, b"CONNECT", [(b"VERSION", b"0.3"), (b"TTL", b"0")])
    for ttl in (b"-1", b"abc", b"", b"9" * 20):
        bench.refused(client, b"CONNECT", [(b"VERSION", b"0.3"), (b"TTL", ttl)])


@SUITE.check(
    "MC0-27",
    "DISCONNECT forgets a client, once it has its OK",
    "OK for the DISCONNECT, no MESSAGE after it, and messages again after another SUB",
    needs=("MC0-30",),
)
def _disconnects(bench: _Bench) -> None:
    topic = bench.name()
    subscriber, client = bench.subscriber(topic), bench.open("client")
    bench.accepted(subscriber, b"DISCONNECT")
    bench.accepted(client, b"PUT", [(b"TOPIC", topic)], [b"1"])
    bench.accepted(subscriber, b"SUB", (), [topic])
    client.send(_put(topic, b"2"))
    _expect_message(subscriber, topic, b"2")


@SUITE.check(
    "MC0-28",
    "A SUB may have many topics, none, or one a second time",
    "OK for each, and a MESSAGE once for a topic that was named twice; an empty topic is one",
    needs=("MC0-30",),
)
def _subscriptions(bench: _Bench) -> None:
    one, two = bench.name(), bench.name()
    subscriber = bench.subscriber(one, two, one)
    bench.accepted(subscriber, b"SUB", (), [])
    bench.accepted(subscriber, b"SUB", (), [one])
    for topic in (one, two):
        subscriber.send(_put(topic, b"body"))
        _expect_message(subscriber, topic, b"body")
        bench.accepted(subscriber, b"NOOP")
    bench.accepted(subscriber, b"SUB", (), [b""])
    bench.accepted(subscriber, b"UNSUB", (), [b""])


@SUITE.check(
    "MC0-29",
    "An UNSUB ends subscriptions, and ignores those there are none of",
    "no MESSAGE of the topics after the UNSUB, those of the other one still, and OK for a topic without a subscription",
    needs=("MC0-30",),
)
def _unsubscribes(bench: _Bench) -> None:
    one, two, three = bench.name(), bench.name(), bench.name()
    subscriber = bench.subscriber(one, two, three)
    bench.accepted(subscriber, b"UNSUB", (), [one, two])
    bench.accepted(subscriber, b"UNSUB", (), [one, bench.name()])
    subscriber.send(_put(one, b"1"), _put(two, b"2"), _put(three, b"3"))
    _expect_message(subscriber, three, b"3")


@SUITE.check(
    "MC0-32",
    "A body has any number of frames; a PUT names its topic",
    "bodies of one and three frames, empty ones included, as they were sent; ERROR without a topic",
    needs=("MC0-30", "MC0-16"),
)
def _bodies(bench: _Bench) -> None:
    topic = bench.name()
    subscriber = bench.subscriber(topic)
    for body in ([b"one"], [b"one", b"", b"three"], [b""], [b"", b""]):
        subscriber.send(_put(topic, *body))
        _expect_message(subscriber, topic, *body)
    bench.refused(subscriber, b"PUT", (), [b"body"])


@SUITE.check(
    "MC0-33",
    "Topics are equal byte for byte, and the messages of a publisher keep their order",
    "no MESSAGE of a similar topic, and 100 messages in the order of their PUTs",
    needs=("MC0-30",),
)
def _exactly(bench: _Bench) -> None:
    topic = bench.name()
    subscriber, client = bench.subscriber(topic), bench.open("client")
    client.send(*(_put(each, b"similar") for each in (topic + b" ", topic + b"\0", topic.upper(), topic[:-1])))
    client.send(*(_put(topic, b"%d" % at) for at in range(_ORDERED)))
    for at in range(_ORDERED):
        _expect_message(subscriber, topic, b"%d" % at)


@SUITE.check(
    "MC0-34",
    "Unknown verbs and headers without a value are answered with ERROR and harm nobody",
    "ERROR for an unknown verb, a verb in lower case, a key without a value and no verb; OK after 100 messages of no sense",
    needs=("MC0-17", "MC0-16"),
)
def _nonsense(bench: _Bench) -> None:
    client = bench.open("client")
    for frames in ([b"", b"NOSUCHVERB"], [b"", b"noop"], [b"", b"NOOP", b"ID"], [b""]):
        client.send(frames)
        _expect_error(client)
    # The same ones each time.
    chance = random.Random(34)  # noqa: S311 - it keeps no secret
    stranger = bench.open("stranger")
    pieces = (b"", b"NOOP", b"ID", b"OK", b"ERROR", b"MESSAGE", b"\xff" * 9, b"x" * 1000)
    for _ in range(_NONSENSE):
        stranger.send([chance.choice(pieces) for _ in range(chance.randrange(1, 9))])
    bench.accepted(bench.open("another client"), b"NOOP")


@SUITE.check(
    "MC0-03",
    "Both ends can encrypt by CURVE, with keys from files of either form",
    "OK for a client with a key, and no answer to one without",
    needs=("MC0-17",),
)
def _encrypts(bench: _Bench) -> None:
    bench.need_curve("middleware")
    bench.accepted(bench.open("client"), b"NOOP")
    bench.need_refusal("client without a key", _pack(b"NOOP", [(b"ID", bench.name())]))


@SUITE.check(
    "MC0-22",
    "A client that was sent nothing for 0.95 times its TTL is sent a NOOP",
    "a NOOP within the TTL, at a client that is sent nothing else",
    needs=("MC0-17",),
)
def _signs_of_life(bench: _Bench) -> None:
    client = bench.open("idle client")
    bench.accepted(client, b"CONNECT", [(b"VERSION", b"0.3"), (b"TTL", b"%d" % _TTL_MS)])
    frames = client.next(_TTL_MS / 1000)
    if frames is None:
        message = "no NOOP came within the TTL, which a middleware may send"
        raise Skipped(message)
    if _plain(frames) != [b"NOOP"]:
        message = f"{client.name} got {shown(frames)}, not a NOOP"
        raise Failed(message)


@SUITE.check(
    "MC0-21",
    "A client that was silent for 1.05 times its TTL is forgotten with its subscriptions",
    "messages within the TTL, and none once the client was silent for longer",
    needs=("MC0-30",),
)
def _forgets(bench: _Bench) -> None:
    topic = bench.name()
    subscriber, client = bench.open("silent subscriber"), bench.open("client")
    bench.accepted(subscriber, b"CONNECT", [(b"VERSION", b"0.3"), (b"TTL", b"%d" % _TTL_MS)])
    bench.accepted(subscriber, b"SUB", (), [topic])
    client.send(_put(topic, b"1"))
    _expect_message(subscriber, topic, b"1")
    for left in bench.limits.wait(_TTL_MS / 1000 * 1.5):
        subscriber.next(left)
    bench.accepted(client, b"PUT", [(b"TOPIC", topic)], [b"2"])
    frames = subscriber.next(bench.limits.silence_s)
    if frames is not None and _read(frames)[0] == b"MESSAGE":
        message = f"the client is still known after {_TTL_MS * 1.5:g} ms, as it may be"
        raise Skipped(message)


@SUITE.check(
    "MC0-23",
    "Without a TTL nobody looks whether the other lives",
    f"a MESSAGE at a client without a TTL that was silent for {_QUIET_S:g} s",
    needs=("MC0-30",),
)
def _without_ttl(bench: _Bench) -> None:
    topic = bench.name()
    subscriber, client = bench.open("silent subscriber"), bench.open("client")
    bench.accepted(subscriber, b"CONNECT", [(b"VERSION", b"0.3")])
    bench.accepted(subscriber, b"SUB", (), [topic])
    frames = subscriber.next(_QUIET_S)
    if frames is not None:
        message = f"{subscriber.name} got {shown(frames)}"
        raise Failed(message)
    client.send(_put(topic, b"body"))
    _expect_message(subscriber, topic, b"body")

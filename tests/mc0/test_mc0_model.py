"""A live middleware held against a model of it in plain Python, by bare DEALERs, step by step."""

from collections import Counter
from contextlib import ExitStack

import pytest
import zmq
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from peers.mc0 import ANY, connect, message, noop, ok, pack, put, sub, unsub
from trunkline import mc0

TOPICS = [b"a", b"b", b"", b"\xff"]
MAX_TOPICS = 3

ALL = '[[allow]]\nclient = "*"\npublish = ["*"]\nsubscribe = ["*"]\n'
EVERYTHING = "everything"
POLICIES = {
    EVERYTHING: (ALL, set(TOPICS), set(TOPICS)),
    "only a": (ALL.replace("*", "a").replace('client = "a"', 'client = "*"'), {b"a"}, {b"a"}),
    "no subscriptions": ('[[allow]]\nclient = "*"\npublish = ["*"]\n', set(TOPICS), set()),
    "nothing": ("allow = []", set(), set()),
}

# What is wrong with each is the same whatever went before.
BAD = {
    "unknown_verb": pack(b"PING"),
    "missing_topic": pack(b"PUT", body=[b"x"]),
    "odd_headers": [b"", b"NOOP", b"X"],
    "bad_ttl": pack(b"CONNECT", (b"TTL", b"-1")),
    "unsupported_version": pack(b"CONNECT", (b"VERSION", b"1.0")),
    "unexpected_verb": message(b"a", b"x"),
    "missing_id": pack(b"OK"),
}

peers = st.integers(0, 2)
topics = st.lists(st.sampled_from(TOPICS), max_size=3)
ids = st.none() | st.sampled_from([b"", b"1", b"\xff\x00"])


class Peer:
    """A DEALER, and what the middleware is to know of it."""

    def __init__(self, socket):
        self.socket = socket
        self.subscriptions = set()
        self.is_connected = False
        self.has_lead = True
        self.due = []

    @property
    def is_client(self):
        return self.is_connected or bool(self.subscriptions)

    def lead(self, frames):
        return frames if self.has_lead else frames[1:]


class Bus(RuleBasedStateMachine):
    """Bare peers, and one middleware. A peer's answers, and what others put, come in one order: that of the requests."""

    folder = None

    @initialize()
    def start(self):
        self.stack = ExitStack()
        self.context = self.stack.enter_context(zmq.Context())
        self.policy = self.folder / "policy.toml"
        self.policy.write_text(ALL)
        self.bus = mc0.Middleware(bind=ANY, policy=self.policy, max_topics=MAX_TOPICS)
        self.stack.callback(lambda: self.bus.close(drain_s=0))
        self.all = [self.come() for _ in range(3)]
        self.may_publish = self.may_subscribe = set(TOPICS)
        self.dropped = Counter()

    def teardown(self):
        if hasattr(self, "stack"):
            self.stack.close()

    def come(self):
        socket = self.stack.enter_context(self.context.socket(zmq.DEALER))
        socket.linger = 0
        socket.rcvtimeo = 20_000
        socket.connect(self.bus.endpoints[0])
        return Peer(socket)

    def say(self, peer, frames, has_lead):
        peer.has_lead = has_lead
        peer.socket.send_multipart(peer.lead(frames))

    def answer(self, peer, frames):
        """What a peer is due now, in the style of what it said."""
        peer.due.append(peer.lead(frames))

    def confirm(self, peer, id_):
        if id_ is not None:
            self.answer(peer, ok(id_))

    def refuse(self, peer, kind, id_):
        """An ERROR is due, whatever its words."""
        self.dropped[kind] += 1
        self.answer(peer, pack(b"ERROR", (b"MESSAGE", None), *([] if id_ is None else [(b"ID", id_)])))

    def hear(self, *first):
        """Every peer has had what it is due, and nothing else; who spoke last is asked first."""
        for peer in [*first, *(peer for peer in self.all if peer not in first)]:
            peer.socket.send_multipart(peer.lead(noop(b"heard")))
            peer.due.append(peer.lead(ok(b"heard")))
            for due in peer.due:
                frames = peer.socket.recv_multipart()
                assert len(frames) == len(due)
                assert all(expected in (None, frame) for frame, expected in zip(frames, due, strict=True)), (
                    frames,
                    due,
                )
            assert not peer.socket.poll(0)
            peer.due.clear()

    @rule(at=peers, ttl=st.sampled_from([None, 0, 60_000]), id_=ids, has_lead=st.booleans())
    def connect(self, at, ttl, id_, has_lead):
        peer = self.all[at]
        # The ID may stand anywhere among the headers.
        frames = connect(ttl)
        self.say(peer, frames if id_ is None else [*frames[:2], b"ID", id_, *frames[2:]], has_lead)
        peer.is_connected = True
        self.confirm(peer, id_)
        self.hear(peer)

    @rule(at=peers, id_=ids, has_lead=st.booleans())
    def disconnect(self, at, id_, has_lead):
        peer = self.all[at]
        self.say(peer, pack(b"DISCONNECT", *([] if id_ is None else [(b"ID", id_)])), has_lead)
        peer.is_connected = False
        peer.subscriptions.clear()
        self.confirm(peer, id_)
        self.hear(peer)

    @rule(at=peers, topics=topics, id_=ids, has_lead=st.booleans())
    def subscribe(self, at, topics, id_, has_lead):
        peer = self.all[at]
        self.say(peer, sub(*topics, id_=id_), has_lead)
        known = set().union(*(one.subscriptions for one in self.all))
        if not set(topics) <= self.may_subscribe:
            self.refuse(peer, "forbidden", id_)
        elif len(known | set(topics)) > MAX_TOPICS:
            self.refuse(peer, "too_many_topics", id_)
        else:
            peer.subscriptions |= set(topics)
            self.confirm(peer, id_)
        self.hear(peer)

    @rule(at=peers, topics=topics, id_=ids, has_lead=st.booleans())
    def unsubscribe(self, at, topics, id_, has_lead):
        peer = self.all[at]
        self.say(peer, unsub(*topics, id_=id_), has_lead)
        peer.subscriptions -= set(topics)
        self.confirm(peer, id_)
        self.hear(peer)

    @rule(
        at=peers,
        topic=st.sampled_from(TOPICS),
        body=st.lists(st.sampled_from([b"", b"x", b"TOPIC"]), max_size=3),
        headers=st.lists(
            st.tuples(st.sampled_from([b"X-A", b"X-B", b"FOO"]), st.sampled_from([b"1", b"\xff"])), max_size=2
        ),
        id_=ids,
        has_lead=st.booleans(),
    )
    def put(self, at, topic, body, headers, id_, has_lead):
        peer = self.all[at]
        self.say(peer, put(topic, *body, id_=id_, headers=headers), has_lead)
        if topic in self.may_publish:
            for subscriber in self.all:
                if topic in subscriber.subscriptions:
                    self.answer(subscriber, message(topic, *body, headers=headers))
            self.confirm(peer, id_)
        else:
            self.refuse(peer, "forbidden", id_)
        self.hear(peer)

    @rule(at=peers, kind=st.sampled_from(sorted(BAD)), has_lead=st.booleans())
    def err(self, at, kind, has_lead):
        peer = self.all[at]
        self.say(peer, BAD[kind], has_lead)
        if kind == "missing_id":
            # An answer is not answered.
            self.dropped[kind] += 1
        else:
            self.refuse(peer, kind, None)
        self.hear(peer)

    @rule(name=st.sampled_from([*POLICIES, *[EVERYTHING] * 5]))
    def enforce(self, name):
        text, self.may_publish, self.may_subscribe = POLICIES[name]
        self.policy.write_text(text)
        self.bus.reload()
        for peer in self.all:
            if peer.subscriptions - self.may_subscribe:
                peer.subscriptions &= self.may_subscribe
                self.answer(peer, pack(b"ERROR", (b"MESSAGE", None)))
        self.hear()

    @precondition(lambda self: hasattr(self, "bus"))
    @invariant()
    def it_counts_as_the_model_does(self):
        stats = self.bus.stats
        assert stats.dropped == dict(self.dropped)
        assert stats.clients == sum(peer.is_client for peer in self.all)
        assert stats.subscriptions == sum(len(peer.subscriptions) for peer in self.all)
        assert {one.topic.encode(errors="surrogateescape"): one.subscribers for one in stats.topics} == Counter(
            topic for peer in self.all for topic in peer.subscriptions
        )


@pytest.mark.timeout(300)  # it only talks to itself, and a busy machine does so slowly
@pytest.mark.req("MC0-07", "MC0-12", "MC0-14", "MC0-27", "MC0-28", "MC0-29", "MC0-30", "MC0-31", "MC0-33", "MC0-34")
def test_the_middleware_does_what_the_model_does(tmp_path):
    machine = type("Live", (Bus,), {"folder": tmp_path})
    run(machine, settings=settings(max_examples=150, stateful_step_count=40, print_blob=True))

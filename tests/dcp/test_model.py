"""The broker held against a model of it in plain Python, step by step, and the whole against what it promises."""

from collections import Counter, deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from peers.dcp import PING, PONG, RECONNECT, answer, data_of, register, request
from trunkline import dcp, testing
from trunkline.errors import TimeoutError

SERVICES = [b"a", b"b"]
INTERVAL_S, LIVENESS, TTL_S = 2, 3, 10


class Work:
    """A request at the broker."""

    def __init__(self, number, service):
        self.number = number
        self.service = service
        self.due = None
        self.given = None


class Given:
    """A request on its way to a worker, or with it."""

    def __init__(self, worker, work):
        self.worker = worker
        self.work = work
        self.sent = False
        work.given = self


class Hand:
    """A worker as the broker sees it: a peer that has registered."""

    def __init__(self, peer, service, seen):
        self.peer = peer
        self.service = service
        self.seen = seen
        self.held = []


class Queue:
    """A service: its free workers and its queued requests."""

    def __init__(self):
        self.waiting = deque()
        self.free = deque()
        self.counts = Counter()


class Model:
    """What a broker does, one line a sentence of the checklist."""

    def __init__(self, *, max_queue, overflow, requeue, busy_ping_grants):
        self.max_queue = max_queue
        self.overflow = overflow
        self.requeue = requeue
        self.busy_ping_grants = busy_ping_grants
        self.now = 0
        self.services = {}
        self.hands = {}
        self.gone = set()
        self.dropped = Counter()
        self.lost = 0
        self.outputs = deque()
        self.arrived = []

    def service(self, name):
        return self.services.setdefault(name, Queue())

    # DCP-15: a worker that registers again is free, for its new service alone; for the same one it begins anew.
    def register(self, peer, name):
        hand = self.heard(peer) or self.hands.setdefault(peer, Hand(peer, name, self.now))
        self.unfree(hand)
        if hand.service == name:
            self.empty(hand, returns=lambda work: not work.given.sent)
        hand.service = name
        self.free(hand)
        self.service(name)
        self.flush()

    # DCP-33: a ping asks for one more request; grants do not pile up. DCP-40: an unregistered worker is told to register.
    def ping(self, peer):
        if hand := self.heard(peer):
            if self.busy_ping_grants:
                self.free(hand)
            self.flush()
        return PONG if hand else RECONNECT

    # DCP-29: requests wait in order; of a full queue the newest or the oldest goes.
    def request(self, work):
        queue = self.service(work.service)
        queue.counts["requests"] += 1
        if queue.free and not queue.waiting:
            self.give(work)
        elif self.has_room(queue):
            self.wait(work)
        else:
            self.dropped["queue_full"] += 1
        self.flush()

    def has_room(self, queue):
        while len(queue.waiting) >= self.max_queue:
            if self.overflow == "reject-newest" or not queue.waiting:
                return False
            queue.waiting.popleft()
            self.dropped["queue_full"] += 1
        return True

    # DCP-33: a reply frees the worker.
    def reply(self, peer, work):
        hand = self.heard(peer)
        if hand is not None:
            if taken := self.take(hand, work):
                self.service(taken.service).counts["replies"] += 1
            self.free(hand)
            self.flush()

    # DCP-34: a forward frees the worker, and is a request of the other service.
    def forward(self, peer, work, name):
        hand = self.heard(peer)
        if hand is not None:
            self.take(hand, work)
            self.free(hand)
        self.request(Work(work.number, name))

    # DCP-42: a worker that is silent for too long is forgotten; DCP-29: a request that is too old goes.
    def advance(self, seconds):
        end = self.now + seconds
        while True:
            silences = [hand.seen + INTERVAL_S * LIVENESS for hand in self.hands.values()]
            ages = [work.due for queue in self.services.values() for work in queue.waiting]
            at = min(silences + ages, default=end + 1)
            if at > end:
                break
            self.now = max(self.now, at)
            while silent := [hand for hand in self.hands.values() if hand.seen + INTERVAL_S * LIVENESS <= self.now]:
                self.forget(min(silent, key=lambda hand: hand.seen), unreachable=False)
            for queue in self.services.values():
                self.expire(queue)
            self.flush()
        self.now = end

    def heard(self, peer):
        hand = self.hands.pop(peer, None)
        if hand is not None:
            # Of those that were heard at one time the first one is the most silent.
            self.hands[peer] = hand
            hand.seen = self.now
        return hand

    def free(self, hand):
        queue = self.service(hand.service)
        if hand not in queue.free:
            queue.free.append(hand)
            self.dispatch(hand.service)

    def unfree(self, hand):
        queue = self.service(hand.service)
        if hand in queue.free:
            queue.free.remove(hand)

    # The oldest of both first.
    def dispatch(self, name):
        queue = self.service(name)
        while queue.waiting and queue.free:
            if queue.waiting[0].due <= self.now:
                self.expire(queue)
            else:
                self.give(queue.waiting.popleft())

    def give(self, work):
        hand = self.service(work.service).free.popleft()
        hand.held.append(work)
        self.outputs.append(Given(hand, work))

    def wait(self, work):
        work.due = self.now + TTL_S
        self.service(work.service).waiting.append(work)

    # Replies and forwards say what they are of by client and metadata: of several alike it is the oldest.
    def take(self, hand, work):
        taken = next((held for held in hand.held if held.number == work.number), None)
        if taken is not None:
            hand.held.remove(taken)
            taken.given = None
        return taken

    def expire(self, queue):
        for work in [work for work in queue.waiting if work.due <= self.now]:
            queue.waiting.remove(work)
            queue.counts["expired"] += 1
            self.dropped["queue_expired"] += 1

    # DCP-42: what it had in hand goes back to the front if that is wanted, and so does what never left.
    def forget(self, hand, *, unreachable):
        self.unfree(hand)
        del self.hands[hand.peer]
        self.empty(hand, returns=lambda work: self.requeue or (unreachable and not work.given.sent))

    def empty(self, hand, *, returns):
        touched = {hand.service}
        for work in reversed(hand.held):
            touched.add(work.service)
            if returns(work):
                work.due = self.now + TTL_S
                self.service(work.service).waiting.appendleft(work)
            else:
                self.lost += 1
            work.given = None
        hand.held.clear()
        for name in sorted(touched):
            self.dispatch(name)

    def flush(self):
        """What the transport does with what is sent."""
        while self.outputs:
            given = self.outputs.popleft()
            if given.work.given is not given:
                continue  # taken back before it left
            if given.worker.peer in self.gone:
                self.forget(given.worker, unreachable=True)
            else:
                self.arrived.append((given.worker.peer, given.work))
                given.sent = True


class Brokering(RuleBasedStateMachine):
    """Bare peers for workers, so that only rules send messages; our client, with timeouts."""

    peers = Bundle("peers")

    @initialize(
        max_queue=st.sampled_from([0, 1, 3]),
        overflow=st.sampled_from(["reject-newest", "drop-oldest"]),
        requeue=st.booleans(),
        busy_ping_grants=st.booleans(),
    )
    def start(self, **policy):
        self.sim = testing.pair(dcp.Client)
        self.sim.add(dcp.Broker, queue_ttl_s=TTL_S, heartbeat_interval_s=INTERVAL_S, liveness=LIVENESS, **policy)
        self.model = Model(**policy)
        self.futures, self.dues, self.ended = [], [], {}
        self.late = 0
        self.hands = {}

    def teardown(self):
        if hasattr(self, "sim"):
            # Whatever was going on, no request stays without an end.
            self.sim.advance(100)
            assert all(future.done() for future in self.futures)
            stats = self.sim.client.stats
            assert stats.replies + stats.timeouts == stats.requests == len(self.futures)
            assert stats.in_flight == 0

    @rule(target=peers)
    def come(self):
        peer = self.sim.peer()
        self.hands[peer] = []
        return peer

    def send(self, peer, frames):
        peer.send(frames)
        self.sim.advance(0)

    def hear(self, peer, *others):
        """What a peer was sent: requests, each of them known by its number, and these others."""
        arrived = [work for to, work in self.model.arrived if to is peer]
        self.model.arrived = [(to, work) for to, work in self.model.arrived if to is not peer]
        frames = [list(one) for one in peer.received]
        peer.received.clear()
        requests = [one for one in frames if one[2] == b"\x04"]
        assert [one for one in frames if one[2] != b"\x04"] == list(others)
        assert [int(data_of(one)[0]) for one in requests] == [work.number for work in arrived]
        self.hands[peer] += zip(arrived, requests, strict=True)

    def hear_all(self):
        for peer in self.hands:
            if not peer.closed:
                self.hear(peer)

    @rule(peer=peers, service=st.sampled_from(SERVICES))
    def register(self, peer, service):
        if peer.closed:
            return
        self.send(peer, register(service))
        self.model.register(peer, service)
        self.hear(peer, register(service))
        self.hear_all()

    @rule(peer=peers)
    def ping(self, peer):
        if peer.closed:
            return
        self.send(peer, PING)
        self.hear(peer, self.model.ping(peer))
        self.hear_all()

    @rule(service=st.sampled_from(SERVICES), timeout_s=st.integers(1, 30))
    def request(self, service, timeout_s):
        number = len(self.futures)
        self.futures.append(self.sim.client.submit(service, b"%d" % number, timeout_s=timeout_s))
        self.dues.append(self.model.now + timeout_s)
        self.sim.advance(0)
        self.model.request(Work(number, service))
        self.hear_all()

    def end(self, number):
        """A reply reaches the client."""
        if number in self.ended:
            self.late += 1
        else:
            self.ended[number] = "replied"

    @rule(peer=peers, which=st.integers(0, 5))
    def work(self, peer, which):
        if peer.closed or not self.hands[peer]:
            return
        work, frames = self.hands[peer].pop(which % len(self.hands[peer]))
        is_known = peer in self.model.hands
        self.send(peer, answer(frames, b"%d" % work.number))
        self.model.reply(peer, work)
        self.end(work.number)
        self.hear(peer, *([] if is_known else [RECONNECT]))
        self.hear_all()

    @rule(peer=peers, which=st.integers(0, 5), service=st.sampled_from(SERVICES))
    def forward(self, peer, which, service):
        if peer.closed or not self.hands[peer]:
            return
        work, frames = self.hands[peer].pop(which % len(self.hands[peer]))
        metadata = frames[6 : frames.index(b"", 6)]
        self.send(peer, request(service, *data_of(frames), client=frames[4], metadata=metadata))
        self.model.forward(peer, work, service)
        self.hear_all()

    @rule(peer=peers)
    def crash(self, peer):
        self.sim.crash(peer)
        self.model.gone.add(peer)
        self.hands[peer] = []

    @rule(seconds=st.integers(1, 12))
    def advance(self, seconds):
        self.sim.advance(seconds)
        self.model.advance(seconds)
        for number, due in enumerate(self.dues):
            if due <= self.model.now:
                self.ended.setdefault(number, "timed out")
        self.hear_all()

    @precondition(lambda self: hasattr(self, "sim"))
    @invariant()
    def the_broker_is_as_the_model_has_it(self):
        model, stats = self.model, self.sim.broker.stats
        assert stats.dropped == dict(model.dropped)
        assert stats.lost == model.lost
        assert stats.peers == 1 + sum(not peer.closed for peer in self.hands)
        seen = {service.service: service for service in stats.services}
        # One that never had a request is forgotten with its last worker.
        offered = {hand.service for hand in model.hands.values()}
        known = {name for name, queue in model.services.items() if queue.counts["requests"] or name in offered}
        assert set(seen) == known
        for name in known:
            queue, ours = model.services[name], seen[name]
            assert ours.queued == len(queue.waiting)
            assert ours.workers == sum(hand.service == name for hand in model.hands.values())
            assert ours.free == len(queue.free)
            assert (ours.requests, ours.replies, ours.expired) == tuple(
                queue.counts[count] for count in ("requests", "replies", "expired")
            )

    @precondition(lambda self: hasattr(self, "sim"))
    @invariant()
    def every_request_has_the_end_it_is_to_have(self):
        for number, future in enumerate(self.futures):
            assert future.done() == (number in self.ended)
            if self.ended.get(number) == "replied":
                assert future.result().data == (b"%d" % number,)
            elif number in self.ended:
                assert isinstance(future.exception(), TimeoutError)
        assert self.sim.client.stats.late == self.late


@pytest.mark.timeout(300)  # it only computes, and a busy machine does so slowly
@pytest.mark.req("DCP-15", "DCP-19", "DCP-29", "DCP-32", "DCP-33", "DCP-34", "DCP-40", "DCP-42")
def test_the_broker_does_what_the_model_does():
    run_state_machine_as_test(Brokering, settings=settings(max_examples=200, stateful_step_count=40, print_blob=True))


@pytest.mark.req("DCP-28", "DCP-30", "DCP-31", "DCP-42", "DCP-44")
@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**64 - 1),
    network=st.fixed_dictionaries(
        {
            "latency_s": st.floats(0, 0.1),
            "jitter_s": st.floats(0, 0.5),
            "loss": st.floats(0, 0.4),
            "duplication": st.floats(0, 0.4),
            "reorder": st.booleans(),
        }
    ),
    concurrency=st.integers(1, 4),
    requeue=st.booleans(),
    crashes=st.lists(st.tuples(st.floats(0, 20), st.integers(0, 3), st.floats(0, 20)), max_size=5),
)
def test_whatever_happens_every_request_ends_once(seed, network, concurrency, requeue, crashes):
    with testing.pair(dcp.Client, dcp.Client, seed=seed, **network) as sim:
        broker = sim.add(dcp.Broker, requeue=requeue)
        nodes = [broker] + [
            sim.add(dcp.Worker, b"echo", testing.echo, work_s=0.1, concurrency=concurrency) for _ in range(3)
        ]
        for after_s, which, for_s in crashes:
            node = nodes[which]
            sim.after(after_s, lambda node=node: sim.crash(node))
            sim.after(after_s + for_s, lambda node=node: sim.restart(node))
        ends = Counter()
        for number in range(20):
            future = sim.client.submit(b"echo", b"%d" % number, timeout_s=5, retries=2)
            future.add_done_callback(lambda _, number=number: ends.update([number]))
            sim.advance(0.5)
        sim.advance(60)
        assert ends == Counter(range(20))
        stats = sim.client.stats
        assert stats.replies + stats.timeouts == 20
        assert stats.in_flight == 0

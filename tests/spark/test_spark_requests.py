"""Requests and what came of them, on streams of which that is known."""

import random
from collections import defaultdict, deque

import pytest
from pyspark.sql.functions import rand

from peers.recorded import line
from trunkline import capture, dcp, spark
from trunkline.errors import LocalProtocolError

H = b"DGBX\x01"
STEP_NS = 10**6
HELD_UP_NS = 5_000_000_000


def request(service, client, *metadata, data=b"x"):
    return [b"", H, b"\x04", service, *([] if client is None else [client]), b"", *metadata, b"", data]


def reply(client, *metadata, data=b"y"):
    return [b"", H, b"\x05", client, b"", *metadata, b"", data]


PING, PONG = [b"", H, b"\x02"], [b"", H, b"\x03"]


def register(service):
    return [b"", H, b"\x01", service]


@pytest.fixture
def paired(session, tmp_path):
    """Pairs the requests among messages that are a millisecond apart: `(direction, peer, frames)`, shuffled."""

    def pair(messages, seed=None):
        lines = tmp_path / "messages.jsonl"
        with lines.open("w") as file:
            for at, (direction, peer, frames) in enumerate(messages):
                file.write(line(frames, at * STEP_NS, direction=direction, peer=peer))
        capture.import_(lines, tmp_path / "capture", protocol="dcp", segment_bytes=20_000)
        rows = session.read.parquet(str(tmp_path / "capture"))
        if seed is not None:
            rows = rows.orderBy(rand(seed)).repartition(5)
        found = spark.pair_requests(rows).orderBy("request_seq").collect()
        return [plain(row.asDict()) for row in found]

    return pair


def plain(row):
    del row["capture_id"]
    row["metadata"] = [bytes(part) for part in row["metadata"]]
    return {name: bytes(value) if isinstance(value, bytearray) else value for name, value in row.items()}


def some(rows, *names):
    return [tuple(row[name] for name in names) for row in rows]


@pytest.mark.req("DCP-28")
def test_what_a_broker_sees(paired):
    rows = paired(
        [
            ("in", b"w1", register(b"echo")),
            ("out", b"w1", register(b"echo")),
            ("in", b"c1", request(b"echo", None, b"a")),
            ("out", b"w1", request(b"echo", b"c1", b"a")),
            ("in", b"c1", request(b"echo", None, b"b")),
            ("in", b"c2", request(b"echo", None, b"a")),
            ("in", b"w1", reply(b"c1", b"a")),
            ("out", b"c1", reply(b"c1", b"a")),
            ("out", b"w1", request(b"echo", b"c1", b"b")),
            ("in", b"w1", PING),
            ("out", b"w1", PONG),
            ("in", b"w1", [b"", H, b"\x05"]),  # no message
            ("in", b"w1", reply(b"c9", b"z")),  # without a request
            ("in", b"c3", request(b"none", None)),
        ]
    )
    assert rows[0] == {
        "seen_by": "broker",
        "service": b"echo",
        "client": b"c1",
        "worker": b"w1",
        "forwarded_by": None,
        "metadata": [b"a"],
        "outcome": "reply",
        "latency_ns": 5 * STEP_NS,
        "queued_ns": STEP_NS,
        "worked_ns": 3 * STEP_NS,
        "request_seq": 2,
        "dispatch_seq": 3,
        "response_seq": 6,
        "reply_seq": 7,
        "requested_at_ns": 2 * STEP_NS,
    }
    assert some(rows, "request_seq", "client", "worker", "outcome", "queued_ns", "latency_ns")[1:] == [
        (4, b"c1", b"w1", "no_reply", 4 * STEP_NS, None),
        (5, b"c2", None, "not_dispatched", None, None),
        (13, b"c3", None, "not_dispatched", None, None),
    ]


def test_a_broker_answers_some_requests_itself(paired):
    rows = paired(
        [
            ("in", b"c", request(b"echo", None, b"m")),  # waits for a worker
            ("in", b"c", request(b"trunkline.status", None, b"m")),
            ("out", b"c", reply(b"c", b"m")),
            ("in", b"w", reply(b"c", b"n")),  # to what was asked before the capture began
            ("in", b"c", request(b"later", None, b"n")),
            ("out", b"c", reply(b"c", b"n")),
            ("out", b"w", request(b"echo", b"c", b"m")),
            ("in", b"w", reply(b"c", b"m")),
            ("out", b"c", reply(b"c", b"m")),
        ]
    )
    assert some(
        rows, "request_seq", "worker", "outcome", "latency_ns", "dispatch_seq", "response_seq", "reply_seq"
    ) == [
        (0, b"w", "reply", 8 * STEP_NS, 6, 7, 8),
        (1, None, "reply", STEP_NS, None, None, 2),
        (4, None, "not_dispatched", None, None, None, None),
    ]


@pytest.mark.req("DCP-34", "DCP-35")
def test_a_forward_is_a_request_of_its_own(paired):
    rows = paired(
        [
            ("in", b"c", request(b"a", None, b"m")),
            ("out", b"w1", request(b"a", b"c", b"m")),
            ("in", b"w1", request(b"sub", None, b"s")),  # what the worker asks itself frees nothing
            ("out", b"w3", request(b"sub", b"w1", b"s")),
            ("in", b"w3", reply(b"w1", b"s")),
            ("out", b"w1", reply(b"w1", b"s")),
            ("in", b"w1", request(b"b", b"c", b"m")),
            ("out", b"w2", request(b"b", b"c", b"m")),
            ("in", b"w2", reply(b"c", b"m")),
            ("in", b"c", request(b"a", None, b"m")),
            ("out", b"c", reply(b"c", b"m")),
        ]
    )
    names = ("request_seq", "service", "client", "worker", "forwarded_by", "outcome", "latency_ns", "worked_ns")
    assert some(rows, *names) == [
        (0, b"a", b"c", b"w1", None, "forward", None, 5 * STEP_NS),
        (2, b"sub", b"w1", b"w3", None, "reply", 3 * STEP_NS, STEP_NS),
        (6, b"b", b"c", b"w2", b"w1", "reply", 4 * STEP_NS, STEP_NS),
        (9, b"a", b"c", None, None, "not_dispatched", None, None),
    ]


@pytest.mark.req("DCP-27", "DCP-42")
def test_what_goes_wrong_at_a_broker(paired):
    rows = paired(
        [
            ("in", b"c", request(b"s", None, b"1")),
            ("out", b"w1", request(b"s", b"c", b"1")),  # w1 dies
            ("out", b"w2", request(b"s", b"c", b"1")),
            ("in", b"w2", reply(b"c", b"1")),
            ("out", b"c", reply(b"c", b"1")),
            ("in", b"gone", request(b"s", None, b"2")),
            ("out", b"w2", request(b"s", b"gone", b"2")),
            ("in", b"w2", reply(b"gone", b"2")),
            ("in", b"c", request(b"s", None, b"3")),
            ("out", b"w1", request(b"s", b"c", b"3")),  # dies again
            ("out", b"w2", request(b"s", b"c", b"3")),
            ("in", b"w1", reply(b"c", b"3")),  # late, of one that had been given up
            ("out", b"c", reply(b"c", b"3")),
        ]
    )
    assert some(rows, "request_seq", "worker", "dispatch_seq", "outcome", "queued_ns", "worked_ns") == [
        (0, b"w2", 2, "reply", 2 * STEP_NS, STEP_NS),
        (5, b"w2", 6, "undelivered", STEP_NS, STEP_NS),
        (8, b"w1", 9, "reply", STEP_NS, 2 * STEP_NS),
    ]


def test_what_a_client_sees(paired):
    rows = paired(
        [
            ("out", None, request(b"s", None, b"1")),
            ("out", None, request(b"s", None, b"2")),
            ("out", None, request(b"t", None, b"3")),
            ("in", None, reply(b"me", b"2")),
            ("in", None, reply(b"me", b"1")),
            ("in", None, reply(b"me", b"1")),  # once more
            ("out", None, request(b"s", b"me", b"4")),  # its own address in it
            ("in", None, reply(b"me", b"4")),
        ]
    )
    assert {row["seen_by"] for row in rows} == {"client"}
    assert some(rows, "request_seq", "service", "client", "outcome", "latency_ns", "reply_seq", "worked_ns") == [
        (0, b"s", b"me", "reply", 4 * STEP_NS, 4, None),
        (1, b"s", b"me", "reply", 2 * STEP_NS, 3, None),
        (2, b"t", None, "no_reply", None, None, None),
        (6, b"s", b"me", "reply", STEP_NS, 7, None),
    ]


@pytest.mark.req("DCP-23", "DCP-34")
def test_what_a_worker_sees(paired):
    rows = paired(
        [
            ("out", None, register(b"s")),
            ("in", None, register(b"s")),
            ("in", None, request(b"s", b"c", b"1")),
            ("in", None, request(b"s", b"d", b"1")),
            ("out", None, request(b"sub", None, b"1")),  # asks itself
            ("in", None, reply(b"w", b"1")),
            ("out", None, reply(b"c", b"1")),
            ("out", None, request(b"other", b"d", b"1")),  # sends on
            ("in", None, request(b"s", b"c", b"2")),
        ]
    )
    names = ("seen_by", "request_seq", "service", "client", "outcome", "latency_ns", "worked_ns", "reply_seq")
    assert some(rows, *names) == [
        ("worker", 2, b"s", b"c", "reply", 4 * STEP_NS, 4 * STEP_NS, 6),
        ("worker", 3, b"s", b"d", "forward", None, 4 * STEP_NS, None),
        ("client", 4, b"sub", b"w", "reply", STEP_NS, None, 5),
        ("worker", 8, b"s", b"c", "no_reply", None, None, None),
    ]


@pytest.mark.req("DCP-23", "DCP-28")
def test_what_live_roles_record_of_the_same_requests(session, tmp_path):
    broker_sees, worker_sees, client_sees = (tmp_path / name for name in ("broker", "worker", "client"))
    with (
        dcp.Broker(bind="tcp://127.0.0.1:*", capture=broker_sees) as broker,
        dcp.Worker(b"echo", connect=broker.endpoints[0], concurrency=3, capture=worker_sees) as worker,
        dcp.Client(connect=broker.endpoints[0], capture=client_sees) as client,
    ):
        calls = [client.submit(b"echo", [bytes([number])]) for number in range(12)]
        for _ in calls:
            asked = worker.receive(timeout_s=20)
            asked.reply(asked.data)
        for number, call in enumerate(calls):
            assert call.result(timeout=20).data == (bytes([number]),)
    seen = {}
    for path in (broker_sees, worker_sees, client_sees):
        rows = spark.pair_requests(session.read.parquet(str(path))).collect()
        assert {(row["seen_by"], row["outcome"]) for row in rows} == {(path.name, "reply")}
        seen[path.name] = {tuple(map(bytes, row["metadata"])): row for row in rows}
    assert len(seen["client"]) == 12
    for call, asked in seen["client"].items():
        at_broker, at_worker = seen["broker"][call], seen["worker"][call]
        assert {bytes(row["client"]) for row in (asked, at_broker, at_worker)} == {bytes(asked["client"])}
        assert at_worker["latency_ns"] > 0
        assert at_broker["queued_ns"] + at_broker["worked_ns"] <= at_broker["latency_ns"]
        # A role that is held up between a send and its stamp, or a receipt and its stamp, sees less than others do.
        assert at_worker["latency_ns"] < at_broker["worked_ns"] + HELD_UP_NS
        assert at_broker["latency_ns"] < asked["latency_ns"] + HELD_UP_NS


def test_equal_requests_are_answered_in_their_order(paired):
    """A client with equal requests, and a reply to one before the capture began."""
    rows = paired(
        [
            ("in", b"w", reply(b"c")),
            ("out", b"c", reply(b"c")),
            ("in", b"c", request(b"s", None)),
            ("in", b"c", request(b"s", None)),
            ("out", b"w", request(b"s", b"c")),
            ("out", b"v", request(b"s", b"c")),
            ("in", b"v", reply(b"c")),
            ("out", b"c", reply(b"c")),
            ("in", b"w", reply(b"c")),
            ("out", b"c", reply(b"c")),
        ]
    )
    assert some(rows, "request_seq", "worker", "latency_ns") == [(2, b"w", 7 * STEP_NS), (3, b"v", 4 * STEP_NS)]


class Broker:
    """Plays a broker and everybody around it, and keeps account of what came of each request."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.messages, self.truth = [], {}
        self.queues, self.held = defaultdict(deque), defaultdict(list)

    def play(self, steps):
        for _ in range(steps):
            action = self.chance.choices([self.ask, self.dispatch, self.respond], [3, 3, 3])[0]
            action()
        return self.messages

    def record(self, direction, peer, frames):
        self.messages.append((direction, peer, frames))
        return len(self.messages) - 1

    def ask(self):
        client, service = self.chance.choice([b"c", b"d", b"e"]), self.chance.choice([b"s", b"t"])
        metadata = tuple(bytes([self.chance.randrange(1, 60)]) for _ in range(self.chance.randrange(1, 3)))
        seq = self.record("in", client, request(service, None, *metadata))
        self.open(seq, service, client, metadata)

    def open(self, seq, service, client, metadata, forwarded_by=None):
        # What is open has no equal, so that there is one truth.
        if any(
            (client, metadata) == (one["client"], one["metadata"]) and not one["over"] for one in self.truth.values()
        ):
            self.messages[seq] = ("in", client, PING)
            return
        self.truth[seq] = {
            "client": client,
            "metadata": metadata,
            "over": False,
            "service": service,
            "forwarded_by": forwarded_by,
            "worker": None,
            "outcome": "not_dispatched",
            "reply_seq": None,
            "response_seq": None,
            "dispatch_seq": None,
        }
        self.queues[service].append(seq)

    def dispatch(self):
        service = self.chance.choice([b"s", b"t"])
        if not self.queues[service]:
            return
        seq = self.queues[service].popleft()
        one, worker = self.truth[seq], self.chance.choice([b"w1", b"w2", b"w3"])
        at = self.record("out", worker, request(service, one["client"], *one["metadata"]))
        one.update(worker=worker, outcome="no_reply", dispatch_seq=at)
        self.held[worker].append(seq)

    def respond(self):
        worker = self.chance.choice([b"w1", b"w2", b"w3"])
        if not self.held[worker]:
            return
        seq = self.held[worker].pop(self.chance.randrange(len(self.held[worker])))
        one = self.truth[seq]
        if self.chance.random() < 0.2:
            service = self.chance.choice([b"s", b"t"])
            at = self.record("in", worker, request(service, one["client"], *one["metadata"]))
            one.update(outcome="forward", response_seq=at, over=True)
            self.open(at, service, one["client"], one["metadata"], forwarded_by=worker)
            return
        at = self.record("in", worker, reply(one["client"], *one["metadata"]))
        one.update(outcome="reply", response_seq=at, over=True)
        one["reply_seq"] = self.record("out", one["client"], reply(one["client"], *one["metadata"]))


@pytest.mark.req("DCP-28", "DCP-34")
@pytest.mark.parametrize("seed", range(2))
def test_overlapping_requests_in_any_order(paired, seed):
    broker = Broker(seed)
    rows = paired(broker.play(1500), seed=seed)
    names = ("service", "client", "worker", "forwarded_by", "outcome", "dispatch_seq", "response_seq", "reply_seq")
    assert {row["request_seq"]: some([row], *names)[0] for row in rows} == {
        seq: tuple(one[name] for name in names) for seq, one in broker.truth.items()
    }
    outcomes = [row["outcome"] for row in rows]
    assert {name: outcomes.count(name) > 10 for name in ("reply", "forward", "no_reply")} == dict.fromkeys(
        ("reply", "forward", "no_reply"), True
    )
    for row in rows:
        if row["outcome"] == "reply":
            assert row["latency_ns"] == (row["reply_seq"] - row["request_seq"]) * STEP_NS


def test_requests_take_the_columns_of_a_capture(session):
    with pytest.raises(LocalProtocolError, match="received_at_ns"):
        spark.pair_requests(session.createDataFrame([], "header binary"))
    requests = spark.pair_requests(session.createDataFrame([], spark.capture_schema()))
    assert requests.count() == 0
    assert [f"{name} {kind}" for name, kind in requests.dtypes] == [
        "capture_id string",
        "seen_by string",
        "service binary",
        "client binary",
        "worker binary",
        "forwarded_by binary",
        "metadata array<binary>",
        "outcome string",
        "latency_ns bigint",
        "queued_ns bigint",
        "worked_ns bigint",
        "request_seq bigint",
        "dispatch_seq bigint",
        "response_seq bigint",
        "reply_seq bigint",
        "requested_at_ns bigint",
    ]

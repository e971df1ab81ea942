"""What passes through topics, on streams of which that is known."""

import random
from collections import defaultdict, deque
from datetime import UTC, datetime

import pytest
from pyspark.sql.functions import rand

from peers.recorded import line
from trunkline import capture, spark
from trunkline.errors import LocalProtocolError

STEP_NS = 10**6
START_NS = 1_795_251_120 * 10**9  # a whole minute
COUNTS = ("seen_by", "topic", "puts", "deliveries", "bytes", "publishers", "subscribers", "p50_ns", "p99_ns")


def put(topic, *body, headers=()):
    return [b"", b"PUT", *headers, b"TOPIC", topic, b"ID", b"1", b"", *body]


def message(topic, *body, headers=(), is_delimited=True):
    return [b""] * is_delimited + [b"MESSAGE", b"TOPIC", topic, *headers, b"", *body]


@pytest.fixture
def decoded(session, tmp_path):
    """Decodes messages that are a millisecond apart, `(direction, peer, frames)`, in any order if need be."""

    def make(messages, *, name="one", seed=None, **options):
        lines = tmp_path / "messages.jsonl"
        with lines.open("w") as file:
            for at, (direction, peer, frames) in enumerate(messages):
                file.write(line(frames, START_NS + at * STEP_NS, direction=direction, peer=peer))
        capture.import_(lines, tmp_path / name, protocol="mc0", segment_bytes=20_000)
        rows = session.read.parquet(str(tmp_path / name))
        if seed is not None:
            rows = rows.orderBy(rand(seed)).repartition(5)
        return spark.decode(rows, "mc0", **options)

    return make


def some(table, *names):
    return [tuple(row[name] for name in names) for row in table.orderBy("window", "seen_by", "topic").collect()]


def latencies(table):
    """The way through the middleware of each delivery, by its `seq`."""
    found = spark.topics(table, "1 millisecond").where("deliveries > 0").collect()
    return {
        round(row["window"]["start"].replace(tzinfo=UTC).timestamp() * 1000) - START_NS // STEP_NS: row["p50_ns"]
        for row in found
    }


def test_what_a_middleware_sees(session, decoded):
    assert session.conf.get("spark.sql.session.timeZone") == "UTC"
    table = decoded(
        [
            ("in", b"s1", [b"", b"SUB", b"", b"a"]),
            ("in", b"p1", put(b"a", b"xyz")),
            ("out", b"s1", message(b"a", b"xyz")),
            ("out", b"s2", message(b"a", b"xyz", is_delimited=False)),
            ("in", b"p2", put(b"a", b"xy", b"z")),
            ("in", b"p1", put(b"nobody", b"x")),
            ("out", b"p1", [b"", b"OK", b"ID", b"1"]),
            ("out", b"s1", message(b"a", b"xy", b"z")),
            ("in", b"p3", message(b"a", b"xyz")),  # a middleware takes none
            ("out", b"p3", put(b"a", b"xyz")),
            ("in", b"p3", [b"", b"PUT"]),
        ]
    )
    found = spark.topics(table)
    assert found.columns == ["window", *COUNTS, "evicted"]
    assert some(found, *COUNTS) == [
        ("middleware", "a", 2, 3, 6, 2, 2, 2 * STEP_NS, 3 * STEP_NS),
        ("middleware", "nobody", 1, 0, 1, 1, 0, None, None),
    ]
    (window,) = {row["window"] for row in found.collect()}
    assert window["start"] == datetime.fromtimestamp(START_NS // 10**9, UTC).replace(tzinfo=None)
    assert (window["end"] - window["start"]).total_seconds() == 60


def test_each_window_has_its_own(decoded):
    table = decoded([("in", b"p", put(b"a", b"x")), *[("out", b"s", message(b"a", b"x"))]] * 3)
    found = some(spark.topics(table, "2 milliseconds"), "puts", "deliveries", "p50_ns")
    assert found == [(1, 1, STEP_NS)] * 3


def test_a_connector_tells_what_it_put_and_what_it_was_delivered(decoded):
    table = decoded(
        [
            ("out", None, put(b"a", b"xyz")),
            ("in", None, message(b"a", b"xyz")),
            ("in", None, message(b"b", b"x")),
            ("in", None, put(b"b", b"x")),  # a connector takes none
        ]
    )
    assert some(spark.topics(table), *COUNTS) == [
        ("connector", "a", 1, 1, 6, None, None, None, None),
        ("connector", "b", 0, 1, 1, None, None, None, None),
    ]


def test_a_burst_is_told_apart_by_position(decoded):
    # Three are read at a time, and passed on subscriber by subscriber.
    table = decoded(
        [
            *[("in", b"p", put(b"a", b"x"))] * 3,
            *[("out", b"s1", message(b"a", b"x"))] * 3,
            *[("out", b"s2", message(b"a", b"x"))] * 3,
        ],
        seed=3,
    )
    assert latencies(table) == dict.fromkeys(range(3, 6), 3 * STEP_NS) | dict.fromkeys(range(6, 9), 6 * STEP_NS)


def test_who_comes_late_or_loses_something_does_not_disturb_the_rest(decoded):
    table = decoded(
        [
            ("in", b"p", put(b"a", b"1")),
            ("in", b"p", put(b"a", b"2")),
            ("out", b"s1", message(b"a", b"2")),  # here since the second
            ("in", b"p", put(b"a", b"3")),
            ("in", b"p", put(b"a", b"4")),
            ("in", b"p", put(b"a", b"5")),
            ("out", b"s1", message(b"a", b"3")),
            ("out", b"s1", message(b"a", b"5")),  # the fourth found no room
            ("in", b"p", put(b"a", b"6")),
            ("out", b"s1", message(b"a", b"6")),
            ("out", b"s2", message(b"a", b"6")),
        ],
        payload=True,
    )
    known = {2: STEP_NS, 6: 3 * STEP_NS, 7: 2 * STEP_NS, 9: STEP_NS, 10: 2 * STEP_NS}
    assert latencies(table) == known
    # Without bodies they are alike, and the one before the loss may be the next: never is the figure too long.
    assert latencies(table.drop("body")) == known | {6: 2 * STEP_NS}


def test_headers_and_sizes_tell_messages_apart(decoded):
    one, two = (b"X-Origin", b"daq"), (b"X-Origin", b"\xff")
    table = decoded(
        [
            ("in", b"p", put(b"a", b"x", headers=one)),
            ("in", b"p", put(b"a", b"x", headers=two)),
            ("in", b"p", put(b"a", b"xx", headers=one)),
            ("in", b"p", put(b"a", b"x", b"", headers=one)),
            ("in", b"p", put(b"b", b"x", headers=one)),
            ("out", b"s", message(b"a", b"x", headers=one)),
        ]
    )
    assert latencies(table) == {5: 5 * STEP_NS}


def test_what_was_put_before_the_rows_begin_has_no_way(decoded):
    table = decoded(
        [
            ("out", b"s", message(b"a", b"x")),
            ("out", b"s", message(b"a", b"x")),
            ("in", b"p", put(b"a", b"x")),
            ("out", b"s", message(b"a", b"x")),
            ("out", b"s", message(b"a", b"x")),
        ]
    )
    assert latencies(table) == {0: None, 1: None, 3: None, 4: 2 * STEP_NS}


def test_captures_are_not_mixed_up(decoded):
    one = decoded([("in", b"p", put(b"a", b"x")), ("out", b"s", message(b"a", b"x"))])
    # Only in the first is there a PUT before it.
    two = decoded([("out", b"s", message(b"a", b"x"))] * 2, name="two")
    assert some(spark.topics(one.union(two)), "puts", "deliveries", "subscribers", "p99_ns") == [(1, 3, 1, STEP_NS)]


@pytest.mark.parametrize("seed", range(3))
def test_a_bus_of_queues_is_seen_through(decoded, seed):
    """Publishers, and subscribers that come late and read when they please; all is delivered in the end."""
    dice = random.Random(seed)
    topics, peers = [b"a", b"b"], [b"s1", b"s2", b"s3"]
    queues = defaultdict(deque)
    subscribed, rows, expected = set(), [], {}
    for _ in range(400):
        topic, peer = dice.choice(topics), dice.choice(peers)
        match dice.randrange(10):
            case 0:
                subscribed.add((peer, topic))
            case 1 | 2 | 3 | 4:
                for place in sorted(subscribed):
                    if place[1] == topic:
                        queues[place].append(len(rows))
                rows.append(("in", dice.choice(peers), put(topic, b"x")))
            case _:
                for _ in range(dice.randrange(4)):
                    deliver(queues, rows, expected, (peer, topic))
    for place in sorted(queues):
        while queues[place]:
            deliver(queues, rows, expected, place)
    assert len(expected) > 100
    found = latencies(decoded(rows, seed=seed))
    assert found == {at: (at - put_at) * STEP_NS for at, put_at in expected.items()}


def deliver(queues, rows, expected, place):
    if queues[place]:
        expected[len(rows)] = queues[place].popleft()
        rows.append(("out", place[0], message(place[1], b"x")))


def test_what_is_counted_is_counted_in_spark(decoded):
    table = decoded([("in", b"p", [b"", b"PING"])], mode="FAILFAST")
    # Nothing is read before an action.
    assert spark.topics(table).columns == ["window", *COUNTS, "evicted"]


def test_columns_that_are_missing_are_named(decoded):
    table = decoded([("in", b"p", put(b"a", b"x"))])
    for name in ("peer", "headers", "body_bytes"):
        with pytest.raises(LocalProtocolError, match=f"topics need what `decode` makes of.*missing: {name}"):
            spark.topics(table.drop(name))

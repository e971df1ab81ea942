"""What several rows make up: requests, contents, topics, rollouts and gaps, from captures without Spark."""

from __future__ import annotations

import random
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peers.damage import damaged
from peers.mtl import confirm, content, lease, reject, response
from peers.recorded import line
from peers.together import ALPHABET, START_NS, STEP_NS, dat, event, message, put, reply, request
from trunkline import capture, mtl
from trunkline._native.analysis import Fold
from trunkline.columns import Decoder, reading
from trunkline.errors import LocalProtocolError

OPTIONS = {
    "runs": {"tags": None},
    "gaps": {"tags": None},
    "requests": {},
    "topics": {},
    "contents": {"properties": {"redelivered": "boolean", "*": "variant"}, "json": None},
    "rollout": {},
}


@pytest.fixture
def recorded(tmp_path):
    """A capture of messages that are a millisecond apart: `(direction, peer, frames)`, of CDT with a subject."""

    def make(protocol, messages, name="one", at=None, **options):
        lines = tmp_path / f"{name}.jsonl"
        with lines.open("w") as file:
            for number, (direction, peer, content) in enumerate(messages):
                frames, topic = content if isinstance(content, tuple) else (content, None)
                when = START_NS + (number if at is None else at[number]) * STEP_NS
                file.write(line(frames, when, direction=direction, peer=peer, topic=topic))
        capture.import_(lines, tmp_path / name, protocol=protocol, **options)
        return capture.open(tmp_path / name)

    return make


def some(reader, *names):
    return [tuple(row[name] for name in names) for row in reader.read_all().to_pylist()]


def test_an_answer_to_what_is_over_opens_nothing(recorded):
    asked, sent = ("in", b"c", request(b"s", None, b"m")), request(b"s", b"c", b"m")
    answer = reply(b"c", b"m")
    found = recorded(
        "dcp",
        [
            *(asked, ("out", b"w", sent), ("out", b"v", sent)),
            *(("in", b"v", answer), ("out", b"c", answer), ("in", b"w", answer)),
            *(asked, ("out", b"w", sent), ("in", b"w", answer), ("out", b"c", answer)),
        ],
    ).requests()
    assert some(found, "request_seq", "outcome", "worker", "response_seq", "reply_seq") == [
        (0, "reply", b"v", 3, 4),
        (6, "reply", b"w", 8, 9),
    ]


def test_another_dispatch_is_of_the_oldest_that_is_open(recorded):
    asked, sent, answer = ("in", b"c", request(b"s", None)), request(b"s", b"c"), reply(b"c")
    found = recorded(
        "dcp",
        [
            *(asked, asked, ("out", b"w", sent), ("out", b"v", sent), ("out", b"v", sent)),
            *(("in", b"v", answer), ("out", b"c", answer), ("in", b"v", answer), ("out", b"c", answer)),
        ],
    ).requests()
    assert some(found, "request_seq", "outcome", "dispatch_seq", "reply_seq") == [
        (0, "reply", 4, 8),
        (1, "reply", 3, 6),
    ]


def test_a_broker_that_answers_itself_sends_no_worker(recorded):
    """Which of two it answered is known once the other is sent to a worker."""
    found = recorded(
        "dcp",
        [
            ("in", b"c", request(b"echo", None)),
            ("in", b"c", request(b"trunkline.status", None)),
            ("out", b"c", reply(b"c")),
            ("out", b"w", request(b"echo", b"c")),
            ("in", b"w", reply(b"c")),
            ("out", b"c", reply(b"c")),
        ],
    ).requests()
    assert some(found, "service", "worker", "reply_seq") == [(b"echo", b"w", 5), (b"trunkline.status", None, 2)]


def test_each_dead_letter_is_of_one_content(recorded):
    def out(sequence, resource):
        return "out", b"r", content(sequence, resource, b"x")

    found = recorded(
        "mtl",
        [
            *(out(1, "jobs"), ("in", b"r", reject(1, recycle=True)), out(2, "jobs"), ("in", b"r", reject(2))),
            *(out(3, "jobs"), ("in", b"r", reject(3)), out(4, "jobs.dead"), out(5, "jobs.dead")),
        ],
    ).contents()
    assert some(found, "seq", "fate") == [
        *((0, "recycled"), (2, "dead_lettered"), (4, "dead_lettered")),
        *((6, "open"), (7, "open")),
    ]


def test_the_type_of_a_property_tells_contents_apart(recorded):
    one, other = mtl.encode_table({"x": 1}), mtl.encode_table({"x": b"1", "redelivered": True})
    sent = [("out", b"r", content(1, "jobs", b"b", one)), ("in", b"r", reject(1, recycle=True))]
    found = recorded("mtl", [*sent, ("out", b"r", content(2, "jobs", b"b", other))]).contents()
    assert some(found, "redelivered", "attempts") == [(False, 1), (True, 1)]


def test_properties_in_another_order_are_the_same(recorded):
    one = mtl.encode_table({"a": 1, "b": 2})
    other = mtl.encode_table({"b": 2, "redelivered": True, "a": 1})
    sent = [("out", b"r", content(at, "jobs", b"b", table)) for at, table in enumerate((one, other), 1)]
    assert some(recorded("mtl", sent).contents(), "attempts") == [(1,), (2,)]


def test_a_response_refuses_the_second_content_of_a_sequence_when_the_first_is_confirmed(recorded):
    twice = [("in", b"r", content(1, "jobs", body)) for body in (b"a", b"bb")]
    settled = [("out", b"r", confirm(1, multiple=True)), ("out", b"r", response(1, 400))]
    assert some(recorded("mtl", [*twice, *settled]).contents(), "fate") == [("confirmed",), ("refused",)]


def test_a_lease_that_is_refused_ends_no_connection(recorded):
    found = recorded(
        "mtl",
        [
            *(("in", b"w", lease(1, "one")), ("out", b"w", response(1, 200)), ("in", b"w", content(2, "jobs", b"a"))),
            *(("in", b"w", lease(3, "two")), ("in", b"w", content(4, "jobs", b"b")), ("out", b"w", response(3, 409))),
            *(("out", b"w", confirm(4, multiple=True)), ("in", b"w", lease(1, "new")), ("out", b"w", confirm(4))),
        ],
    ).contents()
    assert some(found, "sequence", "fate", "settled_seq") == [(2, "confirmed", 6), (4, "confirmed", 6)]


def test_contents_are_counted_as_they_come_whatever_becomes_of_a_lease(recorded):
    redelivered = mtl.encode_table({"redelivered": True})
    found = recorded(
        "mtl",
        [
            ("in", b"p", lease(1, "one")),
            ("in", b"p", content(2, "jobs", b"b", redelivered)),
            ("in", b"q", content(1, "jobs", b"b")),
            ("out", b"p", response(1, 200)),
            ("out", b"p", confirm(2)),
        ],
    ).contents()
    assert some(found, "seq", "attempts", "settled_seq") == [(1, 1, 4), (2, 1, None)]


def test_only_what_one_role_saw_is_timed(recorded):
    found = recorded(
        "mc0",
        [
            ("in", b"p", put(b"t", b"x")),
            ("out", None, put(b"t", b"x")),
            ("in", None, message(b"t", b"x")),
            ("out", b"s", message(b"t", b"x")),
        ],
    ).topics()
    assert some(found, "seen_by", "puts", "deliveries", "publishers", "p50_ns") == [
        ("connector", 1, 1, None, None),
        ("middleware", 1, 1, 1, 3 * STEP_NS),
    ]


def test_windows_of_topics(recorded):
    messages = [("in", b"p", put(b"t", b"xy"))] * 5
    opened = recorded("mc0", messages)
    assert some(opened.topics(0.002), "puts", "bytes") == [(2, 4), (2, 4), (1, 2)]
    for wrong in (0, -1, float("nan"), float("inf"), 1e12):
        with pytest.raises(ValueError, match="window_s"):
            opened.topics(wrong)


def test_an_event_that_came_back_is_counted_once(recorded):
    frames = event("ConfigUpdated"), event("ConfigNewAvailable")
    messages = [(way, None, each) for each in frames for way in ("out", "in")]
    other = event("ConfigUpdated", correlation="y")
    found = recorded("cdt", [*messages, ("in", None, other)]).rollout()
    assert some(found, "config_id", "announcements", "reports", "pulls", "time_to_applied_ns") == [("c", 1, 2, 0, None)]


def test_gaps_of_each_sender(recorded):
    frames = [dat("a", 0, "BOR"), dat("a", 1), dat("b", 7), dat("a", 4), dat("a", 3), dat("a", 9), dat("b", 8)]
    opened = recorded("cdtp", [("in", None, each) for each in frames])
    assert some(opened.gaps(), "sender", "seq", "missed") == [("a", 3, 2), ("a", 5, 4)]
    assert some(opened.gaps(capture.Selection(since_ns=START_NS + 4 * STEP_NS)), "seq") == [(5,)]
    assert some(opened.gaps(capture.Selection(sender="b")), "seq") == []


def test_a_selection_picks_whole_things(recorded):
    asked, sent, answer = ("in", b"c", request(b"s", None)), request(b"s", b"c"), reply(b"c")
    round_trip = [asked, ("out", b"w", sent), ("in", b"w", answer), ("out", b"c", answer)]
    opened = recorded("dcp", round_trip * 3)
    names = ("request_seq", "reply_seq")
    early = capture.Selection(until_ns=START_NS + 5 * STEP_NS)
    assert some(opened.requests(early), *names) == [(0, 3), (4, 7)]
    assert some(opened.requests(capture.Selection(where="seq = 8")), *names) == [(8, 11)]
    assert some(opened.requests(capture.Selection(peer=b"c", direction="in")), *names) == [(0, 3), (4, 7), (8, 11)]
    assert some(opened.requests(capture.Selection(direction="out")), *names) == []
    with pytest.raises(LocalProtocolError, match="no message is of both"):
        opened.requests(capture.Selection(sender="x"))


def test_a_selection_may_begin_late_in_a_capture(recorded):
    """Of the segments before, nothing is selected."""
    messages = [("in", b"c", request(b"s" if number < 1900 else b"t", None)) for number in range(2000)]
    opened = recorded("dcp", messages, segment_bytes=400)
    assert len(opened.segments) > 2
    found = opened.requests(capture.Selection(where="seq >= 1900"))
    assert some(found, "request_seq") == [(number,) for number in range(1900, 2000)]
    sparse = opened.requests(capture.Selection(where="seq = 3 or seq = 1041 or seq = 1999"))
    assert some(sparse, "request_seq") == [(3,), (1041,), (1999,)]


def test_a_capture_of_another_protocol_has_none(recorded):
    opened = recorded("dcp", [("in", b"c", request(b"s", None))])
    for name in ("gaps", "topics", "contents", "rollout"):
        assert getattr(opened, name)().read_all().num_rows == 0


def batches(name, messages, rows, first=0):
    """What a fold is given of messages, the first of which has this number, in batches of so many rows."""
    fold = Fold(name)
    names, decode = reading(Decoder(fold.protocol, **OPTIONS[name]), fold.needs)
    schema = capture.schema()
    for at in range(0, len(messages), rows):
        table = [row(fold.protocol, first + at + number, *each) for number, each in enumerate(messages[at : at + rows])]
        batch = pa.RecordBatch.from_pylist(table, schema=schema)
        yield from decode(iter([batch.select(names)]))


def step_batches(step, messages):
    """What a fold or a step of one is given of messages."""
    if step != "deliveries":
        return list(batches("contents" if step == "settlements" else step, messages, 1 << 16))
    fold = Fold("settlements", buckets=16)
    found = [each for batch in batches("contents", messages, 1 << 16) for each in fold.record(batch)]
    return found + fold.emit_open()


# The folds of tables, and the steps of those that are made in several.
FOLDS = list(dict.fromkeys([*Fold.NAMES, *(step for name in Fold.NAMES for step in Fold(name).steps)]))


def row(protocol, seq, direction, peer, content):
    frames, topic = content if isinstance(content, tuple) else (content, None)
    # A frame or none stands before the header; CDT has none.
    before = {"dcp": 1, "mc0": 1, "cdtp": 0, "mtl": 0}.get(protocol)
    envelope, header, payload = (
        ([], None, frames) if before is None else (frames[:before], frames[before], frames[before + 1 :])
    )
    return {
        "capture_id": "one",
        "segment": 0,
        "seq": seq,
        "received_at_ns": START_NS + seq * STEP_NS,
        "protocol": protocol,
        "endpoint": None,
        "peer": peer,
        "direction": direction,
        "topic": topic,
        "reply_to": None,
        "envelope": envelope,
        "header": header,
        "payload": payload,
        "n_head": None,
        "n_frames": len(frames),
        "n_bytes": sum(map(len, frames)),
        "error": None,
    }


def rows_of_all(name, messages, rows=1 << 16, *, through_bytes=False):
    fold, found = Fold(name), []
    for batch in batches(name, messages, rows):
        found += fold.record(batch)
        if through_bytes:
            again = Fold(name)
            again.restore(fold.state())
            fold = again
    return [each for batch in (*found, *fold.finish()) for each in batch.to_pylist()]


def flows(name):
    return st.lists(st.sampled_from(ALPHABET[name]), max_size=40)


@pytest.mark.parametrize("name", Fold.NAMES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), rows=st.integers(1, 7))
def test_a_fold_that_is_cut_and_restored_gives_the_same(name, data, rows):
    messages = data.draw(flows(name))
    whole = rows_of_all(name, messages)
    assert rows_of_all(name, messages, rows) == whole
    assert rows_of_all(name, messages, rows, through_bytes=True) == whole


@pytest.mark.parametrize("name", Fold.NAMES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_nothing_is_lost_and_all_is_in_order(name, data):
    messages = data.draw(flows(name))
    found = rows_of_all(name, messages)
    begins = {"requests": "request_seq", "contents": "seq", "gaps": "seq"}.get(name)
    if begins is not None:
        numbers = [each[begins] for each in found]
        assert numbers == sorted(set(numbers))
    if name == "contents":
        assert len(found) == sum(frames[0][:1] == b"\x05" for _, _, frames in messages)
    if name == "topics":
        puts = sum(b"PUT" in frames for _, _, frames in messages)
        assert sum(each["puts"] for each in found) == puts


@pytest.mark.req("CDTP-21")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=flows("runs"))
def test_runs_are_those_of_the_account_that_the_capture_keeps(recorded, messages):
    opened = recorded("cdtp", messages, uuid4().hex)
    names = [name for name in Fold("runs").schema().names if name not in {"capture_id", "config", "metadata"}]
    kept = [tuple(getattr(run, name) for name in names) for run in opened.runs()]
    found = [tuple(run[name] for name in names) for run in rows_of_all("runs", messages)]
    # Times are those of the import there.
    assert sorted(found, key=str) == sorted(kept, key=str)


@pytest.mark.parametrize("name", FOLDS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_damaged_states_are_refused_or_taken_and_never_panic(name, data):
    messages = random.Random(7).choices(ALPHABET.get(name, ALPHABET["contents"]), k=30)
    buckets = data.draw(st.sampled_from([None, 1, 16]))
    fold = Fold(name, buckets=buckets)
    for batch in step_batches(name, messages):
        fold.record(batch)
        if buckets:
            fold.emit_open()
    again = Fold(name, buckets=buckets)
    try:
        again.restore(data.draw(damaged(fold.state())))
    except ValueError:
        return
    for batch in step_batches(name, messages):
        again.record(batch)
    again.emit_open()
    again.forget(START_NS + 10 * STEP_NS)
    again.finish()


def test_states_of_others_and_of_other_versions_are_refused():
    state = Fold("requests").state()
    with pytest.raises(ValueError, match="the state of requests"):
        Fold("topics").restore(state)
    at = len(b"TLAS") + 1 + len("requests")
    newer = state[:at] + (9).to_bytes(2, "big") + state[at + 2 :]
    with pytest.raises(ValueError, match="version 9"):
        Fold("requests").restore(newer)
    for none in (b"", b"TLAS", b"x" * 50):
        with pytest.raises(ValueError, match="no state"):
            Fold("requests").restore(none)


def test_wrong_input_is_counted_or_kept(recorded):
    """Rows twice, a reply before its request, times that go back, names of a megabyte."""
    asked, answer = ("in", b"c", request(b"s" * 10**6, None)), ("out", b"c", reply(b"c"))
    found = recorded("dcp", [answer, asked, asked, answer, answer, answer], at=[5, 4, 3, 2, 1, 0]).requests()
    assert some(found, "request_seq", "outcome", "latency_ns") == [
        (1, "reply", -2 * STEP_NS),
        (2, "reply", -2 * STEP_NS),
    ]


def test_tables_that_lack_a_column_are_refused():
    with pytest.raises(ValueError, match="no column"):
        Fold("requests").record(pa.RecordBatch.from_pylist([{"seq": 1}]))
    with pytest.raises(ValueError, match="no table"):
        Fold("nothing")

"""Folds of streams: what is open is given as it stands, and the last row of each key is that of a batch."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_folds import batches, flows, rows_of_all

from peers.mtl import confirm, content, lease, reject, response
from peers.together import ALPHABET, START_NS, STEP_NS, dat, event, message, put, reply, request
from trunkline import mtl
from trunkline._native.analysis import Fold

BUCKETS = 16


class Stream:
    """A table that is brought up to date by its key, from folds that are restored before each part.

    Args:
        name: The table.
        is_divided: Whether related rows of each step are in one of sixteen buckets, rather than all in one.
        options: Those of the folds.
    """

    def __init__(self, name, *, is_divided=False, **options):
        self.name, self.is_divided, self.options = name, is_divided, options
        self.states, self.lost, self.rows, self.seq = {}, {}, {}, 0
        self.key = Fold(name).key

    @property
    def state(self):
        return b"".join(self.states.values())

    @property
    def evicted(self):
        return sum(evicted for evicted, _ in self.lost.values())

    @property
    def left_out(self):
        return sum(left_out for _, left_out in self.lost.values())

    def take(self, messages, before_ns=None):
        """Takes in the next messages, and gives the rows that are new or other than they were."""
        found = list(batches(self.name, messages, 1 << 16, self.seq))
        first, *others = Fold(self.name).steps
        found = self.stepped(first, found, before_ns)
        for step in others:
            found = self.stepped(step, in_order(found), before_ns)
        self.seq += len(messages)
        rows = [each for batch in found for each in batch.to_pylist()]
        places = [self.place(each, at) for at, each in enumerate(rows)]
        assert len(places) == len(set(places))
        for place, each in zip(places, rows, strict=True):
            assert self.rows.get(place) != each
            self.rows[place] = each
        return rows

    def stepped(self, step, batches, before_ns):
        """What the buckets of a step emit."""
        fold, bundles = Fold(step), {bucket: [] for of, bucket in self.states if of == step} or {0: []}
        for batch in batches:
            for bucket, rows in fold.divide(batch, BUCKETS) if self.is_divided else [(0, batch)]:
                bundles.setdefault(bucket, []).append(rows)
        return [each for bucket, rows in bundles.items() for each in self.folded(step, bucket, rows, before_ns)]

    def folded(self, step, bucket, rows, before_ns):
        fold = Fold(step, buckets=BUCKETS, **self.options)
        if (step, bucket) in self.states:
            fold.restore(self.states[step, bucket])
        if before_ns is not None:
            fold.forget(before_ns)
        found = [each for batch in rows for each in fold.record(batch)] + fold.emit_open()
        assert fold.emit_open() == []
        self.states[step, bucket], self.lost[step, bucket] = fold.state(), (fold.evicted, fold.left_out)
        return found

    def place(self, each, at):
        return tuple(str(each[name]) for name in self.key) if self.key else (len(self.rows), at)


def in_order(batches):
    """The rows of batches in recorded order, as one batch."""
    if not batches:
        return []
    table = pa.Table.from_batches([batch.select(sorted(batch.schema.names)) for batch in batches])
    return table.sort_by([("capture_id", "ascending"), ("seq", "ascending")]).combine_chunks().to_batches()


def in_any_order(rows):
    return sorted(map(str, rows))


@pytest.mark.parametrize("name", Fold.NAMES)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_last_row_of_each_key_is_that_of_a_batch(name, data):
    messages = data.draw(flows(name))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(messages)), max_size=6)))
    stream = Stream(name, is_divided=data.draw(st.booleans()))
    for begin, end in zip([0, *cuts], [*cuts, len(messages)], strict=True):
        stream.take(messages[begin:end])
    assert in_any_order(stream.rows.values()) == in_any_order(rows_of_all(name, messages))


@pytest.mark.parametrize("name", Fold.NAMES)
def test_what_has_not_changed_is_not_given_again(name):
    stream, messages = Stream(name), Random(7).choices(ALPHABET[name], k=60)
    assert stream.take(messages)
    assert stream.take([]) == []
    # And without the bytes of a state in between.
    fold = Fold(name, buckets=BUCKETS)
    for batch in batches(name, messages, 1 << 16):
        fold.record(batch)
        fold.emit_open()
    assert fold.finish() == []


@pytest.mark.parametrize("name", Fold.NAMES)
def test_the_columns_of_a_key_are_columns_of_the_table(name):
    fold = Fold(name)
    assert set(fold.key) <= set(fold.schema().names)
    rows = rows_of_all(name, Random(7).choices(ALPHABET[name], k=60))
    keys = [tuple(str(each[column]) for column in fold.key) for each in rows]
    assert not fold.key or len(set(keys)) == len(rows) > 0


ASKED, SENT = ("in", b"c", request(b"s", None)), ("out", b"w", request(b"s", b"c"))
ANSWERED = [("in", b"w", reply(b"c")), ("out", b"c", reply(b"c"))]


def test_a_request_is_given_when_it_comes_and_when_something_becomes_of_it():
    stream = Stream("requests")
    assert [each["outcome"] for each in stream.take([ASKED])] == ["not_dispatched"]
    assert [each["outcome"] for each in stream.take([SENT])] == ["no_reply"]
    assert [each["outcome"] for each in stream.take(ANSWERED)] == ["reply"]
    assert stream.take([ASKED, SENT, *ANSWERED])[0]["latency_ns"] == 3 * STEP_NS


def test_one_that_waits_keeps_no_other_in_the_state():
    stream = Stream("requests")
    stream.take([("in", b"other", request(b"none", None))])
    before = len(stream.state)
    for _ in range(20):
        stream.take([ASKED, SENT, *ANSWERED] * 50)
    assert len(stream.rows) == 1001
    assert len(stream.state) < before + 100


def test_a_bucket_keeps_its_share():
    count = (1 << 20) // BUCKETS
    stream = Stream("requests")
    stream.take([ASKED] * (count + 10))
    # Each takes more than its share of the bytes.
    assert 10 <= stream.evicted <= 1000
    assert len(stream.rows) == count + 10
    assert {each["outcome"] for each in list(stream.rows.values())[: stream.evicted]} == {"evicted"}
    assert list(stream.rows.values())[-1]["outcome"] == "not_dispatched"
    with pytest.raises(ValueError, match="invalid zero value"):
        Fold("requests", buckets=0)


FEW = 40


LEASE, REFUSED = ("in", b"r", lease(7, "one")), ("out", b"r", response(7, 403))
JOB, REJECTED = ("out", b"r", content(1, "jobs", b"a")), ("in", b"r", reject(1))
OF_ANOTHER = [("out", b"s", content(1, "jobs", b"a")), ("in", b"s", reject(1))]
DEAD = "out", b"q", content(1, "jobs.dead", b"a")


def as_they_stand(rows):
    return [(row["seq"], row["fate"]) for row in sorted(rows, key=lambda row: row["seq"])]


@pytest.mark.parametrize(
    ("messages", "fates"),
    [
        # Its connection has not begun anew, so that it was rejected before the dead letter.
        ([JOB, LEASE, REJECTED, DEAD, REFUSED], [(0, "dead_lettered"), (3, "open")]),
        # Its connection has a higher sequence, so that nothing could reject it.
        ([("out", b"r", content(5, "jobs", b"b")), LEASE, JOB, REJECTED, DEAD, REFUSED], None),
        # The dead letter is that of another one then.
        (
            [*OF_ANOTHER, ("out", b"r", content(5, "jobs", b"b")), LEASE, JOB, REJECTED, DEAD, REFUSED],
            [(0, "dead_lettered"), (2, "open"), (4, "open"), (6, "open")],
        ),
        ([*OF_ANOTHER, JOB, LEASE, REJECTED, DEAD, REFUSED], [(0, "rejected"), (2, "dead_lettered"), (5, "open")]),
    ],
)
def test_a_dead_letter_is_paired_anew_when_a_lease_is_answered_late(messages, fates):
    stream = Stream("contents")
    for each in messages:
        stream.take([each])
    assert as_they_stand(stream.rows.values()) == as_they_stand(rows_of_all("contents", messages))
    assert as_they_stand(stream.rows.values()) == (fates or [(0, "open"), (2, "open"), (4, "open")])
    assert (stream.evicted, stream.left_out) == (0, 0)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    messages=st.lists(
        st.sampled_from(
            [
                *(LEASE, REFUSED, ("out", b"r", response(7, 200)), JOB, REJECTED, DEAD, *OF_ANOTHER),
                *(("out", b"r", content(2, "jobs", b"a")), ("in", b"r", reject(2, multiple=True))),
            ]
        ),
        max_size=30,
    ),
    is_divided=st.booleans(),
)
def test_dead_letters_around_leases_are_those_of_a_batch(messages, is_divided):
    stream = Stream("contents", is_divided=is_divided)
    for each in messages:
        stream.take([each])
    assert in_any_order(stream.rows.values()) == in_any_order(rows_of_all("contents", messages))
    assert (stream.evicted, stream.left_out) == (0, 0)


def test_dead_letters_of_alike_contents_are_kept_in_bounds_while_one_is_open():
    stream = Stream("contents")
    stream.take([("out", b"s", content(1, "jobs", b"a"))])
    sizes = []
    for first in range(1, 4001, 500):
        numbers = range(first, first + 500)
        stream.take(
            [
                each
                for number in numbers
                for each in (("out", b"r", content(number, "jobs", b"a")), ("in", b"r", reject(number)))
            ]
        )
        stream.take([("out", b"q", content(number, "jobs.dead", b"a")) for number in numbers])
        stream.take([("in", b"q", confirm(numbers[-1], multiple=True))])
        sizes.append(len(stream.state))
    fates = [row["fate"] for row in stream.rows.values()]
    assert (fates.count("dead_lettered"), fates.count("open")) == (4000, 1)
    assert sizes[-1] < 1.2 * sizes[1]
    assert (stream.evicted, stream.left_out) == (0, 0)


def test_which_delivery_one_is_of_what_was_forgotten_is_unknown():
    redelivered = mtl.encode_table({"redelivered": True})
    stream = Stream("contents", max_bytes=6_000)
    for number in range(1, FEW + 1):
        stream.take([("out", b"r", content(number, "jobs", b"x" * number)), ("in", b"r", confirm(number))])
    known, forgotten = (b"x" * number for number in (FEW, 1))
    stream.take(
        [("out", b"r", content(FEW + at, "jobs", body, redelivered)) for at, body in enumerate((known, forgotten), 1)]
    )
    attempts = {row["sequence"]: row["attempts"] for row in stream.rows.values()}
    assert (attempts[FEW + 1], attempts[FEW + 2]) == (2, None)
    assert stream.left_out == 1


def sent_and_then(*settled):
    """More contents than 16 kB of a bucket, and then what settles them."""
    return [("out", b"r", content(n, "jobs", b"x%d" % n)) for n in range(1, FEW + 1)], [
        ("in", b"r", each) for each in settled
    ]


@pytest.mark.parametrize(
    "settled",
    [[confirm(n) for n in range(1, FEW + 1)], [confirm(FEW, multiple=True)], [confirm(FEW // 2, multiple=True)] * 2],
)
def test_a_content_that_makes_way_is_not_open_and_what_settles_it_is_counted(settled):
    sent, settled = sent_and_then(*settled)
    stream = Stream("contents", max_bytes=10_000)
    stream.take(sent)
    fates = [each["fate"] for each in stream.rows.values()]
    evicted = fates.count("evicted")
    assert fates == ["evicted"] * evicted + ["open"] * (FEW - evicted)
    assert 0 < evicted == stream.evicted < FEW // 2
    stream.take(settled)
    confirmed = FEW if len(settled) != 2 else FEW // 2
    fates = [each["fate"] for each in stream.rows.values()]
    assert fates == ["evicted"] * evicted + ["confirmed"] * (confirmed - evicted) + ["open"] * (FEW - confirmed)
    assert (stream.evicted, stream.left_out) == (evicted, evicted)


def test_what_settles_contents_is_counted_when_there_are_too_many_to_remember():
    count = 2000
    stream = Stream("contents", max_bytes=20_000)
    for first in range(1, count, 100):
        stream.take([("out", b"r", content(n, "jobs", b"x")) for n in range(first, first + 100)])
    assert len(stream.state) < 60_000
    stream.take([("in", b"r", confirm(n)) for n in range(1, count // 2 + 1)])
    stream.take([("in", b"r", confirm(count, multiple=True))])
    fates = [each["fate"] for each in stream.rows.values()]
    assert "open" not in fates
    assert stream.evicted == stream.left_out == fates.count("evicted") > 1900


def test_a_batch_says_what_made_way_too():
    sent, settled = sent_and_then(confirm(FEW, multiple=True))
    fold = Fold("contents", max_bytes=10_000)
    found = [each for batch in batches("contents", [*sent, *settled], 8) for each in fold.record(batch)] + fold.finish()
    fates = [each["fate"] for batch in found for each in batch.to_pylist()]
    assert 0 < fates.count("evicted") == fold.evicted == fold.left_out < FEW
    assert set(fates) == {"evicted", "confirmed"}


def test_the_next_budget_may_be_larger():
    sent, _ = sent_and_then()
    stream = Stream("contents", max_bytes=10_000)
    stream.take(sent[:20])
    before = stream.evicted
    stream.options["max_bytes"] = 1 << 20
    stream.take(sent[20:])
    assert stream.evicted == before


@pytest.mark.parametrize(("number", "said"), [(2, "of one of 16 buckets"), (None, "of one of 16 buckets")])
def test_a_state_of_another_number_of_buckets_is_refused(number, said):
    state = Fold("gaps", buckets=BUCKETS).state()
    with pytest.raises(ValueError, match=said):
        Fold("gaps", buckets=number).restore(state)


def test_replies_to_requests_that_made_way_are_counted():
    stream = Stream("requests", max_bytes=5_000)
    names = [b"c%d" % at for at in range(30)]
    stream.take([("in", name, request(b"s", None)) for name in names])
    stream.take([("out", b"w", request(b"s", name)) for name in names])
    evicted = stream.evicted
    assert 0 < evicted < 30
    outcomes = [each["outcome"] for each in stream.rows.values()]
    assert outcomes == ["evicted"] * evicted + ["no_reply"] * (30 - evicted)


def test_a_run_whose_sender_makes_way_says_so():
    stream = Stream("runs", max_bytes=1 << 20)
    assert stream.take([("in", None, dat(f"s{at}", 0, "BOR")) for at in range(3000)])
    conditions = [each["condition"] for each in stream.rows.values()]
    assert 0 < conditions.count("EVICTED") == stream.evicted < 3000


def test_requests_older_than_the_watermark_stay_as_they_stood():
    stream = Stream("requests")
    stream.take([ASKED, SENT, ASKED])
    assert stream.take([], START_NS + 2 * STEP_NS) == []
    # What the worker responds first is to the one that is forgotten.
    given = stream.take([SENT, *ANSWERED])
    assert [(each["request_seq"], each["outcome"]) for each in given] == [(2, "no_reply")]
    given = stream.take(ANSWERED)
    assert [(each["request_seq"], each["outcome"]) for each in given] == [(2, "reply")]
    assert {each["request_seq"]: each["outcome"] for each in stream.rows.values()} == {0: "no_reply", 2: "reply"}
    # One that comes late is a request all the same.
    assert len(stream.take([ASKED], START_NS + 10**12)) == 1


def test_a_reply_that_was_guessed_stays_when_its_request_is_forgotten():
    stream = Stream("requests")
    asked = [("in", b"c", request(service, None)) for service in (b"s", b"t")]
    given = stream.take([*asked, ("out", b"c", reply(b"c"))])
    assert [each["outcome"] for each in given] == ["reply", "not_dispatched"]
    assert stream.take([], START_NS + 10**12) == []


def test_contents_older_than_the_watermark_stay_as_they_stood():
    begin = [("in", b"r", lease(1, "one")), ("out", b"r", response(1, 200))]
    sent = [("out", b"r", content(n, "jobs", b"x%d" % n)) for n in (1, 2, 3)]
    stream = Stream("contents")
    stream.take([*begin, *sent, ("in", b"r", reject(1))])
    assert stream.take([], START_NS + 4 * STEP_NS) == []
    given = stream.take([("in", b"r", confirm(3, multiple=True))])
    assert [each["sequence"] for each in given] == [3]
    fates = {each["sequence"]: each["fate"] for each in stream.rows.values()}
    assert fates == {1: "rejected", 2: "open", 3: "confirmed"}
    # A dead letter is of none that was forgotten.
    given = stream.take([("out", b"r", content(4, "jobs.dead", b"x1"))])
    assert [each["fate"] for each in given] == ["open"]


def test_contents_that_nobody_settles_leave_no_trace_on_their_connections():
    stream = Stream("contents")
    sizes = []
    for at in range(6):
        numbers = range(at * 20_000 + 1, (at + 1) * 20_000 + 1)
        stream.take([("out", b"r", content(number, "jobs", b"x")) for number in numbers])
        sizes.append(len(stream.state))
    assert stream.evicted > 50_000
    assert sizes[-1] < 1.2 * sizes[3]


def test_windows_older_than_the_watermark_are_over_and_late_rows_left_out():
    messages = [("in", b"p", put(b"t", b"x")), ("out", b"s", message(b"t", b"x"))]
    stream = Stream("topics", window_us=2 * STEP_NS // 1000)
    stream.take(messages * 3)
    assert [each["puts"] for each in stream.rows.values()] == [1, 1, 1]
    before = dict(stream.rows)
    assert stream.take([], START_NS + 4 * STEP_NS) == []
    fold = Fold("topics", window_us=2 * STEP_NS // 1000, buckets=BUCKETS)
    fold.restore(stream.state)
    # A row of the second window, which is over, and one of the third, which is not.
    for batch in batches("topics", messages, 1, 2):
        assert fold.record(batch) == []
    assert fold.emit_open() == []
    assert (fold.evicted, fold.left_out) == (0, 2)
    for batch in batches("topics", messages, 1, 4):
        fold.record(batch)
    assert [each["puts"] for batch in fold.emit_open() for each in batch.to_pylist()] == [2]
    assert stream.rows == before


def test_windows_make_way_for_later_ones():
    count = (1 << 20) // BUCKETS
    stream = Stream("topics", window_us=1)
    stream.take([("in", b"p", put(b"t", b"x"))] * (count + 100))
    assert len(stream.rows) == count + 100
    assert 100 <= stream.evicted <= 100 + count // BUCKETS
    # Those that made way are over.
    fold = Fold("topics", window_us=1, buckets=BUCKETS)
    fold.restore(stream.state)
    for batch in batches("topics", [("in", b"p", put(b"t", b"x"))], 1, 0):
        assert fold.record(batch) == fold.emit_open() == []
    assert (fold.evicted, fold.left_out) == (stream.evicted, 1)


def test_deliveries_of_windows_that_make_way_have_their_latencies():
    count = (1 << 20) // BUCKETS
    messages = [("in", b"p", put(b"t", b"x")), ("out", b"s", message(b"t", b"x"))]
    stream = Stream("topics", window_us=2 * STEP_NS // 1000)
    given = stream.take([*messages, *[("in", b"p", put(b"u", b"x"))] * (2 * count)])
    first = next(each for each in given if each["topic"] == "t")
    assert (first["deliveries"], first["p50_ns"]) == (1, STEP_NS)


def test_configurations_older_than_the_watermark_stay_as_they_stood():
    def announced(config):
        return "in", None, event("ConfigNewAvailable", config)

    stream = Stream("rollout")
    stream.take([announced("c"), announced("d")])
    stream.take([], START_NS + STEP_NS)
    # That of `d` goes on, what is late of `c` is left out, and an announcement of today begins anew.
    fold = Fold("rollout", buckets=BUCKETS)
    fold.restore(stream.state)
    for batch in batches("rollout", [announced("c")], 1, 0):
        fold.record(batch)
    assert (fold.emit_open(), fold.left_out) == ([], 1)
    given = stream.take([announced("d"), announced("c")])
    assert {each["config_id"]: each["announcements"] for each in given} == {"d": 2, "c": 1}


def test_rows_that_come_late_are_taken_as_they_come():
    """What begins a thing after what ends it has ended nothing."""
    stream = Stream("requests")
    stream.seq = 2
    stream.take(ANSWERED)
    stream.seq = 0
    given = stream.take([ASKED, SENT])
    assert [each["outcome"] for each in given] == ["no_reply"]

"""What reports count: the same however rows are divided, in whatever order parts are merged, and of whatever bytes."""

from __future__ import annotations

import itertools
import json

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_folds import row

from peers.cdtp import batch as records
from peers.damage import damaged
from peers.together import ALPHABET, START_NS, STEP_NS, dat
from trunkline import capture
from trunkline._native.analysis import Summary
from trunkline.columns import Decoder, reading
from trunkline.report.counting import summary
from trunkline.report.model import BUCKETS, Clock, Scope
from trunkline.report.sections import SECTIONS

PROTOCOLS = list(SECTIONS)
CLOCK = Clock(START_NS, STEP_NS // 2)
BAD = ("in", b"c", [b"bad", b"x"])
LOGIN = [
    ("in", b"w", [b"", b"Connection.Authorize", b'{"mechanism": "PLAIN", "response": "x"}']),
    ("out", b"w", [b"", b"401", b'{"status": "x"}']),
]


def answer(config, status):
    fields = {
        "correlationId": "x",
        "timestamp": 1,
        "timeout": 0,
        "endpointMessageId": "m",
        "appVersionName": "a",
        "endpointId": "e",
        "configId": config,
        "contentType": "t",
        "content": {"bytes": ""},
        "statusCode": status,
        "reasonPhrase": "why",
    }
    return [json.dumps(fields).encode()], "kaa.v1.service.cmx.cmx2cdp.ConfigResponse"


# Messages of each protocol, of which any sequence is one.
MESSAGES = {
    "cdtp": [
        *ALPHABET["gaps"],
        *(("in", None, dat("b", number)) for number in (3, 9)),
        *(("in", None, [records([number, number + 1], name="c")]) for number in (1, 4)),
        ("in", None, [b"bad", b"x"]),
    ],
    "dcp": [*ALPHABET["requests"], BAD],
    "mc0": [*ALPHABET["topics"], ("out", b"s", [b"", b"ERROR", b"TEXT", b"no", b""]), BAD],
    "mtl": [*ALPHABET["contents"], *LOGIN, BAD],
    "cdt": [*ALPHABET["rollout"], *(("out", None, answer(config, status)) for config in "cd" for status in (200, 404))],
}

# What messages have in common that belong together, of those above.
KEYS = {
    "cdtp": ("sender",),
    "dcp": None,
    "mc0": ("topic", "body_bytes"),
    "mtl": None,
    "cdt": ("app_version_name", "endpoint_id"),
}


def decoded(protocol, messages):
    """What a summary is given of messages."""
    names, decode = reading(Decoder(protocol, **SECTIONS[protocol].options), summary(protocol, Scope(), CLOCK).needs)
    table = [row(protocol, number, *each) for number, each in enumerate(messages)]
    batch = pa.RecordBatch.from_pylist(table, schema=capture.schema())
    return pa.Table.from_batches(decode(iter([batch.select(names)])))


def counted(table, protocol, rows=1 << 16, clock=CLOCK, *, through_bytes=False):
    """A summary of rows, which are given so many at a time."""
    found = summary(protocol, Scope(), clock)
    for batch in table.to_batches(max_chunksize=rows):
        found.record(batch)
        if through_bytes:
            again = summary(protocol, Scope(), clock)
            again.restore(found.state())
            found = again
    found.finish()
    return found


def flows(protocol):
    return st.lists(st.sampled_from(MESSAGES[protocol]), max_size=40)


def plain(found):
    """What a summary comes to, without what depends on how it was come to."""
    return found.evaluate(BUCKETS)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), rows=st.integers(1, 7))
def test_rows_may_come_in_any_batches_and_a_state_through_bytes(protocol, data, rows):
    table = decoded(protocol, data.draw(flows(protocol)))
    whole = plain(counted(table, protocol))
    assert plain(counted(table, protocol, rows)) == whole
    assert plain(counted(table, protocol, rows, through_bytes=True)) == whole


@pytest.mark.parametrize("protocol", [name for name, key in KEYS.items() if key])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_parts_may_be_merged_in_any_order_and_groups(protocol, data):
    table = decoded(protocol, data.draw(flows(protocol)))
    whole = plain(counted(table, protocol))
    order = sorted(range(table.num_rows), key=lambda at: repr([table[name][at].as_py() for name in KEYS[protocol]]))
    groups = itertools.groupby(order, lambda at: [table[name][at].as_py() for name in KEYS[protocol]])
    parts = [counted(table.take(list(rows)), protocol) for _, rows in groups]
    while len(parts) > 1:
        one, other = (parts.pop(data.draw(st.integers(0, len(parts) - 1))) for _ in range(2))
        one.merge(other.state())
        parts.append(one)
    for part in parts:
        assert plain(part) == whole


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_captures_may_be_merged_whatever_they_hold(protocol, data):
    """Each is counted by itself: what the first one comes to, and twice as often."""
    table = decoded(protocol, data.draw(flows(protocol)))
    one, other = counted(table, protocol), counted(table, protocol)
    one.merge(other.state())
    whole, single = plain(one), plain(other)
    for name in ("rows", "bytes"):
        assert whole[name] == 2 * single[name]
    assert whole["errors"] == {kind: 2 * number for kind, number in single["errors"].items()}
    assert whole["volumes"] == {bucket: 2 * number for bucket, number in single["volumes"].items()}


@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if name != "mtl"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), at=st.integers(0, 40))
def test_buckets_may_become_wider_at_any_time(protocol, data, at):
    """But the age of what waits in MTL, which is then known less exactly."""
    table = decoded(protocol, data.draw(flows(protocol)))
    wide = counted(table, protocol, clock=Clock(START_NS, 4 * CLOCK.bucket_ns))
    found = summary(protocol, Scope(), CLOCK)
    for place, batch in enumerate(table.to_batches(max_chunksize=1)):
        if place == at:
            found.widen(START_NS + 4 * BUCKETS * CLOCK.bucket_ns - 1, BUCKETS)
        found.record(batch)
    found.finish()
    found.widen(START_NS + 4 * BUCKETS * CLOCK.bucket_ns - 1, BUCKETS)
    if protocol == "cdtp":
        # Shares of buckets are rounded.
        assert rounded(plain(found)) == rounded(plain(wide))
    else:
        assert plain(found) == plain(wide)


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(member) for key, member in value.items()}
    if isinstance(value, list):
        return [rounded(member) for member in value]
    return round(value, 4) if isinstance(value, float) else value


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_damaged_states_are_refused_or_taken_and_never_panic(protocol, data):
    table = decoded(protocol, MESSAGES[protocol])
    state = data.draw(damaged(counted(table, protocol).state()))
    found = summary(protocol, Scope(), CLOCK)
    for take in (found.restore, found.merge):
        try:
            take(state)
        except ValueError:
            continue
        for batch in table.to_batches():
            found.record(batch)
        found.finish()
        found.evaluate(BUCKETS)


def test_states_of_others_are_refused():
    state = summary("dcp", Scope(), CLOCK).state()
    with pytest.raises(ValueError, match="the state of dcp"):
        summary("mc0", Scope(), CLOCK).merge(state)
    with pytest.raises(ValueError, match="another moment"):
        summary("dcp", Scope(), Clock(0, 1)).merge(state)
    with pytest.raises(ValueError, match="another selection"):
        summary("dcp", Scope(has_own=True), CLOCK).merge(state)
    with pytest.raises(ValueError, match="no protocol"):
        Summary("http", first_ns=0, bucket_ns=1)


def test_of_names_without_number_those_beyond_a_bound_are_counted_together():
    """The rest has what came under all other names, and a report says that there were more."""
    found = summary("dcp", Scope(), CLOCK)
    names = pa.array([b"s%06d" % number for number in range(100_010)])
    count = len(names)
    columns = {
        "capture_id": pa.repeat("one", count),
        "seq": pa.array(range(count)),
        "received_at_ns": pa.repeat(START_NS, count),
        "peer": pa.repeat(b"c", count),
        "direction": pa.repeat("in", count),
        "type": pa.repeat("request", count),
        "service": names,
        "client": pa.nulls(count, pa.binary()),
        "metadata": pa.array([[str(number).encode()] for number in range(count)]),
        "n_bytes": pa.repeat(1, count),
        "error": pa.nulls(count, pa.string()),
    }
    found.record(pa.RecordBatch.from_pydict({name: columns[name] for name in found.needs}))
    found.finish()
    section = found.evaluate(BUCKETS)["section"]
    assert (section["service_count"], section["beyond"], len(section["services"])) == (100_000, 10, 201)
    *named, others = section["services"]
    assert (others["service"], others["others"], others["seen_by"]) == (None, 99_800, "broker")
    assert sum(row["requests"] for row in named) + others["requests"] == count
    assert sum(sum(series.values()) for _, series in section["rates"]) == count

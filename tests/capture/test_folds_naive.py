"""Folds beside loops and dicts that were written from the descriptions of their tables alone, and beyond their bounds."""

from __future__ import annotations

import json
from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peers.together import START_NS, STEP_NS
from trunkline._native.analysis import Fold

LAST = 2**63 - 1

SENT = st.lists(
    st.tuples(
        st.sampled_from(["one", "two"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["BOR", "DAT", "DAT", "DAT", "EOR", None]),
        st.sampled_from([0, 1, 2, 3, 7, 9, LAST]),
    ),
    max_size=40,
)


def sent(messages):
    """Decoded messages of CDTP: `(capture, sender, type, sequence)`, in recorded order."""
    rows = [
        {
            "capture_id": capture,
            "seq": seq,
            "record": 0,
            "received_at_ns": START_NS + seq * STEP_NS,
            "endpoint": "e",
            "n_bytes": 10 + seq,
            "sender": sender,
            "type": kind,
            "sequence": sequence,
        }
        for seq, (capture, sender, kind, sequence) in enumerate(messages)
    ]
    schema = pa.schema(
        [
            *((name, pa.string()) for name in ("capture_id", "endpoint", "sender", "type")),
            *((name, pa.int64()) for name in ("seq", "received_at_ns", "n_bytes", "sequence")),
            ("record", pa.int32()),
        ]
    )
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def table(name, batch, cut):
    """The table of a fold, cut at a row and gone on with from its state."""
    fold, found = Fold(name), []
    for part in (batch.slice(0, cut), batch.slice(cut)):
        found += fold.record(part)
        again = Fold(name)
        again.restore(fold.state())
        fold = again
    return [row for part in (*found, *fold.finish()) for row in part.to_pylist()]


def gaps(rows):
    highest, found = {}, []
    for row in rows:
        of = row["capture_id"], row["sender"]
        if row["type"] is None:
            continue
        before = highest.get(of)
        if row["type"] == "BOR":
            highest[of] = row["sequence"]
            continue
        if before is not None and row["sequence"] > before + 1:
            missed = row["sequence"] - before - 1
            found.append((row["capture_id"], row["sender"], row["seq"], missed))
        highest[of] = row["sequence"] if before is None else max(before, row["sequence"])
    return found


@pytest.mark.req("CDTP-21")
@settings(max_examples=200, deadline=None)
@given(messages=SENT, cut=st.integers(0, 40))
def test_gaps(messages, cut):
    batch = sent(messages)
    found = table("gaps", batch, min(cut, len(messages)))
    assert [(row["capture_id"], row["sender"], row["seq"], row["missed"]) for row in found] == gaps(batch.to_pylist())


def runs(rows):
    """Each sender's messages, cut before each BOR, and what there is to say of each part."""
    parts = defaultdict(list)
    for row in rows:
        if row["type"] is not None:
            of = parts[row["capture_id"], row["sender"]]
            if not of or row["type"] == "BOR":
                of.append([])
            of[-1].append(row)
    found = set()
    for (capture, sender), of in parts.items():
        began = of[0][0]["type"] == "BOR"
        for at, part in enumerate(of):
            found.add((capture, sender, at + began, *run(part)))
    return found


def run(part):
    missed = duplicates = late = 0
    there, highest, ended, goes_on = set(), None, None, False
    for row in part:
        number, is_data = row["sequence"], row["type"] == "DAT"
        if row["type"] != "BOR" and highest is not None:
            missed += max(0, number - highest - 1)
        # An EOR may have the number of a DAT.
        if is_data and highest is not None and number <= highest:
            duplicates += number in there
            late += number not in there
        if is_data or row["type"] == "BOR":
            there.add(number)
        highest = number if highest is None else max(highest, number)
        goes_on |= ended is not None and row["type"] != "BOR"
        if row["type"] == "EOR" and ended is None:
            ended = row["seq"]
    begun = part[0]["seq"] if part[0]["type"] == "BOR" else None
    conditions = ["INCOMPLETE"] if missed or begun is None or goes_on else []
    conditions += ["ABORTED"] if ended is None else []
    data = [row for row in part if row["type"] == "DAT"]
    times = [row["received_at_ns"] for row in part]
    size = sum(row["n_bytes"] for row in part)
    return (
        "|".join(conditions) or "GOOD",
        len(data),
        size,
        missed,
        duplicates,
        late,
        min(times),
        max(times),
        begun,
        ended,
    )


@pytest.mark.req("CDTP-21")
@settings(max_examples=200, deadline=None)
@given(messages=SENT, cut=st.integers(0, 40))
def test_runs(messages, cut):
    batch = sent(messages)
    names = [
        "capture_id",
        "sender",
        "ordinal",
        "condition",
        "messages",
        "bytes",
        "missed",
        "duplicates",
        "out_of_order",
    ]
    names += ["first_received_at_ns", "last_received_at_ns", "bor_seq", "eor_seq"]
    found = [tuple(row[name] for name in names) for row in table("runs", batch, min(cut, len(messages)))]
    assert len(found) == len(set(found))
    assert set(found) == runs(batch.to_pylist())


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["one", "two"]),
        st.sampled_from(["in", "out"]),
        st.sampled_from(["ConfigNewAvailable", "ConfigResponse", "ConfigUpdated", "ConfigRequest"]),
        st.sampled_from(["x", "y", None]),
        st.sampled_from(["e", "f"]),
        st.sampled_from(["c", "d", None]),
        st.sampled_from([200, 404, None]),
    ),
    max_size=40,
)


def rollout(rows):
    own, steps = set(), defaultdict(lambda: defaultdict(list))
    for row in rows:
        kind = row["type"]
        names = row["app_version_name"], row["endpoint_id"], row["config_id"]
        if kind in {"ConfigNewAvailable", "ConfigUpdated"}:
            event = (row["capture_id"], kind, row["correlation_id"], *names)
            if row["direction"] == "out":
                own.add(event)
            elif None not in event and event in own:
                continue
        elif kind != "ConfigResponse" or row["status_code"] is None or not 200 <= row["status_code"] < 300:
            continue
        steps[names][kind].append(row["received_at_ns"])
    found = []
    for names, of in sorted(
        steps.items(), key=lambda each: [("" if name is None else f"\1{name}") for name in each[0]]
    ):
        announced, pulled, applied = (of[kind] for kind in ("ConfigNewAvailable", "ConfigResponse", "ConfigUpdated"))
        took = applied[0] - announced[0] if announced and applied and applied[0] >= announced[0] else None
        found.append((*names, len(announced), len(pulled), len(applied), took))
    return found


@settings(max_examples=200, deadline=None)
@given(messages=EVENTS, cut=st.integers(0, 40))
def test_rollout(messages, cut):
    names = ["capture_id", "direction", "type", "correlation_id", "endpoint_id", "config_id", "status_code"]
    rows = [
        dict(zip(names, message, strict=True)) | {"app_version_name": "a", "received_at_ns": START_NS + at * STEP_NS}
        for at, message in enumerate(messages)
    ]
    numbers = {"status_code": pa.int32(), "received_at_ns": pa.int64()}
    columns = [*names, "app_version_name", "received_at_ns"]
    schema = pa.schema([(name, numbers.get(name, pa.string())) for name in columns])
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    columns = (
        "app_version_name",
        "endpoint_id",
        "config_id",
        "announcements",
        "pulls",
        "reports",
        "time_to_applied_ns",
    )
    found = table("rollout", batch, min(cut, len(rows)))
    assert [tuple(row[name] for name in columns) for row in found] == rollout(rows)


def test_more_open_calls_than_are_kept_are_given_as_they_stand():
    count = 1_100_000
    keys = pa.array([number.to_bytes(4, "big") for number in range(count)], pa.binary())
    columns = {
        "capture_id": pa.array(["one"]).take(pa.array([0] * count)),
        "seq": pa.array(range(count), pa.int64()),
        "received_at_ns": pa.array(range(count), pa.int64()),
        "peer": pa.array([b"c"]).take(pa.array([0] * count)),
        "direction": pa.array(["in"]).take(pa.array([0] * count)),
        "type": pa.array(["request"]).take(pa.array([0] * count)),
        "service": pa.array([b"s"]).take(pa.array([0] * count)),
        "client": pa.nulls(count, pa.binary()),
        "metadata": pa.ListArray.from_arrays(pa.array(range(count + 1), pa.int32()), keys),
    }
    fold = Fold("requests")
    early = fold.record(pa.record_batch(columns))
    late = fold.finish()
    given_early = sum(batch.num_rows for batch in early)
    assert fold.evicted == given_early > 50_000
    assert given_early + sum(batch.num_rows for batch in late) == count
    assert {outcome for batch in early for outcome in batch["outcome"].unique().to_pylist()} == {"evicted"}
    assert {outcome for batch in late for outcome in batch["outcome"].unique().to_pylist()} == {"not_dispatched"}


@pytest.mark.parametrize("name", ["gaps", "runs"])
def test_more_senders_than_are_followed_make_way(name):
    count = 140_000
    senders = [f"s{number}" for number in range(count)]
    batch = sent([("one", sender, "DAT", 5) for sender in senders])
    fold = Fold(name)
    found = fold.record(batch)
    found += fold.record(sent([("one", "s0", "DAT", 9), ("one", senders[-1], "DAT", 9)]))
    found += fold.finish()
    assert fold.evicted >= count - 2**17
    rows = [row for part in found for row in part.to_pylist()]
    if name == "gaps":
        # Of the first, that had made way, nothing is known.
        assert [(row["sender"], row["missed"]) for row in rows] == [(senders[-1], 3)]
    else:
        assert sum(row["messages"] for row in rows) == count + 2
        assert {row["sender"] for row in rows} == set(senders)


@pytest.mark.parametrize("name", ["gaps", "runs"])
def test_a_name_of_a_megabyte_is_a_name(name):
    long = "n" * 10**6
    rows = table(name, sent([("one", long, "DAT", 1), ("one", long, "DAT", 4)]), 1)
    assert [(row["sender"], row["missed"]) for row in rows] == [(long, 2)]
    assert json.dumps(rows, default=str)

"""Runs counted by Spark are those that the capture keeps account of."""

import random

import msgpack
import pytest
import reference as wire
from pyspark.sql.functions import rand

import trunkline.msgpack
from peers.recorded import write
from trunkline import capture, spark
from trunkline.errors import LocalProtocolError

DAT, BOR, EOR = range(3)


@pytest.fixture
def captured(tmp_path):
    """Makes a capture of messages, a millisecond apart."""

    def make(messages, segment_bytes=2000):
        lines = write(tmp_path / "messages.jsonl", messages, step_ns=10**6)
        capture.import_(lines, tmp_path / "capture", segment_bytes=segment_bytes)
        return str(tmp_path / "capture")

    return make


def kept(path):
    """What the capture keeps account of, its maps as they are to be found in a VARIANT."""
    found = []
    for run in capture.open(path).runs():
        fields = {name: getattr(run, name) for name in run.__dataclass_fields__}
        for name in ("config", "metadata"):
            if fields[name] is not None:
                fields[name] = wire.variant_of(msgpack.unpackb(trunkline.msgpack.encode(fields[name]), timestamp=0))
        found.append(fields)
    return in_order(found)


def counted(rows):
    runs = spark.runs(rows)
    assert runs.columns == list(capture.Run.__dataclass_fields__)
    found = []
    for row in runs.collect():
        fields = row.asDict()
        for name in ("config", "metadata"):
            fields[name] = None if fields[name] is None else fields[name].toPython()
        found.append(fields)
    return in_order(found)


def in_order(runs):
    return sorted(runs, key=lambda run: (run["sender"], run["ordinal"]))


def message(kind, sequence, sender="d", values=None, payload=None):
    return [wire.b(sequence, sender=sender, kind=kind), msgpack.packb(values or {}) if payload is None else payload]


def nasty(seed):
    """A stream that holds to no rule, of several senders at once."""
    chance = random.Random(seed)
    for _ in range(600):
        sender = chance.choice("abc")
        kind = chance.choices([DAT, BOR, EOR], [20, 1, 1])[0]
        sequence = chance.choice([*range(12), 2**63 - 1, 2**63, 2**64 - 1] if chance.random() < 0.02 else range(12))
        values = {"run_id": f"r{sequence}"} if chance.random() < 0.5 else {"condition_code": sequence, "x": [1, None]}
        match chance.randrange(12):
            case 0:
                yield [wire.s(sender=sender), b"x"]
            case 1:
                yield [b"junk", b"x"]
            case 2:
                yield [wire.two([0, {"user": 1}, []], [1, values, []], sender=sender, kind=kind)]
            case 3:
                records = [[chance.randrange(12), {}, [b"x"]] for _ in range(chance.randrange(4))]
                yield [wire.two(*records, sender=sender, kind=kind)]
            case 4 if kind:
                payload = chance.choice([b"", b"\xc1", b"\x81\x01\x01", b"\x80\x80", bytes(70_000)])
                yield message(kind, sequence, sender, payload=payload)
            case 5:
                yield [wire.a(sequence, sender=sender, kind=kind), msgpack.packb(values)]
            case _:
                yield message(kind, sequence, sender, values)


@pytest.mark.req("CDTP-21", "CDTP-23")
def test_runs_of_released_peers(session, recorded):
    rows = session.read.parquet(recorded)
    found = counted(rows)
    assert found == kept(recorded)
    assert len(found) == 22
    assert {run["condition"] for run in found} == {"GOOD"}


@pytest.mark.req("CDTP-21")
@pytest.mark.parametrize("seed", range(2))
def test_nasty_streams_in_any_order(session, captured, seed):
    path = captured(list(nasty(seed)), segment_bytes=5000)
    rows = session.read.parquet(path).orderBy(rand(seed)).repartition(7)
    found = counted(rows)
    assert found == kept(path)
    assert len(found) > 20
    assert all(sum(run[name] for run in found) for name in ("missed", "duplicates", "out_of_order"))


@pytest.mark.req("CDTP-21")
def test_runs_that_overlap(session, captured):
    streams = {
        "a": [(BOR, 0), (DAT, 1), (DAT, 2), (EOR, 2), (BOR, 0), (DAT, 3)],
        "b": [(DAT, 9), (BOR, 0), (DAT, 1), (DAT, 1), (BOR, 0), (EOR, 1)],
    }
    steps = [message(*stream[at], sender=sender) for at in range(6) for sender, stream in streams.items()]
    path = captured(steps)
    found = counted(session.read.parquet(path))
    assert found == kept(path)
    assert [(run["sender"], run["ordinal"], run["missed"], run["duplicates"], run["condition"]) for run in found] == [
        ("a", 1, 0, 0, "GOOD"),
        ("a", 2, 2, 0, "INCOMPLETE|ABORTED"),
        ("b", 0, 0, 0, "INCOMPLETE|ABORTED"),
        ("b", 1, 0, 1, "ABORTED"),
        ("b", 2, 0, 0, "GOOD"),
    ]


@pytest.mark.req("CDTP-21")
def test_what_senders_say(session, captured):
    said = [
        {"condition_code": 17, "run_id": "r"},
        {"condition_code": "17", "condition": "TAINTED | DEGRADED|other"},
        {"condition_code": 2**63, "condition": "INTERRUPTED"},
        {"condition": "tainted", "run_id": 7},
        {"condition_code": -1},
        {"condition_code": True, "condition": 4},
        {"run_id": None, "when": msgpack.Timestamp(1, 2)},
    ]
    path = captured(
        [
            frames
            for values in said
            for frames in (message(BOR, 0, values={"run_id": "configured"}), message(EOR, 0, values=values))
        ]
    )
    found = counted(session.read.parquet(path))
    assert found == kept(path)
    assert [run["condition_code"] for run in found] == [17, 17, 4, 0, 31, 0, 0]
    assert [run["run_id"] for run in found] == ["r", *["configured"] * 6]


def test_a_run_takes_the_columns_of_a_capture(session):
    with pytest.raises(LocalProtocolError, match="received_at_ns"):
        spark.runs(session.createDataFrame([], "header binary"))
    runs = spark.runs(session.createDataFrame([], spark.capture_schema()))
    assert runs.count() == 0
    assert dict(runs.dtypes)["config"] == "variant"

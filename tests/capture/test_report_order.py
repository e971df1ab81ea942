"""What a report without Spark says of runs is what the capture itself says, however its rows come."""

import json
import random

import msgpack
import pyarrow.parquet
import pytest

from peers.cdtp import BOR, EOR, batch, header_b
from trunkline import capture
from trunkline.report import CdtpSection

SAME = ("sender", "ordinal", "run_id", "condition", "messages", "bytes", "missed", "duplicates", "out_of_order")
TIMES = ("first_received_at_ns", "last_received_at_ns")


def messages():
    """Senders in turn, each with runs, numbers that are skipped, come late or come again, and records by the batch."""
    chance = random.Random(17)
    for number in range(3000):
        name = f"D.{number % 7}"
        at = number // 7 % 40
        if at == 0:
            yield [header_b(0, BOR, name), msgpack.packb({"run_id": f"{name}-{number}", "threshold": number})]
        elif at == 39 and chance.random() < 0.8:
            yield [header_b(40, EOR, name), msgpack.packb({"condition": "TAINTED"})]
        elif chance.random() < 0.1:
            yield [batch([at, at + 1, at + 1], name=name)]
        else:
            yield [header_b(max(1, at + chance.choice([-3, 0, 0, 0, 2])), name=name), b"x" * (at % 9)]
        if number % 100 == 0:
            yield [b"nonsense", b"x"]


@pytest.fixture
def recorded(record, tmp_path):
    """A capture with rows in many segments, and more in none yet."""
    recorder = record([*messages()], segment_bytes=8000)
    recorder.flush(timeout_s=20)
    segments = [pyarrow.parquet.read_metadata(path).num_rows for path in tmp_path.glob("*.parquet")]
    assert len(segments) > 3
    assert sum(segments) < capture.open(tmp_path).info().messages == 3030
    return tmp_path


@pytest.mark.parametrize("selection", [None, capture.Selection(sender="D.3")])
def test_runs_are_those_of_the_account(recorded, tmp_path, selection):
    counted = capture.report(recorded, tmp_path / "report.html", selection=selection).section(CdtpSection)
    runs = [run for run in capture.open(recorded).runs() if selection is None or run.sender == selection.sender]
    assert counted.run_count == len(runs) > 10
    ours = {(run.sender, run.ordinal): run for run in counted.runs}
    for run in runs:
        found = ours[run.sender, run.ordinal]
        assert [getattr(found, name) for name in SAME + TIMES] == [getattr(run, name) for name in SAME + TIMES]
        assert json.loads(found.config or "null") == run.config
        assert json.loads(found.metadata or "null") == run.metadata
    assert counted.missing == sum(run.missed for run in runs) > 0

"""The data source as a stream: each published row once, in batches of whole segments, whatever happens meanwhile."""

import json
import shutil

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from peers.commands import release
from peers.recorded import AT, line
from peers.waiting import until
from trunkline import capture


@pytest.fixture
def add(tmp_path):
    """Adds a segment of so many messages to a capture, whose numbers go on from the last."""
    numbers = {}

    def add(name, count=3):
        first = numbers.get(name, 0)
        numbers[name] = first + count
        lines = tmp_path / "lines.jsonl"
        messages = [release(name, 0, number + 1, b"x") for number in range(first, first + count)]
        lines.write_text("".join(line(frames, AT + at) for at, frames in enumerate(messages)))
        capture.import_(lines, tmp_path / "runs" / name)
        return tmp_path / "runs" / name

    return add


@pytest.fixture
def streamed(session, tmp_path):
    """Streams what is there into a table, and gives the query."""

    def streamed(path, *, into="table", wait=True, **options):
        options = {"protocol": "cdtp", "decode": True, "tags": "none", **options}
        rows = session.readStream.format("trunkline").options(**options).load(str(path))
        writer = rows.writeStream.option("checkpointLocation", str(tmp_path / f"{into}-checkpoint"))
        query = (
            writer.trigger(availableNow=True).start(str(tmp_path / into))
            if wait
            else writer.start(str(tmp_path / into))
        )
        if wait:
            query.awaitTermination()
        return query

    return streamed


@pytest.fixture
def table(session, tmp_path):
    """Reads what was streamed: senders and sequence numbers."""

    def table(into="table"):
        # The sink's log says which of its files count.
        return sorted((row.sender, row.sequence) for row in session.read.parquet(str(tmp_path / into)).collect())

    return table


def sent(name, count, first=0):
    return [(name, number + 1) for number in range(first, count)]


def batches(query):
    """How many rows each batch had; those without any are passed over."""
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def test_what_is_there_is_read_once_and_what_comes_later_is_read_then(add, streamed, table):
    for _ in range(3):
        path = add("a")
    query = streamed(path)
    assert batches(query) == [9]
    assert table() == sent("a", 9)
    add("a")
    assert batches(streamed(path)) == [3]
    assert batches(streamed(path)) == []
    assert table() == sent("a", 12)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"maxSegmentsPerTrigger": 2}, [6, 6, 3]),
        ({"maxRowsPerTrigger": 7}, [6, 6, 3]),
        # A segment that is larger than the limit is a batch of its own.
        ({"maxRowsPerTrigger": 1}, [3, 3, 3, 3, 3]),
        ({"maxBytesPerTrigger": 1}, [3, 3, 3, 3, 3]),
        ({"maxSegmentsPerTrigger": 4, "maxRowsPerTrigger": 9}, [9, 6]),
    ],
)
def test_batches_are_whole_segments_within_the_limits(add, streamed, table, options, expected):
    for _ in range(5):
        path = add("a")
    assert batches(streamed(path, **options)) == expected
    assert table() == sent("a", 15)


def test_limits_are_shared_by_captures_in_turn(add, streamed, table, tmp_path):
    for _ in range(4):
        add("a")
        add("b")
    query = streamed(tmp_path / "runs", recursive=True, maxSegmentsPerTrigger=2)
    assert batches(query) == [6, 6, 6, 6]
    ends = [
        json.loads(progress["sources"][0]["endOffset"]) for progress in query.recentProgress if progress["numInputRows"]
    ]
    assert [sorted(end.values()) for end in ends] == [[1, 1], [2, 2], [3, 3], [4, 4]]
    assert table() == sent("a", 12) + sent("b", 12)


def test_new_captures_are_found_while_it_runs(add, streamed, table, tmp_path):
    add("a")
    query = streamed(tmp_path / "runs", recursive=True, wait=False)
    try:
        until(lambda: query.exception() or sum(batches(query)) == 3)
        (tmp_path / "runs" / "begun" / "_capture").mkdir(parents=True)
        add("deeper/b")
        add("a")
        until(lambda: query.exception() or sum(batches(query)) == 9)
        assert query.exception() is None
        latest = query.lastProgress["sources"][0]["latestOffset"]
        latest = latest if isinstance(latest, dict) else json.loads(latest)
        assert (latest["segmentsBehind"], latest["bytesBehind"]) == (0, 0)
    finally:
        query.stop()
    assert table() == sent("a", 6) + sent("deeper/b", 3)


def test_a_stream_may_begin_at_what_is_new_or_at_a_segment(add, streamed, table):
    for _ in range(3):
        path = add("a")
    assert batches(streamed(path, into="new", startingOffsets="latest")) == []
    add("a")
    assert batches(streamed(path, into="new", startingOffsets="latest")) == [3]
    assert table("new") == sent("a", 12, first=9)
    capture_id = capture.open(path).info().capture_id
    for place in (2, {"segment": 2}):
        into = f"at {type(place).__name__}"
        assert batches(streamed(path, into=into, startingOffsets=json.dumps({capture_id: place}))) == [6]


def test_segments_deleted_before_they_were_read_are_an_error_or_a_warning(add, streamed, table):
    for _ in range(4):
        path = add("a")
    assert batches(streamed(path, maxSegmentsPerTrigger=4)) == [12]
    for _ in range(3):
        add("a")
    capture.open(path).segments[5].unlink()
    with pytest.raises(StreamingQueryException, match=r"1 segment deleted before they were read: 5.*failOnDataLoss"):
        streamed(path)
    assert sum(batches(streamed(path, failOnDataLoss=False))) == 6
    assert table() == sent("a", 15) + sent("a", 21, first=18)


def test_what_was_deleted_before_a_stream_began_is_no_loss(add, streamed, table):
    for _ in range(4):
        path = add("a")
    for segment in capture.open(path).segments[:2]:
        segment.unlink()
    assert batches(streamed(path)) == [6]
    assert table() == sent("a", 12, first=6)


def test_a_checkpoint_of_another_query_is_refused(session, add, streamed, tmp_path):
    streamed(add("a"))
    with pytest.raises(
        StreamingQueryException, match=r"checkpoint is about capture .* choose another checkpointLocation"
    ):
        streamed(add("b"))
    rates = session.readStream.format("rate").load()
    writer = rates.writeStream.option("checkpointLocation", str(tmp_path / "rate-checkpoint")).trigger(once=True)
    writer.start(str(tmp_path / "rate")).awaitTermination()
    with pytest.raises(StreamingQueryException):
        streamed(add("a"), into="rate")


def test_a_capture_that_is_gone_was_read_or_is_lost(add, streamed, table, tmp_path):
    add("a")
    gone = add("b")
    streamed(tmp_path / "runs", recursive=True)
    shutil.rmtree(gone)
    add("a")
    # All of it was read, so that nothing is missing.
    assert batches(streamed(tmp_path / "runs", recursive=True)) == [3]
    assert table() == sent("a", 6) + sent("b", 3)


def test_wrong_options_are_refused_before_a_stream_begins(session, add):
    path = add("a")
    for options, words in (
        ({"maxSegmentPerTrigger": 1}, "did you mean 'maxsegmentspertrigger'"),
        ({"protocol": "cdtp", "decode": True, "columns": "nothing"}, "no column nothing"),
    ):
        with pytest.raises(PySparkException, match=words):
            session.readStream.format("trunkline").options(**options).load(str(path))
    with pytest.raises(PySparkException, match="does not exist"):
        session.readStream.format("trunkline").load(str(path / "nowhere"))

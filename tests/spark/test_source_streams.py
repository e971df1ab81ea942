"""The data source as a stream: each published row once, in batches of whole segments, whatever happens meanwhile."""

import json
import shutil
import tracemalloc

import pytest
from benches.spark.planning import made_up
from pyspark.errors import PySparkException, StreamingQueryException

from peers.commands import release
from peers.recorded import AT, line
from peers.waiting import until
from trunkline import capture
from trunkline.errors import CaptureError
from trunkline.spark import capture_schema
from trunkline.spark.source.options import Settings
from trunkline.spark.source.stream import StreamReader


@pytest.fixture
def add(tmp_path):
    """Adds a segment of so many messages to a capture, with consecutive numbers."""
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
        options = {name: value for name, value in options.items() if value is not None}
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


def test_a_batch_has_a_limit_unless_all_is_wanted():
    def limits(**options):
        settings = Settings.of({"path": "c", **options})
        return settings.max_segments, settings.max_bytes, settings.max_rows

    assert limits() == (None, 256 << 20, None)
    assert limits(maxBytesPerTrigger="none") == (None, None, None)
    assert limits(maxBytesPerTrigger="7") == (None, 7, None)
    assert limits(maxRowsPerTrigger="7") == (None, None, 7)
    assert limits(maxSegmentsPerTrigger="7", maxBytesPerTrigger="none") == (7, None, None)


def test_limits_are_shared_by_captures_in_turn(add, streamed, table, tmp_path):
    for _ in range(4):
        add("a")
        add("b")
    query = streamed(tmp_path / "runs", recursive=True, maxSegmentsPerTrigger=2)
    assert batches(query) == [6, 6, 6, 6]
    ends = [
        json.loads(progress["sources"][0]["endOffset"]) for progress in query.recentProgress if progress["numInputRows"]
    ]
    places = [sorted(place for place in end.values() if isinstance(place, int)) for end in ends]
    assert places == [[1, 1], [2, 2], [3, 3], [4, 4]]
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
    with pytest.raises(StreamingQueryException, match=r"1 segment was deleted before being read: 5.*failOnDataLoss"):
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


def test_a_checkpoint_of_another_capture_is_refused(add, streamed):
    streamed(add("a"))
    with pytest.raises(
        StreamingQueryException, match=r"checkpoint is about capture .*runs/b: choose another checkpointLocation"
    ):
        streamed(add("b"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"protocol": "dcp", "tags": None}, "protocol was cdtp and is dcp; tags was none and is not set"),
        ({"decode": None, "tags": None}, "decode was true and is not set; tags was none and is not set"),
        ({"tags": "run bigint"}, "tags was none and is run bigint"),
        ({"payload": " adc u16[] "}, r"payload was not set and is adc u16\[\]"),
        ({"columns": "sender,sequence"}, "columns was not set and is sender,sequence"),
        ({"since": "2h"}, "since was 3h and is 2h"),
        ({"where": "sequence > 1"}, "where was not set and is sequence > 1"),
        ({"since": None}, "since was 3h and is not set"),
        ({"accept": "S"}, r"accept was not set and is \[.S.\]"),
    ],
)
def test_a_checkpoint_knows_what_its_query_reads(add, options, words):
    def reader(options):
        options = {"protocol": "cdtp", "decode": "true", "tags": "none", "since": "3h", "path": str(path), **options}
        return StreamReader(Settings.of({name: text for name, text in options.items() if text is not None}))

    def offset(reader, start):
        return json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))

    path = add("a")
    one = reader({})
    before = offset(one, one.initialOffset())
    # What changes neither columns nor which rows they are.
    assert offset(reader({"mode": "FAILFAST", "recursive": "false", "maxRowsPerTrigger": "3"}), before) == before
    other = reader(options)
    for refused in (lambda: offset(other, before), lambda: other.partitions(other.initialOffset(), before)):
        with pytest.raises(CaptureError, match=f"another query: {words}; choose another checkpointLocation, or set"):
            refused()


def test_a_checkpoint_of_another_query_is_refused(add, streamed):
    path = add("a")
    streamed(path)
    with pytest.raises(
        StreamingQueryException, match=r"protocol was cdtp and is dcp; tags was none and is not set; choose another"
    ):
        streamed(path, protocol="dcp", tags=None)


@pytest.mark.parametrize("kind", ["rate", "parquet"])
def test_a_checkpoint_of_another_source_is_refused(session, add, streamed, tmp_path, kind):
    path = add("a")
    reader = session.readStream.format(kind)
    rows = reader.load() if kind == "rate" else reader.schema(capture_schema()).load(str(path))
    writer = rows.writeStream.option("checkpointLocation", str(tmp_path / "other-checkpoint"))
    writer.trigger(once=True).start(str(tmp_path / "other")).awaitTermination()
    with pytest.raises(
        StreamingQueryException, match=r"is not one of a stream of captures.* choose another checkpointLoc"
    ):
        streamed(path, into="other")


def test_a_stream_waits_for_a_copy_that_is_behind(add, streamed, table, tmp_path):
    for _ in range(4):
        path = add("a")
    copy = tmp_path / "copy"
    capture.ship(path, copy)
    for _ in range(2):
        add("a")
    for options in ({}, {"maxSegmentsPerTrigger": 10}):
        into = f"table {len(options)}"
        assert sum(batches(streamed(path, into=into, **options))) == 18
        assert batches(streamed(copy, into=into, **options)) == []
    capture.ship(path, copy)
    for options in ({}, {"maxSegmentsPerTrigger": 10}):
        into = f"table {len(options)}"
        assert batches(streamed(copy, into=into, **options)) == []
        assert table(into) == sent("a", 18)
    add("a")
    capture.ship(path, copy)
    assert batches(streamed(copy, into="table 0")) == [3]
    assert table("table 0") == sent("a", 21)


def test_a_stream_may_begin_at_a_segment_that_is_to_come(add, streamed, table):
    for _ in range(2):
        path = add("a")
    options = {"startingOffsets": json.dumps({capture.open(path).info().capture_id: 4})}
    assert batches(streamed(path, **options)) == []
    for _ in range(2):
        add("a")
    assert batches(streamed(path, **options)) == []
    add("a")
    assert batches(streamed(path, **options)) == [3]
    assert table() == sent("a", 15, first=12)


def test_what_is_behind_a_checkpoint_is_said_once(add, caplog):
    path = add("a")
    found = capture.open(path).info().capture_id
    reader = StreamReader(Settings.of({"path": str(path)}))
    start = reader.initialOffset() | {found: 3}
    for _ in range(2):
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
        assert (reader.reportLatestOffset()["segmentsBehind"], reader.partitions(start, start)) == (0, [])
    assert len(caplog.messages) == 1
    assert f"{path}: ends before segment 1, and was read to segment 3" in caplog.text
    # A batch that was planned where more was cannot be done again here, and must not pass for done.
    with pytest.raises(CaptureError, match=r"ends before segment 1.*done again reads to segment 5: start again once"):
        reader.partitions(start, start | {found: 5})


def test_what_is_behind_is_counted_without_a_list_of_it(tmp_path):
    directory = tmp_path / "capture"
    made_up(directory, 3)
    said = {"version": 1, "capture_id": "made-up", "next_segment": 10**6, "next_seq": 10**6}
    (directory / "_capture.json").write_text(json.dumps(said))
    reader = StreamReader(Settings.of({"path": str(directory)}))
    tracemalloc.start()
    try:
        offset = reader.reportLatestOffset()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert offset["segmentsBehind"] == 10**6
    assert most < 4 << 20


def test_the_bytes_of_what_is_behind_are_told(tmp_path):
    directory = tmp_path / "capture"
    made_up(directory, 5)
    for number in range(5):
        (directory / f"{number:010}.parquet").write_bytes(bytes(100 * number))
    reader = StreamReader(Settings.of({"path": str(directory)}))
    assert reader.reportLatestOffset()["bytesBehind"] == 1000
    more = tmp_path / "more"
    made_up(more, 1000)
    for number in range(1000):
        (more / f"{number:010}.parquet").write_bytes(bytes(number))
    offset = StreamReader(Settings.of({"path": str(more)})).reportLatestOffset()
    # Of many it is an estimate.
    assert offset["bytesBehind"] == pytest.approx(499_500, rel=0.05)


def test_a_capture_to_begin_at_must_be_there(session, add, streamed):
    path = add("a")
    known = capture.open(path).info().capture_id
    for named in ({"abc": 1}, {known: {"segment": 1}, "abc": {"segment": 1}}):
        reader = session.readStream.format("trunkline").option("startingOffsets", json.dumps(named))
        with pytest.raises(PySparkException, match=f"startingOffsets: there is no capture abc in {path}: leave it out"):
            reader.load(str(path))
    # The end offset of a query's progress is a valid start.
    end = streamed(path).lastProgress["sources"][0]["endOffset"]
    add("a")
    assert batches(streamed(path, into="on", startingOffsets=end)) == [3]


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
        ({"maxSegmentPerTrigger": 1}, "did you mean 'maxSegmentsPerTrigger'"),
        ({"protocol": "cdtp", "decode": True, "columns": "nothing"}, "no column nothing"),
    ):
        with pytest.raises(PySparkException, match=words):
            session.readStream.format("trunkline").options(**options).load(str(path))
    with pytest.raises(PySparkException, match="does not exist"):
        session.readStream.format("trunkline").load(str(path / "nowhere"))

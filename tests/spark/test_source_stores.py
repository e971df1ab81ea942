"""The data source reading captures of a store that speaks S3, and captures that are merged meanwhile."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable

from peers.commands import release
from peers.recorded import AT, line
from peers.s3 import S3
from trunkline import capture, spark
from trunkline._native.capture import Import, published
from trunkline.spark.source.options import Settings
from trunkline.spark.source.stream import StreamReader


@pytest.fixture
def add(tmp_path):
    """Adds segments of three messages to a capture, with consecutive numbers."""

    numbers = {}

    def add(name, segments=1):
        path = tmp_path / "runs" / name
        for _ in range(segments):
            number = numbers.get(name, 0)
            numbers[name] = number + 3
            lines = tmp_path / "lines.jsonl"
            messages = [release(name, 0, number + at, b"x") for at in (1, 2, 3)]
            lines.write_text("".join(line(frames, AT + at) for at, frames in enumerate(messages)))
            capture.import_(lines, path)
        return path

    return add


@pytest.fixture
def streamed(session, tmp_path):
    """Streams what is there into a table, and gives how many rows each batch had."""

    def streamed(path, **options):
        options = {"protocol": "cdtp", "decode": True, "tags": "none", **options}
        rows = session.readStream.format("trunkline").options(**options).load(str(path))
        writer = rows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "table"))
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    return streamed


@pytest.fixture
def sequences(session, tmp_path):
    """What was streamed, by sender."""

    def sequences(sender):
        rows = session.read.parquet(str(tmp_path / "table")).where(f"sender = '{sender}'").collect()
        return sorted(row.sequence for row in rows)

    return sequences


def rows(session, path, **options):
    return session.read.format("trunkline").options(**options).load(str(path))


def test_a_capture_in_a_store_is_read_as_a_directory_is(session, s3, add):
    path, url = add("a", 4), s3.url("one/a")
    capture.ship(path, url)
    there, here = (rows(session, place).orderBy("seq").collect() for place in (url, path))
    assert there == here
    decoded = rows(session, url, protocol="cdtp", decode=True, columns="sequence", where="sequence > 7")
    assert sorted(row.sequence for row in decoded.collect()) == [8, 9, 10, 11, 12]
    # Who one is and where the store is may be options.
    options = {
        "fileSystem.access_key": "key",
        "fileSystem.secret_key": "se/cret",
        "fileSystem.endpoint_override": f"127.0.0.1:{s3.port}",
        "fileSystem.scheme": "http",
        "fileSystem.region": "us-east-1",
    }
    assert rows(session, "s3://lab/one/a", **options).count() == 12
    assert rows(session, path.as_uri()).count() == 12


SEGMENTS = 200


def test_a_segment_of_a_store_takes_one_request(session, s3, add, streamed):
    path, url = add("counted", SEGMENTS), s3.url("counted")
    capture.ship(path, url)
    with s3.counting() as requests:
        assert rows(session, url, protocol="cdtp", decode=True).count() == 3 * SEGMENTS
    assert len(requests) <= 1.2 * SEGMENTS, requests
    assert sum(request.startswith("HEAD") for request in requests) < SEGMENTS / 20
    with s3.counting() as requests:
        assert streamed(url, maxBytesPerTrigger=1 << 30, maxSegmentsPerTrigger=50) == [150] * 4
    assert len(requests) <= 1.2 * SEGMENTS, requests


def test_a_store_is_listed_once_for_a_micro_batch(s3, tmp_path):
    """However many segments there are: a page of a listing has a thousand names."""
    segments = 2100
    writing = Import(tmp_path / "long", segment_bytes=1)
    for at in range(segments):
        writing.append(AT + at, release("D", 0, at, b"x"), protocol="cdtp", direction="in")
    writing.commit()
    with ThreadPoolExecutor(8) as pool:
        names = [path.relative_to(tmp_path) for path in (tmp_path / "long").rglob("*.parquet")]
        list(pool.map(lambda name: s3.put(str(name), (tmp_path / name).read_bytes()), names))
    reader = StreamReader(Settings.of({"path": s3.url("long"), "maxSegmentsPerTrigger": "2050"}))
    with s3.counting() as requests:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert reader.reportLatestOffset()["segmentsBehind"] == segments - 2050
        assert sum(len(part.pieces[0].segments) for part in reader.partitions(start, end)) == 2050
    assert sum("continuation-token" in request for request in requests) == segments // 1000


def test_captures_are_found_in_a_folder_of_a_store(session, s3, add):
    for name in ("a", "b"):
        capture.ship(add(name, 2), s3.url(f"many/deeper/{name}"))
    assert rows(session, s3.url("many"), recursive=True).count() == 12
    with pytest.raises(PySparkException, match=r"many: is no capture, and s3://lab/many/deeper/a is one"):
        rows(session, s3.url("many"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "s3://lab/none: does not exist"),
        ({"fileSystem.access_key": "key"}, "access_key and .*secret_key go together"),
        ({"fileSystem.colour": "red"}, "s3://lab/none: .*colour"),
    ],
)
def test_what_is_wrong_with_a_store_is_told_at_load(session, s3, options, message):
    with pytest.raises(PySparkException, match=message) as raised:
        rows(session, s3.url("none"), **options)
    assert "secret@" not in str(raised.value)


def test_who_is_not_let_in_is_told_what_to_do_at_load(session, s3, add):
    url = s3.url("refused")
    capture.ship(add("a"), url)
    with s3.knowing_nobody(), pytest.raises(PySparkException, match=r"the store does not know you.* AWS_ACCESS_KEY_ID"):
        rows(session, url)
    assert rows(session, url).count() == 3
    with pytest.raises(PySparkException, match=r"s3://nobucket/x: there is no bucket nobucket"):
        rows(session, s3.url("x", bucket="nobucket"))


def test_options_of_a_store_are_for_urls(session, add):
    with pytest.raises(PySparkException, match="is for URLs of stores"):
        rows(session, add("a"), **{"fileSystem.region": "us-east-1"})


def test_a_stream_goes_on_with_what_is_shipped(s3, add, streamed, sequences):
    path, url = add("a", 3), s3.url("stream/a")
    capture.ship(path, url, delete_shipped=True)
    assert streamed(url) == [9]
    add("a", 2)
    capture.ship(path, url, delete_shipped=True)
    assert streamed(url) == [6]
    add("a", 2)
    capture.compact(path)
    capture.ship(path, url, delete_shipped=True)
    assert streamed(url, maxSegmentsPerTrigger=1) == [6]
    assert streamed(url) == []
    assert sequences("a") == [*range(1, 22)]


def test_a_stream_sees_each_row_once_while_segments_are_merged(add, streamed, sequences):
    path = add("a", 6)
    assert streamed(path, maxSegmentsPerTrigger=4, startingOffsets="earliest") == [12, 6]
    add("a", 4)
    capture.compact(path, target_bytes=3 * (path / "0000000000.parquet").stat().st_size + 100)
    assert len(published(path)) < 10
    # It was read up to the middle of a merged segment.
    assert sum(streamed(path, maxSegmentsPerTrigger=1)) == 12
    add("a", 1)
    capture.compact(path)
    assert published(path) == [(0, 10)]
    assert streamed(path, maxRowsPerTrigger=100) == [3]
    assert sequences("a") == [*range(1, 34)]


def test_a_batch_that_was_planned_before_a_merge_reads_each_row_once(session, add):
    path = add("a", 8)
    planned = rows(session, path)
    count = planned.select("seq", "segment")
    assert planned.count() == 24
    capture.compact(path)
    assert sorted(tuple(row) for row in count.collect()) == [(number, number // 3) for number in range(24)]
    assert spark.report(path, path.parent / "r.html").rows == 24


def test_a_store_that_goes_away_ends_a_stream_which_then_goes_on(add, streamed, sequences):
    path = add("a", 2)
    server = S3()
    url, port = server.url("runs/a"), server.port
    capture.ship(path, url)
    assert streamed(url) == [6]
    server.close()
    with pytest.raises((StreamingQueryException, PySparkException), match="s3://lab/runs/a"):
        streamed(url)
    again = S3(port)
    try:
        add("a", 1)
        capture.ship(path, url)
        assert streamed(url) == [3]
    finally:
        again.close()
    assert sequences("a") == [*range(1, 10)]


@pytest.mark.usefixtures("session")
def test_a_report_of_a_store(s3, add, tmp_path):
    path, url = add("a", 3), s3.url("report/a")
    capture.ship(path, url)
    there = spark.report(url, tmp_path / "there.html").to_dict()
    here = spark.report(path, tmp_path / "here.html").to_dict()
    differing = {name for name in here if here[name] != there[name]}
    assert differing <= {"path", "name"}
    assert "secret" not in (tmp_path / "there.html").read_text()

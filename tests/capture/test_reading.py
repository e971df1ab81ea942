"""Captures read back, while they are recorded and after."""

import re
import sys
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zmq

from peers import cdtp as wire
from trunkline import capture, cdtp
from trunkline.errors import CaptureError, LocalProtocolError

ANY = "tcp://127.0.0.1:*"


def numbered(count):
    return [[wire.header_b(number), b"payload", bytes(number % 50)] for number in range(count)]


def frames_of(table):
    return [
        [*row["envelope"], *([] if row["header"] is None else [row["header"]]), *row["payload"]]
        for row in table.to_pylist()
    ]


def test_shows_what_is_durable_before_parquet_readers_see_it(record, tmp_path):
    messages = numbered(1000)
    recorder = record(messages)
    recorder.flush(timeout_s=20)
    assert list(tmp_path.glob("*.parquet")) == []
    recorded = capture.open(tmp_path)
    table = recorded.read_all()
    assert frames_of(table) == messages
    assert table["seq"].to_pylist() == list(range(1000))
    assert (recorded.info().messages, recorded.info().segments) == (1000, 0)

    recorder.publish(timeout_s=20)
    # Opened before, it still has its rows; a plain reader has them now.
    assert recorded.read_all().equals(table)
    assert pq.read_table(tmp_path).cast(capture.schema()).equals(table)
    assert capture.open(tmp_path).read_all().equals(table)
    assert (capture.open(tmp_path).info().messages, capture.open(tmp_path).info().segments) == (1000, 1)


def test_rows_say_where_a_message_came_from(record, tmp_path):
    recorder = record([[wire.header_s(), b"one", b"three"], [wire.header_s()], [b""]])
    recorder.publish(timeout_s=20)
    rows = list(capture.open(tmp_path).rows())
    assert [row["error"] for row in rows] == [None, "missing_payload", "truncated"]
    first = rows[0]
    assert first["endpoint"] == recorder.endpoints[0]
    assert (first["protocol"], first["direction"], first["peer"], first["topic"]) == ("cdtp", "in", None, None)
    assert (first["envelope"], first["header"], first["payload"]) == ([], wire.header_s(), [b"one", b"three"])
    assert (first["n_frames"], first["n_bytes"]) == (3, len(wire.header_s()) + 8)
    assert first["received_at_ns"] <= rows[1]["received_at_ns"] <= rows[2]["received_at_ns"]
    assert rows == capture.open(tmp_path).read_all().to_pylist()
    assert list(first) == capture.schema().names


def test_iteration_gives_messages_and_counts_what_is_none(record, tmp_path):
    good = [wire.header_b(1), b"payload"]
    record([good, [b"no message"], [wire.batch([2, 3])], [wire.header_s()], good]).flush(timeout_s=20)
    recorded = capture.open(tmp_path)
    assert [message.sequence for message in recorded] == [1, 2, 3, 1]
    assert recorded.skipped == 2
    assert sum(1 for _ in recorded) == 4
    assert recorded.skipped == 2
    assert recorded.info().errors == {"bad_header": 1, "missing_payload": 1}


def test_grows_by_whole_prefixes_while_it_is_recorded(tmp_path, open_socket):
    messages = numbered(20_000)
    with cdtp.Recorder(tmp_path, bind=ANY, segment_bytes=50_000) as recorder:
        push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])

        def send():
            for frames in messages:
                push.send_multipart(frames)

        sender = threading.Thread(target=send)
        sender.start()
        seen, counts = 0, []
        while seen < len(messages):
            recorder.flush(timeout_s=20)
            durable = recorder.stats.durable
            table = capture.open(tmp_path).read_all()
            assert table["seq"].to_pylist() == list(range(table.num_rows))
            published = pq.read_table(tmp_path, columns=["seq"]) if recorder.stats.segments else table
            assert published["seq"].to_pylist() == list(range(published.num_rows))
            assert seen <= durable <= table.num_rows
            seen = table.num_rows
            counts.append(seen)
        sender.join()
        assert recorder.stats.segments > 5
    assert frames_of(capture.open(tmp_path).read_all()) == messages


def test_segments_keep_to_their_bytes(record, tmp_path):
    messages = [*numbered(300), [wire.header_b(0), bytes(9000)], *numbered(10)]
    record(messages, segment_bytes=2000).close()
    recorded = capture.open(tmp_path)
    assert frames_of(recorded.read_all()) == messages
    for segment in recorded.segments:
        sizes = pq.read_table(segment)["n_bytes"].to_pylist()
        assert sum(sizes) <= 2000 or len(sizes) == 1
    assert len(recorded.segments) == recorded.info().segments > 8


def test_arrow_readers_of_any_make_take_it(record, tmp_path):
    record(numbered(10)).publish(timeout_s=20)
    reader = capture.open(tmp_path).reader()
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.schema.equals(capture.schema())
    assert sum(batch.num_rows for batch in reader) == 10


def test_it_says_what_it_is_and_how_many_rows_it_has(record, tmp_path):
    recorder = record([])
    empty = capture.open(tmp_path)
    assert (len(empty), bool(empty)) == (0, True)
    recorder.close()
    record([[wire.batch([1, 2])], [wire.header_s(), b"x"]]).publish(timeout_s=20)
    opened = capture.open(tmp_path)
    start = f"<Capture '{tmp_path}': "
    assert re.fullmatch(re.escape(start) + r"1 segment, [\d.]+ kB on disk>", repr(opened))
    assert (len(opened), len(list(opened))) == (2, 3)
    assert repr(opened).startswith(f"{start}2 rows, 1 segment, ")


def test_a_notebook_shows_what_is_recorded(record, tmp_path):
    record([*numbered(3), [b"none"]]).close()
    shown = capture.open(tmp_path)._repr_html_()
    assert "<tr><th>messages</th><td>4</td></tr>" in shown
    assert "<tr><th>of cdtp</th><td>4</td></tr>" in shown
    assert "<tr><th>error bad_header</th><td>1</td></tr>" in shown
    empty = tmp_path / "<b>empty"
    capture.import_([], empty)
    assert "&lt;b&gt;empty" in capture.open(empty)._repr_html_()


def test_what_is_no_capture_is_refused(tmp_path):
    with pytest.raises(CaptureError, match="does not exist"):
        capture.open(tmp_path / "absent")
    with pytest.raises(CaptureError, match="contains no capture"):
        capture.open(tmp_path)


def test_a_damaged_segment_is_an_error_not_fewer_rows(record, tmp_path):
    record(numbered(10)).publish(timeout_s=20)
    recorded = capture.open(tmp_path)
    segment = recorded.segments[0]
    segment.write_bytes(segment.read_bytes()[:-10])
    with pytest.raises(CaptureError, match=segment.name):
        recorded.read_all()
    with pytest.raises(CaptureError, match=segment.name):
        list(recorded)
    with pytest.raises(CaptureError, match=segment.name):
        recorded.info()


def test_only_tables_need_pyarrow(record, tmp_path, monkeypatch):
    record(numbered(3)).flush(timeout_s=20)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    recorded = capture.open(tmp_path)
    assert len(list(recorded)) == len(list(recorded.rows())) == recorded.info().messages == 3
    for needs_it in (recorded.read_all, recorded.reader, capture.schema):
        with pytest.raises(LocalProtocolError, match=r"trunkline\[capture\]"):
            needs_it()


def test_threads_may_share_an_iteration(record, tmp_path):
    record(numbered(5000)).flush(timeout_s=20)
    rows = capture.open(tmp_path).rows()
    taken = [[] for _ in range(4)]

    def take(into):
        into.extend(row["seq"] for row in rows)

    threads = [threading.Thread(target=take, args=[into]) for into in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seq for some in taken for seq in some) == list(range(5000))

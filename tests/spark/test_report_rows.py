"""Reports of a capture's segments, of the same rows as a table, and of the same rows in other segments say the same."""

import pytest
import reference as wire
from pyspark.sql import functions as F  # noqa: N812

from peers.recorded import line
from trunkline import capture, spark
from trunkline.demo import DATA
from trunkline.errors import LocalProtocolError


def test_a_table_of_rows_is_reported_as_its_capture_is(session, every_protocol, reported, tmp_path):
    by_path = reported(every_protocol)
    rows = session.read.parquet(str(every_protocol)).orderBy(F.rand(3)).repartition(3)
    by_rows = spark.report(rows, tmp_path / "rows.html", name=str(every_protocol))
    assert by_rows.to_dict() | {"path": ""} == by_path.to_dict() | {"path": ""}
    assert len(by_path.to_dict()["sections"]) == 5
    with pytest.raises(LocalProtocolError, match="selection= is for one capture"):
        spark.report(rows, tmp_path / "rows.html", selection=capture.Selection(protocol="dcp"))


@pytest.mark.usefixtures("session")
def test_a_folder_of_captures_is_reported_as_without_spark(tmp_path):
    for release in ("cdtp1-release-0.5.1", "cdtp2-release-1.0.2"):
        capture.import_(DATA / f"{release}.jsonl.gz", tmp_path / "runs" / release)
    by_spark, locally = [
        write(tmp_path / "runs", tmp_path / "all.html").to_dict() for write in (spark.report, capture.report)
    ]
    assert by_spark == locally
    assert locally["rows"] > 0


@pytest.mark.usefixtures("session")
def test_many_segments_are_counted_as_one(tmp_path):
    """However rows are divided among segments, tasks and places."""
    lines = tmp_path / "lines.jsonl"
    messages = []
    for number in range(400):
        sender = f"Det.{number % 7}"
        kind = 1 if number < 7 else 0
        frames = [wire.b(number // 7 + number // 100, sender=sender, kind=kind), b"\x80"]
        messages.append((number, "cdtp", "in", None, frames))
        client = b"c%d" % (number % 5)
        ask = [b"", b"DGBX\x01", b"\x04", b"echo", b"", b"%d" % number, b"", b"x"]
        messages.append((number, "dcp", "in", client, ask))
        messages.append((number + 1, "dcp", "out", b"w", [*ask[:4], client, *ask[4:]]))
    lines.write_text(
        "".join(
            line(frames, 10**18 + at * 10**6, protocol=protocol, direction=direction, peer=peer)
            for at, protocol, direction, peer, frames in messages
        )
    )
    one, many = tmp_path / "one", tmp_path / "many"
    capture.import_(lines, one)
    capture.import_(lines, many, segment_bytes=1000)
    assert len(capture.open(one).segments) == 1
    assert len(capture.open(many).segments) > 10
    found = [spark.report(path, tmp_path / "report.html", name="some").to_dict() for path in (one, many)]
    assert found[0] == found[1]
    assert found[0]["rows"] == 1200

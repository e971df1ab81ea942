"""Captures from strangers, or in directories where others may write: their contents are not trusted."""

import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zmq

from peers import cdtp as wire
from peers.capturing import command
from trunkline import capture, cdtp
from trunkline.errors import CaptureError

ANY = "tcp://127.0.0.1:*"
HUGE = 1 << 58


def messages():
    return [[wire.header_b(number), b"payload"] for number in range(3)]


def in_vain(path):
    """Lets everybody at a capture that is not to be had; gives the words of each."""
    words = []
    for open_ in (
        lambda: capture.open(path).info(),
        lambda: list(capture.open(path).rows()),
        lambda: capture.open(path).runs(),
        lambda: capture.recover(path),
        lambda: cdtp.Recorder(path, bind=ANY).close(),
    ):
        try:
            open_()
        except CaptureError as error:
            words.append(str(error))
    return words


def link(path, target):
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)


@pytest.fixture
def recorded(record, tmp_path):
    recorder = record(messages())
    recorder.close()
    return tmp_path


@pytest.fixture
def victim(tmp_path_factory):
    file = tmp_path_factory.mktemp("elsewhere") / "file"
    file.write_text("of value")
    return file


@pytest.mark.parametrize(
    "name", [".lock", "0000000000.parquet", ".0000000001.journal", "_capture/manifest.parquet", "_capture.json"]
)
def test_a_link_is_not_followed_and_its_target_is_left_alone(recorded, victim, name):
    if name == "_capture.json":
        (recorded / "_capture/manifest.parquet").unlink()
    link(recorded / name, victim)
    said = in_vain(recorded)
    assert said
    assert all("is a symbolic link, and links are not followed" in words for words in said)
    assert victim.read_text() == "of value"


@pytest.mark.parametrize("name", [".0000000001.partial", "_capture/.manifest", "_capture/.runs"])
def test_a_link_in_the_place_of_a_file_to_be_written_goes(recorded, victim, open_socket, name):
    link(recorded / name, victim)
    with cdtp.Recorder(recorded, bind=ANY) as recorder:
        push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])
        push.send_multipart(messages()[0])
        recorder.wait(count=1, timeout_s=20)
    assert capture.open(recorded).info().messages == 4
    assert victim.read_text() == "of value"


@pytest.mark.parametrize("name", ["_capture", "_runs"])
def test_a_link_in_the_place_of_a_directory_is_not_followed(recorded, victim, name):
    outside = victim.parent
    kept = [outside / file for file in ("0000000077.parquet", "0000000077.jsonl", "manifest.parquet")]
    for file in kept:
        file.write_text("of value")
    if name == "_capture":
        (recorded / name).rename(recorded / "away")
    link(recorded / name, outside)
    said = in_vain(recorded)
    assert said
    assert all("is not a directory" in words for words in said), said
    assert all(file.read_text() == "of value" for file in kept)
    assert len(list(outside.iterdir())) == 4


@pytest.mark.parametrize(
    "name",
    ["0000000001.parquet", ".0000000001.journal", "_capture.json", "_capture/0000000000.parquet", ".lock"],
)
def test_a_pipe_keeps_nobody_waiting(recorded, name):
    if name == "_capture.json":
        (recorded / "_capture/manifest.parquet").unlink()
    (recorded / name).unlink(missing_ok=True)
    os.mkfifo(recorded / name)
    ended = [command(what, recorded) for what in ("info", "cat", "runs", "recover")]
    assert any(end.returncode for end in ended)
    for end in ended:
        assert end.returncode == 0 or "is not a regular file" in end.stderr, end.stderr


@pytest.mark.parametrize("name", ["_capture.json", "_capture/0000000000.parquet"])
def test_a_file_that_is_far_too_large_is_not_read(recorded, name):
    if name == "_capture.json":
        (recorded / "_capture/manifest.parquet").unlink()
    with (recorded / name).open("wb") as file:
        file.truncate(1 << 40)
    said = in_vain(recorded)
    assert said
    assert all("is larger than the" in words for words in said)


@pytest.mark.parametrize(
    ("field", "number"),
    [
        ("next_seq", (1 << 63) - 1),
        ("next_segment", 1 << 63),
        ("next_segment", (1 << 64) - 1),
        ("capture_id", "x" * 65),
        ("capture_id", "\x1b[2J"),
    ],
)
def test_numbers_nobody_counts_to_are_refused_when_they_are_read(recorded, field, number):
    (recorded / "_capture/manifest.parquet").unlink()
    manifest = {"version": 1, "capture_id": "id", "next_segment": 1, "next_seq": 3, field: number}
    (recorded / "_capture.json").write_text(json.dumps(manifest))
    said = in_vain(recorded)
    assert len(said) >= 3
    assert all("is missing or invalid" in words for words in said)


@pytest.mark.parametrize(
    "name", ["18446744073709551615.parquet", "9223372036854775808.parquet", "00000000000.parquet", "_runs/+5.jsonl"]
)
def test_a_name_that_is_not_written_as_ours_is_nothing(recorded, name):
    (recorded / "_runs").mkdir()
    (recorded / name).write_bytes((recorded / "0000000000.parquet").read_bytes())
    assert capture.recover(recorded).rows == 0
    assert len(capture.open(recorded).runs()) == 1
    assert capture.open(recorded).info().messages == 3
    cdtp.Recorder(recorded, bind=ANY).close()


def test_removing_the_lock_lets_nobody_in(recorded):
    with cdtp.Recorder(recorded, bind=ANY):
        (recorded / ".lock").unlink()
        with pytest.raises(CaptureError, match="is being written"):
            cdtp.Recorder(recorded, bind=ANY)


# What is read in a process of its own: an abort ends that alone.
READ = """
import logging, sys
# That none of the rows is of a protocol is a warning, and no refusal.
logging.disable()
from trunkline import capture
from trunkline.errors import CaptureError

def decode(path):
    for batch in capture.open(path).decode("cdtp"):
        batch.validate(full=True)

ways = [
    lambda path: capture.open(path).info(),
    lambda path: list(capture.open(path).rows()),
    lambda path: list(capture.open(path)),
    lambda path: capture.open(path).runs(),
    lambda path: capture.open(path).read_all(),
    decode,
    capture.recover,
]
refused = 0
for path in sys.argv[1:]:
    for way in ways:
        try:
            way(path)
        except CaptureError:
            refused += 1
print(refused)
"""


def refusals(paths):
    """How often the readers of these captures say that they are none, which is all they may say."""
    read = subprocess.run(
        [sys.executable, "-c", READ, *paths], capture_output=True, text=True, timeout=500, check=False
    )
    assert (read.returncode, read.stderr) == (0, ""), read.stderr[-3000:]
    return int(read.stdout)


def laid_down(path, name, contents):
    path.mkdir()
    (path / name).write_bytes(contents)
    return path


def journal_records(journal):
    at = 0
    while at < len(journal):
        (length,) = struct.unpack_from("<I", journal, at)
        yield journal[at + 8 : at + 8 + length]
        at += 8 + length


def as_journal(records):
    def record(contents):
        length = struct.pack("<I", len(contents))
        return length + struct.pack("<I", zlib.crc32(length + contents)) + contents

    return b"".join(map(record, records))


@pytest.fixture
def journal(record, tmp_path):
    """The records of a journal: its header, and a batch."""
    recorder = record(messages())
    recorder.flush(timeout_s=20)
    (file,) = tmp_path.glob(".*.journal")
    return list(journal_records(file.read_bytes()))


def test_lengths_in_a_journal_are_not_believed(journal, tmp_path):
    header, batch = journal
    spoilt = []
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(batch)):
        metadata = message.metadata.to_pybytes()
        assert metadata in batch
        for number in {message.body.size, 3} if message.body else ():
            claimed = metadata.replace(struct.pack("<q", number), struct.pack("<q", HUGE))
            assert claimed != metadata
            spoilt.append(batch.replace(metadata, claimed))
    paths = [
        laid_down(tmp_path / str(number), ".0000000000.journal", as_journal([header, record]))
        for number, record in enumerate(spoilt)
    ]
    # All readers refuse each, `recover` too.
    assert refusals(paths) == 7 * len(paths) > 7


def test_a_journal_with_any_bytes_changed_is_read_or_refused(journal, tmp_path):
    header, batch = journal
    dice = random.Random(11)
    paths = []
    for number in range(60):
        spoilt = bytearray(batch)
        for _ in range(dice.randint(1, 8)):
            spoilt[dice.randrange(len(spoilt))] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)])
        paths.append(laid_down(tmp_path / str(number), ".0000000000.journal", as_journal([header, spoilt])))
    assert refusals(paths) > 60


def test_a_segment_with_any_bytes_of_its_footer_changed_is_read_or_refused(recorded, tmp_path):
    segment = (recorded / "0000000000.parquet").read_bytes()
    (footer,) = struct.unpack("<I", segment[-8:-4])
    dice = random.Random(11)
    paths = []
    for number in range(150):
        spoilt = bytearray(segment)
        for _ in range(dice.randint(1, 3)):
            at = dice.randrange(len(segment) - 8 - footer, len(segment) - 8)
            spoilt[at] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)])
        paths.append(laid_down(tmp_path / str(number), "0000000000.parquet", spoilt))
    assert refusals(paths) > 60


# Fields of a struct in Thrift's compact protocol, with ids that Parquet has not: lists of 2^31 - 1 booleans, for which its
# reader counts though there is not a byte of them.
ENDLESS = (b"\x09\x80\x07\xf1" + b"\xff" * 4 + b"\x07") * 1000


def test_a_footer_that_takes_for_ever_is_refused(recorded, tmp_path):
    segment = (recorded / "0000000000.parquet").read_bytes()
    (length,) = struct.unpack("<I", segment[-8:-4])
    footer = segment[-8 - length : -9] + ENDLESS + b"\x00"
    spoilt = segment[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1"
    assert refusals([laid_down(tmp_path / "endless", "0000000000.parquet", spoilt)]) > 0


def crafted(recorded, n_rows, n_bytes, names):
    """Puts a segment into a capture, of many rows that all have the same long value in some columns. Gives its path."""
    path = recorded / "0000000000.parquet"
    table, columns = pq.read_table(path).slice(0, 1), {}
    for name in table.column_names:
        values = table[name].combine_chunks()
        if name in names:
            made = b"z" * n_bytes if pa.types.is_binary(values.type) else "z" * n_bytes
            long = pa.array([made], values.type)
            columns[name] = pa.DictionaryArray.from_arrays(pa.array([0] * n_rows, pa.int32()), long)
        else:
            columns[name] = pa.concat_arrays([values] * n_rows)
    columns["seq"] = pa.array(range(n_rows), pa.int64())
    said = pq.read_metadata(path).metadata
    rows = pa.table(columns)
    rows = rows.replace_schema_metadata({key: said[key] for key in said if key.startswith(b"trunkline.")})
    options = {"store_schema": False, "compression": "zstd", "dictionary_pagesize_limit": 1 << 30}
    with pq.ParquetWriter(recorded.parent / "crafted", rows.schema, **options) as writer:
        writer.write_table(rows)
    path.write_bytes((recorded.parent / "crafted").read_bytes())
    return path


PEAK = "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM:')).split()[1])"


def peak_mib(path, work):
    """What a process of its own needs to read a capture, which may fail to."""
    code = f"from trunkline import capture, errors\ntry:\n    {work}\nexcept errors.CaptureError:\n    pass\n{PEAK}"
    ended = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=300, check=True)
    return int(ended.stdout) / 1024


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize(
    "work",
    [
        "[len(batch) for batch in capture.open(__import__('sys').argv[1]).reader()]",
        "[0 for _ in capture.open(__import__('sys').argv[1]).rows()]",
        "capture.verify(__import__('sys').argv[1])",
        "capture.open(__import__('sys').argv[1]).runs()",
    ],
    ids=["reader", "rows", "verify", "runs"],
)
def test_one_value_for_many_rows_is_not_made_for_all_of_them_at_a_time(recorded, work):
    """A few kilobytes of a dictionary, and rows that point there."""
    path = crafted(recorded, 8000, 190_000, ("topic", "reply_to", "endpoint", "peer", "header"))
    assert path.stat().st_size < 1 << 20
    assert peak_mib(recorded, work) < 1200


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_huge_name_of_a_protocol_is_not_read_to_warn_of_other_protocols(recorded):
    """What Spark's `decode` looks at before there is a plan, in the process of the user."""
    pytest.importorskip("pyspark")
    path = crafted(recorded, 10, 300_000_000, ("protocol",))
    assert path.stat().st_size < 1 << 20
    files = [path.as_uri()]
    work = f"from trunkline.spark import _paths; _paths.warn_unless_recorded({files}, 'dcp')"
    assert peak_mib(recorded, work) < 400


COMMANDS = {
    "cat": ["cat", "{path}", "--head", "1500"],
    "where": ["cat", "{path}", "--where", "type = 'EOR'"],
    "decode": ["decode", "{path}", "{out}.parquet"],
    "export": ["export", "{path}", "{out}.jsonl"],
}

RUN = """
import resource, subprocess, sys
code = subprocess.run([sys.executable, "-m", "trunkline", "capture", *sys.argv[1:]], stdout=subprocess.DEVNULL).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="units of ru_maxrss")
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_keep_within_bounds_of_rows_that_lie_about_their_size(recorded, tmp_path_factory, name):
    crafted(recorded, 1500, 1_000_000, ("topic", "endpoint"))
    out = tmp_path_factory.mktemp("out") / "out"
    arguments = [part.format(path=recorded, out=out) for part in COMMANDS[name]]
    ended = subprocess.run(
        [sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, timeout=300, check=True
    )
    code, kib = map(int, ended.stdout.split())
    assert (code, ended.stderr.count("error")) == (0, 0), ended.stderr
    assert kib < 900 << 10


@pytest.mark.parametrize("column", ["topic", "header", "peer"])
def test_a_value_that_is_larger_than_a_reader_takes_is_refused(recorded, tmp_path, column):
    crafted(recorded, 2, 20_000_000, (column,))
    assert len(list(capture.open(recorded, max_message_bytes=20_000_000).rows())) == 2
    opened = capture.open(recorded, max_message_bytes=19_999_999)
    words = r"0000000000\.parquet: a value may have 2\d{7} bytes, more than 19999999: set max_message_bytes= to read it"
    readers = [opened.rows, opened.messages, lambda: opened, lambda: map(len, opened.chosen())]
    for read in readers[:1] + readers[2:]:
        with pytest.raises(CaptureError, match=words):
            list(read())
    with pytest.raises(CaptureError, match=words):
        opened.read_all()
    if column == "topic":
        return
    with pytest.raises(CaptureError, match=words):
        capture.export(opened, tmp_path / "out.csv", payload=True) if column == "header" else list(opened)


def test_a_value_that_stands_for_more_than_a_batch_is_not_made(recorded):
    """It is known by its page."""
    crafted(recorded, 1, 600_000_000, ("header",))
    read = "list(capture.open(__import__('sys').argv[1], max_message_bytes=1 << 20).rows())"
    assert peak_mib(recorded, read) < 300


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_verification_that_takes_long(recorded, number):
    """Two terabytes of values."""
    crafted(recorded, 100_000, 20_000_000, ("topic",))
    run = [sys.executable, "-m", "trunkline", "capture", "verify", os.fspath(recorded)]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        sent = time.monotonic()
        process.send_signal(number)
        assert process.wait(20) == 130
        assert time.monotonic() - sent < 1


def test_a_segment_without_an_end_is_not_read_to_it(recorded):
    """Its bytes take no room on the disk, and days to read."""
    with (recorded / "0000000000.parquet").open("r+b") as file:
        file.truncate(1 << 42)
    (problem, *_) = capture.verify(recorded).problems
    assert "is not as it was published: 4398046511104 bytes" in problem.what
    assert capture.recover(recorded).damaged == (0,)


def test_a_report_does_not_wait_for_the_other_end_of_a_pipe(recorded):
    (recorded / "0000000000.parquet").unlink()
    os.mkfifo(recorded / "0000000000.parquet")
    ended = command("report", recorded, recorded.parent / "report.html")
    assert ended.returncode == 1
    assert "is not a regular file" in ended.stderr


def test_sizes_that_add_up_to_more_than_a_number_holds_are_counted_as_far_as_it_goes(recorded, journal, tmp_path):
    most = pa.array([(1 << 63) - 1] * 3, pa.int64())

    def claiming(table):
        return table.set_column(table.schema.get_field_index("n_bytes"), "n_bytes", most)

    segments = laid_down(tmp_path / "segments", "0000000000.parquet", b"")
    pq.write_table(
        claiming(pq.read_table(recorded / "0000000000.parquet")), segments / "0000000000.parquet", compression="none"
    )
    header, batch = journal
    sink = pa.BufferOutputStream()
    table = claiming(pa.ipc.open_stream(batch).read_all())
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    journals = laid_down(
        tmp_path / "journals", ".0000000001.journal", as_journal([header, sink.getvalue().to_pybytes()])
    )
    assert refusals([segments]) == 0
    assert capture.open(segments).info().bytes == (1 << 64) - 1
    assert refusals([journals]) == 0
    assert capture.open(journals).info().messages == 3


def test_a_map_that_is_none_is_left_out_of_its_run(recorded):
    boundary = {"segment": 0, "seq": 0, "map": "wcHB"}
    counts = ("ordinal", "first_seq", "messages", "bytes", "missed", "duplicates", "out_of_order")
    run = {
        "sender": "Det",
        "over": False,
        "bor": boundary,
        "eor": boundary,
        "goes_on": False,
        **dict.fromkeys(counts, 0),
    }
    run |= {"first_received_at_ns": 0, "last_received_at_ns": 0}
    (recorded / "_capture/0000000000.parquet").unlink()
    (recorded / "_runs").mkdir()
    (recorded / "_runs/0000000000.jsonl").write_text('{"version": 1, "segment": 0}\n' + json.dumps(run) + "\n")
    (found,) = capture.open(recorded).runs()
    assert (found.config, found.metadata, found.bor_seq) == (None, None, 0)

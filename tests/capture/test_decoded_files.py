"""Messages decoded once, beside the segments of a capture."""

import json
import math
import os
import random
import signal
import struct
import subprocess
import sys

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from peers.capturing import command
from peers.commands import release
from peers.decoded_files import alter
from peers.recorded import write
from trunkline import capture, cdtp
from trunkline.capture.exporting import prunable
from trunkline.errors import CaptureError, LocalProtocolError

# Large enough that the middle of a segment is in no stamp.
PAYLOADS = random.Random(1)
ROWS = 300


def add(directory, **more):
    """Adds a segment of messages of three senders, the tags of which differ."""
    messages = [
        release(
            f"Det{at % 3}", at % 2, at, PAYLOADS.randbytes(2000), tags={"run": at, "label": f"a{at}", "raw": b"\x01"}
        )
        for at in range(ROWS)
    ]
    capture.import_(write(directory.parent / "lines.jsonl", messages), directory, **more)


@pytest.fixture
def recorded(tmp_path):
    """A capture of two segments."""
    add(tmp_path / "capture")
    add(tmp_path / "capture")
    return tmp_path / "capture"


def spoil(directory):
    """Makes the frames of all segments unreadable, so that only decoded files have the messages."""
    for segment in capture.open(directory).segments:
        with segment.open("r+b") as file:
            file.seek(1000)
            file.write(bytes(segment.stat().st_size - 1000 - (64 << 10)))


def decode(directory, protocol="cdtp", where=None, *, selection=None, **options):
    chosen = capture.Selection(where=where, **(selection or {})) if where or selection else None
    return capture.open(directory).decode(protocol, selection=chosen, **options).read_all()


def files(directory, protocol="cdtp"):
    return sorted(file.name for file in (directory / "_decoded" / protocol).iterdir())


def test_readers_take_what_was_decoded(recorded):
    before = decode(recorded)
    done = capture.compact(recorded, decode={"cdtp": {"tags": "json"}})
    assert done.decoded == capture.DecodedFiles(written=1, messages=2 * ROWS)
    assert files(recorded) == ["0000000000-0000000001.parquet"]
    spoil(recorded)
    after = decode(recorded)
    assert after.schema == before.schema
    assert after == before
    with pytest.raises(CaptureError, match="parquet"):
        list(capture.open(recorded).rows())
    assert capture.compact(recorded, decode={}).decoded == capture.DecodedFiles()


def test_tables_are_folded_of_what_was_decoded(recorded):
    opened = capture.open(recorded)
    before = opened.gaps().read_all()
    assert before.num_rows > 0
    selection = capture.Selection(where="sequence > 10")
    selected = opened.gaps(selection).read_all()
    assert 0 < selected.num_rows < before.num_rows
    capture.compact(recorded, decode={"cdtp": {}})
    spoil(recorded)
    assert capture.open(recorded).gaps().read_all() == before
    assert capture.open(recorded).gaps(selection).read_all() == selected


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("payload_t > 1e15", ROWS),
        ("payload_t >= 1152921504606846976.0", ROWS),
        ("received_at_ns > 1.6e18 and seq >= 2.5", ROWS - 3),
    ],
)
def test_large_integers_are_compared_with_floats(tmp_path, where, rows):
    """Arrow's reader of files refuses integers that no double equals."""
    messages = [release("Det", 0, at, struct.pack("<Q", 2**60 + at)) for at in range(ROWS)]
    capture.import_(write(tmp_path / "lines.jsonl", messages), tmp_path / "run")
    asked = {"payload": "t u64", "tags": None}
    before = decode(tmp_path / "run", where=where, **asked)
    assert before.num_rows == rows
    capture.compact(tmp_path / "run", decode={"cdtp": asked})
    assert decode(tmp_path / "run", where=where, **asked) == before


ASKED = [
    {"tags": "json"},
    {"tags": None},
    {"columns": ["seq", "sender"]},
    {"columns": ["received_at"]},
    {"columns": ["tag_run"], "tags": {"run": "BIGINT"}},
    {"mode": "FAILFAST"},
    {"mode": "DROPMALFORMED"},
    {"payload": True},
    {"payload": True, "tags": {"label": "string", "run": "bigint"}},
]
WHERE = [
    "sender = 'Det1'",
    "sequence > 10 and seq < 400",
    "sequence > 9223372036854775808",
    "sequence != 1.5",
    "type = 'DAT' or sender like 'Det%'",
    "not (sender in ('Det1', 'Det2'))",
    "tags.run = 3",
    "tags.run::bigint between 3 and 9",
    "tags.run > 9007199254740993",
    "tags.label = 'a4'",
    "tags.run = 3 and tags.run::string is null",
    "error is null",
    "received_at > '2020-01-01'",
    "timestamp > '2020-01-01T00:00:00'",
    "1 = 1",
    "1 = 2",
    "direction = 'in'",
    "tags.raw = 0x01",
]
SELECTED = [
    {"sender": "Det1"},
    {"sender": "Det1", "run": 1},
    {"type": "dat"},
    {"since_ns": 0},
    {"until_ns": 5},
    {"direction": "out"},
]


@pytest.mark.parametrize(
    "decoded",
    [
        {"tags": "json"},
        {"tags": "variant", "payload": True},
        {"tags": {"run": "bigint", "label": "string", "*": "json"}, "payload": True},
    ],
    ids=["json", "variant", "typed"],
)
def test_the_same_comes_from_both(recorded, decoded):
    questions = [{**asked, "where": where} for asked in ASKED for where in (None, *WHERE)]
    questions += [{"selection": selection} for selection in SELECTED]
    before = [decode(recorded, **question) for question in questions]
    capture.compact(recorded, target_bytes=1, decode={"cdtp": decoded})
    assert len(files(recorded)) == 2
    for question, table in zip(questions, before, strict=True):
        after = decode(recorded, **question)
        assert after.schema == table.schema, question
        assert after == table, question


def test_conditions_are_decided_by_decoded_columns(recorded):
    typed = {"tags": {"run": "bigint"}}
    wanted = [(where, decode(recorded, where=where, **typed)) for where in ("sender = 'Det1'", "tags.run::bigint = 7")]
    capture.compact(recorded, decode={"cdtp": typed})
    spoil(recorded)
    for where, table in wanted:
        assert 0 < len(table) < ROWS
        assert decode(recorded, where=where, **typed) == table
    # What is not in them is decoded.
    for asked in ({"where": "tags.label = 'a4'"}, {"payload": True}, {"tags": "json"}, {"selection": {"peer": b"x"}}):
        with pytest.raises(CaptureError):
            decode(recorded, **(typed | asked))


def test_payloads_are_read_by_the_same_layout_alone(recorded):
    asked = [{"payload": layout, "tags": None} for layout in ("head u32, rest bytes", "adc u16[]", "n u8", True, False)]
    before = [decode(recorded, **options) for options in asked]
    capture.compact(recorded, decode={"cdtp": {"payload": "adc  u16[]", "tags": None}})
    assert [decode(recorded, **options) for options in asked] == before
    spoil(recorded)
    assert decode(recorded, **asked[1]) == before[1]
    for other in (asked[0], asked[4]):
        with pytest.raises(CaptureError):
            decode(recorded, **other)


def test_malformed_messages_are_as_the_mode_says(tmp_path):
    directory = tmp_path / "capture"
    capture.import_(write(tmp_path / "lines.jsonl", [release("Det", 0, 1, b"x"), [b"\xff", b"y"]]), directory)
    before = decode(directory)
    assert before["error"].null_count == 1
    capture.compact(directory, decode={"cdtp": {"tags": "json"}})
    assert decode(directory) == before
    assert len(decode(directory, mode="DROPMALFORMED")) == 1
    with pytest.raises(Exception, match="row 1"):
        decode(directory, mode="FAILFAST")


def test_values_of_another_type_are_counted_as_before(recorded, caplog):
    asked = {"tags": {"label": "bigint"}}
    capture.compact(recorded, decode={"cdtp": asked})
    assert decode(recorded, **asked)["tag_label"].null_count == 2 * ROWS
    assert "values of another type than requested" in caplog.text


def test_a_file_of_another_segment_is_not_read(recorded, tmp_path):
    capture.compact(recorded, decode={"cdtp": {"tags": "json"}})
    other = tmp_path / "other"
    capture.import_(write(tmp_path / "lines.jsonl", [release("Other", 0, 1, b"x")]), other)
    (segment,) = capture.open(recorded).segments
    segment.write_bytes(next(iter(capture.open(other).segments)).read_bytes())
    assert decode(recorded)["sender"].to_pylist() == ["Other"]


def test_files_of_merged_and_deleted_segments_are_removed(recorded):
    decoded = {"cdtp": {"tags": "json"}}
    capture.compact(recorded, target_bytes=1, decode=decoded)
    assert files(recorded) == ["0000000000.parquet", "0000000001.parquet"]
    (recorded / "_decoded" / "cdtp" / ".0123456789abcdef.999999999.part").write_text("of a process that was killed")
    done = capture.compact(recorded, decode=decoded)
    assert done.decoded == capture.DecodedFiles(written=1, messages=2 * ROWS, removed=2)
    assert files(recorded) == ["0000000000-0000000001.parquet"]
    # Other options, another file.
    assert capture.compact(recorded, decode={"cdtp": {"tags": None}}).decoded.written == 1
    assert capture.compact(recorded, decode={"cdtp": {"tags": None}}).decoded.written == 0


def test_what_is_decoded_in_another_way_has_another_name(recorded):
    """Spark reads a file by its name, long after it has looked at its columns."""
    capture.compact(recorded, decode={"cdtp": {"tags": "json"}})
    folder = recorded / "_decoded" / "cdtp"
    first = (folder / "0000000000-0000000001.parquet").read_bytes()
    for number, tags in enumerate([None, {"run": "bigint"}, "json"], 2):
        done = capture.compact(recorded, decode={"cdtp": {"tags": tags}}).decoded
        assert (done.written, done.messages, files(recorded)) == (
            1,
            2 * ROWS,
            [f"0000000000-0000000001.{number}.parquet"],
        )
        assert capture.compact(recorded, decode={"cdtp": {"tags": tags}}).decoded.written == 0
    expected = decode(recorded, tags="json")
    assert capture.verify(recorded).problems == ()
    spoil(recorded)
    # As it is left by one that was killed.
    (folder / "0000000000-0000000001.parquet").write_bytes(first[:100])
    assert decode(recorded, tags="json").equals(expected)
    assert capture.compact(recorded, decode={"cdtp": {"tags": "json"}}).decoded == capture.DecodedFiles(removed=1)
    assert files(recorded) == ["0000000000-0000000001.4.parquet"]


NAN_TAGS = [{"x": 1.0}, {"x": math.nan}, {"x": 3.0}, {}]


@pytest.fixture
def with_nan(tmp_path):
    """A capture of numbers, among which is one that is none."""
    messages = [release("Det", 0, at, b"x", tags=tags) for at, tags in enumerate(NAN_TAGS)]
    capture.import_(write(tmp_path / "lines.jsonl", messages), tmp_path / "capture")
    return tmp_path / "capture"


def decoded_file(directory):
    capture.compact(directory, decode={"cdtp": {"tags": {"x": "double", "*": "json"}}})
    return directory / "_decoded" / "cdtp" / "0000000000.parquet"


def exported_file(directory):
    capture.export(directory, directory.parent / "table.parquet", protocol="cdtp", tags={"x": "double", "*": "json"})
    return directory.parent / "table.parquet"


@pytest.mark.parametrize("write_file", [decoded_file, exported_file])
def test_statistics_leave_out_no_number(with_nan, write_file):
    """To DuckDB and Spark NaN is the largest: by statistics without it they would skip what a condition holds for."""
    file = write_file(with_nan)
    above = duckdb.sql(f"select sequence from '{file}' where tag_x > 5").fetchall()
    assert [sequence for (sequence,) in above] == [1]
    [group] = [parquet.read_metadata(file).row_group(0)]
    columns = [group.column(at) for at in range(group.num_columns)]
    assert {column.path_in_schema for column in columns if not column.is_stats_set} == {"tag_x"}
    assert {column.path_in_schema for column in columns if not column.has_dictionary_page} >= {"tag_x"}


def test_a_name_with_a_dot_gives_no_statistics_to_another_column():
    inner = pa.struct([pa.field("y", pa.float64())])
    table = pa.table({"x": pa.array([{"y": math.nan}], inner), "x.y": pa.array([1], pa.int8()), "z": [1]})
    assert prunable(table.schema) == ["z"]


def test_what_cannot_be_removed_is_named(recorded):
    capture.compact(recorded, decode={"cdtp": {}})
    folder = recorded / "_decoded" / "cdtp" / "old.parquet"
    folder.mkdir()
    with pytest.raises(CaptureError, match=f"{folder}: cannot be removed: .*; remove it"):
        capture.compact(recorded, decode={"cdtp": {}})


def test_columns_in_columns_have_statistics_but_for_numbers_that_may_be_nan(tmp_path):
    inner = pa.struct([pa.field("f", pa.float32()), pa.field("i", pa.int8())])
    kinds = {
        "a.b": pa.list_(inner),
        "m": pa.map_(pa.string(), pa.float64()),
        "l": pa.list_(pa.int64(), 1),
        "h": pa.float16(),
    }
    values = {"a.b": [{"f": 1.0, "i": 1}], "m": [("k", 1.0)], "l": [1], "h": np.float16(1)}
    table = pa.table({name: pa.array([values[name]], kind) for name, kind in kinds.items()})
    parquet.write_table(table, tmp_path / "t.parquet", write_statistics=prunable(table.schema))
    group = parquet.read_metadata(tmp_path / "t.parquet").row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    paths = [column.path_in_schema for column in columns if column.is_stats_set]
    assert paths == ["a.b.list.element.i", "m.key_value.key", "l.list.element"]


def test_verify_compares(recorded):
    capture.compact(recorded, decode={"cdtp": {"tags": {"run": "double"}}})
    assert capture.verify(recorded).problems == ()
    (file,) = (recorded / "_decoded" / "cdtp").iterdir()
    alter(file, "sender", "Changed")
    (problem,) = capture.verify(recorded).problems
    assert (problem.path, problem.what) == (file, "is not what its segment decodes to")
    done = command("verify", recorded)
    assert (done.returncode, f"{file}: is not what its segment decodes to" in done.stdout) == (1, True)
    file.write_bytes(file.read_bytes()[:-100])
    (problem,) = capture.verify(recorded).problems
    assert problem.what.startswith("cannot be read")


def test_a_damaged_file_is_named(recorded):
    capture.compact(recorded, decode={"cdtp": {"tags": "json"}})
    (file,) = (recorded / "_decoded" / "cdtp").iterdir()
    content = bytearray(file.read_bytes())
    content[100:200] = bytes(100)
    file.write_bytes(content)
    with pytest.raises(CaptureError, match="delete it, and its segment is decoded instead"):
        decode(recorded)
    file.unlink()
    assert len(decode(recorded)) == 2 * ROWS


def test_a_low_limit_of_values_holds(recorded):
    capture.compact(recorded, decode={"cdtp": {"tags": "json", "payload": True}})
    with pytest.raises(CaptureError, match="more than 100:"):
        capture.open(recorded, max_message_bytes=100).decode("cdtp", payload=True).read_all()


def test_decoded_files_are_as_private_as_segments(tmp_path):
    add(tmp_path / "capture", private=True)
    capture.compact(tmp_path / "capture", decode={"cdtp": {}})
    (file,) = (tmp_path / "capture" / "_decoded" / "cdtp").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_any_engine_reads_them(recorded):
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    capture.compact(recorded, decode={"cdtp": {"tags": {"run": "bigint"}}})
    folder = recorded / "_decoded" / "cdtp"
    assert polars.read_parquet(folder)["tag_run"].to_list() == [*range(ROWS)] * 2
    counts = duckdb.sql(f"select sender, count(*) from read_parquet('{folder}/*.parquet') group by 1 order by 1")
    assert counts.fetchall() == [(f"Det{at}", 2 * ROWS // 3) for at in range(3)]
    assert polars.read_parquet(f"{recorded}/*.parquet")["seq"].to_list() == list(range(2 * ROWS))


@pytest.mark.parametrize(
    ("decoded", "error"),
    [
        ({"http": {}}, ValueError),
        ({"cdtp": {"tag": "json"}}, TypeError),
        ({"cdtp": {"tags": {"run": "bigit"}}}, LocalProtocolError),
        ({"dcp": {"tags": "json"}}, LocalProtocolError),
    ],
)
def test_what_cannot_be_decoded_is_refused_before_anything_is_done(recorded, decoded, error):
    with pytest.raises(error):
        capture.compact(recorded, decode=decoded)
    assert len(capture.open(recorded).segments) == 2


def test_the_command_decodes(recorded):
    done = command("compact", recorded, "--decode", "cdtp,mc0", "--tags", "run=bigint")
    assert done.stdout.splitlines()[0].startswith("2 segments merged into 1")
    assert done.stdout.splitlines()[1] == f"{2 * ROWS} messages decoded into 2 files"
    assert (files(recorded), files(recorded, "mc0")) == (["0000000000-0000000001.parquet"],) * 2
    done = command("compact", recorded, "--decode", "cdtp", "--json")
    (event,) = map(json.loads, done.stdout.splitlines())
    assert event["decoded"] == {"written": 1, "messages": 2 * ROWS, "removed": 0}
    for wrong, said in (
        (["--decode", "mcO"], "did you mean 'mc0'"),
        (["--tags", "json"], "--tags is for --decode"),
        (["--decode", "dcp", "--tags", "json"], "--tags is for --decode with a protocol that has tags"),
        (["--watch"], "--watch is for --decode"),
    ):
        done = command("compact", recorded, *wrong)
        assert done.returncode == 2
        assert said in " ".join(done.stderr.replace("│", " ").split())


def test_watching_keeps_up_with_a_recorder(tmp_path):
    directory = tmp_path / "capture"
    with cdtp.Recorder(directory, bind="tcp://127.0.0.1:*", segment_s=0.05) as recorder:
        arguments = [
            sys.executable,
            "-m",
            "trunkline",
            "capture",
            "compact",
            directory,
            "--decode",
            "cdtp",
            "--watch",
            "--json",
        ]
        with (
            cdtp.Sender("Det", connect=recorder.endpoints) as sender,
            subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as watching,
        ):
            assert json.loads(watching.stdout.readline())["event"] == "ready"
            messages = 0
            for _ in range(2):
                for _ in range(10):
                    sender.send(b"x")
                while (event := json.loads(watching.stdout.readline()))["messages"] < 10:
                    messages += event["messages"]
                messages += event["messages"]
            assert messages == 20
            watching.send_signal(signal.SIGINT)
            last = json.loads(watching.stdout.readlines()[-1])
            assert (last["event"], last["stats"]["messages"]) == ("stopped", 20)
            assert watching.wait(20) == 0


# What follows the numbers, so that a segment is large.
REST = "pad[40000]"


@pytest.fixture
def numbers(tmp_path):
    """A capture whose payloads are doubles, one of them NaN."""
    messages = [
        release("Det", 0, at, struct.pack("<d", value) + PAYLOADS.randbytes(40_000), tags={"run": at, "gain": value})
        for at, value in enumerate([1.0, math.nan, 2.0])
    ]
    capture.import_(write(tmp_path / "lines.jsonl", messages), tmp_path / "capture")
    return tmp_path / "capture"


@pytest.mark.parametrize(
    "where",
    [
        "not payload_x >= 0",
        "not payload_x between 0 and 5",
        "payload_x <> 1",
        "payload_x > 1",
        "not tags.gain::double >= 0",
        "tags.gain < 2 or payload_x = 2",
    ],
)
def test_no_number_is_as_in_the_segment(numbers, where):
    options = {"payload": f"x f64, {REST}", "tags": {"run": "bigint", "gain": "double"}, "columns": ["sequence"]}
    before = decode(numbers, where=where, **options)
    capture.compact(
        numbers, decode={"cdtp": {"payload": f"x f64, {REST}", "tags": {"run": "bigint", "gain": "double"}}}
    )
    spoil(numbers)
    assert decode(numbers, where=where, **options) == before


@pytest.mark.parametrize("layout", ["x f64", "x f32[2]", "x f16[4]", "s (x f32, y f32)"])
def test_verify_takes_tags_in_any_order_and_no_numbers(numbers, layout):
    decode_as = {"cdtp": {"tags": {"run": "bigint", "gain": "double"}, "payload": f"{layout}, {REST}"}}
    capture.compact(numbers, decode=decode_as)
    assert capture.verify(numbers).problems == ()


@pytest.mark.parametrize("option", [{"mode": "DROPMALFORMED"}, {"types": "spark"}])
def test_options_of_readers_are_refused(recorded, option):
    with pytest.raises(LocalProtocolError, match=f"cdtp has {next(iter(option))}, which is for readers"):
        capture.compact(recorded, decode={"cdtp": option})


def test_types_may_be_those_of_spark(recorded):
    types = pytest.importorskip("pyspark.sql.types")
    before = decode(recorded, tags={"run": types.LongType()})
    capture.compact(recorded, decode={"cdtp": {"tags": {"run": "bigint"}}})
    spoil(recorded)
    assert decode(recorded, tags={"run": types.LongType()}) == before


@pytest.mark.parametrize("what", ["fifo", "link", "folder", "linked folder"])
def test_what_is_no_file_is_not_read(recorded, tmp_path, what):
    before = decode(recorded)
    capture.compact(recorded, decode={"cdtp": {"tags": "json"}})
    folder = recorded / "_decoded" / "cdtp"
    [file] = folder.iterdir()
    if what == "linked folder":
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        file.rename(tmp_path / file.name)
    if what == "fifo":
        os.mkfifo(file)
    elif what == "link":
        file.symlink_to(tmp_path / file.name)
    elif what == "folder":
        file.mkdir()
    assert decode(recorded) == before
    capture.verify(recorded)

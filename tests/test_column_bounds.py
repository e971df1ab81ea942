"""What bounds the columns that are made of messages, and the memory that takes."""

import subprocess
import sys

import pyarrow as pa
import pytest

from peers import cdtp as wire
from peers import large
from trunkline import capture, cdtp, columns
from trunkline.errors import DecodeError

BATCH_BYTES = 64 << 20
GOOD = wire.header_b(7)


@pytest.fixture
def recorded(tmp_path):
    def record(*headers):
        recorder = cdtp.Recorder(tmp_path / "capture", bind="tcp://127.0.0.1:*")
        with recorder:
            wire.send_all(recorder.endpoints[0], [large.frames(header) for header in headers])
            recorder.wait(count=len(headers), timeout_s=60)
        return capture.open(tmp_path / "capture")

    return record


def test_a_capture_gives_more_and_smaller_batches(recorded):
    reader = recorded(GOOD, large.MANY_BATCHES, GOOD).decode("cdtp")
    rows, records, seqs, batches = 0, [], [], 0
    for batch in reader:
        batches += 1
        assert batch.nbytes <= BATCH_BYTES + 1_000_000
        rows += batch.num_rows
        records += batch["record"].to_pylist()
        seqs += batch["seq"].to_pylist()
    assert batches >= 3
    assert rows == large.RECORDS + 2
    assert records == [0, *range(large.RECORDS), 0]
    assert seqs == [0, *[1] * large.RECORDS, 2]


def test_a_message_that_no_column_holds_is_a_row_that_says_so(recorded):
    opened = recorded(GOOD, large.TOO_LARGE, b"junk", GOOD)
    found = opened.decode("cdtp").read_all()
    assert found["error"].to_pylist() == [None, "message_too_large", "bad_header", None]
    assert found["sender"].to_pylist() == ["Det", None, None, "Det"]
    assert found["_corrupt_record"].to_pylist() == [None, None, b"junk", None]
    kept = opened.decode("cdtp", mode="DROPMALFORMED").read_all()
    assert kept["error"].to_pylist() == [None, "message_too_large", None]
    with pytest.raises(DecodeError, match="message_too_large") as raised:
        list(columns.Decoder("cdtp", mode="FAILFAST").decode_rows(header=pa.array([GOOD, large.TOO_LARGE])))
    assert raised.value.kind == "message_too_large"
    assert "row 1 of the batch" in raised.value.__notes__[0]
    assert "2 GiB" in raised.value.__notes__[0]


def test_a_column_function_has_room_for_more_as_it_repeats_no_name():
    structs = columns.Decoder("cdtp").decode_structs(header=pa.array([GOOD, large.TOO_LARGE]))
    assert structs.field("error").to_pylist() == [None, None]
    assert len(structs[1]["records"]) == 70_000


def test_a_long_message_is_as_good_as_others(recorded):
    found = recorded(wire.header_s("y" * 20_000_000), GOOD).decode("cdtp").read_all()
    assert [len(name) for name in found["sender"].to_pylist()] == [20_000_000, 3]


_MEASURE = """
import sys
import pyarrow as pa
from trunkline import cdtp, columns

kind, tags, times = sys.argv[1], eval(sys.argv[2]), int(sys.argv[3])
count = 16_000_000
member = {"nils": b"\\xc0", "maps": b"\\x80", "keys": b"\\x00\\xc0"}[kind]
head = b"\\xdf" if kind == "keys" else b"\\xdd"
value = head + (count // len(member)).to_bytes(4) + member * (count // len(member))
header = b"\\xa5CDTP\\x01\\xa1d\\x00\\x00\\x81\\xa1a" + value
decoder = columns.Decoder("cdtp", tags=tags)
list(decoder.decode_rows(header=pa.array([b"x"])))
headers = pa.array([header])

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")).split()[1]) * 1024

open("/proc/self/clear_refs", "w").write("5")
before = peak()
rows = [batch for _, batch in decoder.decode_rows(header=headers)]
grown = peak() - before
assert grown <= times * len(header), f"{grown / len(header):.1f} times the message"
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it takes /proc to ask for the most memory there was")
@pytest.mark.parametrize("kind", ["nils", "maps", "keys"])
@pytest.mark.parametrize(("tags", "times"), [("'variant'", 9), ("'json'", 27), ("{'a': 'bigint'}", 2)])
def test_tags_cost_a_small_multiple_of_their_bytes(kind, tags, times):
    subprocess.run([sys.executable, "-c", _MEASURE, kind, tags, str(times)], check=True, timeout=60)


_MEASURE_MC0 = """
import sys
import pyarrow as pa
from trunkline import columns

kind, times = sys.argv[1], int(sys.argv[2])
verb, *rest = {
    "topic": [b"PUT", b"TOPIC", b"\\xff" * 16_000_000],
    "header": [b"PUT", b"TOPIC", b"t", b"X-a", b"\\xff" * 16_000_000],
    "headers": [b"PUT", b"TOPIC", b"t", *(part for at in range(4990) for part in (b"X-%d" % at, bytes(3200)))],
    "equal headers": [b"PUT", b"TOPIC", b"t", *[b"X-a", bytes(3200)] * 4990],
    "topics": [b"SUB", b"", *[bytes(1600)] * 9990],
    "no message": [b"PUT", b"", bytes(16_000_000)],
}[kind]
decoder = columns.Decoder("mc0")

def column(frames):
    return pa.array([frames], pa.list_(pa.binary()))

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")).split()[1]) * 1024

list(decoder.decode_rows(envelope=column([]), header=pa.array([b"x"]), payload=column([])))
envelope, header, payload = column([]), pa.array([verb]), column(rest)
open("/proc/self/clear_refs", "w").write("5")
before = peak()
rows = [batch for _, batch in decoder.decode_rows(envelope=envelope, header=header, payload=payload)]
grown = peak() - before
given = sum(map(len, rest))
assert grown <= times * given, f"{grown / given:.1f} times the message"
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it takes /proc to ask for the most memory there was")
@pytest.mark.parametrize(
    ("kind", "times"),
    # A byte that is no text becomes three.
    [("topic", 4), ("header", 4), ("headers", 2), ("equal headers", 1), ("topics", 2), ("no message", 2)],
)
def test_texts_cost_a_small_multiple_of_their_bytes(kind, times):
    subprocess.run([sys.executable, "-c", _MEASURE_MC0, kind, str(times)], check=True, timeout=60)


_MEASURE_MTL = """
import sys
import pyarrow as pa
from trunkline import columns

kind, options, times = sys.argv[1], eval(sys.argv[2]), int(sys.argv[3])
# A table has a million values at most.
count = {"nils": 900_000, "tables": 4_500_000, "decimals": 5_400_000}.get(kind, 16_000_000)

def long(held):
    return len(held).to_bytes(4) + held

field = {
    "nils": lambda: b"A" + long(b"V" * count),
    "tables": lambda: b"A" + long(b"F\\0\\0\\0\\0" * (count // 5)),
    "decimals": lambda: b"A" + long(b"D\\x26\\0\\0\\0\\1" * (count // 6)),
    "no text": lambda: b"S" + long(b"\\xff" * count),
    "text": lambda: b"S" + long(b"\\0" * count),
}[kind]()
header = b"\\5" + bytes(8) + b"\\4jobs" + long(b"\\1a" + field)
decoder = columns.Decoder("mtl", **options)

def column(frames):
    return pa.array([frames], pa.list_(pa.binary()))

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")).split()[1]) * 1024

list(decoder.decode_rows(envelope=column([]), header=pa.array([b"x"]), payload=column([])))
envelope, header, payload = column([]), pa.array([header]), column([b""])
open("/proc/self/clear_refs", "w").write("5")
before = peak()
rows = [batch for _, batch in decoder.decode_rows(envelope=envelope, header=header, payload=payload)]
assert rows[0]["type"].to_pylist() == ["content"]
grown = peak() - before
# What a batch costs at least is more than a few small values do.
assert grown <= max(times * count, 32 << 20), f"{grown / count:.1f} times the message"
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it takes /proc to ask for the most memory there was")
@pytest.mark.parametrize("kind", ["nils", "tables", "decimals", "no text", "text"])
@pytest.mark.parametrize(
    ("options", "times"), [("{}", 9), ("{'properties': 'json'}", 27), ("{'properties': {'a': 'bigint'}}", 2)]
)
def test_properties_cost_a_small_multiple_of_their_bytes(kind, options, times):
    subprocess.run([sys.executable, "-c", _MEASURE_MTL, kind, options, str(times)], check=True, timeout=60)

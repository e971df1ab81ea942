"""The one list of protocols, and the decoders it leads to."""

import itertools
import json
import pickle
from pathlib import Path
from typing import get_type_hints

import msgpack
import pyarrow as pa
import pytest

from peers import cdtp as wire
from trunkline import capture, columns, error_kinds
from trunkline._native import decode
from trunkline._native.analysis import Fold
from trunkline._native.columns import column_kinds
from trunkline._protocols import RECORDED
from trunkline.errors import DecodeError, LocalProtocolError

ROOT = Path(__file__).parents[1]
PROTOCOLS = {protocol.name: protocol for protocol in columns.protocols()}
every = pytest.mark.parametrize("name", PROTOCOLS)


def test_the_list_has_the_protocols_that_have_a_room():
    assert list(PROTOCOLS) == [protocol.name for protocol in RECORDED]
    assert {name for name, protocol in PROTOCOLS.items() if protocol.one_way} == {"cdtp"}


@every
def test_kinds_are_those_of_the_vectors(name):
    protocol = PROTOCOLS[name]
    files = (ROOT / "tests" / "vectors" / name).glob("*.json")
    shown = {vector["error"]["kind"] for file in files for vector in json.loads(file.read_text()) if "error" in vector}
    assert set(protocol.error_kinds) == shown
    assert shown <= set(error_kinds())
    assert set(protocol.column_kinds) <= set(column_kinds())


@every
def test_inputs_and_kept_columns_are_those_of_a_capture_and_what_they_are_for_is_decoded(name):
    protocol = PROTOCOLS[name]
    recorded = capture.schema().names
    given = set(columns.Decoder(name, payload=True).row_schema().names)
    inputs = {column: (need, of) for column, need, of in protocol.inputs}
    assert {*inputs, *protocol.kept} <= set(recorded)
    assert "header" in inputs
    for need, of in inputs.values():
        assert set(of) <= given
        assert (need == "always") == (not of)


@every
def test_options_stand_in_the_types_with_their_names(name):
    protocol = PROTOCOLS[name]
    said = get_type_hints(getattr(columns, f"{name.capitalize()}Options"))
    assert {*said, "mode"} == set(protocol.options)
    assert columns.Decoder(name, **protocol.options).row_ddl() == columns.Decoder(name).row_ddl() == protocol.ddl


@every
def test_the_guide_says_every_column(name):
    guide = "".join((ROOT / "docs" / "guides" / f"{page}.md").read_text() for page in ("spark", "protocols"))
    missing = [column for column in columns.Decoder(name).row_schema().names if f"`{column}`" not in guide]
    assert missing == []


@every
def test_a_decoder_travels(name):
    decoder = columns.Decoder(name, mode="FAILFAST", payload=True)
    again = pickle.loads(pickle.dumps(decoder))
    assert again.row_schema() == decoder.row_schema() != columns.Decoder(name).row_schema()
    assert again.protocol.name == name


def test_tags_travel():
    decoder = columns.Decoder("cdtp", tags={"run": "bigint", "*": "variant"})
    assert pickle.loads(pickle.dumps(decoder)).row_ddl() == decoder.row_ddl()
    assert "`tag_run` BIGINT, `tags` VARIANT" in decoder.row_ddl()


def test_what_there_is_none_of_is_refused():
    with pytest.raises(LocalProtocolError, match="'cdtp', 'dcp', 'mc0', 'mtl', 'cdt'"):
        columns.Decoder("foo")
    with pytest.raises(LocalProtocolError, match="compat_dagbox does not apply to CDTP messages"):
        columns.Decoder("cdtp", compat_dagbox=True)
    with pytest.raises(TypeError, match="'tag'"):
        columns.Decoder("cdtp", tag=None)
    with pytest.raises(ValueError, match="X"):
        columns.Decoder("cdtp", accept="X")
    with pytest.raises(ValueError, match="no column header"):
        columns.Decoder("cdtp").decode_rows(n_frames=pa.array([1]))


def test_only_what_is_wanted_is_needed():
    cdtp, dcp = columns.Decoder("cdtp", payload=True), columns.Decoder("dcp", payload=True)
    assert columns.needed(cdtp, {"sender"}) == {"header": False, "n_frames": False}
    assert columns.needed(cdtp, {"payload"}) == {"header": False, "n_frames": False, "payload": False}
    assert columns.needed(dcp, {"service"}) == {"envelope": False, "header": False, "payload": True}
    assert not columns.needed(dcp, {"data"})["payload"]
    mc0 = columns.Decoder("mc0", payload=True)
    assert columns.needed(mc0, {"topic"}) == {"envelope": False, "header": False, "payload": True}
    assert columns.needed(mc0, {"body_bytes"})["n_bytes"] is False
    assert not columns.needed(mc0, {"body"})["payload"]


@every
@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
@pytest.mark.parametrize("payload", [True, "byte u8[]"])
def test_a_few_columns_are_what_they_are_among_all(name, mode, payload):
    files = sorted((ROOT / "tests" / "vectors" / name).glob("*.json"))
    vectors = [vector for file in files for vector in json.loads(file.read_text())]
    messages = [[bytes.fromhex(frame) for frame in vector["frames"]] for vector in vectors if vector["frames"]]
    given = {
        "envelope": pa.array([[]] * len(messages), pa.list_(pa.binary())),
        "header": pa.array([frames[0] for frames in messages], pa.binary()),
        "payload": pa.array([frames[1:] for frames in messages], pa.list_(pa.binary())),
        "topic": pa.array(["cdt.v1.a.configuration.b.c.d"] * len(messages)),
    }
    decoder = columns.Decoder(name, mode=mode, payload=payload)
    [(source, whole)] = decoder.decode_rows(**given)
    assert whole.num_rows > len(messages) / 4
    names = whole.schema.names
    for few in [[], *([one] for one in names), *itertools.pairwise(names), names[::-2], names]:
        [(found, some)] = decoder.decode_rows(**given, only=list(few))
        assert found.equals(source)
        assert some.equals(whole.select(list(few))), few


@pytest.mark.parametrize("few", [["payload_b"], ["error"], ["sender"], ["payload_a", "payload_rest"], None])
def test_what_is_wrong_with_a_value_does_not_depend_on_the_columns(few):
    def given(payload):
        return {
            "header": pa.array([wire.header_s()], pa.binary()),
            "payload": pa.array([[msgpack.packb(payload)]], pa.list_(pa.binary())),
        }

    layout = "msgpack: a bigint, b string, * variant"
    with pytest.raises(DecodeError, match="tag_type"):
        list(
            columns.Decoder("cdtp", payload=layout, mode="FAILFAST").decode_rows(
                **given({"a": "x", "b": "y"}), only=few
            )
        )
    # More than a VARIANT holds.
    large = given({"a": 1, "c": bytes(17 << 20)})
    [(_, decoded)] = columns.Decoder("cdtp", payload=layout).decode_rows(**large, only=few)
    if few is None or "error" in few:
        assert decoded["error"].to_pylist() == ["payload_exceeds_variant"]


def test_payloads_that_lie_side_by_side_are_not_copied():
    payload = pa.array([[bytes([row, 0] * 8)] for row in range(100)], pa.list_(pa.binary()))
    header = pa.array([wire.header_s()] * 100, pa.binary())
    decoder = columns.Decoder("cdtp", payload="adc u16[]")
    [(_, decoded)] = decoder.decode_rows(header=header, payload=payload)
    found = decoded["payload_adc"]
    assert found.to_pylist() == [[row] * 8 for row in range(100)]
    assert found.values.buffers()[1].address == payload.values.buffers()[2].address
    # Of a few, the others would stay in memory.
    some = pa.array([payload[at].as_py() if at < 3 else [b"x"] * 9 for at in range(100)], payload.type)
    [(_, decoded)] = decoder.decode_rows(header=header, payload=some)
    found = decoded["payload_adc"]
    assert found.to_pylist() == [[row] * 8 for row in range(3)] + [None] * 97
    assert found.values.buffers()[1].address != some.values.buffers()[2].address


@pytest.mark.parametrize("room", ["spark", "capture"])
def test_no_room_behind_the_list_asks_for_a_protocol_by_name(room):
    for file in (ROOT / "python" / "trunkline" / room).rglob("*.py"):
        text = file.read_text()
        assert "if protocol ==" not in text, file
        assert "elif protocol" not in text, file


def test_recorded_frames_are_messages_of_their_room():
    assert [message.variant for message in decode("cdtp", [wire.header_s(), b"x"])] == ["S"]
    assert [message.sequence for message in decode("cdtp", [wire.batch([4, 5])])] == [4, 5]
    assert decode("dcp", [b"", b"DGBX\x01", b"\x02\0\0\0"])[0].type == "ping"
    assert decode("foo", [wire.header_s()]) is None


RUN = [
    # sender, seq, record, type, sequence; the frames of a BOR or EOR stand before it
    ("a", 0, -1, None, None),
    ("a", 0, 0, "BOR", 0),
    ("a", 1, 0, "DAT", 1),
    ("a", 4, 0, "DAT", 4),
    ("a", 4, 1, "DAT", 4),
    ("a", 6, -1, None, None),
    ("a", 6, 0, "EOR", 5),
    ("b", 3, 0, "DAT", 7),
    ("b", 5, 0, "DAT", None),
]

# Skipped before a number that is no BIGINT: all that are left.
REST = 2**63 - 1 - 7 - 1


def run_rows(run):
    """The rows of messages that know runs."""
    header = b"\xa5CDTP\x01\xa1a\x01\x00\x80"
    return pa.Table.from_pylist(
        [
            {
                "capture_id": "c",
                "sender": sender,
                "seq": seq,
                "record": record,
                "received_at_ns": 1000 + seq,
                "n_bytes": 10,
                "type": kind,
                "sequence": sequence,
                "header": header if record < 0 else None,
                "payload": b"\x81\xa6run_id\xa2r7" if record < 0 else None,
            }
            for sender, seq, record, kind, sequence in run
        ]
    )


def counted(rows):
    """What is counted of the runs in some tables of rows."""
    counting, found = Fold("runs"), []
    for part in rows:
        for batch in part.combine_chunks().to_batches():
            found += [run for over in counting.record(batch) for run in over.to_pylist()]
    found += [run for over in counting.finish() for run in over.to_pylist()]
    names = (
        "sender",
        "ordinal",
        "run_id",
        "condition",
        "messages",
        "bytes",
        "missed",
        "duplicates",
        "bor_seq",
        "eor_seq",
    )
    return [tuple(run[name] for name in names) for run in found]


FOUND = [
    ("a", 1, "r7", "INCOMPLETE", 3, 40, 2, 1, 0, 6),
    ("b", 0, None, "INCOMPLETE|ABORTED", 2, 20, REST, 0, None, None),
]


@pytest.mark.req("CDTP-21")
@pytest.mark.parametrize("cut", range(len(RUN)))
def test_runs_are_counted_over_batches_cut_anywhere(cut):
    rows = run_rows(RUN)
    assert counted([rows.slice(0, cut), rows.slice(cut)]) == FOUND


@pytest.mark.req("CDTP-21")
def test_runs_are_counted_where_senders_take_turns():
    """In the order of the rows alone, where one sender's do not stand together."""
    mixed = sorted(RUN, key=lambda row: row[1:3])
    assert [row[0] for row in mixed] != [row[0] for row in RUN]
    assert counted([run_rows(mixed)]) == FOUND


def test_runs_that_are_over_come_in_batches_of_64_mib():
    """Their maps are read into columns that take several times the bytes."""
    nothing, runs = 50_000, 1000
    payload = b"\x81\xa1x\xdd" + nothing.to_bytes(4, "big") + b"\xc0" * nothing
    seqs = range(runs)
    frames, bors = ([-1] * runs, [0] * runs)
    rows = pa.table(
        {
            "capture_id": ["c"] * runs * 2,
            "sender": ["a"] * runs * 2,
            "seq": [*seqs, *seqs],
            "record": pa.array([*frames, *bors], pa.int32()),
            "received_at_ns": [*seqs, *seqs],
            "n_bytes": [len(payload)] * runs * 2,
            "type": [*[None] * runs, *["BOR"] * runs],
            "sequence": [*[None] * runs, *bors],
            "header": [*[b"\xa5CDTP\x01\xa1a\x01\x00\x80"] * runs, *[None] * runs],
            "payload": [*[payload] * runs, *[None] * runs],
        }
    ).sort_by([("seq", "ascending"), ("record", "ascending")])
    counting = Fold("runs")
    [batch] = rows.combine_chunks().to_batches()
    over = list(counting.record(batch))
    assert [run for part in over for run in part["ordinal"].to_pylist()] == [*range(1, runs)]
    assert len(over) > 2
    assert all(63 << 20 < part.nbytes < 66 << 20 for part in over[:-1])
    assert [batch["ordinal"].to_pylist() for batch in counting.finish()] == [[runs]]

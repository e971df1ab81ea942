"""Typed payloads in files, and on the command line."""

import json
import struct

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from peers import cdtp as wire
from peers import dcp as dcp_wire
from peers import mc0 as mc0_wire
from peers import mtl as mtl_wire
from peers.recorded import AT, line
from trunkline import capture
from trunkline.errors import DecodeError, LocalProtocolError

LAYOUT = "t u64, half f16, fixed i32[2], hits (channel u16, charge f32)[]"


def frame(t, hits):
    return struct.pack("<Qe2i", t, 1.5, t, -t) + b"".join(struct.pack("<Hf", *hit) for hit in hits)


@pytest.fixture
def recorded(tmp_path):
    """Three messages of CDTP, the last of which is not of the layout."""
    payloads = [frame(1, [(1, 0.5), (2, 1.5)]), frame(2, []), b"short"]
    rows = [line([wire.header_s(), payload], AT + at, protocol="cdtp") for at, payload in enumerate(payloads)]
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    capture.import_(tmp_path / "rows.jsonl", tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl"])
def test_tables_have_the_columns(recorded, tmp_path, form):
    out = tmp_path / f"out.{form}"
    assert capture.export(recorded, out, payload=LAYOUT) == 3
    if form == "jsonl":
        rows = [json.loads(text) for text in out.read_text().splitlines()]
    else:
        table = parquet.read_table(out) if form == "parquet" else pa.ipc.open_file(out).read_all()
        assert table.schema.field("payload_t").type == pa.uint64()
        assert table.schema.field("payload_half").type == pa.float16()
        rows = table.to_pylist()
    assert [row["payload_t"] for row in rows] == [1, 2, None]
    assert [row["payload_half"] for row in rows] == [1.5, 1.5, None]
    assert [row["payload_fixed"] for row in rows] == [[1, -1], [2, -2], None]
    assert rows[0]["payload_hits"] == [{"channel": 1, "charge": 0.5}, {"channel": 2, "charge": 1.5}]
    assert [row["error"] for row in rows] == [None, None, "payload_short"]


def test_what_is_json_is_an_object_of_json_lines(tmp_path):
    payloads = [msgpack.packb({"n": 1, "more": {"x": [1]}, "b": True}), msgpack.packb({"n": 2})]
    rows = [line([wire.header_s(), payload], AT + at, protocol="cdtp") for at, payload in enumerate(payloads)]
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    capture.import_(tmp_path / "rows.jsonl", tmp_path / "run")
    for layout in ("msgpack: n bigint, more json, * json", "msgpack: n bigint, more json, * variant"):
        capture.export(tmp_path / "run", tmp_path / "out.jsonl", payload=layout, tags="variant")
        rows = [json.loads(text) for text in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert [row["payload_more"] for row in rows] == [{"x": [1]}, None]
        assert [row["payload_rest"] for row in rows] == [{"b": True}, {}]
        assert [row["tags"] for row in rows] == [{}, {}]
        capture.export(tmp_path / "run", tmp_path / "out.csv", payload=layout, columns=["payload_rest"])
        assert (tmp_path / "out.csv").read_text().splitlines()[1:] == ['"{""b"":true}"', '"{}"']
    capture.export(tmp_path / "run", tmp_path / "out.jsonl", "*")
    rows = [json.loads(text) for text in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["rest"]["sender"] for row in rows] == ["Det", "Det"]
    h5py, uproot = pytest.importorskip("h5py"), pytest.importorskip("uproot")
    capture.export(tmp_path / "run", tmp_path / "out.h5", payload=layout)
    with h5py.File(tmp_path / "out.h5") as file:
        assert [json.loads(text) for text in file["cdtp/rest"].asstr()[:]] == [{"b": True}, {}]
    capture.export(tmp_path / "run", tmp_path / "out.root", payload=layout)
    with uproot.open(tmp_path / "out.root") as file:
        assert bytes(file["cdtp"]["rest"].array()[0]) == b'{"b":true}'
    capture.export(tmp_path / "run", tmp_path / "out.jsonl", payload="msgpack: variant")
    last = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[-1])
    assert last["payload_value"] == {"n": 2}


@pytest.mark.parametrize(
    ("protocol", "frames"),
    [
        ("cdtp", [wire.header_s(), b""]),
        ("mc0", mc0_wire.put(b"t", b"")),
        ("dcp", dcp_wire.request(b"echo", b"")),
        ("mtl", mtl_wire.content(1, "jobs", b"")),
    ],
)
def test_a_value_of_another_type_is_named_where_it_is(tmp_path, protocol, frames):
    frames = [*frames[:-1], b"\x82\xa1a\x01\xa1b\xa1x"]
    (tmp_path / "rows.jsonl").write_text(line(frames, AT, protocol=protocol, peer=b"p"))
    capture.import_(tmp_path / "rows.jsonl", tmp_path / "run")
    decoded = capture.open(tmp_path / "run").decode(protocol, mode="FAILFAST", payload="msgpack: a bigint, b bigint")
    with pytest.raises(DecodeError) as raised:
        decoded.read_all()
    assert (raised.value.kind, raised.value.frame, raised.value.offset) == ("tag_type", len(frames) - 1, 6)


def test_text_with_a_nul_and_names_that_are_paths_are_in_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    maps = [{"hv": 1.5, "hv/set": 2.5, ".": 3.5}]
    payloads = [msgpack.packb(each) for each in maps]
    rows = [line([wire.header_s(), payload], AT, protocol="cdtp") for payload in payloads]
    rows.append(line(mc0_wire.put(b"t", b"a\0b\0xyz"), AT + 1, protocol="mc0", peer=b"p"))
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    capture.import_(tmp_path / "rows.jsonl", tmp_path / "run")
    capture.export(tmp_path / "run", tmp_path / "out.h5", payload="msgpack: hv double, `hv/set` double, `.` double")
    with h5py.File(tmp_path / "out.h5") as file:
        assert [file["cdtp"][name][0] for name in ("hv", "hv_set", "_")] == [1.5, 2.5, 3.5]
    capture.export(tmp_path / "run", tmp_path / "out.h5", "mc0", payload="words utf8[4], raw bytes")
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["mc0/words"].asstr()[0] == "0x610062"
        assert bytes(file["mc0/raw"][:]) == b"xyz"


def test_csv_has_no_arrays(recorded, tmp_path):
    with pytest.raises(LocalProtocolError, match="CSV has no arrays, and payload_fixed is one: choose \\.parquet"):
        capture.export(recorded, tmp_path / "out.csv", payload=LAYOUT)
    assert not (tmp_path / "out.csv").exists()
    assert capture.export(recorded, tmp_path / "out.csv", payload="t u64, half f16, pad") == 3
    head, first, *_ = (tmp_path / "out.csv").read_text().splitlines()
    cells = dict(zip(json.loads(f"[{head}]"), first.split(","), strict=True))
    assert (cells["payload_t"], float(cells["payload_half"])) == ("1", 1.5)


def test_hdf5_has_a_dataset_for_each_field(recorded, tmp_path):
    h5py = pytest.importorskip("h5py")
    assert capture.export(recorded, tmp_path / "out.h5", payload=LAYOUT) == 3
    with h5py.File(tmp_path / "out.h5") as file:
        group = file["cdtp"]
        assert group["t"].dtype == np.uint64
        assert group["t"][:].tolist() == [1, 2, 0]
        assert group["fixed"][:].tolist() == [1, -1, 2, -2]
        assert group["fixed_offsets"][:].tolist() == [0, 2, 4, 4]
        assert group["hits_channel"][:].tolist() == [1, 2]
        assert group["hits_charge"][:].tolist() == [0.5, 1.5]
        assert group["hits_charge_offsets"][:].tolist() == [0, 2, 2, 2]
        assert group["error"].asstr()[:].tolist() == ["", "", "payload_short"]
        assert group["sender"].asstr()[0] == "Det"


def test_root_has_a_branch_for_each_column(recorded, tmp_path):
    uproot = pytest.importorskip("uproot")
    ak = pytest.importorskip("awkward")
    assert capture.export(recorded, tmp_path / "out.root", payload=LAYOUT) == 3
    with uproot.open(tmp_path / "out.root") as file:
        tree = file["cdtp"]
        assert tree.num_entries == 3
        assert tree["t"].array(library="np").tolist() == [1, 2, 0]
        assert ak.to_list(tree["hits_channel"].array()) == [[1, 2], [], []]
        assert ak.to_list(tree["fixed"].array()) == [[1, -1], [2, -2], []]
        assert bytes(tree["error"].array()[2].to_list()) == b"payload_short"


def test_other_protocols(tmp_path):
    h5py = pytest.importorskip("h5py")
    frames = mc0_wire.put(b"t", b"\x01\x02\x00")
    (tmp_path / "rows.jsonl").write_text(line(frames, AT, protocol="mc0", peer=b"p"))
    capture.import_(tmp_path / "rows.jsonl", tmp_path / "run")
    capture.export(tmp_path / "run", tmp_path / "out.h5", "mc0", payload="n u8, adc u16[]")
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["mc0/adc"][:].tolist() == [2]
        assert file["mc0/topic"].asstr()[0] == "t"


@pytest.fixture
def named(tmp_path):
    """Three messages whose payloads have fields that messages have too."""
    payloads = [struct.pack("<QBB", 1000 + at, at, 7) for at in range(3)]
    rows = [line([wire.header_s(), payload], AT + at, protocol="cdtp") for at, payload in enumerate(payloads)]
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    capture.import_(tmp_path / "rows.jsonl", tmp_path / "run")
    return tmp_path / "run"


def test_fields_named_as_columns_keep_the_name_of_theirs_in_hdf5(named, tmp_path):
    h5py = pytest.importorskip("h5py")
    capture.export(named, tmp_path / "out.h5", payload="timestamp u64, sender u8, channel u8")
    with h5py.File(tmp_path / "out.h5") as file:
        [table] = file.values()
        assert table["payload_timestamp"][:].tolist() == [1000, 1001, 1002]
        assert table["payload_sender"][:].tolist() == [0, 1, 2]
        assert table["channel"][:].tolist() == [7, 7, 7]
        assert len(table["timestamp"]) == len(table["sender"]) == 3


def test_fields_named_as_columns_keep_the_name_of_theirs_in_root(named, tmp_path):
    uproot = pytest.importorskip("uproot")
    capture.export(named, tmp_path / "out.root", payload="timestamp u64, type u8, nadc u8")
    with uproot.open(tmp_path / "out.root") as file:
        tree = file["cdtp"]
        assert tree["payload_timestamp"].array().tolist() == [1000, 1001, 1002]
        assert tree["payload_type"].array().tolist() == [0, 1, 2]
        assert tree["nadc"].array().tolist() == [7, 7, 7]


def test_fields_named_as_what_counts_others_are_apart(named, tmp_path):
    h5py, uproot = pytest.importorskip("h5py"), pytest.importorskip("uproot")
    capture.export(named, tmp_path / "out.h5", payload="adc_offsets u64, adc u8[]")
    with h5py.File(tmp_path / "out.h5") as file:
        [table] = file.values()
        assert table["adc_offsets"][:].tolist() == [1000, 1001, 1002]
        assert table["payload_adc"][:].tolist() == [0, 7, 1, 7, 2, 7]
        assert table["payload_adc_offsets"][:].tolist() == [0, 2, 4, 6]
    capture.export(named, tmp_path / "out.root", payload="time u64, nadc u8, adc u8[]")
    with uproot.open(tmp_path / "out.root") as file:
        assert file["cdtp"]["nadc"].array().tolist() == [0, 1, 2]
        assert file["cdtp"]["payload_adc"].array().tolist() == [[7], [7], [7]]


def test_bytes_of_fixed_size_are_bytes_in_csv(named, tmp_path):
    capture.export(named, tmp_path / "out.csv", payload="head bytes[2], rest bytes", columns=["payload_head"])
    assert (tmp_path / "out.csv").read_text().splitlines()[1:] == ['"0xe803"', '"0xe903"', '"0xea03"']

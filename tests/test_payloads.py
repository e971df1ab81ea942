"""Payloads as columns, beside decoders of their own: NumPy, msgpack, json and fastavro."""

import io
import json
import math
import pickle

import fastavro
import msgpack
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trunkline import Layout, cdt, columns, dcp, mc0
from trunkline.errors import DecodeError, LocalProtocolError

ARRAYS = pa.list_(pa.binary())


def decoded(layout, messages, *, only=None, tags=None, **options):
    """Rows of CDTP, each message with its frames."""
    header = (
        msgpack.packb("CDTP\x01")
        + msgpack.packb("sat")
        + msgpack.packb(msgpack.Timestamp(1, 0))
        + msgpack.packb(tags or {})
    )
    decoder = columns.Decoder("cdtp", tags=None, payload=layout, **options)
    rows = decoder.decode_rows(
        header=pa.array([header] * len(messages), pa.binary()), payload=pa.array(messages, ARRAYS), only=only
    )
    return pa.Table.from_batches([batch for _, batch in rows])


def fields(layout, frames, **options):
    """The columns of fields, by name, of messages of one frame each."""
    table = decoded(layout, [[frame] for frame in frames], **options)
    assert table["error"].null_count == len(frames)
    return {name: table[name].combine_chunks() for name in Layout(layout).columns}


def test_a_waveform_is_a_list_of_its_samples():
    frames = [np.arange(n, dtype="<u2").tobytes() for n in (3, 0, 1000)]
    adc = fields("adc u16[]", frames)["payload_adc"]
    assert adc.type == pa.list_(pa.uint16())
    assert adc.to_pylist() == [list(range(3)), [], list(range(1000))]


def test_the_schema_has_the_types_exactly():
    text = "a u16, b f16, c bytes[3], d i32be[4], e (x u8, y f64)[], "
    schema = columns.Decoder("mc0", payload=text.rstrip(", ")).row_schema()
    assert schema.field("payload_a").type == pa.uint16()
    assert schema.field("payload_b").type == pa.float16()
    assert schema.field("payload_c").type == pa.binary(3)
    assert schema.field("payload_d").type == pa.list_(pa.int32(), 4)
    assert schema.field("payload_e").type == pa.list_(pa.struct([("x", pa.uint8()), ("y", pa.float64())]))
    names = schema.names
    assert names[names.index("payload_a") - 1] == "body_bytes"
    assert names[names.index("payload_e") + 1] == "error"


SCALARS = st.one_of(
    hnp.integer_dtypes(endianness="?", sizes=(8, 16, 32, 64)),
    hnp.unsigned_integer_dtypes(endianness="?", sizes=(8, 16, 32, 64)),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    hnp.boolean_dtypes(),
    hnp.byte_string_dtypes(min_len=1, max_len=5),
)
NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4, unique=True)


def structs(inner):
    """Structured dtypes of these."""

    def of(names):
        return st.tuples(*(st.tuples(st.just(name), inner) for name in names)).map(
            lambda fields: np.dtype(list(fields))
        )

    return NAMES.flatmap(of)


def arrays(inner):
    """Sub-arrays of these, or these."""
    shapes = st.none() | st.tuples(st.integers(1, 3)) | st.tuples(st.integers(1, 3), st.integers(1, 2))
    return st.tuples(inner, shapes).map(lambda both: both[0] if both[1] is None else np.dtype(both))


STRUCTURED = structs(arrays(SCALARS | structs(arrays(SCALARS))))


def values(array, dtype):
    """What NumPy reads, as pyarrow gives it."""
    if dtype.subdtype is not None:
        base, shape = dtype.base, dtype.shape
        while base.subdtype is not None:
            base, shape = base.base, (*shape, *base.shape)
        flat = array.reshape((*array.shape[: array.ndim - len(shape)], -1))
        return [values(items, base) for items in flat]
    if dtype.names is not None:
        members = [values(array[name], dtype[name]) for name in dtype.names]
        return [dict(zip(dtype.names, row, strict=True)) for row in zip(*members, strict=True)]
    if dtype.kind == "b":
        return [item != 0 for item in array.view("u1").tolist()]
    if dtype.kind == "S":
        return [bytes(item) for item in np.ascontiguousarray(array).view(f"V{dtype.itemsize}").tolist()]
    return array.tolist()


def same(ours, theirs):
    if isinstance(theirs, float):
        return ours == theirs or (math.isnan(ours) and math.isnan(theirs))
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[name], theirs[name]) for name in theirs)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == theirs


def plain(column):
    """As Python's values; pyarrow gives half floats as NumPy's."""

    def of(value):
        if isinstance(value, dict):
            return {name: of(member) for name, member in value.items()}
        if isinstance(value, list):
            return [of(item) for item in value]
        return float(value) if isinstance(value, np.floating) else value

    return [of(value) for value in column.to_pylist()]


@settings(max_examples=50)
@given(STRUCTURED, st.booleans(), st.data())
def test_what_numpy_reads_of_a_dtype_is_in_the_columns(dtype, has_gaps, data):
    if has_gaps:
        dtype = np.dtype({name: (dtype[name], dtype.fields[name][1] * 3) for name in dtype.names})
    layout = Layout.of(dtype)
    assert layout == Layout(str(layout))
    assert layout.size == dtype.itemsize
    frames = data.draw(st.lists(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize), min_size=1, max_size=4))
    found = fields(layout, frames)
    rows = np.frombuffer(b"".join(frames), dtype)
    for name in dtype.names:
        assert same(plain(found[f"payload_{name}"]), values(rows[name], dtype[name]))
    assert Layout.of(layout.numpy()) == layout


@settings(max_examples=50)
@given(STRUCTURED, st.data())
def test_any_number_of_records_is_one_list(dtype, data):
    layout = Layout.of(dtype, repeat=True)
    counts = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    frames = [data.draw(st.binary(min_size=n * dtype.itemsize, max_size=n * dtype.itemsize)) for n in counts]
    [found] = fields(layout, frames).values()
    assert layout.columns == ("payload_records",)
    expected = [values(np.frombuffer(frame, dtype), dtype) if frame else [] for frame in frames]
    assert same(plain(found), expected)


def test_layouts_of_dtypes():
    assert str(Layout.of(np.dtype([("t", "<u8"), ("adc", ">i2", (2, 3))]))) == "t u64, adc i16be[6]"
    assert str(Layout.of(np.dtype("f4"))) == "value f32"
    assert str(Layout.of("<u2", repeat=True)) == "records u16[]"
    assert str(Layout.of(np.dtype([("a", "u1"), ("b", "<f8")], align=True))) == "a u8, pad[7], b f64"
    assert Layout("t u64, adc u16[256]").numpy() == np.dtype([("t", "<u8"), ("adc", "<u2", (256,))])
    assert Layout("a u8, pad[3], b bool").numpy().itemsize == 5
    assert Layout(np.dtype("<u2")).columns == ("payload_value",)


@pytest.mark.parametrize(
    ("dtype", "said"),
    [
        ([("a", "O")], "a: object has no layout: an object has no bytes"),
        ([("at", "<M8[ns]")], "at: datetime64\\[ns\\] has no layout: make it '<i8'"),
        ([("for", "<m8[s]")], "for: timedelta64\\[s\\] has no layout"),
        ([("z", "<c16")], "z: complex128 has no layout: make it two numbers"),
        ([("name", "<U4")], "name: <U4 has no layout: make it bytes of UTF-8"),
        ([("x", "f16")], "x: .* has no layout: make it one of 8 bytes"),
        ([("x", [("y", "O")])], "y: object"),
        ({"names": ["a", "b"], "formats": ["<u4", "<u2"], "offsets": [0, 2]}, "b: fields of a layout do not overlap"),
        ([("a", "u1"), ("A", "u1")], "equal to 'a' but for case"),
        ([("frames", "u1")], "payload_frames is a column of CDTP"),
    ],
)
def test_dtypes_without_a_layout_are_refused_by_name(dtype, said):
    with pytest.raises(LocalProtocolError, match=said):
        Layout.of(np.dtype(dtype))


def test_layouts_are_values():
    layout = Layout(" n u8,adc u16[ n ]")
    assert str(layout) == "n u8, adc u16[n]"
    assert repr(layout) == "Layout('n u8, adc u16[n]')"
    assert layout == Layout("n u8, adc u16[n]") == Layout(layout)
    assert layout != Layout("n u8, adc i16[n]")
    assert layout != "n u8, adc u16[n]"
    assert len({layout, Layout(str(layout))}) == 1
    assert pickle.loads(pickle.dumps(layout)) == layout
    assert layout.columns == ("payload_n", "payload_adc")
    assert layout.size is None
    assert Layout("a u8; b u16").size == 3
    for text in ("adc u16[]", "a u8; b u8", "utf8", "msgpack: variant"):
        with pytest.raises(LocalProtocolError, match="a NumPy dtype is of one frame of fixed size"):
            Layout(text).numpy()


def test_errors_name_the_place():
    with pytest.raises(LocalProtocolError, match=r"^line 2, column 4: expected a type such as"):
        Layout("a u8,\n  b,")
    with pytest.raises(LocalProtocolError, match=r"^payload: line 1, column 5: "):
        columns.Decoder("dcp", payload="adc u17[]")
    with pytest.raises(LocalProtocolError, match="is no layout: it is a text such as 'adc u16"):
        columns.Decoder("dcp", payload=object())
    with pytest.raises(LocalProtocolError, match="is no layout"):
        columns.Decoder("dcp", payload=None)
    with pytest.raises(LocalProtocolError, match="decode one protocol"):
        columns.Decoder("*", payload="adc u16[]")
    with pytest.raises(LocalProtocolError, match="MTL messages do not have"):
        columns.Decoder("mtl", payload="dtype")


def test_a_decoder_with_a_layout_is_pickled():
    for payload in ("adc u16[]", Layout("adc u16[]"), np.dtype([("adc", "<u2", (3,))])):
        for types in ("arrow", "spark"):
            decoder = columns.Decoder("cdtp", payload=payload, types=types)
            again = pickle.loads(pickle.dumps(decoder))
            assert again.row_schema() == decoder.row_schema()
            assert again.row_ddl() == decoder.row_ddl()


def test_spark_gets_types_that_it_has():
    text = "a u8, b u16, c u32, d u64, e f16, f bytes[2], g u16[2]"
    ddl = columns.Decoder("dcp", payload=text, types="spark").row_ddl()
    assert (
        "`payload_a` SMALLINT, `payload_b` INT, `payload_c` BIGINT, `payload_d` DECIMAL(20,0), `payload_e` FLOAT, "
        "`payload_f` BINARY, `payload_g` ARRAY<INT>" in ddl
    )
    with pytest.raises(ValueError, match="types must be 'arrow' or 'spark'"):
        columns.Decoder("dcp", types="java")


MALFORMED = [
    ("a u32", [b"abc"], "payload_short", 1, 0),
    ("n u8, a u16[n]", [b"\xff\x00\x00"], "payload_short", 1, 1),
    ("n u64, a u8[n]", [b"\xff" * 8 + b"x"], "payload_short", 1, 8),
    ("n i8, a u8[n]", [b"\xff\x00"], "payload_short", 1, 1),
    ("a u16[]", [b"abc"], "payload_long", 1, 2),
    ("a u8", [b"ab"], "payload_long", 1, 1),
    ("a u8", [b"a", b"b"], "payload_frames", 2, 0),
    ("a u8; b u8; …", [b"a"], "payload_frames", 2, 0),
    ("msgpack: a bigint", [b"\x93"], "payload_msgpack", 1, 0),
    ("msgpack: variant", [b"\x01\x02"], "payload_msgpack", 1, 1),
    ("json: variant", [b"{"], "payload_json", 1, 1),
    ("utf8", [b"ab\xff"], "payload_text", 1, 2),
    ("s utf8[2]", [b"\xff\x00"], "payload_text", 1, 0),
    ("dtype", [b"ab"], "payload_dtype", 1, 0),
]


@pytest.mark.parametrize(("layout", "frames", "kind", "frame", "offset"), MALFORMED)
def test_a_payload_that_is_not_of_its_layout(layout, frames, kind, frame, offset):
    table = decoded(layout, [frames])
    assert table["error"].to_pylist() == [kind]
    assert all(table[name].null_count == 1 for name in Layout(layout).columns)
    assert table["sender"].to_pylist() == ["sat"]
    assert decoded(layout, [frames], mode="DROPMALFORMED").num_rows == 0
    with pytest.raises(DecodeError) as raised:
        decoded(layout, [frames], mode="FAILFAST")
    assert (raised.value.kind, raised.value.frame, raised.value.offset) == (kind, frame, offset)
    assert raised.value.__notes__[0].startswith(f"row 0 of the batch: {kind} in frame {frame} at byte {offset}: ")


def test_of_equal_names_the_last_counts():
    table = decoded("msgpack: a bigint, b bigint", [[b"\x84\xa1b\x07\xa1a\x01\xa1c\xc0\xa1a\x02"], [b"\x80"]])
    assert table["payload_a"].to_pylist() == [2, None]
    assert table["payload_b"].to_pylist() == [7, None]
    # Nothing of a map that is none is left for the next row.
    table = decoded("msgpack: a bigint, b bigint", [[b"\x82\xa1a\x01\xa1b"], [b"\x81\xa1b\x02"]])
    assert table["error"].to_pylist() == ["payload_msgpack", None]
    assert table["payload_a"].to_pylist() == [None, None]
    assert table["payload_b"].to_pylist() == [None, 2]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
MAPS = st.dictionaries(st.sampled_from("abcd"), JSON, max_size=4)


@given(st.lists(MAPS, min_size=1, max_size=4))
@pytest.mark.parametrize(
    ("kind", "pack"), [("msgpack", msgpack.packb), ("json", lambda value: json.dumps(value).encode())]
)
def test_fields_of_maps_are_those_that_msgpack_and_json_read(kind, pack, maps):
    found = fields(f"{kind}: a bigint, b string, * json", [pack(value) for value in maps])
    is_of = {"a": lambda value: type(value) is int, "b": lambda value: isinstance(value, str)}
    for name, fits in is_of.items():
        expected = [value.get(name) if fits(value.get(name)) else None for value in maps]
        assert found[f"payload_{name}"].to_pylist() == expected
    rest = [json.loads(text) for text in found["payload_rest"].to_pylist()]
    assert rest == [{name: item for name, item in value.items() if name not in is_of} for value in maps]


SCHEMA = {
    "type": "record",
    "name": "Event",
    "namespace": "run",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "gain", "type": ["null", "double"]},
        {"name": "ratio", "type": "float"},
        {"name": "on", "type": "boolean"},
        {"name": "name", "type": "string"},
        {"name": "raw", "type": "bytes"},
        {"name": "two", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}},
        {
            "name": "hits",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Hit",
                    "fields": [{"name": "channel", "type": "int"}, {"name": "charge", "type": ["float", "null"]}],
                },
            },
        },
        {"name": "best", "type": ["null", "run.Hit"]},
        {"name": "limits", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
    ],
}
INTS, FLOATS = st.integers(-(2**31), 2**31 - 1), st.floats(width=32, allow_nan=False)
HITS = st.fixed_dictionaries({"channel": INTS, "charge": st.none() | FLOATS})
EVENTS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "gain": st.none() | st.floats(allow_nan=False),
        "ratio": FLOATS,
        "on": st.booleans(),
        "name": st.text(),
        "raw": st.binary(),
        "two": st.binary(min_size=2, max_size=2),
        "colour": st.sampled_from(["RED", "GREEN"]),
        "hits": st.lists(HITS, max_size=3),
        "best": st.none() | HITS,
        "limits": st.dictionaries(st.text(), st.lists(INTS, max_size=2), max_size=2),
    }
)


def avro(value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, value)
    return out.getvalue()


@given(st.lists(EVENTS, min_size=1, max_size=3), st.data())
def test_records_are_those_that_fastavro_writes(events, data):
    layout = f"avro: {json.dumps(SCHEMA)}"
    frames = [avro(event) for event in events]
    found = fields(layout, frames)
    for name in events[0]:
        ours = found[f"payload_{name}"].to_pylist()
        if name == "limits":
            ours = [dict(pairs) for pairs in ours]
        assert ours == [event[name] for event in events]
    cut = data.draw(st.integers(0, len(frames[0]) - 1))
    assert decoded(layout, [[frames[0][:cut]]])["error"].to_pylist() == ["payload_avro"]


@pytest.mark.parametrize("dtype", ["<u2", ">i4", "uint8", "float32", "float16", "bool", "int64", "<f8"])
def test_each_message_says_its_dtype(dtype):
    array = (np.arange(5) % 2 == 0 if dtype == "bool" else np.arange(-2, 3) + 2).astype(dtype)
    table = decoded("dtype", [[array.tobytes()]], tags={"dtype": dtype})
    assert table["payload_value"].to_pylist() == [array.astype("f8").tolist()]


def test_only_what_a_column_needs_is_read():
    decoder = columns.Decoder("dcp", payload="adc u16[], ".rstrip(", "))
    assert columns.needed(decoder, {"payload_adc"})["payload"] is False
    assert columns.needed(decoder, {"error"})["payload"] is False
    assert columns.needed(decoder, {"service"})["payload"] is True
    strict = columns.Decoder("dcp", payload="adc u16[]", mode="FAILFAST")
    assert columns.needed(strict, {"service"})["payload"] is False
    cdtp = columns.Decoder("cdtp", payload="adc u16[]")
    assert "payload" not in columns.needed(cdtp, {"sender"})
    assert "payload" in columns.needed(cdtp, {"payload_adc"})
    table = decoded("t u8, adc u16[]", [[b"\x01\x02\x00"]], only=["payload_adc"])
    assert table.column_names == ["payload_adc"]
    assert table.to_pylist() == [{"payload_adc": [2]}]


SAMPLES = np.arange(6, dtype="<u2")
HALVES = [SAMPLES[:2].tobytes(), SAMPLES[2:].tobytes()]


@pytest.mark.parametrize(
    "message",
    [
        dcp.Message("request", service=b"s", data=HALVES),
        dcp.Reply(HALVES),
        mc0.Message("PUT", {"TOPIC": "t"}, HALVES),
    ],
    ids=lambda message: type(message).__qualname__,
)
def test_messages_of_several_frames_as_arrays(message):
    assert message.array("<u2").tolist() == SAMPLES.tolist()
    assert message.array("<u2", frame=1).tolist() == [2, 3, 4, 5]
    assert message.array("<u2", frame=-2).tolist() == [0, 1]
    assert message.array(frame=0).tolist() == list(HALVES[0])
    assert not message.array(frame=0).flags.writeable
    with pytest.raises(IndexError, match="frame 2 of 2 frames"):
        message.array(frame=2)
    with pytest.raises(IndexError, match="frame -3 of 2 frames"):
        message.array(frame=-3)


def test_contents_as_arrays():
    content = cdt.ConfigResponse(content=HALVES[1], content_type="x")
    assert content.array("<u2").tolist() == content.array("<u2", frame=0).tolist() == [2, 3, 4, 5]
    with pytest.raises(IndexError, match="frame 0 of 0 frames"):
        cdt.ConfigResponse().array(frame=0)
    assert cdt.ConfigResponse().array().tolist() == []
    assert not hasattr(cdt.ConfigRequest, "array")

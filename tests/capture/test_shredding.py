"""VARIANTs in files of decoded messages: their fields are columns, which other readers take alone."""

import random
from pathlib import Path

import duckdb
import msgpack
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peers.commands import release, spec
from peers.decoded_files import alter
from peers.recorded import write
from trunkline import CaptureError, capture, columns
from trunkline._native.columns import Shredding, unshredded

TYPES = {"run": int, "label": str, "ok": bool, "gain": float}


def some_tags(rng, at):
    """Tags as devices have them, now and then of another type, order or depth."""
    tags = {"run": at, "label": f"a{at % 7}", "ok": at % 2 == 0, "gain": at / 3, "raw": bytes([at % 256])}
    tags |= {"deep": {"x": [1, {"y": None}]}} if rng.random() < 0.3 else {}
    tags |= {"later": rng.choice([1, "x", None, 1.5, 1 << 40, -3, {}])} if rng.random() < 0.3 else {}
    tags |= {"run": rng.choice([1 << 63, "seven", None, -1 << 40])} if rng.random() < 0.2 else {}
    tags |= {"label": rng.choice(["", "ü" * 40, 7])} if rng.random() < 0.2 else {}
    names = list(tags)
    if rng.random() < 0.5:
        rng.shuffle(names)
    return {name: tags[name] for name in names[: rng.randint(0, 99)]}


@pytest.fixture
def tags():
    rng = random.Random(7)
    return [some_tags(rng, at) for at in range(400)] + [{}]


@pytest.fixture
def decoded(tmp_path, tags):
    """A capture, and the file of its decoded messages; the last but one is malformed."""
    messages = [release("D", 0, at, b"x" * 100, tags=each) for at, each in enumerate(tags)]
    messages.insert(-1, [b"nonsense", b"x"])
    capture.import_(write(tmp_path / "lines.jsonl", messages), tmp_path / "run")
    capture.compact(tmp_path / "run", decode={"cdtp": {}}, shred=True)
    return tmp_path / "run", decoded_file(tmp_path / "run")


def compacted(path, messages):
    """A capture of these messages, decoded and shredded; what it decoded to before."""
    capture.import_(write(path / "lines.jsonl", messages), path / "run")
    before = read(path / "run")
    capture.compact(path / "run", decode={"cdtp": {}}, shred=True)
    return before


def decoded_file(directory):
    (file,) = (directory / "_decoded" / "cdtp").iterdir()
    return file


def read(directory, where=None):
    selection = capture.Selection(where=where) if where else None
    found = capture.open(directory).decode("cdtp", columns=["seq", "tags"], tags="variant", selection=selection)
    return found.read_all()


def test_fields_are_columns_of_their_types(decoded, tags):
    _, file = decoded
    table = pyarrow.parquet.read_table(file)
    typed = table["tags"].combine_chunks().field("typed_value")
    assert {"deep", "raw", "later"}.isdisjoint(TYPES)
    assert {"run", "label", "ok", "gain"} <= {field.name for field in typed.type}
    messages = [*tags[:-1], None, tags[-1]]
    for name, kind in TYPES.items():
        found = typed.field(name).field("typed_value").to_pylist()
        expected = [
            value if type(value) is kind and not (kind is int and value >= 1 << 63) else None
            for value in ((each or {}).get(name) for each in messages)
        ]
        assert found == expected, name
        # Never in both.
        others = typed.field(name).field("value").to_pylist()
        assert [value is not None for value in others] == [
            name in (each or {}) and value is None for each, value in zip(messages, expected, strict=True)
        ]


def test_the_same_bytes_are_read_again(decoded):
    directory, file = decoded
    after = read(directory, where="seq >= 0")
    assert capture.verify(directory).problems == ()
    # To put all of them together costs more than to decode them: the segment is read.
    assert read(directory) == after
    alter(file, "seq", 5)
    assert read(directory) == after
    assert set(read(directory, where="seq >= 0")["seq"].to_pylist()) == {5}


def test_duckdb_puts_them_together(decoded, tmp_path):
    directory, file = decoded
    whole = tmp_path / "whole.parquet"
    capture.export(directory, whole, "cdtp", tags="variant")
    said = "select seq, tags::varchar, tags.run::varchar, tags.deep.x[1]::varchar from '{}' order by seq"
    assert duckdb.sql(said.format(file)).fetchall() == duckdb.sql(said.format(whole)).fetchall()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"deep": {"run": 1}, "ok": True, "run": 3}, id="a name first listed deeper"),
        pytest.param({f"n{at}": at for at in range(40)} | {"deep": {"n1": 0}, "run": 1}, id="a name listed twice"),
    ],
)
def test_where_one_would_be_another_none_is_shredded(tmp_path, other):
    """Beside shredded objects none may stay whole, and readers take one that does for no object."""
    tags = [{"run": 1, "ok": True}] * 20 + [other]
    before = compacted(tmp_path, [spec("D", tags=each) for each in tags])
    file = decoded_file(tmp_path / "run")
    assert "typed_value" not in str(pyarrow.parquet.read_schema(file))
    assert read(tmp_path / "run", where="seq >= 0") == before
    assert capture.verify(tmp_path / "run").problems == ()
    runs = duckdb.sql(f"select tags.run::bigint from '{file}' order by seq").fetchall()
    assert runs == [(each["run"],) for each in tags]
    # It is as it was asked for, and not written again.
    assert capture.compact(tmp_path / "run", decode={"cdtp": {}}, shred=True).decoded.written == 0
    assert capture.compact(tmp_path / "run", decode={"cdtp": {}}).decoded.written == 1


@pytest.mark.parametrize("name", ["a\0b", "", "A", "x" * 1000, "typed_value", "a.b", "`"])
def test_any_name_of_a_tag(tmp_path, name):
    before = compacted(tmp_path, [spec("D", tags={"a": at, name: at + 1}) for at in range(20)])
    assert read(tmp_path / "run", where="seq >= 0") == before
    file = decoded_file(tmp_path / "run")
    assert duckdb.sql(f"select sum(tags.a::bigint) from '{file}'").fetchall() == [(190,)]


def test_only_what_is_asked_for_is_shredded(tmp_path):
    """Readers that do not know VARIANT take the files of a folder for one table."""
    for at in range(2):
        messages = [spec("D", tags={f"run{at}": 1})]
        capture.import_(write(tmp_path / "lines.jsonl", messages), tmp_path / "run", segment_bytes=1)
        capture.compact(tmp_path / "run", decode={"cdtp": {}}, target_bytes=1)
    assert pyarrow.parquet.read_table(tmp_path / "run" / "_decoded" / "cdtp").num_rows == 2


def test_a_layout_that_looks_like_one_is_none(tmp_path):
    asked = {"payload": "s (metadata u8, value u8, typed_value u8)"}
    messages = [release("D", 0, at, bytes([1, 2, 3]), tags={"run": at}) for at in range(20)]
    capture.import_(write(tmp_path / "lines.jsonl", messages), tmp_path / "run")
    capture.compact(tmp_path / "run", decode={"cdtp": asked}, shred=True)
    assert capture.verify(tmp_path / "run").problems == ()


def test_damaged_names_are_named(tmp_path):
    compacted(tmp_path, [spec("D", tags={"runumber": at}) for at in range(20)])
    file = decoded_file(tmp_path / "run")
    content = file.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for name in (b"runumber", b"sender"):
        at = content.index(name, footer)
        file.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
        with pytest.raises(CaptureError, match=f"{file.name}.*delete it"):
            read(tmp_path / "run", where="seq >= 0")
        assert [problem.path for problem in capture.verify(tmp_path / "run").problems] == [file]
    assert capture.compact(tmp_path / "run", decode={"cdtp": {}}, shred=True).decoded.written == 1


def test_damaged_pages_are_not_read(tmp_path):
    compacted(tmp_path, [spec("D", tags={"run": at}) for at in range(2000)])
    file = decoded_file(tmp_path / "run")
    column = pyarrow.parquet.read_metadata(file).row_group(0).column(2)
    at = column.data_page_offset + column.total_compressed_size // 2
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)
    with pytest.raises(CaptureError, match=f"{file.name}.*delete it"):
        read(tmp_path / "run", where="seq >= 0")


def test_without_fields_nothing_is_shredded(tmp_path):
    messages = [spec("D", tags={}), spec("D", tags={})]
    compacted(tmp_path, messages)
    file = decoded_file(tmp_path / "run")
    kind = pyarrow.parquet.read_schema(file).field("tags").type
    assert [field.name for field in kind] == ["value", "metadata"]
    assert read(tmp_path / "run")["tags"].null_count == 0


def rewrite(file, names):
    """Writes a file with other names of the fields of its VARIANTs."""
    table = pyarrow.parquet.read_table(file)
    shredded = table["tags"].combine_chunks()
    kind = pa.struct([pa.field("metadata", names.type, nullable=False), *[*shredded.type][1:]])
    tags = pa.StructArray.from_arrays(
        [names, shredded.field("value"), shredded.field("typed_value")], fields=list(kind)
    )
    marks = pyarrow.parquet.read_metadata(file).metadata[b"trunkline"]
    table = table.set_column(table.schema.get_field_index("tags"), pa.field("tags", kind), tags)
    with pyarrow.parquet.ParquetWriter(file, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"trunkline": marks})


def test_a_file_of_views_is_not_read_and_named(decoded):
    """Another program may write them; Arrow has no filter for them."""
    directory, file = decoded
    before = read(directory, where="seq >= 0")
    names = pyarrow.parquet.read_table(file)["tags"].combine_chunks().field("metadata")
    rewrite(file, names.cast(pa.binary_view()))
    assert read(directory, where="seq >= 0").equals(before)
    [problem] = capture.verify(directory).problems
    assert problem.path == file
    assert "cannot be compared" in problem.what


def test_a_damaged_file_is_named(decoded):
    directory, file = decoded
    rewrite(file, pa.array([b"\x01\x00\x00"] * pyarrow.parquet.read_metadata(file).num_rows, pa.binary()))
    with pytest.raises(CaptureError, match=f"{Path(file).name}.*delete it"):
        read(directory, where="seq >= 0")


def has_repeated_names(tags):
    """Whether some map in them has a name that another has."""

    def names(value):
        if isinstance(value, dict):
            yield from value
            for member in value.values():
                yield from names(member)
        elif isinstance(value, list):
            for member in value:
                yield from names(member)

    found = [*names(tags)]
    return len(found) > len(set(found))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(width=32)
    | st.text(max_size=70)
    | st.binary(max_size=5)
    | st.just(msgpack.Timestamp(1, 5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcde"), inner, max_size=4),
    max_leaves=8,
)
TAGS = st.dictionaries(st.sampled_from(["a", "b", "c", "A", "é", ""]) | st.text(max_size=3), VALUES, max_size=7)


@given(st.lists(TAGS | st.none(), max_size=8), st.lists(TAGS | st.none(), max_size=8), st.booleans())
def test_what_is_shredded_is_put_together_again(first, second, is_single):
    """By the fields of other rows, too."""
    packed = msgpack.Packer(use_single_float=is_single).pack

    def variants(rows):
        begin = b"".join(map(packed, ("CDTP\x01", "D", msgpack.Timestamp(1, 5))))
        headers = pa.array([None if tags is None else begin + packed(tags) for tags in rows], pa.binary())
        return columns.Decoder("cdtp", tags="variant").decode_structs(header=headers).field("tags")

    shredding = Shredding.of(variants(first))
    for rows in (first, second) if shredding else ():
        column = variants(rows)
        shredded = shredding.shredded(column)
        if shredded is None:
            assert any(map(has_repeated_names, rows))
            continue
        assert shredded.null_count == column.null_count
        assert unshredded(shredded).equals(column)
        assert unshredded(column).equals(column)

"""Names that segments note of their rows: those without a wanted one are not read."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peers import cdtp as wire
from peers.mtl import confirm, content
from peers.recorded import footer_alone, line
from trunkline import capture
from trunkline.capture import Selection

START_NS = 1_700_000_000 * 10**9
DCP = b"DGBX\x01"

# What is in each segment, and the name that its protocol gives it.
NAMED = [
    ("cdtp", "sender", "a", lambda: {"message": (wire.header_b(1, name="a"), b"x" * 40)}),
    ("cdtp", "sender", "b", lambda: {"message": (wire.header_b(1, name="b"), b"x" * 40)}),
    ("dcp", "service", "echo", lambda: {"message": (b"", DCP, b"\x04", b"echo", b"c", b"", b"", b"x" * 40)}),
    ("dcp", "service", "b", lambda: {"message": (b"", DCP, b"\x04", b"b", b"c", b"", b"", b"x" * 40)}),
    ("mc0", "topic", "t", lambda: {"message": (b"", b"PUT", b"TOPIC", b"t", b"ID", b"1", b"", b"x" * 40)}),
    ("mc0", "topic", "a", lambda: {"message": (b"MESSAGE", b"TOPIC", b"a", b"", b"x" * 40)}),
    ("mtl", "resource", "jobs", lambda: {"message": content(1, "jobs", b"x" * 40)}),
    ("mtl", "resource", "b", lambda: {"message": content(1, "b", b"x" * 40), "topic": None}),
    ("cdt", "topic", "s", lambda: {"message": (b"x" * 60,), "topic": "s"}),
    # It has no name.
    ("mtl", "resource", None, lambda: {"message": confirm(1)}),
]
ROWS = 3


def recorded_at(path, named, rows=ROWS, **segments):
    """A capture with so many rows of each."""
    lines = []
    for protocol, _, _, made in named:
        fields = made()
        for _ in range(rows):
            at = len(lines)
            endpoint, way = (f"tcp://{at % 2}", "in") if at % 3 else (None, "out")
            message = fields["message"]
            of = {**fields, "protocol": protocol, "endpoint": endpoint, "direction": way}
            del of["message"]
            lines.append(line(message, START_NS + at * 10**9, **of))
    path.mkdir(exist_ok=True)
    (path / "lines.jsonl").write_text("".join(lines))
    capture.import_(path / "lines.jsonl", path / "capture", **segments)
    return path / "capture"


@pytest.fixture(scope="module")
def one_each(tmp_path_factory):
    """Each of the names in a capture of its own, and after each a segment of another sender whose rows are zeros."""
    made = []
    for named in NAMED:
        path = recorded_at(tmp_path_factory.mktemp("names"), [named])
        other = NAMED[0] if named[2] != "a" else NAMED[1]
        recorded_at(path.parent, [other])
        spoil(sorted(path.glob("*.parquet"))[1])
        made.append((named, path))
    return made


def spoil(segment):
    """Leaves the footer of a segment alone."""
    segment.write_bytes(footer_alone(segment.read_bytes()))


def seqs(path, **given):
    opened = capture.open(path)
    return [row["seq"] for row in opened.rows(Selection(**given))]


@pytest.mark.parametrize("at", [at for at, (*_, name, _) in enumerate(NAMED) if name is not None])
def test_segments_that_have_no_such_name_are_not_read(one_each, at):
    (protocol, column, name, _), path = one_each[at]
    assert seqs(path, where=f"{column} = '{name}'", protocol=protocol) == list(range(ROWS))
    decoded = capture.open(path).decode(protocol, selection=Selection(where=f"{column} in ('{name}', 'no')"))
    assert decoded.read_all()[column].to_pylist() == [name.encode() if protocol == "dcp" else name] * ROWS
    assert seqs(path, **{column: name}) == ([] if protocol == "mtl" and column == "resource" else list(range(ROWS)))
    if protocol != "cdtp":
        assert seqs(path, where=f"{column} != '{name}'", protocol=protocol) == []


@pytest.mark.parametrize(
    "where",
    ["sender = 'a' or sender = 'no'", "not sender != 'a'", "sender = 'a' and endpoint is not null or sender = 'a'"],
)
def test_conditions_on_names_are_joined(one_each, where):
    assert seqs(one_each[0][1], where=where) == list(range(ROWS))


@pytest.mark.parametrize(
    ("protocol", "message", "found"),
    [
        ("mc0", (b"", b"PUT", b"TOPIC", b"t", b"ID", b"1", b"", b"x"), {"where": "topic = 't'"}),
        ("mc0", (b"", b"PUT", b"TOPIC", b"t", b"ID", b"1", b"", b"x"), {"where": "topic = 't'", "topic": "other"}),
        ("dcp", (b"", DCP, b"\x04", b"echo", b"c", b"", b"", b"x"), {"where": "service = 'echo'"}),
        ("dcp", (b"", DCP, b"\x04", b"echo", b"c", b"", b"", b"x"), {"where": "service = 'echo'", "service": "other"}),
        ("cdtp", (wire.header_b(1, name="a"), b"x"), {"where": "sender = 'a' and topic = 'other'"}),
        ("cdtp", (wire.header_b(1, name="a"), b"x"), {"where": "topic = 'other'", "sender": "a"}),
        ("mtl", content(1, "jobs", b"x"), {"where": "resource = 'jobs' and topic = 'other'"}),
        ("mtl", content(1, "jobs", b"x"), {"where": "resource = 'jobs'", "resource": "other"}),
    ],
)
def test_a_row_whose_topic_is_another_than_its_message_names_is_found(tmp_path, protocol, message, found):
    (tmp_path / "lines.jsonl").write_text(line(message, START_NS, protocol=protocol, topic="other"))
    capture.import_(tmp_path / "lines.jsonl", tmp_path / "capture")
    assert seqs(tmp_path / "capture", protocol=protocol, **found) == [0]


def test_another_protocol_is_not_read(one_each):
    for (protocol, *_), path in one_each[2:]:
        assert seqs(path, protocol=protocol) == list(range(ROWS))


def test_a_name_in_a_message_that_is_invalid_by_default_keeps_the_segment(tmp_path):
    wide = (b"", b"DGBX\x02", b"\x04", b"echo", b"", b"", b"x")
    path = recorded_at(tmp_path, [("dcp", "service", "echo", lambda: {"message": wide[:3]})])
    [noted] = json.loads(notes(path)[0])
    assert "subject" not in noted
    assert noted["protocol"] == ["dcp"]


def notes(path):
    metadata = [pq.read_metadata(segment).metadata for segment in sorted(path.glob("*.parquet"))]
    return [each.get(b"trunkline.names") for each in metadata]


def test_too_many_names_are_not_noted(tmp_path):
    def of(count):
        return [
            ("cdtp", "sender", str(at), lambda at=at: {"message": (wire.header_b(1, name=str(at)), b"x")})
            for at in range(count)
        ]

    (tmp_path / "many").mkdir()
    [few], [many] = (
        json.loads(notes(recorded_at(tmp_path / name, of(count), rows=1))[0])
        for name, count in (("few", 128), ("many", 129))
    )
    assert len(few["subject"]) == 128
    assert "subject" not in many
    assert seqs(tmp_path / "many" / "capture", sender="128") == [128]


def test_merged_segments_note_the_names_of_all(tmp_path):
    path = recorded_at(tmp_path, NAMED[:2], segment_bytes=60)
    assert len(notes(path)) > 1
    capture.compact(path)
    assert json.loads(notes(path)[0])[0]["subject"] == ["a", "b"]
    spoil(next(path.glob("*.parquet")))
    assert seqs(path, sender="c") == []


@pytest.mark.parametrize("note", [b"[]", b"[{}]", b"{}", b"no", b'[{"subject": [1]}]', b'[{"subject": 1}]', b"[1]"])
def test_a_note_that_is_none_rules_nothing_out(tmp_path, note):
    path = recorded_at(tmp_path, NAMED[:1])
    segment = next(path.glob("*.parquet"))
    content = segment.read_bytes()
    original = notes(path)[0]
    assert content.count(original) == 1
    segment.write_bytes(content.replace(original, note.ljust(len(original))))
    assert seqs(path, sender="a") == list(range(ROWS))


def test_a_note_that_another_program_has_copied_rules_nothing_out(tmp_path):
    path = recorded_at(tmp_path, NAMED[:1])
    segment = next(path.glob("*.parquet"))
    table = pq.read_table(segment)
    at = table.schema.get_field_index("header")
    other = pa.array([wire.header_b(1, name="b")] * ROWS, pa.binary())
    pq.write_table(table.set_column(at, table.schema.field(at), other), segment, compression="zstd")
    assert notes(path) == [
        b'[{"direction":["in","out"],"endpoint":[null,"tcp://0","tcp://1"],"protocol":["cdtp"],"subject":["a"]}]'
    ]
    assert seqs(path, sender="b") == list(range(ROWS))


ATOMS = [
    *(
        (f"{column} {how} '{name}'", column, how, [name])
        for column in ("sender", "endpoint", "direction")
        for how in ("=", "!=")
        for name in ("a", "b", "tcp://1", "in")
    ),
    ("sender in ('b', 'c')", "sender", "=", ["b", "c"]),
    ("sender is null", "sender", "null", []),
]


def evaluated(tree, row):
    """The value of a condition for a row: True, False, or None where it is null."""
    match tree:
        case ("not", part):
            value = evaluated(part, row)
            return None if value is None else not value
        case ("and" | "or" as how, one, other):
            values = [evaluated(part, row) for part in (one, other)]
            decides = how == "or"
            return decides if decides in values else None if None in values else not decides
        case (_, column, "null", _):
            return row[column] is None
        case (_, column, how, names):
            return None if row[column] is None else (row[column] in names) == (how == "=")


def text_of(tree):
    match tree:
        case ("not", part):
            return f"not ({text_of(part)})"
        case ("and" | "or" as how, one, other):
            return f"({text_of(one)}) {how} ({text_of(other)})"
        case (text, *_):
            return text


TREES = st.recursive(
    st.sampled_from(ATOMS),
    lambda parts: st.one_of(st.tuples(st.just("not"), parts), st.tuples(st.sampled_from(("and", "or")), parts, parts)),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def many_segments(tmp_path_factory):
    path = recorded_at(tmp_path_factory.mktemp("many"), [NAMED[at] for at in (0, 1, 0, 1, 1)], rows=4, segment_bytes=60)
    assert len(notes(path)) > 5
    return path


@settings(max_examples=150, deadline=None)
@given(tree=TREES)
def test_rows_are_those_for_which_the_condition_is_true(many_segments, tree):
    opened = capture.open(many_segments)
    rows = opened.decode("cdtp", columns=["seq", "sender"]).read_all().to_pylist()
    names = {row["seq"]: row for row in opened.rows()}
    expected = [row["seq"] for row in rows if evaluated(tree, {**names[row["seq"]], **row})]
    found = opened.decode("cdtp", columns=["seq"], selection=Selection(where=text_of(tree))).read_all()
    assert found["seq"].to_pylist() == expected


def is_noted(name, names):
    """Whether a reader of this name looks into a segment with these; bytes that are no text are in none."""
    name = name.decode(errors="replace") if isinstance(name, bytes) else name
    return names is None or name in names


VECTORS = Path(__file__).parents[1] / "vectors"
SETTINGS = {"cdtp": [{}, {"strict": False}], "dcp": [{}, {"compat_dagbox": True}], "mc0": [{}], "mtl": [{}]}


def frames_of(protocol):
    for file in sorted((VECTORS / protocol).glob("*.json")):
        for vector in json.loads(file.read_text()):
            if vector.get("frames"):
                yield tuple(bytes.fromhex(frame) for frame in vector["frames"])


@pytest.mark.parametrize("protocol", SETTINGS)
def test_whatever_a_reader_finds_in_a_message_is_noted(tmp_path, protocol):
    """The vectors of the wire, valid and invalid, each in a segment of its own."""
    messages = list(dict.fromkeys(frames_of(protocol)))
    lines = [line(message, at, protocol=protocol) for at, message in enumerate(messages)]
    (tmp_path / "lines.jsonl").write_text("".join(lines))
    path = tmp_path / "capture"
    capture.import_(tmp_path / "lines.jsonl", path, segment_bytes=1)
    of_segments = [json.loads(note)[0].get("subject") for note in notes(path)]
    noted = [of_segments[row["segment"]] for row in capture.open(path).rows()]
    assert len(noted) == len(messages) > 50
    column = {"cdtp": "sender", "dcp": "service", "mc0": "topic", "mtl": "resource"}[protocol]
    for options in SETTINGS[protocol]:
        found = [
            row
            for row in capture.open(path).decode(protocol, columns=["seq", column], **options).read_all().to_pylist()
            if row[column] is not None
        ]
        assert len(found) > 20
        missing = [row for row in found if not is_noted(row[column], noted[row["seq"]])]
        assert missing == []

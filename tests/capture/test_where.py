"""Conditions on the messages of a capture."""

import operator
import struct

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peers import cdtp as wire
from peers import mtl as wire_mtl
from peers.recorded import footer_alone, line
from trunkline import CaptureError, LocalProtocolError, capture
from trunkline.capture import Selection

TAGS = [
    {},
    {"run": 3, "gain": 1.5, "site": "north hall"},
    {"run": 4, "gain": 2, "site": "north"},
    {"run": "3", "ok": True, "at": {"crate": 1}},
    {"Run": 3, "run": -3.5, "ok": False, "raw": b"\xff", "site": "it's"},
    {"run": None, "gain": 2**53 + 1, "beam.on": [1, 2]},
]


def header(sequence, name, tags, kind=wire.DAT):
    return wire.header_b(sequence, kind, name=name)[:-1] + msgpack.packb(tags)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Messages of two senders, a message of several records, what is no message, and a service."""
    path = tmp_path_factory.mktemp("where") / "capture"
    lines = []

    def add(*frames, **fields):
        lines.append(line(frames, len(lines) * 10**9 + 999, **fields))

    for name in ("a", "b"):
        for sequence, tags in enumerate(TAGS):
            add(header(sequence, name, tags, wire.BOR if sequence == 0 else wire.DAT), b"x" * sequence)
    add(wire.batch([7, 8, 9], name="c"))
    add(b"no header", b"x")
    add(b"", b"DGBX\x01", b"\x01", b"echo", protocol="dcp", peer=b"a")
    (path.parent / "lines.jsonl").write_text("".join(lines))
    capture.import_(path.parent / "lines.jsonl", path, segment_bytes=100)
    return capture.open(path)


def numbers(recorded, where, **given):
    return [row["seq"] for row in recorded.rows(Selection(where=where, **given))]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("type = 'BOR'", [0, 6]),
        ("sender='b' AND sequence>=4", [10, 11]),
        ("tags.run = 3", [1, 7]),
        ("tags.run::string = '3'", [3, 9]),
        ("tags.run = 3 or tags.run = '3'", [1, 3, 7, 9]),
        ("tags.Run = 3 and tags.run < 0", [4, 10]),
        ("not tags.run in (3, 4)", [4, 10]),
        ("tags.run is not null and sender = 'a'", [1, 2, 3, 4]),
        ("tags.at is not null", [3, 9]),
        ('tags."beam.on" is not null', [5, 11]),
        ("tags.gain = 9007199254740993", [5, 11]),
        ("tags.raw = 0xff", [4, 10]),
        ("tags.ok", [3, 9]),
        ("not tags.ok", [4, 10]),
        ("tags.site like 'north%' and tags.site not like '% %'", [2, 8]),
        ("tags.site = 'it''s'", [4, 10]),
        ("tags.gain between 1.5 and 2 and sender = 'a'", [1, 2]),
        ("sequence = 8", [12]),
        ("error is not null", [13]),
        ("service = 'echo'", [14]),
        ("peer = 'a'", [14]),
        ("received_at >= '1970-01-01T00:00:03' and received_at < '1970-01-01T02:00:05+02:00'", [3, 4]),
        ("received_at = '1970-01-01T00:00:03'", [3]),
        ("received_at_ns = 3000000999", [3]),
        ("payload_bytes = 5 and n_frames = 2", [5, 11]),
    ],
)
def test_rows_are_those_with_a_message_of_which_it_holds(recorded, where, expected):
    assert numbers(recorded, where) == expected
    selection = Selection(where=where)
    if selection.spoken != "dcp":
        of_messages = [seq for seq in expected if seq != 14]
        assert recorded.decode("cdtp", selection=selection).read_all()["seq"].to_pylist() == of_messages


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("tags.id = 18446744073709551615", [0]),
        ("tags.id in (18446744073709551614, 9223372036854775806)", [1, 3]),
        ("tags.id <> 9223372036854775806", [0, 1, 2]),
        ("tags.id > 9223372036854775806", [0, 1, 2]),
        ("9223372036854775806 < tags.id", [0, 1, 2]),
        ("tags.id between 9223372036854775807 and 18446744073709551615", [0, 1, 2]),
        ("tags.id <= 9223372036854775806", [3]),
        ("sequence = 9223372036854775807", [4]),
        ("sequence < 9223372036854775808", [0, 1, 2, 3, 4]),
        ("sequence = 18446744073709551615", []),
    ],
)
def test_whole_numbers_that_are_no_bigint(tmp_path, where, expected):
    ids = [2**64 - 1, 2**64 - 2, 2**63 - 1, 2**63 - 2]
    frames = [(header(1, "a", {"id": number}), b"x") for number in ids]
    frames += [(header(2**63 - 1, "a", {}), b"x")]
    (tmp_path / "lines.jsonl").write_text("".join(line(one, at) for at, one in enumerate(frames)))
    capture.import_(tmp_path / "lines.jsonl", tmp_path / "c")
    assert numbers(capture.open(tmp_path / "c"), where) == expected


def test_sequences_of_mtl_have_64_bits(tmp_path):
    frames = [(wire_mtl.content(number, "jobs", b"x")) for number in (2**64 - 1, 2**63, 1)]
    lines = (line(one, at, protocol="mtl", peer=b"w") for at, one in enumerate(frames))
    (tmp_path / "lines.jsonl").write_text("".join(lines))
    capture.import_(tmp_path / "lines.jsonl", tmp_path / "c")
    recorded = capture.open(tmp_path / "c")
    assert numbers(recorded, "sequence = 18446744073709551615") == [0]
    assert numbers(recorded, "sequence >= 9223372036854775808") == [0, 1]


def test_it_holds_of_records_one_by_one(recorded):
    found = recorded.decode("cdtp", selection=Selection(where="sequence in (7, 9) and sender = 'c'")).read_all()
    assert found["sequence"].to_pylist() == [7, 9]
    selection = Selection(where="sequence in (7, 9) or type = 'BOR'")
    assert [(row["seq"], chosen) for row, chosen in recorded.chosen(selection)] == [(0, {0}), (6, {0}), (12, {0, 2})]
    assert [(row["seq"], chosen) for row, chosen in recorded.chosen(Selection(sender="c"))] == [(12, None)]


def test_it_goes_with_everything_else_that_is_selected(recorded):
    assert numbers(recorded, "sequence > 2", sender="b", type="dat") == [9, 10, 11]
    assert numbers(recorded, "direction = 'in'", protocol="dcp") == [14]


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_it_holds_of_the_same_messages_in_every_mode(recorded, mode):
    selection = Selection(where="payload_bytes < 2 or tags.run::double < 0")
    found = recorded.decode("cdtp", mode=mode, selection=selection, tags={"run": "bigint"}, payload=True).read_all()
    assert found["seq"].to_pylist() == [0, 1, 4, 6, 7, 10]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("type = 'DAT' and sequnce > 1", r"^where: 1:18: no column 'sequnce', did you mean 'sequence'\?$"),
        ("sequence > 1 and\n tag.run = 3", r"^where: 2:2: no column 'tag.run', did you mean 'tags.run'\?$"),
        ("sequence = 1 2", "^where: 1:14: unexpected '2'$"),
        ("sequence >", "^where: 1:10: the condition is incomplete$"),
        ("", "^where: 1:1: the condition is empty$"),
        ("type = 3", "^where: 1:1: text cannot be compared with number$"),
        ("type", "^where: 1:1: a comparison is missing$"),
        ("tags = 'x'", "^where: 1:1: name one of the tags: tags.NAME$"),
        ("tags.a = tags.b", "^where: 1:1: give the type to compare as: tags.a::bigint"),
        ("tags.a::date = 1", '^where: 1:1: .*unknown type "date"'),
        ("type::string = 'DAT'", "^where: 1:1: type already has a type: leave out ::string$"),
        ("tags.ok < true", "^where: 1:1: booleans can only be compared with = and !=$"),
        ("sequence like 'a'", "^where: 1:1: LIKE takes text only$"),
        ("received_at > 'noon'", "^where: 1:15: write a time as"),
        ("sequence = 99999999999999999999", "^where: 1:12: this number has more than 64 bits$"),
        ("sequence = " + "9" * 5000, "^where: 1:12: this number has more than 64 bits$"),
        ("not " * 3000 + "sequence = 1", "nested too deeply"),
        ("__import__('os')", r"^where: 1:11: unexpected .*$"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(where, message):
    with pytest.raises(LocalProtocolError, match=message):
        Selection(where=where)


def test_columns_of_another_protocol_than_is_decoded(recorded):
    with pytest.raises(LocalProtocolError, match=r"no message is of both|1:1: no column 'service'"):
        recorded.decode("cdtp", selection=Selection(where="service = 'echo'"))


# What each column holds, row by row, as a naive evaluation has it.
ROWS = [
    {
        "sender": name,
        "sequence": sequence,
        "type": "BOR" if sequence == 0 else "DAT",
        "n_bytes": len(header(sequence, name, tags)) + sequence,
        "seq": seq,
        "received_at_ns": seq * 10**9 + 999,
        **{f"tags.{key}": value for key, value in tags.items()},
    }
    for seq, (name, sequence, tags) in enumerate((name, *one) for name in ("a", "b") for one in enumerate(TAGS))
]
NUMBERS = ["seq", "sequence", "n_bytes", "tags.run", "tags.gain", "tags.Run"]
TEXTS = ["sender", "type", "tags.site", "tags.run"]


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def compared(kind, literals):
    """Comparisons of columns of a kind with literals: as text, and as a function of a row to true, false or None."""

    def make(column, how, value):
        written = "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)

        def holds(row):
            found = row.get(column)
            if not (isinstance(found, str) if kind is TEXTS else is_number(found)):
                return None
            return {"=": found == value, "<>": found != value, "<": found < value, ">=": found >= value}[how]

        return f"{column} {how} {written}", holds

    return st.builds(make, st.sampled_from(kind), st.sampled_from(["=", "<>", "<", ">="]), literals)


def negated(one):
    def holds(row):
        found = one[1](row)
        return None if found is None else not found

    return f"not ({one[0]})", holds


def joined(one, how, other):
    def holds(row):
        found = {one[1](row), other[1](row)}
        decides = how == "or"
        return decides if decides in found else None if None in found else not decides

    return f"({one[0]}) {how} {other[0]}" if how == "or" else f"({one[0]}) and ({other[0]})", holds


def null(column, is_null):
    return f"{column} is {'' if is_null else 'not '}null", lambda row: (row.get(column) is None) == is_null


def received(how, second):
    """Times of receipt are compared in microseconds: less than one of them is beside each second."""
    holds = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, ">=": operator.ge}[how]
    return f"received_at {how} '1970-01-01T00:00:{second:02}'", lambda row: holds(row["seq"], second)


LEAVES = st.one_of(
    compared(NUMBERS, st.one_of(st.integers(-5, 40), st.floats(-4, 4, allow_subnormal=False))),
    compared(TEXTS, st.sampled_from(["a", "DAT", "north", "3", "it's"])),
    compared(["received_at_ns"], st.integers(0, 13).map(lambda second: second * 10**9 + 999)),
    st.builds(received, st.sampled_from(["=", "<>", "<", ">="]), st.integers(0, 13)),
    st.builds(null, st.sampled_from([*NUMBERS, *TEXTS]), st.booleans()),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda parts: st.one_of(st.builds(negated, parts), st.builds(joined, parts, st.sampled_from(["and", "or"]), parts)),
    max_leaves=6,
)


@given(condition=CONDITIONS)
@settings(deadline=None, max_examples=60)
def test_it_holds_of_what_it_holds_of_one_by_one(recorded, condition):
    where, holds = condition
    selection = Selection(protocol="cdtp", where=f"sender <= 'b' and ({where})")
    expected = [seq for seq, row in enumerate(ROWS) if holds(row)]
    assert [row["seq"] for row in recorded.rows(selection)] == expected
    assert recorded.decode("cdtp", selection=selection).read_all()["seq"].to_pylist() == expected


@pytest.fixture(scope="module")
def ten_segments(tmp_path_factory):
    """Ten segments of ten rows, received a second after each other, and what is left of them once all pages are zeros."""
    path = tmp_path_factory.mktemp("pages") / "capture"
    lines = [line((header(at, "a", {}), b"x"), at * 10**9) for at in range(100)]
    (path.parent / "lines.jsonl").write_text("".join(lines))
    capture.import_(path.parent / "lines.jsonl", path, segment_bytes=10 * len(header(0, "a", {})) + 10)
    whole = {segment: segment.read_bytes() for segment in sorted(path.glob("*.parquet"))}
    assert len(whole) == 10
    return path, whole


@pytest.mark.parametrize(
    ("where", "segments"),
    [
        ("seq between 23 and 25", [2]),
        ("seq in (5, 42) and sender = 'a'", [0, 4]),
        ("seq < 9.5 or 98 <= seq", [0, 9]),
        ("not (seq >= 20 and seq <> 55)", [0, 1, 5]),
        ("received_at_ns > 69999999999 and received_at_ns < 80000000000", [7]),
        ("received_at >= '1970-01-01T00:01:10' and received_at < '1970-01-01T00:01:19'", [7]),
        ("seq > 30 and received_at < '1970-01-01T00:00:39'", [3]),
        ("seq < 10 and seq > 20", []),
        ("seq not between 0 and 89", [9]),
    ],
)
def test_segments_that_cannot_have_such_rows_are_not_read(ten_segments, where, segments):
    path, whole = ten_segments
    expected = numbers(capture.open(path), where)
    assert {seq // 10 for seq in expected} == set(segments)
    try:
        for at, (segment, content) in enumerate(whole.items()):
            if at not in segments:
                segment.write_bytes(footer_alone(content))
        assert numbers(capture.open(path), where) == expected
        # Where nothing is found, whether there are other protocols is looked up in all of them.
        if expected:
            selection = Selection(protocol="cdtp", where=where)
            assert capture.open(path).decode("cdtp", selection=selection).read_all()["seq"].to_pylist() == expected
        with pytest.raises(CaptureError):
            numbers(capture.open(path), "sequence >= 0")
    finally:
        for segment, content in whole.items():
            segment.write_bytes(content)


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """A hundred numbers as payloads, of which each third is something else."""
    folder = tmp_path_factory.mktemp("typed")
    payloads = [b"bad" if number % 3 == 0 else number.to_bytes(2, "little") for number in range(100)]
    rows = [line([wire.header_s(), payload], at, protocol="cdtp") for at, payload in enumerate(payloads)]
    (folder / "rows.jsonl").write_text("".join(rows))
    capture.import_(folder / "rows.jsonl", folder / "capture")
    return capture.open(folder / "capture")


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
@pytest.mark.parametrize("where", ["payload_n >= 50", "seq >= 50 and error is null"])
def test_it_holds_of_what_a_layout_makes_of_payloads(typed, mode, where):
    decoded = typed.decode("cdtp", mode=mode, payload="n u16", selection=Selection(where=where))
    assert decoded.read_all()["payload_n"].to_pylist() == [number for number in range(50, 100) if number % 3]


def test_what_is_wrong_with_payloads_can_be_selected(typed):
    decoded = typed.decode("cdtp", payload="n u16", selection=Selection(where="error = 'payload_long'"))
    assert decoded.read_all().num_rows == 34
    assert typed.decode("cdtp", selection=Selection(where="error is null")).read_all().num_rows == 100


@pytest.mark.parametrize(
    ("where", "payload", "message"),
    [
        ("payload_n = 1", True, "no column 'payload_n'.*; fields of payloads are columns of what is decoded"),
        ("payload_m = 1", "n u16", "no column 'payload_m', did you mean 'payload_n'"),
        ("payload_n = 1", "n u16[]", "payload_n supports only IS NULL"),
        ("payload_n = 'a'", "n u16", "number cannot be compared with text"),
    ],
)
def test_fields_that_no_layout_has_are_refused_at_once(typed, where, payload, message):
    with pytest.raises(LocalProtocolError, match=message):
        typed.decode("cdtp", payload=payload, selection=Selection(where=where))


def test_rows_have_no_fields_of_payloads(typed):
    with pytest.raises(LocalProtocolError, match="decoded or exported by a layout"):
        list(typed.rows(Selection(where="payload_n = 1")))


def of_payloads(folder, *payloads):
    rows = [line([wire.header_s(), payload], at, protocol="cdtp") for at, payload in enumerate(payloads)]
    (folder / "rows.jsonl").write_text("".join(rows))
    capture.import_(folder / "rows.jsonl", folder / "capture")
    return capture.open(folder / "capture")


@pytest.mark.parametrize(
    ("layout", "form", "values", "where", "expected"),
    [
        ("x u64", "<Q", [0, 2**64 - 1, 5], "payload_x = 0", [0]),
        ("x u64", "<Q", [0, 2**64 - 1, 5], "payload_x > 4", [2**64 - 1, 5]),
        ("x u64", "<Q", [0, 2**64 - 1, 5], "payload_x > -1", [0, 2**64 - 1, 5]),
        ("x u64", "<Q", [0, 2**64 - 1, 5], "payload_x < 4.5", [0]),
        ("x i64", "<q", [1_795_251_125_874_512_487, 1], "payload_x > 1.6e18", [1_795_251_125_874_512_487]),
        (
            "x i64",
            "<q",
            [1_795_251_125_874_512_487, 1],
            "payload_x >= 1795251125874512487",
            [1_795_251_125_874_512_487],
        ),
        ("x f16", "<e", [0.5, 2.0], "payload_x > 1", [2.0]),
        ("x f64", "<d", [0.5, 2.0], "payload_x < 9223372036854775808", [0.5, 2.0]),
        ("x f32", "<f", [0.5, 2.0], "payload_x > 1", [2.0]),
        ("x bytes[2]", "2s", [b"ab", b"cd"], "payload_x = 0x6162", [b"ab"]),
        ("x i32", "<i", [-1, 2], "payload_x > received_at_ns", [2]),
    ],
)
def test_numbers_of_any_types_are_compared(tmp_path, layout, form, values, where, expected):
    opened = of_payloads(tmp_path, *(struct.pack(form, value) for value in values))
    decoded = opened.decode("cdtp", payload=layout, selection=Selection(where=where))
    assert decoded.read_all()["payload_x"].to_pylist() == expected


def test_times_are_compared_with_doubles(typed):
    assert typed.decode("cdtp", selection=Selection(where="received_at_ns < 1.7e18")).read_all().num_rows == 100


@pytest.mark.parametrize("mode", ["dropmalformed", "DROPMALFORMED"])
def test_a_mode_without_a_column_has_none_in_conditions(typed, mode):
    with pytest.raises(LocalProtocolError, match="no column '_corrupt_record'"):
        typed.decode("cdtp", mode=mode, selection=Selection(where="_corrupt_record is null"))


def test_values_of_other_types_are_null_in_any_spelling_of_a_mode(tmp_path):
    (tmp_path / "rows.jsonl").write_text(line([header(0, "D", {"run": "one"}), b"x"], 0, protocol="cdtp"))
    capture.import_(tmp_path / "rows.jsonl", tmp_path / "capture")
    decoded = capture.open(tmp_path / "capture").decode(
        "cdtp", mode="failfast", tags=None, selection=Selection(where="tags.run = 1")
    )
    assert decoded.read_all().num_rows == 0

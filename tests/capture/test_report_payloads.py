"""What a report says of payloads, beside NumPy."""

import struct
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peers import cdtp as wire
from peers import mc0 as mc0_wire
from peers.recorded import AT, line
from trunkline import capture
from trunkline._native.analysis import Payloads
from trunkline.columns import Decoder, Layout
from trunkline.errors import LocalProtocolError
from trunkline.report.following import Following

LAYOUT = "n u8, ratio f32, on bool, name utf8[2], adc u16[n], hits (charge f32)[2]"


def frame(number, adc, charges=(0.5, 1.5)):
    head = struct.pack("<Bf?2s", len(adc), number / 4, number % 2, b"ab" if number % 3 else b"c")
    return head + np.array(adc, "<u2").tobytes() + np.array(charges, "<f4").tobytes()


ADC = [[number, 2 * number, 3 * number][: number % 4] for number in range(20)]


@pytest.fixture
def recorded(tmp_path):
    """Messages of two senders and a topic; a payload of each sender is not of the layout."""
    rows = []
    for number, adc in enumerate(ADC):
        header = wire.header_s(name="odd" if number % 2 else "even")
        payload = frame(number, adc) if number < 18 else b"x"
        rows.append(line([header, payload], AT + number, protocol="cdtp"))
    rows.append(line(mc0_wire.put(b"t", frame(1, [7, 9])), AT + 20, protocol="mc0", peer=b"p"))
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    capture.import_(tmp_path / "rows.jsonl", tmp_path / "run")
    return tmp_path / "run"


def fields(report):
    return {(each["protocol"], each["name"], each["field"]): each for each in report["sections"]["payloads"]}


def test_the_numbers_are_those_of_numpy(recorded, tmp_path):
    found = fields(capture.report(recorded, tmp_path / "report.html", payload=LAYOUT).to_dict())
    for name, parity in (("even", 0), ("odd", 1)):
        numbers = [number for number in range(18) if number % 2 == parity]
        ratio = found["cdtp", name, "ratio"]
        expected = np.array([number / 4 for number in numbers])
        assert (ratio["count"], ratio["malformed"]) == (9, 1)
        assert (ratio["min"], ratio["max"]) == (expected.min(), expected.max())
        assert ratio["mean"] == pytest.approx(expected.mean(), rel=1e-15)
        assert ratio["std"] == pytest.approx(expected.std(), rel=1e-14)
        assert ratio["profile"] is ratio["length"] is None
        counts, _ = np.histogram(expected, ratio["histogram"]["edges"])
        assert ratio["histogram"]["counts"] == counts.tolist()
        adc, lists = found["cdtp", name, "adc"], [ADC[number] for number in numbers]
        values = np.concatenate(lists)
        assert adc["count"] == len(values)
        assert adc["mean"] == pytest.approx(values.mean(), rel=1e-15)
        assert adc["length"] == {
            "count": 9,
            "min": min(map(len, lists)),
            "max": max(map(len, lists)),
            "mean": np.mean([len(each) for each in lists]),
        }
        for place, mean in enumerate(adc["profile"]["mean"]):
            there = [each[place] for each in lists if len(each) > place]
            assert mean == pytest.approx(np.mean(there), rel=1e-15)
            assert adc["profile"]["std"][place] == pytest.approx(np.std(there), rel=1e-12)
        assert len(adc["samples"]) == 5
        assert all(sample in lists for sample in adc["samples"])
        on = found["cdtp", name, "on"]
        assert on["values"] == [["true" if parity else "false", 9]]
        words = Counter("ab" if number % 3 else "c" for number in numbers)
        assert dict(found["cdtp", name, "name"]["values"]) == words
        assert found["cdtp", name, "hits.charge"]["mean"] == 1.0
    assert found["mc0", "t", "adc"]["mean"] == 8.0
    page = (tmp_path / "report.html").read_text()
    assert 'id="payloads"' in page
    assert "ratio of even" in page


def test_without_a_layout_nothing_is_said(recorded, tmp_path):
    assert "payloads" not in capture.report(recorded, tmp_path / "report.html").to_dict()["sections"]


def test_what_follows_a_capture_says_the_same(recorded, tmp_path):
    locally = capture.report(recorded, tmp_path / "report.html", payload=LAYOUT).to_dict()
    following = Following(recorded, "run", Layout(LAYOUT))
    first = following.page(tmp_path / "followed.html", 1.0)
    again = following.page(tmp_path / "followed.html", None)
    assert first.to_dict()["sections"]["payloads"] == again.to_dict()["sections"]["payloads"]
    assert again.to_dict()["sections"]["payloads"] == locally["sections"]["payloads"]


def test_a_selection_counts(recorded, tmp_path):
    only = capture.Selection(sender="even")
    found = fields(capture.report(recorded, tmp_path / "report.html", selection=only, payload=LAYOUT).to_dict())
    assert {name for _, name, _ in found} == {"even"}


def test_a_condition_on_a_field_selects(recorded, tmp_path):
    only = capture.Selection(where="payload_ratio >= 3 and payload_on")
    report = capture.report(recorded, tmp_path / "report.html", selection=only, payload=LAYOUT).to_dict()
    found = fields(report)
    numbers = [number for number in range(18) if number / 4 >= 3 and number % 2]
    assert report["rows"] == len(numbers)
    assert found["cdtp", "odd", "ratio"]["count"] == len(numbers)
    assert {name for _, name, _ in found} == {"odd"}
    none = capture.Selection(where="payload_ration >= 3")
    with pytest.raises(LocalProtocolError, match="did you mean 'payload_ratio'"):
        capture.report(recorded, tmp_path / "report.html", selection=none, payload=LAYOUT)


@pytest.mark.parametrize(
    ("where", "protocol"),
    [("payload_n > 0 and sender = 'odd'", "cdtp"), ("payload_n > 0 and topic = 't'", "mc0"), ("payload_n >= 0", None)],
)
def test_a_condition_is_of_the_protocols_that_have_its_columns(recorded, tmp_path, where, protocol):
    report = capture.report(
        recorded, tmp_path / "report.html", selection=capture.Selection(where=where), payload=LAYOUT
    ).to_dict()
    assert report["rows"] > 0
    assert {each["protocol"] for each in report["sections"]["payloads"]} == (
        {protocol} if protocol else {"cdtp", "mc0"}
    )


@pytest.mark.parametrize("values", [(1.7e308, -1.7e308), (5e-324, 0.0), (1e300, -1e300), (2.0**53, 2.0**53 + 2)])
@pytest.mark.parametrize("layout", ["x f64", "x f64[]"])
def test_any_numbers_are_drawn(tmp_path, layout, values):
    payloads = [struct.pack("<2d", *values)] if layout.endswith("]") else [struct.pack("<d", each) for each in values]
    rows = [line([wire.header_s(), payload], AT, protocol="cdtp") for payload in payloads]
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    capture.import_(tmp_path / "rows.jsonl", tmp_path / "run")
    [found] = capture.report(tmp_path / "run", tmp_path / "report.html", payload=layout).to_dict()["sections"][
        "payloads"
    ]
    assert (found["min"], found["max"]) == (min(values), max(values))
    assert "nan" not in (tmp_path / "report.html").read_text().lower().replace("nanosecond", "")


def counted(layout, frames, protocol="cdtp"):
    """The counts of the fields of payloads."""
    import pyarrow as pa

    [(_, decoded)] = Decoder(protocol, tags=None, payload=layout).decode_rows(
        header=pa.array([wire.header_s()] * len(frames), pa.binary()),
        payload=pa.array([[each] for each in frames], pa.list_(pa.binary())),
    )
    counts = Payloads("sender")
    counts.record(decoded.append_column("seq", pa.array(range(len(frames)), pa.int64())))
    return {each["field"]: each for each in counts.evaluate()}


def test_arrays_of_all_else_than_numbers_are_counted():
    layout = "n u8, on bool[4], names utf8[2][2], hits (adc u16[3], ons bool)[n]"
    hit = struct.pack("<3H?", 1, 2, 3, 1)
    found = counted(layout, [b"\x02\1\0\0\1ab" + b"c\0" + 2 * hit, b"\x00" + bytes(4) + b"ababx"[:4]])
    assert (found["on"]["count"], found["on"]["mean"]) == (8, 0.25)
    assert found["on"]["profile"]["mean"] == [0.5, 0, 0, 0.5]
    assert (found["names"]["count"], dict(found["names"]["values"])) == (4, {"ab": 3, "c": 1})
    assert found["hits.adc"]["length"] == {"count": 2, "min": 0, "max": 6, "mean": 3.0}
    assert found["hits.adc"]["profile"]["mean"] == [1, 2, 3, 1, 2, 3]
    assert found["hits.ons"]["count"] == 2


def test_texts_are_counted_exactly_or_not_at_all():
    texts = [f"{'x' * 100}{number % 2}" for number in range(10)] + [str(number) for number in range(9_999)]
    found = counted("utf8", [text.encode() for text in texts])["value"]
    assert (found["values"][0], found["different"]) == (["x" * 100 + "…", 10], 10_000)
    found = counted("utf8", [text.encode() for text in (*texts, "one more")])["value"]
    assert (found["count"], found["values"], found["different"]) == (10_010, [], None)


def test_numbers_without_an_exact_square_have_no_mean_instead_of_another():
    found = counted("x f64", [struct.pack("<d", number) for number in (1e200, 1.0)])["x"]
    assert (found["min"], found["max"], found["mean"], found["std"]) == (1.0, 1e200, None, None)


@settings(max_examples=30)
@given(st.lists(st.lists(st.floats(width=32), max_size=5), min_size=1, max_size=12), st.randoms())
def test_no_order_and_no_division_changes_the_numbers(lists, random):
    """Parts are counted apart, in any order, and added: all digits are the same."""
    import pyarrow as pa

    frames = [np.array(each, "<f4").tobytes() for each in lists]
    decoder = Decoder("cdtp", tags=None, payload="x f32[]")
    [(_, decoded)] = decoder.decode_rows(
        header=pa.array([wire.header_s()] * len(frames), pa.binary()),
        payload=pa.array([[each] for each in frames], pa.list_(pa.binary())),
    )
    decoded = decoded.append_column("seq", pa.array(range(len(frames)), pa.int64()))
    whole = Payloads("sender")
    whole.record(decoded)
    order = list(range(len(frames)))
    random.shuffle(order)
    merged = Payloads("sender")
    for row in order:
        part = Payloads("sender")
        part.record(decoded.slice(row, 1))
        merged.merge(part.state())
    assert repr(merged.evaluate()) == repr(whole.evaluate())
    assert merged.state() == whole.state() or repr(merged.evaluate()) == repr(whole.evaluate())


def test_bytes_that_are_no_counts_are_refused():
    with pytest.raises(ValueError, match="no state"):
        Payloads("sender").merge(b"nothing")

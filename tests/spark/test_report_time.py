"""What a report says of time: rates that know batches, bytes a second, and a clock on the axis."""

import json
import re
from html import unescape

import pytest
import reference as wire

from trunkline import spark
from trunkline.report import ServiceReport, latencies, over_time
from trunkline.report.model import Clock

S = 10**9
DAY = 86_400 * S
START = 1_795_251_120 * S  # 2026-11-21 08:52:00


@pytest.fixture
def captured(captured):
    """Makes a capture of messages of CDTP, each with a time and frames."""
    return lambda *messages: captured(*((START + at, "cdtp", "in", None, frames) for at, *frames in messages))


def figure(text, key):
    return text.partition(f'<h2 id="{key}"')[2].partition("</figure>")[0]


def plotted(text, key):
    """The data of a plot for the script of the page."""
    return json.loads(unescape(re.search(r'data-values="([^"]*)"', figure(text, key))[1]))


def test_records_that_came_together_are_spread(captured, reported):
    records = [[number, {}, [b"x" * 90]] for number in range(100)]
    # A hundred records ten seconds apart, and a sender that sends one each second.
    batches = [(at * S, wire.two(*records, sender="batches")) for at in range(0, 121, 10)]
    singles = [(at * S, wire.b(at, sender="singles"), b"x" * 1000) for at in range(121)]
    report = reported(captured(*batches, *singles))
    counts = report.section(spark.CdtpSection).counts
    assert [sender.sender for sender in report.section(spark.CdtpSection).senders] == ["batches", "singles"]
    rates, volumes = counts.rates[0], counts.volumes[0]
    assert sum(rates.values()) == pytest.approx(1300)
    assert sum(volumes.values()) == pytest.approx(report.section(spark.CdtpSection).senders[0].bytes)
    # All but the first hundred, which have no known start.
    steady = [rates[bucket] / counts.bucket_ns * S for bucket in range(1, 119)]
    assert steady == [pytest.approx(10, rel=0.01)] * 118
    assert rates[0] > 100
    # What is not sent together counts when it came.
    assert set(counts.rates[1].values()) <= {1, 2}


def test_single_records_and_those_of_one_moment_are_not_spread(captured, reported):
    one, two = ([[at, {}, [b"x"]] for at in range(number)] for number in (1, 2))
    path = captured((0, wire.two(*one)), (60 * S, wire.two(*one)), (119 * S, wire.two(*two)), (119 * S, wire.two(*two)))
    rates = reported(path).section(spark.CdtpSection).counts.rates[0]
    assert (rates[0], sum(rates.values())) == (1, pytest.approx(6))
    # The second single one counts as it came, and with it begins what is spread until the end.
    assert rates[60] == pytest.approx(1, abs=0.05)
    assert set(range(1, 60)).isdisjoint(rates)
    # The last two came in the moment of those before them.
    assert max(rates, key=rates.get) == 119
    assert rates[119] > 2


def test_bytes_a_second_and_the_values_beside_a_plot(captured, reported):
    rows = [(at * S // 2, wire.b(at, sender="a<'\"&"), b"x" * 2_000_000) for at in range(13)]
    report = reported(captured(*rows))
    text = report.path.read_text()
    rate, volume = plotted(text, "rate"), plotted(text, "volume")
    (line,) = volume["rows"]
    assert (line["name"], line["colour"], volume["unit"], rate["unit"]) == ("a<'\"&", 0, "MB/s", "messages/s")
    seconds = volume["bucket_ms"] / 1000
    sent = report.section(spark.CdtpSection).senders[0].bytes / 1e6
    assert sum(line["values"]) * seconds == pytest.approx(sent, rel=0.01)
    assert sum(rate["rows"][0]["values"]) * seconds == pytest.approx(13, rel=0.01)
    assert volume["first_ms"] == START / 1e6
    left, right = volume["axis"]
    assert 0 < left < 0.3
    assert 0.9 < right <= 1


@pytest.mark.parametrize(
    ("length_ns", "label", "marks"),
    [
        (100, "UTC, 2026-11-21", ["08:52:00.00000000", "08:52:00.00000005", "08:52:00.00000010"]),
        (S // 10, "UTC, 2026-11-21", ["08:52:00.00", "08:52:00.05", "08:52:00.10"]),
        (50 * S, "UTC, 2026-11-21", ["08:52:00", "08:52:10", "08:52:20", "08:52:30", "08:52:40", "08:52:50"]),
        (3600 * S, "UTC, 2026-11-21", ["09:00", "09:10", "09:20", "09:30", "09:40", "09:50"]),
        (DAY, "UTC, 2026-11-21 to 2026-11-22", ["11-21 12:00", "11-21 18:00", "11-22 00:00", "11-22 06:00"]),
        (
            10 * DAY,
            "UTC, 2026-11-21 to 2026-12-01",
            ["2026-11-23", "2026-11-25", "2026-11-27", "2026-11-29", "2026-12-01"],
        ),
        (
            1000 * DAY,
            "UTC, 2026-11-21 to 2029-08-17",
            ["2026-12-13", "2027-07-01", "2028-01-17", "2028-08-04", "2029-02-20"],
        ),
    ],
)
def test_the_axis_is_a_clock(length_ns, label, marks):
    clock = Clock(START, -(-length_ns // 120))
    plot = over_time.rates({0: {0: 1}}, clock, {0: "a"}).draw("title")
    words = re.findall(r"<text[^>]*>([^<]*)</text>", plot)
    assert label in words
    assert [word for word in words if re.search(r"\d[:-]\d", word) and word != label] == marks


def test_a_logarithmic_line_ends_where_there_is_nothing():
    far = {0: dict.fromkeys(range(120), 1000), 1: {3: 1, 60: 1}}
    near = {0: dict.fromkeys(range(120), 2), 1: {3: 1, 60: 1}}
    strokes = []
    for rows in (far, near):
        plot = over_time.rates(rows, Clock(START, S), {0: "a", 1: "b"}).draw("title")
        (line,) = re.findall(r'<path d="([^"]*)"[^>]*stroke: var\(--s1\)', plot)
        strokes.append(line.count("M"))
    assert strokes == [2, 1]


def test_small_numbers_have_small_units():
    clock = Clock(START, S)
    plot = over_time.volumes({0: {0: 5_000_000}, 1: {0: 20}}, clock, {0: "a", 1: "b"}).draw("title")
    assert json.loads(unescape(re.search(r'data-values="([^"]*)"', plot)[1]))["unit"] == "B/s"
    assert "1e-05" not in plot
    plot = over_time.volumes({0: {0: 5_000_000}, 1: {0: 200_000}}, clock, {0: "a", 1: "b"}).draw("title")
    assert json.loads(unescape(re.search(r'data-values="([^"]*)"', plot)[1]))["unit"] == "MB/s"


@pytest.mark.parametrize(("age_s", "unit", "shown"), [(0.008, "ms", 8), (2, "s", 2), (7200, "h", 2)])
def test_ages_have_the_unit_that_fits(age_s, unit, shown):
    plot = over_time.ages({0: [age_s] * 120}, Clock(START, S), {0: "a"}).draw("title")
    found = json.loads(unescape(re.search(r'data-values="([^"]*)"', plot)[1]))
    assert (found["unit"], found["rows"][0]["values"][0]) == (unit, shown)


def test_no_percentile_hides_another():
    """The largest is drawn first, and is larger."""
    found = latencies.charts(
        "key",
        "title",
        "a time",
        of=[ServiceReport(b"echo", "broker", 1, 1, 0, p50_ns=5, p90_ns=5, p99_ns=5, max_ns=5)],
        marks=("p50", "p90", "p99", "max"),
        which="services",
        spread={},
        names={},
        unit="requests",
        none="none",
    )
    radii = [float(radius) for radius in re.findall(r' r="([\d.]+)"', found[0].plot.draw("title"))]
    assert len(set(radii)) == 4
    assert radii == sorted(radii, reverse=True)

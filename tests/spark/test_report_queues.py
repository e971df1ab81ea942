"""The report of a capture of queues."""

import re

import pytest
from test_report_topics import Text

from peers.mtl import confirm, content, lease, reject, response
from trunkline import mtl, spark

S = 10**9
AGAIN = mtl.encode_table({"redelivered": True})


@pytest.fixture
def captured(captured):
    """Makes a capture of messages of this protocol."""
    return lambda *messages: captured(*((at, "mtl", *rest) for at, *rest in messages))


def authorize(at, peer, status):
    """A step of a login, and its answer."""
    asked = [b"", b"Connection.Authorize", b'{"mechanism": "PLAIN", "response": "x"}']
    return [(at, "in", peer, asked), (at + 1, "out", peer, [b"", b"%d" % status, b'{"status": "x"}'])]


@pytest.fixture
def queues(captured):
    """Ten contents a second apart, of which five are read ten seconds later, one of them twice and one in vain."""
    rows = [*authorize(0, b"eve", 401), *authorize(10, b"eve", 401), *authorize(20, b"ada", 402)]
    rows += [(S, "in", b"w", lease(1, "one")), (S, "out", b"w", response(1, 200))]
    for number in range(1, 11):
        rows += [(number * S, "in", b"w", content(number, "jobs", b"x" * 10))]
        rows += [(number * S + 1000, "out", b"w", reject(number) if number == 10 else confirm(number))]
    for number in range(1, 6):
        rows += [((number + 10) * S, "out", b"r", content(number, "jobs", b"x" * 10))]
        said = reject(number, recycle=True) if number == 5 else confirm(number)
        rows += [((number + 10) * S + number * S // 10, "in", b"r", said)]
    rows += [(16 * S, "out", b"r", content(6, "jobs", b"x" * 10, AGAIN)), (16 * S + 1, "in", b"r", reject(6))]
    rows += [(17 * S, "out", b"d", content(1, "jobs.dead", b"x" * 10)), (30 * S, "in", b"w", [b"\xff"])]
    return captured(*rows)


def test_what_is_known_of_queues_is_shown(queues, reported):
    report = reported(queues)
    section = report.section(spark.MtlSection)
    jobs, dead = section.resources
    assert (jobs.resource, jobs.received, jobs.sent, jobs.bytes) == ("jobs", 10, 6, 100)
    assert (jobs.confirmed, jobs.redelivered, jobs.rejected, jobs.discarded) == (4, 1, 1, 0)
    assert jobs.dead_lettered == 1
    assert (jobs.p50_ns, jobs.p99_ns, jobs.max_ns, jobs.stored_p99_ns) == (S // 5, 2 * S // 5, 2 * S // 5, 1000)
    assert (dead.resource, dead.received, dead.sent, dead.confirmed, dead.max_ns) == ("jobs.dead", 0, 1, 0, None)
    assert (section.resource_count, section.received, section.sent, section.redelivered) == (2, 10, 7, 1)
    assert section.dead_lettered == 1
    (login,) = section.logins
    assert (login.peer, login.refused, login.first_received_at_ns) == (b"eve", 2, 1)
    assert section.logins_refused == 2
    assert dict(section.malformed) == {"bad_frame_count": 1}
    assert {place: sum(buckets.values()) for place, buckets in section.rates.items()} == {0: 10}
    assert len(section.rates[0]) == 10
    # By the end of each bucket, from the first message on.
    ends_s = [(place + 1) * section.bucket_ns / S for place in range(120)]

    def at(seconds, values):
        return next(value for end, value in zip(ends_s, values, strict=True) if end > seconds)

    assert [at(seconds, section.depths[0]) for seconds in (0.3, 1.3, 9.4, 10.3, 11.4, 12.4, 15.2, 20)] == [
        0,
        1,
        9,
        9,
        8,
        7,
        5,
        4,
    ]
    ages = [at(seconds, section.ages_s[0]) for seconds in (0.3, 2.3, 10.3, 11.4, 20)]
    assert ages == [pytest.approx(age, abs=0.5) for age in (0, 1.3, 9.3, 9.4, 14)]
    assert not any(section.depths[1])
    # Four times, of 100 to 400 ms.
    assert section.latencies == {0: {80: 1, 83: 1, 84: 1, 86: 1}}


def test_the_page(queues, tmp_path):
    page = tmp_path / "page.html"
    spark.report(str(queues), page)
    text = page.read_text()
    shown = Text(text)
    assert ["jobs", "1", "0", "1", "10", "100 B", "6", "4", "1", "1 µs", "200 ms", "400 ms", "400 ms"] in shown.rows
    assert any(row[:2] == ["eve", "2"] for row in shown.rows)
    words = " ".join(shown.words)
    for title in (
        "Contents over time",
        "Waiting contents",
        "Age of waiting contents",
        "Time to confirm",
        "Logins refused",
        "Dead letters",
    ):
        assert title in words
    assert len(re.findall(r"<svg ", text)) == 7


def test_what_readers_reject_for_good_is_shown(captured, reported):
    rows = [(0, "in", b"w", content(number, "jobs", b"x")) for number in (1, 2, 3)]
    for number, said in enumerate((confirm(1), reject(2), reject(3)), 1):
        rows += [(number, "out", b"r", content(number, "jobs", b"x")), (number, "in", b"r", said)]
    # So much later that all of it is over by the end of the first bucket.
    report = reported(captured(*rows, (S, "out", b"w", confirm(3))))
    section = report.section(spark.MtlSection)
    (jobs,) = section.resources
    assert (jobs.confirmed, jobs.rejected, jobs.discarded, jobs.dead_lettered) == (1, 0, 2, 0)
    # That is marked, and nothing else of this row.
    assert re.findall(r'<td class="bad"><span>(\d+)</span></td>', report.path.read_text()) == ["2"]
    assert not any(section.depths[0])
    words = Text(report.path.read_text()).words
    assert "No content was waiting." in words
    assert "Nothing was recorded." not in words


def test_a_capture_without_contents(captured, reported):
    path = captured(*authorize(0, b"eve", 401))
    report = reported(path)
    section = report.section(spark.MtlSection)
    assert (section.resources, section.logins_refused, section.spoken) == ((), 1, True)
    assert "Resources" not in Text(report.path.read_text()).words


def test_names_are_data(captured, reported):
    name = "<script>" + "x" * 240
    path = captured((0, "in", b"w", content(1, name, b"x")), (5, "out", b"<b>", content(1, name, b"x")))
    report = reported(path)
    (resource,) = report.section(spark.MtlSection).resources
    assert (resource.resource, resource.sent) == (name[:200], 1)
    assert "<script>x" not in report.path.read_text()


def test_resources_and_peers_without_number_have_a_row_together(captured, reported):
    rows = [(at, "in", b"w", content(at + 1, f"q{at:03}", b"x" * 10)) for at in range(203)]
    rows += [each for at in range(103) for each in authorize(1000 + 10 * at, b"p%03d" % at, 401)]
    report = reported(captured(*rows))
    section = report.section(spark.MtlSection)
    *resources, others = section.resources
    *logins, more = section.logins
    assert (len(resources), section.resource_count, len(logins), section.logins_refused) == (200, 203, 100, 103)
    assert (others.resource, others.others, others.received, others.bytes) == (None, 3, 3, 30)
    assert (more.peer, more.others, more.refused) == (None, 3, 3)
    text = report.path.read_text()
    assert ">3 more resources</th>" in text
    assert ">3 more peers</th>" in text

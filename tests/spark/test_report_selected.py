"""Reports of some of the messages of a capture: what needs the others is taken from them, or not shown."""

import re

import msgpack
import pytest
import reference as wire
from test_report_fleet import NEW, answer, event
from test_report_queues import authorize
from test_report_services import at_broker
from test_report_topics import error, passed_on

from peers.mtl import confirm, content
from peers.nats import body
from trunkline import capture, spark

MS = 10**6


@pytest.fixture
def selected(tmp_path):
    """Reports what is selected of a capture."""

    def make(path, **selection):
        return capture.report(path, tmp_path / "report.html", selection=capture.Selection(**selection))

    return make


def tiles(report):
    return [tile.title for section in report.shown for tile in section.tiles()]


CALLS = [*at_broker(0, b"echo", 1, 2 * MS), *at_broker(MS, b"other", 2, 4 * MS)]


@pytest.mark.parametrize(
    "selection",
    [
        {"service": "echo"},
        {"type": "request"},
        {"direction": "in"},
        {"peer": b"c"},
        {"where": "type = 'request'"},
    ],
)
def test_requests_have_their_replies_whatever_is_selected(captured, selected, selection):
    echo, *others = selected(captured(*CALLS), **selection).section(spark.DcpSection).services
    assert (echo.service, echo.requests, echo.replies, echo.max_ns) == (b"echo", 1, 1, 2 * MS)
    assert [other.max_ns for other in others] == ([] if "service" in selection else [4 * MS])


@pytest.mark.usefixtures("session")
def test_spark_pairs_them_likewise(captured, tmp_path):
    path, selection = captured(*CALLS), capture.Selection(service="echo")
    by_spark = spark.report(path, tmp_path / "spark.html", name="some", selection=selection)
    (echo,) = by_spark.section(spark.DcpSection).services
    assert (echo.service, echo.requests, echo.replies, echo.max_ns) == (b"echo", 1, 1, 2 * MS)
    locally = capture.report(path, tmp_path / "local.html", selection=selection)
    assert locally.section(spark.DcpSection).services == (echo,)
    assert locally.selected == by_spark.selected == "service echo"


def test_requests_that_are_not_selected_are_not_counted(captured, selected):
    path = captured(*CALLS)
    assert selected(path, service="echo", since_ns=MS).section(spark.DcpSection).services == ()
    (other,) = selected(path, type="request", since_ns=MS).section(spark.DcpSection).services
    assert (other.service, other.replies) == (b"other", 1)


@pytest.mark.parametrize("selection", [{"resource": "jobs"}, {"type": "content"}, {"direction": "out"}])
def test_contents_have_their_confirms_whatever_is_selected(captured, selected, selection):
    rows = [*authorize(0, b"eve", 401), (MS, "out", b"r", content(1, "jobs", b"x")), (2 * MS, "in", b"r", confirm(1))]
    path = captured(*((at, "mtl", *rest) for at, *rest in rows), topics=[None, None, "jobs", None])
    report = selected(path, **selection)
    section = report.section(spark.MtlSection)
    (jobs,) = section.resources
    assert (jobs.sent, jobs.confirmed, jobs.max_ns) == (1, 1, MS)
    # A refusal is of no resource. Where one is selected, it is known what it refused.
    assert section.logins_refused == ("direction" in selection)
    assert ("Logins refused" in tiles(report)) == ("direction" in selection)


def test_deliveries_are_held_against_what_was_put(captured, selected):
    rows = [*passed_on(0, b"runs", 3 * MS, b"s1", b"s2"), (MS, "out", b"p0", error(b"no"))]
    path = captured(*((at, "mc0", *rest) for at, *rest in rows))
    report = selected(path, type="message")
    (topic,) = report.section(spark.Mc0Section).topics
    assert (topic.puts, topic.deliveries, topic.max_ns) == (0, 2, 3 * MS)
    page = report.path.read_text()
    assert "fan-out" not in page
    assert "how often each was delivered cannot be determined" in page
    assert tiles(report) == ["Topics", "Deliveries"]
    assert topic.rate is None
    assert "fan-out" in selected(path, topic="runs").path.read_text()
    assert "Refused" in tiles(selected(path, type="error"))


def test_a_fleet_is_not_told_from_some_messages(captured, selected):
    events = [event(0, NEW, "e", "v"), answer(1, "e", "v")]
    rows = [(at, "cdt", "in", None, [body(**said)]) for at, _, said in events]
    path = captured(*rows, topics=[subject for _, subject, _ in events])
    assert "Lagging" in tiles(selected(path, protocol="cdt"))
    report = selected(path, type="ConfigNewAvailable")
    assert tiles(report) == []
    page = report.path.read_text()
    assert "Lagging" not in page
    assert "what is in use where cannot be determined" in page


def test_runs_have_the_numbers_that_they_have_in_the_capture(captured, selected):
    def begin(at, sender, run_id):
        return at, "cdtp", "in", None, [wire.b(0, sender=sender, kind=1), msgpack.packb({"run_id": run_id})]

    path = captured(begin(0, "a", "x"), begin(1, "a", "y"), begin(2, "b", "x"), begin(3, "a", "x"), begin(4, "b", "y"))

    def runs(run):
        section = selected(path, run=run).section(spark.CdtpSection)
        assert {(bar.sender, bar.ordinal) for bar in section.run_counts.drawn} == {
            (one.sender, one.ordinal) for one in section.runs
        }
        return sorted((one.sender, one.ordinal) for one in section.runs)

    assert runs(2) == [("a", 2), ("b", 2)]
    assert runs("x") == [("a", 1), ("a", 3), ("b", 1)]
    assert runs("y") == [("a", 2), ("b", 2)]


def test_the_page_says_what_is_selected(captured, selected):
    path = captured(*CALLS)
    page = selected(path, service="echo", peer=b"\0\x8b", direction="out", since_ns=0).path.read_text()
    header = re.sub("<[^>]*>", "", page.partition("<header>")[2].partition("</header>")[0])
    assert "Selected: service echo · peer 0x008b · direction out · since 1970-01-01 00:00:00.000 UTC" in header
    assert f"Nothing recorded in {path} matches the selection." in header
    assert "Nothing was recorded" not in page
    assert "Selected" not in selected(path).path.read_text()


def test_each_protocol_has_its_own_messages_and_bytes(captured, selected):
    header = wire.two([1, {}, [b"abc"]], [2, {}, []], sender="c")
    report = selected(captured(*CALLS, (0, "cdtp", "in", None, [header])))
    page = report.path.read_text()
    found = re.findall("<h2>(.*?)</h2>|<dt>(Messages|Records)</dt><dd>(.*?)</dd>", page)
    assert [name or f"{title} {value}" for name, title, value in found] == [
        "Messages 9",
        "CDTP",
        "Messages 1",
        "Records 2",
        "DCP",
        "Messages 8",
    ]
    alone = selected(report.path.parent / "capture", protocol="dcp").path.read_text()
    assert re.findall("<h2>(.*?)</h2>|<dt>Messages</dt><dd>(.*?)</dd>", alone) == [("", "8")]


def test_peers_are_named_as_they_are_selected_by(captured, selected):
    rows = [
        (0, "mtl", "in", b"\0\x8b", authorize(0, b"", 401)[0][3]),
        (1, "mtl", "out", b"\0\x8b", [b"", b"401", b"{}"]),
    ]
    rows += [(MS, "mc0", "out", b"\0\x8c", error(b"no")), (MS, "mc0", "out", b"text", error(b"no"))]
    page = selected(captured(*rows)).path.read_text()
    assert [name in page for name in ("0x008b", "0x008c", "text", "x8b<", "\\x00")] == [True, True, True, False, False]


def test_no_two_plots_share_a_title(captured, selected):
    announcement = event(0, NEW, "e", "v")
    rows = [
        *CALLS,
        (0, "cdtp", "in", None, [wire.b(0, sender="a"), b"x"]),
        (0, "cdt", "in", None, [body(**announcement[2])]),
    ]
    rows += [(at, "mc0", *rest) for at, *rest in passed_on(0, b"runs", MS, b"s")]
    page = selected(captured(*rows, topics=[*[None] * 9, announcement[1], None, None])).path.read_text()
    titles = re.findall('<h2 id="[^"]*">([^<]*)</h2>', page)
    assert len(titles) == len(set(titles)) > 12


def test_the_columns_of_runs_are_explained(captured, selected):
    frames = [wire.b(0, sender="a", kind=1), msgpack.packb({})]
    page = selected(captured((0, "cdtp", "in", None, frames))).path.read_text()
    runs = page.partition('id="runs"')[2]
    assert re.findall("<th[^>]*>(missing|missed|again|late)</th>", runs) == ["missing", "again", "late"]
    assert "again, messages whose number had been received before; late, those" in runs

"""Reports of some of the messages of a capture: what needs the others is taken from them, or not shown."""

import pytest
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
    assert "Refused" not in tiles(report)
    assert "fan-out" in selected(path, topic="runs").path.read_text()
    assert "Refused" in tiles(selected(path, type="error"))


def test_a_fleet_is_not_told_from_some_messages(captured, selected):
    told = [event(0, NEW, "e", "v"), answer(1, "e", "v")]
    rows = [(at, "cdt", "in", None, [body(**said)]) for at, _, said in told]
    path = captured(*rows, topics=[subject for _, subject, _ in told])
    assert "Lagging" in tiles(selected(path, protocol="cdt"))
    report = selected(path, type="ConfigNewAvailable")
    assert tiles(report) == []
    page = report.path.read_text()
    assert "Lagging" not in page
    assert "what is in use where cannot be determined" in page

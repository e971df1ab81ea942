"""The report of a capture in which services were asked."""

import itertools
import re
from html.parser import HTMLParser

import msgpack
import pytest
import reference as wire

from trunkline import capture, spark

H = b"DGBX\x01"
MS = 10**6


def request(service, client, *metadata):
    return [b"", H, b"\x04", service, *([] if client is None else [client]), b"", *metadata, b"", b"x"]


def reply(client, *metadata):
    return [b"", H, b"\x05", client, b"", *metadata, b"", b"y"]


class Text(HTMLParser):
    """The cells of the tables of a page, and all its words."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.words = [], []
        self.feed(text)

    def handle_starttag(self, tag, _attrs):
        if tag == "tr":
            self.rows.append([])
        if tag in {"th", "td"}:
            self.rows[-1].append("")

    def handle_data(self, data):
        self.words.append(data)
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip()


def at_broker(at, service, number, latency, worker=b"w"):
    metadata = number.to_bytes(4, "big") + b"m"
    return [
        (at, "dcp", "in", b"c", request(service, None, metadata)),
        (at, "dcp", "out", worker, request(service, b"c", metadata)),
        (at + latency, "dcp", "in", worker, reply(b"c", metadata)),
        (at + latency, "dcp", "out", b"c", reply(b"c", metadata)),
    ]


def test_a_report_of_services(captured, reported):
    messages = [row for at in range(100) for row in at_broker(at * MS, b"echo", at, (at + 1) * MS)]
    messages += at_broker(0, b"<b>\xff", 0, 7 * MS)
    messages += [(MS, "dcp", "in", b"c", request(b"none", None))] * 2
    messages += [(MS, "dcp", "in", b"c", [b"", H, b"\x09"])] * 3
    report = reported(captured(*messages))
    dcp = report.section(spark.DcpSection)
    echo, none, odd = dcp.services
    assert (echo.service, echo.seen_by, echo.requests, echo.replies, echo.unanswered) == (
        b"echo",
        "broker",
        100,
        100,
        0,
    )
    assert (echo.p50_ns, echo.p90_ns, echo.p99_ns, echo.max_ns) == (50 * MS, 90 * MS, 99 * MS, 100 * MS)
    assert (none.service, none.requests, none.replies, none.unanswered, none.p50_ns) == (b"none", 2, 0, 2, None)
    assert (odd.service, odd.title, odd.max_ns) == (b"<b>\xff", "<b>\\xff", 7 * MS)
    assert report.malformed == dcp.malformed == {"bad_type": 3}
    assert [sum(dcp.rates[at].values()) for at in (0, 1, 2)] == [100, 2, 1]
    # From 1 to 100 ms, a request a millisecond: a class of a tenth of a decade more of them each.
    assert (dcp.latencies[0][60], dcp.latencies[0][79], dcp.latencies[0][80]) == (1, 20, 1)
    assert (sum(dcp.latencies[0].values()), dcp.latencies[2]) == (100, {68: 1})
    assert (dcp.service_count, report.section(spark.CdtpSection).senders, report.rows) == (3, (), 409)
    text = report.path.read_text()
    assert "<b>" not in text
    assert ["echo", "0", "broker", "100", "100", "0", "50 ms", "90 ms", "99 ms", "100 ms"] in Text(text).rows
    # Nothing of CDTP, which was not recorded.
    assert not re.search('id="(senders|runs|rate|volume|timeline|sizes|gaps)"', text)
    assert re.findall(r'<h2 id="([\w-]+)"', text) == [
        "services",
        "traffic",
        "request-rates",
        "pending",
        "latencies",
        "latencies-spread",
        "errors",
    ]
    assert len(re.findall("<svg", text)) == 6


def test_both_protocols_have_their_sections(captured, reported):
    path = captured(
        (0, "cdtp", "in", None, [wire.b(0, sender="a", kind=1), msgpack.packb({})]),
        (MS, "cdtp", "in", None, [b"junk", b""]),
        *at_broker(0, b"echo", 1, MS),
        (3 * MS, "dcp", "out", None, request(b"echo", None, b"1")),
        (5 * MS, "dcp", "in", None, reply(b"me", b"1")),
        (5 * MS, "dcp", "in", None, [b"", H]),
    )
    report = reported(path)
    assert [(each.seen_by, each.requests, each.p50_ns) for each in report.section(spark.DcpSection).services] == [
        ("broker", 1, MS),
        ("client", 1, 2 * MS),
    ]
    assert sum(report.malformed.values()) == 2
    assert {name: sum(buckets.values()) for name, buckets in report.volumes.items()} == {
        "cdtp": len(wire.b(0, sender="a", kind=1)) + 1 + 4,
        "dcp": report.bytes - len(wire.b(0, sender="a", kind=1)) - 1 - 4,
    }
    # What came last is at the end.
    assert {max(buckets) for buckets in report.volumes.values()} == {23, 119}
    names = re.findall(r'<h2 id="([\w-]+)"', report.path.read_text())
    dcp = ["request-rates", "pending", "latencies", "latencies-spread"]
    cdtp = ["rate", "volume", "timeline", "sizes", "gaps"]
    assert names == ["senders", "services", "traffic", *cdtp, *dcp, "errors", "runs"]


def test_requests_are_pending_until_something_comes_of_them(captured, reported):
    """One is replied to after 60 ms, one sent on by its worker after 30 ms, to another that never answers."""
    sent_on = [
        (0, "dcp", "in", b"c", request(b"first", None, b"2")),
        (0, "dcp", "out", b"w", request(b"first", b"c", b"2")),
        (30 * MS, "dcp", "in", b"w", request(b"second", b"c", b"2")),
    ]
    dcp = reported(captured(*sent_on, *at_broker(0, b"slow", 1, 60 * MS), (120 * MS, "cdtp", "in", None, [b"x"])))
    dcp = dcp.section(spark.DcpSection)
    at = {service.service: place for place, service in enumerate(dcp.services)}
    seen = {name: [level for level, _ in itertools.groupby(dcp.pending[place])] for name, place in at.items()}
    assert seen == {b"first": [1, 0], b"second": [0, 1], b"slow": [1, 0]}
    lasted = {name: sum(dcp.pending[place]) * dcp.bucket_ns / MS for name, place in at.items()}
    assert lasted == {
        b"first": pytest.approx(30, abs=2),
        b"second": pytest.approx(90, abs=2),
        b"slow": pytest.approx(60, abs=2),
    }


def test_services_without_number_have_a_row_together(captured, reported):
    messages = [(at, "dcp", "in", b"c", request(f"s{at // 2:03}".encode() * 99, None, b"m")) for at in range(404)]
    report = reported(captured(*messages))
    dcp = report.section(spark.DcpSection)
    *named, others = dcp.services
    assert (len(named), dcp.service_count) == (200, 202)
    assert {len(service.service) for service in named} == {200}
    assert (others.service, others.seen_by, others.others, others.requests, others.unanswered) == (
        None,
        "broker",
        2,
        4,
        4,
    )
    assert {tile.title: tile.value for tile in dcp.tiles()} == {
        "Services": "202",
        "Requests": "404",
        "Unanswered": "404",
    }
    assert report.to_dict()["sections"]["dcp"]["services"][-1]["others"] == 2
    text = report.path.read_text()
    assert ">2 more services</th>" in text
    assert "No request was answered" in text


def test_what_a_broker_answers_itself_is_answered(captured, reported):
    asked = [(0, "dcp", "in", b"c", request(b"none", None, b"m")), (MS, "dcp", "out", b"c", reply(b"c", b"m"))]
    (service,) = reported(captured(*asked, *asked)).section(spark.DcpSection).services
    assert (service.requests, service.replies, service.unanswered, service.max_ns) == (2, 2, 0, MS)


def test_the_services_of_trunkline_are_not_the_users(captured, reported, tmp_path):
    path = captured(*at_broker(0, b"echo", 1, MS), *at_broker(0, b"trunkline.status", 2, MS))
    report = reported(path)
    assert [service.service for service in report.section(spark.DcpSection).services] == [b"echo"]
    assert "Services of the broker itself, trunkline.*, are left out." in report.path.read_text()
    selection = capture.Selection(service="trunkline.status")
    report = capture.report(path, tmp_path / "own.html", selection=selection)
    assert [service.service for service in report.section(spark.DcpSection).services] == [b"trunkline.status"]
    assert "left out" not in report.path.read_text()

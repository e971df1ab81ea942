"""The report of a capture of a bus."""

import re
from html.parser import HTMLParser

import pytest

from trunkline import spark

MS = 10**6


def put(topic, *body):
    return [b"", b"PUT", b"TOPIC", topic, b"", *body]


def message(topic, *body):
    return [b"", b"MESSAGE", b"TOPIC", topic, b"", *body]


def error(text):
    return [b"", b"ERROR", b"MESSAGE", text, b"ID", b"1"]


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


@pytest.fixture
def captured(captured):
    """Makes a capture of messages of this protocol."""
    return lambda *messages: captured(*((at, "mc0", *rest) for at, *rest in messages))


def passed_on(at, topic, latency, *subscribers):
    return [
        (at, "in", b"p%d" % (at // MS % 3), put(topic, b"body", b"x")),
        *((at + latency, "out", peer, message(topic, b"body", b"x")) for peer in subscribers),
    ]


def test_a_report_of_topics(captured, reported):
    rows = [row for at in range(100) for row in passed_on(at * 200 * MS, b"runs", (at + 1) * MS, b"s1", b"s2")]
    rows += [(MS, "in", b"p", put(b"<b>\xff", b"abc"))]
    rows += [(9 * MS, "out", b"\0slow", error(b"disconnected: <i>"))] * 2
    rows += [(at * MS, "out", b"p1", error(b"forbidden")) for at in (5, 2, 8)]
    rows += [(MS, "in", b"p", error(b"from a client")), (MS, "in", b"p", [b"", b"PING"])]
    report = reported(captured(*rows))
    mc0 = report.section(spark.Mc0Section)
    runs, odd = mc0.topics
    assert (runs.topic, runs.seen_by, runs.puts, runs.deliveries, runs.fan_out) == ("runs", "middleware", 100, 200, 2.0)
    assert (runs.bytes, runs.publishers, runs.subscribers) == (500, 3, 2)
    assert (runs.p50_ns, runs.p99_ns, runs.max_ns) == (50 * MS, 99 * MS, 100 * MS)
    assert runs.rate == pytest.approx(100 / 19.9)
    assert (odd.topic, odd.puts, odd.deliveries, odd.fan_out, odd.rate, odd.p50_ns) == (
        "<b>\ufffd",
        1,
        0,
        0,
        None,
        None,
    )
    assert (mc0.topic_count, mc0.puts, mc0.deliveries) == (2, 101, 200)
    assert report.malformed == mc0.malformed == {"unknown_verb": 1}
    assert [(each.text, each.peer, each.errors) for each in mc0.refusals] == [
        ("forbidden", b"p1", 3),
        ("disconnected: <i>", b"\0slow", 2),
    ]
    assert (mc0.refusals[0].first_received_at_ns, mc0.refusals[0].last_received_at_ns) == (2 * MS, 8 * MS)
    assert mc0.refused == 5
    assert sum(mc0.rates[0].values()) == 100
    # Two subscribers each: at one millisecond, and at a hundred.
    assert list(mc0.latencies) == [0]
    assert (mc0.latencies[0][60], mc0.latencies[0][80], sum(mc0.latencies[0].values())) == (2, 2, 200)
    text = report.path.read_text()
    assert "<b>" not in text
    assert "<i>" not in text
    page = Text(text)
    columns = ["runs", "middleware", "100", "200", "2", "500 B", "5.0", "3", "2", "50 ms", "99 ms", "100 ms"]
    assert columns in page.rows
    assert ["disconnected: <i>", "2", "0x00736c6f77"] in [row[:3] for row in page.rows]
    # Nothing of CDTP and DCP, which were not recorded.
    assert re.findall(r'<h2 id="([\w-]+)"', text) == [
        "topics",
        "traffic",
        "topic-rates",
        "ways",
        "ways-spread",
        "errors",
        "refusals",
    ]
    assert len(re.findall("<svg", text)) == 5


def test_a_connector_reports_what_it_saw(captured, reported):
    path = captured(
        (0, "out", None, put(b"a", b"xyz")),
        (1000 * MS, "in", None, message(b"a", b"xyz")),
        (2000 * MS, "in", None, message(b"a", b"xyz")),
        (2000 * MS, "in", None, error(b"no")),
    )
    report = reported(path)
    mc0 = report.section(spark.Mc0Section)
    (topic,) = mc0.topics
    assert (topic.seen_by, topic.puts, topic.deliveries, topic.bytes, topic.rate) == ("connector", 1, 2, 9, 1.5)
    assert (topic.publishers, topic.subscribers, topic.fan_out, topic.max_ns) == (None, None, None, None)
    assert [(each.text, each.peer, each.errors) for each in mc0.refusals] == [("no", None, 1)]
    text = report.path.read_text()
    assert "No delivery through a middleware was recorded." in text
    assert "(this connector)" in text


def test_topics_and_refusals_without_number_have_a_row_together(captured, reported):
    rows = [(at * MS, "in", b"p", put(f"t{at // 2:03}".encode() * 99, b"m")) for at in range(404)]
    rows += [(at * MS, "out", b"p%03d" % at, error(b"no")) for at in range(103)]
    report = reported(captured(*rows))
    mc0 = report.section(spark.Mc0Section)
    *topics, others = mc0.topics
    *refusals, more = mc0.refusals
    assert (len(topics), mc0.topic_count, mc0.puts) == (200, 202, 404)
    assert {len(topic.topic) for topic in topics} == {200}
    assert (others.topic, others.seen_by, others.others) == (None, "middleware", 2)
    assert (others.puts, others.publishers, others.deliveries, others.subscribers) == (4, 1, 0, 0)
    assert (len(refusals), mc0.refused) == (100, 103)
    assert (more.text, more.peer, more.others, more.errors) == (None, None, 3, 3)
    text = report.path.read_text()
    assert ">2 more topics</th>" in text
    assert ">3 more texts and peers</th>" in text
    assert "195 more" in text


def test_a_bus_where_nothing_passed_has_no_tables(captured, reported):
    report = reported(captured((0, "in", b"p", [b"", b"NOOP"]), (MS, "in", b"p", [b""])))
    mc0 = report.section(spark.Mc0Section)
    assert (mc0.topics, mc0.topic_count, mc0.puts, mc0.refused) == ((), 0, 0, 0)
    assert [section.protocol for section in report.shown] == ["mc0"]
    assert re.findall(r'<h2 id="([\w-]+)"', report.path.read_text()) == ["traffic", "errors"]


def test_the_topics_of_trunkline_are_not_the_users(captured, reported):
    report = reported(captured(*passed_on(0, b"runs", MS, b"s"), (MS, "out", b"s", message(b"trunkline.status", b"x"))))
    section = report.section(spark.Mc0Section)
    assert ([topic.topic for topic in section.topics], section.topic_count, section.deliveries) == (["runs"], 1, 1)
    assert "Topics of the middleware itself, trunkline.*, are left out." in report.path.read_text()

"""The report of a capture of configurations."""

import re

import pytest

from peers.nats import body
from trunkline import spark

MS = 10**6
NEW, UPDATED = (f"kaa.v1.events.cdp.endpoint.config.Config{kind}" for kind in ("NewAvailable", "Updated"))
RESPONSE = "kaa.v1.service.cmx.cmx2cdp.ConfigResponse"


@pytest.fixture
def fleet(captured):
    """Makes a capture of messages of CDT, each with a time, a subject and fields."""

    def make(*messages):
        rows = [
            (at, "cdt", "in", None, [said if isinstance(said, bytes) else body(**said)]) for at, _, said in messages
        ]
        return captured(*rows, topics=[subject for _, subject, _ in messages])

    return make


def event(at, subject, endpoint, config, app="app"):
    said = {"correlationId": "c", "timestamp": 1, "timeout": 0, "endpointMessageId": "m"}
    return at * MS, subject, {**said, "appVersionName": app, "endpointId": endpoint, "configId": config}


def answer(at, endpoint, config=None, status=200, reason="OK", app="app"):
    *where, said = event(at, RESPONSE, endpoint, config, app)
    content = {"contentType": "t", "content": {"bytes": ""}}
    return *where, {**said, **content, "statusCode": status, "reasonPhrase": reason}


def rows_of(text):
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall("<tr>(.*?)</tr>", text, re.DOTALL)]


def test_a_message_with_an_empty_cell_is_none_that_does_not_decode(fleet, reported):
    at, subject, said = event(1, NEW, "e1", "v")
    report = reported(fleet((at, subject, {**said, "timestamp": 1 << 62}), (at, subject, b"{")))
    cdt = report.section(spark.CdtSection)
    assert [one.announced for one in cdt.versions] == [1]
    assert report.malformed == cdt.malformed == {"bad_json": 1}


def test_a_report_of_a_fleet(fleet, reported):
    path = fleet(
        *(event(at, NEW, f"e{at}", "old") for at in range(10)),
        *(answer(20 + at, f"e{at}", "old") for at in range(10)),
        *(event(100 + at, UPDATED, f"e{at}", "old") for at in range(10)),
        *(event(200, NEW, f"e{at}", "new<b>") for at in range(4)),
        answer(210, "e0", "new<b>"),
        answer(210, "e1", "new<b>"),
        event(250, UPDATED, "e0", "new<b>"),
        # One goes back to what it had: it does not lag.
        event(260, NEW, "e3", "old"),
        event(270, UPDATED, "e3", "old"),
        *(answer(300 + at, "e9", "", 404, "not <i>there") for at in range(3)),
        answer(310, "e8", "", 503, None),
        (320 * MS, RESPONSE, b"{"),
        (320 * MS, "somebody.elses", b"{"),
    )
    report = reported(path)
    cdt = report.section(spark.CdtSection)
    newest, old = cdt.versions
    assert (old.app_version_name, old.config_id) == ("app", "old")
    assert (old.announced, old.pulled, old.applied, old.in_use) == (10, 10, 10, 9)
    assert (old.p50_ns, old.p99_ns, old.max_ns) == (100 * MS, 100 * MS, 100 * MS)
    assert (newest.config_id, newest.announced, newest.pulled, newest.applied, newest.in_use) == ("new<b>", 4, 2, 1, 1)
    assert (newest.max_ns, newest.first_received_at_ns) == (50 * MS, 200 * MS)
    assert [(one.endpoint_id, one.announced, one.applied, one.pulled) for one in cdt.lagging] == [
        ("e1", "new<b>", "old", True),
        ("e2", "new<b>", "old", False),
    ]
    assert (cdt.version_count, cdt.endpoints, cdt.lagging_count, cdt.pulls, cdt.refused_count) == (2, 10, 2, 12, 4)
    assert [(one.status_code, one.reason_phrase, one.errors, one.endpoints) for one in cdt.refused] == [
        (404, "not <i>there", 3, 1),
        (503, None, 1, 1),
    ]
    assert report.malformed == cdt.malformed == {"bad_json": 1}
    assert {cdt.KINDS[at]: sum(rates.values()) for at, rates in cdt.rates.items()} == {
        "ConfigNewAvailable": 15,
        "ConfigResponse": 16,
        "ConfigUpdated": 12,
    }
    assert cdt.latencies == {76: 1, 80: 10}
    text = report.path.read_text()
    assert "<b>" not in text
    assert "<i>" not in text
    found = rows_of(re.sub("</?span>", "", text))
    assert ["app", "old", "1970-01-01 00:00:00.000", "10", "10", "10", "9", "100 ms", "100 ms", "100 ms"] in found
    assert ["e1", "120 ms", "app", "new&lt;b&gt;", "1970-01-01 00:00:00.200", "yes", "old"] in found
    assert ["404", "3", "not &lt;i&gt;there", "1", "1970-01-01 00:00:00.300", "1970-01-01 00:00:00.302"] in found
    assert re.findall(r'<h2 id="([\w-]+)"', text) == [
        "versions",
        "lagging",
        "traffic",
        "cdt-rates",
        "applied",
        "applied-spread",
        "errors",
        "refused-pulls",
    ]
    assert len(re.findall("<svg", text)) == 5


def test_versions_and_endpoints_without_number_have_a_row_together(fleet, reported):
    path = fleet(*(event(at, NEW, f"e{at:03}" * 99, f"c{at:03}" * 99) for at in range(203)))
    report = reported(path)
    cdt = report.section(spark.CdtSection)
    *versions, older = cdt.versions
    *lagging, others = cdt.lagging
    assert (len(versions), cdt.version_count, len(lagging), cdt.lagging_count) == (200, 203, 100, 203)
    assert {len(version.config_id) for version in versions} == {200}
    assert cdt.lagging[0].applied is None
    assert (older.config_id, older.others, older.announced, older.applied) == (None, 3, 3, 0)
    assert (others.endpoint_id, others.others) == (None, 103)
    assert lagging[-1].lag_ns >= others.lag_ns > 0
    text = report.path.read_text()
    assert ">3 older versions</th>" in text
    assert ">103 more endpoints</th>" in text
    assert "No announced version was reported as applied." in text


def test_a_fleet_that_says_nothing_of_configurations(fleet, reported):
    report = reported(fleet((0, RESPONSE, b"{"), (MS, RESPONSE, b"[]")))
    cdt = report.section(spark.CdtSection)
    assert (cdt.versions, cdt.endpoints, cdt.pulls) == ((), 0, 0)
    assert [section.protocol for section in report.shown] == ["cdt"]
    assert re.findall(r'<h2 id="([\w-]+)"', report.path.read_text()) == ["traffic", "errors"]


def test_what_a_role_tells_itself_is_counted_once(captured, reported):
    said = [event(1, NEW, "e1", "v"), event(2, NEW, "e1", "v"), event(3, UPDATED, "e1", "v"), answer(4, "e1", "v")]
    directions = ("out", "in", "in", "out")
    rows = [(at, "cdt", way, None, [body(**one)]) for (at, _, one), way in zip(said, directions, strict=True)]
    cdt = reported(captured(*rows, topics=[subject for _, subject, _ in said])).section(spark.CdtSection)
    counts = {cdt.KINDS[at]: sum(rates.values()) for at, rates in cdt.rates.items()}
    assert counts == {"ConfigNewAvailable": 1, "ConfigUpdated": 1, "ConfigResponse": 1}
    assert cdt.versions[0].max_ns == 2 * MS

"""What roles of CDT record."""

from __future__ import annotations

import json
import threading

import pytest

from peers import nats
from trunkline import CaptureError, ClosedError, capture, cdt

REQUESTS = "kaa.v1.service.cdp.cmx2cdp.ConfigRequest"


@pytest.fixture
def server(tmp_path):
    with nats.server(tmp_path / "nats") as running:
        yield running


async def test_a_target_records_what_it_hears_and_says(server, tmp_path):
    directory = tmp_path / "runs"
    async with cdt.AsyncTarget("cdp", servers=server.url, replica_id="r1", capture=directory) as target:
        config_id = await target.put("app-1", "e-1", b"{}")
        async with nats.client(server.url) as bare:
            answers = await bare.subscribe("_INBOX.test.capture")
            good = nats.request()
            for body in (good, b"no json"):
                await bare.publish(REQUESTS, body, reply="_INBOX.test.capture", headers={"X-Trace": "7"})
                await nats.heard(answers)
        assert target.stats.capture_lost == 0
        with pytest.raises(CaptureError):
            await cdt.AsyncTarget("cdp", servers=server.url, capture=directory).__aenter__()
    rows = [*capture.open(directory).rows()]
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    assert {row["endpoint"] for row in rows} == {server.url}
    assert {row["protocol"] for row in rows} == {"cdt"}
    asked = [row for row in rows if row["topic"] == REQUESTS]
    assert [(row["direction"], row["reply_to"], row["error"]) for row in asked] == [
        ("in", "_INBOX.test.capture", None),
        ("in", "_INBOX.test.capture", "bad_json"),
    ]
    assert [row["payload"] for row in asked] == [[good], [b"no json"]]
    assert asked[0]["envelope"] == [b"NATS/1.0\r\nX-Trace: 7\r\n\r\n"]
    assert asked[0]["header"] is None
    said = [row for row in rows if row["direction"] == "out"]
    assert [row["topic"] for row in said] == [
        "kaa.v1.events.cdp.endpoint.config.ConfigNewAvailable",
        "_INBOX.test.capture",
        "_INBOX.test.capture",
    ]
    assert [json.loads(row["payload"][0]).get("statusCode") for row in said] == [None, 200, 400]
    assert json.loads(said[0]["payload"][0])["configId"] == config_id


async def test_a_source_records_and_goes_on_where_it_left_off(tmp_path):
    directory = tmp_path / "runs"
    url = "memory://capture"
    async with cdt.AsyncTarget("cdp", servers=url) as target:
        await target.put("app-1", "e-1", b"{}")
        for _ in range(2):
            options = {"segment_s": 60, "capture_private": True}
            async with cdt.AsyncSource(
                "cmx", target="cdp", servers=url, capture=directory, capture_options=options
            ) as source:
                await source.pull("app-1", "e-1")
    opened = capture.open(directory)
    rows = [*opened.rows()]
    assert [(row["direction"], row["topic"].rpartition(".")[2]) for row in rows] == [
        ("out", "ConfigRequest"),
        ("in", "ConfigResponse"),
    ] * 2
    assert opened.info().messages == 4
    assert directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"segment_bites": 1}, TypeError, "option 'segment_bites'"),
        ({"segment_bytes": 0}, ValueError, "segment_bytes must be at least 1"),
        ({"keep_days": "7"}, TypeError, "keep_days"),
    ],
)
def test_how_it_is_written_is_looked_at(options, error, words):
    with pytest.raises(error, match=words):
        cdt.Target("cdp", servers="memory://options", capture="never", capture_options=options)


async def test_a_recorder_writes_down_what_is_none_as_well(server, tmp_path):
    async with (
        cdt.AsyncRecorder(tmp_path / "runs", servers=server.url, limit=3) as recorder,
        nats.client(server.url) as bare,
    ):
        await bare.publish("kaa.v1.something.else", b"\x00\xff")
        await bare.publish(REQUESTS, b"{}")
        await bare.publish("other.subject", b"not ours")
        await bare.publish("kaa.v1.events.cmx.endpoint.config.ConfigUpdated", b"\xff")
        for timeout_s in (10, 0):
            assert await recorder.wait(timeout_s=timeout_s) == "count"
        await recorder.flush()
        stats = recorder.stats
        assert (stats.received, stats.recorded, stats.durable) == (3, 3, 3)
        assert stats.errors == {"missing_field": 1, "bad_utf8": 1}
        assert recorder.endpoints == (server.url,)
    assert recorder.stats.segments == 1
    rows = [*capture.open(tmp_path / "runs").rows()]
    assert [(row["topic"].rpartition(".")[2], row["error"]) for row in rows] == [
        ("else", None),
        ("ConfigRequest", "missing_field"),
        ("ConfigUpdated", "bad_utf8"),
    ]


def test_the_counters_of_a_recorder_are_there_while_it_ends(tmp_path):
    for number in range(20):
        recorder = cdt.Recorder(tmp_path / str(number), servers="memory://ending")
        begun, is_over, raised = threading.Event(), threading.Event(), []

        def look(recorder=recorder, begun=begun, is_over=is_over, raised=raised):
            try:
                while not is_over.is_set():
                    recorder.stats  # noqa: B018 - whether it raises
                    begun.set()
            except ClosedError as error:
                raised.append(error)

        looking = threading.Thread(target=look)
        looking.start()
        begun.wait()
        recorder.close()
        is_over.set()
        looking.join()
        assert not raised
        assert recorder.stats.recorded == 0


@pytest.mark.parametrize("limit", [None, 2])
def test_a_recorder_that_is_closed_before_its_limit_does_not_report_it(limit, tmp_path):
    recorder = cdt.Recorder(tmp_path, servers="memory://closing", limit=limit)
    closing = threading.Timer(0.1, recorder.close)
    closing.start()
    for _ in range(2):
        with pytest.raises(ClosedError, match=r"^this cdt\.Recorder is closed$"):
            recorder.wait(timeout_s=10)
    closing.join()

"""The machines of CDT, driven by hand."""

from __future__ import annotations

import json

import pytest

from trunkline import LocalProtocolError, cdt
from trunkline.driver import Close, Driver, Open, Send

MS = 1_000_000


def outputs(driver, now_ns=0):
    found = []
    while (output := driver.poll_output(now_ns)) is not None:
        found.append(output)
    return found


def events(driver, now_ns=0):
    found = []
    while (event := driver.poll_event(now_ns)) is not None:
        found.append(event)
    return found


@pytest.mark.req("CDT-05", "CDT-06", "CDT-08", "CDT-09", "CDT-10")
@pytest.mark.parametrize("queue", [True, False])
@pytest.mark.parametrize("queue_events", [True, False])
def test_a_target_subscribes_to_what_it_serves(queue, queue_events):
    driver = Driver(cdt.Target, "cdp", replica_id="r1", queue=queue, queue_events=queue_events)
    group = " cdp" if queue else ""
    events_of_all = "kaa.v1.events.*.endpoint.config.*"
    expected = [
        (events_of_all,),
        ("kaa.v1.replica.r1.cmx2cdp.ConfigRequest", "kaa.v1.replica.r1.cmx2cdp.ConfigPush"),
        (f"kaa.v1.service.cdp.cmx2cdp.ConfigRequest{group}", f"kaa.v1.service.cdp.cmx2cdp.ConfigPush{group}"),
    ]
    if queue_events:
        expected.append((f"{events_of_all} cdp",))
    opened = outputs(driver)
    assert all(type(one) is Open and one.kind == "NATS" for one in opened)
    assert [one.bind for one in opened] == expected


@pytest.mark.req("CDT-02", "CDT-08")
def test_a_source_subscribes_to_answers_and_events():
    driver = Driver(cdt.Source, "cmx", target="cdp", replica_id="r7", prefix="own.v2", protocol_token="cdtp")
    assert [one.bind for one in outputs(driver)] == [
        ("own.v2.replica.r7.cdtp.ConfigResponse", "own.v2.replica.r7.cdtp.ConfigPushResponse"),
        ("own.v2.events.*.endpoint.config.*",),
    ]


@pytest.mark.req("CDT-03", "CDT-13", "CDT-22")
def test_a_request_by_hand():
    driver = Driver(cdt.Target, "cdp", replica_id="r1")
    outputs(driver)
    driver.ask(0, "clock", unix_ms=1_000_000)
    body = {
        "correlationId": "c",
        "timestamp": 1_000_000,
        "timeout": 50,
        "endpointMessageId": "m",
        "appVersionName": "a",
        "endpointId": "e",
    }
    subject = b"kaa.v1.service.cdp.cmx2cdp.ConfigRequest"
    message = (b"_INBOX.1", b"", json.dumps(body).encode())
    driver.handle_message(50 * MS, 2, message, peer=subject)
    driver.handle_message(51 * MS, 2, message, peer=subject)
    (get, dropped) = events(driver)
    assert get == ("get", 0, "c", "a", "e", None)
    assert (dropped[0], dropped[2]) == ("dropped", "expired")
    driver.ask(60 * MS, "found", token=0, config_id="v", content_type="t", content=b"x")
    driver.ask(60 * MS, "missing", token=0)
    (answer,) = outputs(driver)
    assert (type(answer), answer.to) == (Send, b"_INBOX.1")
    said = json.loads(answer.frames[2])
    assert (said["statusCode"], said["configId"], said["timestamp"]) == (200, "v", 1_000_060)
    assert (sum(driver.stats["latency"]["counts"]), driver.stats["latency"]["sum_ns"]) == (1, 10 * MS)


def test_a_store_that_says_nothing_is_given_up():
    driver = Driver(cdt.Target, "cdp", store_timeout_s=0.5)
    outputs(driver)
    body = json.dumps(
        {
            "correlationId": "c",
            "timestamp": 0,
            "timeout": -1,
            "endpointMessageId": "m",
            "appVersionName": "a",
            "endpointId": "e",
        }
    ).encode()
    driver.handle_message(0, 2, (b"_INBOX.1", b"", body), peer=b"kaa.v1.service.cdp.cmx2cdp.ConfigRequest")
    events(driver)
    assert driver.timeout_ns == 500 * MS
    driver.handle_timeout(500 * MS)
    assert json.loads(outputs(driver)[0].frames[2])["statusCode"] == 500
    assert (sum(driver.stats["latency"]["counts"]), driver.stats["latency"]["sum_ns"]) == (1, 500 * MS)
    driver.handle_close(600 * MS, 1.0)
    closing = outputs(driver)
    assert all(type(one) is Close for one in closing)
    for one in closing:
        driver.handle_socket(600 * MS, one.socket, "closed")
    assert driver.closed


def test_names_are_looked_at():
    with pytest.raises(LocalProtocolError, match="name"):
        Driver(cdt.Target, "a.b")

"""`trunkline chirp`, and `--group` on the commands of CDTP: at the port of CHIRP, each test in a group of its own."""

from __future__ import annotations

import hashlib
import json
import signal
import uuid

import pytest
import zmq

from peers.chirp import BROADCAST, CONTROL, DEPART, MULTICAST, OFFER, REQUEST, md5, pack
from peers.commands import spec

PORT = 7123


@pytest.fixture
def group():
    return f"group-{uuid.uuid4()}"


@pytest.fixture
def chirper(listen):
    return listen(PORT)


@pytest.mark.req("CHIRP-04", "CHIRP-05")
def test_watch_asks_and_prints(start, chirper, group):
    command = start("chirp", "watch", "--group", group, "--name", "Det.One", "--json")
    assert command.ready() == {
        "event": "ready",
        "role": "chirp.beacon",
        "endpoints": ["udp://0.0.0.0:7123"],
        "pid": command.process.pid,
    }
    while chirper.hears(REQUEST).group != md5(group):
        pass
    chirper.send(pack(OFFER, "det.one", 4000, group=group))
    chirper.send(pack(REQUEST, "Other", group=group, service=CONTROL), BROADCAST)
    chirper.send(pack(DEPART, "det.one", 4000, group=group))
    one, other = (hashlib.md5(name).hexdigest() for name in (b"det.one", b"Other"))
    endpoint = "tcp://127.0.0.1:4000"
    for kind, host, name, service, where in [
        ("offer", one, "Det.One", "data", endpoint),
        ("request", other, None, "control", None),
        ("depart", one, "Det.One", "data", endpoint),
    ]:
        event = {"event": kind, "host": host, "name": name, "service": service, "endpoint": where}
        assert command.event(kind) == event
    command.signal(signal.SIGINT)
    stopped = command.event("stopped")
    assert (stopped["reason"], stopped["stats"]["services"]) == ("signal", 0)
    assert command.quietly() == ("", "")


def test_watch_prints_for_people(start, chirper, group):
    command = start("chirp", "watch", "--group", group)
    command.logged(f"watching {group}")
    chirper.send(pack(OFFER, "Det", 4000, group=group))
    host = hashlib.md5(b"Det").hexdigest()
    assert command.process.stdout.readline() == f"offer {host} data tcp://127.0.0.1:4000\n"
    command.signal(signal.SIGTERM)
    command.end()


def test_watch_ends_after_so_many_announcements(start, chirper, group):
    command = start("chirp", "watch", "--group", group, "--json", "--count", "1")
    while chirper.hears(REQUEST).group != md5(group):
        pass
    chirper.send(pack(OFFER, "det.one", 4000, group=group))
    _, offer, stopped = map(json.loads, command.end()[0].splitlines())
    assert (offer["event"], stopped["reason"]) == ("offer", "count")


def test_watch_ends_where_nobody_announces_anything(run, group):
    out, _ = run("chirp", "watch", "--group", group, "--json", "--idle", "0.2")
    assert json.loads(out.splitlines()[-1])["reason"] == "idle"


@pytest.mark.req("CHIRP-05")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("mode", "address"), [("multicast", MULTICAST), ("broadcast", BROADCAST)])
def test_offer_offers_until_a_signal(start, listen, chirper, group, number, mode, address):
    listener = listen(PORT, address)
    command = start(
        *("chirp", "offer", "--group", group, "--name", "Det.One"),
        *("--service", "control", "--port", "4000", "--chirp", mode, "--json"),
    )
    assert command.ready()["role"] == "chirp.beacon"
    heard = (md5(group), md5("det.one"), CONTROL, 4000)
    while listener.hears(OFFER, "det.one")[1:] != heard:
        pass
    chirper.send(pack(REQUEST, "Viewer", group=group, service=CONTROL))
    while listener.hears(OFFER, "det.one")[1:] != heard:
        pass
    assert command.event("request")["service"] == "control"
    command.signal(number)
    while listener.hears(DEPART, "det.one")[1:] != heard:
        pass
    assert command.event("stopped")["reason"] == "signal"
    command.end()


@pytest.mark.req("CDTP-15", "CHIRP-05")
def test_send_is_found_and_departs(start, chirper, dial, group):
    command = start("cdtp", "send", "--name", "Det", "--bind", "tcp://127.0.0.1:*", "--group", group, "--json", "-")
    (endpoint,) = command.ready()["endpoints"]
    chirper.send(pack(REQUEST, "Viewer", group=group))
    while (heard := chirper.hears(OFFER, "det")).group != md5(group):
        pass
    assert endpoint == f"tcp://127.0.0.1:{heard.port}"
    command.process.stdin.write("hello\n")
    command.process.stdin.flush()
    assert dial(zmq.PULL, endpoint).recv_multipart()[1] == b"hello"
    command.signal(signal.SIGTERM)
    chirper.hears(DEPART, "det", port=heard.port)
    assert command.event("stopped")["reason"] == "signal"
    command.end()


@pytest.mark.req("CDTP-16")
def test_receive_finds_the_senders_it_is_told(start, chirper, push, group):
    command = start("cdtp", "receive", "--group", group, "--sender", "Det", "--count", "2", "--json")
    assert command.ready()["endpoints"] == []
    chirper.send(pack(OFFER, "Stranger", 9, group=group))
    chirper.send(pack(OFFER, "Det", int(push.endpoint.rpartition(":")[2]), group=group))
    push.send(spec("Det"), spec("Det"))
    for _ in range(2):
        assert command.event("message")["sender"] == "Det"
    stopped = command.event("stopped")
    assert (stopped["reason"], stopped["stats"]["senders"]["Det"]["messages"]) == ("count", 2)
    assert command.quietly() == ("", "")


@pytest.mark.req("CDTP-16")
def test_record_finds_all_senders_of_the_group(start, run, chirper, push, group):
    command = start("cdtp", "record", "--capture", "capture", "--group", group, "--count", "3", "--json")
    command.ready()
    chirper.send(pack(OFFER, "Det", int(push.endpoint.rpartition(":")[2]), group=group))
    push.send(*[spec("Det")] * 3)
    assert command.event("stopped")["stats"]["recorded"] == 3
    command.end()
    out, _ = run("capture", "info", "capture", "--json")
    assert json.loads(out)["messages"] == 3


def test_our_own_commands_find_each_other(start, run, group):
    receive = start("cdtp", "receive", "--group", group, "--count", "2", "--json")
    receive.ready()
    send = ("cdtp", "send", "--name", "Det.One", "--bind", "tcp://127.0.0.1:*", "--group", group)
    run(*send, "--chirp", "broadcast", "-", stdin="a\n")
    run(*send, "-", stdin="b\n")
    assert [receive.event("message")["sender"] for _ in range(2)] == ["Det.One"] * 2
    assert receive.event("stopped")["reason"] == "count"
    receive.end()


def test_list_says_who_offers_what_and_ends(start, chirper, group):
    command = start("chirp", "list", "--group", group, "--name", "Det.One", "--seconds", "3", "--json")
    while chirper.hears(REQUEST).group != md5(group):
        pass
    for _ in range(2):
        chirper.send(pack(OFFER, "Det.One", 4000, group=group))
    out, err = command.end()
    (offer,) = map(json.loads, out.splitlines())
    assert (offer["event"], offer["name"], offer["endpoint"], err) == ("offer", "Det.One", "tcp://127.0.0.1:4000", "")


def test_a_group_in_which_nobody_offers_anything(run, group):
    out, err = run("chirp", "list", "--group", group, "--seconds", "0.1", returncode=1)
    assert (out, err) == ("", f"trunkline: no services found in group {group}\n")


def test_what_is_announced_is_logged_if_that_is_wanted(start, chirper, group):
    command = start("-v", "--log-format", "json", "chirp", "watch", "--group", group, "--name", "Det.One", "--json")
    command.ready()
    while chirper.hears(REQUEST).group != md5(group):
        pass
    chirper.send(pack(OFFER, "det.one", 4000, group=group))
    command.event("offer")
    line = json.loads(command.logged(": offer"))
    assert line["message"] == f"{group}: offer data of Det.One tcp://127.0.0.1:4000"
    assert (line["level"], line["kind"], line["service"]) == ("DEBUG", "offer", "data")
    assert line["endpoint"] == "tcp://127.0.0.1:4000"
    command.signal(signal.SIGINT)
    command.end()

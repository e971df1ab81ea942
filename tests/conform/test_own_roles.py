"""Our own roles pass every check, and none is skipped but what the role is not set up for."""

import socket

import pytest
import zmq
from zmq.utils import z85

import trunkline
from peers import chirp as raw
from peers.cdtp import RELEASES, recorded
from peers.faulty.cdtp import Sender
from peers.faulty.dcp import Broker
from peers.nats import server as nats_server
from trunkline import cdt, cdtp, chirp, dcp, mc0, mtl
from trunkline.conform.checks import Keys, Subject

ANY = "tcp://127.0.0.1:*"

# A role, and what cannot be judged as it is set up.
PLAIN = {
    "dcp": (lambda: dcp.Broker(bind=ANY, heartbeat_interval_s=1), {"DCP-43"}),
    "mc0": (lambda: mc0.Middleware(bind=ANY), {"MC0-03"}),
    "mtl": (
        lambda: mtl.Server(bind=ANY, anonymous=True, profiles=("test", "queue"), ping_interval_s=0.8),
        {"MTL-14", "MTL-16", "MTL-17", "MTL-19"},
    ),
}

ENCRYPTED = {
    "dcp": (lambda curve: dcp.Broker(bind=ANY, curve=curve, heartbeat_interval_s=1), {"DCP-03"}),
    "mc0": (lambda curve: mc0.Middleware(bind=ANY, curve=curve), {"MC0-01"}),
    "mtl": (
        lambda curve: mtl.Server(
            bind=ANY, curve=curve, users={"ada": "lovelace"}, profiles=("test", "queue"), ping_interval_s=0.8
        ),
        {"MTL-04", "MTL-13"},
    ),
}


@pytest.mark.parametrize("protocol", PLAIN)
def test_every_check_passes(conform, ids, protocol):
    open_, unjudged = PLAIN[protocol]
    with open_() as role:
        results = conform(protocol, role.endpoints[0])
    assert {name: result.reason for name, result in results.items() if result.result == "fail"} == {}
    assert ids(results, "skip") == unjudged


@pytest.mark.parametrize("protocol", ENCRYPTED)
def test_every_check_passes_with_encryption(conform, ids, protocol):
    open_, unjudged = ENCRYPTED[protocol]
    server, client = zmq.curve_keypair(), zmq.curve_keypair()
    keys = Keys(z85.decode(client[0]), z85.decode(client[1]), z85.decode(server[0]))
    login = ("ada", "lovelace") if protocol == "mtl" else (None, None)
    with open_(trunkline.Curve(server, allow=[client[0]])) as role:
        results = conform(protocol, Subject(role.endpoints[0], *login, keys))
    assert {name: result.reason for name, result in results.items() if result.result == "fail"} == {}
    assert ids(results, "skip") == unjudged


def test_a_server_with_separate_data_and_a_login(conform, ids):
    with mtl.Server(
        bind=ANY, data_bind=ANY, users={"ada": "lovelace"}, profiles=("test", "queue"), ping_interval_s=0.8
    ) as server:
        results = conform("mtl", Subject(server.endpoints[0], "ada", "lovelace"))
    assert ids(results, "fail") == set()
    assert ids(results, "skip") == {"MTL-13"}


def test_a_server_without_the_login_is_judged_in_part(conform, ids):
    with mtl.Server(bind=ANY, users={"ada": "lovelace"}) as server:
        results = conform("mtl", server.endpoints[0])
    assert ids(results, "fail") == set()
    assert results["MTL-20"].reason == "the server wants a login: --user and --password-file give one"
    assert "MTL-14" in ids(results, "pass")


@pytest.mark.parametrize("endpoint", ["ipc", "[::1]"])
def test_other_transports(conform, ids, tmp_path, endpoint):
    bind = f"ipc://{tmp_path}/b" if endpoint == "ipc" else "tcp://[::1]:*"
    with dcp.Broker(bind=bind) as broker:
        results = conform("dcp", broker.endpoints[0], ["DCP-14", "DCP-26"])
    assert ids(results, "pass") == {"DCP-14", "DCP-26"}


def test_a_server_over_ipc_has_its_data_there(conform, ids, tmp_path):
    with mtl.Server(bind=f"ipc://{tmp_path}/s", anonymous=True, profiles=("test",)) as server:
        results = conform("mtl", server.endpoints[0], ["MTL-30", "MTL-40"])
    assert ids(results, "pass") == {"MTL-30", "MTL-40"}


def test_a_login_by_plain(conform, ids):
    with Broker(passwords={"ada": "lovelace"}) as broker:
        results = conform("dcp", Subject(broker.endpoint, "ada", "lovelace"), ["DCP-14", "DCP-26"])
        assert ids(results, "pass") == {"DCP-14", "DCP-26"}
        with pytest.raises(
            trunkline.TrunklineError, match=r"(wants PLAIN, not|another mechanism than) NULL .*PLAIN --user"
        ):
            conform("dcp", broker.endpoint)
        with pytest.raises(trunkline.TrunklineError, match="it may refuse our key or login"):
            conform("dcp", Subject(broker.endpoint, "ada", "wrong"))


@pytest.mark.parametrize(
    ("header", "unjudged"),
    [
        ("S", {"CDTP-13", "CDTP-21", "CDTP-22"}),
        ("A", {"CDTP-22"}),
        ("B", {"CDTP-05", "CDTP-22"}),
        ("2", {"CDTP-05"}),
    ],
)
def test_a_sender_with_each_header(conform, ids, header, unjudged):
    with cdtp.Sender("D.one", bind=ANY, header=header) as sender:
        if header != "S":
            sender.begin_run(config={"threshold": 7})
        for run in range(5):
            sender.send([b"one", b"two"], tags={"run": run})
        if header != "S":
            sender.end_run()
        results = conform("cdtp", sender.endpoints[0])
    assert ids(results, "fail") == set()
    assert ids(results, "skip") == unjudged


@pytest.mark.parametrize("release", RELEASES)
def test_what_released_senders_sent(conform, ids, release):
    with Sender(messages=recorded(release)[:500]) as sender:
        results = conform("cdtp", sender.subject)
    assert ids(results, "fail") == set()
    assert "CDTP-21" in ids(results, "pass")


@pytest.mark.parametrize(("group", "unjudged"), [("lab", {"CHIRP-03"}), ("Lab", set())])
def test_a_beacon(conform, ids, group, unjudged):
    port = free_udp_port()
    with chirp.Beacon(group, "Detector.one", port=port) as beacon:
        beacon.offer(chirp.Service.DATA, 23999)
        beacon.offer(chirp.Service.CONTROL, 23998)
        results = conform("chirp", f"udp://{raw.MULTICAST}:{port}/{group}")
    assert ids(results, "fail") == set()
    assert ids(results, "skip") == unjudged


def free_udp_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def nats(tmp_path_factory):
    with nats_server(tmp_path_factory.mktemp("nats")) as running:
        yield running


def test_a_target_behind_a_server(conform, nats):
    with cdt.Target("cdp", servers=nats.url, store=":memory:") as target:
        results = conform("cdt", Subject(nats.url, target="cdp"))
        assert {result.id: result.reason for result in results.values() if result.result != "pass"} == {}
        # The same configurations each time: its store does not grow.
        kept = target.stats.configs
        conform("cdt", Subject(nats.url, target="cdp"))
        assert target.stats.configs == kept


def test_a_login_at_nats(conform, ids, tmp_path):
    with (
        nats_server(tmp_path, 'authorization { user: "ada", password: "love/lace" }') as running,
        cdt.Target("cdp", servers=running.url, store=":memory:", user="ada", password="love/lace"),
    ):
        for subject in (
            Subject(running.url, "ada", "love/lace", target="cdp"),
            Subject(running.url.replace("//", "//ada:love%2Flace@"), target="cdp"),
        ):
            assert ids(conform("cdt", subject, ["CDT-01"]), "pass") == {"CDT-01"}
        with pytest.raises(trunkline.AuthenticationError, match=r"refuses the login .*--user and --password-file"):
            conform("cdt", Subject(running.url, target="cdp"))
        with pytest.raises(trunkline.AuthenticationError, match="refuses the login"):
            conform("cdt", Subject(running.url, "ada", "wrong", target="cdp"))


def test_a_target_that_is_not_there(conform, nats):
    with pytest.raises(trunkline.TrunklineError, match=r"there is no target other at 127.0.0.1:\d+: nobody listens to"):
        conform("cdt", Subject(nats.url, target="other"))

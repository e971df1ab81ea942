"""What a role serves over HTTP: its counters in two formats, whether it serves, and how that ends."""

import asyncio
import errno
import gc
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import zmq

from peers import nats
from peers.roles import KINDS, opened
from peers.scraping import OPENMETRICS, asked, health, scraped, value
from peers.waiting import until
from trunkline import cdt, cdtp, dcp, mc0, mtl
from trunkline._metrics import scrapes
from trunkline._metrics.collector import metrics_of
from trunkline.errors import LocalProtocolError
from trunkline.testing import Simulation

ANY = "tcp://127.0.0.1:*"


@pytest.fixture
def made(tmp_path):
    """Opens roles with metrics; a client of MTL has a server to talk to."""
    roles = []

    def made(name, twin="", **given):
        if name == "mtl.Client":
            roles.append(mtl.Server(bind=ANY, anonymous=True))
            given["connect"] = roles[-1].endpoints
            given["timeout_s"] = 20
        role = opened(name, tmp_path, twin, **{"metrics": "0", **given})
        if not twin:
            roles.append(role)
        return role

    yield made
    for role in reversed(roles):
        role.close()


def threads():
    return [thread for thread in threading.enumerate() if thread.name in ("trunkline-metrics", "trunkline-scrape")]


def ports(role):
    return urlsplit(role.metrics_url).port


@pytest.mark.parametrize("accept", ["text/plain", OPENMETRICS])
@pytest.mark.parametrize("name", KINDS)
def test_every_role_serves_its_counters_in_both_formats(name, accept, made):
    role = made(name)
    samples = scraped(role.metrics_url, accept)
    protocol, _, kind = name.lower().partition(".")
    assert value(samples, "trunkline_role_up", role=f"{protocol}.{kind}") == 1
    assert {sample for sample, _ in samples if sample == "trunkline_build_info"}
    seen = {sample for sample, _ in samples if sample.startswith(f"trunkline_{protocol}_{kind}_")}
    # Metrics with labels have samples only where there are rows.
    wanted = {series for metric in metrics_of(type(role)) if not metric.labels for series in metric.series}
    assert wanted <= seen
    assert len(wanted) >= 4


@pytest.mark.parametrize("name", KINDS)
async def test_every_asynchronous_role_serves_them_and_leaves_nothing(name, made):
    before = threads()
    role = made(name, "Async")
    assert role.metrics_url is None
    async with role:
        url = role.metrics_url
        samples = await asyncio.to_thread(scraped, url)
        assert value(samples, "trunkline_role_up", role=name.lower()) == 1
        assert await asyncio.to_thread(health, url) == (200, "serving")
    assert threads() == before
    with pytest.raises(ConnectionRefusedError):
        asked(url)


@pytest.mark.parametrize("name", KINDS)
def test_a_role_that_is_closed_leaves_no_thread_no_descriptor_and_no_port(name, made):
    before = threads()
    role = made(name)
    url = role.metrics_url
    assert health(url) == (200, "serving")
    role.close()
    assert threads() == before
    # It is still said where it was, as endpoints are.
    assert role.metrics_url == url
    with socket.create_server(("127.0.0.1", urlsplit(url).port)):
        pass
    role.close()


def raw(url, head):
    """The status of the answer to a request of these bytes."""
    with socket.create_connection(("127.0.0.1", urlsplit(url).port), timeout=20) as client:
        client.sendall(head + b"\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    return int(answer.split()[1])


@pytest.mark.parametrize(
    "head",
    [
        b"GET http://[::1/metrics HTTP/1.1",
        b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text; version=x",
    ],
)
def test_what_cannot_be_read_is_answered_and_logged_once(made, caplog, capfd, head):
    url = made("dcp.Broker").metrics_url
    assert [raw(url, head) for _ in range(20)] == [400] * 20
    assert health(url) == (200, "serving")
    assert len([record for record in caplog.records if "cannot be read" in record.getMessage()]) <= 1
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9100", 200),
        ("localhost", 200),
        ("[::1]:1", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:9100", 421),
        ("[::1", 421),
        ("10.0.0.1", 421),
    ],
)
def test_a_role_of_this_machine_alone_answers_under_its_own_names(made, host, status):
    url = made("dcp.Broker").metrics_url
    for path in ("/metrics", "/healthz"):
        assert raw(url, f"GET {path} HTTP/1.1\r\nHost: {host}".encode()) == status
    open_to_all = made("dcp.Broker", metrics="0.0.0.0:0").metrics_url
    assert raw(open_to_all, f"GET /metrics HTTP/1.1\r\nHost: {host}".encode()) == 200


def descriptors():
    gc.collect()
    return len([*Path("/proc/self/fd").iterdir()])


def served():
    with dcp.Broker(bind=ANY, metrics="0") as broker:
        scraped(broker.metrics_url)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the descriptors of the process")
def test_no_descriptor_is_left():
    served()
    before = descriptors()
    for _ in range(5):
        served()
    assert descriptors() == before


def test_a_role_without_metrics_has_none():
    before = threads()
    with dcp.Broker(bind=ANY) as broker:
        assert broker.metrics_url is None
        assert threads() == before


@pytest.mark.parametrize(
    ("given", "host"), [("0", "127.0.0.1"), (":0", "127.0.0.1"), ("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "[::1]")]
)
def test_a_port_alone_is_on_the_loopback_interface(given, host, caplog):
    with dcp.Broker(bind=ANY, metrics=given) as broker:
        assert broker.metrics_url.startswith(f"http://{host}:")
        assert ports(broker) > 0
        assert health(broker.metrics_url)[0] == 200
    assert caplog.text == ""


@pytest.mark.parametrize("given", ["0.0.0.0:0", "*:0"])
def test_metrics_that_others_can_reach_are_warned_of(given, caplog):
    with dcp.Broker(bind=ANY, metrics=given) as broker:
        assert f"{broker.metrics_url}: whoever can connect reads the counters" in caplog.text


@pytest.mark.parametrize(
    "given",
    ["", "x", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "1:2:3", "::1:9100", "70000", "http://h:1", "[]:1", "9" * 5000],
)
def test_what_is_no_address_is_refused(given):
    with pytest.raises(LocalProtocolError, match=r"metrics=.* is not HOST:PORT"):
        dcp.Broker(bind=ANY, metrics=given)


@pytest.mark.parametrize("given", [9100, b"9100", ("127.0.0.1", 9100)])
@pytest.mark.parametrize("name", ["dcp.Broker", "chirp.Beacon", "cdt.Target"])
def test_what_is_no_text_is_refused(name, given, tmp_path):
    with pytest.raises(TypeError, match="metrics takes a str"):
        opened(name, tmp_path, metrics=given)


@pytest.mark.parametrize("name", KINDS)
def test_a_port_that_is_taken_keeps_the_role_from_opening(name, tmp_path):
    before = threads()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match=rf"metrics at {at}: Address already in use: choose another port") as raised:
            opened(name, tmp_path, metrics=at)
    assert raised.value.errno == 98
    assert threads() == before


def test_a_role_that_cannot_be_opened_frees_the_port():
    before = threads()
    with dcp.Broker(bind=ANY) as broker, pytest.raises(OSError, match="in use"):
        dcp.Broker(bind=broker.endpoints, metrics="0")
    assert threads() == before


def test_it_says_so_where_the_library_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(LocalProtocolError, match=r"requires prometheus_client: install trunkline\[metrics\]"):
        dcp.Broker(bind=ANY, metrics="0")


def test_a_role_that_opens_does_not_serve_yet_and_one_that_drains_no_longer(monkeypatch):
    seen = []
    opening = dcp.Broker._open

    def slow(self):
        seen.append(health(self.metrics_url))
        seen.append(value(scraped(self.metrics_url), "trunkline_role_up", role="dcp.broker"))
        opening(self)

    monkeypatch.setattr(dcp.Broker, "_open", slow)
    with (
        dcp.Broker(bind=ANY, metrics="0") as broker,
        dcp.Worker(b"echo", connect=broker.endpoints) as worker,
        dcp.Client(connect=broker.endpoints) as client,
    ):
        assert seen == [(503, "opening"), 0]
        client.submit(b"echo", b"x")
        request = worker.receive(timeout_s=20)
        url = broker.metrics_url
        closing = threading.Thread(target=broker.close, kwargs={"drain_s": 20})
        closing.start()
        until(lambda: health(url) == (503, "closing"))
        # Its counters are there until it has ended.
        assert value(scraped(url), "trunkline_role_up", role="dcp.broker") == 0
        assert value(scraped(url), "trunkline_dcp_broker_service_requests_total", service="echo") == 1
        request.reply(b"y")
        closing.join(20)
        assert not closing.is_alive()
        client.close(drain_s=0)


def test_one_that_has_ended_by_itself_does_not_serve():
    own = zmq.Context()
    broker = dcp.Broker(bind="inproc://broker", context=own, metrics="0")
    assert health(broker.metrics_url) == (200, "serving")
    own.term()
    until(lambda: broker.closed)
    assert health(broker.metrics_url) == (503, "closed")
    with pytest.raises(Exception, match="context"):
        broker.close()
    assert not threads()


def test_a_role_of_cdt_serves_while_it_has_a_server(tmp_path):
    with nats.server(tmp_path) as server, cdt.Target("cdp", servers=server.url, metrics="0") as target:
        assert health(target.metrics_url) == (200, "serving")
        server.stop()
        until(lambda: health(target.metrics_url) == (503, "disconnected"))


def test_a_role_that_is_stopped_is_no_longer_probed_as_serving():
    with cdtp.Receiver(bind=ANY, metrics="0") as receiver:
        receiver.stop(drain_s=20)
        assert health(receiver.metrics_url)[0] == 503


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
        ("HEAD", "/metrics", 200),
        ("HEAD", "/healthz", 200),
        ("POST", "/metrics", 405),
        ("DELETE", "/healthz", 405),
        ("BREW", "/metrics", 405),
    ],
)
def test_there_is_nothing_else(method, path, status, made):
    got, headers, body = asked(made("mc0.Middleware").metrics_url, path, method=method)
    assert got == status
    assert (body == "") == (method == "HEAD")
    assert headers["Server"].strip() == "trunkline"
    assert ("Allow" in headers) == (status == 405)


def test_a_scrape_may_ask_for_some_metrics(made):
    url = made("dcp.Broker").metrics_url
    _, _, body = asked(url, query="?name[]=trunkline_dcp_broker_queued&name[]=trunkline_role_up")
    assert {line.split("{")[0].split()[0] for line in body.splitlines() if not line.startswith("#")} == {
        "trunkline_dcp_broker_queued",
        "trunkline_role_up",
    }


def test_counters_are_those_of_the_moment(made):
    broker = made("dcp.Broker")
    with dcp.Client(connect=broker.endpoints) as client:
        for number in range(1, 4):
            client.submit(b"calc", b"x")
            until(lambda number=number: broker.stats.queued == number)
            samples = scraped(broker.metrics_url)
            assert value(samples, "trunkline_dcp_broker_queued") == number
            assert value(samples, "trunkline_dcp_broker_service_requests_total", service="calc") == number
        client.close(drain_s=0)


def test_names_that_peers_choose_are_labels_whatever_they_are(made):
    broker = made("dcp.Broker")
    names = [b'quo"te', b"back\\slash", b"line\nfeed", b"\xff\xfe", "umläut".encode(), b"{}=,", b"x" * 300]
    with dcp.Client(connect=broker.endpoints) as client:
        for name in names:
            client.submit(name, b"x")
        until(lambda: broker.stats.queued == len(names))
        for accept in ("text/plain", OPENMETRICS):
            samples = scraped(broker.metrics_url, accept)
            found = {
                dict(labels)["service"] for name, labels in samples if name == "trunkline_dcp_broker_service_queued"
            }
            assert found == {
                'quo"te',
                "back\\slash",
                "line\\nfeed",
                "\\xff\\xfe",
                "umläut",
                "{}=,",
                "x" * 200,
            }
        client.close(drain_s=0)


def test_a_reader_that_never_ends_its_request_keeps_nobody_out(made, monkeypatch):
    monkeypatch.setattr(scrapes, "_CONNECTION_S", 0.5)
    broker = made("dcp.Broker")
    where = urlsplit(broker.metrics_url)
    slow = [socket.create_connection((where.hostname, where.port)) for _ in range(40)]
    try:
        for each in slow:
            each.settimeout(20)
            each.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
        assert health(broker.metrics_url) == (200, "serving")
        until(lambda: len(threads()) <= scrapes._MOST_CONNECTIONS + 1)
        # A byte now and then earns no more time.
        for each in slow:
            with suppress(OSError):
                each.sendall(b"x")
        for each in slow:
            assert_ended(each)
        until(lambda: len(threads()) == 1)
    finally:
        for each in slow:
            each.close()


def assert_ended(connection):
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        pass


def test_a_role_with_slow_readers_closes_at_once(made):
    broker = made("dcp.Broker")
    where = urlsplit(broker.metrics_url)
    with socket.create_connection((where.hostname, where.port)) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\n")
        until(lambda: len(threads()) == 2)
        broker.close()
        assert threads() == []


def test_a_store_that_fails_costs_a_scrape_and_nothing_else(request, caplog):
    class Failing(cdt.MemoryStore):
        def count(self):
            if self.fails:
                raise OSError(errno.EIO, "no disk")
            return 0

        fails = False

    store = Failing()
    servers = f"memory://{request.node.name}"
    with cdt.Target("cdp", servers=servers, store=store, metrics="0") as target:
        store.fails = True
        assert asked(target.metrics_url)[0] == 500
        assert "the metrics of cdt.target could not be read: OSError: [Errno 5] no disk" in caplog.text
        store.fails = False
        assert asked(target.metrics_url)[0] == 200


def test_messages_pass_while_it_is_scraped_without_end(made):
    bus = made("mc0.Middleware")
    done = threading.Event()
    seen = []

    def scrape():
        while not done.is_set():
            seen.append(value(scraped(bus.metrics_url), "trunkline_mc0_middleware_received_total"))

    scraping = [threading.Thread(target=scrape) for _ in range(4)]
    with mc0.Connector(connect=bus.endpoints) as sender, mc0.Connector(connect=bus.endpoints) as reader:
        reader.subscribe("t", timeout_s=20)
        for thread in scraping:
            thread.start()
        sent = 0
        while sent < 3000 or len(seen) < 5:
            sender.put("t", str(sent).encode())
            sent += 1
        got = [reader.receive(timeout_s=20).body[0] for _ in range(sent)]
        done.set()
        for thread in scraping:
            thread.join()
    assert got == [str(number).encode() for number in range(sent)]
    # Counters never go back.
    assert value(scraped(bus.metrics_url), "trunkline_mc0_middleware_received_total") >= max(seen)


def test_a_role_that_is_forgotten_ends_its_server():
    before = threads()
    role = dcp.Broker(bind=ANY, metrics="0")
    url = role.metrics_url
    with pytest.warns(ResourceWarning, match="unclosed Broker"):  # noqa: PT031 - the warning comes when it is collected
        del role
        gc.collect()
    until(lambda: threads() == before)
    with pytest.raises(ConnectionRefusedError):
        asked(url)


FORKED = """
import os, socket, sys
from urllib.parse import urlsplit
from trunkline import dcp
sys.path[:0] = {path!r}
from peers.scraping import health

broker = dcp.Broker(bind="tcp://127.0.0.1:*", metrics="0")
url = broker.metrics_url
reading, writing = os.pipe()
going, go = os.pipe()
child = os.fork()
if not child:
    os.read(going, 1)
    # The port is its parent's, which has closed it by now: nothing of it is open here.
    with socket.create_server(("127.0.0.1", urlsplit(url).port)):
        pass
    broker.close()
    assert broker.metrics_url == url
    with dcp.Broker(bind="tcp://127.0.0.1:*", metrics="0") as own:
        assert health(own.metrics_url) == (200, "serving")
    os._exit(0)
assert health(url) == (200, "serving")
broker.close()
os.write(go, b"x")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_has_nothing_of_it():
    script = FORKED.format(path=[path for path in sys.path if path])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_simulation_serves_no_metrics():
    for role, given in ((dcp.Broker, ()), (cdt.Target, ("cdp",))):
        with pytest.raises(LocalProtocolError, match="leave out metrics="):
            Simulation().add(role, *given, metrics="0")


def test_what_a_target_announces_is_no_drop_of_its_own():
    with cdt.Target("cdp", servers="memory://own", metrics="0") as target:
        target.put("app-1", "e-1", b"x")
        until(lambda: target.stats.dropped == {"own_event": 1})
        samples = scraped(target.metrics_url)
        assert not [name for name, labels in samples if "dropped" in name]

"""Each example of a peer that is not ours runs as it is, against the role that serves it."""

import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from peers import nats
from peers.waiting import until
from trunkline import cdt, cdtp, dcp, mc0, mtl

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "examples" / "peers"
ANY = "tcp://127.0.0.1:*"
JEROMQ = Path("/usr/share/java/jeromq.jar")
TIMEOUT_S = 40


class Peer:
    """A peer that runs as a process of its own."""

    def __init__(self, command):
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # A test reads a line while the peer runs; one that prints none is ended.
        self._ender = threading.Timer(TIMEOUT_S, self._process.kill)
        self._ender.start()

    def prints(self):
        """The next line, without its end."""
        return self._process.stdout.readline().removesuffix("\n")

    def ends(self):
        """The lines that are left, of a peer that ends by itself and has nothing to complain of."""
        out, complaints = self._process.communicate()
        self.close()
        assert (self._process.returncode, complaints) == (0, ""), out
        return out.splitlines()

    def fails(self):
        """What a peer says that was not served."""
        _, complaints = self._process.communicate()
        self.close()
        assert self._process.returncode == 1
        return complaints

    def close(self):
        self._ender.cancel()
        self._process.kill()
        self._process.communicate()


def compiled(source, directory):
    """A program in C, where there are a compiler and CZMQ."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    look = [compiler, "-E", "-include", "czmq.h", "-xc", "/dev/null"]
    if subprocess.run(look, check=False, capture_output=True).returncode:
        pytest.skip("there is no czmq.h: Debian has it in libczmq-dev")
    program = directory / source.stem
    subprocess.run([compiler, "-Wall", "-Wextra", "-Werror", source, "-o", program, "-lczmq"], check=True)
    return [program]


def java(source):
    """A program in Java, which compiles it when it starts it, where there are a compiler and JeroMQ."""
    if shutil.which("javac") is None:
        pytest.skip("there is no Java compiler")
    if not JEROMQ.exists():
        pytest.skip(f"there is no {JEROMQ}: Debian has it in libjeromq-java")
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", JEROMQ, source]


@pytest.fixture
def start(tmp_path):
    """Starts a peer; it is over with the test."""
    peers = []

    def start(name, *arguments):
        source = PEERS / name
        command = {
            ".py": lambda: [sys.executable, "-W", "error", source],
            ".c": lambda: compiled(source, tmp_path),
            ".java": lambda: java(source),
        }[source.suffix]()
        peers.append(Peer([*command, *arguments]))
        return peers[-1]

    yield start
    for peer in peers:
        peer.close()


def cdtp_sender(start, name):
    sender = start(name, ANY)
    endpoint = sender.prints().removeprefix("bound to ")
    with cdtp.Receiver(connect=endpoint) as receiver:
        for number in range(3):
            message = receiver.receive(timeout_s=TIMEOUT_S)
            assert (message.variant, message.sender, message.tags) == ("S", "Detector.one", {"event": number})
            assert message.payload == (bytes(16), b"second block")
        assert sender.ends() == ["sent 0", "sent 1", "sent 2"]
        assert not receiver.stats.dropped


def cdtp_receiver(start, name):
    with cdtp.Sender("Det", bind=ANY) as sender:
        receiver = start(name, sender.endpoints[0])
        sender.send([b"one", b"two"], tags={"run": 7}, timestamp_ns=1_700_000_000_123_456_789)
        assert receiver.ends() == [
            "Det at 1700000000123456789 ns: {'run': 7}, 2 payload frames: [b'one', b'two']",
        ]


def dcp_client(start, name):
    with dcp.Broker(bind=ANY) as broker, dcp.Worker(b"echo", connect=broker.endpoints) as worker:
        client = start(name, broker.endpoints[0])
        request = worker.receive(timeout_s=TIMEOUT_S)
        assert (request.metadata, request.data) == ((b"request 1",), (b"hello",))
        request.reply([b"hello back"])
        (printed,) = client.ends()
        assert re.findall("request 1|hello back", printed) == ["request 1", "hello back"]
        assert not broker.stats.dropped


def dcp_worker(start, name):
    with dcp.Broker(bind=ANY) as broker, dcp.Client(connect=broker.endpoints) as client:
        worker = start(name, broker.endpoints[0])
        assert worker.prints() == "registered b'echo'"
        reply = client.request(b"echo", [b"one", b"", b"two"], metadata=[b"mine"], timeout_s=TIMEOUT_S)
        assert (reply.metadata, reply.data) == ((b"mine",), (b"one", b"", b"two"))
        (printed,) = worker.ends()
        assert printed.startswith("request from ")
        assert printed.endswith("data [b'one', b'', b'two']")
        assert not broker.stats.dropped


def mc0_publisher(start, name):
    with mc0.Middleware(bind=ANY) as bus, mc0.Connector(connect=bus.endpoints) as connector:
        connector.subscribe("news", timeout_s=TIMEOUT_S)
        (printed,) = start(name, bus.endpoints[0]).ends()
        assert re.findall(r"\w+", printed.replace("b'", "")) == ["OK", "ID", "1"]
        message = connector.receive(timeout_s=TIMEOUT_S)
        assert (message.topic, message.body) == ("news", (b"hello",))
        assert dict(message.headers) == {"TOPIC": "news", "X-Author": "Ada"}
        assert not bus.stats.dropped


def mc0_subscriber(start, name):
    with mc0.Middleware(bind=ANY) as bus, mc0.Connector(connect=bus.endpoints) as connector:
        subscriber = start(name, bus.endpoints[0])
        assert subscriber.prints() == "subscribed"
        connector.put("news", [b"one", b"two"], headers={"X-Author": "Ada"}, confirm=True, timeout_s=TIMEOUT_S)
        assert subscriber.ends() == ["b'news' {b'X-Author': b'Ada'} [b'one', b'two']"]
        assert not bus.stats.dropped


def mtl_server():
    return mtl.Server(bind=ANY, anonymous=True, profiles="queue", resources="jobs")


def mtl_writer(start, name):
    with mtl_server() as server, mtl.Client(connect=server.endpoints) as client:
        assert start(name, server.endpoints[0]).ends() == ["leased", "confirmed 2"]
        with client.reader("jobs") as reader:
            reader.summon("jobs")
            content = reader.receive(timeout_s=TIMEOUT_S)
            assert (content.resource, content.body, content.properties) == ("jobs", b"build 7", {})
            content.confirm()
        assert not server.stats.dropped


def mtl_reader(start, name):
    with mtl_server() as server, mtl.Client(connect=server.endpoints) as client:
        with client.writer("jobs") as writer:
            writer.send(b"build 7")
            writer.flush(timeout_s=TIMEOUT_S)
        leased, summoned, content = start(name, server.endpoints[0]).ends()
        assert (leased, summoned) == ("leased", "summoned")
        assert content == "content 1 of jobs: b'build 7', properties of 0 bytes"
        until(lambda: server.stats.resources[0].confirmed == 1)
        assert not server.stats.dropped


def cdt_source(start, name):
    with tempfile.TemporaryDirectory() as directory, nats.server(Path(directory)) as server:
        with cdt.Target("configs", servers=server.url) as target:
            pull = start(name, server.url, "configs")
            assert pull.fails() == "Not Found\n"
            config_id = target.put("app-1", "device-1", b'{"interval": 5}')
            printed = [f"200 {config_id} application/json", """b'{"interval": 5}'"""]
            assert start(name, server.url, "configs").ends() == printed
        assert start(name, server.url, "configs").fails() == f"no target configs at {server.url}\n"


SERVED = {
    "cdtp_sender.py": cdtp_sender,
    "cdtp_receiver.py": cdtp_receiver,
    "dcp_client.py": dcp_client,
    "dcp_client.c": dcp_client,
    "DcpClient.java": dcp_client,
    "dcp_worker.py": dcp_worker,
    "mc0_publisher.py": mc0_publisher,
    "mc0_publisher.c": mc0_publisher,
    "mc0_subscriber.py": mc0_subscriber,
    "mtl_writer.py": mtl_writer,
    "mtl_reader.py": mtl_reader,
    "cdt_source.py": cdt_source,
}


@pytest.mark.parametrize("name", SERVED)
def test_a_peer_is_served(name, start):
    SERVED[name](start, name)


def test_every_peer_is_tested_and_has_nothing_of_ours():
    sources = [path for path in PEERS.iterdir() if path.name != "__pycache__"]
    assert {path.name for path in sources} == set(SERVED)
    assert not [path.name for path in sources if "trunkline" in path.read_text().lower()]


def test_every_peer_is_on_a_page():
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "guides").glob("peers*.md"))
    assert all(f'--8<-- "examples/peers/{name}"' in pages for name in SERVED)

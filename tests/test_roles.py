"""What the roles of every protocol have in common."""

import asyncio
import logging
import re
import subprocess
import sys
import time

import pytest
import zmq

from peers.roles import KINDS, opened
from peers.waiting import until
from trunkline import cdtp, dcp, mc0, mtl
from trunkline._roles.notices import log
from trunkline.errors import LocalProtocolError

ROLES = {
    "cdtp.Sender": lambda _path, **options: cdtp.Sender("Det", linger_s=0, **options),
    "cdtp.Receiver": lambda _path, **options: cdtp.Receiver(**options),
    "cdtp.Recorder": lambda path, **options: cdtp.Recorder(path / "capture", **options),
    "dcp.Broker": lambda _path, **options: dcp.Broker(**options),
    "dcp.Worker": lambda _path, **options: dcp.Worker(b"echo", **options),
    "dcp.Client": lambda _path, **options: dcp.Client(**options),
    "mc0.Connector": lambda _path, **options: mc0.Connector(**options),
    "mc0.Middleware": lambda _path, **options: mc0.Middleware(**options),
}

PATTERNS = {
    "cdtp.Sender": "PUSH",
    "cdtp.Receiver": "PULL",
    "cdtp.Recorder": "PULL",
    "dcp.Broker": "ROUTER",
    "dcp.Worker": "DEALER",
    "dcp.Client": "DEALER",
    "mc0.Connector": "DEALER",
    "mc0.Middleware": "ROUTER",
}


def test_every_role_that_takes_a_socket_is_here():
    assert set(ROLES) == set(PATTERNS) == {name for name, role in KINDS.items() if "socket" in role.parameters}


@pytest.mark.parametrize(
    "given", ["PUB", "SUB", "REQ", "REP", "DEALER", "ROUTER", "PULL", "PUSH", "PAIR", "XPUB", "STREAM"]
)
@pytest.mark.parametrize("role", ROLES)
def test_a_socket_of_another_pattern_is_refused(role, given, open_socket, tmp_path):
    socket = open_socket(getattr(zmq, given))
    if given == PATTERNS[role]:
        ROLES[role](tmp_path, socket=socket).close()
        return
    with pytest.raises(LocalProtocolError, match=f"needs a {PATTERNS[role]} socket, not a {given} one"):
        ROLES[role](tmp_path, socket=socket)


def test_the_endpoint_of_a_socket_is_that_of_its_role(open_socket):
    socket = open_socket(zmq.PULL, bind="tcp://127.0.0.1:*")
    with cdtp.Receiver(socket=socket) as receiver:
        assert receiver.endpoints == (socket.last_endpoint.decode(),)
    assert receiver.endpoints == (socket.last_endpoint.decode(),)
    with cdtp.Receiver(socket=open_socket(zmq.PULL)) as receiver:
        assert receiver.endpoints == ()


@pytest.mark.parametrize("transport", ["libzmq", "zeromq"])
@pytest.mark.parametrize("role", ["cdtp.Receiver", "dcp.Broker", "mc0.Middleware"])
def test_addresses_of_ipv6_are_in_brackets(role, transport, open_socket, tmp_path):
    kind = {"PULL": zmq.PUSH, "ROUTER": zmq.DEALER}[PATTERNS[role]]
    with ROLES[role](tmp_path, bind="tcp://[::1]:*", transport=transport) as there:
        assert re.fullmatch(r"tcp://\[::1\]:\d+", there.endpoints[0])
        open_socket(kind, ipv6=True, connect=there.endpoints[0]).send(b"garbage")
        until(lambda: there.stats.received == 1)


def test_clients_connect_to_addresses_of_ipv6():
    with (
        dcp.Broker(bind="tcp://[::1]:*") as broker,
        dcp.Worker(b"echo", connect=broker.endpoints) as worker,
        dcp.Client(connect=broker.endpoints) as client,
    ):
        future = client.submit(b"echo", [b"hello"])
        worker.receive(timeout_s=20).reply([b"there"])
        assert future.result(20).data == (b"there",)


FIRST_PEER = """
import threading, zmq
from trunkline import mc0
seen, came = [], threading.Event()
def on_drop(dropped):
    seen.append(dropped.peer)
    came.set()
with mc0.Middleware(bind="tcp://127.0.0.1:*", on_drop=on_drop) as bus, zmq.Context() as context:
    with context.socket(zmq.DEALER) as peer:
        peer.connect(bus.endpoints[0])
        peer.send(b"garbage")
        assert came.wait(20)
print(seen[0].hex())
"""


def test_the_routing_ids_of_peers_without_one_cannot_be_predicted():
    run = [sys.executable, "-c", FIRST_PEER]
    first, second = (subprocess.run(run, check=True, capture_output=True, text=True).stdout for _ in range(2))
    assert first != second


def test_a_transport_without_limits_warns_where_strangers_can_connect(caplog):
    cdtp.Receiver(bind="tcp://127.0.0.1:*", transport="zeromq").close()
    assert caplog.text == ""
    cdtp.Receiver(bind="tcp://0.0.0.0:*", transport="zeromq").close()
    assert "trusted peers only" in caplog.text


@pytest.mark.parametrize("bound", ["queue_messages", "queue_bytes"])
@pytest.mark.parametrize("role", ROLES)
def test_a_queue_without_room_is_refused(role, bound, tmp_path):
    where = "bind" if role in ("dcp.Broker", "mc0.Middleware") else "connect"
    for size in (0, -1):
        with pytest.raises(LocalProtocolError, match=f"{bound} must be at least 1"):
            ROLES[role](tmp_path, **{where: "tcp://127.0.0.1:9", bound: size})


# A broker listens, those who need one dial it.
SIDES = [(role, side) for role in ROLES for side in ("bind", "connect")]
ONE_SIDED = {
    ("dcp.Broker", "connect"),
    ("mc0.Middleware", "connect"),
    ("dcp.Worker", "bind"),
    ("dcp.Client", "bind"),
    ("mc0.Connector", "bind"),
}
SIDES = [pair for pair in SIDES if pair not in ONE_SIDED]

WRONG_ENDPOINTS = [
    ("127.0.0.1:1", "does not name its transport: an endpoint looks like tcp://127.0.0.1:23999"),
    ("nowhere", "does not name its transport"),
    ("tcp://nowhere", "has no port"),
    ("tcp://:5555", "has no host"),
    ("tcp://127.0.0.1:99999", "has the port '99999', not a number from 1 to 65535"),
    ("tcp://127.0.0.1:80x", "has the port '80x'"),
    ("tcp://127.0.0.1:-1", "has the port '-1'"),
    ("tcp://127.0.0.1:", "has the port ''"),
]


@pytest.mark.parametrize(("endpoint", "what"), WRONG_ENDPOINTS)
@pytest.mark.parametrize(("role", "side"), SIDES)
def test_what_is_no_endpoint_is_refused_with_its_argument(role, side, endpoint, what, tmp_path):
    with pytest.raises(LocalProtocolError, match=re.escape(f"{side}={endpoint!r} {what}")):
        ROLES[role](tmp_path, **{side: ["tcp://127.0.0.1:9", endpoint]})
    assert not (tmp_path / "capture").exists()


def test_a_port_is_left_open_only_where_one_listens():
    for free in ("*", "0"):
        with cdtp.Receiver(bind=f"tcp://127.0.0.1:{free}") as receiver:
            assert int(receiver.endpoints[0].rpartition(":")[2]) > 0
        with pytest.raises(LocalProtocolError, match=r"from 1 to 65535$"):
            cdtp.Receiver(connect=f"tcp://127.0.0.1:{free}")


def test_what_zeromq_cannot_do_with_an_endpoint_is_said_in_words():
    with pytest.raises(LocalProtocolError, match=r"carrier://pigeon: .*an endpoint looks like"):
        cdtp.Receiver(bind="carrier://pigeon")
    with pytest.raises(OSError, match="bind to an address or interface of this machine"):
        cdtp.Receiver(bind="tcp://nosuch0:5555")
    with pytest.raises(OSError, match="bind to an address of this machine"):
        cdtp.Receiver(bind="tcp://192.0.2.1:5555")


UNCHANGED = """
import resource, signal
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))
from trunkline import cdtp, chirp, dcp, mc0, mtl
where = "tcp://127.0.0.1:*"
with (
    cdtp.Sender("Det", bind=where, group="lab", chirp_port=PORT),
    cdtp.Receiver(group="lab", chirp_port=PORT),
    chirp.Beacon("lab", "Det", port=PORT),
    dcp.Broker(bind=where),
    mc0.Middleware(bind=where),
    mtl.Server(bind=where, anonymous=True),
):
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (256, 512)
with cdtp.Receiver(bind=where, raise_file_limit=True):
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (512, 512)
print("as it was")
"""


def test_roles_leave_the_process_as_it_is(peer):
    script = UNCHANGED.replace("PORT", str(peer.port))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("as it was\n", "")


class Slow(logging.Handler):
    """A log whose writer is behind."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        time.sleep(0.05)
        self.texts.append(record.getMessage())


@pytest.fixture
def slow_log():
    handler = Slow()
    logging.getLogger("trunkline").addHandler(handler)
    yield handler
    logging.getLogger("trunkline").removeHandler(handler)


@pytest.mark.parametrize("twin", ["", "async"])
@pytest.mark.parametrize("name", KINDS)
def test_what_a_role_logged_is_written_once_it_is_closed(name, twin, slow_log, tmp_path):
    with mtl.Server(bind="tcp://127.0.0.1:*", anonymous=True) as server:
        given = {"connect": server.endpoints[0], "timeout_s": 10} if name == "mtl.Client" else {}

        async def run():
            async with opened(name, tmp_path, "async", **given):
                log(logging.getLogger("trunkline"), logging.WARNING, "its last words", None)

        if twin:
            asyncio.run(run())
        else:
            with opened(name, tmp_path, **given):
                log(logging.getLogger("trunkline"), logging.WARNING, "its last words", None)
        assert any("its last words" in text for text in slow_log.texts)


# Interrupts the end of many clients at any moment, and says whether the log of another role is written after that.
INTERRUPTED = """
import logging, random, signal, time
from trunkline import cdtp, dcp

def interrupt(*_):
    raise KeyboardInterrupt

class Log(logging.Handler):
    def emit(self, record):
        texts.append(record.getMessage())

texts = []
logging.getLogger("trunkline").addHandler(Log())
logging.getLogger("trunkline").setLevel(logging.INFO)
signal.signal(signal.SIGALRM, interrupt)
moments = random.Random(1)
with dcp.Broker(bind="tcp://127.0.0.1:*") as broker:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        client = dcp.Client(connect=broker.endpoints)
        for most in (3e-4, 1e-2, 3e-4):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-6, most))
                    client.close()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                pass
        client.close()
texts.clear()
with cdtp.Receiver(bind="tcp://127.0.0.1:*") as receiver, cdtp.Sender("D", connect=receiver.endpoints[0]) as sender:
    sender.send(b"x")
    receiver.receive(timeout_s=10)
print(any("connected" in text for text in texts))
"""


def test_an_interrupt_while_a_role_closes_ends_no_log():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False, timeout=50)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr

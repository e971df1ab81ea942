"""The machines of roles with sockets and a clock of the test's own."""

import time

import pytest
import zmq

from peers import cdtp as wire
from peers.waiting import PATIENCE_S
from trunkline import cdtp, chirp, dcp, driver, mtl
from trunkline.driver import Close, Connect, Driver, Open, Send
from trunkline.errors import LocalProtocolError

HEAD = (b"", b"DGBX\x01")


def outputs(machine, now_ns=0):
    return list(iter(lambda: machine.poll_output(now_ns), None))


def events(machine, now_ns=0):
    return list(iter(lambda: machine.poll_event(now_ns), None))


class Loop:
    """A loop of one's own, over pyzmq sockets."""

    def __init__(self, machine, context):
        self.machine = machine
        self.context = context
        self.sockets = {}
        self.events = []

    def now_ns(self):
        return time.monotonic_ns()

    def carry_out(self):
        for output in outputs(self.machine, self.now_ns()):
            match output:
                case Open(socket=number):
                    socket = self.context.socket(getattr(zmq, output.kind))
                    self.sockets[number] = socket
                    for endpoint in output.bind:
                        socket.bind(endpoint)
                        real = socket.last_endpoint.decode()
                        self.machine.handle_socket(self.now_ns(), number, "bound", endpoint=real)
                    for endpoint in output.connect:
                        socket.connect(endpoint)
                case Send(socket=number):
                    to = [] if output.to is None else [output.to]
                    self.sockets[number].send_multipart([*to, *output.frames])
                    if output.id is not None:
                        self.machine.handle_socket(self.now_ns(), number, "sent", send=output.id)
                case Close(socket=number):
                    self.sockets.pop(number).close()
                    self.machine.handle_socket(self.now_ns(), number, "closed")
        self.events += events(self.machine, self.now_ns())

    def run_until(self, ready):
        end = time.monotonic() + PATIENCE_S
        self.carry_out()
        while not ready():
            assert time.monotonic() < end
            due_ns = self.machine.timeout_ns
            patience_ms = 1000 if due_ns is None else max(0, (due_ns - self.now_ns()) // 1_000_000 + 1)
            for number, socket in list(self.sockets.items()):
                if socket.poll(min(patience_ms, 100)):
                    frames = socket.recv_multipart()
                    peer = frames.pop(0) if socket.type == zmq.ROUTER else None
                    self.machine.handle_message(self.now_ns(), number, frames, peer=peer)
            self.machine.handle_timeout(self.now_ns())
            self.carry_out()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for socket in self.sockets.values():
            socket.close(0)

    def close(self):
        self.machine.handle_close(self.now_ns(), 0)
        self.run_until(lambda: self.machine.closed)
        assert not self.sockets


def test_a_broker_runs_in_a_loop_of_ones_own(context, open_socket):
    with Loop(Driver(dcp.Broker, bind="tcp://127.0.0.1:*"), context) as loop:
        loop.carry_out()
        endpoint = loop.sockets[0].last_endpoint.decode()
        worker, client = (open_socket(zmq.DEALER) for _ in range(2))
        for socket in (worker, client):
            socket.connect(endpoint)
        worker.send_multipart([*HEAD, b"\x01", b"echo"])
        loop.run_until(lambda: any(kind == "registered" for kind, *_ in loop.events))
        client.send_multipart([*HEAD, b"\x04", b"echo", b"", b"", b"hello"])
        loop.run_until(lambda: loop.machine.stats["services"][0]["requests"])
        assert worker.recv_multipart()[2:3] == [b"\x01"]
        _, _, kind, _, address, *_, data = worker.recv_multipart()
        assert (kind, data) == (b"\x04", b"hello")
        worker.send_multipart([*HEAD, b"\x05", address, b"", b"", b"HELLO"])
        loop.run_until(lambda: loop.machine.stats["services"][0]["replies"])
        assert client.recv_multipart() == [*HEAD, b"\x05", address, b"", b"", b"HELLO"]
        loop.close()


def test_a_receiver_tells_what_messages_were(context, open_socket):
    with Loop(Driver(cdtp.Receiver, bind="tcp://127.0.0.1:*"), context) as loop:
        loop.carry_out()
        push = open_socket(zmq.PUSH)
        push.connect(loop.sockets[0].last_endpoint.decode())
        push.send_multipart([wire.header_s(), b"x"])
        loop.run_until(lambda: any(kind == "messages" for kind, *_ in loop.events))
        (messages,) = (details[0] for kind, *details in loop.events if kind == "messages")
        assert [(one.sender, one.payload) for one in messages] == [("Det", (b"x",))]
        verdict = loop.machine.handle_message(loop.now_ns(), 0, [b"\xc1"])
        assert verdict == driver.Verdict("bad_header", None, None)
        loop.carry_out()
        assert loop.events[-1][0] == "dropped"
        loop.close()


def test_a_worker_answers_when_it_likes():
    machine = Driver(dcp.Worker, b"echo", connect=["tcp://a:1", "tcp://b:1"], seed=1)
    opened, registers = outputs(machine)
    assert (opened, registers.frames) == (Open(0, "DEALER", (), ("tcp://a:1",)), (*HEAD, b"\x01", b"echo"))
    machine.handle_socket(0, 0, "sent", send=registers.id)
    machine.handle_message(0, 0, [*HEAD, b"\x01"])
    machine.handle_message(0, 0, [*HEAD, b"\x04", b"echo", b"C", b"", b"m", b"", b"x"])
    (request,) = (details[0] for kind, *details in events(machine) if kind == "request")
    request.reply(b"y")
    (reply,) = (output for output in outputs(machine) if isinstance(output, Send) and output.frames[2] == b"\x05")
    assert reply.frames == (*HEAD, b"\x05", b"C", b"", b"m", b"", b"y")
    # A broker that falls silent is left for the next.
    seen = []
    while not any(isinstance(output, Connect) for output in seen):
        now_ns = machine.timeout_ns
        machine.handle_timeout(now_ns)
        for output in outputs(machine, now_ns):
            seen.append(output)
            if isinstance(output, Send):
                machine.handle_socket(now_ns, 0, "sent", send=output.id)
    assert seen[-1] == Connect(0, "tcp://b:1") or Connect(0, "tcp://b:1") in seen


def test_a_client_makes_and_cancels_calls():
    machine = Driver(dcp.Client, connect="tcp://a:1", seed=1)
    request = {"service": b"s", "data": b"", "metadata": (), "retries": 0}
    for call in (1, 2):
        machine.ask(0, "request", call=call, timeout_s=1, **request)
    _, first, second = outputs(machine)
    machine.ask(0, "cancel", call=1)
    assert outputs(machine) == [driver.Withdraw(0, first.id)]
    machine.handle_socket(0, 0, "unsent", send=first.id, reason="expired")
    machine.handle_socket(0, 0, "sent", send=second.id)
    machine.handle_timeout(machine.timeout_ns)
    assert events(machine) == [("timed_out", 2)]
    assert machine.timeout_ns is None
    assert machine.stats["timeouts"] == 1


@pytest.mark.req("CHIRP-01")
def test_a_beacon_is_driven_over_datagrams_of_ones_own():
    offers, asks = (Driver(chirp.Beacon, "lab", name, seed=seed) for seed, name in enumerate(("a", "b")))
    for machine in (offers, asks):
        assert isinstance(machine.poll_output(0), Open)
    offers.ask(0, "offer", service=chirp.Service.DATA, port=4000)
    (offer,) = outputs(offers)
    assert asks.handle_message(0, 0, offer.frames, peer=b"192.0.2.7:7123").error is None
    assert [(kind, news[0], news[4]) for kind, news in events(asks)] == [("news", "offer", "tcp://192.0.2.7:4000")]
    asks.handle_message(0, 0, [b"nonsense"], peer=b"192.0.2.7:7123")
    assert events(asks)[0][0] == "dropped"


def test_the_same_seed_says_the_same():
    def said(seed):
        machine = Driver(dcp.Client, connect="tcp://a:1", seed=seed)
        machine.ask(0, "request", call=1, service=b"s", data=b"", metadata=(), timeout_s=None, retries=0)
        return outputs(machine)

    assert said(7) == said(7) != said(8)


def test_what_is_wrong_is_named():
    with pytest.raises(LocalProtocolError, match="leave out queue_messages="):
        Driver(dcp.Client, connect="tcp://a:1", queue_messages=1)
    with pytest.raises(LocalProtocolError, match="Recorder has no machine"):
        Driver(cdtp.Recorder, "x")
    with pytest.raises(TypeError, match="no_such"):
        Driver(dcp.Client, connect="tcp://a:1", no_such=1)
    machine = Driver(dcp.Client, connect="tcp://a:1")
    with pytest.raises(ValueError, match='unknown verb "sing"'):
        machine.ask(0, "sing", call=1)
    with pytest.raises(TypeError, match="service is missing"):
        machine.ask(0, "request", call=1)
    with pytest.raises(ValueError, match="unknown socket event"):
        machine.handle_socket(0, 0, "exploded")
    with pytest.raises(ValueError, match="connected needs endpoint="):
        machine.handle_socket(0, 0, "connected")
    with pytest.raises(ValueError, match="reason="):
        machine.handle_socket(0, 0, "unsent", send=1)
    # Events of a socket that was never opened are ignored.
    machine.handle_socket(0, 99, "sent", send=1)
    machine.handle_message(0, 99, [b"x"])


def test_a_server_of_queues_is_asked_and_answers():
    server = Driver(
        mtl.Server, bind="tcp://127.0.0.1:1", users={"ada": "sesame"}, resources="jobs", durable="store", seed=7
    )
    (opened,) = outputs(server)
    assert (opened.kind, opened.bind) == ("ROUTER", ("tcp://127.0.0.1:1",))
    ((kind, number, changes),) = events(server)
    assert (kind, [change[0] for change in changes]) == ("store", ["define"])
    server.handle_socket(0, 0, "bound", endpoint="tcp://127.0.0.1:1")
    server.ask(0, "stored", through=number)

    def asks(name, body):
        verdict = server.handle_message(0, 0, [b"", name, body], peer=b"ada")
        assert (verdict.error, verdict.framing) == (None, "mtl")
        return [(output.to, output.frames[1]) for output in outputs(server)]

    assert asks(b"Connection.Open", b'{"protocol": {"name": "MTL", "version": 1}, "virtual-host": "/"}') == [
        (b"ada", b"401")
    ]
    assert asks(b"Connection.Authorize", b'{"mechanism": "SCRAM-SHA-256", "response": "bg=="}') == []
    ((kind, token, mechanism, response, state, is_private, user_id),) = events(server)
    assert (kind, mechanism, response, state, is_private, user_id) == ("login", "SCRAM-SHA-256", b"n", b"", False, None)
    server.ask(0, "welcome", token=token, name="ada", read=None, write=None)
    assert [output.frames[1] for output in outputs(server)] == [b"201"]
    assert events(server) == [("logged_in", (b"ada", "ada", None))]
    assert server.stats["sessions"] == 1


def test_a_data_connection_shows_its_lease_and_reads():
    options = {"connect": "tcp://127.0.0.1:1", "lease": "00ff", "confirm": "full"}
    reader = Driver(mtl.Reader, ["jobs"], **options)
    (opened, shown) = outputs(reader)
    assert (opened.kind, opened.connect) == ("DEALER", ("tcp://127.0.0.1:1",))
    assert mtl.decode(shown.frames) == mtl.Message("lease", sequence=1, lease="00ff")
    reader.ask(0, "call", call=7, asked="open", resource="", timeout_s=None)
    reader.handle_message(0, 0, mtl.encode(mtl.Message("response", sequence=1, status=200)))
    assert events(reader) == [("done", 7)]
    reader.ask(0, "call", call=8, asked="summon", resource="jobs", timeout_s=None)
    (summoned,) = outputs(reader)
    assert mtl.decode(summoned.frames).type == "summon"
    reader.handle_message(0, 0, mtl.encode(mtl.Message("response", sequence=2, status=400)))
    ((kind, call, error),) = events(reader)
    assert (kind, call, error.status) == ("refused", 8, 400)
    given = mtl.Message("content", sequence=1, resource="", body=b"x", properties={"run": 5})
    verdict = reader.handle_message(0, 0, mtl.encode(given))
    assert (verdict.error, verdict.topic) == (None, b"jobs")
    ((kind, content),) = events(reader)
    assert (kind, content.resource, content.body, content.properties) == ("content", "jobs", b"x", {"run": 5})
    content.confirm()
    (said,) = outputs(reader)
    assert mtl.decode(said.frames) == mtl.Message("confirm", sequence=1)
    # The peer is silent for so long that the reader needs another lease.
    for at in range(1, 11):
        reader.handle_timeout(at * 10**9)
        outputs(reader)
    ((lost,), (wanted, token)) = events(reader)
    assert (lost, wanted) == ("lost", "wanted")
    reader.ask(0, "granted", token=token, endpoint="tcp://127.0.0.1:2", lease="00fe")
    opened, shown = outputs(reader)
    assert (opened.connect, mtl.decode(shown.frames).lease) == (("tcp://127.0.0.1:2",), "00fe")


def test_a_client_of_queues_opens_logs_in_and_asks():
    client = Driver(mtl.Client, connect="tcp://127.0.0.1:1", user="ada", password="sesame")
    (opened,) = outputs(client)
    assert opened.kind == "REQ"
    client.ask(0, "call", call=1, name="Queue.List", body=None, timeout_s=5)
    (sent,) = outputs(client)
    assert sent.frames[0] == b"Connection.Open"
    client.handle_message(0, 0, [b"401", b'{"status": "x", "mechanisms": ["PLAIN"]}'])
    ((kind, token, offered, is_private),) = events(client)
    assert (kind, offered, is_private) == ("begin", ["PLAIN"], False)
    client.ask(0, "respond", token=token, mechanism="PLAIN", response=b"\0ada\0sesame", is_done=True)
    assert outputs(client)[0].frames[0] == b"Connection.Authorize"
    for reply in (b"201", b"200", b"200"):
        client.handle_message(0, 0, [reply, b'{"status": "OK", "queues": []}'])
        outputs(client)
    assert events(client) == [("reply", 1, mtl.Reply(200, {"status": "OK", "queues": []}))]
    assert client.stats["sent"] == 4

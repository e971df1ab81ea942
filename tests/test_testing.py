"""The simulation that users test with: everything by the clock, nothing by chance but what the seed says."""

import builtins
import time
from concurrent.futures import CancelledError

import pytest

from peers.waiting import until
from trunkline import cdtp, dcp, testing
from trunkline.errors import ClosedError, LocalProtocolError, TimeoutError

HEAD = (b"", b"DGBX\x01")
PING, PONG, RECONNECT = ((*HEAD, kind) for kind in (b"\x02", b"\x03", b"\x06"))


def register(service):
    return (*HEAD, b"\x01", service)


def asked(service, *data, metadata=()):
    return (*HEAD, b"\x04", service, b"", *metadata, b"", *data)


def trio(**network):
    return testing.pair(dcp.Broker, dcp.Client, dcp.Worker, **network)


def test_a_request_takes_as_long_as_its_messages_and_its_work():
    with testing.pair(dcp.Broker, dcp.Client, latency_s=0.25) as sim:
        sim.add(dcp.Worker, b"upper", lambda request: request.data[0].upper(), work_s=2)
        reply = sim.client.request(b"upper", b"x", metadata=[b"m"])
        assert (reply.data, reply.metadata) == ((b"X",), (b"m",))
        assert sim.now_s == 3
        assert sim.broker.services()[0].replies == sim.worker.stats.replies == sim.client.stats.replies == 1


def test_hours_take_no_time():
    with trio() as sim:
        start = time.monotonic()
        sim.advance(3600)
        assert sim.now_s == 3600
        assert sim.broker.stats.received > 1000
        assert time.monotonic() - start < 10


def test_a_request_nobody_answers_times_out_at_its_time():
    with testing.pair(dcp.Broker, dcp.Client) as sim:
        with pytest.raises(TimeoutError, match=r"within 1\.5 s"):
            sim.client.request(b"echo", b"", timeout_s=1.5, retries=2)
        assert sim.now_s == 4.5
        assert (sim.client.stats.timeouts, sim.client.stats.retries, sim.broker.stats.queued) == (1, 2, 3)


def history(seed):
    with trio(seed=seed, latency_s=0.01, jitter_s=0.05, loss=0.2, duplication=0.2, reorder=True) as sim:
        for number in range(20):
            sim.client.submit(b"echo", b"%d" % number, timeout_s=5, retries=3)
        sim.advance(60)
        return sim.broker.stats, sim.worker.stats, sim.client.stats


def test_the_same_seed_is_the_same_history():
    assert history(3) == history(3)
    assert history(3) != history(4)


def test_what_fails_says_which_seed_it_was():
    with pytest.raises(TimeoutError) as caught, testing.pair(dcp.Client, seed=1234) as sim:
        sim.client.request(b"echo", b"", timeout_s=2)
    assert caught.value.__notes__ == ["in a simulation with seed 1234, after 2.0 s"]


def test_no_test_goes_on_for_ever():
    with trio(steps=100, seed=77) as sim, pytest.raises(RuntimeError, match="seed 77: no end after 100 steps"):
        sim.advance(1e6)
    with testing.pair(dcp.Broker, dcp.Client, seed=78) as sim:
        with pytest.raises(RuntimeError, match="seed 78: nothing more will ever happen"):
            sim.until(lambda: False)


@pytest.mark.parametrize(("network", "received"), [({"loss": 1}, 0), ({"duplication": 1}, 2), ({}, 1)])
def test_the_network_does_what_it_is_told(network, received):
    with testing.pair(dcp.Broker, **network) as sim:
        sim.peer().send(PING)
        sim.advance(0)
        assert sim.broker.stats.received == received


def test_messages_overtake_each_other_only_where_they_may():
    def order(reorder):
        with testing.pair(dcp.Broker, jitter_s=1, reorder=reorder) as sim:
            peer = sim.peer()
            sim.set_network(jitter_s=0)
            peer.send(register(b"a"))
            sim.advance(0)
            sim.set_network(jitter_s=1)
            client = sim.peer()
            for number in range(20):
                client.send(asked(b"a", b"%d" % number))
            seen = []
            while len(seen) < 20:
                frames = peer.receive()
                if frames[2] == b"\x04":
                    seen.append(int(frames[-1]))
                    peer.send((*HEAD, b"\x05", frames[4], b"", b""))
            return seen

    assert order(reorder=False) == list(range(20))
    assert sorted(order(reorder=True)) == list(range(20)) != order(reorder=True)


@pytest.mark.parametrize("wrong", [{"loss": 1.1}, {"duplication": -0.1}, {"latency_s": -1}])
def test_a_network_there_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match=r"from 0 to 1|latency_s must be a number"):
        testing.pair(dcp.Broker, **wrong)


def test_a_bare_peer_sees_every_byte():
    with testing.pair(dcp.Broker) as sim:
        worker, client = sim.peer(), sim.peer()
        worker.send(PING)
        worker.send(register(b"a"))
        client.send(asked(b"a", b"", b"x", metadata=[b"m"]))
        sim.advance(0)
        assert worker.received == [
            RECONNECT,
            register(b"a"),
            (*HEAD, b"\x04", b"a", client.address, b"", b"m", b"", b"", b"x"),
        ]
        worker.send((*HEAD, b"\x05", client.address, b"", b"m", b"", b"y"))
        assert client.receive() == (*HEAD, b"\x05", client.address, b"", b"m", b"", b"y")
        with pytest.raises(TimeoutError):
            client.receive(timeout_s=1)
        assert not client.received


def test_what_is_no_message_is_dropped_and_told():
    dropped = []
    with testing.pair() as sim:
        sim.add(dcp.Broker, on_drop=dropped.append)
        peer = sim.peer()
        peer.send((b"", b"DGBX\x02", b"\x02"))
        sim.advance(0)
        assert sim.broker.stats.dropped == {"unsupported_version": 1}
        assert [(one.kind, one.peer) for one in dropped] == [("unsupported_version", peer.address)]
        with pytest.raises(LocalProtocolError):
            peer.send(())


def test_the_roles_take_the_keywords_of_the_real_ones():
    with testing.pair(dcp.Client) as sim:
        sim.add(dcp.Broker, max_queue=1, overflow="drop-oldest", queue_ttl_s=30)
        futures = [sim.client.submit(b"a", b"%d" % number, timeout_s=60) for number in range(3)]
        worker = sim.add(dcp.Worker, b"a", concurrency=2, heartbeat_interval_s=1)
        sim.advance(0)
        assert sim.broker.stats.dropped == {"queue_full": 2}
        worker.receive(timeout_s=0).reply(b"done")
        assert futures[2].result().data == (b"done",)
        for wrong in ({"max_queue": -1}, {"overflow": "never"}, {"no_such": 1}):
            with pytest.raises((ValueError, TypeError)):
                testing.pair().add(dcp.Broker, **wrong)
        with pytest.raises(LocalProtocolError, match=r"leave out connect="):
            sim.add(dcp.Client, connect="tcp://127.0.0.1:1")
        with pytest.raises(LocalProtocolError, match="a broker already"):
            sim.add(dcp.Broker)
        with pytest.raises(LocalProtocolError, match="no broker"):
            testing.pair().broker  # noqa: B018 - it raises


def test_requests_taken_one_by_one_are_answered_at_any_time():
    with testing.pair(dcp.Broker, dcp.Client) as sim:
        worker = sim.add(dcp.Worker, b"a")
        first, second = (sim.client.submit(b"a", text) for text in (b"1", b"2"))
        request = worker.receive()
        with pytest.raises(TimeoutError):
            worker.receive(timeout_s=1)
        sim.after(5, lambda: request.reply(b"late"))
        assert first.result().data == (b"late",)
        assert sim.now_s == 6
        worker.receive().fail()
        assert second.result().data == ()
        with pytest.raises(LocalProtocolError):
            request.reply(b"again")


def test_one_that_is_let_go_of_frees_its_place():
    with testing.pair(dcp.Broker, dcp.Client) as sim:
        worker = sim.add(dcp.Worker, b"a")
        for _ in range(2):
            sim.client.submit(b"a", b"", timeout_s=60)
        worker.receive()
        held = worker.receive(timeout_s=3)
        assert worker.stats.failed == 1
        held.reply(b"")


def test_a_handler_that_gives_nothing_frees_its_place_as_well():
    with testing.pair(dcp.Broker, dcp.Client) as sim:
        worker = sim.add(dcp.Worker, b"a", lambda _: None)
        sim.client.submit(b"a", b"", timeout_s=60)
        sim.advance(1)
        assert (worker.stats.failed, worker.stats.held) == (1, 0)


def test_a_handler_that_raises_answers_without_data(caplog):
    why = ["why"]

    def fail(_):
        raise ValueError(*why)

    with testing.pair(dcp.Broker, dcp.Client) as sim:
        sim.add(dcp.Worker, b"a", fail)
        assert sim.client.request(b"a", b"", metadata=[b"m"]) == dcp.Reply((), [b"m"])
        sim.add(dcp.Worker, b"b", fail, on_error=lambda _, error: str(error).encode())
        assert sim.client.request(b"b", b"").data == (b"why",)
        assert sim.worker.stats.failed == 1
    until(lambda: "why" in caplog.text)


def test_work_may_be_handed_on():
    with testing.pair(dcp.Broker, dcp.Client) as sim:
        sim.add(dcp.Worker, b"a", lambda request: request.forward(b"b", [*request.data, b"a"]))
        sim.add(dcp.Worker, b"b", lambda request: [*request.data, b"b"])
        assert sim.client.request(b"a", b"x").data == (b"x", b"a", b"b")


def test_what_a_worker_had_in_hand_is_lost_with_it():
    with testing.pair(dcp.Broker, dcp.Client) as sim:
        worker = sim.add(dcp.Worker, b"a")
        future = sim.client.submit(b"a", b"", timeout_s=20)
        request = worker.receive()
        sim.crash(worker)
        assert worker.closed
        with pytest.raises(ClosedError):
            request.reply(b"")
        with pytest.raises(ClosedError):
            worker.receive()
        with pytest.raises(TimeoutError):
            future.result()
        assert sim.broker.stats.lost == 1
        sim.restart(worker)
        future = sim.client.submit(b"a", b"")
        worker.receive(timeout_s=1).reply(b"y")
        assert future.result().data == (b"y",)


def test_a_broker_that_comes_back_has_forgotten_everything():
    with trio(latency_s=0.01) as sim:
        sim.client.request(b"echo", b"")
        queued = sim.client.submit(b"nobody", b"", timeout_s=1)
        sim.advance(0.1)
        sim.crash(sim.broker)
        waiting = sim.client.submit(b"echo", b"x", timeout_s=100)
        sim.advance(50)
        assert sim.client.stats.in_flight == 1
        sim.restart(sim.broker)
        assert waiting.result().data == (b"x",)
        assert isinstance(queued.exception(), TimeoutError)
        assert (sim.broker.stats.peers, sim.broker.stats.queued) == (2, 0)


def test_who_crashes_hears_nothing_more():
    with trio(latency_s=1) as sim:
        future = sim.client.submit(b"echo", b"")
        sim.advance(2.5)
        sim.crash(sim.client)
        with pytest.raises(ClosedError):
            future.result()
        with pytest.raises(ClosedError):
            sim.client.submit(b"echo", b"")
        sim.advance(5)
        assert sim.broker.stats.dropped == {"unroutable": 1}
        sim.restart(sim.client)
        assert sim.client.request(b"echo", b"z").data == (b"z",)
        peer = sim.peer()
        peer.send(PING)
        sim.crash(peer)
        sim.advance(5)
        assert peer.closed
        assert not peer.received


def test_a_future_that_is_cancelled_is_not_waited_for():
    with trio(latency_s=1) as sim:
        future = sim.client.submit(b"echo", b"")
        assert future.cancel()
        sim.advance(10)
        assert sim.client.stats.late == 1
        with pytest.raises(CancelledError):
            future.result()
        future = sim.client.submit(b"echo", b"")
        with pytest.raises(builtins.TimeoutError):
            future.result(timeout=3)
        assert future.result(timeout=1).data == (b"",)


def test_the_ends_of_the_roles_are_orderly():
    with testing.pair(dcp.Broker, dcp.Client) as sim:
        worker = sim.add(dcp.Worker, b"a")
        first, second = (sim.client.submit(service, b"") for service in (b"a", b"nobody"))
        request = worker.receive()
        sim.after(3, lambda: request.reply(b"done"))
        worker.close()
        assert first.result().data == (b"done",)
        assert (sim.now_s, worker.closed, worker.stats.replies) == (3, True, 1)
        sim.client.close(drain_s=2)
        with pytest.raises(ClosedError):
            second.result()
        sim.broker.close()
        assert (sim.now_s, sim.broker.closed, sim.broker.stats.queued) == (5, True, 1)


@pytest.mark.req("DCP-35")
def test_a_handler_may_ask_others():
    def front(request):
        return worker.request(b"back", request.data, timeout_s=5).data

    with testing.pair(dcp.Broker, dcp.Client, latency_s=0.1) as sim:
        worker = sim.add(dcp.Worker, b"front", front)
        back = sim.add(dcp.Worker, b"back", lambda request: [*request.data, b"y"], work_s=1)
        futures = [sim.client.submit(b"front", b"x") for _ in range(2)]
        assert [future.result().data for future in futures] == [(b"x", b"y")] * 2
        # One after the other: the place of the first stays taken while it waits.
        assert sim.now_s > 2
        assert (worker.stats.asked, worker.stats.failed) == (2, 0)
        sim.crash(back)
        assert sim.client.request(b"front", b"x").data == ()
        assert worker.stats.failed == 1


@pytest.mark.req("DCP-15", "DCP-42")
@pytest.mark.parametrize("work_s", [0, 0.005, 0.015])
def test_a_worker_that_leaves_loses_nothing(work_s):
    with testing.pair(dcp.Broker, dcp.Client, latency_s=0.01) as sim:
        leaving = sim.add(dcp.Worker, b"a", testing.echo, work_s=work_s)
        futures = [sim.client.submit(b"a", b"%d" % number, timeout_s=30) for number in range(9)]
        sim.until(futures[2].done)
        start_s = sim.now_s
        leaving.close()
        # There and back, and what came meanwhile.
        assert sim.now_s - start_s < 0.05
        assert not all(future.done() for future in futures)
        sim.add(dcp.Worker, b"a", testing.echo)
        assert [future.result().data for future in futures] == [(b"%d" % number,) for number in range(9)]
        assert sim.broker.stats.lost == 0
        sim.advance(10)
        assert [service.service for service in sim.broker.services()] == [b"a"]


@pytest.mark.req("DCP-15")
def test_a_worker_that_leaves_gives_back_what_nobody_has_begun():
    with testing.pair(dcp.Broker, dcp.Client, latency_s=0.01) as sim:
        leaving = sim.add(dcp.Worker, b"a", concurrency=2)
        futures = [sim.client.submit(b"a", b"%d" % number, timeout_s=30) for number in range(3)]
        request = leaving.receive()
        sim.after(1, lambda: request.reply(b"x"))
        leaving.close()
        sim.add(dcp.Worker, b"a", testing.echo)
        assert [future.result().data for future in futures] == [(b"x",), (b"1",), (b"2",)]
        assert leaving.stats.forwards == 1


@pytest.mark.parametrize("role", [dcp.AsyncBroker, dcp.AsyncClient, dcp.AsyncWorker, dcp.Message, "dcp.Broker"])
def test_what_is_not_simulated_is_refused_by_name(role):
    with pytest.raises(LocalProtocolError, match=r"is not simulated: take one of .*dcp\.Broker"):
        testing.pair(role)
    with pytest.raises(LocalProtocolError, match=getattr(role, "__name__", "dcp.Broker")):
        testing.Simulation().add(role)


@pytest.mark.parametrize("header", ["S", "A", "B", "2"])
def test_a_sender_and_a_receiver_of_cdtp_take_part(header):
    with testing.pair(cdtp.Sender, latency_s=0.25) as sim:
        receiver = sim.add(cdtp.Receiver)
        sender = sim.add(cdtp.Sender, "Det", header=header, batch_s=0)
        for number in range(3):
            sender.send(b"x", tags={"event": number})
        data = []
        while len(data) < 3:
            message = receiver.receive()
            data += [message.tags["event"]] if message.type in (None, "DAT") else []
        assert (data, sim.now_s) == ([0, 1, 2], 0.25)
        with pytest.raises(TimeoutError):
            receiver.receive(timeout_s=1)
        assert receiver.stats.received == 3 + (header != "S")
        sender.close()
        if header != "S":
            assert next(iter(receiver)).type == "EOR"
        with pytest.raises(ClosedError):
            sender.send(b"late")


def test_the_time_of_a_message_is_that_of_the_simulation():
    with testing.pair(cdtp.Sender, cdtp.Receiver, latency_s=1) as sim:
        sim.advance(41)
        sim.sender.send(b"x")
        assert (sim.receiver.receive().timestamp_ns, sim.now_s) == (41_000_000_000, 42)


@pytest.mark.req("CDTP-18")
def test_what_a_sender_cannot_send_yet_waits_for_a_receiver_that_comes_back(caplog):
    with testing.pair(cdtp.Sender, cdtp.Receiver, latency_s=0.01) as sim:
        sim.sender.send(b"1")
        assert sim.receiver.receive().payload == (b"1",)
        sim.crash(sim.receiver)
        sim.sender.send(b"2")
        with pytest.raises(TimeoutError) as caught:
            sim.sender.flush(timeout_s=5)
        assert caught.value.unsent == 1
        sim.restart(sim.receiver)
        sim.sender.flush()
        assert sim.receiver.receive().payload == (b"2",)
        assert sim.sender.stats.at_risk == 1
    until(lambda: "may be lost" in caplog.text)


@pytest.mark.req("CDTP-15", "CDTP-16")
def test_a_receiver_finds_the_senders_of_its_group():
    with testing.Simulation(latency_s=0.01, loss=0.2, seed=5) as sim:
        senders = [sim.add(cdtp.Sender, name, group="lab", header="A") for name in ("a", "b")]
        other = sim.add(cdtp.Sender, "c", group="other")
        receiver = sim.add(cdtp.Receiver, group="lab")
        for sender in (*senders, other):
            for _ in range(20):
                sender.send(sender.name.encode())
        sim.advance(300)
        assert set(receiver.stats.senders) == {"a", "b"}
        late = sim.add(cdtp.Sender, "d", group="lab")
        late.send(b"d")
        assert sim.until(lambda: "d" in receiver.stats.senders, timeout_s=200)


@pytest.mark.req("CDTP-20")
def test_receivers_with_endpoints_of_their_own_share_a_stream(caplog):
    with testing.Simulation() as sim:
        sender = sim.add(cdtp.Sender, "Det", bind="tcp://det:1")
        first, second = (sim.add(cdtp.Receiver, connect="tcp://det:1") for _ in range(2))
        sim.advance(0)
        for number in range(10):
            sender.send(b"%d" % number)
        sim.advance(0)
        assert [receiver.stats.received for receiver in (first, second)] == [5, 5]
        first.close()
        assert list(first) == []
    until(lambda: "share the stream" in caplog.text)


def test_a_bare_socket_may_listen_to_a_role():
    with testing.Simulation() as sim:
        router = sim.peer(kind="ROUTER", bind=["tcp://broker:1"])
        client = sim.add(dcp.Client)
        future = client.submit(b"echo", b"hello")
        frames = router.receive()
        router.send([b"", b"DGBX\x01", b"\x05", *frames[4:]], to=b"client-1")
        with pytest.raises(RuntimeError):
            sim.until(future.done)
        pull = sim.peer(kind="PULL", bind=["tcp://receiver:1"])
        sim.add(cdtp.Sender, "Det").send(b"hello")
        assert pull.receive()[1] == b"hello"


def test_an_option_of_sockets_is_refused_by_name_for_senders_too(tmp_path):
    with pytest.raises(LocalProtocolError, match="leave out capture="):
        testing.Simulation().add(cdtp.Sender, "a", capture=tmp_path)
    with pytest.raises(LocalProtocolError, match=r"cdtp\.Sender"):
        testing.Simulation().add(cdtp.Recorder, tmp_path)
    with pytest.raises(LocalProtocolError, match="no sender"):
        testing.pair(cdtp.Receiver).sender  # noqa: B018 - it raises


def test_a_simulated_role_is_the_live_one_and_closes_at_the_end_of_a_with_block():
    with testing.pair(dcp.Broker, latency_s=0.5) as sim:
        with sim.add(dcp.Client) as client, sim.add(dcp.Worker, b"echo", testing.echo) as worker:
            assert isinstance(client, dcp.Client)
            assert isinstance(worker, dcp.Worker)
            assert client.request(b"echo", b"x").data == (b"x",)
            assert client.transport == "simulation"
        assert (client.closed, worker.closed) == (True, True)
        with pytest.raises(TimeoutError, match="still running after 3 s"):
            sim.broker.wait(timeout_s=3)
        before = sim.now_s
        with pytest.raises(TimeoutError):
            sim.broker.wait(timeout_s=2)
        assert sim.now_s == before + 2


def test_a_simulated_worker_gets_its_handler_where_it_is_added():
    with trio() as sim, pytest.raises(LocalProtocolError, match=r"add\(dcp\.Worker, service, handler\)"):
        sim.worker.serve(testing.echo)


def test_a_request_of_a_former_life_cannot_be_answered():
    with testing.pair(dcp.Broker, dcp.Client) as sim:
        worker = sim.add(dcp.Worker, b"a")
        first = sim.client.submit(b"a", b"1")
        request = worker.receive()
        sim.restart(worker)
        second = sim.client.submit(b"a", b"2")
        other = worker.receive()
        with pytest.raises(ClosedError):
            request.reply(b"late")
        other.reply(b"in time")
        assert second.result().data == (b"in time",)
        assert not first.done()

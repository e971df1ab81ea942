"""A middleware's process that is killed, stopped and started again under connectors, and connectors that are killed."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections import deque

import pytest
import zmq

from peers.mc0 import message, noop, ok, put, sub
from peers.waiting import until
from trunkline import mc0
from trunkline.errors import TimeoutError

PATIENCE_S = 20

# Each starts processes of Python.
pytestmark = pytest.mark.timeout(120)


class Process:
    """A `trunkline mc0` of its own, which a signal reaches at any moment."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "trunkline", "mc0", *arguments, "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def is_ready(self):
        assert '"ready"' in self.process.stdout.readline()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        # It is stopped once the system says so, not once the signal is sent.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)


@pytest.fixture
def run():
    """Starts processes; they are killed with the test."""
    running = []

    def run(*arguments):
        running.append(Process(*arguments))
        running[-1].is_ready()
        return running[-1]

    yield run
    for process in running:
        process.kill()


@pytest.fixture
def endpoint(free_port):
    return f"tcp://127.0.0.1:{free_port}"


@pytest.fixture
def free_port(open_socket):
    probe = open_socket(zmq.ROUTER, bind="tcp://127.0.0.1:*")
    port = probe.last_endpoint.decode().rpartition(":")[2]
    probe.close(linger=0)
    return port


class Flow:
    """Submits all the while, so many unconfirmed at a time."""

    def __init__(self, connector):
        self.futures = []
        self._over = threading.Event()
        self._room = threading.Semaphore(20)
        self._connector = connector
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def confirmed(self):
        return sum(future.done() for future in self.futures)

    def _run(self):
        for number in itertools.count():
            while not self._room.acquire(timeout=0.05):
                if self._over.is_set():
                    return
            if self._over.is_set():
                return
            future = self._connector.submit("t", b"%d" % number)
            future.add_done_callback(lambda _: self._room.release())
            self.futures.append(future)

    def goes_on(self):
        """Waits for a hundred more to be confirmed."""
        before = self.confirmed
        until(lambda: self.confirmed > before + 100)

    def end(self):
        self._over.set()
        self._thread.join(PATIENCE_S)
        for future in self.futures:
            future.result(PATIENCE_S)


def read(connector, over, seen):
    """Receives all messages until `over`."""
    while not over.is_set():
        with contextlib.suppress(TimeoutError):
            seen.append(int(connector.receive(timeout_s=0.05).body[0]))


@pytest.mark.req("MC0-26")
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_what_is_submitted_is_confirmed_whatever_becomes_of_the_middleware(how, run, endpoint):
    bus = run("middleware", "--bind", endpoint)
    seen, over = deque(), threading.Event()
    with (
        mc0.Connector(connect=endpoint, ttl_ms=500) as publisher,
        mc0.Connector(connect=endpoint, ttl_ms=500) as subscriber,
    ):
        subscriber.subscribe("t", timeout_s=PATIENCE_S)
        reading = threading.Thread(target=read, args=(subscriber, over, seen))
        reading.start()
        flow = Flow(publisher)
        try:
            for turn in range(1, 4):
                flow.goes_on()
                if how == "killed":
                    bus.kill()
                    bus = run("middleware", "--bind", endpoint)
                else:
                    bus.stop()
                    # Both find it silent, and dial anew; it takes them in once it goes on.
                    until(lambda turn=turn: min(one.stats.reconnects for one in (subscriber, publisher)) >= turn)
                    bus.resume()
                before = len(seen)
                flow.goes_on()
                until(lambda before=before: len(seen) > before + 100)
        finally:
            flow.end()
            over.set()
            reading.join(PATIENCE_S)
        assert publisher.stats.confirmed == publisher.stats.put == len(flow.futures)


@pytest.mark.req("MC0-30", "MC0-33")
def test_a_middleware_that_was_stopped_loses_and_repeats_nothing(run, endpoint, open_socket):
    bus = run("middleware", "--bind", endpoint)
    subscriber, publisher = (open_socket(zmq.DEALER, connect=endpoint, rcvhwm=0, sndhwm=0) for _ in range(2))
    subscriber.send_multipart(sub(b"t", id_=b"s"))
    assert subscriber.recv_multipart() == ok(b"s")
    numbers = itertools.count()
    for _ in range(5):
        bus.stop()
        for number in itertools.islice(numbers, 500):
            publisher.send_multipart(put(b"t", b"%d" % number))
        bus.resume()
        for number in itertools.islice(numbers, 500):
            publisher.send_multipart(put(b"t", b"%d" % number))
    publisher.send_multipart(noop(b"all"))
    assert publisher.recv_multipart() == ok(b"all")
    for number in range(next(numbers)):
        assert subscriber.recv_multipart() == message(b"t", b"%d" % number)
    assert not subscriber.poll(100)


@pytest.mark.req("MC0-33")
def test_subscribers_that_are_stopped_or_killed_cost_the_others_nothing(run, open_socket):
    with mc0.Middleware(bind="tcp://127.0.0.1:*", client_queue_messages=100) as bus:
        dead, frozen = (run("subscribe", "t", "--connect", bus.endpoints[0], "--ttl", "0") for _ in range(2))
        subscriber, publisher = (open_socket(zmq.DEALER, connect=bus.endpoints[0], rcvhwm=0) for _ in range(2))
        subscriber.send_multipart(sub(b"t", id_=b"s"))
        assert subscriber.recv_multipart() == ok(b"s")
        frozen.stop()
        body = bytes(16 << 10)
        for number in range(2000):
            publisher.send_multipart(put(b"t", b"%d" % number, body, id_=b"%d" % number))
            assert publisher.recv_multipart() == ok(b"%d" % number)
            assert subscriber.recv_multipart() == message(b"t", b"%d" % number, body)
            if number == 1000:
                dead.kill()
        until(lambda: bus.stats.clients == 2)
        frozen.resume()
        # Once it reads again it has what is put, as all others.
        publisher.send_multipart(put(b"t", b"last", id_=b"last"))
        assert publisher.recv_multipart() == ok(b"last")
        assert bus.stats.clients == 2


@pytest.mark.req("MC0-12")
@pytest.mark.needs("bounds")
def test_a_publisher_that_never_reads_its_answers_costs_the_others_nothing(open_socket):
    with mc0.Middleware(bind="tcp://127.0.0.1:*", client_queue_messages=100) as bus:
        deaf = open_socket(zmq.DEALER, connect=bus.endpoints[0], rcvhwm=1, rcvbuf=4096)
        peer = open_socket(zmq.DEALER, connect=bus.endpoints[0])
        id_ = bytes(16 << 10)
        while not bus.stats.dropped.get("peer_full"):
            for _ in range(100):
                deaf.send_multipart(put(b"t", id_=id_))
            peer.send_multipart(noop(b"1"))
            assert peer.recv_multipart() == ok(b"1")
        assert bus.stats.queued < 300

"""`trunkline dcp worker`, at a raw ROUTER that plays the broker."""

from __future__ import annotations

import json
import signal
import time

import pytest
import zmq

from peers.commands import Peer
from peers.processes import is_gone
from peers.waiting import until

HEAD = [b"", b"DGBX\x01"]
LEAVING = b"trunkline.leaving"


class Broker(Peer):
    """The broker's side of one worker."""

    def next(self, *types):
        while True:
            self.peer, *frames = self.receive()
            if frames[2] in types:
                return frames
            if frames[2] == b"\x02":
                self.socket.send_multipart([self.peer, *HEAD, b"\x03"])

    def let_go(self):
        """Confirms that the worker leaves."""
        frames = self.next(b"\x01")
        assert frames == [*HEAD, b"\x01", LEAVING]
        self.socket.send_multipart([self.peer, *frames])

    def ask(self, *data, client=b"C"):
        self.socket.send_multipart([self.peer, *HEAD, b"\x04", b"work", client, b"", b"meta", b"", *data])

    def reply(self):
        """Who is replied to, and what."""
        frames = self.next(b"\x05")
        assert frames[4:7] == [b"", b"meta", b""]
        return frames[3], frames[7:]


@pytest.fixture
def broker(context):
    peer = Broker(context, zmq.ROUTER)
    peer.socket.rcvtimeo = 20_000
    yield peer
    peer.socket.close(linger=0)


@pytest.fixture
def work(start, broker):
    """Starts a worker, which has registered."""

    # By default it sends nothing because of the time alone, and tolerates a slow broker.
    def work(*arguments, heartbeat_interval="60"):
        beating = ("--heartbeat-interval", heartbeat_interval)
        command = start("dcp", "worker", "work", "--connect", broker.endpoint, "--json", *beating, *arguments)
        ready = command.ready()
        assert (ready["role"], ready["endpoints"]) == ("dcp.worker", [broker.endpoint])
        assert broker.next(b"\x01")[3] == b"work"
        return command

    return work


def test_echoes(work, broker):
    command = work("--echo")
    broker.ask(b"a", b"", b"b")
    assert broker.reply() == (b"C", [b"a", b"", b"b"])
    command.signal(signal.SIGTERM)
    broker.let_go()
    stopped = command.event("stopped")
    assert stopped["reason"] == "signal"
    assert stopped["stats"].pop("bytes") > len(b"ab")
    assert sum(stopped["stats"].pop("latency")["counts"]) == stopped["stats"]["replies"]
    assert stopped["stats"] == {
        "received": 2,
        "sent": 3,
        "dropped": {},
        "requests": 1,
        "replies": 1,
        "forwards": 0,
        "failed": 0,
        "held": 0,
        "asked": 0,
        "late": 0,
        "capture_lost": 0,
        "connection_failures": {},
        "transport": "zmtp",
    }
    assert command.quietly() == ("", "")


def test_runs_a_program_for_each_request(work, broker):
    command = work("--exec", 'sh -c \'read word; echo "<$word>"; test "$word" != bad\'')
    broker.ask(b"one", b" two\n")
    assert broker.reply() == (b"C", [b"<one two>\n"])
    broker.ask(b"bad\n")
    assert broker.reply() == (b"C", [])
    assert "non-zero exit status 1" in command.logged("handler failed")
    command.signal(signal.SIGTERM)
    broker.let_go()
    assert command.event("stopped")["stats"]["failed"] == 1


@pytest.fixture
def _ignoring_children():
    """What is started now ignores SIGCHLD, as some supervisors have it."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize("end", ["exit 3", "kill -9 $$"])
@pytest.mark.usefixtures("_ignoring_children")
def test_a_program_that_fails_has_failed_where_sigchld_was_ignored(work, broker, end):
    command = work("--exec", f"sh -c 'cat; {end}'")
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    broker.ask(b"half an answer")
    assert broker.reply() == (b"C", [])
    command.signal(signal.SIGTERM)
    broker.let_go()
    assert command.event("stopped")["stats"]["failed"] == 1


def test_calls_a_function(work, broker, tmp_path):
    (tmp_path / "handlers.py").write_text(
        "class Handlers:\n"
        "    @staticmethod\n"
        "    def shout(request):\n"
        "        return [part.upper() for part in request.data] if request.data else 1 / 0\n"
    )
    command = work("--call", "handlers:Handlers.shout", "--concurrency", "3")
    broker.ask(b"a", b"b", client=b"A")
    assert broker.reply() == (b"A", [b"A", b"B"])
    broker.ask()
    assert broker.reply() == (b"C", [])
    command.signal(signal.SIGINT)
    broker.let_go()
    command.event("stopped")
    _, err = command.quietly()
    assert "ZeroDivisionError" in err
    assert len(err.splitlines()) == 1


def test_a_traceback_is_there_for_those_who_ask(start, broker, tmp_path):
    (tmp_path / "handlers.py").write_text("def divide(request):\n    return 1 / 0\n")
    command = start(
        *("dcp", "worker", "work", "--connect", broker.endpoint, "--call", "handlers:divide"),
        env={"TRUNKLINE_DEBUG": "1"},
    )
    broker.next(b"\x01")
    broker.ask()
    broker.reply()
    command.logged("Traceback")
    command.signal(signal.SIGTERM)


def test_a_signal_lets_it_finish(work, broker, tmp_path):
    command = work("--exec", "sh -c 'touch begun; while [ ! -e done ]; do sleep 0.01; done; echo finished'")
    broker.ask(b"x")
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    command.signal(signal.SIGTERM)
    broker.let_go()
    (tmp_path / "done").touch()
    assert broker.reply() == (b"C", [b"finished\n"])
    stopped = command.event("stopped")
    assert (stopped["reason"], stopped["stats"]["held"]) == ("signal", 0)
    command.end()


STARTS_ANOTHER = "sh -c 'sleep 1000 & echo $! > other; echo $$ > begun; wait'"


@pytest.mark.parametrize("twice", [False, True], ids=["drained", "left-at-once"])
def test_no_program_outlives_its_worker(work, broker, tmp_path, twice):
    command = work("--exec", STARTS_ANOTHER, "--drain-seconds", "50" if twice else "0.2")
    broker.ask(b"x")
    until(lambda: (tmp_path / "begun").exists() and (tmp_path / "begun").read_text())
    command.signal(signal.SIGINT)
    while twice and command.process.poll() is None:
        command.signal(signal.SIGINT)
        time.sleep(0.05)
    _, err = command.quietly(130 if twice else 0)
    for program in ("begun", "other"):
        pid = (tmp_path / program).read_text().strip()
        until(lambda pid=pid: is_gone(int(pid)))
    if not twice:
        assert err == "trunkline: ended programs that had not finished within 0.2 s: 1\n"


def test_what_does_not_finish_is_given_up(work, broker, tmp_path):
    command = work("--exec", "sh -c 'touch begun; exec sleep 1000'", "--drain-seconds", "0.2", "--stats-interval", "1")
    broker.ask(b"x")
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    began = time.monotonic()
    command.signal(signal.SIGTERM)
    out, _ = command.end()
    assert json.loads(out.splitlines()[-1])["stats"]["held"] == 1
    assert time.monotonic() - began < 10


def test_heartbeats_at_the_interval(work, broker):
    command = work("--echo", "--liveness", "200", heartbeat_interval="0.1")
    start = time.monotonic()
    for _ in range(5):
        _, *frames = broker.receive()
        assert frames == [*HEAD, b"\x02"]
    # At the interval there is without one it would be 11.
    assert time.monotonic() - start < 10
    command.signal(signal.SIGTERM)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--echo", "--exec", "cat"],
        ["--exec", "no-such-program-anywhere"],
        ["--exec", "'"],
        ["--exec", ""],
        ["--call", "json"],
        ["--call", "no_such_module:function"],
        ["--call", "json:nothing"],
        ["--call", "json:__name__"],
    ],
    ids=" ".join,
)
def test_wrong_handlers_are_wrong_usage(run, arguments):
    out, err = run("dcp", "worker", "work", "--connect", "tcp://127.0.0.1:9", *arguments, returncode=2)
    assert out == ""
    assert "--help" in err

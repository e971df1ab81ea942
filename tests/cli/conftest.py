"""Commands as processes, and raw peers on the other side."""

from __future__ import annotations

import functools
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zmq

from peers import json_lines
from peers.commands import RECORDED, Peer, wrong
from peers.forked import started
from peers.jvm import Jvm
from peers.recorded import write


class Command:
    """A `trunkline` that runs."""

    def __init__(self, *arguments: str | Path, cwd: Path, env: dict[str, str] | None = None) -> None:
        words = list(map(str, arguments))
        self.process = started(words, cwd=cwd, **(env or {}))
        self._command = json_lines.command_of(words) if "--json" in words else None

    def event(self, name: str | None = None) -> dict[str, Any]:
        """The next line of JSON, which is to be of this event."""
        line = self.process.stdout.readline()
        assert line, f"no {name} event: {self.process.stderr.read()}"
        self.check(line)
        event = json.loads(line)
        assert name in (None, event["event"]), line
        return event

    def ready(self) -> dict[str, Any]:
        return self.event("ready")

    def logged(self, text: str) -> str:
        """The next line on stderr that contains this text."""
        for line in self.process.stderr:
            if text in line:
                return line
        pytest.fail(f"nothing about {text!r} on stderr")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, returncode: int = 0) -> tuple[str, str]:
        """Waits for the end; what is left of both outputs."""
        out, err = self.process.communicate()
        assert self.process.returncode == returncode, err
        assert "Traceback" not in err, err
        self.check(out)
        return out, err

    def check(self, lines: str) -> None:
        """Holds lines of JSON to the schema of their command."""
        if self._command is not None:
            json_lines.check(self._command, lines)

    def quietly(self, returncode: int = 0) -> tuple[str, str]:
        """As `end`; on standard error only what is wrong."""
        out, err = self.end(returncode)
        return out, wrong(err)

    def close(self) -> None:
        # With whatever it has started, which may hold the outputs open.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=20)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Starts a command in an empty folder."""
    running = []

    def start(*arguments: str | Path, env: dict[str, str] | None = None) -> Command:
        running.append(Command(*arguments, cwd=tmp_path, env=env))
        return running[-1]

    yield start
    for command in running:
        command.close()


@pytest.fixture
def run(start: Callable[..., Command]) -> Callable[..., tuple[str, str]]:
    """Runs a command to its end, fed with messages from a raw peer; gives both outputs."""

    def run(
        *arguments: str | Path,
        returncode: int = 0,
        stdin: str = "",
        env: dict[str, str] | None = None,
        feed: tuple[Peer, list[list[bytes]]] | None = None,
    ) -> tuple[str, str]:
        command = start(*arguments, env=env)
        if feed is not None:
            peer, messages = feed
            # A command that has read enough ends, and the rest is not sent.
            with suppress(zmq.Again):
                peer.send(*messages)
        out, err = command.process.communicate(stdin)
        assert command.process.returncode == returncode, err
        assert "Traceback" not in err, err
        command.check(out)
        return out, err

    return run


@pytest.fixture(scope="session")
def jvm() -> Iterator[Jvm]:
    """A JVM for commands that are not about their own."""
    jvm = Jvm()
    yield jvm
    jvm.close()


@pytest.fixture
def run_in_jvm(run: Callable[..., tuple[str, str]], jvm: Jvm) -> Callable[..., tuple[str, str]]:
    """As `run`; a command of Spark starts no JVM."""
    return functools.partial(run, env=jvm.environment)


@pytest.fixture
def recorded(run: Callable[..., tuple[str, str]], tmp_path: Path) -> Path:
    """A capture of four messages, a millisecond apart, one of them none."""
    write(tmp_path / "recorded.jsonl", RECORDED, step_ns=1_000_000, endpoint="tcp://127.0.0.1:1")
    run("capture", "import", "recorded.jsonl", "--capture", "capture")
    return tmp_path / "capture"


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def dial(context: zmq.Context[zmq.Socket[bytes]]) -> Iterator[Callable[[int, str], zmq.Socket[bytes]]]:
    """Opens a raw socket that dials."""
    sockets = []

    def dial(kind: int, endpoint: str) -> zmq.Socket[bytes]:
        sockets.append(context.socket(kind))
        sockets[-1].connect(endpoint)
        return sockets[-1]

    yield dial
    for socket in sockets:
        socket.close(linger=0)


@pytest.fixture
def push(context: zmq.Context[zmq.Socket[bytes]]) -> Iterator[Peer]:
    """A sender that is none of ours."""
    peer = Peer(context, zmq.PUSH)
    yield peer
    peer.socket.close(linger=0)


@pytest.fixture
def pull(context: zmq.Context[zmq.Socket[bytes]]) -> Iterator[Peer]:
    """A receiver that is none of ours."""
    peer = Peer(context, zmq.PULL)
    yield peer
    peer.socket.close(linger=0)

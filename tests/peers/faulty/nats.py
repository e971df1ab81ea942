"""As little of a NATS server as a target and its sources need, in this process."""

import contextlib
import json
import socket
import threading

INFO = {"server_id": "small", "version": "2.10.0", "max_payload": 1 << 20, "headers": True, "proto": 1}


class Server:
    """A NATS server with one responder of its own, a function of the subject, the reply subject and the body."""

    def __init__(self, responds):
        self._responds = responds
        self._lock = threading.RLock()
        self._subscriptions = []
        self._connections = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError, ValueError), connection, connection.makefile("rb") as lines:
            connection.sendall(b"INFO %s\r\n" % json.dumps(INFO).encode())
            while line := lines.readline():
                word, *rest = line.split()
                with self._lock:
                    if word == b"PING":
                        connection.sendall(b"PONG\r\n")
                    elif word == b"SUB":
                        self._subscriptions.append((rest[0].decode(), rest[-1].decode(), connection))
                    elif word == b"PUB":
                        body = lines.read(int(rest[-1]) + 2)[:-2]
                        reply = rest[1].decode() if len(rest) > 2 else ""
                        if not self.publish(rest[0].decode(), body, reply) and reply:
                            self._send(reply, b"NATS/1.0 503\r\n\r\n", "", has_header=True)

    def publish(self, subject, body, reply=""):
        """Whether there is anybody who takes a message."""
        return self._send(subject, body, reply) or self._responds(subject, reply, body)

    def _send(self, subject, body, reply, *, has_header=False):
        found = False
        for pattern, number, connection in [*self._subscriptions]:
            if _matches(pattern, subject):
                found = True
                names = " ".join(filter(None, (subject, number, reply)))
                sizes = f"{len(body)} {len(body)}" if has_header else str(len(body))
                kind = "HMSG" if has_header else "MSG"
                with contextlib.suppress(OSError):
                    connection.sendall(f"{kind} {names} {sizes}\r\n".encode() + body + b"\r\n")
        return found

    def close(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _matches(pattern, subject):
    wanted, got = pattern.split("."), subject.split(".")
    return len(wanted) == len(got) and all(one in ("*", other) for one, other in zip(wanted, got, strict=True))

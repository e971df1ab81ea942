"""A server that speaks S3, moto's, in a process of its own."""

from __future__ import annotations

import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PYTHON = Path(__file__).parents[2] / ".peers" / "s3" / "bin" / "python"

# Serves until its standard input ends, at a port that may be given.
_SERVER = """
import sys
from moto.server import ThreadedMotoServer
from werkzeug.serving import WSGIRequestHandler
log = open(sys.argv[2], "a", buffering=1)
WSGIRequestHandler.log_request = lambda self, *_: log.write(f"{self.command} {self.path}\\n")
server = ThreadedMotoServer(ip_address="127.0.0.1", port=int(sys.argv[1]), verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class S3:
    """A server of S3 with one bucket, ``lab``; what is in it is gone with the server."""

    def __init__(self, port: int = 0) -> None:
        assert PYTHON.exists(), "the released peers are missing: run `make peers`"
        # The requests it has answered.
        self._log = tempfile.NamedTemporaryFile("r", prefix="s3-")  # noqa: SIM115 - closed with the server
        self._process = subprocess.Popen(
            [PYTHON, "-c", _SERVER, str(port), self._log.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self._ask("lab", "PUT")

    def url(self, path: str, *, bucket: str = "lab") -> str:
        """The URL of a folder, with all that it takes to reach it."""
        return f"s3://key:secret@{bucket}/{path}?scheme=http&endpoint_override=127.0.0.1:{self.port}&region=us-east-1"

    def names(self, prefix: str = "") -> list[str]:
        """The names of all objects."""
        found = self._ask(f"lab?list-type=2&max-keys=100000&prefix={prefix}").split("<Key>")[1:]
        return [part.partition("</Key>")[0] for part in found]

    def get(self, name: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/lab/{name}") as answer:
            content: bytes = answer.read()
        return content

    def put(self, name: str, content: bytes) -> None:
        self._ask(f"lab/{name}", "PUT", content)

    def delete(self, name: str) -> None:
        self._ask(f"lab/{name}", "DELETE")

    @contextmanager
    def counting(self) -> Iterator[list[str]]:
        """The requests that are answered meanwhile, in the end: each its method and its path."""
        requests: list[str] = []
        self._log.seek(0, 2)
        yield requests
        requests += self._log.read().splitlines()

    @contextmanager
    def knowing_nobody(self) -> Iterator[None]:
        """Refuses every key meanwhile."""
        self._ask("moto-api/reset-auth", "POST", b"0")
        try:
            yield
        finally:
            self._ask("moto-api/reset-auth", "POST", b"inf")

    def _ask(self, path: str, method: str = "GET", content: bytes | None = None) -> str:
        # Of another type the server takes the content for a form.
        headers = {"Content-Type": "application/octet-stream"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}", content, headers, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            text: str = answer.read().decode()
        return text

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

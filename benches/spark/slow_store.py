"""A store that speaks as much of S3 as reading takes, and needs 30 ms for each request."""

from __future__ import annotations

import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

DELAY_S = 0.03
PAGE = 1000


class Store(ThreadingHTTPServer):
    """Serves the files of a directory as the bucket ``lab``.

    Attributes:
        requests: How many it has answered.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sizes: dict[str, dict[str, int]] = {}
        self.requests = 0
        super().__init__(("127.0.0.1", 0), _Handler)

    def url(self, path: str) -> str:
        """The URL of a folder, with all that it takes to reach it."""
        port = self.server_address[1]
        return f"s3://key:secret@lab/{path}?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"

    def listed(self, query: dict[str, list[str]]) -> str:
        """A page of the names in a folder and what is below it."""
        prefix, token = query.get("prefix", [""])[0], query.get("continuation-token", [""])[0]
        most = min(PAGE, int(query.get("max-keys", [str(PAGE)])[0]))
        sizes = self._in_folder(prefix.rpartition("/")[0])
        left = [name for name in sizes if name.startswith(prefix) and name > token]
        page, is_cut = left[:most], len(left) > most
        objects = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{sizes[name]}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            if not name.endswith("/")
            else f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            for name in page
        )
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if is_cut else ""
        return (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>lab</Name>'
            f"<KeyCount>{len(page)}</KeyCount><IsTruncated>{str(is_cut).lower()}</IsTruncated>{more}{objects}</ListBucketResult>"
        )

    def _in_folder(self, folder: str) -> dict[str, int]:
        """The names there, in order, with their sizes: it is read once."""
        if folder not in self._sizes:
            entries = sorted((self._directory / folder).iterdir()) if (self._directory / folder).is_dir() else []
            self._sizes[folder] = {
                f"{entry.relative_to(self._directory)}{'/' * entry.is_dir()}": entry.stat().st_size for entry in entries
            }
        return self._sizes[folder]

    def object(self, name: str) -> bytes | None:
        """The bytes of an object."""
        path = self._directory / name
        return path.read_bytes() if path.is_file() else None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Store

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        time.sleep(DELAY_S)
        self.server.requests += 1
        name = urllib.parse.unquote(path).removeprefix("/lab").strip("/")
        if not name:
            self._answer(200, self.server.listed(urllib.parse.parse_qs(query)).encode())
            return
        found = self.server.object(name)
        if found is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        elif asked := self.headers.get("Range"):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            part = found[int(first) : int(last) + 1]
            self._answer(206, part, {"Content-Range": f"bytes {first}-{int(first) + len(part) - 1}/{len(found)}"})
        else:
            self._answer(200, found)

    do_HEAD = do_GET  # noqa: N815 - as the base class calls it

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@contextmanager
def serving(directory: Path) -> Iterator[Store]:
    """A store of what is in a directory, until the end."""
    with Store(directory) as store:
        threading.Thread(target=store.serve_forever, daemon=True).start()
        try:
            yield store
        finally:
            store.shutdown()

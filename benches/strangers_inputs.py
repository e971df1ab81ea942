"""Attacks by what is read: captures that unpack to more than there is, contents and names that take more than they weigh, and a
server of NATS that is none. Each has bounds of memory and time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats.aio.client
import pyarrow as pa
import pyarrow.parquet as pq
import zmq

from benches.processes import PATIENCE_S, RoleProcess
from benches.strangers_targets import ANY, Seen, dialled, running, started
from trunkline import cdtp

TERABYTES = 10 << 40
MIB = 1 << 20

_OPEN = {"protocol": {"name": "MTL", "version": 1}, "virtual-host": "/"}


@contextlib.contextmanager
def recorded() -> Iterator[Path]:
    """A capture of one message."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "capture")
        with (
            cdtp.Sender("Det", bind=ANY) as sender,
            cdtp.Recorder(path, connect=sender.endpoints) as recorder,
        ):
            sender.send(b"payload")
            recorder.wait(count=1, timeout_s=PATIENCE_S)
        yield path


def crafted(path: Path, rows: int, value: int) -> None:
    """Puts a segment there of many rows that share one long value in five columns; it takes some 300 kB."""
    segment = path / "0000000000.parquet"
    first, said, columns = pq.read_table(segment).slice(0, 1), pq.read_metadata(segment).metadata, {}
    for name in first.column_names:
        values = first[name].combine_chunks()
        if name in ("topic", "reply_to", "peer", "header", "endpoint"):
            long = b"z" * value if pa.types.is_binary(values.type) else "z" * value
            indices = pa.array([0] * rows, pa.int32())
            columns[name] = pa.DictionaryArray.from_arrays(indices, pa.array([long], values.type))
        else:
            columns[name] = pa.concat_arrays([values] * rows)
    columns["seq"] = pa.array(range(rows), pa.int64())
    table = pa.table(columns).replace_schema_metadata({key: said[key] for key in said if key.startswith(b"trunkline.")})
    options = {"store_schema": False, "compression": "zstd", "dictionary_pagesize_limit": 1 << 30}
    with pq.ParquetWriter(path / ".crafted", table.schema, **options) as writer:
        writer.write_table(table)
    (path / ".crafted").rename(segment)


def bounded(seen: Seen, seconds: float, rss_mib: float, *arguments: str) -> int:
    """Runs a command for so long, then interrupts it; it may take so much memory, and a second to end. Gives its status."""
    name = " ".join(arguments[:2])
    process = subprocess.Popen(
        [sys.executable, "-m", "trunkline", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    began, peak = time.monotonic(), 0.0
    while process.poll() is None and time.monotonic() - began < seconds:
        peak = max(peak, _rss_mib(process.pid))
        time.sleep(0.05)
    if process.poll() is None:
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            seen.wrong.append(f"{name} did not end")
        seen.worst_ms = max(seen.worst_ms, (time.monotonic() - sent) * 1000)
        if seen.worst_ms > 2000:
            seen.wrong.append(f"{name} ended {seen.worst_ms:.0f} ms after it was interrupted")
    seen.rss_mib = max(seen.rss_mib, peak)
    if peak > rss_mib:
        seen.wrong.append(f"{name}: {peak:.0f} MiB, not {rss_mib:.0f}")
    if process.returncode not in (0, 1, 130):
        seen.wrong.append(f"{name} ended with {process.returncode}")
    return process.wait()


def _rss_mib(process: int) -> float:
    """The memory of a process and of its children, which some commands do their work in."""
    total = 0.0
    with contextlib.suppress(OSError, IndexError):
        total += int(Path(f"/proc/{process}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024
        for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
            total += _rss_mib(int(child))
    return total


def long_values(seen: Seen, end: float) -> None:
    """A segment of 300 kB that stands for 95 GB, before every command that reads captures."""
    with recorded() as path, tempfile.TemporaryDirectory() as out:
        crafted(path, 100_000, 190_000)
        commands: list[tuple[str, ...]] = [
            *(("capture", name, str(path)) for name in ("info", "runs", "verify", "cat")),
            ("capture", "cat", str(path), "--where", "type = 'DAT'"),
            ("capture", "decode", str(path), f"{out}/decoded.parquet"),
            ("capture", "export", str(path), f"{out}/exported.jsonl"),
        ]
        while time.monotonic() < end:
            for command in commands:
                bounded(seen, 4, 1200, *command)
                seen.add(commands=1)
        bounded(seen, 10, 400, "capture", "cat", str(path), "--max-message-bytes", "100000")


def endless_files(seen: Seen, end: float) -> None:
    """A segment of ten terabytes that takes no room on the disk, and a pipe in place of one."""
    with recorded() as path, tempfile.TemporaryDirectory() as out:
        segment = path / "0000000000.parquet"
        os.truncate(segment, TERABYTES)
        while time.monotonic() < end:
            for name in ("verify", "recover", "info", "runs"):
                if bounded(seen, 10, 400, "capture", name, str(path)) == 0 and name != "runs":
                    seen.wrong.append(f"capture {name} found nothing wrong")
                seen.add(commands=1)
        segment.unlink()
        os.mkfifo(segment)
        for command in (("verify", str(path)), ("cat", str(path)), ("report", str(path), f"{out}/report.html")):
            if bounded(seen, 10, 400, "capture", *command) == 0:
                seen.wrong.append(f"capture {command[0]} read a pipe")


def heavy_contents(seen: Seen, end: float) -> None:
    """Contents with field tables of eight million empty tables, between good ones, to a reader of a server."""
    items = b"F\0\0\0\0" * 8_000_000
    table = b"\x01aA" + struct.pack(">I", len(items)) + items
    head = struct.pack(">B", 4) + b"jobs"
    with running(seen, "mtl", "server", "--bind", ANY, "--anonymous", "--resource", "jobs") as server:
        control = dialled(server, zmq.REQ)

        def ask(name: str, body: dict[str, Any]) -> Any:
            control.send_multipart([name.encode(), json.dumps(body).encode()])
            return json.loads(control.recv_multipart()[1])

        ask("Connection.Open", _OPEN)
        ask("Connection.Profile", {"profile": "queue"})
        lease = ask("Connection.Writer", {"resources": ["jobs"], "confirm": "none"})["lease"].encode()
        writer = dialled(server, zmq.DEALER)
        writer.send_multipart([struct.pack(">BQB", 1, 1, len(lease)) + lease, b""])
        writer.recv_multipart()
        sequence = 0
        while time.monotonic() < end or sequence == 0:
            for properties in (struct.pack(">I", len(table)) + table, b"\0\0\0\0"):
                sequence += 1
                writer.send_multipart([struct.pack(">BQ", 5, sequence) + head + properties, b"good"])
            seen.add(contents=2)
            reading = ("mtl", "receive", "jobs", "--connect", server.endpoint, "--count", "1")
            if bounded(seen, 20, 300, *reading) != 0:
                seen.wrong.append("a good content did not arrive")
        if server.rss_mib > 500:
            seen.wrong.append(f"a server has {server.rss_mib:.0f} MiB, not 500")


@contextlib.contextmanager
def nats_server(folder: str) -> Iterator[str]:
    """Runs a nats-server."""
    run = [sys.executable, "-m", "trunkline", "nats", "--port", "0", "--store", f"{folder}/nats", "--json"]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["endpoints"][0]
        finally:
            server.terminate()


def names_of_nothing(seen: Seen, end: float) -> None:
    """Requests for endpoints with names of 0.8 MB that a target does not know."""
    with tempfile.TemporaryDirectory() as folder:
        with nats_server(folder) as url:
            target = started("cdt", "target", "cdp", "--store", f"{folder}/store.db", "--nats", url)
            try:
                asyncio.run(_asking(seen, end, url, target))
                seen.rss_mib = max(seen.rss_mib, target.rss_mib)
                if target.rss_mib > 400:
                    seen.wrong.append(f"a target has {target.rss_mib:.0f} MiB, not 400")
            finally:
                target.end()


async def _asking(seen: Seen, end: float, url: str, target: RoleProcess) -> None:
    client = nats.aio.client.Client()
    await client.connect(url)
    asked = {"timestamp": 0, "timeout": 5000, "endpointMessageId": "m", "appVersionName": "app-1"}
    number = 0
    while ((time.monotonic() < end and number < 2500) or number == 0) and target.alive:
        number += 1
        body = {
            **asked,
            "correlationId": f"c{number}",
            "timestamp": time.time_ns() // 10**6,
            "endpointId": f"{number:0800000}",
        }
        reply = await client.request(
            "kaa.v1.service.cdp.cmx2cdp.ConfigRequest", json.dumps(body).encode(), timeout=PATIENCE_S
        )
        if json.loads(reply.data)["statusCode"] != 404:
            seen.wrong.append("a name of nothing was answered with something")
        seen.add(names=1)
    await client.close()


def false_server(seen: Seen, end: float) -> None:
    """A server of NATS that announces a message of a petabyte, or a line that does not end, and sends and sends."""
    info = b'INFO {"server_id": "x", "version": "2.10.0", "max_payload": 1048576, "headers": true}\r\n'
    for attack in (b"MSG a 1 999999999999999\r\n", b"", info):
        listening = socket.create_server(("127.0.0.1", 0))
        over = threading.Event()

        def serve(listening: socket.socket = listening, attack: bytes = attack, over: threading.Event = over) -> None:
            while not over.is_set():
                with contextlib.suppress(OSError), listening.accept()[0] as peer:
                    peer.settimeout(5)
                    peer.sendall(info)
                    peer.recv(65_536)
                    peer.sendall(b"PONG\r\n" + attack)
                    more = attack * 10_000 if attack == info else b"x" * MIB
                    while not over.is_set():
                        peer.sendall(more)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        url = f"nats://127.0.0.1:{listening.getsockname()[1]}"
        began = time.monotonic()
        bounded(seen, 12, 300, "cdt", "pull", "app-1", "e-1", "--target", "cdp", "--nats", url, "--timeout", "4")
        if (took := time.monotonic() - began) > 8:
            seen.wrong.append(f"a pull of 4 s took {took:.1f} s")
        over.set()
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        seen.add(pulls=1)
        if time.monotonic() > end:
            break


ATTACKS: dict[str, Callable[[Seen, float], None]] = {
    "segments that unpack to more than there is": long_values,
    "segments without an end, and pipes": endless_files,
    "contents with millions of empty tables": heavy_contents,
    "names of endpoints that are not there": names_of_nothing,
    "a server of NATS that is none": false_server,
}

"""Pulls over a real nats-server, beside a bare pair of nats-py: `python -m benches.cdt.pulls [--fast]`.

The bare pair sends the very same bodies and looks into none of them: what it does is what nats-py, asyncio and the server cost. The same in
pure Python decodes and encodes them with the standard library.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import multiprocessing
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nats

from benches.measure import machine, save
from trunkline import cdt

SIZES = {"512 B": 512, "64 KiB": 65_536}
WINDOWS = (1, 100, 1000)
SUBJECT = "bench.requests"
REPLIES = "bench.replies"
CORRELATION = "01234567-89ab-cdef-0123-456789abcdef"

Ask = Callable[[], Awaitable[object]]


def request(correlation: str) -> bytes:
    """A ConfigRequest."""
    return json.dumps(
        {
            "correlationId": correlation,
            "timestamp": time.time_ns() // 1_000_000,
            "timeout": 30_000,
            "endpointMessageId": correlation,
            "appVersionName": "app-1",
            "endpointId": "e-1",
        }
    ).encode()


def response(asked: dict[str, object], content: bytes) -> bytes:
    """The ConfigResponse to a request."""
    return json.dumps(
        {
            **asked,
            "timestamp": time.time_ns() // 1_000_000,
            "contentType": "json",
            "configId": "v",
            "statusCode": 200,
            "reasonPhrase": "OK",
            "content": {"bytes": base64.b64encode(content).decode()},
        }
    ).encode()


def serve_bare(url: str, size: int, ready: Any) -> None:
    """Answers each request with a body that it looks into as little as into the request."""

    async def serve() -> None:
        client = await nats.connect(url)
        body = response(json.loads(request(CORRELATION)), bytes(size))[16:]

        async def answer(message: Any) -> None:
            # The first bytes identify the request.
            await client.publish(message.reply, message.data[:16] + body)

        await client.subscribe(SUBJECT, cb=answer, pending_bytes_limit=1 << 30)
        await client.flush()
        ready.set()
        await asyncio.Event().wait()

    asyncio.run(serve())


def serve_plain(url: str, size: int, ready: Any) -> None:
    """The same as a target in pure Python."""

    async def serve() -> None:
        client = await nats.connect(url)
        content = bytes(size)

        async def answer(message: Any) -> None:
            await client.publish(message.reply, response(json.loads(message.data), content))

        await client.subscribe(SUBJECT, cb=answer, pending_bytes_limit=1 << 30)
        await client.flush()
        ready.set()
        await asyncio.Event().wait()

    asyncio.run(serve())


def serve_ours(url: str, size: int, ready: Any) -> None:
    """A target with one configuration of this size."""

    async def serve() -> None:
        async with cdt.AsyncTarget("cdp", servers=url) as target:
            await target.put("app-1", "e-1", bytes(size))
            ready.set()
            await asyncio.Event().wait()

    asyncio.run(serve())


async def measure(ask: Ask, window: int, seconds: float) -> float:
    """Pulls a second, with so many under way."""
    end = time.perf_counter() + seconds
    done = 0

    async def work() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await ask()
            done += 1

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(window)))
    return done / (time.perf_counter() - start)


async def ask_nats(url: str, window: int, seconds: float, *, is_plain: bool) -> float:
    """What a source does, by nats-py alone: with a body that is read, or with one that is not."""
    client = await nats.connect(url)
    waiting: dict[bytes, asyncio.Future[object]] = {}
    number = 0

    async def answered(message: Any) -> None:
        if is_plain:
            read = json.loads(message.data)
            read["content"] = base64.b64decode(read["content"]["bytes"])
            waiting.pop(read["correlationId"].encode()).set_result(read)
        else:
            waiting.pop(message.data[:16]).set_result(None)

    await client.subscribe(REPLIES, cb=answered, pending_bytes_limit=1 << 30)
    loop = asyncio.get_running_loop()
    body = request(CORRELATION)[16:]

    async def ask() -> object:
        nonlocal number
        number += 1
        key = b"%016d" % number
        future = waiting[key] = loop.create_future()
        await client.publish(SUBJECT, request(key.decode()) if is_plain else key + body, reply=REPLIES)
        return await future

    rate = await measure(ask, window, seconds)
    await client.close()
    return rate


async def ask_ours(url: str, window: int, seconds: float) -> float:
    """A source."""
    async with cdt.AsyncSource("cmx", target="cdp", servers=url) as source:
        return await measure(lambda: source.pull("app-1", "e-1", timeout_s=30), window, seconds)


CASES: dict[str, tuple[Callable[[str, int, Any], None], Callable[[str, int, float], Awaitable[float]]]] = {
    "a bare pair": (serve_bare, lambda url, window, seconds: ask_nats(url, window, seconds, is_plain=False)),
    "pure Python": (serve_plain, lambda url, window, seconds: ask_nats(url, window, seconds, is_plain=True)),
    "AsyncSource, AsyncTarget": (serve_ours, ask_ours),
}


def one(case: str, url: str, size: int, window: int, seconds: float) -> float:
    """A round of a case, with its server in a process of its own."""
    serve, ask = CASES[case]
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    server = context.Process(target=serve, args=(url, size, ready), daemon=True)
    server.start()
    try:
        assert ready.wait(30), "the server does not run"

        async def asking() -> float:
            return await ask(url, window, seconds)

        return asyncio.run(asking())
    finally:
        server.kill()
        server.join()


def main(*, fast: bool, rounds: int) -> None:
    """Runs the cases in turn, and writes what came out."""
    head = machine()
    seconds = 0.2 if fast else 2.0
    lines = [
        "# CDT: pulls",
        "",
        head,
        "",
        f"{rounds} rounds of {seconds:.0f} s, all in turn; medians of pulls a second.",
        "",
    ]
    lines += ["| content | under way | a bare pair | pure Python | AsyncSource, AsyncTarget | beside the bare pair |"]
    lines += ["|---|---|---|---|---|---|"]
    measured: dict[str, dict[str, list[float]]] = {}
    binary = Path(sys.executable).parent / "nats-server"
    with tempfile.TemporaryDirectory() as scratch:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with subprocess.Popen([binary, "-a", "127.0.0.1", "-p", str(port), "-l", f"{scratch}/log"]) as server:
            try:
                time.sleep(0.5)
                url = f"nats://127.0.0.1:{port}"
                for name, size in [*SIZES.items()][: 1 if fast else None]:
                    for window in WINDOWS:
                        found: dict[str, list[float]] = {case: [] for case in CASES}
                        for _ in range(rounds):
                            for case in CASES:
                                found[case].append(one(case, url, size, window, seconds))
                        measured[f"{name}, {window}"] = found
                        rates = [statistics.median(found[case]) for case in CASES]
                        shown = " | ".join(f"{rate:,.0f}" for rate in rates)
                        lines.append(f"| {name} | {window} | {shown} | {rates[2] / rates[0]:.2f} |")
                        print(lines[-1], flush=True)
            finally:
                server.terminate()
    if not fast:
        save("cdt-pulls", lines, {"machine": head, "rounds": measured})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    main(fast=given.fast, rounds=1 if given.fast else given.rounds)

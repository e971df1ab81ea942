"""What a fleet stands: bad payloads, kills, and a hundred thousand endpoints: `python -m benches.cdt.soak [--minutes N] [--fast]`.

Targets and the nats-server are commands in processes of their own, looked at from outside; those who send bad payloads are bare clients.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import nats

from benches.cdt.endings import APP, Command, Endings, endings, going_on, running, server, until
from benches.harness import kinds, percentile, table
from benches.measure import machine, save
from trunkline import cdt

VICTIM = "victim"
SERVICE = "kaa.v1.service.cdp.cmx2cdp."
REPLICA = f"kaa.v1.replica.{VICTIM}.cmx2cdp."
EVENTS = "kaa.v1.events.stranger.endpoint.config."
TO_TARGET = [f"{SERVICE}ConfigRequest", f"{SERVICE}ConfigPush", f"{SERVICE}Other", f"{EVENTS}ConfigUpdated"]
TO_SOURCE = [f"{REPLICA}ConfigResponse", f"{REPLICA}ConfigPushResponse", f"{EVENTS}ConfigNewAvailable"]


# Bad payloads.


def good(chance: random.Random) -> dict[str, Any]:
    """The fields of a message there may be; those who mean well have an app of their own."""
    fields: dict[str, Any] = {
        "correlationId": f"{VICTIM}-{chance.randrange(5000)}",
        "timestamp": time.time_ns() // 1_000_000 + chance.choice([0, 0, 0, -(10**7), 2**62]),
        "timeout": chance.choice([-1, 0, 5000, 1]),
        "endpointMessageId": chance.choice(["m", "é" * 9]),
        "appVersionName": "app-bad",
        "endpointId": f"e-{chance.randrange(50)}",
        "contentType": "application/json",
        "configId": chance.choice(["", f"v{chance.randrange(9)}"]),
        "statusCode": chance.choice([200, 404, 500]),
        "content": {"bytes": base64.b64encode(chance.randbytes(chance.randrange(64))).decode()},
    }
    for name in chance.sample(sorted(fields), chance.choice([0, 0, 0, 1, 3])):
        fields[name] = chance.choice([None, 1.5, -2, [], {}, "", {"bytes": "&"}, True, 2**70])
    return fields


def bad(chance: random.Random) -> bytes:
    """Such a message with something done to it, or nothing, or anything."""
    body = bytearray(json.dumps(good(chance)).encode())
    kind = chance.randrange(8)
    if kind == 0:
        return chance.randbytes(chance.randrange(200))
    if kind == 1:
        return bytes(body[: chance.randrange(len(body))])
    if kind == 2:
        body[chance.randrange(len(body))] = chance.randrange(256)
    elif kind == 3:
        at = chance.randrange(len(body))
        body[at:at] = chance.choice([b"\\u0000", b"\xff", b"{", b'"', b"[" * 2000])
    elif kind == 4 and chance.random() < 0.01:
        return b"[" * chance.choice([1 << 16, 1 << 19])
    return bytes(body)


@dataclass
class Storm:
    """What became of one that strangers sent payloads to, while a source pulled.

    Attributes:
        payloads: How many.
        seconds: How long that took.
        pulled: Pulls, all of them answered rightly.
        p99_ms: How long they took, but for the slowest hundredth.
        rss_mib: The memory of the target after a tenth and at the end, or of the source.
        dropped: What was dropped, by kind.
    """

    payloads: int
    seconds: float
    pulled: int
    p99_ms: float
    rss_mib: list[float]
    dropped: dict[str, int]


def rss_mib(pid: int) -> float:
    """The memory of a process."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


async def attack(url: str, subjects: list[str], count: int, tenth: Callable[[], None]) -> None:
    """Sends so many payloads, and ignores answers."""
    chance = random.Random(11)
    client = await nats.connect(url)
    try:
        for number in range(count):
            reply = "" if chance.random() < 0.1 else f"strangers.{chance.randrange(9)}.ConfigResponse"
            await client.publish(chance.choice(subjects), bad(chance), reply=reply)
            if number % 200 == 0:
                # Not faster than it is heard.
                await client.flush(60)
                await asyncio.sleep(0.02)
            if number == count // 10:
                tenth()
        await client.flush(60)
    finally:
        await client.close()


async def storm(directory: Path, count: int, *, at_target: bool) -> Storm:
    """Sends so many payloads at a target, or at a source, which pulls all the while."""
    content = b'{"good": true}'
    times: list[float] = []
    with server(directory / "nats") as started:
        url = started.running.endpoint
        target = ("cdt", "target", "cdp", "--store", str(directory / "configs.db"), "--nats", url)
        with running(*target, "--stats-interval", "0.2") as serving:
            async with cdt.AsyncSource("cmx", target="cdp", servers=url, replica_id=VICTIM) as source:
                config_id = await source.push(APP, "e-1", content)

                async def pull() -> None:
                    while True:
                        start = time.perf_counter()
                        response = await source.pull(APP, "e-1", timeout_s=60)
                        times.append(time.perf_counter() - start)
                        assert (response.config_id, response.content) == (config_id, content)

                async def listen() -> None:
                    async for _ in source:
                        pass

                pid = serving.running.pid if at_target else os.getpid()
                memory: list[float] = []
                start = time.monotonic()
                async with going_on(pull(), listen()) as friends:
                    subjects = TO_TARGET if at_target else TO_SOURCE
                    await attack(url, subjects, count, lambda: memory.append(rss_mib(pid)))
                    # They go on afterwards.
                    pulled = len(times)
                    await until(lambda: len(times) > pulled, friends)
                seconds = time.monotonic() - start
                memory.append(rss_mib(pid))
                if at_target:
                    await asyncio.to_thread(serving.running.until, lambda stats: stats["received"] >= count * 0.7)
                    dropped = serving.running.stats["dropped"]
                else:
                    dropped = dict(source.stats.dropped)
    return Storm(count, seconds, len(times), percentile(times, 0.99), memory, dropped)


# Many endpoints.


@dataclass
class Crowd:
    """What so many configurations cost a target.

    Attributes:
        endpoints: How many there are.
        versions: How many versions each has, of 64 bytes.
        file_mib: The size of the store.
        start_s: From the start of the command until it is ready, with a directory of that size.
        rss_mib: The memory of the target when it is ready, and after the pulls.
        pull_ms: A pull of any endpoint, one after the other: the median, and all but the slowest hundredth.
        older_ms: The same of any version of it.
        pulls_s: Pulls a second, 100 at a time.
        put_ms: A push that is confirmed, as the pulls.
        status_s: `trunkline cdt status`, of all of them.
        owed_s: How long a target takes to announce what all endpoints are owed, after a kill.
    """

    endpoints: int
    versions: int
    file_mib: float = 0.0
    start_s: float = 0.0
    rss_mib: tuple[float, float] = (0.0, 0.0)
    pull_ms: tuple[float, float] = (0.0, 0.0)
    older_ms: tuple[float, float] = (0.0, 0.0)
    pulls_s: float = 0.0
    put_ms: tuple[float, float] = (0.0, 0.0)
    status_s: float = 0.0
    owed_s: float = 0.0


def fill(path: Path, endpoints: int, versions: int) -> None:
    """Writes a store as so many puts would have, without waiting for the disk at each."""
    cdt.SqliteStore(path).close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as store:
        store.executescript(
            f"""
            PRAGMA synchronous=OFF; PRAGMA cache_size=-500000; BEGIN;
            CREATE TEMP TABLE e AS WITH RECURSIVE n(n) AS (VALUES(0) UNION ALL SELECT n+1 FROM n LIMIT {endpoints}) SELECT n FROM n;
            CREATE TEMP TABLE v AS WITH RECURSIVE n(n) AS (VALUES(0) UNION ALL SELECT n+1 FROM n LIMIT {versions}) SELECT n FROM n;
            INSERT INTO configs SELECT '{APP}', 'e-'||e.n, printf('%032d', v.n), 'text/plain', cast(printf('%-64d', v.n) AS BLOB) FROM e, v;
            INSERT INTO assignments (app, endpoint, config_id, since_ms)
                SELECT '{APP}', 'e-'||e.n, printf('%032d', v.n), 1700000000000 + v.n FROM e, v;
            INSERT INTO endpoints SELECT '{APP}', 'e-'||n, printf('%032d', {versions} - 1), 1700000000000, NULL, NULL, 0 FROM e;
            COMMIT; PRAGMA wal_checkpoint(TRUNCATE);
            """
        )


async def timed(count: int, do: Callable[[int], Awaitable[object]]) -> tuple[float, float]:
    """How long it takes, one after the other: the median and all but the slowest hundredth, in milliseconds."""
    times = []
    for number in range(count):
        start = time.perf_counter()
        await do(number)
        times.append(time.perf_counter() - start)
    return percentile(times, 0.5), percentile(times, 0.99)


async def crowd(directory: Path, endpoints: int, versions: int, pulls: int) -> Crowd:
    """A target that keeps so many configurations."""
    seen = Crowd(endpoints, versions)
    chance = random.Random(5)
    path = directory / "configs.db"
    fill(path, endpoints, versions)
    seen.file_mib = path.stat().st_size / (1 << 20)
    with server(directory / "nats") as started:
        url = started.running.endpoint
        command = ("cdt", "target", "cdp", "--store", str(path), "--nats", url, "--stats-interval", "0.2")
        start = time.monotonic()
        with running(*command) as serving:
            seen.start_s = time.monotonic() - start
            before = serving.running.rss_mib
            async with cdt.AsyncSource("cmx", target="cdp", servers=url) as source:

                async def pull(version: int | None) -> None:
                    endpoint = f"e-{chance.randrange(endpoints)}"
                    config_id = None if version is None else f"{version:032d}"
                    response = await source.pull(APP, endpoint, config_id, timeout_s=30)
                    number = versions - 1 if version is None else version
                    assert response.content == b"%-64d" % number, response
                    assert response.endpoint_id == endpoint

                async def pull_many() -> None:
                    for _ in range(pulls // 100):
                        await pull(None)

                seen.pull_ms = await timed(pulls, lambda _: pull(None))
                seen.older_ms = await timed(pulls, lambda _: pull(chance.randrange(versions)))
                start = time.monotonic()
                await asyncio.gather(*(pull_many() for _ in range(100)))
                seen.pulls_s = pulls // 100 * 100 / (time.monotonic() - start)
                put = lambda number: source.push(APP, f"e-{number}", b"new %d" % number, timeout_s=30)  # noqa: E731 - one line
                seen.put_ms = await timed(min(pulls // 10, endpoints), put)
            seen.rss_mib = before, serving.running.rss_mib
        start = time.monotonic()
        status = await asyncio.create_subprocess_exec(
            *Command.line("cdt", "status", APP, "--store", str(path)), stdout=asyncio.subprocess.PIPE
        )
        out, _ = await status.communicate()
        assert out.count(b"\n") >= endpoints
        seen.status_s = time.monotonic() - start
        with contextlib.closing(sqlite3.connect(path)) as store, store:
            store.execute("UPDATE endpoints SET owed = 1")
        start = time.monotonic()
        with running(*command) as serving, contextlib.closing(sqlite3.connect(path)) as store:
            owed = "SELECT count(*) FROM endpoints WHERE owed"
            while store.execute(owed).fetchone() != (0,):
                assert time.monotonic() - start < 600, "what is owed is never announced"
                await asyncio.sleep(0.1)
            seen.owed_s = time.monotonic() - start
    return seen


def report(at_target: Storm, at_source: Storm, ended: Endings, many: Crowd) -> list[str]:
    """The results for people."""
    lines: list[str] = []
    for name, seen in (("target", at_target), ("source", at_source)):
        lines += [f"## Bad payloads at a {name}", ""]
        lines += table(
            [
                ("random and mutated payloads", f"{seen.payloads:,} in {seen.seconds:.0f} s"),
                ("pulls meanwhile", f"{seen.pulled:,}, all answered rightly; p99 {seen.p99_ms:.1f} ms"),
                (
                    f"memory of the {name}, after a tenth and at the end",
                    " and ".join(f"{mib:.0f} MiB" for mib in seen.rss_mib),
                ),
                ("dropped", kinds(seen.dropped)),
            ]
        )
    lines += ["## Kills", ""]
    lines += table(
        [
            (
                "under load",
                f"{ended.seconds:.0f} s: nats-server killed {ended.server_kills} times, a target {ended.target_kills} times",
            ),
            ("confirmed puts", f"{ended.confirmed:,}: all there, each endpoint's in order"),
            ("pulls", f"{ended.pulled:,} answered: none wrongly"),
            ("puts and pulls that ended with an error", f"{ended.failed:,}"),
            (
                "watches",
                f"{ended.watches}, all with the last configuration {ended.converged_s:.2f} s after the last put",
            ),
        ]
    )
    lines += [f"## {many.endpoints:,} endpoints, {many.versions} versions each", ""]
    lines += table(
        [
            ("the store", f"{many.file_mib:,.0f} MiB"),
            ("start until ready", f"{many.start_s:.2f} s"),
            (
                "memory of the target when ready, and after the pulls",
                " and ".join(f"{mib:.0f} MiB" for mib in many.rss_mib),
            ),
            ("a pull of any endpoint, median and p99", "{:.2f} and {:.2f} ms".format(*many.pull_ms)),
            ("a pull of any version", "{:.2f} and {:.2f} ms".format(*many.older_ms)),
            ("pulls a second, 100 at a time", f"{many.pulls_s:,.0f}"),
            ("a push confirmed as stored", "{:.2f} and {:.2f} ms".format(*many.put_ms)),
            ("`cdt status` of all", f"{many.status_s:.1f} s"),
            ("announcing what all endpoints are owed, after a kill", f"{many.owed_s:.1f} s"),
        ]
    )
    return lines


async def run(*, minutes: float, fast: bool) -> None:
    """Runs all of it, and writes what came out."""
    head = machine()
    with tempfile.TemporaryDirectory(prefix="cdt-soak-") as name:
        parts = [Path(name) / part for part in ("target", "source", "endings", "crowd")]
        for part in parts:
            part.mkdir()
        payloads = 500 if fast else 100_000
        at_target = await storm(parts[0], payloads, at_target=True)
        at_source = await storm(parts[1], payloads, at_target=False)
        ended = await endings(parts[2], seconds=2 if fast else minutes * 60)
        many = await crowd(parts[3], *((100, 2, 50) if fast else (100_000, 100, 5_000)))
    lines = ["# CDT: what a fleet stands", "", head, "", (__doc__ or "").partition("\n\n")[2].strip(), ""]
    lines += report(at_target, at_source, ended, many)
    if not fast:
        seen = {"at_target": at_target, "at_source": at_source, "endings": ended, "crowd": many}
        save("cdt-soak", lines, {"machine": head, **{name: asdict(one) for name, one in seen.items()}})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10, help="how long to kill and restart")
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    arguments = parser.parse_args()
    asyncio.run(run(minutes=arguments.minutes, fast=arguments.fast))

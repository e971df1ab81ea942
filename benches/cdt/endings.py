"""What is done to a fleet's server and targets while they have work: they are killed and restarted at random moments."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benches.measure import free_endpoint
from benches.processes import PATIENCE_S, RoleProcess
from trunkline import ConfigError, PeerLostError, cdt

APP = "app-1"
NOT_NOW = (TimeoutError, PeerLostError, ConfigError)


class Command:
    """`trunkline COMMAND`, which can be killed and started again."""

    def __init__(self, *command: str) -> None:
        self._command = self.line(*command)
        self._process: subprocess.Popen[str] | None = None
        self.again()

    @staticmethod
    def line(*command: str) -> list[str]:
        """It as the system has it."""
        return [sys.executable, "-m", "trunkline", *command, "--json"]

    def again(self) -> None:
        """Starts it; gives nothing back before it is ready."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        self.running = RoleProcess(self._process)

    def end(self, how: signal.Signals) -> None:
        """Ends it; fails when it has ended by itself."""
        assert self._process is not None
        assert self._process.poll() is None, f"{' '.join(self._command)} has ended"
        self.running.end(how)


@contextlib.contextmanager
def running(*command: str) -> Iterator[Command]:
    """Runs `trunkline COMMAND`; it ends at once."""
    started = Command(*command)
    try:
        yield started
    finally:
        started.end(signal.SIGKILL)


@contextlib.contextmanager
def server(directory: Path) -> Iterator[Command]:
    """Runs a nats-server, which has one port all its lives."""
    port = free_endpoint().rpartition(":")[2]
    with running("nats", "--port", port, "--store", str(directory)) as started:
        yield started


@dataclass
class Endings:
    """What a fleet lived through.

    Attributes:
        server_kills: How often the server was killed and started again, in seconds of `seconds`.
        target_kills: How often one of the two targets on one file was.
        confirmed: Puts that were confirmed, all of which were there at the end.
        pulled: Pulls that were answered, all of them rightly.
        failed: Puts and pulls that ended with an error.
        watches: Watches, all of which received the last configuration.
        converged_s: How long after the last restart the last of them did.
    """

    seconds: float
    server_kills: int = 0
    target_kills: int = 0
    confirmed: int = 0
    pulled: int = 0
    failed: int = 0
    watches: int = 0
    converged_s: float = 0.0


@dataclass
class Fleet:
    """What was put, by endpoint: the numbers of all, and of those that were confirmed."""

    endpoints: list[str]
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    sent: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    confirmed: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    seen: dict[str, str] = field(default_factory=dict)
    pulled: int = 0
    failed: int = 0

    def puts(self) -> int:
        """How many were confirmed."""
        return sum(map(len, self.confirmed.values()))

    async def push(self, source: cdt.AsyncSource, endpoint: str) -> None:
        """Gives an endpoint one configuration after the other."""
        while not self.is_over.is_set():
            self.sent[endpoint] += 1
            number = self.sent[endpoint]
            try:
                config_id = await source.push(APP, endpoint, f"{endpoint} {number}".encode(), timeout_s=2)
            except NOT_NOW:
                self.failed += 1
                await asyncio.sleep(0.02)
            else:
                self.confirmed[endpoint][number] = config_id

    async def pull(self, source: cdt.AsyncSource, chance: random.Random) -> None:
        """Asks for what endpoints are to have; fails when an answer is wrong."""
        while not self.is_over.is_set():
            endpoint = chance.choice(self.endpoints)
            latest = max(self.confirmed[endpoint], default=0)
            try:
                response = await source.pull(APP, endpoint, timeout_s=2)
            except NOT_NOW:
                self.failed += 1
                await asyncio.sleep(0.02)
                continue
            assert response.content is not None
            owner, _, written = response.content.decode().partition(" ")
            number = int(written)
            assert owner == response.endpoint_id == endpoint, response
            assert number <= self.sent[endpoint], response
            # An unconfirmed one may still be stored; a confirmed one is never followed by an earlier.
            assert number >= latest or number not in self.confirmed[endpoint], (endpoint, number, latest)
            self.pulled += 1

    async def follow(self, source: cdt.AsyncSource, endpoint: str) -> None:
        """Keeps up with an endpoint."""
        async for response in source.watch(APP, endpoint):
            self.seen[endpoint] = response.config_id


@contextlib.asynccontextmanager
async def going_on(*work: Any) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Runs these meanwhile."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(ready: Callable[[], bool], tasks: list[asyncio.Task[None]]) -> None:
    """Waits for something; fails with whichever of the tasks does."""
    end = time.monotonic() + PATIENCE_S
    while not ready():
        for task in tasks:
            if task.done():
                task.result()
        assert time.monotonic() < end, "it never came to be"
        await asyncio.sleep(0.01)


async def endings(directory: Path, *, seconds: float, endpoints: int = 20) -> Endings:
    """Kills one or the other, again and again, for so long; then looks at what became of it all."""
    chance = random.Random(7)
    fleet = Fleet([f"e-{number}" for number in range(endpoints)])
    seen = Endings(seconds, watches=endpoints)
    store = directory / "configs.db"
    with contextlib.ExitStack() as cleaning:
        nats = cleaning.enter_context(server(directory / "nats"))
        url = nats.running.endpoint
        command = ("cdt", "target", "cdp", "--store", str(store), "--nats", url)
        targets = [cleaning.enter_context(running(*command)) for _ in range(2)]
        async with cdt.AsyncSource("cmx", target="cdp", servers=url) as source:
            working = [fleet.push(source, endpoint) for endpoint in fleet.endpoints]
            working += [fleet.pull(source, random.Random(number)) for number in range(8)]
            async with (
                going_on(*[fleet.follow(source, endpoint) for endpoint in fleet.endpoints]) as following,
                going_on(*working) as workers,
            ):
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    done = fleet.puts() + 20
                    await until(lambda done=done: fleet.puts() >= done, workers + following)
                    await asyncio.sleep(chance.random() / 2)
                    one = chance.choice([nats, *targets])
                    await asyncio.to_thread(one.end, signal.SIGKILL)
                    await asyncio.sleep(chance.random() / 2)
                    await asyncio.to_thread(one.again)
                    if one is nats:
                        seen.server_kills += 1
                    else:
                        seen.target_kills += 1
                fleet.is_over.set()
                await asyncio.gather(*workers)
                start = time.monotonic()
                looked_at = cdt.SqliteStore(store, read_only=True)
                current = {row.endpoint_id: row.current for row in looked_at.rollout(APP)}
                await until(lambda: all(fleet.seen.get(one) == current[one] for one in current), following)
                seen.converged_s = time.monotonic() - start
    for endpoint, confirmed in fleet.confirmed.items():
        places = {row.config_id: place for place, row in enumerate(looked_at.history(APP, endpoint))}
        order = [places[config_id] for _, config_id in sorted(confirmed.items())]
        assert order == sorted(order), f"{endpoint}: its versions are not in the order they were confirmed in"
        for number, config_id in confirmed.items():
            config = looked_at.get(APP, endpoint, config_id)
            assert config is not None
            assert config.content == f"{endpoint} {number}".encode()
    looked_at.close()
    seen.confirmed, seen.pulled, seen.failed = fleet.puts(), fleet.pulled, fleet.failed
    return seen

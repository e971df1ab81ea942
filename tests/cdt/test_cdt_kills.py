"""Servers and targets that are killed at random moments, under load."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys

import pytest

from peers import nats
from trunkline import ConfigError, PeerLostError, cdt

ENDPOINTS = [f"e-{number}" for number in range(5)]


class Target:
    """The target as a process, that can be killed and started again."""

    def __init__(self, url, store):
        self._arguments = ["cdt", "target", "cdp", "--store", str(store), "--nats", url, "--json"]
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trunkline", *self._arguments], stdout=subprocess.PIPE, text=True
        )
        ready = self.process.stdout.readline()
        assert json.loads(ready)["event"] == "ready", ready

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@pytest.mark.slow
@pytest.mark.req("CDT-38", "CDT-39", "CDT-49")
async def test_what_was_confirmed_is_there_and_every_watch_converges(tmp_path):
    store, chance = tmp_path / "configs.db", random.Random(os.urandom(8))
    confirmed = []
    is_over = asyncio.Event()
    with nats.server(tmp_path / "nats") as server, contextlib.ExitStack() as cleaning:
        target = Target(server.url, store)
        cleaning.callback(target.kill)
        async with cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source:

            async def push(number):
                sent = 0
                while not is_over.is_set():
                    endpoint, content = chance.choice(ENDPOINTS), f"{number} {sent}".encode()
                    sent += 1
                    try:
                        config_id = await source.push("app-1", endpoint, content, timeout_s=1)
                    except (TimeoutError, PeerLostError, ConfigError):
                        await asyncio.sleep(0.01)
                    else:
                        confirmed.append((endpoint, config_id, content))

            async def pull():
                while not is_over.is_set():
                    endpoint = chance.choice(ENDPOINTS)
                    try:
                        response = await source.pull("app-1", endpoint, timeout_s=1)
                    except (TimeoutError, PeerLostError, ConfigError):
                        await asyncio.sleep(0.01)
                    else:
                        assert response.endpoint_id == endpoint

            watches = {endpoint: source.watch("app-1", endpoint) for endpoint in ENDPOINTS}
            seen = {}

            async def follow(endpoint):
                async for response in watches[endpoint]:
                    seen[endpoint] = response.config_id

            working = [asyncio.create_task(push(number)) for number in range(3)]
            working += [asyncio.create_task(pull()) for _ in range(2)]
            following = [asyncio.create_task(follow(endpoint)) for endpoint in ENDPOINTS]
            for what in ("target", "server", "target"):
                before = len(confirmed)
                await nats.settled(lambda least=before + 20: len(confirmed) >= least, 30)
                await asyncio.sleep(chance.random() / 10)
                if what == "target":
                    await asyncio.to_thread(target.kill)
                    await asyncio.to_thread(target.start)
                else:
                    await asyncio.to_thread(server.restart)
            before = len(confirmed)
            await nats.settled(lambda: len(confirmed) >= before + 20, 30)
            is_over.set()
            await asyncio.gather(*working)
            looked_at = cdt.SqliteStore(store, read_only=True)
            current = {row.endpoint_id: row.current for row in looked_at.rollout("app-1")}
            for endpoint, config_id, content in confirmed:
                config = looked_at.get("app-1", endpoint, config_id)
                assert config is not None
                assert config.content == content
            looked_at.close()
            await nats.settled(lambda: all(seen.get(endpoint) == current[endpoint] for endpoint in current), 30)
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)

"""What waits to be sent, and what waits for that: a server that reads slowly, and one that says odd things."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable

import pytest

from trunkline import ConfigError, PeerLostError, cdt
from trunkline.cdt import _pump
from trunkline.cdt._memory import MemoryConnection

INFO = b'INFO {"server_id": "a", "version": "2.10.0", "max_payload": 1048576}\r\n'


class Slow:
    """A connection that sends nothing for a while, and receives only when it is read again."""

    def __init__(self, monkeypatch, connection: MemoryConnection) -> None:
        self.is_full = False
        self.has_room, self.is_read, self.paused = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.is_read.set()
        made = type("SlowConnection", (MemoryConnection,), {"is_full": property(lambda _: self.is_full)})
        monkeypatch.setattr(connection, "__class__", made)
        for name in ("room", "flush", "pause", "resume"):
            monkeypatch.setattr(connection, name, getattr(self, name), raising=False)

    async def room(self) -> None:
        await self.has_room.wait()

    async def flush(self) -> None:
        await self.is_read.wait()

    def pause(self) -> None:
        self.paused.set()
        self.is_read.clear()

    def resume(self) -> None:
        self.is_read.set()


async def test_what_waits_for_a_server_to_confirm_holds_up_nothing_that_is_to_be_sent(monkeypatch):
    monkeypatch.setattr(_pump, "_MOST_OUTPUTS", 10)
    async with (
        cdt.AsyncTarget("cdp", servers="memory://held-up") as target,
        cdt.AsyncSource("cmx", target="cdp", servers="memory://held-up") as source,
    ):
        config_id = await target.put("app-1", "e-1", b"1")
        slow = Slow(monkeypatch, source._native.connection)
        # Its answer cannot come before it is read again, which is once all that waits is sent.
        slow.is_read.clear()
        report = asyncio.create_task(source.report_applied("app-1", "e-1", config_id))
        await asyncio.sleep(0)
        slow.is_full = True
        pulls = [asyncio.create_task(source.pull("app-1", "e-1", timeout_s=None)) for _ in range(20)]
        await slow.paused.wait()
        assert not report.done()
        slow.is_full = False
        slow.has_room.set()
        async with asyncio.timeout(60):
            await report
            assert {response.config_id for response in await asyncio.gather(*pulls)} == {config_id}


async def test_no_more_is_answered_at_one_time_than_may_wait(monkeypatch):
    monkeypatch.setattr(_pump, "_MOST_OUTPUT_BYTES", 1 << 20)
    async with (
        cdt.AsyncTarget("cdp", servers="memory://portions") as target,
        cdt.AsyncSource("cmx", target="cdp", servers="memory://portions") as source,
    ):
        await target.put("app-1", "e-1", bytes(100_000))
        pump = target._native
        slow = Slow(monkeypatch, pump.connection)
        most, put = 0, pump._put

        def counted(outputs):
            nonlocal most
            put(outputs)
            most = max(most, pump._output_bytes)

        monkeypatch.setattr(pump, "_put", counted)
        slow.is_full = True
        pulls = [asyncio.create_task(source.pull("app-1", "e-1", timeout_s=None)) for _ in range(1000)]
        await slow.paused.wait()
        slow.is_full = False
        slow.has_room.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*pulls)
        # One portion of requests beyond what may wait, and not what all of them come to.
        assert most < 1000 * 100_000 / 4


class Odd:
    """A server with one odd connection, which begins or continues with something wrong; the others are normal."""

    def __init__(
        self, greeting: bytes | None, later: bytes, which: Callable[[int], bool] = lambda number: number == 2
    ) -> None:
        self.greeting, self.later, self.which = greeting, later, which
        self.connections = 0
        self.subscribed: asyncio.Queue[int] = asyncio.Queue()

    async def __aenter__(self) -> str:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        return f"nats://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        is_odd = self.which(number)
        writer.write(self.greeting if is_odd and self.greeting is not None else INFO)
        try:
            while line := await reader.readline():
                if line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
                elif line.startswith(b"SUB"):
                    self.subscribed.put_nowait(number)
                    if number == 1:
                        self.first = writer
                    if is_odd:
                        writer.write(self.later)
        except OSError:
            pass
        finally:
            writer.close()


ODD_GREETINGS = [
    b"INFO",
    b"INFO\t{}\r\n",
    b"INFO []\r\n",
    b"INFO null\r\n",
    b"INFO " + b"a" * 100_000 + b"\r\n",
    b'INFO {"max_payload": null}\r\n',
    b'INFO {"max_payload": "1"}\r\n',
    b"-ERR\r\n",
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
]

ODD_LINES = [b"INFO {x\r\n", b"-ERR '\xff'\r\n", b"INFO []\r\n", b'INFO {"max_payload": null}\r\n', b"NONSENSE\r\n"]


@pytest.mark.req("CDT-50")
@pytest.mark.parametrize(
    ("greeting", "later"),
    [(greeting, b"") for greeting in ODD_GREETINGS] + [(None, line) for line in ODD_LINES],
    ids=lambda odd: repr(odd[:30]) if odd else "",
)
async def test_a_server_that_says_something_odd_is_tried_again(greeting, later):
    odd = Odd(greeting, later)
    async with odd as url, asyncio.timeout(60), cdt.AsyncSource("cmx", target="cdp", servers=url):
        await odd.subscribed.get()
        # A half of a greeting is whole when the connection is over.
        odd.first.close()
        while await odd.subscribed.get() < 3:
            pass


@pytest.mark.parametrize("greeting", ODD_GREETINGS[1:], ids=lambda odd: repr(odd[:30]))
async def test_a_first_server_that_says_something_odd_is_no_server_of_nats(greeting):
    async with Odd(greeting, b"", lambda _: True) as url:
        with pytest.raises(PeerLostError):
            await cdt.AsyncSource("cmx", target="cdp", servers=url, connect_timeout_s=0.5).__aenter__()


async def test_a_limit_that_changes_is_kept_to():
    odd = Odd(None, b"")
    async with odd as url, cdt.AsyncSource("cmx", target="cdp", servers=url) as source:
        await odd.subscribed.get()
        info = json.loads(INFO[5:]) | {"max_payload": 1000}
        odd.first.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        async with asyncio.timeout(60):
            while source._native.connection.max_payload != 1000:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0)
        with pytest.raises(ConfigError, match="413"):
            await source.push("app-1", "e-1", bytes(2000), timeout_s=60)


class Forgetful(cdt.MemoryStore):
    """A store that fails to note what was announced."""

    def announced(self, _told):
        raise OSError(errno.ENOSPC, "no space")


@pytest.mark.req("CDT-40")
async def test_what_endpoints_report_is_kept_where_announcements_cannot_be_noted():
    store = Forgetful()
    async with (
        cdt.AsyncTarget("cdp", servers="memory://forgetful", store=store) as target,
        cdt.AsyncSource("cmx", target="cdp", servers="memory://forgetful") as source,
    ):
        config_id = await target.put("app-1", "e-1", b"1")
        await source.report_applied("app-1", "e-1", config_id)
        async with asyncio.timeout(60):
            while [row.applied for row in await target.rollout("app-1")] != [config_id]:  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0)

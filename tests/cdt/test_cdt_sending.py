"""What waits to be sent, and what waits for that: a server that reads slowly, and one that says odd things."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable

import pytest

from peers import nats
from trunkline import ConfigError, PeerLostError, cdt

INFO = b'INFO {"server_id": "a", "version": "2.10.0", "max_payload": 1048576}\r\n'


class Raw:
    """A server that answers a PING, and reads, as long as it may; it keeps what is published."""

    def __init__(self) -> None:
        self.may_confirm, self.may_read = asyncio.Event(), asyncio.Event()
        self.may_confirm.set()
        self.may_read.set()
        self.published: asyncio.Queue[tuple[bytes, bytes, bytes]] = asyncio.Queue()
        self.subscribed: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue()

    async def __aenter__(self) -> str:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        return f"nats://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    def deliver(self, number: bytes, subject: bytes, reply_to: bytes, body: bytes) -> None:
        self.writer.write(b"MSG %b %b %b %d\r\n%b\r\n" % (subject, number, reply_to, len(body), body))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        writer.write(INFO)
        waiting = set()
        try:
            while line := await reader.readline():
                await self.may_read.wait()
                verb, *words = line.split()
                if verb == b"PING":
                    waiting.add(asyncio.create_task(self.confirm(writer)))
                elif verb == b"SUB":
                    self.subscribed.put_nowait((words[0], words[-1]))
                elif verb == b"PUB":
                    body = await reader.readexactly(int(words[-1]) + 2)
                    self.published.put_nowait((words[0], words[1] if len(words) == 3 else b"", body[:-2]))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def confirm(self, writer: asyncio.StreamWriter) -> None:
        await self.may_confirm.wait()
        writer.write(b"PONG\r\n")


async def test_what_waits_for_a_server_to_confirm_holds_up_nothing_that_is_to_be_sent():
    raw = Raw()
    async with raw as url, cdt.AsyncSource("cmx", target="cdp", servers=url) as source, asyncio.timeout(60):
        raw.may_confirm.clear()
        report = asyncio.create_task(source.report_applied("app-1", "e-1", "v-1"))
        assert (await raw.published.get())[0].endswith(b"ConfigUpdated")
        pull = asyncio.create_task(source.pull("app-1", "e-1", timeout_s=None))
        assert (await raw.published.get())[0].endswith(b"ConfigRequest")
        assert not report.done()
        raw.may_confirm.set()
        await report
        pull.cancel()


async def test_no_more_is_answered_at_one_time_than_may_wait():
    raw, count = Raw(), 1500
    async with raw as url, cdt.AsyncTarget("cdp", servers=url) as target, asyncio.timeout(60):
        await target.put("app-1", "e-1", bytes(75_000))
        subjects = [await raw.subscribed.get() for _ in range(5)]
        subject = b"kaa.v1.service.cdp.cmx2cdp.ConfigRequest"
        number = dict(subjects)[subject]
        raw.may_read.clear()
        # None is too late, however slow this machine is.
        asked = nats.request(appVersionName="app-1", endpointId="e-1", timeout=-1)
        for _ in range(count):
            raw.deliver(number, subject, b"_INBOX.a", asked)
        await raw.writer.drain()
        # 150 MB of answers, of which 64 MiB may wait, and some are on their way.
        before, pulls = 0, 0
        while not pulls or pulls != before:
            await asyncio.sleep(1)
            before, pulls = pulls, target.stats.pulls
        assert 0 < pulls < count * 3 // 4
        raw.may_read.set()
        answered = 0
        while answered < count:
            answered += (await raw.published.get())[0] == b"_INBOX.a"


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
            while source._native.max_payload != 1000:  # noqa: ASYNC110 - there is no event for it
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

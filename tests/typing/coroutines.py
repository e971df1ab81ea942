"""What type checkers see of the roles for asyncio. Not run: read by mypy and pyright."""

import asyncio
from pathlib import Path
from typing import Literal, assert_type

from trunkline import cdtp, chirp, dcp, mc0


async def streams(path: Path) -> None:
    async with cdtp.AsyncSender("Det", bind="tcp://127.0.0.1:*") as sender:
        assert_type(sender, cdtp.AsyncSender)
        await sender.send(b"x", tags={"n": 1})
        assert_type(sender.stats, cdtp.SenderStats)
    async with cdtp.AsyncReceiver(connect="tcp://127.0.0.1:1", capture=path) as receiver:
        async for message in receiver:
            assert_type(message, cdtp.Message)
        assert_type(await receiver.receive(timeout_s=0), cdtp.Message)
    async with cdtp.AsyncRecorder(path, connect="tcp://127.0.0.1:1") as recorder:
        assert_type(await recorder.wait(idle_s=1), Literal["count", "idle"])
    async with chirp.AsyncBeacon("lab") as beacon:
        async for event in beacon:
            assert_type(event, chirp.Event)


async def services(endpoint: str) -> None:
    async def handle(request: dcp.Request) -> bytes:
        return b"".join(request.data)

    async with dcp.AsyncBroker(bind=endpoint) as broker:
        await broker.wait(timeout_s=1)
    async with dcp.AsyncWorker(b"echo", connect=endpoint) as worker:
        await worker.serve(handle)
        await worker.serve(lambda request: request.data)
        async for request in worker:
            assert_type(request, dcp.Request)
    async with dcp.AsyncClient(connect=endpoint) as client:
        assert_type(await client.request(b"echo", b"x"), dcp.Reply)
        assert_type(await client.submit(b"echo", b"x"), asyncio.Future[dcp.Reply])

    async with mc0.AsyncConnector(connect=endpoint) as connector:
        await connector.subscribe("runs")
        assert_type(connector.submit("runs", b"x"), asyncio.Future[None])
        assert_type(await connector.ping(), float)
        async for message in connector:
            assert_type(message, mc0.Message)

    dcp.AsyncWorker("echo", connect=endpoint)  # type: ignore[arg-type]
    for _ in worker:  # type: ignore[attr-defined]
        pass

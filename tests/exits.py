"""Processes that send and exit at once by `os._exit`: what a role reported as sent is with the system by then."""

import asyncio
import multiprocessing
import os
import sys

from trunkline import cdtp, dcp, mc0, mtl


def sender(endpoint, sizes, **options):
    with cdtp.Sender("Det", connect=endpoint, **options) as role:
        for size in sizes:
            role.send(bytes(size))


async def async_sender(endpoint, sizes, **options):
    async with cdtp.AsyncSender("Det", connect=endpoint, **options) as role:
        for size in sizes:
            await role.send(bytes(size))


def connector(endpoint, sizes, **options):
    with mc0.Connector(connect=endpoint, ttl_ms=None, **options) as role:
        for size in sizes:
            role.put("topic", bytes(size))


async def async_connector(endpoint, sizes, **options):
    async with mc0.AsyncConnector(connect=endpoint, ttl_ms=None, **options) as role:
        for size in sizes:
            await role.put("topic", bytes(size))


def writer(endpoint, sizes, **options):
    with (
        mtl.Client(connect=endpoint, profile="queue", **options) as client,
        client.writer(["jobs"], confirm="none") as role,
    ):
        for size in sizes:
            role.send(bytes(size))


async def async_writer(endpoint, sizes, **options):
    async with (
        mtl.AsyncClient(connect=endpoint, profile="queue", **options) as client,
        client.writer(["jobs"], confirm="none") as role,
    ):
        for size in sizes:
            await role.send(bytes(size))


def worker(endpoint, sizes, **options):
    with dcp.Worker(b"echo", connect=endpoint, **options) as role:
        for size in sizes:
            role.receive(timeout_s=20).reply([bytes(size)])


async def async_worker(endpoint, sizes, **options):
    async with dcp.AsyncWorker(b"echo", connect=endpoint, **options) as role:
        for size in sizes:
            (await role.receive(timeout_s=20)).reply([bytes(size)])


WAYS = {
    "sender": (sender, async_sender),
    "connector": (connector, async_connector),
    "writer": (writer, async_writer),
    "worker": (worker, async_worker),
}


def run(role, twin, endpoint, sizes, options):
    blocking, coroutine = WAYS[role]
    if twin == "async":
        asyncio.run(coroutine(endpoint, sizes, **options))
    else:
        blocking(endpoint, sizes, **options)


def main():
    role, twin, how, endpoint, size, count, transport = sys.argv[1:]
    options = {"transport": transport} if transport else {}
    given = (role, twin, endpoint, [int(size)] * int(count), options)
    if how == "fork":
        child = multiprocessing.get_context("fork").Process(target=run, args=given)
        child.start()
        child.join()
        os._exit(child.exitcode)
    run(*given)
    os._exit(0)


if __name__ == "__main__":
    main()

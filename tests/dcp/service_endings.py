"""One way for DCP's roles to end, played in a process of its own: `service_endings.py ENDING STYLE DIRECTORY`."""

import asyncio
import contextlib
import functools
import gc
import logging
import os
import signal
import sys
import threading
import warnings

import zmq

from peers.ended import say
from trunkline import dcp
from trunkline.errors import ClosedError

ROUNDS = 10
ANY = "tcp://127.0.0.1:*"

ending, style, directory = sys.argv[1:]
warnings.simplefilter("ignore", ResourceWarning)
logging.getLogger("trunkline").addHandler(logging.NullHandler())
# A busy machine is no news.
logging.getLogger("asyncio").setLevel(logging.ERROR)
numbers = iter(range(10**6))


def capture():
    return {"capture": f"{directory}-{next(numbers)}"} if style == "capture" else {}


def open_all(**more):
    """A broker, a worker and a client, between which a request has gone and come back."""
    broker = dcp.Broker(bind=ANY, **capture(), **more)
    worker = dcp.Worker(b"echo", connect=broker.endpoints, **capture())
    client = dcp.Client(connect=broker.endpoints, **capture())
    feed(worker, client)
    return broker, worker, client


def feed(worker, client):
    future = client.submit(b"echo", b"x")
    request = worker.receive(timeout_s=20)
    request.reply(request.data)
    assert future.result(20).data == (b"x",)


async def open_all_async():
    broker = await dcp.AsyncBroker(bind=ANY).__aenter__()
    worker = await dcp.AsyncWorker(b"echo", connect=broker.endpoints).__aenter__()
    client = await dcp.AsyncClient(connect=broker.endpoints).__aenter__()
    future = await client.submit(b"echo", b"x")
    request = await worker.receive(timeout_s=20)
    request.reply(request.data)
    assert (await future).data == (b"x",)
    return broker, worker, client


def interrupt():
    """Ctrl-C in the middle of each wait; the test sends it once it reads the line."""
    hang = threading.Event()
    waits = {
        "request": lambda _, __, client: client.request(b"nobody", b"x"),
        "future": lambda _, __, client: client.submit(b"nobody", b"x").result(),
        "receive": lambda _, worker, __: worker.receive(),
        "iterate": lambda _, worker, __: list(worker),
        "serve": lambda _, worker, client: (client.submit(b"echo", b"x"), worker.serve(lambda _: hang.wait())),
        "wait": lambda broker, *_: broker.wait(),
    }
    if style == "asyncio":
        waits = {
            "request": lambda _, __, client: client.request(b"nobody", b"x"),
            "receive": lambda _, worker, __: worker.receive(),
            "serve": lambda _, worker, __: worker.serve(asyncio.sleep),
            "wait": lambda broker, *_: broker.wait(),
        }
    for name, wait in waits.items():
        try:
            if style == "asyncio":

                async def run(wait=wait, name=name):
                    async with contextlib.AsyncExitStack() as stack:
                        roles = await open_all_async()
                        for role in roles:
                            await stack.enter_async_context(role)
                        say(f"waiting {name}")
                        await wait(*roles)

                asyncio.run(run())
            else:
                with contextlib.ExitStack() as stack:
                    roles = open_all()
                    for role in roles:
                        stack.enter_context(role)
                    say(f"waiting {name}")
                    wait(*roles)
        except KeyboardInterrupt:
            say(f"interrupted {name}")


def close_in_thread():
    for _ in range(ROUNDS):
        if style == "asyncio":

            async def wait():
                broker, worker, client = await open_all_async()
                threading.Thread(target=worker.stop, kwargs={"drain_s": 0}).start()
                assert [request async for request in worker] == []
                asking = asyncio.ensure_future(client.request(b"echo", b"x"))
                await asyncio.sleep(0)
                await client.close(drain_s=0)
                with contextlib.suppress(ClosedError):
                    await asking
                await worker.close()
                # Its worker has gone without a word, perhaps with a request.
                await broker.close(drain_s=0)

            asyncio.run(wait())
            continue
        broker, worker, client = open_all()
        closers = [threading.Thread(target=worker.close)]
        # The worker has gone without a word, perhaps with a request.
        closers += [threading.Thread(target=role.close, kwargs={"drain_s": 0}) for role in (client, broker)]
        closers[0].start()
        assert list(worker) == []
        closers[1].start()
        with contextlib.suppress(ClosedError):
            client.request(b"echo", b"x")
        closers[2].start()
        broker.wait(timeout_s=20)
        for closer in closers:
            closer.join()


def leave():
    """The interpreter exits with everything open: a request waits, a handler hangs."""
    if style == "asyncio":
        loop = asyncio.new_event_loop()
        globals()["kept"] = loop.run_until_complete(open_all_async())
        loop.close()
        return
    broker, worker, client = open_all()
    begun, hang = threading.Event(), threading.Event()

    def handle(_):
        begun.set()
        hang.wait()

    def ask():
        with contextlib.suppress(ClosedError):
            client.request(b"nobody", b"x")

    threading.Thread(target=worker.serve, args=(handle,), daemon=True).start()
    future = client.submit(b"echo", b"x")
    threading.Thread(target=ask, daemon=True).start()
    assert begun.wait(20)
    globals()["kept"] = broker, worker, client, future


def fork():
    broker, worker, client = open_all()
    future = client.submit(b"echo", b"kept")
    request = worker.receive(timeout_s=20)
    for _ in range(ROUNDS):
        child = os.fork()
        if child == 0:
            for use in (
                lambda: client.request(b"echo", b"x"),
                lambda: client.submit(b"echo", b"x"),
                lambda: worker.receive(timeout_s=0),
                lambda: request.reply(b"x"),
                lambda: broker.wait(timeout_s=0),
            ):
                try:
                    use()
                except ClosedError:
                    pass
                else:
                    os._exit(3)
            others = open_all()
            for other in reversed(others):
                other.close()
            del broker, worker, client, request, future, others, other, use
            gc.collect()
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
    request.reply(b"answered")
    assert future.result(20).data == (b"answered",)
    feed(worker, client)
    for role in (client, worker, broker):
        role.close()


def fork_and_leave():
    """A child leaves the roles of its parent alone, whatever way it goes."""

    def check(child):
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7, status

    async def play():
        roles = await open_all_async()
        for role in roles:
            child = os.fork()
            if child == 0:
                try:
                    async with role:
                        sys.exit(7)
                except SystemExit:
                    await role.close()
                    os._exit(7)
            check(child)
        for role in reversed(roles):
            await role.close()

    if style == "asyncio":
        asyncio.run(play())
        return
    roles = open_all()
    endpoints = roles[0].endpoints
    for role in roles:
        child = os.fork()
        if child == 0:
            try:
                with role:
                    sys.exit(7)
            except SystemExit:
                role.close()
            os._exit(7 if roles[0].endpoints == endpoints else 3)
        check(child)
    feed(*roles[1:])
    for role in reversed(roles):
        role.close()


def interrupt_close():
    """Ctrl-C while a role waits for others before it ends."""
    broker, worker, client = open_all()
    future = client.submit(b"echo", b"x")
    request = worker.receive(timeout_s=20)
    for role in (broker, worker, client):
        try:
            say("waiting")
            role.close(drain_s=1000)
        except KeyboardInterrupt:
            say("interrupted")
    globals()["kept"] = future, request


def collect():
    """Garbage collection of open objects, in the middle of their traffic."""
    for _ in range(ROUNDS):
        if style == "asyncio":
            loop = asyncio.new_event_loop()
            loop.run_until_complete(open_all_async())
            loop.close()
        else:
            broker, worker, client = open_all()
            future = client.submit(b"echo", b"x")
            request = worker.receive(timeout_s=20)
            del broker, worker, client, request
            with contextlib.suppress(ClosedError):
                future.result(20)
        gc.collect()


def terminate_context():
    """The user terminates the context: the roles end, and all waits raise."""
    for number in range(ROUNDS):
        context = zmq.Context()
        endpoint = f"inproc://broker-{number}"
        broker = dcp.Broker(bind=endpoint, context=context, **capture())
        worker = dcp.Worker(b"echo", connect=endpoint, context=context, **capture())
        client = dcp.Client(connect=endpoint, context=context, **capture())
        feed(worker, client)
        future = client.submit(b"nobody", b"x")
        threading.Thread(target=context.term).start()
        for wait in (
            functools.partial(client.request, b"nobody", b"x"),
            functools.partial(future.result, 20),
            functools.partial(worker.receive, timeout_s=20),
            functools.partial(broker.wait, timeout_s=20),
        ):
            try:
                wait()
            except ClosedError as error:
                if "terminated" not in str(error):
                    raise
            else:
                sys.exit("nothing was raised")


signal.signal(signal.SIGINT, signal.default_int_handler)
globals()[ending]()
say("ended")

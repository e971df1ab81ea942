"""One way for a role to end, played in a process of its own: `endings.py ENDING STYLE DIRECTORY`."""

import asyncio
import contextlib
import functools
import gc
import logging
import os
import signal
import sys
import threading
import time
import warnings

import zmq

from peers.ended import say
from trunkline import cdtp
from trunkline.errors import ClosedError

ROUNDS = 20

ending, style, directory = sys.argv[1:]
warnings.simplefilter("ignore", ResourceWarning)
logging.getLogger("trunkline").addHandler(logging.NullHandler())
# A busy machine is no news.
logging.getLogger("asyncio").setLevel(logging.ERROR)
capture = {"capture": directory} if style == "capture" else {}


def header(sequence):
    return b"\xa5CDTP\x01\xa3Det\x00" + sequence.to_bytes(1) + b"\x80"


def open_receiver(**more):
    return cdtp.Receiver(bind="tcp://127.0.0.1:*", **capture, **more)


def feed(receiver):
    """A message has come in, so everything is running."""
    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.connect(receiver.endpoints[0])
        push.send_multipart([header(1), b"x"])
        assert receiver.receive(timeout_s=20).sequence == 1


async def open_async():
    receiver = await cdtp.AsyncReceiver(bind="tcp://127.0.0.1:*").__aenter__()
    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.connect(receiver.endpoints[0])
        push.send_multipart([header(1), b"x"])
        assert (await receiver.receive(timeout_s=20)).sequence == 1
    return receiver


def interrupt():
    """Ctrl-C in the middle of a wait; the test sends it once it reads the line."""
    if style == "asyncio":

        async def wait():
            receiver = await open_async()
            say("waiting")
            try:
                await receiver.receive()
            finally:
                await receiver.close()

        def run():
            asyncio.run(wait())

    else:

        def run():
            with open_receiver() as receiver:
                feed(receiver)
                say("waiting")
                receiver.receive()

    try:
        run()
    except KeyboardInterrupt:
        say("interrupted")


def close_in_thread():
    for _ in range(ROUNDS):
        if style == "asyncio":

            async def wait():
                receiver = await open_async()
                threading.Thread(target=receiver.stop, kwargs={"drain_s": 0}).start()
                assert [message async for message in receiver] == []
                await receiver.close()

            asyncio.run(wait())
        else:
            receiver = open_receiver()
            feed(receiver)
            closer = threading.Thread(target=receiver.close)
            closer.start()
            assert list(receiver) == []
            closer.join()


def leave():
    """The interpreter exits with everything open."""
    if style == "asyncio":
        loop = asyncio.new_event_loop()
        globals()["kept"] = loop.run_until_complete(open_async())
        loop.close()
    else:
        receiver = open_receiver()
        feed(receiver)
        sender = cdtp.Sender("Det", connect=receiver.endpoints[0])
        sender.send(b"x")
        globals()["kept"] = receiver, sender


def open_unsent():
    """A sender without a receiver; prints when it is closing: it has queued the end of its run."""

    def report_closing():
        while native.stats()["queued"] < 3:
            time.sleep(0.01)
        say("waiting")

    logging.getLogger("trunkline").addHandler(logging.StreamHandler(sys.stdout))
    if style == "asyncio":
        loop = asyncio.new_event_loop()
        sender = loop.run_until_complete(
            cdtp.AsyncSender("Det", bind="tcp://127.0.0.1:*", header="B", linger_s=100).__aenter__()
        )
        loop.run_until_complete(sender.send(b"x"))
        loop.close()
    else:
        sender = cdtp.Sender("Det", bind="tcp://127.0.0.1:*", header="B", linger_s=100, **capture)
        sender.send(b"x")
    native = sender._sender
    threading.Thread(target=report_closing, daemon=True).start()
    return sender


def interrupt_close():
    """Ctrl-C while a sender waits to get rid of its messages."""
    sender = open_unsent()
    try:
        if style == "asyncio":
            asyncio.run(sender.close())
        else:
            sender.close()
    except KeyboardInterrupt:
        say("interrupted")


def leave_unsent():
    """The interpreter exits with unsent messages, and Ctrl-C ends the wait for them."""
    globals()["kept"] = open_unsent()


def seen(roles):
    """Their endpoints and counters, but what is free on a disk that others write to."""
    counters = [{name: getattr(role.stats, name) for name in role.stats.__dataclass_fields__} for role in roles]
    return [(role.endpoints, {**counts, "free_bytes": 0}) for role, counts in zip(roles, counters, strict=True)]


def fork_and_leave():
    """A child leaves the roles of its parent alone, whatever way it goes."""
    with contextlib.ExitStack() as stack:
        roles = [
            stack.enter_context(cdtp.Sender("Det", bind="tcp://127.0.0.1:*", linger_s=0)),
            stack.enter_context(open_receiver()),
            stack.enter_context(cdtp.Recorder(f"{directory}-recorded", bind="tcp://127.0.0.1:*")),
        ]
        before = seen(roles)
        for role in roles:
            child = os.fork()
            if child == 0:
                stack.pop_all()
                try:
                    with role:
                        sys.exit(7)
                except SystemExit:
                    role.close()
                os._exit(7 if seen(roles) == before else 3)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 7, (role, status)


def fork():
    if style == "asyncio":
        loop = asyncio.new_event_loop()
        receiver = loop.run_until_complete(open_async())
        receive = receiver._receiver.poll
    else:
        receiver = open_receiver()
        feed(receiver)
        receive = functools.partial(receiver.receive, timeout_s=0)
    for _ in range(ROUNDS):
        child = os.fork()
        if child == 0:
            try:
                receive()
            except ClosedError:
                pass
            else:
                os._exit(3)
            del receive
            with cdtp.Receiver(bind="tcp://127.0.0.1:*") as another:
                feed(another)
            del receiver, another
            gc.collect()
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
    if style == "asyncio":
        loop.run_until_complete(receiver.close())
        loop.close()
    else:
        feed(receiver)
        receiver.close()


def collect():
    """Garbage collection of an open object, in the middle of its traffic."""
    for _ in range(ROUNDS):
        if style == "asyncio":
            loop = asyncio.new_event_loop()
            loop.run_until_complete(open_async())
            loop.close()
        else:
            receiver = open_receiver()
            feed(receiver)
            sender = cdtp.Sender("Det", connect=receiver.endpoints[0])
            sender.send(b"x")
            del receiver, sender
        gc.collect()
        if style == "capture":
            # The next one waits until the directory is free: the collected one ends by itself.
            capture["capture"] = f"{directory}/{_}"


def collect_socket():
    """The user lets go of the socket and the context a role works on, while it does."""
    for _ in range(ROUNDS):
        context = zmq.Context()
        socket = context.socket(zmq.PULL)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        receiver = cdtp.Receiver(socket=socket, **capture)
        del socket, context
        gc.collect()
        with zmq.Context() as other, other.socket(zmq.PUSH) as push:
            push.connect(f"tcp://127.0.0.1:{port}")
            push.send_multipart([header(1), b"x"])
            assert receiver.receive(timeout_s=20).sequence == 1
        receiver.close()
        del receiver
        gc.collect()


def collect_context():
    """As above, with a context that is shared for inproc."""
    for number in range(ROUNDS):
        context = zmq.Context()
        receiver = cdtp.Receiver(bind=f"inproc://data-{number}", context=context, **capture)
        with context.socket(zmq.PUSH) as push:
            push.connect(f"inproc://data-{number}")
            push.send_multipart([header(1), b"x"])
            assert receiver.receive(timeout_s=20).sequence == 1
        del context
        gc.collect()
        receiver.close()
        del receiver
        gc.collect()


def terminate_context():
    """The user terminates the context: the role is over, and says so."""
    for number in range(ROUNDS):
        context = zmq.Context()
        receiver = cdtp.Receiver(bind=f"inproc://data-{number}", context=context, **capture)
        threading.Thread(target=context.term).start()
        try:
            receiver.receive(timeout_s=20)
        except ClosedError as error:
            if "terminated" not in str(error):
                raise


signal.signal(signal.SIGINT, signal.default_int_handler)
globals()[ending]()
say("ended")

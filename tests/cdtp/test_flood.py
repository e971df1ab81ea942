"""A peer that sends nothing but bad messages, faster than they are reported: waits still end in time."""

import asyncio
import subprocess
import sys

import pytest

from peers.waiting import until
from trunkline import cdtp
from trunkline.errors import TimeoutError

FLOOD = "import sys, zmq; s = zmq.Context().socket(zmq.PUSH); s.connect(sys.argv[1])\nwhile True: s.send_multipart([b'bad', b''])"


@pytest.fixture
def flood():
    """Starts such a peer."""
    peers = []
    yield lambda endpoint: peers.append(subprocess.Popen([sys.executable, "-c", FLOOD, endpoint]))
    for peer in peers:
        peer.kill()
        peer.wait()


def test_a_wait_ends_in_time(flood):
    with cdtp.Receiver(bind="tcp://127.0.0.1:*") as receiver:
        flood(receiver.endpoints[0])
        while not receiver.stats.dropped:
            with pytest.raises(TimeoutError):
                receiver.receive(timeout_s=0.05)
        # Each of these met more bad messages than it could report.
        for _ in range(5):
            with pytest.raises(TimeoutError):
                receiver.receive(timeout_s=0.05)


def test_a_loop_of_asyncio_goes_on(flood):
    async def main():
        async with cdtp.AsyncReceiver(bind="tcp://127.0.0.1:*") as receiver:
            flood(receiver.endpoints[0])
            waiting = asyncio.create_task(receiver.receive())
            await asyncio.to_thread(until, lambda: receiver.stats.dropped)
            # The loop has its turn between one look at the messages and the next.
            for _ in range(5):
                await asyncio.sleep(0.01)
            assert not waiting.done()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(main())

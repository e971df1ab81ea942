"""Roles for tests of your own: the real machines, without sockets, threads or sleeping, under a clock that you advance.

```pycon
>>> from trunkline import cdtp, dcp, testing
>>> with testing.pair(dcp.Broker, dcp.Client, dcp.Worker, seed=7, latency_s=0.001, loss=0.1) as sim:
...     sim.client.request(b"echo", [b"hello"], timeout_s=1, retries=9).data
(b'hello',)
>>> with testing.pair(cdtp.Sender, cdtp.Receiver, latency_s=0.001) as sim:
...     sim.sender.send(b"hello", tags={"event": 1})
...     message = sim.receiver.receive()
...     message.payload, message.tags, sim.now_s
((b'hello',), {'event': 1}, 0.001)

```

What happens depends on nothing but the seed and your calls: a test that fails once fails every time. An exception that leaves
the ``with`` bears the seed and the time as a note.
"""

from trunkline._roles.calls import Future
from trunkline.cdt import Watch
from trunkline.testing._roles import (
    Broker,
    Client,
    Connector,
    Middleware,
    QueueClient,
    QueueServer,
    Reader,
    Receiver,
    Sender,
    Source,
    Target,
    Worker,
    Writer,
    echo,
)
from trunkline.testing._simulation import Simulation, pair
from trunkline.testing._world import Peer

__all__ = [
    "Broker",
    "Client",
    "Connector",
    "Future",
    "Middleware",
    "Peer",
    "QueueClient",
    "QueueServer",
    "Reader",
    "Receiver",
    "Sender",
    "Simulation",
    "Source",
    "Target",
    "Watch",
    "Worker",
    "Writer",
    "echo",
    "pair",
]
__dir__ = __all__.copy

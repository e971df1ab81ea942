"""DCP: clients ask services of a broker, which keeps a queue for each and gives it to workers as they become free.

```pycon
>>> from trunkline import dcp
>>> with dcp.Broker(bind="tcp://127.0.0.1:*") as broker, dcp.Worker(b"echo", connect=broker.endpoints) as worker:
...     with dcp.Client(connect=broker.endpoints) as client:
...         future = client.submit(b"echo", [b"hello"])
...         request = worker.receive(timeout_s=5)
...         request.reply(request.data)
...         future.result(timeout=5).data
(b'hello',)

```
"""

from __future__ import annotations

from trunkline._native.dcp import Message, Reply, Request, decode, encode
from trunkline._native.dcp import _restore as _restore
from trunkline.dcp.broker import AsyncBroker, Broker, BrokerStats, ServiceStats
from trunkline.dcp.client import AsyncClient, Client, ClientStats
from trunkline.dcp.worker import AsyncWorker, Worker, WorkerStats

__all__ = [
    "AsyncBroker",
    "AsyncClient",
    "AsyncWorker",
    "Broker",
    "BrokerStats",
    "Client",
    "ClientStats",
    "Message",
    "Reply",
    "Request",
    "ServiceStats",
    "Worker",
    "WorkerStats",
    "decode",
    "encode",
]
__dir__ = __all__.copy

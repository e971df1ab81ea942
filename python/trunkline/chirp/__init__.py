"""CHIRP: hosts of a group announce over UDP which services they offer, and where.

```pycon
>>> from trunkline import chirp
>>> with chirp.Beacon("lab", "Detector.one") as detector, chirp.Beacon("lab", "Viewer.one") as viewer:
...     detector.offer(chirp.Service.DATA, 23999)
...     viewer.request(chirp.Service.DATA)
...     event = next(event for event in viewer if event.kind == "offer" and event.host == detector.host)
>>> event.service, event.endpoint
(<Service.DATA: 4>, 'tcp://127.0.0.1:23999')

```
"""

from __future__ import annotations

from trunkline.chirp.beacon import AsyncBeacon, Beacon, BeaconStats, Event
from trunkline.chirp.datagram import Message, Service, decode, encode, hash_name

__all__ = [
    "AsyncBeacon",
    "Beacon",
    "BeaconStats",
    "Event",
    "Message",
    "Service",
    "decode",
    "encode",
    "hash_name",
]
__dir__ = __all__.copy

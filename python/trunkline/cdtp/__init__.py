"""CDTP: one sender streams data to one receiver over PUSH and PULL.

```pycon
>>> from trunkline import cdtp
>>> with cdtp.Sender("Detector.one", bind="tcp://127.0.0.1:*") as sender:
...     with cdtp.Receiver(connect=sender.endpoints[0]) as receiver:
...         sender.send(b"payload", tags={"run": 7})
...         message = receiver.receive(timeout_s=5)
>>> message.sender, message.tags, message.payload
('Detector.one', {'run': 7}, (b'payload',))

```
"""

from __future__ import annotations

from collections.abc import Sequence

from trunkline._native.cdtp import Batch, Message, decode, encode
from trunkline._native.cdtp import _restore as _restore
from trunkline._native.cdtp import _restore_batch as _restore_batch
from trunkline.cdtp.receiver import AsyncReceiver, Receiver, ReceiverStats, SenderCount
from trunkline.cdtp.recorder import AsyncRecorder, Recorder, RecorderStats
from trunkline.cdtp.sender import AsyncSender, Sender, SenderStats

__all__ = [
    "AsyncReceiver",
    "AsyncRecorder",
    "AsyncSender",
    "Batch",
    "Message",
    "Receiver",
    "ReceiverStats",
    "Recorder",
    "RecorderStats",
    "Sender",
    "SenderCount",
    "SenderStats",
    "decode",
    "encode",
]
__dir__ = __all__.copy

Sequence.register(Batch)

"""mc0: a topic bus. Connectors subscribe and publish; a middleware forwards messages to the subscribers of their topic."""

from __future__ import annotations

from trunkline._native.mc0 import Message, decode, encode
from trunkline._native.mc0 import _restore as _restore
from trunkline.mc0.connector import AsyncConnector, Connector, ConnectorStats
from trunkline.mc0.middleware import AsyncMiddleware, Middleware, MiddlewareStats, TopicStats

__all__ = [
    "AsyncConnector",
    "AsyncMiddleware",
    "Connector",
    "ConnectorStats",
    "Message",
    "Middleware",
    "MiddlewareStats",
    "TopicStats",
    "decode",
    "encode",
]
__dir__ = __all__.copy

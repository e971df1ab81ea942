"""mc0: a bus of topics. Connectors subscribe to topics and put messages, which the middleware passes on to subscribers."""

from __future__ import annotations

from trunkline.mc0.middleware import AsyncMiddleware, Middleware, MiddlewareStats, TopicStats

__all__ = ["AsyncMiddleware", "Middleware", "MiddlewareStats", "TopicStats"]

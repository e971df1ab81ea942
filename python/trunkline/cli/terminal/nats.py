"""The counters of a NATS server, for the panel."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

__all__ = ["NatsStats", "monitoring_lines", "nats_stats", "quoted"]

_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class Flow:
    """Messages and bytes in one direction; outgoing ones count once per client."""

    direction: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class NatsStats:
    """Counters of a NATS server."""

    received: int
    bytes: int
    clients: int
    subscriptions: int
    memory_bytes: int
    stored_bytes: int
    slow_consumers: int
    directions: Sequence[Flow]


def quoted(path: Path) -> str:
    """An absolute path as an escaped string of nats-server's configuration."""
    text = str(path.resolve()).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub("[\x00-\x1f\x7f]", lambda found: f"\\x{ord(found.group()):02X}", text) + '"'


def monitoring_lines(folder: Path) -> str:
    """The configuration of the server's monitoring, at a free local port that it writes into a folder."""
    return f'http: "127.0.0.1:-1"\nports_file_dir: {quoted(folder)}\n'


def nats_stats(folder: Path) -> NatsStats:
    """The counters of the server that has written its ports into a folder.

    Raises:
        OSError: It does not answer.
    """
    (ports,) = folder.glob("*.ports")
    where = urlsplit(json.loads(ports.read_text())["monitoring"][0])
    # Without a proxy: the server is on this machine.
    connection = http.client.HTTPConnection(str(where.hostname), where.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/varz")
        counters: dict[str, Any] = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return NatsStats(
        received=counters["in_msgs"],
        bytes=counters["in_bytes"],
        clients=counters["connections"],
        subscriptions=counters["subscriptions"],
        memory_bytes=counters["mem"],
        stored_bytes=counters["jetstream"]["stats"]["storage"],
        slow_consumers=counters["slow_consumers"],
        directions=[
            Flow("in", counters["in_msgs"], counters["in_bytes"]),
            Flow("out", counters["out_msgs"], counters["out_bytes"]),
        ],
    )

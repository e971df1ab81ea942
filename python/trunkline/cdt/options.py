"""The options of all roles of CDT."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict

from trunkline._roles.notices import Dropped
from trunkline._tls import Tls

__all__ = ["BytesEncoding", "CdtOptions", "Codec"]

Codec = Literal["json", "avro"]
BytesEncoding = Literal["base64", "latin1"]


class CdtOptions(TypedDict, total=False):
    """Options of every role of CDT.

    Attributes:
        servers: One NATS server, or several of one cluster, e.g. ``"nats://127.0.0.1:4222"``; ``"memory://NAME"`` is a NATS
            inside this process, for tests and first steps. Default: "nats://127.0.0.1:4222".
        credentials: A credentials file, as written by ``nsc``. Default: none.
        nkey_seed: The seed of an nkey. Default: none.
        user: A user name, with `password`. Default: none.
        password: The user's password. Default: none.
        token: A token. Default: none.
        tls: A `trunkline.Tls`: how to encrypt, and whom to trust. A server that encrypts must be trusted by the system without it. Default: none.
        connect_timeout_s: How long the first connection may take, in seconds; what is lost later is tried again without end. Default: 5.0.
        replica_id: The id of this replica of its service, one token of a subject; None: a random one. Default: none.
        codec: The encoding of bodies: JSON or binary Avro. It must be the same throughout a deployment. Default: "json".
        bytes_encoding: The encoding of bytes in JSON: base64, or one character per byte, as in Avro's JSON encoding. Default: "base64".
        strict: Refuse messages without a timeout, and content that is not declared as bytes. Default: True.
        protocol_token: The protocol's token in subjects. Default: "cmx2cdp".
        prefix: The prefix of all subjects. Default: "kaa.v1".
        queue: Share the requests to a service among its replicas (CDT-05); otherwise each replica receives all. Without effect for a source. Default: True.
        queue_events: Share events among the replicas of a service, so that each receives some of them. Watches and confirmations
            still see all. Default: False.
        include_own: Receive this replica's own events too. Default: False.
        include_content: Announce configurations with their content, if it fits into a message (CDT-45). Without effect for a
            source. Default: False.
        max_content_bytes: The largest content that a target stores, or a source pushes, in bytes; None: what fits into a
            message of the server. Default: none.
        clock_skew_ms: How long after its expiry a message is still accepted, in milliseconds, to allow for differing clocks. Default: 0.
        queue_messages: How many events may wait for `receive`; further ones are dropped as ``queue_full``. 0: no events are
            received.
            Default: 100,000.
        on_drop: Called with a `trunkline.Dropped`, whose frames are the reply subject, the header block and the body, and whose peer
            is the subject; in the thread ``trunkline-notices``. Default: none.
        metrics: Where to serve the counters of the role for Prometheus, over HTTP: ``"127.0.0.1:9100"``, or a port alone, which
            means 127.0.0.1; port 0 is a free one, see ``metrics_url``. ``/metrics`` has the counters, ``/healthz`` says
            whether the role serves. Anyone who can connect may read both. Needs the extra ``metrics``. Default: none.
        capture: A directory in which to record everything received and sent. Default: none.
        capture_options: Options of the capture, by their names in `trunkline.RoleOptions`: ``segment_bytes``, ``segment_s``,
            ``keep_bytes``, ``keep_days``, ``capture_private``. Default: none.

    ```pycon
    >>> from trunkline import cdt
    >>> options: cdt.CdtOptions = {"servers": "memory://options", "codec": "avro"}
    >>> with cdt.Target("cdp", **options) as target, cdt.Source("cmx", target="cdp", **options) as source:
    ...     config_id = source.push("app-1", "endpoint-7", b"{}")
    ...     target.get("app-1", "endpoint-7").content
    b'{}'

    ```
    """

    servers: str | Sequence[str]
    credentials: str | os.PathLike[str] | None
    nkey_seed: str | None
    user: str | None
    password: str | None
    token: str | None
    tls: Tls | None
    connect_timeout_s: float
    replica_id: str | None
    codec: Codec
    bytes_encoding: BytesEncoding
    strict: bool
    protocol_token: str
    prefix: str
    queue: bool
    queue_events: bool
    include_own: bool
    include_content: bool
    max_content_bytes: int | None
    clock_skew_ms: int
    queue_messages: int
    on_drop: Callable[[Dropped], object] | None
    metrics: str | None
    capture: str | os.PathLike[str] | None
    capture_options: dict[str, Any]


DEFAULTS: CdtOptions = {
    "servers": "nats://127.0.0.1:4222",
    "credentials": None,
    "nkey_seed": None,
    "user": None,
    "password": None,
    "token": None,
    "tls": None,
    "connect_timeout_s": 5.0,
    "replica_id": None,
    "codec": "json",
    "bytes_encoding": "base64",
    "strict": True,
    "protocol_token": "cmx2cdp",
    "prefix": "kaa.v1",
    "queue": True,
    "queue_events": False,
    "include_own": False,
    "include_content": False,
    "max_content_bytes": None,
    "clock_skew_ms": 0,
    "queue_messages": 100_000,
    "on_drop": None,
    "metrics": None,
    "capture": None,
    "capture_options": {},
}

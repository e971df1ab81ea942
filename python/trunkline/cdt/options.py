"""What both roles of CDT take beside what is their own."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict

from trunkline._notices import Dropped

__all__ = ["BytesEncoding", "CdtOptions", "Codec"]

Codec = Literal["json", "avro"]
BytesEncoding = Literal["base64", "latin1"]


class CdtOptions(TypedDict, total=False):
    """What every role of CDT takes.

    Attributes:
        servers: One NATS server or several of one cluster, as ``"nats://127.0.0.1:4222"``; ``"memory://NAME"`` is a NATS inside
            this process, for tests and a first try. Default: "nats://127.0.0.1:4222".
        credentials: A file of credentials, as ``nsc`` makes them. Default: none.
        nkey_seed: The seed of an nkey. Default: none.
        user: A user's name, beside `password`. Default: none.
        password: Its password. Default: none.
        token: A token. Default: none.
        tls: How to encrypt, and whom to believe. Default: none.
        replica_id: Which replica of its service this is, one token of a subject; None: a random one. Default: none.
        codec: How bodies are written: as JSON or in binary Avro. All who take part in a deployment have the same. Default: "json".
        bytes_encoding: What stands for bytes in JSON: base64, or a character a byte, as the JSON of Avro has it. Default: "base64".
        strict: Refuse messages without a timeout, and content that does not say that it is bytes. Default: True.
        protocol_token: The protocol's token in subjects. Default: "cmx2cdp".
        prefix: What all subjects begin with. Default: "kaa.v1".
        queue: Let the replicas of a service share the requests to it (CDT-05); else each has all. A source has none to share. Default: True.
        queue_events: Let the replicas of a service share the events that they hand out: each has some. Watches and confirmations
            see all the same. Default: False.
        include_own: Hand out a replica's own events as well. Default: False.
        include_content: Announce a configuration with its content, where there is room for it in a message (CDT-45). A source announces
            none. Default: False.
        max_content_bytes: The largest content that a target keeps, or a source pushes, in bytes; None: what fits into a message of the
            server. Default: none.
        clock_skew_ms: How much later than its time a message may come, in milliseconds, for clocks that differ. Default: 0.
        queue_messages: Events that may wait to be handed out; the newest are dropped beyond it, as ``queue_full``. 0: none are.
            Default: 100,000.
        on_drop: Called with a `trunkline.Dropped`, whose frames are the reply subject, the header block and the body, and whose peer
            is the subject; in the loop of the role. Default: none.
        capture: A directory to record everything in that is received and sent. Default: none.
        capture_options: More about that, by the names of `trunkline.RoleOptions`: ``segment_bytes``, ``segment_s``,
            ``keep_bytes``, ``keep_days``, ``capture_private``. Default: none.
    """

    servers: str | Sequence[str]
    credentials: str | os.PathLike[str] | None
    nkey_seed: str | None
    user: str | None
    password: str | None
    token: str | None
    tls: ssl.SSLContext | None
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
    "capture": None,
    "capture_options": {},
}

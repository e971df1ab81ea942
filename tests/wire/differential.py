"""What the package and the naive decoder say of the same bytes, in one form that can be compared."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from trunkline import DecodeError, cdtp, msgpack

sys.path.insert(0, str(Path(__file__).parents[1] / "interop"))
from naive import cdtp as naive

__all__ = ["naive", "ours", "theirs"]


def ours(frames: list[bytes], accept: tuple[str, ...], *, strict: bool) -> Any:
    """What the package says."""
    try:
        decoded = cdtp.decode(frames, accept=accept, strict=strict)
    except DecodeError as error:
        return (error.kind, error.frame, error.offset)
    messages = list(decoded) if isinstance(decoded, cdtp.Batch) else [decoded]
    return [
        {
            "variant": message.variant,
            "sender": message.sender,
            "timestamp": message.timestamp_ns,
            "type": message.type,
            "sequence": message.sequence,
            "tags": _comparable(message.tags),
            "payload": list(message.payload),
        }
        for message in messages
    ]


def theirs(frames: list[bytes], accept: tuple[str, ...], *, strict: bool) -> Any:
    """What the naive decoder says."""
    try:
        messages = naive.decode(frames, accept, strict=strict)
    except naive.DecodeFaultError as fault:
        return (fault.kind, fault.frame, fault.offset)
    for message in messages:
        stamp = message["timestamp"]
        message["timestamp"] = stamp and stamp.seconds * 10**9 + stamp.nanoseconds
        message["tags"] = _comparable(_map(message["tags"]))
    return messages


def _map(pairs: list[tuple[Any, Any]]) -> Any:
    """A dict, or the list of pairs that the package makes where a dict cannot hold a key."""
    held: dict[Any, Any] = {}
    for at, (naive_key, value) in enumerate(pairs):
        key = _value(naive_key)
        if isinstance(key, list | dict):
            return [*held.items(), (key, _value(value)), *((_value(k), _value(v)) for k, v in pairs[at + 1 :])]
        held[key] = _value(value)
    return held


def _value(value: Any) -> Any:
    if isinstance(value, naive.Timestamp):
        return msgpack.Timestamp(*value)
    if isinstance(value, naive.Ext):
        return msgpack.Ext(*value)
    if isinstance(value, naive.Pairs):
        return _map(value)
    if isinstance(value, list):
        return [_value(member) for member in value]
    return value


def _comparable(value: Any) -> str:
    """Text in which NaN is equal to itself, and 1, 1.0 and True are not equal."""
    return repr(value)

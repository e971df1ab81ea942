"""Messages of other recordings, as lines of JSON: what `capture import` reads."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

# 2023-11-14 22:13:20
AT = 1_700_000_000_000_000_000


def line(frames: Sequence[bytes], received_at_ns: int = AT, *, peer: bytes | None = None, **fields: Any) -> str:
    """A message with its other fields."""
    row = {"received_at_ns": received_at_ns, "frames": [b64encode(frame).decode() for frame in frames], **fields}
    if peer is not None:
        row["peer"] = b64encode(peer).decode()
    return json.dumps(row) + "\n"


def write(path: Path, messages: Iterable[Sequence[bytes]], *, step_ns: int = 1, **fields: Any) -> Path:
    """Writes messages so far apart, and gives the file."""
    path.write_text("".join(line(frames, AT + at * step_ns, **fields) for at, frames in enumerate(messages)))
    return path


def footer_alone(segment: bytes) -> bytes:
    """A segment whose rows are zeros: only its footer can be read."""
    footer = int.from_bytes(segment[-8:-4], "little") + 8
    return bytes(len(segment) - footer) + segment[-footer:]

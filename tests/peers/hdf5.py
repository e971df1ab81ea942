"""A run of CDTP2, and what an HDF5 file says of it: as an H5DataWriter of Constellation 1.0.2 wrote it, and as ours does."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import h5py
import msgpack

from peers.commands import batch

GOLDEN = Path(__file__).parents[1] / "data" / "h5datawriter-1.0.2.json"

_AT = msgpack.Timestamp(1_700_000_000, 5001)

CONFIG = {
    "voltage": 1.5,
    "count": 7,
    "negative": -3,
    "wide": 2**64 - 1,
    "on": True,
    "none": None,
    "text": "é",
    "empty": "",
    "ints": [1, 2],
    "floats": [1, 0.5],
    "bools": [True, False],
    "nothing": [],
    "table": [[1, 2], [3, 4]],
    "ragged": [[1], [1, 2]],
    "mask": {"rows": [1, 2], "deep": {"x": 1}},
    "emptier": {},
    "raw": b"abc",
    "since": _AT,
    "whole": msgpack.Timestamp(1_700_000_000),
    "a/b": 1,
}
METADATA = {"run_id": "run_1", "condition": "TAINTED", "condition_code": 1, "time_start": _AT, "deep": {"a": [1, None]}}

# By sender: one with all kinds of values, one with more data than a chunk has and with skipped numbers, and one without its
# last message.
MESSAGES = {
    "Det.one": [
        batch("Det.one", [0, {"firmware": "1.2"}, []], [1, CONFIG, []], kind=1),
        batch("Det.one", [1, {"dtype": "uint8", "flag": True}, [b"abc", b"", b"de"]], [2, {}, [b"\0\1"]]),
        batch("Det.one", [3, {"at": _AT, "n": 2**63}, []]),
        batch("Det.one", [0, {"note": "é"}, []], [1, METADATA, []], kind=2),
    ],
    "Det.two": [
        batch("Det.two", [0, {}, []], [1, {}, []], kind=1),
        *(batch("Det.two", *([10 * at + by, {"n": by}, [bytes([at]) * 100]] for by in (1, 2, 4))) for at in range(120)),
        batch("Det.two", [0, {}, []], [1, METADATA, []], kind=2),
    ],
    "Det.cut": [
        batch("Det.cut", [0, {}, []], [1, {}, []], kind=1),
        batch("Det.cut", [1, {}, [b"x"]]),
        batch("Det.cut", [0, {}, []], [1, {"data_records": 2}, []], kind=2),
    ],
}


def described(path: Path) -> dict[str, Any]:
    """Groups, datasets and attributes by their names; what is different each time is left out."""
    found: dict[str, Any] = {}
    with h5py.File(path) as file:
        for name in ("", *sorted(_names(file))):
            item = file[name or "/"]
            is_writer = name.startswith("H5DataWriter.")
            attributes = {key: _attribute(item.attrs, key) for key in sorted(item.attrs)}
            if is_writer:
                for key in ("constellation_version", "date_utc"):
                    attributes[key][1] = None
            entry: dict[str, Any] = {"attributes": attributes}
            if isinstance(item, h5py.Dataset):
                entry |= {"type": str(item.dtype), "grows": item.maxshape == (None,), "content": _content(item)}
            found["H5DataWriter" if is_writer else name] = entry
    return found


def _content(item: h5py.Dataset) -> str:
    """What there is, without the room behind it; of much a digest."""
    content = item[:].tobytes().rstrip(b"\0") if item.dtype == "u1" else json.dumps(item[:].tolist()).encode()
    return content.decode("latin-1") if len(content) < 500 else hashlib.sha256(content).hexdigest()


def _names(file: h5py.File) -> list[str]:
    names: list[str] = []
    file.visit(names.append)
    return names


def _attribute(attributes: h5py.AttributeManager, key: str) -> list[Any]:
    kind = attributes.get_id(key).dtype
    text = h5py.check_string_dtype(kind)
    value = attributes[key]
    return [f"text in {text.encoding}" if text else str(kind), value.tolist() if hasattr(value, "tolist") else value]


def golden() -> dict[str, Any]:
    """What the file of an H5DataWriter was."""
    found: dict[str, Any] = json.loads(GOLDEN.read_text())
    return found

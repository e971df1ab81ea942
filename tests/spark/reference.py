"""CDTP headers, packed and unpacked by msgpack: nothing here is ours."""

import io
import json
from pathlib import Path

import msgpack

DATA = Path(__file__).parent.parent / "data"
VECTORS = DATA.parent / "vectors" / "cdtp"
TYPES = {0: "DAT", 1: "BOR", 2: "EOR"}


def s(sender="d", ns=0, tags=None):
    stamp = msgpack.Timestamp(ns // 10**9, ns % 10**9)
    return _packed("CDTP\x01", sender, stamp, tags or {})


def a(sequence, tags=None, ns=0, sender="d", kind=0):
    return _packed("CDTP\x01", sender, msgpack.Timestamp(ns // 10**9, ns % 10**9), kind, sequence, tags or {})


def b(sequence, tags=None, sender="d", kind=0):
    return _packed("CDTP\x01", sender, kind, sequence, tags or {})


def two(*records, sender="d", kind=0):
    return _packed("CDTP\x02", sender, kind, list(records))


def _packed(*objects):
    return b"".join(msgpack.packb(each) for each in objects)


def rows_of(frames):
    """What a message says, a dict for each of its records."""
    header, *payload = frames
    magic, sender, *rest = msgpack.Unpacker(io.BytesIO(header), timestamp=0, strict_map_key=False)
    if magic == "CDTP\x02":
        kind, records = rest
        return [
            _row("2", sender, None, kind, sequence, tags, blocks, record)
            for record, (sequence, tags, blocks) in enumerate(records)
        ]
    stamp = rest.pop(0) if isinstance(rest[0], msgpack.Timestamp) else None
    if len(rest) == 1:
        return [_row("S", sender, stamp, None, None, rest[0], payload)]
    return [_row("B" if stamp is None else "A", sender, stamp, *rest, payload)]


def _row(variant, sender, stamp, kind, sequence, tags, payload, record=0):
    return {
        "record": record,
        "variant": variant,
        "sender": sender,
        "timestamp_ns": None if stamp is None else stamp.to_unix_nano(),
        "type": TYPES.get(kind),
        "sequence": sequence,
        "tags": variant_of(tags),
        "payload_frames": len(payload),
        "payload_bytes": sum(map(len, payload)),
        "payload": payload,
        "error": None,
    }


def variant_of(value):
    """A value of MessagePack as it is to be found in a VARIANT."""
    if isinstance(value, msgpack.Timestamp):
        return value.to_unix_nano()
    if isinstance(value, msgpack.ExtType):
        return {"ext": value.code, "data": value.data}
    if isinstance(value, list):
        return [variant_of(member) for member in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: variant_of(member) for key, member in value.items()}
        return [{"key": variant_of(key), "value": variant_of(member)} for key, member in value.items()]
    return value


def vectors():
    """Every vector there is: its frames, and the kind of its fault or None."""
    for file in sorted(VECTORS.glob("*.json")):
        for vector in json.loads(file.read_text()):
            if vector["frames"] and not vector.get("settings"):
                frames = [bytes.fromhex(frame) for frame in vector["frames"]]
                yield frames, vector.get("error", {}).get("kind")

"""Payloads into columns by a layout, beside loops of Python over the same: `python -m benches.columns.payload [--fast]`."""

from __future__ import annotations

import argparse
import io
import json
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import ormsgpack
import pyarrow as pa

from benches.measure import Case, calls, machine, write
from trunkline import capture, cdtp, columns

# The payloads as they are.
FRAMES = True

HEADER = b"\xa5CDTP\x01\xacDetector.one\xd7\xff\x1d\x6f\x34\x54\x65\x53\xf1\x00\x80"

# Eight fields without padding between them.
FIELDS = "t u64, channel u16, flags u8, gain f32, charge f64, x i32, y i32, on bool"
STRUCT = struct.Struct("<QHBfdii?")
DTYPE = np.dtype("<u8,<u2,u1,<f4,<f8,<i4,<i4,?")

RECORD = {"run": 7, "temperature": 21.5, "name": "sensor", "on": True, "count": 123_456, "level": 0.25}
KINDS = {
    "run": "bigint",
    "temperature": "double",
    "name": "string",
    "on": "boolean",
    "count": "bigint",
    "level": "double",
}
AVRO = {"bigint": "long", "double": "double", "string": "string", "boolean": "boolean"}
SCHEMA = {
    "type": "record",
    "name": "Sensor",
    "fields": [{"name": name, "type": AVRO[kind]} for name, kind in KINDS.items()],
}


def frames(payload: bytes, rows: int) -> dict[str, pa.Array]:
    """Columns of frames in memory, as a capture has them."""
    payloads = pa.array([[payload]] * rows, pa.list_(pa.binary()))
    return {"header": pa.array([HEADER] * rows, pa.binary()), "payload": payloads}


def ours(layout: str | None, given: dict[str, pa.Array], only: list[str] | None = None) -> Callable[[], object]:
    """Decodes them, to the columns of the layout alone unless they are frames."""
    decoder = columns.Decoder("cdtp", tags=None, payload=True if layout is None else layout)
    only = only if layout is None else list(columns.Layout(layout).columns)
    return lambda: [batch for _, batch in decoder.decode_rows(**given, only=only)]


def of_rows(cases: dict[str, Callable[[], object]], rows: int, *, count: int, rounds: int) -> list[Case]:
    """Each case, over so many rows at a time."""
    done = calls(cases, count=count, rounds=rounds)
    return [Case(case.name, [rate * rows for rate in case.rates], [cpu / rows for cpu in case.cpu_us]) for case in done]


def waveforms(size: int, rows: int) -> dict[str, Callable[[], object]]:
    """Samples of 16 bits."""
    given = frames(bytes(range(256)) * (size // 256) if size >= 256 else bytes(size), rows)
    payload = given["payload"]

    def by_numpy() -> object:
        return pa.array([np.frombuffer(row[0].as_buffer(), "<u2") for row in payload], pa.list_(pa.uint16()))

    assert ours("adc u16[]", given)()[0]["payload_adc"].equals(by_numpy())  # type: ignore[index]
    return {
        "np.frombuffer and pa.array": by_numpy,
        "payload=True": ours(None, given, ["payload"]),
        'payload="adc u16[]"': ours("adc u16[]", given),
    }


def structs(rows: int) -> dict[str, Callable[[], object]]:
    """A packed struct of eight fields."""
    given = frames(STRUCT.pack(1, 2, 3, 0.5, 1.5, -1, -2, 1), rows)
    payload = given["payload"]
    bodies = [row[0].as_py() for row in payload]

    def by_struct() -> object:
        return [pa.array(column) for column in zip(*map(STRUCT.unpack, bodies), strict=True)]

    def by_numpy() -> object:
        found = np.concatenate([np.frombuffer(body, DTYPE) for body in bodies])
        return [pa.array(found[name]) for name in DTYPE.names or ()]

    return {
        "struct.unpack and pa.array": by_struct,
        "np.frombuffer of a structured dtype and pa.array": by_numpy,
        "payload= of eight fields": ours(FIELDS, given),
    }


def maps(rows: int) -> dict[str, Callable[[], object]]:
    """MessagePack of six fields."""
    body = ormsgpack.packb(RECORD)
    layout = "msgpack: " + ", ".join(f"{name} {kind}" for name, kind in KINDS.items())

    def by_ormsgpack() -> object:
        return pa.RecordBatch.from_pylist([ormsgpack.unpackb(each) for each in [body] * rows])

    return {"ormsgpack and pa.array": by_ormsgpack, 'payload="msgpack: …"': ours(layout, frames(body, rows))}


def records(rows: int) -> dict[str, Callable[[], object]]:
    """Avro of six fields."""
    out = io.BytesIO()
    schema = fastavro.parse_schema(SCHEMA)
    fastavro.schemaless_writer(out, schema, RECORD)
    body = out.getvalue()

    def by_fastavro() -> object:
        found = [fastavro.schemaless_reader(io.BytesIO(each), schema, None) for each in [body] * rows]
        return pa.RecordBatch.from_pylist(found)

    return {
        "fastavro and pa.array": by_fastavro,
        'payload="avro: …"': ours(f"avro: {json.dumps(SCHEMA)}", frames(body, rows)),
    }


def captured(folder: Path, rows: int) -> dict[str, Callable[[], object]]:
    """Samples of 16 bits in a capture, 4 KiB a message."""
    with cdtp.Recorder(folder / "run", bind="tcp://127.0.0.1:*") as recorder:
        with cdtp.Sender("Detector.one", header="B", connect=recorder.endpoints[0]) as sender:
            for _ in range(rows):
                sender.send(bytes(range(256)) * 16)
        recorder.wait(count=rows, timeout_s=60)
    run = capture.open(folder / "run")

    def reading(payload: Any, *names: str) -> Callable[[], object]:
        return lambda: sum(batch.num_rows for batch in run.decode("cdtp", payload=payload, columns=names))

    return {
        "without payloads": reading("adc u16[]", "sequence"),
        "payload=True": reading(FRAMES, "sequence", "payload"),
        'payload="adc u16[]"': reading("adc u16[]", "sequence", "payload_adc"),
    }


def main(*, fast: bool) -> None:
    """Runs the cases in turn, several rounds, and writes what came out."""
    rows, count, rounds = (200, 1, 1) if fast else (10_000, 10, 7)
    head = machine()
    with tempfile.TemporaryDirectory() as folder:
        groups = [
            ("u16[] of 4 KiB, in memory", waveforms(4096, rows), "np.frombuffer and pa.array"),
            ("u16[] of 64 B, in memory", waveforms(64, rows), "np.frombuffer and pa.array"),
            ("A packed struct of eight fields", structs(rows), "struct.unpack and pa.array"),
            ("MessagePack of six fields", maps(rows), "ormsgpack and pa.array"),
            ("Avro of six fields", records(rows), "fastavro and pa.array"),
            ("u16[] of 4 KiB, in a capture", captured(Path(folder), rows), "payload=True"),
        ]
        tables = [
            (name, of_rows(cases, rows, count=count, rounds=rounds), baseline) for name, cases, baseline in groups
        ]
    if not fast:
        method = f"Batches of {rows:,} messages, one core, {rounds} rounds of {count} batches; medians (min-max)."
        write("payload", "Payloads into columns", method, tables, head)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    main(fast=parser.parse_args().fast)

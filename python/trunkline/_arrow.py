"""Arrow record batches as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["from_bytes", "to_bytes"]


def to_bytes(rows: pa.RecordBatch | pa.Table) -> bytes:
    """Rows as an Arrow IPC stream with its schema."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes | pa.Buffer) -> list[pa.RecordBatch]:
    """The rows of an Arrow IPC stream."""
    import pyarrow as pa

    return list(pa.ipc.open_stream(data))

"""The function that Spark's workers run for a pandas UDF: in its own module, as pandas is slow to import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pandas as pd  # type: ignore[import-untyped]  # its types are a package of their own
import pyarrow as pa

if TYPE_CHECKING:
    from trunkline.columns import Decoder

__all__ = ["frames_of"]

_FRAMES = pa.list_(pa.binary())
_TYPES = {
    "envelope": _FRAMES,
    "header": pa.binary(),
    "payload": _FRAMES,
    "n_frames": pa.int64(),
    "n_bytes": pa.int64(),
    "topic": pa.string(),
}


def frames_of(decoder: Decoder, names: Sequence[str]) -> Callable[..., pd.DataFrame]:
    """A function for `pandas_udf`: decodes columns of frames, called `names`, into a data frame."""

    def decode(*columns: pd.Series) -> pd.DataFrame:
        arrays = {
            name: pa.array(column, _TYPES[name], from_pandas=True) for name, column in zip(names, columns, strict=True)
        }
        decoded = pa.RecordBatch.from_struct_array(decoder.decode_structs(**arrays))
        # Arrow types: pandas would turn a column of integers with a null into floats.
        frame = decoded.to_pandas(types_mapper=pd.ArrowDtype)
        # Spark reads nested values as objects, and supports None but not pandas' NA.
        for field in decoded.schema:
            if pa.types.is_nested(field.type):
                values = decoded[field.name].to_pylist()
                if pa.types.is_map(field.type):
                    values = [None if pairs is None else dict(pairs) for pairs in values]
                frame[field.name] = pd.Series(values, index=frame.index, dtype=object)
        return frame

    decode.__name__ = decoder.protocol.name
    return decode

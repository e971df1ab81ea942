"""The function that Spark's workers run for a pandas UDF: apart from the others, as pandas is slow to import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pandas as pd  # type: ignore[import-untyped]  # its types are a package of their own
import pyarrow as pa

if TYPE_CHECKING:
    from trunkline._decoding import Decoding

__all__ = ["frames_of"]


def frames_of(decoding: Decoding, names: Sequence[str]) -> Callable[..., pd.DataFrame]:
    """A function for `pandas_udf`: columns of frames, called `names`, to a data frame of what they say."""

    def cdtp(*columns: pd.Series) -> pd.DataFrame:
        arrays = {
            name: pa.array(column, pa.binary() if name == "header" else pa.int64(), from_pandas=True)
            for name, column in zip(names, columns, strict=True)
        }
        decoded = pa.RecordBatch.from_struct_array(decoding.native().decode_structs(**arrays))
        # Arrow's own types: as one of pandas', a column of integers with a null would be one of floats.
        frame = decoded.to_pandas(types_mapper=pd.ArrowDtype)
        # Spark reads what is nested object by object, and knows None but not pandas' NA.
        frame["records"] = pd.Series(decoded["records"].to_pylist(), index=frame.index, dtype=object)
        return frame

    return cdtp

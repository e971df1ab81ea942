"""What the functions of columns are made of, for any protocol."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trunkline.columns import BESIDE, Decoder, structs_of
from trunkline.errors import LocalProtocolError
from trunkline.spark._lazy import F
from trunkline.spark.columns import as_columns, sent

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

__all__ = ["FRAMES", "encoding", "structs", "structs_by_pandas", "written"]

# The columns of frames of a capture.
FRAMES = ("envelope", "header", "payload")


def structs(decoder: Decoder, given: Mapping[str, Column | str | None]) -> Column:
    """Columns of frames, decoded into a column of structs."""
    from pyspark.sql.pandas.functions import arrow_udf

    named = _sent(decoder, as_columns(given))
    # pyspark's types lack functions of several columns.
    make: Any = arrow_udf
    function = make(structs_of(decoder, list(named)), decoder.struct_ddl())
    # Spark may evaluate a deterministic function again for each use of its fields.
    decoded: Column = function.asNondeterministic()(*named.values())
    return decoded


def _sent(decoder: Decoder, columns: Mapping[str, Column]) -> dict[str, Column]:
    wanted = set(decoder.struct_schema().names)
    if "payload" not in columns:
        # A header has the payload of CDTP2 in itself.
        wanted -= {name for needed, _, names in decoder.inputs if needed == "payload" for name in names}
    return sent(decoder, columns, wanted)


def structs_by_pandas(decoder: Decoder, given: Mapping[str, Column | str | None]) -> Column:
    """The same by way of pandas."""
    from pyspark.sql.pandas.functions import pandas_udf

    from trunkline.spark._pandas_workers import frames_of

    if "VARIANT" in decoder.struct_ddl():
        message = 'a pandas UDF takes typed tags and properties, e.g. {"run": "bigint"}, or "json": for "variant" use the function of `spark`'
        raise LocalProtocolError(message)
    columns = as_columns(given)
    named = _sent(decoder, columns)
    # pyspark's types lack functions of several columns.
    make: Any = pandas_udf
    function = make(frames_of(decoder, list(named)), decoder.struct_ddl())
    decoded = function.asNondeterministic()(*named.values())
    # A pandas UDF cannot return a null struct.
    is_there = [columns[name].isNotNull() for name in named if name not in BESIDE]
    return F.when(functools.reduce(operator.or_, is_there), decoded)


def written(decoder: Decoder, message: Column | str) -> Column:
    """A column of structs, encoded into a column of frames."""
    from pyspark.sql.pandas.functions import arrow_udf

    [column] = as_columns({"message": message}).values()
    # pyspark's types lack functions of structs.
    make: Any = arrow_udf
    frames: Column = make(encoding(decoder), Decoder.frames_ddl())(column)
    return frames


def encoding(decoder: Decoder) -> Callable[[pa.Array], pa.Array]:
    """A function for `arrow_udf`: a column of structs to one of frames."""
    import pyarrow as pa

    def encode(message: pa.Array) -> pa.Array:
        return decoder.encode_structs(message)

    # Spark inspects the annotations as objects, so they must not be strings.
    encode.__annotations__ = {"message": pa.Array, "return": pa.Array}
    encode.__name__ = f"to_{decoder.protocol.name}"
    return encode

"""Functions of SQL that decode recorded frames, and encode them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trunkline._arguments import refuse
from trunkline._protocols import rooms
from trunkline.columns import Decoder, structs_of
from trunkline.errors import LocalProtocolError
from trunkline.spark._faces import encoding
from trunkline.spark._missing import needs_extra

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["register"]

# What each protocol has in Spark.
_ROOMS = dict(rooms(__package__))


@needs_extra
def register(session: SparkSession, **options: Mapping[str, Any]) -> None:
    """Registers functions of SQL that do what the column functions do, under their names.

    They are `from_cdtp(header[, n_frames[, n_bytes[, payload]]])`, `from_dcp(envelope, header, payload)`, `from_mc0(envelope, header,
    payload)`, `from_mtl(envelope, header, payload[, topic])` and `from_cdt(body, topic)`, and `to_cdtp(message)` to `to_cdt(message)`,
    which take such a struct, until the session ends; each gives a struct, as its column function does. All frames that they are given pass through Python. As functions of SQL take no options,
    those are chosen here; to have others under the same name, register again.

    Args:
        session: The session whose `sql` is to know them; with Spark Connect too.
        **options: Options of decoding by protocol, e.g. ``cdtp={"tags": {"run": "bigint"}}``: see `trunkline.columns.CdtpOptions`
            and those of the others.

    Raises:
        LocalProtocolError: There is no such protocol, or it has no such option.

    ```python
    from trunkline import spark

    session = spark.session()
    spark.register(session, cdtp={"tags": {"run": "bigint"}})
    session.read.parquet("runs/").createOrReplaceTempView("rows")
    session.sql("select d.sender, d.tag_run from (select from_cdtp(header, n_frames) as d from rows)").show()
    ```
    """
    from pyspark.sql.pandas.functions import arrow_udf

    if not hasattr(session, "udf"):
        refuse("session", "a Spark session", session)
    unknown = sorted(options.keys() - _ROOMS.keys())
    if unknown:
        message = f"{unknown[0]} cannot be decoded: choose from {', '.join(_ROOMS)}"
        raise LocalProtocolError(message)
    # pyspark's types lack functions of several columns.
    make: Any = arrow_udf
    for protocol, room in _ROOMS.items():
        decoder = Decoder(protocol, types="spark", **options.get(protocol, {}))
        function = make(_decoding(decoder, room.ARGUMENTS, room.REQUIRED), decoder.struct_ddl())
        session.udf.register(f"from_{protocol}", function.asNondeterministic())
        session.udf.register(f"to_{protocol}", make(encoding(decoder), Decoder.frames_ddl()))


def _decoding(decoder: Decoder, names: Sequence[str], least: int) -> Callable[..., pa.Array]:
    """A function for `arrow_udf` that takes the first of the columns `names`, at least `least`."""
    import pyarrow as pa

    def decode(*columns: pa.Array) -> pa.Array:
        if not least <= len(columns) <= len(names):
            message = f"from_{decoder.protocol.name} takes {', '.join(names)}, not {len(columns)} columns"
            raise LocalProtocolError(message)
        given = dict(zip(names, columns, strict=False))
        if "body" in given:
            given = _one_frame(given["body"]) | {"topic": given["topic"]}
        return structs_of(decoder, list(given))(*given.values())

    decode.__annotations__ = {"columns": pa.Array, "return": pa.Array}
    decode.__name__ = f"from_{decoder.protocol.name}"
    return decode


def _one_frame(body: pa.Array) -> dict[str, pa.Array]:
    """Messages that are one frame each."""
    import pyarrow as pa

    missing, ends = body.is_null(), pa.array(range(len(body) + 1), pa.int32())
    nothing = pa.array([0] * (len(body) + 1), pa.int32())
    return {
        "envelope": pa.ListArray.from_arrays(nothing, pa.array([], pa.binary()), mask=missing),
        "header": pa.nulls(len(body), pa.binary()),
        "payload": pa.ListArray.from_arrays(ends, body.cast(pa.binary()), mask=missing),
    }


class _NoFunctionOfValues:
    """A stand-in for the evaluation type of a function, for one that takes and returns columns."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __eq__(self, other: object) -> bool:
        message = (
            f"{self._name} is a function of columns, which Spark cannot register: use spark.register(session) for SQL"
        )
        raise LocalProtocolError(message)

    def __hash__(self) -> int:
        return hash(self._name)


for _name, _room in _ROOMS.items():
    for _function in (getattr(_room, f"from_{_name}"), getattr(_room, f"to_{_name}"), getattr(_room, _name)):
        # `session.udf.register` takes an object with the first attribute for a UDF, and reads the second.
        vars(_function)["asNondeterministic"] = None
        vars(_function)["evalType"] = _NoFunctionOfValues(_function.__name__)

"""Encodes columns of messages into columns of frames: the inverse of `from_cdtp` and the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from trunkline.columns import Decoder
from trunkline.spark._missing import needs_extra
from trunkline.spark.columns import as_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

__all__ = ["encoding", "to_cdt", "to_cdtp", "to_dcp", "to_mc0", "to_mtl"]


@needs_extra
def to_cdtp(message: Column | str) -> Column:
    """Encodes a column of structs as `from_cdtp` gives them into a column of CDTP frames.

    It gives a struct of `envelope` (no frame), `header` and `payload`, as a capture has them. Headers are in the fewest bytes, their tags
    in byte order. `payload` is the field `payload` of the struct, an array of binary, where it has one, and else null: a header
    does not say it. Blocks of a CDTP2 message, which `from_cdtp` leaves out, are zeros, as many and of as many bytes in all.

    What was no message becomes what it was, by its `_corrupt_record`; a struct that has an `error` and no such record becomes null, and so
    does null. It runs on `arrow_udf`.

    Args:
        message: Structs with the fields of `from_cdtp`; `tags` as a VARIANT, and those that have a field of their own, `tag_<name>`.

    Raises:
        LocalProtocolError: An extra is not installed. A field that is missing or wrong ends the query, with its row and name.
    """
    return _written(Decoder("cdtp"), message)


@needs_extra
def to_dcp(message: Column | str) -> Column:
    """Encodes a column of structs as `from_dcp` gives them into a column of DCP frames.

    It gives a struct of `envelope` (the empty frame), `header` and `payload`; the remarks on `to_cdtp` apply.

    Args:
        message: Structs with the fields of `from_dcp`, with `data` where a message has any.

    Raises:
        LocalProtocolError: An extra is not installed.
    """
    return _written(Decoder("dcp"), message)


@needs_extra
def to_mc0(message: Column | str) -> Column:
    """Encodes a column of structs as `from_mc0` gives them into a column of mc0 frames.

    It gives a struct of `envelope` (the empty frame), `header` (the verb) and `payload`: the headers ``TOPIC``, ``ID``, ``VERSION``,
    ``TTL`` and ``MESSAGE``, as far as they are said, those that begin with ``X-`` in byte order, and the topics or the body. The remarks
    on `to_cdtp` apply.

    Args:
        message: Structs with the fields of `from_mc0`, with `body` where a message has one.

    Raises:
        LocalProtocolError: An extra is not installed.
    """
    return _written(Decoder("mc0"), message)


@needs_extra
def to_mtl(message: Column | str) -> Column:
    """Encodes a column of structs as `from_mtl` gives them into a column of MTL frames.

    It gives a struct of `envelope` (the empty frame before a command or a reply), `header` and `payload`. JSON is compact, its keys and
    properties in byte order. Numbers among properties take four bytes, or eight where they have to. A lease is what a recording has
    in its place. The remarks on `to_cdtp` apply.

    Args:
        message: Structs with the fields of `from_mtl`, with `body` where a content has one; `properties` and `json` as VARIANTs, and those
            that have a field of their own, `property_<name>` and `json_<name>`.

    Raises:
        LocalProtocolError: An extra is not installed.
    """
    return _written(Decoder("mtl"), message)


@needs_extra
def to_cdt(
    message: Column | str,
    *,
    codec: Literal["json", "avro"] = "json",
    bytes_encoding: Literal["base64", "latin1"] = "base64",
) -> Column:
    """Encodes a column of structs as `from_cdt` gives them into a column of CDT bodies.

    It gives a struct of `envelope` and `header`, which CDT does not have, and `payload`, the body alone. JSON is compact, its members in the
    order of the schema; the time of an event is its `timestamp_ms`. What is of no kind becomes null. The remarks on `to_cdtp` apply.

    Args:
        message: Structs with the fields of `from_cdt`, with `content` where a message has one.
        codec: The encoding of bodies.
        bytes_encoding: The encoding of bytes in JSON.

    Raises:
        LocalProtocolError: An extra is not installed.
        ValueError: There is no such codec or encoding.
    """
    return _written(Decoder("cdt", codec=codec, bytes_encoding=bytes_encoding), message)


def _written(decoder: Decoder, message: Column | str) -> Column:
    from pyspark.sql.pandas.functions import arrow_udf

    [column] = as_columns({"message": message}).values()
    # pyspark's types lack functions of structs.
    make: Any = arrow_udf
    written: Column = make(encoding(decoder), Decoder.frames_ddl())(column)
    return written


def encoding(decoder: Decoder) -> Callable[[pa.Array], pa.Array]:
    """A function for `arrow_udf`: a column of structs to one of frames."""
    import pyarrow as pa

    def encode(message: pa.Array) -> pa.Array:
        return decoder.encode_structs(message)

    # Spark inspects the annotations as objects, so they must not be strings.
    encode.__annotations__ = {"message": pa.Array, "return": pa.Array}
    encode.__name__ = f"to_{decoder.protocol.name}"
    return encode

"""MessagePack between bytes and Python's own objects."""

from typing import Any

from trunkline._frames import Bytes

__all__ = ["decode", "encode"]

def decode(data: Bytes) -> Any:
    """The object in these bytes.

    Raises:
        DecodeError: They are not exactly one MessagePack object.
    """

def encode(value: Any) -> bytes:
    """An object in the fewest bytes. What has an ``__index__`` is an integer; bools, integers and floats of NumPy are taken as
    Python's.

    Raises:
        TypeError: MessagePack has nothing for it, or not without a loss: a Decimal, a longer float, an array.
        OverflowError: It is an integer of more than 64 bits.
        ValueError: It is nested too deeply.
    """

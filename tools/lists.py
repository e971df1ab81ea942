"""The lists of protocols in the package that type checkers have to read as code: exports, unions and overloads.

Each is a part of its file, between two comments. Run: python tools/lists.py writes them anew.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from trunkline._protocols import PROTOCOLS, RECORDED, Protocol, rooms

PACKAGE = Path(__file__).parents[1] / "python" / "trunkline"

_PART = re.compile(
    r"^( *# Of all protocols, written by tools/lists\.py\.\n).*?^( *# End of what tools/lists\.py writes\.\n)",
    re.MULTILINE | re.DOTALL,
)


def _package() -> Iterator[str]:
    """The rooms."""
    names = [protocol.name for protocol in PROTOCOLS]
    yield f"if TYPE_CHECKING:\n    from trunkline import {_joined(names)}\n\n{_listed(names)}"


def _report() -> Iterator[str]:
    """Sections, and what is in them."""
    yield _exports("trunkline.report")


def _spark() -> Iterator[str]:
    """Column functions, and the sections of reports."""
    sections = ["Report", *(name for _, room in rooms("trunkline.report") for name in room.__all__)]
    late = f"if TYPE_CHECKING:\n    from trunkline.report import {_joined(sections)}"
    yield f"{_exports('trunkline.spark')}\n\n{late}\n\n{_listed(sections)}"


def _pandas_udfs() -> Iterator[str]:
    names = sorted(protocol.name for protocol in RECORDED)
    imports = "\n".join(f"from trunkline.spark.{name} import {name}" for name in names)
    yield f"{imports}\n\n__all__ = {names}"


def _reading() -> Iterator[str]:
    """Messages, and how they are read."""
    union = " | ".join(f"{protocol.name}.{name}" for protocol in RECORDED for name in protocol.messages)
    yield f"from trunkline._native import {_joined(protocol.name for protocol in RECORDED)}\n{_options()}\n\nAnyMessage: TypeAlias = {union}"
    yield "\n\n".join(
        f'@overload\ndef messages(self, protocol: Literal["{protocol.name}"]) -> Iterator[{_union(protocol)}]: ...'
        for protocol in RECORDED
    )
    yield _overloads("self, ", "selection: Selection | None = ..., ", "pa.RecordBatchReader")


def _columns() -> Iterator[str]:
    """Decoding in Spark."""
    yield _options()
    yield _overloads("df: DataFrame, ", "", "DataFrame")


# What is written in each file.
FILES: dict[str, Callable[[], Iterable[str]]] = {
    "__init__.py": _package,
    "capture/reading.py": _reading,
    "report/__init__.py": _report,
    "spark/__init__.py": _spark,
    "spark/columns.py": _columns,
    "spark/pandas_udfs.py": _pandas_udfs,
}


def _joined(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _listed(names: Iterable[str]) -> str:
    return f"__all__ += {sorted(names)}"


def _exports(package: str) -> str:
    """What the modules of protocols in a package export, as exports of that."""
    found = {name: room.__all__ for name, room in sorted(rooms(package))}
    imports = "\n".join(f"from {package}.{name} import {_joined(names)}" for name, names in found.items())
    return f"{imports}\n\n{_listed(name for names in found.values() for name in names)}"


def _options() -> str:
    return f"if TYPE_CHECKING:\n    from trunkline.columns import {_joined(f'{protocol.prefix}Options' for protocol in RECORDED)}"


def _union(protocol: Protocol) -> str:
    return " | ".join(f"{protocol.name}.{name}" for name in protocol.messages)


def _overloads(first: str, more: str, result: str) -> str:
    """The overloads of `decode`, of which the first protocol is the default."""
    return "\n\n".join(
        f'@overload\ndef decode({first}protocol: Literal["{protocol.name}"]{"" if at else f" = {protocol.name!r}"}, *, '
        f"mode: Mode = ..., {more}columns: Sequence[str] | None = ..., **options: Unpack[{protocol.prefix}Options]) -> {result}: ..."
        for at, protocol in enumerate(RECORDED)
    )


def text(name: str) -> str:
    """A file with its lists, as it is to be."""
    before = (PACKAGE / name).read_text()
    parts = iter(list(FILES[name]()))

    def written(found: re.Match[str]) -> str:
        indent = " " * (len(found[1]) - len(found[1].lstrip()))
        lines = next(parts).splitlines()
        return found[1] + "".join(f"{indent}{line}".rstrip() + "\n" for line in lines) + found[2]

    after = _PART.sub(written, before)
    if next(parts, None) is not None:
        message = f"{name} has too few places for lists"
        raise ValueError(message)
    for command in (("check", "--fix-only", "--select=I"), ("format",)):
        whole = ["ruff", *command, "--quiet", f"--stdin-filename={PACKAGE / name}", "-"]
        after = subprocess.run(whole, input=after, capture_output=True, text=True, check=True).stdout
    return after


if __name__ == "__main__":
    for name in FILES:
        (PACKAGE / name).write_text(text(name))

"""The tables of the options that roles take, with their defaults, made from signatures and docstrings."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from griffe import Docstring, DocstringSectionKind, Parser

from trunkline import _protocols
from trunkline.cdt.options import CdtOptions
from trunkline.options import DEFAULTS, RoleOptions, SocketOptions

_SAID = re.compile(r"\s*Default: .*$", re.DOTALL)
_BINARY = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class Role(_protocols.Role):
    """A role, by its options."""

    __slots__ = ()

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """What it takes."""
        return inspect.signature(self.kind).parameters

    @property
    def own(self) -> list[inspect.Parameter]:
        """What it takes that is not shared by all roles of its kind."""
        return [each for name, each in self.parameters.items() if name not in self.shared]

    @property
    def shared(self) -> Mapping[str, object]:
        """What it may share with others."""
        return CdtOptions.__annotations__ if self.protocol == "cdt" else DEFAULTS

    @property
    def lacks(self) -> list[str]:
        """What others take and it does not."""
        return [name for name in self.shared if name not in self.parameters]


def roles() -> Iterator[Role]:
    """All there are."""
    for role in _protocols.ROLES:
        yield Role(*role)


def tables() -> str:
    """All of them, in Markdown."""
    recorded = {name: kind for name, kind in RoleOptions.__annotations__.items() if name not in _names(SocketOptions)}
    lines = ["## Sockets and queues", "", *_shared(SocketOptions, SocketOptions.__annotations__), ""]
    lines += ["## Recording", "", *_shared(RoleOptions, recorded), ""]
    lines += ["## Which role takes which", "", "| role | takes all of these but |", "|---|---|"]
    for role in roles():
        if role.protocol not in {"cdt", "chirp"}:
            lacks = ", ".join(f"`{name}`" for name in role.lacks) or "nothing"
            lines.append(f"| {_link(role)} | {lacks} |")
    lines += ["", "## Every role of CDT", "", *_cdt(), "", "## Options of its own", ""]
    for role in roles():
        if role.own:
            said = _described(role.kind, DocstringSectionKind.parameters)
            rows = [_row(each.name, each.annotation, _default(each), said[each.name]) for each in role.own]
            lines += [f"### {role.protocol}.{role.name}", "", _link(role), "", *_head(), *rows, ""]
    return "\n".join(lines)


def _names(options: type[Any]) -> Iterable[str]:
    return options.__annotations__


def _link(role: Role) -> str:
    return f"[`trunkline.{role.protocol}.{role.name}`]({role.protocol}.md)"


def _head() -> list[str]:
    return ["| option | type | default | meaning |", "|---|---|---|---|"]


def _shared(options: type[Any], kinds: Mapping[str, Any]) -> Iterator[str]:
    said = _described(options, DocstringSectionKind.attributes)
    yield from _head()
    for name, kind in kinds.items():
        yield _row(name, kind, _shown(name, DEFAULTS[name]), said[name])  # type: ignore[literal-required]


def _cdt() -> Iterator[str]:
    said = _described(CdtOptions, DocstringSectionKind.attributes)
    target = inspect.signature(importlib.import_module("trunkline.cdt").Target).parameters
    yield from _head()
    for name, kind in CdtOptions.__annotations__.items():
        yield _row(name, kind, _default(target[name]), said[name])


def _described(kind: type[Any], section: DocstringSectionKind) -> dict[str, str]:
    """What a docstring says of each name."""
    for found in Docstring(inspect.getdoc(kind) or "").parse(Parser.google, warnings=False):
        if found.kind is section:
            return {each.name: each.description for each in found.value}
    message = f"{kind} says nothing of its {section.value}"
    raise ValueError(message)


def _row(name: str, kind: Any, default: str, meaning: str) -> str:
    written = kind if isinstance(kind, str) else getattr(kind, "__forward_arg__", str(kind))
    cells = [f"<code>{_html(name)}</code>", f"<code>{_html(written)}</code>", default, _SAID.sub("", _joined(meaning))]
    return "| " + " | ".join(cells) + " |"


def _joined(text: str) -> str:
    """Lines as one; a bar in it ends no cell."""
    return " ".join(text.split()).replace("|", "&#124;")


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")


def _default(parameter: inspect.Parameter) -> str:
    return "required" if parameter.default is parameter.empty else _shown(parameter.name, parameter.default)


def _shown(name: str, value: Any) -> str:
    if value in ((), {}):
        return "none"
    if "bytes" in name and isinstance(value, int):
        for size, unit in _BINARY:
            if value and not value % size:
                return f"{value // size} {unit}"
    return f"`{value!r}`" if not isinstance(value, int) or isinstance(value, bool) else f"{value:,}"

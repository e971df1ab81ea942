"""The texts that reach an exception or a logger in Python, read from the syntax trees of the package.

Left out are exceptions that Python asks for and those that their own function catches.
"""

from __future__ import annotations

import ast
import builtins
import functools
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from trunkline import errors

ROOT = Path(__file__).parents[1]
# In place of what varies.
GAP = "…"

_INTERNAL = AssertionError | AttributeError | NotImplementedError | StopIteration | StopAsyncIteration
_LEVELS = {"info": "INFO", "warning": "WARNING", "error": "ERROR", "exception": "ERROR", "critical": "CRITICAL"}
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_ASSIGNMENTS = ast.Assign | ast.AnnAssign | ast.NamedExpr


class Text(NamedTuple):
    """A text, what raises or logs it, and the file it is in."""

    text: str
    raised: str
    place: str


@functools.cache
def words(text: str) -> list[str]:
    """The words of a text that do not vary."""
    return re.findall(r"[A-Za-z][\w'-]+(?![\w'-]*…)", text.replace(GAP, f" {GAP} "))


def is_shown(name: str) -> bool:
    """Whether a user may get an exception of this name."""
    kind = getattr(builtins, name, None)
    is_builtin = isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, _INTERNAL)
    return name in errors.__all__ or name == "BadParameter" or is_builtin


def read() -> Iterator[Text]:
    """All of the package."""
    for file in sorted((ROOT / "python").rglob("*.py")):
        yield from _Module(file).texts()


class _Module:
    def __init__(self, file: Path) -> None:
        self._place = str(file.relative_to(ROOT))
        self._tree = ast.parse(file.read_text())
        self._outer = {child: node for node in ast.walk(self._tree) for child in ast.iter_child_nodes(node)}
        self._functions = {node.name: node for node in ast.walk(self._tree) if isinstance(node, _FUNCTIONS)}
        self._own = {  # exceptions that are made here of public ones
            node.name: base.id
            for node in ast.walk(self._tree)
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
            for base in node.bases
            if isinstance(base, ast.Name) and base.id in errors.__all__
        }

    def texts(self) -> Iterator[Text]:
        for call in ast.walk(self._tree):
            if isinstance(call, ast.Call) and (raised := self._raised(call)) and not self._is_caught(call, raised):
                read = [texts for texts in map(self._read, call.args) if any(map(words, texts))]
                # A notice has its kind first, and other calls their text.
                for text in read[-1 if _name(call.func) == "log" else 0] if read else ():
                    # Arguments of a logger that the text has as %s.
                    yield Text(re.sub(r"%[\d.]*[sdgr]", GAP, text), raised, self._place)

    def _raised(self, call: ast.Call) -> str | None:
        """The exception that a call makes, or the level at which it logs."""
        name = _name(call.func)
        if name in self._own or is_shown(name):
            return self._own.get(name, name)
        if name == "warn":
            return "WARNING"
        if name in _LEVELS and "log" in ast.unparse(call.func).lower():
            return _LEVELS[name]
        if name in {"log", "note"}:
            named = [value for each in call.args if isinstance(each, ast.Name) for value in self._values(each, each.id)]
            levels = re.findall(r"logging\.([A-Z]+)", " ".join(map(ast.unparse, [*call.args, *named])))
            return levels[0] if levels and levels[0] != "DEBUG" else None
        return None

    def _is_caught(self, node: ast.AST, name: str) -> bool:
        inner = node
        while not isinstance(node := self._outer.get(inner, self._tree), ast.Module | _FUNCTIONS):
            if isinstance(node, ast.Try) and inner in node.body:
                caught = [_name(kind) for handler in node.handlers for kind in ast.walk(handler.type or handler)]
                if name in caught:
                    return True
            inner = node
        return False

    def _read(self, node: ast.AST, depth: int = 0) -> list[str]:
        """What a value may be as a text; nothing if that is unknown."""
        read = functools.partial(self._read, depth=depth + 1)
        match node:
            case _ if depth > 8:
                return []
            case ast.Constant(value=str(text)):
                return [text]
            case ast.JoinedStr(values=parts):
                pieces = [self._piece(part, depth + 1) for part in parts]
                return ["".join(each) for each in itertools.product(*pieces)]
            case ast.IfExp(body=one, orelse=other) | ast.BoolOp(values=[one, other]):
                return read(one) + read(other)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return [one + other for one in read(left) or [GAP] for other in read(right) or [GAP]]
            case ast.Name(id=name):
                return [text for value in self._values(node, name) for text in read(value)]
            case ast.Call(func=ast.Attribute(value=text, attr="format")):
                return [re.sub(r"{[^}]*}", GAP, each) for each in read(text)]
            case ast.Call(
                func=ast.Attribute(attr="join"), args=[ast.Call(func=ast.Attribute(value=text, attr="split"))]
            ):
                return read(text)
            case ast.Call(func=ast.Attribute(value=text, attr="strip" | "rstrip" | "replace" | "removesuffix")):
                return read(text)
            case ast.Call(func=function) if _name(function) in self._functions:
                inside = ast.walk(self._functions[_name(function)])
                return [
                    text for each in inside if isinstance(each, ast.Return) and each.value for text in read(each.value)
                ]
            case ast.Call(func=ast.Name(), args=[first, *_]):
                return read(first)
        return []

    def _piece(self, part: ast.expr, depth: int) -> list[str]:
        """A part of an f-string: what varies is left open, unless it is a constant or one of a few sentences."""
        if not isinstance(part, ast.FormattedValue):
            return self._read(part, depth)
        known = self._read(part.value, depth)
        if isinstance(part.value, ast.Name) and part.value.id.isupper() and known:
            return known
        sentences = [text for text in known if len(words(text)) > 1]
        return [*sentences, *[GAP] * (len(sentences) < len(known) or not known)]

    def _values(self, node: ast.AST, name: str) -> Iterator[ast.AST]:
        """What a name may be bound to where it is used: the assignments before, as far back as one that is always made."""
        while (outer := self._outer.get(node)) is not None:
            for block in (block for _, block in ast.iter_fields(outer) if isinstance(block, list) and node in block):
                for before in reversed(block[: block.index(node)]):
                    found = [
                        each.value
                        for each in ast.walk(before)
                        if isinstance(each, _ASSIGNMENTS) and each.value is not None and name in _targets(each)
                    ]
                    yield from found
                    if found and isinstance(before, _ASSIGNMENTS):
                        return
            node = outer


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def _targets(node: ast.AST) -> Iterable[str]:
    return (_name(target) for target in getattr(node, "targets", [getattr(node, "target", node)]))

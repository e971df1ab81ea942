"""Holds the lists of requirements against the tests that carry them, and writes the tables of docs/conformance.

Fails on a requirement without a level or without a test, on a test that carries an unknown one, on a mark that no test
has, and when it finds nothing to look at. With ``--check`` it writes nothing, and fails on a table that is another.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
ID = r"[A-Z0-9]+-\d+"
IN_RUST = re.compile(rf"^\s*// req: ({ID}(?:, {ID})*)$")
RUST_TEST = re.compile(r"\s*(?:pub )?fn (\w+)")
BEFORE_A_TEST = re.compile(r"\s*(?://|#\[)")

# What the letters say that stand for how binding a requirement is.
LEVELS = {"M": "must", "S": "should", "Y": "may", "-": "said without any of these words"}

# Vectors of one file that are named; it may have hundreds.
NAMED = 4


@dataclass(frozen=True, order=True)
class Test:
    """Where a requirement is shown."""

    file: str
    line: int
    name: str

    @property
    def link(self) -> str:
        """As the pages have it; they lie two folders down."""
        return f"[`{self.name}`](../../{self.file})"


class Carried:
    """The tests that carry each requirement, and marks that nothing carries."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tests: dict[str, set[Test]] = defaultdict(set)
        self.faults: list[str] = []
        for path in sorted(root.glob("tests/**/*.py")):
            self._read_python(path)
        for path in sorted(root.glob("rust/**/*.rs")):
            self._read_rust(path)
        for path in sorted(root.glob("tests/vectors/*/*.json")):
            self._read_vectors(path)

    def _add(self, names: list[str], path: Path, line: int, test: str) -> None:
        for name in names:
            self.tests[name].add(Test(str(path.relative_to(self.root)), line, test))

    def _read_python(self, path: Path) -> None:
        tree = ast.parse(path.read_text())
        inside: set[ast.Call] = set()
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                marks = [mark for decorator in function.decorator_list for mark in marks_in(decorator)]
                inside.update(mark for mark, _ in marks)
                for _, names in marks:
                    self._add(names, path, function.lineno, function.name)
        for mark, names in marks_in(tree):
            if mark not in inside:
                self.faults.append(f"{path.relative_to(self.root)}:{mark.lineno}: {', '.join(names)} is at no test")

    def _read_rust(self, path: Path) -> None:
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines, 1):
            mark = IN_RUST.match(line)
            if mark is None:
                continue
            for place, below in enumerate(lines[number:], number + 1):
                if test := RUST_TEST.match(below):
                    self._add(re.findall(ID, mark[1]), path, place, test[1])
                    break
                if not BEFORE_A_TEST.match(below):
                    self.faults.append(f"{path.relative_to(self.root)}:{number}: {mark[1]} is at no test")
                    break

    def _read_vectors(self, path: Path) -> None:
        # A vector a line.
        for number, line in enumerate(path.read_text().split("\n"), 1):
            if '"requirements"' in line:
                vector = json.loads(line.strip().removesuffix(","))
                self._add(vector["requirements"], path, number, vector["id"])


def marks_in(tree: ast.AST) -> Iterator[tuple[ast.Call, list[str]]]:
    """The marks written out somewhere, and the requirements they name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "req":
            names = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            if names:
                yield node, names


def shown(tests: set[Test]) -> str:
    """The tests of one requirement; of the vectors in a file the first few."""
    cells = []
    files: dict[str, list[Test]] = defaultdict(list)
    for test in sorted(tests):
        files[test.file].append(test)
    for file, found in files.items():
        named = found[:NAMED] if file.endswith(".json") else found
        left = len(found) - len(named)
        more = f" and {left} more vectors there" if left else ""
        cells.append(", ".join(test.link for test in named) + more)
    return "<br>".join(cells)


def table(protocol: str, listed: dict[str, dict[str, str]], tests: dict[str, set[Test]]) -> str:
    """The page of one list."""
    legend = ", ".join(f"{letter} {words}" for letter, words in LEVELS.items())
    lines = [
        f"# {protocol.upper()}: what is required, and what shows it",
        "",
        "Made by `make generated` from `tests/requirements` and the tests themselves; the links lead into the repository.",
        f"Level, as the specification puts it: {legend}.",
        "",
        "| requirement | level | about | shown by |",
        "|---|---|---|---|",
    ]
    for name, entry in listed.items():
        by = shown(tests[name]) if name in tests else f"not yet: {entry.get('later')}"
        lines.append(f"| {name} | {entry.get('level')} | {entry['about']} | {by} |")
    return "\n".join([*lines, ""])


def faults_of(listed: dict[str, dict[str, str]], tests: dict[str, set[Test]]) -> Iterator[str]:
    """What is wrong with one list."""
    for name, entry in listed.items():
        if name not in tests and "later" not in entry:
            yield f"{name} has no test"
        levels = entry.get("level", "").split("/")
        if not set(levels) <= set(LEVELS):
            yield f"{name} has no level: one of {', '.join(LEVELS)}, or two with / between them"


def main(root: Path, *, check: bool) -> list[str]:
    """The faults that were found."""
    carried = Carried(root)
    faults = list(carried.faults)
    known: set[str] = set()
    lists = sorted(root.glob("tests/requirements/*.toml"))
    for path in lists:
        listed = tomllib.loads(path.read_text())
        known |= set(listed)
        faults += faults_of(listed, carried.tests)
        page, text = root / "docs" / "conformance" / f"{path.stem}.md", table(path.stem, listed, carried.tests)
        if not check:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text)
        elif not page.exists() or page.read_text() != text:
            faults.append(f"{page.relative_to(root)} is out of date: run make generated")
    for name, tests in carried.tests.items():
        if name not in known:
            test = min(tests)
            faults.append(f"{test.file}:{test.line}: {test.name} carries {name}, which no list has")
    if not lists or not carried.tests:
        faults.append("there was nothing to look at")
    print(f"{len(known & set(carried.tests))} of {len(known)} requirements have tests")
    return faults


if __name__ == "__main__":
    found = main(ROOT, check="--check" in sys.argv[1:])
    for fault in found:
        print(fault, file=sys.stderr)
    sys.exit(1 if found else 0)

"""Holds the lists of requirements against the tests that carry them, and writes the tables of docs/conformance.

Fails on a requirement without a test, on a test that carries an unknown one, and when it finds nothing to look at.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
ID = r"[A-Z0-9]+-\d+"
IN_PYTHON = re.compile(rf"mark\.req\(((?:\s*\"{ID}\"\s*,?)+)\)")
IN_RUST = re.compile(rf"^\s*// req: ({ID}(?:, {ID})*)$", re.MULTILINE)


def carried() -> dict[str, list[str]]:
    """The tests that carry each requirement, as file and line."""
    found: dict[str, list[str]] = defaultdict(list)
    for pattern, files in ((IN_PYTHON, ROOT.glob("tests/**/*.py")), (IN_RUST, ROOT.glob("rust/**/*.rs"))):
        for path in sorted(files):
            text = path.read_text()
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                for name in re.findall(ID, match.group(1)):
                    found[name].append(f"{path.relative_to(ROOT)}:{line}")
    for path in sorted(ROOT.glob("tests/vectors/*/*.json")):
        for name in sorted(set(re.findall(rf'"({ID})"', path.read_text()))):
            found[name].append(str(path.relative_to(ROOT)))
    return found


def table(protocol: str, listed: dict[str, dict[str, str]], tests: dict[str, list[str]]) -> str:
    """The page of one list."""
    lines = [
        f"# {protocol.upper()}: what is required, and what shows it",
        "",
        "Made by `make requirements` from `tests/requirements` and the tests themselves.",
        "",
        "| requirement | about | shown by |",
        "|---|---|---|",
    ]
    for name, entry in listed.items():
        files = sorted({place.split(":")[0] for place in tests.get(name, [])})
        shown = ", ".join(f"`{file}`" for file in files) or f"not yet: {entry.get('later')}"
        lines.append(f"| {name} | {entry['about']} | {shown} |")
    return "\n".join([*lines, ""])


def main() -> int:
    """The number of faults, which are printed."""
    tests = carried()
    faults: list[str] = []
    known: set[str] = set()
    lists = sorted(ROOT.glob("tests/requirements/*.toml"))
    for path in lists:
        listed = tomllib.loads(path.read_text())
        known |= set(listed)
        faults += [
            f"{name} has no test" for name, entry in listed.items() if name not in tests and "later" not in entry
        ]
        page = ROOT / "docs" / "conformance" / f"{path.stem}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(table(path.stem, listed, tests))
    faults += [f"{places[0]} carries {name}, which no list has" for name, places in tests.items() if name not in known]
    if not lists or not tests:
        faults.append("there was nothing to look at")
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(known & set(tests))} of {len(known)} requirements have tests")
    return len(faults)


if __name__ == "__main__":
    sys.exit(min(main(), 1))

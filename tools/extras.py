"""The tables of extras in README.md and in the documentation, made from pyproject.toml.

Run: python tools/extras.py writes them anew.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools.marks import between_marks

ROOT = Path(__file__).parents[1]

# The pages with a table.
PAGES = ("README.md", "docs/install.md")

# What each extra is for; the first is none.
_FOR = {
    "": "send, receive, serve and record with all protocols; encode and decode; your own tests",
    "capture": "read captures from Python: `capture.open(…).decode(…)`, pandas, Polars, DuckDB; object stores; conditions (`--where`); `capture report`",
    "hdf5": "`capture export` to HDF5",
    "root": "`capture export` to ROOT",
    "spark": '`trunkline.spark`, `format("trunkline")`, streams, reports on a cluster',
    "nats": 'a server, `trunkline nats`, and `store="jetstream"` of CDT\'s targets',
    "cli": "the command `trunkline`",
    "metrics": "`metrics=`, and `--metrics`: counters for Prometheus",
    "all": "",
}

_OURS = re.compile(r"trunkline\[(.*)\]")
_PACKAGE = re.compile(r"[\w.-]+")


def table() -> str:
    """The extras, what each installs and what it is for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {"": project["dependencies"], **project["optional-dependencies"]}
    if list(extras) != list(_FOR):
        message = f"say what each extra is for: there are {', '.join(extras)}"
        raise SystemExit(message)
    rows = (
        f"| {f'`{name}`' if name else 'none'} | {_includes(extras[name])} | {words} |" for name, words in _FOR.items()
    )
    return "\n".join(["| extra | includes | for |", "|---|---|---|", *rows])


def _includes(requirements: list[str]) -> str:
    words = []
    for requirement in requirements:
        ours = _OURS.match(requirement)
        words += [f"`{name}`" for name in ours[1].split(",")] if ours else _PACKAGE.findall(requirement)[:1]
    return ", ".join(words)


def written(text: str) -> str:
    """A page with its table as it is now."""
    return between_marks(text, "extras", table())


if __name__ == "__main__":
    for page in PAGES:
        (ROOT / page).write_text(written((ROOT / page).read_text()))

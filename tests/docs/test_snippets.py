"""The Python that the documentation prints runs as printed; one page is one session."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPARK = [pytest.mark.spark, pytest.mark.timeout(600)]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCTESTED = [
    "trunkline.cdtp",
    "trunkline.cdtp.receiver",
    "trunkline.chirp",
    "trunkline.chirp.datagram",
    "trunkline.dcp",
    "trunkline.dcp.broker",
    "trunkline.msgpack",
    "trunkline.testing",
]


def snippets(page):
    return SNIPPET.findall(page.read_text())


def test_there_are_snippets():
    assert len(PAGES) >= 4
    assert all(snippets(page) for page in PAGES)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=SPARK if page.stem in {"constellation", "runs", "spark"} else []) for page in PAGES],
    ids=lambda page: page.stem,
)
def test_snippets_run_as_printed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = {"__name__": "__main__"}
    for snippet in snippets(page):
        exec(compile(snippet, str(page), "exec"), session)


@pytest.mark.parametrize("name", DOCTESTED)
def test_docstrings_run_as_printed(name):
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.attempted > 0
    assert results.failed == 0

"""The Python that the documentation prints runs as printed; one page is one session."""

import doctest
import importlib
import inspect
import logging
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPARK = [pytest.mark.spark, pytest.mark.timeout(600)]
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    ROOT / "docs" / "install.md",
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
]
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"^\s*>>> ", re.MULTILINE)
# What needs what is not there, and says so.
NOT_RUN = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PACKAGE = ROOT / "python" / "trunkline"


def doctested():
    """The modules with examples in their docstrings, as they are imported, and how many examples each has."""
    for path in sorted(PACKAGE.rglob("*.py")):
        examples = len(EXAMPLE.findall(path.read_text()))
        if examples:
            name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
            yield pytest.param(name, examples, id=name)


class Finder(doctest.DocTestFinder):
    """Finds the examples of decorated functions too, whose globals are those of the decorator's module."""

    def _from_module(self, module, value):
        return super()._from_module(module, inspect.unwrap(value))


def snippets(page):
    return SNIPPET.findall(page.read_text())


def test_there_are_snippets():
    assert len(PAGES) >= 4
    assert all(snippets(page) for page in PAGES)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=SPARK if any("spark.session(" in snippet for snippet in snippets(page)) else [])
        for page in PAGES
    ],
    ids=lambda page: page.stem,
)
def test_snippets_run_as_printed(page, tmp_path, monkeypatch, caplog, request):
    monkeypatch.chdir(tmp_path)
    # A page may set a level of its own. Loggers below remember what it was, unless it is set by the method.
    logger = logging.getLogger("trunkline")
    request.addfinalizer(lambda level=logger.level: logger.setLevel(level))
    logger.setLevel(logging.WARNING)
    session = {"__name__": "__main__"}
    for snippet in snippets(page):
        exec(compile(snippet, str(page), "exec"), session)
    # No example logs a warning, except the incomplete runs that two pages are about.
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("trunkline")]
    assert [
        text for text in logged if page.stem not in {"constellation", "runs"} or "ended: INCOMPLETE" not in text
    ] == []


def test_snippets_that_are_not_run_say_so_and_are_python():
    found = [(page, snippet) for page in PAGES for snippet in NOT_RUN.findall(page.read_text())]
    assert found
    for page, snippet in found:
        assert snippet.startswith("# Not executed by our tests: it needs "), page
        compile(snippet, str(page), "exec")


@pytest.mark.parametrize(("name", "examples"), list(doctested()))
def test_docstrings_run_as_printed(name, examples):
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for found in Finder().find(importlib.import_module(name), name):
        runner.run(found)
    results = runner.summarize()
    # All of them, and none where doctest does not look.
    assert (results.attempted, results.failed) == (examples, 0)


def test_examples_are_found_wherever_they_are():
    found = {param.values[0] for param in doctested()}
    assert {"trunkline._text", "trunkline.curve", "trunkline._jsonable", "trunkline.cdtp"} <= found


def test_examples_of_the_reference_are_fenced():
    examples = 0
    package = ROOT / "python" / "trunkline"
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        if "cli" in parts or any(part.startswith("_") and part != "__init__.py" for part in parts):
            continue
        fenced = False
        for line in path.read_text().splitlines():
            if line.strip().startswith("```"):
                fenced = not fenced
            elif line.strip().startswith(">>> "):
                examples += 1
                # Otherwise the page has them as quotations in quotations.
                assert fenced, f"{path}: {line}"
    assert examples > 20


def test_what_the_hints_say_to_install_can_be_installed():
    from trunkline._extras import extra_of, how_to_install

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for package in ("typer", "pyarrow", "pyspark"):
        extra = extra_of(package)
        assert any(need.startswith(package) for need in extras[extra])
        # There is no release on an index: pip takes a folder or a file.
        assert f"pip install '.[{extra}]'" in how_to_install(extra)
    said = "\n".join(path.read_text() for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    assert "pip install trunkline" not in said
    assert "pip install 'trunkline" not in said

"""The Python that the documentation prints passes strict type checkers; one page is one module."""

import json
import subprocess
import sys

import pytest
from test_snippets import PAGES, ROOT, snippets

# Libraries without types make these of their own values, whatever a page does with them.
UNTYPED = ("Argument", "Lambda", "Member", "Parameter", "Variable")


@pytest.fixture
def pages(tmp_path):
    for page in PAGES:
        (tmp_path / f"{page.stem}_page.py").write_text("\n".join(snippets(page)))
    return tmp_path


def passes(*command):
    ended = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.timeout(300)
def test_pages_pass_mypy(pages):
    # The package is looked into as well, and says more than this needs.
    lenient = ("--disable-error-code", "import-untyped", "--no-warn-unused-ignores")
    passes("mypy", "--strict", *lenient, *map(str, pages.glob("*.py")))


@pytest.mark.timeout(300)
def test_pages_pass_pyright(pages):
    config = json.loads((ROOT / "tests" / "typing" / "pyrightconfig.json").read_text())
    config |= {"extraPaths": [str(ROOT / "python")], "venvPath": str(ROOT)}
    config |= {f"reportUnknown{what}Type": "none" for what in UNTYPED}
    # A block that is read by itself imports what it needs again.
    config["reportDuplicateImport"] = "none"
    project = pages / "pyrightconfig.json"
    project.write_text(json.dumps(config))
    passes("basedpyright", "--project", str(project), "--warnings")

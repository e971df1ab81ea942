"""The tables of conformance name tests that are there, and their checker sees what is missing."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LIST = '[XYZ-01]\nlevel = "M"\nabout = "It answers"\n[XYZ-02]\nlevel = "Y/S"\nabout = "It waits"\n'
PYTHON = 'import pytest\n\n\n@pytest.mark.req("XYZ-01")\ndef test_answers():\n    pass\n'
RUST = "#[test]\n// req: XYZ-02\n#[ignore]\nfn waits() {}\n"
VECTORS = '[\n{"id": "one", "requirements": ["XYZ-01"]},\n{"id": "two", "requirements": ["XYZ-01"]}\n]\n'


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("requirements_tool", ROOT / "tools" / "requirements.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def root(tmp_path):
    files = {
        "tests/requirements/xyz.toml": LIST,
        "tests/xyz/test_it.py": PYTHON,
        "rust/xyz/tests/it.rs": RUST,
        "tests/vectors/xyz/all.json": VECTORS,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_pages_are_as_the_tests_are(tool):
    assert tool.main(ROOT, check=True) == []


def test_every_test_that_a_page_links_to_is_there():
    linked = 0
    for page in (ROOT / "docs" / "conformance").glob("*.md"):
        for name, file in re.findall(r"\[`([^`]+)`\]\(\.\./\.\./([^)#]+)\)", page.read_text()):
            linked += 1
            text = (ROOT / file).read_text()
            pattern = rf'"id": ?"{re.escape(name)}"' if file.endswith(".json") else rf"\b(?:def|fn) {name}\b"
            assert re.search(pattern, text), (page, name)
    assert linked > 200


def test_a_page_has_level_words_and_tests(tool, root):
    assert tool.main(root, check=False) == []
    page = (root / "docs" / "conformance" / "xyz.md").read_text()
    answers, vectors = "(../../tests/xyz/test_it.py)", "../../tests/vectors/xyz/all.json"
    shown = f"[`test_answers`]{answers}"
    named = f"[`one`]({vectors}), [`two`]({vectors})"
    assert f"| XYZ-01 | M | It answers | {named}<br>{shown} |" in page
    assert "| XYZ-02 | Y/S | It waits | [`waits`](../../rust/xyz/tests/it.rs) |" in page
    assert tool.main(root, check=True) == []


FAULTS = {
    "no level": ("tests/requirements/xyz.toml", 'level = "M"\n', "", "XYZ-01 has no level"),
    "no such level": ("tests/requirements/xyz.toml", '"M"', '"X"', "XYZ-01 has no level"),
    "no test": ("rust/xyz/tests/it.rs", "// req: XYZ-02", "//", "XYZ-02 has no test"),
    "unknown": ("tests/requirements/xyz.toml", "XYZ-02", "XYZ-03", "waits carries XYZ-02, which no list has"),
    "mark at no function": ("rust/xyz/tests/it.rs", "fn waits() {}", "", "XYZ-02 has no test"),
    "mark above something else": ("rust/xyz/tests/it.rs", "#[ignore]", "struct S;", "XYZ-02 is at no test"),
    "mark in passing": ("tests/xyz/test_it.py", "    pass", '    pytest.mark.req("XYZ-02")', "XYZ-02 is at no test"),
}


@pytest.mark.parametrize(("file", "old", "new", "fault"), FAULTS.values(), ids=FAULTS)
def test_faults_are_found(tool, root, file, old, new, fault):
    text = (root / file).read_text()
    assert old in text
    (root / file).write_text(text.replace(old, new))
    assert any(fault in found for found in tool.main(root, check=False))


def test_a_page_that_is_not_as_things_are_is_found(tool, root):
    outdated = ["docs/conformance/xyz.md is out of date: run make generated"]
    assert tool.main(root, check=True) == outdated
    tool.main(root, check=False)
    (root / "tests/xyz/test_it.py").write_text("# moved down\n" + PYTHON)
    assert tool.main(root, check=True) == []
    (root / "tests/xyz/test_it.py").write_text(PYTHON.replace("test_answers", "test_replies"))
    assert tool.main(root, check=True) == outdated


def test_nothing_to_look_at_is_a_fault(tool, tmp_path):
    assert tool.main(tmp_path, check=True) == ["there was nothing to look at"]

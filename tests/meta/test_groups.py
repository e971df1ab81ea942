"""Tests that share something dear or single, as a JVM or a port, run in one worker of pytest-xdist."""

import subprocess
import sys

CONFTEST = """
import os, pathlib, pytest

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if "grouped" in item.name:
            item.add_marker(pytest.mark.xdist_group("dear"))

@pytest.fixture(autouse=True)
def note(request):
    yield
    with pathlib.Path("ran").open("a") as notes:
        notes.write(f"{request.node.name.partition('[')[0]} {os.environ['PYTEST_XDIST_WORKER']}\\n")
"""

TESTS = """
import pytest

@pytest.mark.parametrize("number", range(10))
def test_grouped(number):
    pass

@pytest.mark.parametrize("number", range(10))
def test_free(number):
    pass
"""


def test_groups_hold(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text(TESTS)
    # As the suite is run; see the Makefile.
    command = [sys.executable, "-m", "pytest", "--quiet", "--numprocesses", "2", "--dist", "loadgroup"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    assert len(ran) == 40
    assert len({worker for name, worker in ran if name == "test_grouped"}) == 1
    assert len({worker for _, worker in ran}) == 2

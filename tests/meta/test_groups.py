"""How the suite is run: what is dear or single, as a JVM or a port, is in one worker, and a test that hangs ends it."""

import pathlib
import subprocess
import sys

import pytest

# As the Makefile has it.
PYTEST = [sys.executable, "-m", "pytest", "--quiet", "--numprocesses", "2", "--dist", "loadgroup"]
PYTEST += ["--max-worker-restart", "0", "-p", "no:cacheprovider"]

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
    done = subprocess.run(PYTEST, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    assert len(ran) == 40
    assert len({worker for name, worker in ran if name == "test_grouped"}) == 1
    assert len({worker for _, worker in ran}) == 2


HANGS = """
import time
import pytest
from peers import hanging

hanging.GRACE_S = 1
pytest_plugins = ["peers.hanging"]

@pytest.fixture
def hang():
    yield lambda: hang_for_ever()
    hang_for_ever()

def hang_for_ever():
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass
"""


@pytest.mark.parametrize("body", ["hang()", "assert False", "pass"])
def test_a_test_that_takes_no_exception_ends_the_run_all_the_same(tmp_path, body):
    (tmp_path / "conftest.py").write_text(HANGS)
    (tmp_path / "test_one.py").write_text(
        f"import pytest\n@pytest.mark.timeout(1)\ndef test_hangs(hang):\n    {body}\n\ndef test_more():\n    pass\n"
    )
    tests = pathlib.Path(__file__).parents[1]
    command = [*PYTEST, "-o", f"pythonpath={tests}", "-o", "timeout=60"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 1
    assert "crashed while running 'test_one.py::test_hangs'" in done.stdout
    assert "in hang_for_ever" in done.stderr

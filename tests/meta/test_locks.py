"""What is installed is what was pinned: every file by its hash."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWN = [ROOT / "requirements.txt", ROOT / "requirements-release.txt"]
LOCKS = [*OWN, *sorted((ROOT / "tests" / "live").glob("requirements-*.txt"))]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_pin_has_the_hashes_of_its_files(lock):
    pins = [pin for pin in re.split(r"\n(?!\s)", lock.read_text()) if pin and not pin.startswith("#")]
    # Of the wheels with an older libzmq nothing else is wanted.
    assert len(pins) == 1 if "libzmq" in lock.name else len(pins) > 5
    assert [pin for pin in pins if not re.match(r"[\w.\[\],-]+==\S+ ", pin) or "--hash=sha256:" not in pin] == []


@pytest.mark.parametrize("lock", OWN, ids=lambda lock: lock.name)
def test_what_is_asked_for_is_pinned(lock):
    asked = re.findall(r"(?m)^([\w-]+)", lock.with_suffix(".in").read_text())
    pinned = re.findall(r"(?m)^([\w-]+)", lock.read_text())
    assert set(asked) <= set(pinned)


def test_pip_insists_on_the_hashes():
    lines = [line for line in (ROOT / "Makefile").read_text().splitlines() if "pip install" in line]
    assert len(lines) == 4
    assert all("--require-hashes" in line for line in lines)


def test_every_crate_is_pinned_by_its_checksum():
    for lock in (ROOT / "Cargo.lock", ROOT / "rust" / "fuzz" / "Cargo.lock"):
        packages = lock.read_text().split("[[package]]")[1:]
        assert [package for package in packages if "source = " in package and "checksum = " not in package] == []

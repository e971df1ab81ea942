"""Holds what would be released to what an index and its users expect: versions, source distribution, wheels, metadata.

Wheels for other machines are cross-compiled with zig where Rust's library for them is installed; which were not built is said.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

# The oldest glibc that wheels run on, and for which machines there are to be some.
COMPATIBILITY = "manylinux_2_28"
TARGETS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")

# What a source build needs, and what must not be in it.
NEEDED = ("Cargo.lock", "Cargo.toml", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "python/trunkline/py.typed")
UNWANTED = re.compile(r"(^|/)(target|\.venv|\.git|site|__pycache__|artifacts|corpus)(/|$)")


def run(*command: str | Path, **environment: str) -> None:
    """Runs a program; what it says is shown if it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    need(done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


class WrongError(Exception):
    """Something is not as it has to be."""


def need(holds: object, otherwise: str) -> None:
    """Raises unless it holds."""
    if not holds:
        raise WrongError(otherwise)


def versions() -> str:
    """The version is said once, and the changelog knows of it."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text()
    heading = re.search(rf"^## \[?{re.escape(version)}\b", changelog, re.MULTILINE)
    need(heading, f"CHANGELOG.md has no heading for {version}")
    left = [path for path in (ROOT / "changes").glob("*.md") if path.name != "README.md"]
    return f"{version}; {len(left)} changes have come since"


def sdist(out: Path) -> Iterator[str]:
    """The source distribution has all that building takes, and builds in an empty directory."""
    run("maturin", "sdist", "--out", out)
    (path,) = out.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
        archive.extractall(out / "source")
    missing = [name for name in NEEDED if name not in names]
    unwanted = [name for name in names if UNWANTED.search(name)]
    need(not (missing or unwanted), f"{path.name} lacks {missing}, and has {unwanted[:5]}")
    yield f"{path.name}: {len(names):,} files, {path.stat().st_size / 1e6:.1f} MB"
    (source,) = (out / "source").iterdir()
    # The libraries it takes are compiled once for both.
    target = str(ROOT / "target" / "release-check")
    run("maturin", "build", "--release", "--locked", "--manifest-path", source / "rust/python/Cargo.toml",
        "--out", out / "from-source", CARGO_TARGET_DIR=target)  # fmt: skip
    (wheel,) = (out / "from-source").glob("*.whl")
    run(sys.executable, "tools/wheel_check.py", wheel)
    yield "builds from it, and the wheel makes a round trip"


def wheels(out: Path) -> Iterator[str]:
    """A wheel for each kind of machine, as far as this one can build it."""
    there = subprocess.run(["rustup", "target", "list", "--installed"], capture_output=True, text=True, check=False)
    for target in TARGETS:
        if target not in there.stdout.split():
            yield f"{target}: NOT BUILT, its Rust library is not installed: rustup target add {target}"
            continue
        run("maturin", "build", "--release", "--locked", "--zig", "--target", target, "--compatibility", COMPATIBILITY,
            "--out", out, CARGO_TARGET_DIR=str(ROOT / "target" / "release-check"))  # fmt: skip
        machine = target.partition("-")[0]
        (wheel,) = out.glob(f"*{machine}.whl")
        if machine == os.uname().machine:
            run(sys.executable, "tools/wheel_check.py", wheel)
        yield f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB"


def metadata(out: Path) -> str:
    """What an index shows: names, classifiers, and a README that renders."""
    files = [*out.glob("*.whl"), *out.glob("*.tar.gz")]
    run("twine", "check", "--strict", *files)
    return f"{len(files)} files pass twine check --strict, the README renders"


def main() -> None:
    """Says of each what came of it; fails if anything is not as it has to be."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory)
        checks: list[tuple[str, Callable[[], Iterator[str]]]] = [
            ("version", lambda: iter([versions()])),
            ("sdist", lambda: sdist(out)),
            ("wheels", lambda: wheels(out)),
            ("metadata", lambda: iter([metadata(out)])),
        ]
        is_wrong = False
        for name, check in checks:
            try:
                for line in check():
                    print(f"{name:9} {line}", flush=True)
            except WrongError as wrong:
                is_wrong = True
                print(f"{name:9} WRONG: {wrong}", flush=True)
    sys.exit(is_wrong)


if __name__ == "__main__":
    main()

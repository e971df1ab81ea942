"""Measures what the tests reach: of Python by coverage.py, in subprocesses too; of Rust by the compiler's counters.

Prints a table of each, and leaves them in target/coverage. Rust is built a second time for it, and measured by its own
tests alone: what Python's tests do to it is not counted. Arguments are given to pytest, as ``-m "not spark"``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "target" / "coverage"

# Not measured: the standard library, other crates, and the tests themselves.
FOREIGN = r"/rustc/|/\.cargo/|/\.rustup/|/tests/|/tests?\.rs$|/examples/|/benches/"


def run(*command: str | Path, **more: str) -> None:
    """Runs a command to its end; `more` is added to the environment."""
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | more)


def output(*command: str | Path, **more: str) -> str:
    """The same, for what it prints."""
    done = subprocess.run(command, cwd=ROOT, check=True, env=os.environ | more, stdout=subprocess.PIPE, text=True)
    return done.stdout


def python(arguments: list[str]) -> str:
    """The lines that the tests of Python reach."""
    coverage = [sys.executable, "-m", "coverage"]
    run(*coverage, "erase")
    tests = subprocess.run([*coverage, "run", "-m", "pytest", "--quiet", *arguments], cwd=ROOT, check=False)
    if tests.returncode not in (0, 1):
        # 1: some failed, which is for `make test` to say.
        sys.exit(tests.returncode)
    run(*coverage, "combine", "--quiet")
    return output(*coverage, "report", "--skip-empty")


def rust() -> str:
    """The lines that the tests of Rust reach."""
    run("rustup", "component", "add", "llvm-tools")
    tools = Path(output("rustc", "--print", "target-libdir").strip()).parent / "bin"
    counters = RESULTS / "counters"
    environment = {
        "RUSTFLAGS": "-Cinstrument-coverage",
        "CARGO_TARGET_DIR": str(RESULTS / "rust"),
        "LLVM_PROFILE_FILE": str(counters / "%p-%m.profraw"),
        "TRUNKLINE_LIBZMQ": output(sys.executable, "tools/libzmq.py").strip(),
        "TRUNKLINE_PYTHON": sys.executable,
    }
    cargo = ["cargo", "test", "--quiet", "--locked", "--workspace", "--lib", "--tests"]
    messages = output(*cargo, "--no-run", "--message-format=json", **environment).splitlines()
    programs = [program for line in messages if (program := json.loads(line).get("executable"))]
    run(*cargo, **environment)
    merged = RESULTS / "rust.profdata"
    run(tools / "llvm-profdata", "merge", "--sparse", *counters.glob("*.profraw"), "--output", merged)
    objects = [argument for program in programs for argument in ("--object", program)]
    shown = ["--instr-profile", merged, "--ignore-filename-regex", FOREIGN, "--show-region-summary=false"]
    return output(tools / "llvm-cov", "report", *shown, *objects)


def main() -> None:
    """Measures both."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name, report in (("python", python(sys.argv[1:])), ("rust", rust())):
        (RESULTS / f"{name}.txt").write_text(report)
        print(report)


if __name__ == "__main__":
    main()

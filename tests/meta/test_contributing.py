"""The files that CONTRIBUTING.md names exist."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
PATH = re.compile(r"`((?:rust|python|tests|docs|tools)/[\w./-]+|mkdocs\.yml|\.ci/run)`")

# The protocols that are done, and what their like is called where it has another name or none.
PROTOCOLS = ("cdtp", "dcp")
MOVED = {
    "rust/columns/src/cdtp.rs": "rust/columns/src/cdtp/mod.rs",
}


def test_every_path_exists_for_each_protocol_that_is_done():
    paths = PATH.findall(TEXT)
    assert len(paths) >= 30
    assert sum("NAME" in path for path in paths) >= 12
    for path in paths:
        for protocol in PROTOCOLS if "NAME" in path else ("",):
            named = path.replace("NAME", protocol)
            assert (ROOT / MOVED.get(named, named)).exists(), named


def test_every_command_is_one_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    commands = set(re.findall(r"`make ([a-z-]+)`", TEXT))
    assert {"test", "requirements", "fuzz", "coverage"} <= commands
    for command in commands:
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), command


def test_the_places_that_it_names_are_those_that_list_protocols():
    """Where a new protocol has to be listed, and a list of those that are done is found by their types."""
    found = subprocess.run(
        [
            "git",
            "grep",
            "-lE",
            r"\b(Of::<Dcp>|Dcp::NAME|dcp::Dcp|mod dcp|dcp\.Message|from_dcp|DcpOptions)\b",
            "--",
            "rust",
            "python",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    named = {path.replace("NAME", "dcp") for path in PATH.findall(TEXT)}
    rooms = re.compile(r"(^|/)dcp(/|\.|_)|/tests/|/fuzz/|/examples/|/benches/|__init__\.py$")
    lists = [path for path in found if not rooms.search(path)]
    assert len(lists) >= 6
    assert [path for path in lists if path not in named] == []

"""The files that CONTRIBUTING.md names exist."""

import re
import subprocess
from pathlib import Path

from tools.lists import FILES

from trunkline._protocols import RECORDED

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
PATH = re.compile(r"`((?:rust|python|tests|docs|tools)/[\w./-]+|mkdocs\.yml|\.ci/run)`")

# The one to use as a model has every file; in Python all have, but that nats-py is the peer of CDT.
MODEL = re.search(r"(\w+) is the one to use as a model", TEXT)[1].lower()
WITHOUT = {"tests/peers/cdt.py"}


def test_every_path_exists_for_each_protocol_that_is_done():
    paths = PATH.findall(TEXT)
    assert len(paths) >= 30
    assert sum("NAME" in path for path in paths) >= 12
    for path in paths:
        every = [MODEL] if path.startswith("rust/") else [protocol.name for protocol in RECORDED]
        for protocol in every if "NAME" in path else ("",):
            named = path.replace("NAME", protocol)
            assert (ROOT / named).exists() or named in WITHOUT, named


def test_every_command_is_one_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    commands = set(re.findall(r"`make ([a-z-]+)`", TEXT))
    assert {"test", "generated", "fuzz", "coverage"} <= commands
    for command in commands:
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), command


def test_the_places_that_it_names_are_those_that_list_protocols():
    """Where a new protocol has to be listed, and a list of those that are done is found by their types."""
    found = subprocess.run(
        [
            "git",
            "grep",
            "-lE",
            r"\b(Of::<Dcp>|Dcp::NAME|dcp::Dcp|mod dcp|DcpOptions)\b",
            "--",
            "rust",
            "python",
            *(f":!python/trunkline/{name}" for name in FILES),
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

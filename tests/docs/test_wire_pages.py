"""The pages of the wire show the bytes of the vectors, all of them and in their order."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from tools import wire  # noqa: E402 - it is not installed

VECTORS = ROOT / "tests" / "vectors"
PAGES = sorted((ROOT / "docs" / "wire").glob("*.md"))
PROTOCOLS = sorted(path.name for path in VECTORS.iterdir() if path.is_dir())
# Field tables are annotated as a whole; these are about them alone.
MESSAGES = [
    (f"{path.parent.name}/{path.stem}", vector["id"])
    for path in sorted(VECTORS.glob("*/*.json"))
    if path.stem != "errors"
    for vector in json.loads(path.read_text())
    if "error" not in vector
]


@pytest.mark.parametrize("file", sorted({file for file, _ in MESSAGES}))
def test_the_pieces_of_a_message_are_its_bytes(file):
    seen = 0
    for name in (name for of, name in MESSAGES if of == file):
        frames = wire.frames(file, name)
        pieces = wire.annotated(file.partition("/")[0], frames)
        assert [b"".join(data for _, data, _ in each) for each in pieces] == frames, name
        for each in pieces:
            ends = [0, *(offset + len(data) for offset, data, _ in each)]
            assert [offset for offset, _, _ in each] == ends[:-1], name
        seen += 1
    assert seen


def test_every_protocol_has_a_page():
    assert {path.stem for path in PAGES} == {*PROTOCOLS, "conformance"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_message_on_a_page_is_shown(path):
    text = path.read_text()
    blocks = re.findall(r"^```wire", text, re.MULTILINE)
    expanded = wire.expand(text)
    assert "```wire" not in expanded
    assert expanded.count("| frame | offset | bytes | meaning |") == len(blocks)
    assert blocks or path.stem == "conformance"

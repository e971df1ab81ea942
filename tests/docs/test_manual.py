"""The manual pages are those of the commands there are, and `man` can read them."""

import shutil
import subprocess

import pytest
from tools import commands, manual


def test_the_pages_are_those_of_the_commands():
    made = manual.pages()
    paths = {path for page in commands.pages() for path in (page.name, *(path for path, *_ in page.commands))}
    assert len(paths) > 50
    assert {name.removesuffix(".1") for name in made} == {path.replace(" ", "-") for path in paths}
    written = {file.name: file.read_text() for file in manual.FOLDER.iterdir()}
    assert written == made, "run make generated"


def test_a_page_has_every_option():
    made = manual.pages()
    options = 0
    for page in commands.pages():
        for path, command, context in page.commands:
            text = made[f"{path.replace(' ', '-')}.1"].replace("\\-", "-")
            for parameter in commands.parameters(command, context):
                options += 1
                assert any(name in text for name in (*parameter.opts, parameter.metavar) if name), (
                    path,
                    parameter.name,
                )
    assert options > 300


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_nothing_is_wrong_with_a_page():
    for file in manual.FOLDER.iterdir():
        ran = subprocess.run(
            ["groff", "-k", "-man", "-ww", "-Tutf8", "-z", file], capture_output=True, text=True, check=True
        )
        assert ran.stderr == ""

"""The pages about the command line have every command and option there is, and what is printed anywhere can be typed."""

import re
from pathlib import Path

import pytest
from tools.commands import files, overview, pages, parameters

ROOT = Path(__file__).parents[2]
WRITTEN = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
BLOCK = re.compile(r"^```(?:console|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TYPED = re.compile(r"(?:^|[$|(] )(trunkline [^\n|)]+)", re.MULTILINE)


def commands():
    """Every command by what is typed for it, with its context."""
    for page in pages():
        yield from page.commands


def printed():
    """The commands that the documents print, each with its file."""
    for path in WRITTEN:
        for block in BLOCK.findall(path.read_text()):
            for line in TYPED.findall(block.replace("\\\n", " ")):
                yield pytest.param(line, id=f"{path.name}: {line[:60]}")


@pytest.fixture(scope="module")
def text():
    return "\n".join([overview("# Commands"), *files().values()])


def test_every_command_has_its_section(text):
    paths = [path for path, *_ in commands()]
    assert len(paths) > 30
    assert "trunkline mtl users add" in paths
    for path in paths:
        assert f"## {path} {{#" in text


def test_every_option_is_in_the_section_of_its_command(text):
    sections = dict(re.findall(r"^## (trunkline [^{]+) \{#.*?\}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    options = 0
    for path, command, context in commands():
        for parameter in parameters(command, context):
            options += 1
            names = parameter.opts if parameter.param_type_name == "option" else [parameter.metavar]
            assert re.search(rf"<code>[^<]*{re.escape(names[-1])}", sections[path]), (path, names)
    assert options > 300


def test_defaults_are_in_their_column(text):
    assert "| <code>--drain-seconds S</code> |" in text
    assert re.search(r"<code>--drain-seconds S</code> \|[^|]*\| `5\.0` \|", text)
    assert re.search(r"<code>--warn-free-bytes BYTES</code> \|[^|]*\| 10 GiB \|", text)
    assert re.search(r"<code>--port P</code> \|[^|]*\(1 to 65535\) \| required \|", text)
    assert "[default" not in text.replace("\\", "")


def test_every_example_is_printed(text):
    for path, command, _ in commands():
        assert command.epilog, path
        assert f"$ {command.epilog.replace(chr(8), '').split(maxsplit=1)[1].splitlines()[0].strip()}" in text


def test_documents_print_commands():
    assert len(list(printed())) > 40


@pytest.mark.parametrize("line", list(printed()))
def test_what_is_printed_can_be_typed(line):
    program = pages()[0]
    command, context = program.command, program.context
    words = re.split(r" #|\$\(", line)[0].split()
    if words[1:3] == ["spark", "submit"]:
        # Up to there it is spark-submit's, and then another command.
        words = [words[0], *words[words.index("--") + 1 :]]
    for word in words[1:]:
        if not hasattr(command, "commands") or word.startswith("-"):
            break
        command = command.get_command(context, word)
        assert command is not None, f"there is no {word!r}"
        context = type(context)(command, info_name=word, parent=context)
    known = {option for each in command.get_params(context) for option in (*each.opts, *each.secondary_opts)}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known

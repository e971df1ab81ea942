"""An option of one value is given once."""

from __future__ import annotations

import pytest
import typer

from trunkline.cli.app import app


def all_commands(command, *words):
    yield words, command
    for name, inside in getattr(command, "commands", {}).items():
        yield from all_commands(inside, *words, name)


COMMANDS = {" ".join(["trunkline", *words]): command for words, command in all_commands(typer.main.get_command(app))}


def options(command):
    """Its options, each with whether it may be repeated."""
    for parameter in command.params:
        if parameter.param_type_name == "option":
            yield parameter, parameter.multiple or parameter.is_flag


def given(option, times):
    return [option.opts[0], *([] if option.is_flag else ["x"])] * times


def context_of(command):
    return typer.Context(command, info_name="trunkline")


def test_there_are_options_of_either_kind():
    found = [is_repeatable for command in COMMANDS.values() for _, is_repeatable in options(command)]
    assert found.count(True) > 50
    assert found.count(False) > 200


@pytest.mark.parametrize("name", COMMANDS)
def test_what_takes_one_value_is_not_given_twice(name):
    command = COMMANDS[name]
    for option, is_repeatable in options(command):
        if is_repeatable:
            _, rest, order = command.make_parser(context_of(command)).parse_args(given(option, 2))
            assert (rest, order.count(option)) == ([], 2)
            continue
        with pytest.raises(typer.BadParameter, match=r"^it takes one value: give it once\.$") as refused:
            command.parse_args(context_of(command), given(option, 2))
        assert refused.value.param is option
        assert command.make_parser(context_of(command)).parse_args(given(option, 1))[1] == []


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--config", "a", "--config", "b", "demo"], "--config"),
        (["--log-format", "text", "--log-format=text", "doctor"], "--log-format"),
        (["mc0", "publish", "t", "x", "--curve-server-key", "a", "--curve-server-key=b"], "--curve-server-key"),
        (["capture", "cat", "runs", "--payload", "--payload"], "--payload"),
        (["spark", "decode", "runs", "out", "--protocol", "dcp", "--protocol", "dcp"], "--protocol"),
    ],
)
def test_the_error_names_the_option(run, words, option):
    out, err = run(*words, returncode=2)
    assert out == ""
    assert f"Invalid value for '{option}': it takes one value: give it once." in err

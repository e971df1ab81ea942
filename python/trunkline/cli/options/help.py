"""Groups of commands, and their help."""

from __future__ import annotations

import functools
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

from trunkline._locations import without_secrets
from trunkline._text import did_you_mean
from trunkline.cli.options.quantities import take_units

__all__ = ["FRAMES", "Family", "with_hint"]

# The option whose value may be left out, and what it is then.
_PAYLOAD = "--payload"
FRAMES = "true"

# The longest first sentence.
_SENTENCE = 1000


# The width of help on a wider terminal.
_COLUMNS = 80


# typer's error about a value that is none of the choices.
_NO_CHOICE = re.compile(r"(?:Value error, )?'(.*)' is not one of ('.*')\.")


def with_hint(message: str) -> str:
    """The error about a value that is none of the choices, with the one that was probably meant.

    >>> with_hint("Value error, 'jsn' is not one of 'json', 'avro'.")
    "'jsn' is not one of 'json', 'avro': did you mean 'json'?"
    """
    found = _NO_CHOICE.fullmatch(message)
    if found is None:
        return message
    given, choices = found.groups()
    hint = did_you_mean(given, re.findall(r"'([^']*)'", choices)) or "."
    return f"{given!r} is not one of {choices}{hint}"


# Every error about what was typed, such as that of an argument too many.
_UsageError: type[Any] = typer.BadParameter.__mro__[1]


class _Context(typer.Context):
    """A context with help as narrow as the terminal: typer's own is at least 50 columns wide."""

    def make_formatter(self) -> Any:
        """Writes help for the width of the terminal."""
        formatter = super().make_formatter()
        room = min(shutil.get_terminal_size().columns, _COLUMNS)
        formatter.width = room - 2
        # The names of options leave room for their help.
        formatter.write_dl = functools.partial(formatter.write_dl, col_max=room * 3 // 8)  # type: ignore[method-assign]
        return formatter


class _Made(Mapping[str, Any]):
    """Commands by their names, each made on first use."""

    def __init__(self, makers: Mapping[str, Callable[[], Any]]) -> None:
        self._makers = makers
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _adapted(self._makers[name]())
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def _adapted(command: Any) -> Any:
    """A command with our help, units and payloads, that takes each value once."""
    command.context_class = _Context
    command.make_parser = functools.partial(_strict, command.make_parser)
    _hide_variables(command.params)
    for parameter in command.params:
        take_units(parameter)
    if any(_PAYLOAD in parameter.opts for parameter in command.params):
        command.parse_args = functools.partial(_with_payloads, command.parse_args)
    return command


class Family(TyperGroup):
    """A group with help that shows the whole first sentence of each command, on as many lines as it takes.

    Every option can be given by a variable of its own; the help of each names only those that have another name.

    Attributes:
        makers: What makes each command, by its name.
    """

    context_class = _Context
    makers: ClassVar[Mapping[str, Callable[[], Any]]] = {}

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.commands = _Made(self.makers)  # type: ignore[assignment]

    def make_parser(self, ctx: Any) -> Any:
        """Makes what parses the group's own options."""
        return _strict(super().make_parser, ctx)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command.

        The error about an invalid choice suggests the most similar one; none has the credentials of a URL.
        """
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            error.message = without_secrets(with_hint(error.message))
            raise

    def get_params(self, ctx: Any) -> list[Any]:
        """The group's own options."""
        found = super().get_params(ctx)
        _hide_variables(found)
        return found

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Lists the commands."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(_SENTENCE)) for name, command in commands if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _strict(make: Callable[[Any], Any], ctx: Any) -> Any:
    """A parser that refuses options of one value that are given several times: typer's takes the last."""
    parser = make(ctx)
    parse = parser.parse_args

    def parse_args(args: list[str]) -> Any:
        values, rest, order = parse(args)
        for option, times in Counter(order).items():
            takes_one = option.param_type_name == "option" and not option.multiple and not option.is_flag
            # What is being completed is not refused.
            if times > 1 and takes_one and not ctx.resilient_parsing:
                message = "it takes one value: give it once."
                raise typer.BadParameter(message, ctx=ctx, param=option)
        return values, rest, order

    parser.parse_args = parse_args
    return parser


def _with_payloads(parse: Callable[..., Any], ctx: Any, args: list[str]) -> Any:
    """Parses words of which --payload may stand alone, at their end or before another option; typer has no such option."""
    end = args.index("--") if "--" in args else len(args)
    is_alone = [word == _PAYLOAD and after.startswith("-") for word, after in zip(args, [*args[1:], "-"], strict=False)]
    given = [f"{word}={FRAMES}" if is_alone[at] and at < end else word for at, word in enumerate(args)]
    return parse(ctx, given)


def _hide_variables(parameters: Iterable[Any]) -> None:
    for parameter in parameters:
        parameter.show_envvar = parameter.envvar is not None
        # Options that only print, as shell completion, have no variable.
        if not parameter.expose_value:
            parameter.allow_from_autoenv = False

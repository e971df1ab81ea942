"""`trunkline conform`: tests another implementation of a protocol from outside."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline._locations import without_secrets
from trunkline._protocols import PROTOCOLS
from trunkline._text import counted, did_you_mean, readable, readable_bytes
from trunkline.cli.commands.mtl_users import PasswordFile, password_in
from trunkline.cli.options.groups import Keys
from trunkline.cli.options.shared import Json, encodable, example
from trunkline.cli.terminal.output import Output
from trunkline.cli.terminal.progress import Progress
from trunkline.errors import LocalProtocolError

if TYPE_CHECKING:
    from trunkline.cli.terminal.json_lines import Line
    from trunkline.conform.checks import Message, Result, Subject, Suite

__all__ = ["EXAMPLE", "conform"]

EXAMPLE = example("trunkline conform dcp tcp://127.0.0.1:23990", "trunkline conform mtl --list")

# How many messages of each direction a failed check shows as text.
_SHOWN = 6

_NAMES = [protocol.name for protocol in PROTOCOLS]


def _known(value: str) -> str:
    """Refuses unknown protocols."""
    if value not in _NAMES:
        hint = did_you_mean(value, _NAMES) or f" (choose from {', '.join(map(repr, _NAMES))})."
        message = f"{value!r} is no protocol{hint}"
        raise typer.BadParameter(message)
    return value


def conform(
    protocol: Annotated[
        str,
        typer.Argument(
            metavar="PROTOCOL", help=f"The protocol: {', '.join(_NAMES)}.", show_default=False, callback=_known
        ),
    ],
    endpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="ENDPOINT",
            help="What is tested: the broker of dcp, middleware of mc0, server of mtl or sender of cdtp that listens there; "
            "of cdt the NATS server of a target; of chirp the group.",
            show_default=False,
            callback=encodable,
        ),
    ] = None,
    *,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="ID,...", help="Only the checks of these requirements, e.g. DCP-14,DCP-20."),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds",
            min=1,
            metavar="S",
            help="How long all checks may take. An answer is awaited for a fortieth of it, but at least 0.2 s and at most 3 s.",
        ),
    ] = 120.0,
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            metavar="NAME",
            help="Log in as this user: of MTL by SCRAM, to NATS, or by ZeroMQ's PLAIN.",
            callback=encodable,
        ),
    ] = None,
    password_file: PasswordFile = None,
    keys: Keys,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="NAME", help="The target that is tested, of cdt.", callback=encodable),
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="Print the requirements, and which can be judged; nothing is tested.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Tests another implementation of a protocol from outside, as a peer of it.

    Prints each check that failed, with what was sent, what came and what is wanted; each that was skipped, with the reason; and
    a table of all. Exits with 1 if one failed.
    It sends no more than a peer may, and connects to nothing but what is given. Names of its own begin with trunkline.conform.
    """
    suite: Suite[Any] = importlib.import_module(f"trunkline.conform.{protocol}").SUITE
    output = Output(json=as_json)
    if listing:
        _list(suite, output)
        return
    if endpoint is None:
        message = "Missing argument 'ENDPOINT'."
        raise typer.BadParameter(message)
    chosen = [name.strip().upper() for name in (only or "").split(",") if name.strip()]
    subject = _subject(endpoint, user, password_file, keys, target)
    from trunkline.conform.checks import Limits
    from trunkline.conform.checks import conform as run

    try:
        suite.checked(subject)
        total = len(suite.chosen(chosen))
    except LocalProtocolError as error:
        message = f"{error}."
        raise typer.BadParameter(message) from None
    results = []
    with Progress(f"testing {without_secrets(endpoint)}", total) as progress:
        for result in run(suite, subject, chosen, Limits(seconds)):
            results.append(result)
            _show(result, output)
            progress.at(len(results))
    _sum_up(results, output)


def _subject(endpoint: str, user: str | None, password_file: Path | None, keys: Keys, target: str | None) -> Subject:
    from trunkline.conform import checks

    password = None
    if password_file is not None:
        if user is None:
            message = "--password-file needs --user."
            raise typer.BadParameter(message)
        password = password_in(password_file)
    elif user is not None:
        password = os.environ.get("TRUNKLINE_PASSWORD", "").removesuffix("\n").removesuffix("\r") or None
    curve = keys.curve()
    made = None
    if curve is not None:
        options = curve._native_options()  # noqa: SLF001 - as roles take it
        made = checks.Keys(options["curve_public"], options["curve_secret"], options["curve_server"])
    return checks.Subject(endpoint, user, password, made, target)


def _show(result: Result, output: Output) -> None:
    """Prints a check: as JSON each one, as text one that did not pass."""
    if output.json:
        output.event("check", **{name: getattr(result, name) for name in result.__dataclass_fields__})
    elif result.result == "skip":
        output.paragraph(f"{result.id} skipped: ", readable(result.reason or ""))
    elif result.result == "fail":
        output.paragraph(f"{result.id} failed: ", result.title)
        for name, messages in (("sent", result.sent), ("received", result.received)):
            shown = [*map(_in_words, messages[-_SHOWN:])] or ["nothing"]
            if len(messages) > _SHOWN:
                shown.insert(0, f"… ({counted(len(messages) - _SHOWN, 'message')} before, with --json)")
            for at, text in enumerate(shown):
                output.paragraph(f"  {'' if at else name:<8}  ", text)
        output.paragraph("  wanted    ", result.wanted)
        output.paragraph("  reason    ", readable(result.reason or ""))


def _in_words(message: Message) -> str:
    frames = (frame if isinstance(frame, str) else readable_bytes(frame) or "∅" for frame in message.frames)
    return f"{readable(message.peer)}: {' · '.join(frames)}"


def _sum_up(results: list[Result], output: Output) -> None:
    """Prints a table of all, and the counts."""
    count = {kind: sum(result.result == kind for result in results) for kind in ("pass", "fail", "skip")}
    if not output.json:
        rows = sorted([result.id, result.result, result.title] for result in results)
        output.table(("requirement", "result", "about"), rows)
    text = f"{counted(count['pass'], 'check')} passed, {count['fail']:,} failed, {count['skip']:,} skipped"
    output.remark("conformed", text, passed=count["pass"], failed=count["fail"], skipped=count["skip"])
    if count["fail"]:
        output.fail(text)


def _list(suite: Suite[Any], output: Output) -> None:
    rows = [
        *({"id": check.id, "judged": True, "about": check.title} for check in suite.checks),
        *({"id": name, "judged": False, "about": why} for name, why in suite.elsewhere.items()),
    ]
    rows.sort(key=lambda row: str(row["id"]))
    shown = rows if output.json else [{**row, "judged": "yes" if row["judged"] else "no"} for row in rows]
    output.listing("requirement", ("id", "judged", "about"), shown)


def json_lines() -> dict[str, list[Line]]:
    """The lines of JSON of these commands."""
    from trunkline.cli.terminal.json_lines import line, of
    from trunkline.conform.checks import Result

    return {
        "conform": [
            of("check", Result),
            line("conformed", passed=int, failed=int, skipped=int),
            line("requirement", id=str, judged=bool, about=str),
        ],
    }

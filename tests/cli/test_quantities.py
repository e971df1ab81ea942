"""Sizes and durations with units."""

from __future__ import annotations

import pytest
import typer

from trunkline.cli.app import app


@pytest.fixture(scope="module")
def root():
    return typer.main.get_command(app)


def process(root, path, option, value):
    command = root
    for name in path:
        command = command.commands[name]
    (parameter,) = (each for each in command.params if option in each.opts)
    return parameter.process_value(command.make_context(command.name, [], resilient_parsing=True), value)


@pytest.mark.parametrize(
    ("path", "option", "given", "value"),
    [
        ("cdtp record", "--keep-bytes", "500", 500),
        ("cdtp record", "--keep-bytes", "1_000", 1000),
        ("cdtp record", "--keep-bytes", "50MB", 50_000_000),
        ("cdtp record", "--keep-bytes", "1.5GiB", 3 << 29),
        ("cdtp record", "--keep-bytes", " 2 tib ", 2 << 40),
        ("cdtp record", "--keep-bytes", "10B", 10),
        ("cdtp record", "--keep-bytes", "9223372036854775807", 2**63 - 1),
        ("cdtp record", "--segment-seconds", "500ms", 0.5),
        ("cdtp record", "--segment-seconds", "1.5", 1.5),
        ("cdtp record", "--segment-seconds", "5m", 300.0),
        ("cdtp record", "--segment-seconds", "5min", 300.0),
        ("cdtp record", "--idle", "1h", 3600.0),
        ("cdtp record", "--keep-days", "36h", 1.5),
        ("cdtp record", "--keep-days", "7", 7.0),
        ("cdtp record", "--count", "12", 12),
        ("mc0 middleware", "--max-ttl", "10s", 10_000),
        ("mc0 middleware", "--max-ttl", "250", 250),
        ("capture topics", "--window", "2m", 120.0),
    ],
)
def test_a_number_may_have_a_unit(root, path, option, given, value):
    found = process(root, path.split(), option, given)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("option", "given", "said"),
    [
        (
            "--keep-bytes",
            "50M",
            "'50M' is not a size: expected bytes such as 500000000, or with a unit 50MB or 1.5GiB.",
        ),
        ("--keep-bytes", "10s", "is not a size"),
        ("--keep-bytes", "9000PiB", "9000PiB is too large: the maximum is 9,223,372,036,854,775,807 bytes."),
        ("--keep-bytes", "-1", "-1 is too small: the minimum is 0 bytes."),
        (
            "--idle",
            "10MB",
            "'10MB' is not a duration: expected seconds such as 10, or with a unit 500ms, 10s, 5m, 2h or 1d.",
        ),
        ("--idle", "1e300", "1e300 is too large: the maximum is 1,000,000,000 s."),
        ("--idle", "1e5d", "1e5d is too large: the maximum is 1,000,000,000 s."),
        ("--idle", 10**400, "is too large: the maximum is 1,000,000,000 s."),
        ("--idle", "nan", "'nan' is not a duration"),
        ("--idle", float("nan"), "nan is not a duration"),
        ("--idle", "", "'' is not a duration"),
        ("--segment-seconds", "5ms", "5ms is too small: the minimum is 0.1 s."),
        ("--count", "1.5", "'1.5' is not a whole number: expected digits such as 1000."),
        ("--count", "1e400", "1e400 is too large: the maximum is 9,223,372,036,854,775,807."),
        ("--count", "-1e400", "-1e400 is too small"),
        ("--count", float("inf"), "inf is too large"),
        ("--count", 10**400, "is too large"),
        ("--keep-bytes", float("inf"), "inf is too large"),
        ("--count", "5MB", "'5MB' is not a whole number"),
        ("--count", True, "True is not a whole number"),
    ],
)
def test_what_is_no_quantity_is_said_in_our_words(root, option, given, said):
    with pytest.raises(typer.BadParameter) as refused:
        process(root, ["cdtp", "record"], option, given)
    assert said in refused.value.message


def test_infinity_is_out_of_bounds_for_each_number(root):
    for option in options(root):
        if option.type_descriptor.annotation in (int, float):
            for given, said in ((float("inf"), "inf is too large"), (float("-inf"), "-inf is too small")):
                with pytest.raises(typer.BadParameter, match=said):
                    option.process_value(typer.Context(root), [given] if option.multiple else given)


def options(command):
    for below in getattr(command, "commands", {}).values():
        yield from options(below)
    yield from (each for each in command.params if each.param_type_name == "option")


def test_each_size_and_each_duration_takes_units(root):
    words = ("bytes", "seconds", "timeout", "interval", "idle", "window", "ttl", "days")
    for option in options(root):
        is_number = option.type_descriptor.annotation in (int, float)
        if is_number and option.name.endswith(words) and option.opts[0] != "--window" and option.metavar != "N":
            assert option.metavar.strip("[]") in ("BYTES", "S", "MS", "D"), option.opts

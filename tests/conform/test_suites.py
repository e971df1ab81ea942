"""Every requirement of a protocol is judged or said to be judged elsewhere, in the words of its table."""

import importlib
import tomllib
from pathlib import Path

import pytest

from trunkline import LocalProtocolError
from trunkline._protocols import PROTOCOLS

REQUIREMENTS = Path(__file__).parents[1] / "requirements"


def suite(protocol):
    return importlib.import_module(f"trunkline.conform.{protocol}").SUITE


def listed(protocol):
    """The requirements of a protocol; CDTP's table has those of CHIRP."""
    file = {"chirp": "cdtp"}.get(protocol, protocol)
    every = tomllib.loads((REQUIREMENTS / f"{file}.toml").read_text())
    return {name: each["about"] for name, each in every.items() if name.startswith(f"{protocol.upper()}-")}


@pytest.mark.parametrize("protocol", [protocol.name for protocol in PROTOCOLS])
def test_every_requirement_is_in_its_suite(protocol):
    judged = [check.id for check in suite(protocol).checks]
    assert len(judged) == len(set(judged))
    assert not {*judged} & suite(protocol).elsewhere.keys()
    assert {*judged} | suite(protocol).elsewhere.keys() == listed(protocol).keys()


@pytest.mark.parametrize("protocol", [protocol.name for protocol in PROTOCOLS])
def test_a_title_is_that_of_the_table(protocol):
    assert {check.id: check.title for check in suite(protocol).checks}.items() <= listed(protocol).items()


@pytest.mark.parametrize("protocol", [protocol.name for protocol in PROTOCOLS])
def test_what_a_check_needs_comes_before_it(protocol):
    before = set()
    for check in suite(protocol).checks:
        assert {*check.needs} <= before, check.id
        before.add(check.id)


def test_what_is_no_requirement_is_refused():
    with pytest.raises(LocalProtocolError, match="no requirement 'DCP-99'"):
        suite("dcp").chosen(["DCP-99"])
    with pytest.raises(LocalProtocolError, match="DCP-05 cannot be judged from outside: clients and workers do this"):
        suite("dcp").chosen(["DCP-05"])

"""The reference has every public name of every protocol, and every option of every role with its default."""

import importlib
import inspect
import re
from pathlib import Path

import pytest
from tools.options import PROTOCOLS, roles, tables

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@pytest.fixture(scope="module")
def text():
    return tables()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_public_name_is_on_the_page(protocol):
    listed = re.findall(
        rf"^::: trunkline\.{protocol}\.(\w+)$", (REFERENCE / f"{protocol}.md").read_text(), re.MULTILINE
    )
    assert sorted(listed) == sorted(importlib.import_module(f"trunkline.{protocol}").__all__)


def test_every_option_of_every_role_is_in_a_table(text):
    found = list(roles())
    assert len(found) >= 13
    options = 0
    for role in found:
        section = re.search(rf"^### {role.protocol}\.{role.name}\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL)
        for name in role.parameters:
            options += 1
            assert f"| <code>{name}</code> |" in (text if name in role.shared else section[1]), (role, name)
    assert options > 200


def test_defaults_are_those_of_the_code(text):
    for row in (
        "| <code>queue_messages</code> | <code>int</code> | 100,000 |",
        "| <code>batch_bytes</code> | <code>int</code> | 128 KiB |",
        "| <code>header</code> | <code>Header</code> | `'S'` |",
        "| <code>bind</code> | <code>Endpoints</code> | none |",
    ):
        assert row in text
    worker = importlib.import_module("trunkline.dcp").Worker
    assert inspect.signature(worker).parameters["concurrency"].default == 1
    assert "| <code>concurrency</code> | <code>int</code> | 1 |" in text
    assert "Default:" not in text

"""The reference has every public name of every protocol, and every option of every role with its default."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
from tools.options import roles, tables

import trunkline
from trunkline import capture, report
from trunkline._protocols import PROTOCOLS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@pytest.fixture(scope="module")
def text():
    return tables()


@pytest.mark.parametrize("room", [*(protocol.name for protocol in PROTOCOLS), "capture", "report", "spark", "testing"])
def test_every_public_name_is_on_one_page(room):
    pages = "".join(page.read_text() for page in REFERENCE.glob(f"{room}*.md"))
    # Some functions are listed by the module of the same name that they are in.
    listed = re.findall(rf"^::: trunkline\.{room}\.(?:\w+\.)?(\w+)$", pages, re.MULTILINE)
    public = set(importlib.import_module(f"trunkline.{room}").__all__)
    # Reports have pages of their own.
    public -= {"capture": {"report"}, "spark": set(report.__all__)}.get(room, set())
    public |= {"report"} if room == "report" else set()
    assert sorted(listed) == sorted(public)


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


ROOMS = [
    importlib.import_module(f"trunkline.{name}")
    for name in dir(trunkline)
    if inspect.ismodule(getattr(trunkline, name))
]


def documented_attributes():
    for room in ROOMS:
        for name in room.__all__:
            value = getattr(room, name)
            if (
                inspect.isclass(value)
                and value.__module__.startswith("trunkline.")
                and "_native" not in value.__module__
            ):
                section = re.search(
                    r"^Attributes:\n(.*?)(?=^\S|\Z)", inspect.getdoc(value) or "", re.MULTILINE | re.DOTALL
                )
                for attribute in re.findall(r"^    (\w+): ", section[1] if section else "", re.MULTILINE):
                    yield value, attribute


def test_every_documented_attribute_has_a_type():
    found = list(documented_attributes())
    assert len(found) > 100
    for kind, attribute in found:
        is_annotated = any(attribute in vars(base).get("__annotations__", {}) for base in kind.__mro__)
        assert is_annotated or isinstance(getattr(kind, attribute, None), property), (kind, attribute)


def test_what_has_the_name_of_the_module_it_is_in_has_an_entry_of_its_own():
    # A reader of the source finds the module instead.
    hidden = 0
    for room in ROOMS:
        beside = {module.name for module in pkgutil.iter_modules(getattr(room, "__path__", ()))}
        pages = "".join(page.read_text() for page in REFERENCE.glob(f"{room.__name__.rpartition('.')[2]}*.md"))
        for name in beside & set(room.__all__):
            hidden += 1
            entry = name if inspect.ismodule(getattr(room, name)) else f"{name}.{name}"
            assert f"::: {room.__name__}.{entry}\n" in pages
    assert hidden >= 6


def test_the_example_of_captures_runs_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"^```python\n(.*?)^```$", capture.__doc__, re.MULTILINE | re.DOTALL)
    exec(compile(example, "capture", "exec"), {})
    assert capsys.readouterr().out == "1 {'Detector.one'}\n"

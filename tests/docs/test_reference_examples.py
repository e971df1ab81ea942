"""The reference shows how each public class and function is used."""

import ast
import dataclasses
import doctest
import importlib
import inspect
import pkgutil
import re
import sys
import typing

import pytest

import trunkline
from trunkline import cdt, cdtp, dcp, mc0, mtl, spark

EXAMPLE = re.compile(r"^```(pycon|python)$", re.MULTILINE)
# Not run by doctest, which is not to start a JVM.
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROOMS = [
    trunkline,
    *(
        importlib.import_module(f"trunkline.{module.name}")
        for module in pkgutil.iter_modules(trunkline.__path__)
        if not module.name.startswith("_") and module.name not in ("cli", "conform", "demo")
    ),
]


def is_native(value):
    """Whether it is of Rust, whose docstrings are in stubs."""
    modules = [module for name, module in sys.modules.items() if f"{name}.".startswith("trunkline._native.")]
    return any(value is each for module in modules for each in vars(module).values())


def is_used(value):
    """Whether it is a function to call or a class to create: no record that is returned, and nothing to annotate with."""
    if is_native(value) or not (value.__module__ or "").startswith("trunkline."):
        return False
    if not inspect.isclass(value):
        return True
    is_record = dataclasses.is_dataclass(value) and value.__dataclass_params__.frozen
    is_annotation = typing.is_typeddict(value) or getattr(value, "_is_protocol", False)
    return not (is_record or is_annotation or issubclass(value, BaseException))


def used():
    for room in ROOMS:
        for name in room.__all__:
            value = getattr(room, name)
            if (inspect.isclass(value) or inspect.isroutine(value)) and is_used(value):
                yield pytest.param(room.__name__, value, id=f"{room.__name__}.{name}")


def test_most_of_what_is_public_is_used():
    assert len(list(used())) > 90


@pytest.mark.parametrize(("room", "value"), list(used()))
def test_what_is_used_has_an_example(room, value):
    kinds = EXAMPLE.findall(inspect.getdoc(value))
    assert kinds
    assert room == spark.__name__ or "pycon" in kinds


def classes():
    """The classes that are used, each once."""
    return dict.fromkeys(value for _, value in (param.values for param in used()) if inspect.isclass(value))


def lineage(value):
    """A class, and those it inherits from, of trunkline."""
    return [each for each in value.__mro__ if each.__module__.startswith("trunkline.")]


def methods(value):
    """The public methods of a class: those that trunkline defines, and not only declares."""
    for name in sorted({name for each in lineage(value) for name in vars(each) if not name.startswith("_")}):
        method = getattr(value, name)
        if inspect.isroutine(method) and not getattr(method, "__isabstractmethod__", False):
            yield name, method


def called(thing):
    """The names of the methods that the examples of a docstring call, or give to what calls them."""
    text = inspect.getdoc(thing) or ""
    sources = [example.source for example in doctest.DocTestParser().get_examples(text)]
    nodes = (node for source in [*sources, *SNIPPET.findall(text)] for node in ast.walk(ast.parse(source)))
    calls = (node for node in nodes if isinstance(node, ast.Call))
    named = (each for call in calls for each in (call.func, *call.args, *(given.value for given in call.keywords)))
    return {each.attr for each in named if isinstance(each, ast.Attribute)}


def test_most_methods_are_looked_at():
    assert sum(len(list(methods(value))) for value in classes()) > 250


@pytest.mark.parametrize("value", classes(), ids=lambda value: f"{value.__module__}.{value.__name__}")
def test_each_method_has_an_example(value):
    of_class = {name for each in lineage(value) for name in called(each)}
    assert [name for name, method in methods(value) if name not in of_class | called(method)] == []


@pytest.fixture
def captures(tmp_path, monkeypatch):
    """The captures that the examples of Spark read, in the working directory."""
    monkeypatch.chdir(tmp_path)
    here = "tcp://127.0.0.1:*"
    with cdtp.Recorder("runs", bind=here) as recorder:
        with cdtp.Sender("Detector.one", header="B", connect=recorder.endpoints) as sender:
            sender.send(b"event", tags={"run": 7})
        recorder.wait(count=3, timeout_s=10)
    with dcp.Broker(bind=here, capture="broker") as broker, dcp.Worker(b"echo", connect=broker.endpoints) as worker:
        with dcp.Client(connect=broker.endpoints) as client:
            future = client.submit(b"echo", b"hello")
            worker.receive(timeout_s=10).reply(b"hello")
            future.result(timeout=10)
    with mc0.Middleware(bind=here, capture="bus") as bus, mc0.Connector(connect=bus.endpoints) as connector:
        connector.subscribe("runs.1", timeout_s=10)
        connector.put("runs.1", b"begins", confirm=True, timeout_s=10)
    with mtl.Server(bind=here, anonymous=True, resources=["jobs"], capture="queue") as server:
        with mtl.Client(connect=server.endpoints) as client, client.writer("jobs") as writer:
            writer.send(b"build 7")
            writer.flush(timeout_s=10)
    with cdt.Target("cdp", servers="memory://fleet", capture="fleet") as target:
        target.put("app-1", "endpoint-7", b"{}")


@pytest.mark.spark
@pytest.mark.usefixtures("captures")
@pytest.mark.timeout(600)
def test_examples_of_spark_run_as_printed():
    snippets = [
        snippet
        for name in spark.__all__
        if inspect.isroutine(value := getattr(spark, name))
        for snippet in SNIPPET.findall(inspect.getdoc(value))
    ]
    assert len(snippets) > 20
    session = spark.session(master="local[2]")
    for snippet in snippets:
        exec(compile(snippet, "spark", "exec"), {"__name__": "__main__"})
    session.stop()

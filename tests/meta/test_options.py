"""What the roles take is said where users look for it: in `help`, on the site, with defaults that are those of the code."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import trunkline
from trunkline import cdtp, dcp, mc0, mtl
from trunkline._protocols import ROLES
from trunkline.capture import replay
from trunkline.options import DEFAULTS, RoleOptions, SocketOptions

ROOT = Path(__file__).parents[2]
ALL = set(DEFAULTS)

# What each takes of the options, and what it has none of.
TAKERS = [
    (cdtp.Sender, ALL),
    (cdtp.AsyncSender, ALL),
    (cdtp.Receiver, ALL),
    (cdtp.AsyncReceiver, ALL),
    (cdtp.Recorder, ALL - {"capture", "capture_overflow"}),
    (cdtp.AsyncRecorder, ALL - {"capture", "capture_overflow"}),
    (dcp.Broker, ALL - {"connect"}),
    (dcp.AsyncBroker, ALL - {"connect"}),
    (dcp.Worker, ALL - {"bind"}),
    (dcp.AsyncWorker, ALL - {"bind"}),
    (dcp.Client, ALL - {"bind"}),
    (dcp.AsyncClient, ALL - {"bind"}),
    (mc0.Connector, ALL - {"bind"}),
    (mc0.AsyncConnector, ALL - {"bind"}),
    (mc0.Middleware, ALL - {"connect"}),
    (mc0.AsyncMiddleware, ALL - {"connect"}),
    (mtl.Server, ALL - {"connect", "socket"}),
    (mtl.AsyncServer, ALL - {"connect", "socket"}),
    (mtl.Client, ALL - {"bind", "socket"}),
    (mtl.AsyncClient, ALL - {"bind", "socket"}),
    (replay, ALL),
]


def test_every_role_with_these_options_is_here():
    takers = [role for role in ROLES if "handshake_timeout_s" in inspect.signature(role.kind).parameters]
    assert {taker for taker, _ in TAKERS} == {replay, *(kind for role in takers for kind in (role.kind, role.twin))}


def described(options):
    """The attributes of a class as its docstring has them, by name."""
    section = inspect.getdoc(options).partition("Attributes:\n")[2]
    return dict(re.findall(r"^    (\w+): (.*(?:\n        .*)*)", section, re.MULTILINE))


UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def shown(name, default):
    """A default in words, with its unit."""
    if default is None or default in ((), {}):
        return "none"
    if name.endswith("bytes"):
        unit, size = next(each for each in UNITS if default % each[1] == 0)
        return f"{default // size} {unit}"
    if name.endswith("_s"):
        return f"{default:g} s"
    if isinstance(default, str):
        return f'"{default}"'
    return str(default) if isinstance(default, bool) else f"{default:,}"


def test_every_option_says_its_default():
    texts = described(SocketOptions) | described(RoleOptions)
    assert list(texts) == list(RoleOptions.__annotations__) == list(DEFAULTS)
    for name, default in DEFAULTS.items():
        assert texts[name].replace("\n        ", " ").endswith(f"Default: {shown(name, default)}."), name


@pytest.mark.parametrize(("taker", "options"), TAKERS, ids=lambda value: getattr(value, "__name__", None))
def test_help_names_every_option_and_its_default(taker, options):
    parameters = inspect.signature(taker).parameters
    assert {name for name in parameters if name in ALL} == options
    for name in options:
        own = isinstance(taker, type) and issubclass(taker, cdtp.Recorder | cdtp.AsyncRecorder)
        if not (own and name.startswith(("segment", "keep"))):
            assert parameters[name].default == DEFAULTS[name], name
        assert "TypedDict" not in str(parameters[name])
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


@pytest.mark.parametrize("taker", [taker for taker, _ in TAKERS if not taker.__name__.startswith("Async")])
def test_the_docstring_of_a_role_says_where_its_options_are(taker):
    text = inspect.getdoc(taker)
    assert re.search(r"`trunkline\.(Role|Socket)Options`", text)
    assert "::: trunkline.options" in (ROOT / "docs" / "reference" / "options.md").read_text()


def test_a_recorder_keeps_what_the_others_keep():
    parameters = inspect.signature(cdtp.Recorder).parameters
    said = inspect.getdoc(cdtp.Recorder)
    for name in ("segment_bytes", "segment_s"):
        assert parameters[name].default is None
        assert re.search(rf"{name}: .*None: {shown(name, DEFAULTS[name]).removesuffix(' s')}\.", said)


def modules():
    names = [each.name for each in pkgutil.walk_packages(trunkline.__path__, "trunkline.")]
    public = [name for name in names if "._" not in name]
    return [trunkline, *map(importlib.import_module, public)]


def docstrings():
    for module in modules():
        yield module.__name__, inspect.getdoc(module)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isroutine(value)):
                continue
            yield f"{module.__name__}.{name}", inspect.getdoc(value)
            for attribute, member in inspect.getmembers(value):
                if not attribute.startswith("_") and (inspect.isroutine(member) or isinstance(member, property)):
                    yield f"{module.__name__}.{name}.{attribute}", inspect.getdoc(member)


def test_no_public_docstring_names_a_private_place():
    seen = 0
    for where, text in docstrings():
        seen += 1
        assert not re.search(r"trunkline(?:\.\w+)*\._\w+", text or ""), where
    assert seen > 300

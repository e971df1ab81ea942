"""What the package says it has is there, documented, and no native class can be changed under its users."""

import importlib
import inspect
import pkgutil

import pytest

import trunkline
from peers.roles import KINDS
from trunkline import _native, errors
from trunkline._protocols import PROTOCOLS

# What users import: the command line, its tests of others and its demo are used as commands.
ROOMS = [
    "trunkline",
    *(
        f"trunkline.{module.name}"
        for module in pkgutil.iter_modules(trunkline.__path__)
        if not module.name.startswith("_") and module.name not in ("cli", "conform", "demo")
    ),
]


def test_there_are_as_many_rooms_as_there_were():
    assert len(ROOMS) >= 16


@pytest.mark.parametrize("name", ROOMS)
def test_every_exported_name_exists_and_is_documented(name):
    module = importlib.import_module(name)
    assert inspect.getdoc(module)
    assert module.__all__
    for exported in module.__all__:
        value = getattr(module, exported)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert inspect.getdoc(value), f"{name}.{exported}"


@pytest.mark.parametrize("name", ROOMS)
def test_dir_lists_what_is_exported(name):
    module = importlib.import_module(name)
    assert dir(module) == sorted(module.__all__)


def test_every_room_is_listed_by_the_package():
    assert {name.removeprefix("trunkline.") for name in ROOMS[1:]} <= set(dir(trunkline))


def test_every_public_method_is_documented():
    seen = 0
    for room in map(importlib.import_module, ROOMS):
        for name in room.__all__:
            kind = getattr(room, name)
            if not inspect.isclass(kind) or not kind.__module__.startswith("trunkline"):
                continue
            for attribute, value in inspect.getmembers(kind):
                if not attribute.startswith("_") and (inspect.isroutine(value) or isinstance(value, property)):
                    seen += 1
                    assert inspect.getdoc(value), f"{room.__name__}.{name}.{attribute}"
    assert seen > 500


def test_blocking_and_asyncio_have_the_same_names():
    rooms = [getattr(trunkline, protocol.name) for protocol in PROTOCOLS]
    pairs = [(room, name) for room in rooms for name in room.__all__ if f"Async{name}" in room.__all__]
    assert len(pairs) >= 17
    found = {f"{room.__name__.removeprefix('trunkline.')}.{name}" for room, name in pairs}
    # These are made by other roles.
    assert found == set(KINDS) | {"mtl.Reader", "mtl.Writer", "cdt.Watch"}
    for room, name in pairs:
        blocking, twin = getattr(room, name), getattr(room, f"Async{name}")
        public = {attribute for attribute in dir(blocking) if not attribute.startswith("_")}
        assert public == {attribute for attribute in dir(twin) if not attribute.startswith("_")}
        assert list(inspect.signature(blocking).parameters) == list(inspect.signature(twin).parameters)
        for attribute in public:
            ours, theirs = getattr(blocking, attribute), getattr(twin, attribute)
            if inspect.isfunction(ours):
                assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)


def test_every_error_is_one_of_ours():
    classes = [getattr(errors, name) for name in errors.__all__]
    assert len(classes) == 12
    assert all(issubclass(error, trunkline.TrunklineError) for error in classes)
    assert issubclass(errors.TimeoutError, TimeoutError)
    assert issubclass(errors.DecodeError, ValueError)


def test_it_is_a_release_build():
    assert _native.build_profile == "release"


def test_importing_the_core_needs_neither_pyarrow_nor_pyspark():
    import subprocess
    import sys

    script = (
        "import sys; from trunkline import capture, cdtp; print({'pyarrow', 'pyspark', 'typer'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def native_classes():
    seen, rooms = set(), [_native]
    for room in rooms:
        for value in vars(room).values():
            if inspect.ismodule(value) and value.__name__.startswith("trunkline._native") and value not in rooms:
                rooms.append(value)
            elif inspect.isclass(value):
                seen.add(value)
    return sorted(seen, key=lambda kind: (kind.__module__, kind.__qualname__))


def test_native_objects_take_no_attributes():
    classes = native_classes()
    assert {"Message", "Receiver", "Broker", "Capture", "Guard"} <= {kind.__name__ for kind in classes}
    for kind in classes:
        assert kind.__dictoffset__ == 0, kind


def test_native_objects_cannot_be_changed(tmp_path):
    import zmq

    from trunkline import capture, cdtp, dcp, mc0, mtl

    classes = native_classes()
    message = cdtp.Message("Det", b"x", timestamp_ns=0)
    capture.import_([], tmp_path)
    with (
        cdtp.Sender("Det", bind="tcp://127.0.0.1:*", curve=trunkline.Curve(zmq.curve_keypair(), allow=[])) as sender,
        cdtp.Receiver(bind="tcp://127.0.0.1:*") as receiver,
        dcp.Broker(bind="tcp://127.0.0.1:*") as broker,
        mc0.Connector(connect="tcp://127.0.0.1:9") as connector,
        mtl.Server(bind="tcp://127.0.0.1:*", anonymous=True, resources=["jobs"]) as server,
        mtl.Client(connect=server.endpoints) as client,
        client.reader("jobs") as reader,
    ):
        objects = [
            message,
            dcp.decode([b"", b"DGBX\x01", b"\x02"]),
            capture.open(tmp_path)._native,
            sender._native,
            sender._native.guard,
            receiver._native,
            broker._native,
            mc0.Message("NOOP"),
            connector._native,
            connector._native.notice_queue,
            mtl.Command("A.B"),
            mtl.Reply(200),
            mtl.Message("ping"),
            server._native,
            client._native,
            reader._native,
        ]
        for thing in objects:
            assert type(thing) in classes
            for name in ("added", *[name for name in dir(thing) if not name.startswith("_")]):
                with pytest.raises(AttributeError):
                    setattr(thing, name, None)

"""What the messages of all protocols have in common as Python's objects."""

import copy
import importlib
import pickle
import re

import pytest

from trunkline import ConfigError, DecodeError, cdt, cdtp, columns, dcp, mc0, mtl
from trunkline._protocols import RECORDED

ROOMS = sorted(protocol.name for protocol in RECORDED)

SAMPLES = [
    cdt.ConfigRequest(app_version_name="app", endpoint_id="end", endpoint_message_id="1"),
    cdt.ConfigResponse(
        app_version_name="app", endpoint_id="end", endpoint_message_id="1", config_id="c", status_code=404
    ),
    cdt.ConfigPush(app_version_name="app", endpoint_id="end", endpoint_message_id="1", content=b"{}"),
    cdt.ConfigPushResponse(app_version_name="app", endpoint_id="end", endpoint_message_id="1", config_id="c"),
    cdt.ConfigNewAvailable(app_version_name="app", endpoint_id="end", config_id="c"),
    cdt.ConfigUpdated(app_version_name="app", endpoint_id="end", config_id="c"),
    cdtp.Message("Det", b"payload", timestamp_ns=1, tags={"run": 7}),
    cdtp.decode([b"\xa5CDTP\x02\xa3Det\x00\x92\x93\x01\x80\x91\xc4\x01a\x93\x02\x80\x90"]),
    dcp.Message("request", service=b"echo", data=[b"hello"]),
    dcp.Reply([b"hello"]),
    mc0.Message("PUT", [("TOPIC", "runs")], [b"body"]),
    mtl.Command("Queue.Info", {"name": "jobs"}),
    mtl.Reply(200, {"status": "OK"}),
    mtl.Message("content", sequence=1, resource="jobs", properties={"n": 1}, body=b"x"),
]

# Made by a role alone, with which it is tested.
HANDED_OUT = {"dcp.Request", "mtl.Content"}


def test_there_is_a_sample_of_each():
    found = {
        f"{room}.{name}"
        for room in ROOMS
        for name in importlib.import_module(f"trunkline.{room}").__all__
        if hasattr(getattr(importlib.import_module(f"trunkline.{room}"), name), "to_dict")
    }
    assert found == {f"{type(one).__module__.split('.')[1]}.{type(one).__name__}" for one in SAMPLES} | HANDED_OUT
    assert len(found) == 16


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: f"{type(message).__module__}.{type(message).__name__}")
def test_attributes_by_position_and_by_name(message):
    kind = type(message)
    fields = message.to_dict()
    assert list(fields)[: len(kind.__match_args__)] == list(kind.__match_args__)
    assert fields == {name: getattr(message, name) for name in fields}
    public = {name for name in dir(message) if not name.startswith("_") and not callable(getattr(message, name))}
    assert set(fields) == public
    for again in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert again == message
        assert again.to_dict() == fields


def test_patterns():
    match cdtp.Message("Det", b"payload", timestamp_ns=1):
        case cdtp.Message("Det", (payload,), tags={}):
            assert payload == b"payload"
        case _:
            pytest.fail("not matched")
    match mtl.Reply(404, {}):
        case mtl.Reply(404):
            pass
        case _:
            pytest.fail("not matched")


def test_they_count_a_single_thing_in_the_singular():
    shown = [
        repr(cdtp.Message("D", b"x", timestamp_ns=1)),
        repr(dcp.Message("reply", client=b"C", data=[b"x"])),
        repr(dcp.Reply([b"x"])),
        repr(mc0.Message("PUT", [("TOPIC", "t")], [b"x"])),
        repr(mtl.Message("content", sequence=1, body=b"x")),
        repr(cdt.ConfigPush(app_version_name="a", endpoint_id="e", content=b"x")),
        repr(cdtp.decode([b"\xa5CDTP\x02\xa3Det\x00\x91\x93\x01\x80\x90"])),
    ]
    assert all("1 byte>" in words or "<1 message>" in words for words in shown)
    assert not [words for words in shown if re.search(r"\b1 \w+s\b", words)]


def test_an_error_in_a_message_without_frames_names_none():
    with pytest.raises(DecodeError, match=r"^bad_json at byte 1 of a CDT message: "):
        cdt.decode(b"{", "ConfigUpdated")


def test_an_error_of_a_store_names_what_was_asked_for():
    error = ConfigError(404, "Not Found", "the configuration of e-1 (app-1)")
    assert str(error) == "404 Not Found: the configuration of e-1 (app-1)"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.subject) == (str(error), error.subject)
    assert str(ConfigError(409, "")) == "409"


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: f"{type(message).__module__}.{type(message).__name__}")
def test_its_protocol_lists_its_type(message):
    room = type(message).__module__.rpartition(".")[2]
    (protocol,) = [each for each in columns.protocols() if each.name == room]
    kind = getattr(message, "verb", None) or getattr(message, "type", None) or type(message).__name__
    # Messages with header S have none.
    assert kind.lower() in map(str.lower, protocol.message_types) or getattr(message, "variant", "") == "S"
    assert len(set(protocol.message_types)) == len(protocol.message_types)

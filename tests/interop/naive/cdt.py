"""CDT as slow and plain as it can be, from the tables of the specification: to hold the codec against."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, NoReturn

# Each kind: its fields in the order of the schema. What must be there is "!", what must not be empty either is "!!".
KINDS: dict[str, dict[str, str]] = {
    "ConfigRequest": {
        "correlationId": "!!",
        "timestamp": "!",
        "timeout": "!",
        "endpointMessageId": "!!",
        "appVersionName": "!!",
        "endpointId": "!!",
        "configId": "",
    },
    "ConfigResponse": {
        "correlationId": "!",
        "timestamp": "!",
        "timeout": "!",
        "endpointMessageId": "!",
        "appVersionName": "!",
        "endpointId": "!",
        "contentType": "!",
        "configId": "!",
        "statusCode": "!",
        "reasonPhrase": "",
        "content": "",
    },
    "ConfigNewAvailable": {
        "correlationId": "!!",
        "timestamp": "!",
        "timeout": "",
        "originatorReplicaId": "",
        "appVersionName": "!!",
        "endpointId": "!!",
        "configId": "!!",
        "contentType": "",
        "content": "",
    },
    "ConfigUpdated": {
        "correlationId": "!!",
        "timestamp": "!",
        "timeout": "",
        "originatorReplicaId": "",
        "appVersionName": "!!",
        "endpointId": "!!",
        "configId": "!!",
    },
}


class FaultError(Exception):
    """What is wrong, by the name of the kind."""


def refuse(kind: str) -> NoReturn:
    raise FaultError(kind)


def snake_case(name: str) -> str:
    name = re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), name)
    return {"timestamp": "timestamp_ms", "timeout": "timeout_ms"}.get(name, name)


def decode(body: bytes, kind: str) -> dict[str, Any]:
    """The fields of a JSON body; empty texts and what is not there are None."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        refuse("bad_utf8")
    try:
        read = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        refuse("bad_json")
    if not isinstance(read, dict):
        refuse("not_an_object")
    if kind in ("ConfigNewAvailable", "ConfigUpdated") and read.get("timestamp") is None:
        read["timestamp"] = read.get("eventTimestamp")
    found: dict[str, Any] = {}
    faults = []
    for name, need in KINDS[kind].items():
        try:
            found[snake_case(name)] = _value(name, read.get(name), need, is_there=name in read)
        except FaultError as fault:
            faults.append(str(fault))
    if faults:
        raise FaultError(*faults)
    return found


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _value(name: str, value: Any, need: str, *, is_there: bool) -> Any:
    is_whole = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    if name == "timeout" and (value is None and (is_there or not need)):
        return -1
    if value is None:
        if need:
            refuse("missing_field")
        return None
    if name == "timeout":
        if not is_whole:
            refuse("bad_type")
        if value < -1:
            refuse("bad_timeout")
        return value
    if name == "timestamp":
        if not is_whole or value < 0:
            refuse("bad_type")
        return value
    if name == "statusCode":
        if not is_whole or not -(2**31) <= value < 2**31:
            refuse("bad_type")
        return value
    if name == "content":
        if not isinstance(value, dict) or not isinstance(value.get("bytes"), str):
            refuse("bad_type")
        try:
            content = base64.b64decode(value["bytes"], validate=True)
        except (binascii.Error, ValueError):
            refuse("bad_base64")
        if base64.b64encode(content).decode() != value["bytes"]:
            refuse("bad_base64")
        return content
    if not isinstance(value, str):
        refuse("bad_type")
    if not value and need == "!!":
        refuse("missing_field")
    return value or None

"""Checks of the control flow."""

from __future__ import annotations

import json

import zmq

from trunkline.conform.checks import Failed, Skipped
from trunkline.conform.mtl_bench import SUITE, Bench, Control, opening
from trunkline.conform.mtl_wire import MECHANISM, RESOURCE, TEST, read_reply
from trunkline.conform.sockets import shown

__all__ = []


@SUITE.check("MTL-04", "Servers have ROUTER sockets", "a socket that says it is a ROUTER")
def _router(bench: Bench) -> None:
    bench.need_router()


@SUITE.check(
    "MTL-08",
    "A reply is three digits and a JSON object with a status",
    "201 or 401 for Open, with a JSON object that has a status",
)
def _replies(bench: Bench) -> None:
    bench.opened()


@SUITE.check(
    "MTL-01",
    "Each request has one reply, and the server sends nothing unrequested",
    "one reply to each of three commands, and nothing afterwards",
    needs=("MTL-08",),
)
def _one_reply(bench: Bench) -> None:
    control = bench.control()
    for _ in range(3):
        control.expect("Connection.Open", opening(), 201, 401)
    control.peer.expect_silence("each command has had its reply")


@SUITE.check(
    "MTL-05",
    "The envelope of a request ends at its first empty frame, and is that of the reply",
    "a reply for a REQ, for one that puts an id before the empty frame, and for a DEALER that sends that frame itself",
    needs=("MTL-08",),
)
def _envelopes(bench: Bench) -> None:
    command = [b"Connection.Open", json.dumps(opening()).encode()]
    for name, kind, before in (
        ("REQ", zmq.REQ, []),
        ("DEALER", zmq.DEALER, [b""]),
        ("DEALER", zmq.DEALER, [b"\0id1", b""]),
    ):
        peer = bench.open(f"client with a {name}", kind)
        peer.send([*before, *command])
        frames = peer.receive("the reply")
        if frames[: len(before)] != before:
            message = f"the envelope {shown(before)} came back as {shown(frames)}"
            raise Failed(message)
        read_reply(frames[len(before) :])


@SUITE.check(
    "MTL-07",
    "A request is a name and a JSON object",
    "201 or 401 for an Open whose JSON has white space, escapes and nested members",
    needs=("MTL-08",),
)
def _requests(bench: Bench) -> None:
    control = bench.control()
    text = b' {\r\n\t"protocol" : { "name":"\\u004dTL" , "version":1 },\n "virtual-host":"\\/", "x":[{"y":[null,1.5e0,"\xc3\xa4"]}] } '
    control.peer.send([b"", b"Connection.Open", text])
    if control.receive().status not in (201, 401):
        message = "the Open was refused"
        raise Failed(message)


@SUITE.check("MTL-09", "Commands are case-insensitive", "201 or 401 for CONNECTION.open", needs=("MTL-08",))
def _any_case(bench: Bench) -> None:
    control = bench.control()
    for name in ("CONNECTION.open", "connection.OPEN"):
        control.expect(name, opening(), 201, 401)


@SUITE.check(
    "MTL-10", "Unknown members of JSON are ignored", "201 or 401 for an Open with other members", needs=("MTL-08",)
)
def _unknown_members(bench: Bench) -> None:
    protocol = {"name": "MTL", "version": 1, "more": [1]}
    bench.control().expect("Connection.Open", opening(protocol=protocol, more={"a": None}), 201, 401)


@SUITE.check(
    "MTL-11",
    "Open comes first; a second one opens a new session",
    "an error for a command before Open, and 201 or 401 for each Open",
    needs=("MTL-08",),
)
def _open_first(bench: Bench) -> None:
    control = bench.control()
    control.expect("Connection.Profile", {"profile": TEST})
    for _ in range(2):
        control.expect("Connection.Open", opening(), 201, 401)


@SUITE.check(
    "MTL-12",
    "Open names the protocol, its version and a virtual host; each is answered with its own error if it is wrong",
    "an error for another protocol, another version, and a virtual host of nobody's",
    needs=("MTL-08",),
)
def _wrong_opens(bench: Bench) -> None:
    control = bench.control()
    for wrong in (
        {"protocol": {"name": "LTM", "version": 1}},
        {"protocol": {"name": "MTL", "version": 2}},
        {"virtual-host": bench.name().decode()},
    ):
        control.expect("Connection.Open", opening(**wrong))


@SUITE.check(
    "MTL-28",
    "Malformed requests are dropped without a reply",
    "no reply to requests of one and of three frames, and to what is no JSON object; one to the Open after them",
    needs=("MTL-08",),
)
def _malformed(bench: Bench) -> None:
    control, name = bench.control(), b"Connection.Profile"
    for body in ([], [b"{}", b"{}"], [b"{"], [b"[]"], [b'{"profile": "\xff"}'], [b"{} {}"], [b""]):
        control.peer.send([b"", name, *body])
    control.expect("Connection.Open", opening(), 201, 401)
    control.peer.expect_silence("what was malformed was to be dropped")


@SUITE.check(
    "MTL-29",
    "Well-formed requests that are wrong are answered with an error",
    "4xx or 5xx for an Open without its members, and for a Profile without one",
    needs=("MTL-08",),
)
def _wrong(bench: Bench) -> None:
    control = bench.control()
    for body in ({}, {"protocol": 1, "virtual-host": "/"}, {"protocol": {"name": "MTL"}, "virtual-host": "/"}):
        control.expect("Connection.Open", body)
    control, _ = bench.ready()
    for wrong in ({}, {"profile": 5}):
        control.expect("Connection.Profile", wrong)


@SUITE.check(
    "MTL-13",
    "A server may admit clients without a login",
    "201 for Open, with a list of profiles",
    needs=("MTL-08",),
)
def _without_login(bench: Bench) -> None:
    _, reply = bench.opened()
    if reply.status != 201:
        message = "the server wants a login, as it may"
        raise Skipped(message)
    if not isinstance(reply.body.get("profiles"), list):
        message = f"201 came with {json.dumps(reply.body)}, without a list of profiles"
        raise Failed(message)


def _challenged(bench: Bench) -> tuple[Control, list[str]]:
    """A session that is to log in, and the mechanisms on offer."""
    control, reply = bench.opened()
    if reply.status == 201:
        message = "the server lets in everyone"
        raise Skipped(message)
    offered = reply.body.get("mechanisms")
    if not isinstance(offered, list) or not offered or not all(isinstance(each, str) for each in offered):
        message = f"401 came with {json.dumps(reply.body)}, without a list of mechanisms"
        raise Failed(message)
    return control, offered


@SUITE.check(
    "MTL-14",
    "A challenge lists the mechanisms offered; PLAIN is not offered where others can eavesdrop",
    "401 with mechanisms, and no PLAIN over TCP that is not encrypted",
    needs=("MTL-08",),
)
def _mechanisms(bench: Bench) -> None:
    _, offered = _challenged(bench)
    is_clear = bench.subject.endpoint.startswith("tcp://") and bench.subject.curve is None
    if is_clear and "PLAIN" in [each.upper() for each in offered]:
        message = f"PLAIN is among {', '.join(offered)}, and the connection is not encrypted"
        raise Failed(message)


@SUITE.check(
    "MTL-16",
    "Authorize has a mechanism, whose case does not matter, and a response, which may be empty",
    "an error for an unknown mechanism and for what is no BASE64, and 402 or 401 for an empty response",
    needs=("MTL-14",),
)
def _authorize(bench: Bench) -> None:
    control, offered = _challenged(bench)
    control.expect("Connection.Authorize", {"mechanism": "NO-SUCH", "response": ""})
    control.expect("Connection.Authorize", {"mechanism": offered[0], "response": "?"})
    if MECHANISM in offered:
        control.expect("Connection.Authorize", {"mechanism": MECHANISM.lower(), "response": ""}, 400, 401, 402)


def _need_user(bench: Bench) -> tuple[Control, str]:
    """A session that is to log in by SCRAM, and its user."""
    control, offered = _challenged(bench)
    if bench.subject.user is None:
        message = "--user and --password-file give a login"
        raise Skipped(message)
    if MECHANISM not in offered:
        message = f"the server has no {MECHANISM}"
        raise Skipped(message)
    return control, bench.subject.user


@SUITE.check(
    "MTL-17",
    "An unfinished login is answered with a challenge; the server's final message is one too, with an empty response",
    "402 with a challenge for each step, and 201 at the end",
    needs=("MTL-14",),
)
def _logs_in(bench: Bench) -> None:
    control, user = _need_user(bench)
    *challenges, reply = bench.scram(control, user, bench.subject.password or "")
    if reply.status != 201 or not challenges:
        message = f"the login as {user} ended with {reply.status} {reply.body['status']}"
        raise Failed(message)


@SUITE.check(
    "MTL-19",
    "A wrong password and an unknown user look the same",
    "the same replies for a wrong password and for a user of nobody's, but for challenges",
    needs=("MTL-17",),
)
def _same(bench: Bench) -> None:
    ends = []
    for unknown in (False, True):
        control, user = _need_user(bench)
        replies = [*bench.scram(control, bench.name().decode() if unknown else user, bench.name().decode())]
        ends.append(([reply.status for reply in replies], replies[-1].body))
    if ends[0] != ends[1] or ends[0][0][-1] < 400:
        message = f"a wrong password was answered with {ends[0]}, an unknown user with {ends[1]}"
        raise Failed(message)


@SUITE.check(
    "MTL-20",
    "The profile selected is one of those offered",
    "200 for each profile on offer, an error for another",
    needs=("MTL-08",),
)
def _profiles(bench: Bench) -> None:
    control, profiles = bench.ready()
    for profile in profiles:
        control.expect("Connection.Profile", {"profile": profile}, 200)
    control.expect("Connection.Profile", {"profile": bench.name().decode()})


@SUITE.check(
    "MTL-21", "Names of profiles are case-insensitive", "200 for a profile in capital letters", needs=("MTL-20",)
)
def _profiles_any_case(bench: Bench) -> None:
    control, profiles = bench.ready()
    for profile in profiles[:1]:
        control.expect("Connection.Profile", {"profile": profile.upper()}, 200)
        control.expect("Connection.Profile", {"profile": profile.lower()}, 200)


@SUITE.check("MTL-24", "A lease needs a profile", "an error for Reader and Writer before Profile", needs=("MTL-08",))
def _profile_first(bench: Bench) -> None:
    control, _ = bench.ready()
    for kind in ("Reader", "Writer"):
        control.expect(f"Connection.{kind}", {"resources": [RESOURCE], "confirm": "none"})


@SUITE.check(
    "MTL-22",
    "A profile has its commands; others are not implemented",
    "an error for a command of nobody's, and for a list of resources that is none",
    needs=("MTL-20",),
)
def _commands(bench: Bench) -> None:
    control = bench.session()
    control.expect("Nosuch.Command", {})
    control.expect("Connection.Reader", {"resources": 5, "confirm": "none"})


@SUITE.check(
    "MTL-23",
    "A lease is for resources, or for any",
    "202 for the resource and for an empty list, an error for a resource of nobody's",
    needs=("MTL-20",),
)
def _resources(bench: Bench) -> None:
    control = bench.session()
    for kind in ("Reader", "Writer"):
        bench.leased(control, kind)
        bench.leased(control, kind, ())
        control.expect(f"Connection.{kind}", {"resources": [bench.name().decode()], "confirm": "none"})


@SUITE.check(
    "MTL-25",
    "Contents are confirmed or not, as the lease says",
    "202 for none, an error for maybe",
    needs=("MTL-20",),
)
def _confirmations(bench: Bench) -> None:
    control = bench.session()
    bench.leased(control, "Writer")
    control.expect("Connection.Writer", {"resources": [RESOURCE], "confirm": "maybe"})


@SUITE.check(
    "MTL-27",
    "Confirmation is refused as not implemented if the profile does not support it",
    "501 for a lease of the test profile that is to be confirmed",
    needs=("MTL-20",),
)
def _not_implemented(bench: Bench) -> None:
    bench.session().expect("Connection.Writer", {"resources": [RESOURCE], "confirm": "full"}, 501)

"""Profiles: how contents are routed, and which commands a server understands (MTL-22)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from trunkline._arguments import need_callable, need_choice, need_text
from trunkline._native.mtl import Reply
from trunkline.errors import LocalProtocolError

__all__ = ["NAME_BYTES", "Handler", "Profile", "Session", "is_resource_name", "known", "need_leasable"]

# The longest name of a resource, in bytes (MTL-59).
NAME_BYTES = 255

Routing: TypeAlias = Literal["queue", "fanout"]


@dataclass(frozen=True, slots=True)
class Session:
    """The session that a command was sent in.

    Attributes:
        user: The user; None if no login was required.
        virtual_host: The virtual host.
        profile: The profile.
    """

    user: str | None
    virtual_host: str
    profile: str


Handler: TypeAlias = "Callable[[Session, dict[str, Any]], Reply | Mapping[str, Any]]"


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile of your own (MTL-22).

    Attributes:
        name: Its name; case does not matter (MTL-21).
        routing: ``"queue"``: each content goes to one reader, and waits until one is ready; ``"fanout"``: each goes to all
            current readers, and is never confirmed.
        commands: Handlers by command name, e.g. ``"Bank.Transfer"``. A handler is called with the `Session` and the body, in a
            thread of the server, and returns a `Reply`, or a dict for a reply with status 200. An exception is logged, and
            answered with 500.

    ```pycon
    >>> from trunkline import mtl
    >>> bank = mtl.Profile("bank", commands={"Bank.Transfer": lambda session, body: {"amount": body["amount"]}})
    >>> with mtl.Server(bind="tcp://127.0.0.1:*", anonymous=True, profiles=[bank], resources=["ledger"]) as server:
    ...     with mtl.Client(connect=server.endpoints, profile="bank") as client:
    ...         client.command("Bank.Transfer", {"amount": 5}).body
    {'status': 'OK', 'amount': 5}

    ```
    """

    name: str
    routing: Routing = "queue"
    commands: Mapping[str, Handler] = field(default_factory=dict)

    def __post_init__(self) -> None:
        need_text("name", self.name)
        need_choice("routing", self.routing, ("queue", "fanout"))
        for name, handler in self.commands.items():
            if not all(name.partition(".")):
                message = f"{name!r} is not a command name: use Class.Method"
                raise LocalProtocolError(message)
            need_callable(f"commands[{name!r}]", handler)


def is_resource_name(name: str) -> bool:
    """Whether a resource may have this name (MTL-59)."""
    size = len(name.encode(errors="surrogatepass"))
    return 0 < size <= NAME_BYTES and not re.search("[\x00-\x1f\x7f\ud800-\udfff]", name)


def need_leasable(resources: Sequence[str]) -> None:
    """Refuses invalid names of resources (MTL-59).

    Raises:
        LocalProtocolError: A name is empty, too long, or not printable.
    """
    for name in resources:
        if not is_resource_name(name):
            message = f"{name!r} is not a resource name: use printable text of 1 to {NAME_BYTES} bytes"
            raise LocalProtocolError(message)


def known(
    profiles: Sequence[str | Profile], resources: Sequence[str]
) -> list[tuple[str, str, list[str], bool, list[str]]]:
    """The profiles as the engine takes them: name, routing, resources, whether clients may create queues, commands.

    Raises:
        LocalProtocolError: No profile is given, one is unknown, or two have the same name.
    """
    if not profiles:
        message = "profiles is empty: a server needs at least one"
        raise LocalProtocolError(message)
    made: dict[str, tuple[str, str, list[str], bool, list[str]]] = {}
    for profile in profiles:
        if isinstance(profile, Profile):
            one = profile.name, profile.routing, list(resources), False, list(profile.commands)
        elif profile == "test":
            # It has one resource, whatever else there is (MTL-62).
            one = "test", "fanout", ["resource"], False, []
        elif profile == "queue":
            one = "queue", "queue", list(resources), True, []
        else:
            message = f"unknown profile {profile!r}: use 'test', 'queue' or an mtl.Profile"
            raise LocalProtocolError(message)
        if made.setdefault(one[0].lower(), one) is not one:
            message = f"two profiles are named {one[0]!r}"
            raise LocalProtocolError(message)
    return list(made.values())

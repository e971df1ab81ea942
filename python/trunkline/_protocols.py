"""Which protocols there are, and which roles: all that means every one of them iterates over these rows.

A row says what is needed before the rooms of its protocol are imported. All else that varies is in these rooms, which have its name:
`trunkline.NAME`, `trunkline.cli.commands.NAME`, `trunkline.conform.NAME`, and where it is recorded `trunkline.report.NAME` and
`trunkline.spark.NAME`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from trunkline import _native

__all__ = ["PROTOCOLS", "RECORDED", "ROLES", "Protocol", "Role", "rooms"]


class Role(NamedTuple):
    """A class of a protocol that users make by its options, with an asyncio twin.

    Attributes:
        protocol: The protocol.
        name: The class.
    """

    protocol: str
    name: str

    @property
    def kind(self) -> type[Any]:
        """The class."""
        return self._of("")

    @property
    def twin(self) -> type[Any]:
        """Its asyncio twin."""
        return self._of("Async")

    def _of(self, prefix: str) -> type[Any]:
        kind: type[Any] = getattr(importlib.import_module(f"trunkline.{self.protocol}"), prefix + self.name)
        return kind


class Protocol(NamedTuple):
    """A protocol.

    Attributes:
        name: Its name, as in the column `protocol` of a capture.
        roles: The classes of its roles; those that other roles make are none.
        messages: The classes of its messages, by the order of `AnyMessage`; none if it is not recorded.
        kind: The column of the message type in its table.
        subject: The criterion of a selection for the column `topic` of its rows.
        criteria: The criteria that look into its messages.
    """

    name: str
    roles: tuple[str, ...]
    messages: tuple[str, ...] = ("Message",)
    kind: str = "type"
    subject: str | None = None
    criteria: tuple[str, ...] = ()

    @property
    def prefix(self) -> str:
        """What its name is in those of classes, as `DcpOptions` and `DcpSection`."""
        return self.name.capitalize()

    @property
    def is_recorded(self) -> bool:
        """Whether its messages can be decoded into columns."""
        return self.name in _NATIVE


# What Rust decodes into columns.
_NATIVE = {each.name for each in _native.protocols()}

# In the order of the documentation.
PROTOCOLS = (
    Protocol("cdtp", roles=("Receiver", "Recorder", "Sender"), criteria=("sender", "run")),
    Protocol("chirp", roles=("Beacon",), messages=()),
    Protocol("dcp", roles=("Broker", "Client", "Worker"), subject="service"),
    Protocol("mc0", roles=("Connector", "Middleware"), kind="verb", subject="topic"),
    Protocol("mtl", roles=("Client", "Server"), messages=("Command", "Reply", "Message"), subject="resource"),
    Protocol(
        "cdt",
        roles=("Recorder", "Source", "Target"),
        messages=(
            "ConfigRequest",
            "ConfigResponse",
            "ConfigPush",
            "ConfigPushResponse",
            "ConfigNewAvailable",
            "ConfigUpdated",
        ),
        subject="topic",
    ),
)
RECORDED = tuple(protocol for protocol in PROTOCOLS if protocol.is_recorded)
ROLES = tuple(Role(protocol.name, name) for protocol in PROTOCOLS for name in protocol.roles)


def rooms(package: str, protocols: Iterable[Protocol] = RECORDED) -> Iterator[tuple[str, ModuleType]]:
    """The module of each protocol in a package, by its name."""
    for protocol in protocols:
        yield protocol.name, importlib.import_module(f"{package}.{protocol.name}")

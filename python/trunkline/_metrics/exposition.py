"""Serves the metrics of a role."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trunkline._extras import needs
from trunkline._metrics.collector import Collector, role_name
from trunkline._metrics.scrapes import Scrapes
from trunkline._roles.endpoints import host_and_port, is_public

if TYPE_CHECKING:
    from trunkline._roles.base import Role

__all__ = ["exposed", "served"]


def exposed(role: Role, at: str) -> Scrapes:
    """Serves the metrics of a role, without keeping the role alive.

    Raises:
        LocalProtocolError: As by `served`.
        OSError: As by `served`.
    """
    exposed_role = weakref.ref(role)

    def state() -> str:
        there = exposed_role()
        return "closed" if there is None else there._state  # noqa: SLF001 - it shows itself by this

    def read() -> Any:
        there: Any = exposed_role()
        return None if there is None or there._native is None else there.stats  # noqa: SLF001 - likewise

    return served(type(role), read, state, at)


@needs("metrics", "prometheus_client")
def served(kind: type[Any], read: Callable[[], Any], state: Callable[[], str], at: str) -> Scrapes:
    """Serves metrics.

    Args:
        kind: The class of what they are of.
        read: Gives its counters as they are now; None where there are none yet, or any more.
        state: Says how it is: "serving", or in a word why it does not.
        at: Where: HOST:PORT.

    Raises:
        LocalProtocolError: It is no HOST:PORT, or the extra ``metrics`` is not installed.
        OSError: The port is taken, or the address is not one of this machine.
    """
    from prometheus_client import CollectorRegistry, ProcessCollector

    host, port = host_and_port(at)
    registry = CollectorRegistry()
    registry.register(Collector(kind, read, lambda: state() == "serving"))
    ProcessCollector(registry=registry)
    scrapes = Scrapes(host, port, registry, state, role_name(kind))
    if is_public(f"tcp://{host}:{port}"):
        text = f"{scrapes.url}: whoever can connect reads the counters, and the names in them: let only those connect who should"
        logging.getLogger("trunkline").warning(text)
    return scrapes

"""`trunkline cdt status` and `history`: the state of a fleet, read from a store file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from trunkline.cli.options.cdt import (
    App,
    Endpoint,
    StoreFile,
)
from trunkline.cli.options.shared import (
    Json,
    example,
)
from trunkline.cli.terminal.output import Output

__all__ = ["HISTORY", "STATUS", "history", "status"]

STATUS = example("trunkline cdt status app-1 --store configs.db")
HISTORY = example("trunkline cdt history app-1 endpoint-7 --store configs.db")


def status(app_version_name: App, *, store: StoreFile, as_json: Json = False) -> None:
    """Lists endpoints, with the configuration assigned to each and the one it has applied."""
    rows = _looked_up(store, lambda opened: opened.rollout(app_version_name))
    _table(
        Output(json=as_json),
        "endpoint",
        ("endpoint_id", "current", "applied", "since_ms"),
        [(row.endpoint_id, row.current, row.applied, row.since_ms) for row in rows],
    )


def history(app_version_name: App, endpoint: Endpoint, *, store: StoreFile, as_json: Json = False) -> None:
    """Lists the configurations assigned to an endpoint, oldest first."""
    rows = _looked_up(store, lambda opened: opened.history(app_version_name, endpoint))
    _table(
        Output(json=as_json),
        "assignment",
        ("config_id", "content_type", "content_bytes", "since_ms"),
        [(row.config_id, row.content_type, row.content_bytes, row.since_ms) for row in rows],
    )


def _looked_up(store: Path, look: Callable[[Any], Any]) -> Any:
    from trunkline.cdt import SqliteStore

    opened = SqliteStore(store, read_only=True)
    try:
        return look(opened)
    finally:
        opened.close()


def _table(output: Output, event: str, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    if output.json:
        for row in rows:
            output.event(event, **dict(zip(names, row, strict=True)))
        return
    # Times are shown as such, not in milliseconds.
    heads = [name.removesuffix("_ms") for name in names]
    output.table(heads, [[_cell(name, value) for name, value in zip(names, row, strict=True)] for row in rows])


def _cell(name: str, value: Any) -> str:
    from datetime import UTC, datetime

    if value is None:
        return "-"
    if name == "since_ms":
        try:
            return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        except (OverflowError, ValueError, OSError):
            # Peers may report any time.
            return f"{value} ms"
    return str(value)

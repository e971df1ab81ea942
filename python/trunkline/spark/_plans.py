"""What a table reads, by its plan: Spark says it nowhere else.

A plan of another version of Spark than those that are known is none of a table that only reads something.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SOURCE", "Files", "Read", "files_of", "is_cached", "read_of"]

# The name of the data source.
SOURCE = "trunkline"

# The nodes that read a source in a batch and in a stream, and where their options are.
_OPTIONS_OF = {"DataSourceV2Relation": "options", "StreamingRelationV2": "extraOptions"}

# The node that reads files.
_FILES = "LogicalRelation"

# How a stream says that its source has no name of its own.
_UNNAMED = "name=<Unassigned>"


@dataclass(frozen=True, slots=True)
class Read:
    """What a table reads of the data source, and nothing else.

    Attributes:
        options: The options of the source.
        watermark: The column of a watermark and its delay, if there is one.
    """

    options: dict[str, str]
    watermark: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class Files:
    """What a table reads of files, and nothing else.

    Attributes:
        uris: The files, each once.
        options: The options of their reader.
    """

    uris: list[str]
    options: dict[str, str]


def is_cached(rows: DataFrame) -> bool:
    """Whether Spark keeps a table, or one that is planned alike: then it is not read again."""
    level = None if rows.isStreaming else rows.storageLevel
    return level is not None and (level.useMemory or level.useDisk or level.useOffHeap)


def read_of(rows: DataFrame) -> Read | None:
    """What a table reads, if it is only the data source, but for a watermark."""
    if is_cached(rows):
        return None
    try:
        plan = _classic(rows)
        return _of_connect(rows._plan) if plan is None else _of_classic(plan)  # noqa: SLF001
    except Exception:  # noqa: BLE001 - whatever py4j says of a plan that has no such part
        return None


def files_of(rows: DataFrame) -> Files | None:
    """The files of a table that has all that is in them and nothing else, which a session of Spark Connect does not say.

    None where a file is read twice, or where its path gives values of columns.
    """
    try:
        plan = _classic(rows)
        if plan is None or _kind(plan) != _FILES or is_cached(rows):
            return None
        relation = plan.relation()
        uris, options = [*relation.location().inputFiles()], relation.options().iterator()
        if relation.partitionSchema().length() or len(uris) > len({*uris}):
            return None
        pairs = iter(lambda: options.next() if options.hasNext() else None, None)
        return Files(uris, {pair.productElement(0): pair.productElement(1) for pair in pairs})
    except Exception:  # noqa: BLE001 - as above
        return None


def _classic(rows: Any) -> Any:
    """The analyzed plan of classic Spark."""
    return rows._jdf.queryExecution().analyzed() if hasattr(rows, "_jdf") else None  # noqa: SLF001


def _of_connect(plan: Any) -> Read | None:
    watermark = None
    if type(plan).__name__ == "WithWatermark":
        watermark, plan = (plan._event_time, plan._delay_threshold), plan._child  # noqa: SLF001
    # A stream with a named source goes on by that name.
    if type(plan).__name__ != "DataSource" or plan._format.lower() != SOURCE or plan._source_name is not None:  # noqa: SLF001
        return None
    paths = plan._paths or []  # noqa: SLF001
    named = {"path": paths[0]} if len(paths) == 1 else {"paths": json.dumps(paths)} if paths else {}
    return Read({**(plan._options or {}), **named}, watermark)  # noqa: SLF001


def _of_classic(plan: Any) -> Read | None:
    watermark = None
    if _kind(plan) == "EventTimeWatermark":
        watermark, plan = (plan.eventTime().name(), plan.delay().toString()), plan.child()
    options = _OPTIONS_OF.get(_kind(plan))
    if options is None or plan.table().name().lower() != SOURCE:
        return None
    if options == "extraOptions" and plan.sourceIdentifyingName().toString() != _UNNAMED:
        return None
    return Read(dict(getattr(plan, options)().asCaseSensitiveMap()), watermark)


def _kind(plan: Any) -> str:
    kind: str = plan.getClass().getSimpleName()
    return kind

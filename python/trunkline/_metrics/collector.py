"""The counters of a role as metrics of Prometheus, from the dataclass that its `stats` returns: names, help texts and
values.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints

from trunkline._metrics.counters import COUNTER, GAUGE, NO_FAULTS, Latencies
from trunkline._text import readable, readable_bytes

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

__all__ = ["LEFT_OUT", "MOST_ROWS", "ROLE_UP", "Collector", "Metric", "metrics_of", "role_name", "stats_class"]

# How many services, topics, resources or senders have series of their own: peers choose their names, and Prometheus stores
# each series for its whole retention time.
MOST_ROWS = 1000

INFO, HISTOGRAM = "info", "histogram"

# The units of fields by the suffix of their names: Prometheus' unit, and the factor to it.
_UNITS = {"_ns": ("seconds", 1e-9), "_ms": ("seconds", 1e-3), "_s": ("seconds", 1.0), "bytes": ("bytes", 1.0)}

Labels: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a role.

    Attributes:
        name: Its name, without the ``_total`` of a counter and the ``_info`` of what only has labels.
        kind: "counter", "gauge", "histogram" or "info".
        help: What it is, as the docstring of the counters says it.
        labels: The names of its labels.
        unit: "bytes", "seconds", or "" for what is counted.
        field: The counter it is made from.
        part: Which part of each of its rows, where that counter is a list of rows.
        scale: What its values are multiplied by.
    """

    name: str
    kind: str
    help: str
    labels: Labels
    unit: str
    field: str
    part: str | None
    scale: float = 1.0

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its samples."""
        ends = {COUNTER: ("_total",), INFO: ("_info",), HISTOGRAM: ("_bucket", "_count", "_sum")}
        return tuple(self.name + end for end in ends.get(self.kind, ("",)))


# Whether a role serves, and how many rows a scrape leaves out.
ROLE_UP = Metric("trunkline_role_up", GAUGE, "Whether the role serves: 1 or 0.", ("role",), "", "", None)
LEFT_OUT = Metric(
    "trunkline_rows_left_out",
    GAUGE,
    f"Services, topics, resources or senders beyond the {MOST_ROWS} that are listed one by one.",
    ("counter",),
    "",
    "",
    None,
)


def role_name(role: type[Any]) -> str:
    """The protocol and the role, also of a class derived from it and of its twin for asyncio.

    What runs on and is no role says its name itself.

    >>> from trunkline import dcp
    >>> role_name(dcp.AsyncBroker)
    'dcp.broker'
    """
    given: str | None = getattr(role, "metrics_name", None)
    if given is not None:
        return given
    own = next(base for base in role.__mro__ if base.__module__.startswith("trunkline."))
    return f"{own.__module__.split('.')[1]}.{own.__name__.removeprefix('Async').lower()}"


def stats_class(role: type[Any]) -> type[Any]:
    """The dataclass of the counters of a role."""
    made: type[Any] = get_type_hints(role.stats.fget)["return"]
    return made


def metrics_of(role: type[Any]) -> tuple[Metric, ...]:
    """All metrics of a role, in the order of its counters.

    Raises:
        TypeError: A counter does not say whether it only grows: it is neither a `Count` nor a `Level`, nor made of such.
    """
    prefix = f"trunkline_{role_name(role).replace('.', '_')}"
    return tuple(_fields_as_metrics(prefix, stats_class(role)))


def _fields_as_metrics(prefix: str, stats: type[Any]) -> Iterator[Metric]:
    docs, hints = _attributes(stats), get_type_hints(stats, include_extras=True)
    for field in fields(stats):
        name, hint = field.name, hints[field.name]
        if hint is Latencies:
            yield _metric(prefix, f"{name}_ns", HISTOGRAM, docs[name], (), name, None)
            continue
        if get_origin(hint) is Annotated and get_args(hint)[0] is str:
            # A name becomes a sample with only a label.
            yield _metric(prefix, name, INFO, docs[name], get_args(hint)[1:], name, None)
            continue
        if get_origin(hint) is Annotated:
            yield _metric(prefix, name, _kind(stats, name, hint), docs[name], (), name, None)
            continue
        of = get_args(hint) if get_origin(hint) in (Mapping, Sequence) else ()
        inner = of[-1] if of else None
        if is_dataclass(inner):
            assert isinstance(inner, type)
            keyed = "" if get_origin(hint) is Sequence else _row(inner)
            yield from _rows_as_metrics(prefix, name, inner, keyed)
        elif all(get_args(each)[:1] == (str,) for each in of) and of:
            # A name for each row becomes samples with only labels.
            labels = tuple(get_args(each)[1] for each in of)
            yield _metric(prefix, name, INFO, docs[name], labels, name, None)
        else:
            yield _metric(prefix, name, _kind(stats, name, inner), docs[name], ("kind",), name, None)


def _rows_as_metrics(prefix: str, field: str, row: type[Any], keyed: str) -> Iterator[Metric]:
    """The metrics of counters with a row for each service, topic, resource or sender."""
    docs, hints = _attributes(row), get_type_hints(row, include_extras=True)
    labels = (keyed,) if keyed else _names(row)
    for part in fields(row):
        if hints[part.name] not in (str, bytes):
            kind = _kind(row, part.name, hints[part.name])
            yield _metric(f"{prefix}_{_row(row)}", part.name, kind, docs[part.name], labels, field, part.name)


def _row(row: type[Any]) -> str:
    """The label of the rows: a service for `ServiceStats`."""
    return re.sub("(Stats|Count)$", "", row.__name__).lower()


def _names(row: type[Any]) -> Labels:
    """The fields of a row that name it."""
    hints = get_type_hints(row)
    return tuple(part.name for part in fields(row) if hints[part.name] in (str, bytes))


def _kind(stats: type[Any], name: str, hint: Any) -> str:
    kinds = [extra for extra in get_args(hint)[1:] if extra in (COUNTER, GAUGE)]
    if get_origin(hint) is not Annotated or not kinds:
        message = f"{stats.__name__}.{name} is neither a Count nor a Level, nor a mapping of such: {hint}"
        raise TypeError(message)
    kind: str = kinds[0]
    return kind


def _metric(prefix: str, name: str, kind: str, docs: str, labels: Labels, field: str, part: str | None) -> Metric:
    # A field that is a Python keyword ends with an underscore.
    name = name.rstrip("_")
    for end, (unit, scale) in _UNITS.items():
        if name.endswith(end):
            stem = name.removesuffix(end).rstrip("_")
            return Metric("_".join(filter(None, (prefix, stem, unit))), kind, docs, labels, unit, field, part, scale)
    return Metric(f"{prefix}_{name}", kind, docs, labels, "", field, part)


def _attributes(stats: type[Any]) -> dict[str, str]:
    """The docstring of each field of a dataclass; empty if Python runs without docstrings."""
    section = (inspect.getdoc(stats) or "").partition("Attributes:\n")[2]
    docs = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", section, re.MULTILINE)
    words = {name: re.sub(r"\s+", " ", text).replace("`", "") for name, text in docs}
    return {field.name: words.get(field.name, "") for field in fields(stats)}


Rows: TypeAlias = Sequence[tuple[Labels, Any]]


def _rows(metric: Metric, value: Mapping[Any, Any] | Sequence[Any]) -> Rows:
    """The first rows, each with its labels."""
    if isinstance(value, Mapping):
        return [((_label(name),), row) for name, row in itertools.islice(value.items(), MOST_ROWS)]
    return [(tuple(_label(getattr(row, name)) for name in metric.labels), row) for row in value[:MOST_ROWS]]


def _label(name: str | bytes) -> str:
    """A name as a label: one line of valid UTF-8, which names of peers need not be."""
    return readable_bytes(name) if isinstance(name, bytes) else readable(name)


def _summed(samples: Iterable[tuple[Labels, float]]) -> Mapping[Labels, float]:
    """Values by their labels, merged: names may be equal as text, and no two samples may have the same labels."""
    summed: dict[Labels, float] = {}
    for labels, value in samples:
        summed[labels] = summed.get(labels, 0) + value
    return summed


class Collector:
    """A collector of `prometheus_client` for a role.

    Args:
        role: The class of the role.
        read: Gives the counters as they are now; None where there are none yet, or any more.
        serves: Says whether the role serves.
    """

    def __init__(self, role: type[Any], read: Callable[[], Any], serves: Callable[[], bool]) -> None:
        self._name = role_name(role)
        self._metrics = metrics_of(role)
        self._read = read
        self._serves = serves
        # The transport may return a message, which lowers the count of sent ones. Prometheus would take a lower counter for a
        # restart, and count everything again.
        self._most: dict[str, float] = {}

    def describe(self) -> Iterator[Family]:
        """The metrics without their values."""
        yield _build()
        yield from map(_family, (ROLE_UP, LEFT_OUT, *self._metrics))

    def collect(self) -> Iterator[Family]:
        """The metrics with their current values."""
        yield _build()
        up, left_out, stats = _family(ROLE_UP), _family(LEFT_OUT), self._read()
        up.add_metric((self._name,), float(self._serves()))
        yield up
        if stats is None:
            return
        rows: dict[str, Rows] = {}
        for metric in self._metrics:
            if metric.part is not None and metric.field not in rows:
                value = getattr(stats, metric.field)
                rows[metric.field] = _rows(metric, value)
                left_out.add_metric((metric.field,), max(len(value) - MOST_ROWS, 0))
        yield left_out
        for metric in self._metrics:
            yield self._filled(metric, getattr(stats, metric.field), rows)

    def _filled(self, metric: Metric, value: Any, rows: Mapping[str, Rows]) -> Family:
        """A metric with its values, from its counter."""
        family = _family(metric)
        if metric.kind == HISTOGRAM:
            family.add_metric((), _buckets(value), value.sum_ns / 1e9)
        elif metric.kind == INFO:
            for names in [(value,)] if isinstance(value, str) else itertools.islice(value.items(), MOST_ROWS):
                family.add_metric((), dict(zip(metric.labels, map(_label, names), strict=True)))
        elif not metric.labels:
            value = value * metric.scale
            if metric.kind == COUNTER:
                value = self._most[metric.name] = max(value, self._most.get(metric.name, 0))
            family.add_metric((), value)
        else:
            samples: Iterable[tuple[Labels, float]]
            if metric.part is None:
                samples = (((_label(kind),), number) for kind, number in value.items() if kind not in NO_FAULTS)
            else:
                samples = ((labels, getattr(row, metric.part)) for labels, row in rows[metric.field])
            for labels, number in _summed(samples).items():
                family.add_metric(labels, number * metric.scale)
        made: Family = family
        return made


def _buckets(latencies: Latencies) -> Sequence[tuple[str, float]]:
    """The cumulative buckets of Prometheus."""
    from prometheus_client.utils import floatToGoString

    # The library has no types for this.
    text: Callable[[float], str] = floatToGoString
    bounds = [text(bound_ns / 1e9) for bound_ns in latencies.bounds_ns]
    return list(zip([*bounds, "+Inf"], map(float, itertools.accumulate(latencies.counts)), strict=True))


def _build() -> Family:
    from prometheus_client.core import InfoMetricFamily

    from trunkline import __version__

    return InfoMetricFamily("trunkline_build", "The version of trunkline.", {"version": __version__})


def _family(metric: Metric) -> Any:
    from prometheus_client import core

    if metric.kind == INFO:
        return core.InfoMetricFamily(metric.name, metric.help)
    kinds = {
        COUNTER: core.CounterMetricFamily,
        GAUGE: core.GaugeMetricFamily,
        HISTOGRAM: core.HistogramMetricFamily,
    }
    return kinds[metric.kind](metric.name, metric.help, labels=metric.labels, unit=metric.unit)

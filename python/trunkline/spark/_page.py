"""The report as a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from trunkline._native import __version__
from trunkline._text import amount, moment, readable, span
from trunkline.spark import _plots
from trunkline.spark._counting import COLOURS, OTHERS

if TYPE_CHECKING:
    from trunkline.spark._counting import Counts
    from trunkline.spark.report import Report, RunReport, SenderReport, ServiceReport

__all__ = ["page"]

# How many services are plotted.
PLOTTED = 12

_PAGE = Path(__file__).with_name("report.html")

_NOTES = (
    "Missing are sequence numbers that were skipped between the begin of a run and the highest seen since; messages "
    "with header S have none. A malformed message does not say who sent it: it stands with the one sender of its "
    "endpoint, or by itself."
)


_RUN_NOTES = (
    "A run goes from one BOR of a sender to the next. INCOMPLETE: numbers were skipped, or data came outside BOR and EOR; "
    "ABORTED: there is no EOR. All other conditions are what the sender says of itself."
)

_SERVICE_NOTES = (
    "Requests of DCP with what came of them, as the role that recorded saw it. Latency is from a request to its reply: at a "
    "broker received from the client and sent to it, at a client sent and received, at a worker received and sent. A request "
    "that a worker sent on counts for the service it went to as well."
)


def page(report: Report, counts: Counts, name: str | None) -> str:
    """The page, complete in itself."""
    return Template(_PAGE.read_text("utf-8")).substitute(
        title=escape("Recorded messages" if name is None else f"Recorded in {readable(name)}"),
        subtitle=escape(_period(report)),
        tiles="\n".join(_tiles(report)),
        sections=_senders(report) + _services(report),
        plots="\n".join(_figures(report, counts)),
        runs=_runs(report),
        version=escape(__version__),
    )


def _period(report: Report) -> str:
    first, last = report.first_received_at_ns, report.last_received_at_ns
    if first is None or last is None:
        return "Nothing was recorded."
    return f"{moment(first)} to {moment(last)} UTC, {span(last - first)}"


def _tiles(report: Report) -> list[str]:
    tiles = [_tile("Bytes", amount(report.bytes))]
    if _has_cdtp(report):
        senders = sum(sender.others or 1 for sender in report.senders if sender.others or sender.sender is not None)
        tiles = [
            _tile("Messages", f"{report.messages:,}"),
            *tiles,
            _tile("Senders", f"{senders:,}"),
            _tile("Runs", f"{report.run_count:,}"),
            _tile("Missing", f"{report.missing:,}", good=not report.missing),
        ]
    if report.services:
        unanswered = sum(service.unanswered for service in report.services)
        tiles += [
            _tile("Services", f"{len({service.service for service in report.services}):,}"),
            _tile("Requests", f"{sum(service.requests for service in report.services):,}"),
            _tile("Unanswered", f"{unanswered:,}", good=not unanswered),
        ]
    return [*tiles, _tile("Malformed", f"{report.malformed:,}", good=not report.malformed)]


def _has_cdtp(report: Report) -> bool:
    """Whether the page is about CDTP: a capture of DCP alone has nothing to say of it."""
    return bool(report.senders) or not (report.services or report.dcp_malformed)


def _tile(title: str, value: str, *, good: bool | None = None) -> str:
    tone = "" if good is None else ' class="good"' if good else ' class="bad"'
    return f'<div class="card"><dt>{title}</dt><dd{tone}>{escape(value)}</dd></div>'


def _row(at: int, sender: SenderReport, columns: tuple[str, ...]) -> str:
    title, *cells = sender.cells()
    colour = at if at < COLOURS and sender.sender is not None else COLOURS
    mark = f'<i style="background: var(--s{colour})"></i>' if sender.messages else ""
    tones = {"missing": bool(sender.missing), "malformed": bool(sender.malformed)}
    return (
        f'<tr><th scope="row">{mark}{escape(title)}</th>'
        + "".join(
            f"<td{_left(column, bad=tones.get(column, False))}>{_cell(cell)}</td>"
            for column, cell in zip(columns[1:], cells, strict=True)
        )
        + "</tr>"
    )


def _senders(report: Report) -> str:
    """The section about senders, nothing where only others spoke."""
    if not _has_cdtp(report):
        return ""
    rows = [_row(at, sender, report.COLUMNS) for at, sender in enumerate(report.senders)]
    return _section("senders", "Senders", report.COLUMNS, {"malformed"}, rows, _NOTES)


def _runs(report: Report) -> str:
    """The section about runs, nothing where there are none."""
    if not report.runs:
        return ""
    left = {"sender", "run id", "condition"}
    rows = [_run(run, report.RUN_COLUMNS, left) for run in report.runs]
    more = report.run_count - len(report.runs)
    notes = _RUN_NOTES + (f" {more:,} earlier runs are not listed." if more else "")
    return _section("runs", "Runs", report.RUN_COLUMNS, left, rows, notes)


def _services(report: Report) -> str:
    """The section about services, nothing where nobody asked for one."""
    if not report.services:
        return ""
    left = {"service", "seen by"}
    rows = [_service(service, report.SERVICE_COLUMNS, left) for service in report.services]
    more = report.service_count - len(report.services)
    notes = _SERVICE_NOTES + (f" {more:,} services with fewer requests are not listed." if more else "")
    return _section("services", "Services", report.SERVICE_COLUMNS, left, rows, notes)


def _service(service: ServiceReport, columns: tuple[str, ...], left: set[str]) -> str:
    title, *cells = service.cells()
    return (
        f'<tr><th scope="row">{escape(title)}</th>'
        + "".join(
            f"<td{_class(left=column in left, bad=column == 'unanswered' and service.unanswered > 0)}>{_cell(cell)}</td>"
            for column, cell in zip(columns[1:], cells, strict=True)
        )
        + "</tr>"
    )


def _section(key: str, title: str, columns: tuple[str, ...], left: set[str], rows: Iterable[str], notes: str) -> str:
    heads = "".join(f'<th scope="col"{_class(left=column in left)}>{escape(column)}</th>' for column in columns)
    return (
        f'<section class="card" aria-labelledby="{key}"><h2 id="{key}">{escape(title)}</h2>'
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{key}"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>"
        + "\n".join(rows)
        + f"</tbody></table></div><p>{escape(notes)}</p></section>"
    )


def _run(run: RunReport, columns: tuple[str, ...], left: set[str]) -> str:
    sender, *cells = run.cells()
    bad = {"condition": run.condition != "GOOD", "missed": bool(run.missed)}
    return (
        f'<tr><th scope="row">{escape(sender)}</th>'
        + "".join(
            f"<td{_class(left=column in left, bad=bad.get(column, False))}>{_cell(cell)}</td>"
            for column, cell in zip(columns[1:], cells, strict=True)
        )
        + "</tr>"
    )


def _cell(text: str) -> str:
    """A cell that breaks between the kinds it lists, if anywhere."""
    return ", ".join(f"<span>{escape(part)}</span>" for part in text.split(", "))


def _left(column: str, *, bad: bool = False) -> str:
    return _class(left=column == "malformed", bad=bad)


def _class(*, left: bool = False, bad: bool = False) -> str:
    classes = [*(["left"] if left else []), *(["bad"] if bad else [])]
    return f' class="{" ".join(classes)}"' if classes else ""


def _figures(report: Report, counts: Counts) -> list[str]:
    """The plots, each protocol's where it was spoken."""
    errors = dict(counts.errors)
    for kind, number in report.dcp_malformed.items():
        errors[kind] = errors.get(kind, 0) + number
    return [
        *(_cdtp_figures(report, counts) if _has_cdtp(report) else []),
        *([_latencies(report.services)] if report.services else []),
        _figure(
            "errors",
            "Errors",
            "Messages that do not decode, by kind",
            _plots.errors(dict(sorted(errors.items(), key=lambda kind: -kind[1]))),
            "",
            "Every message decodes.",
        ),
    ]


def _latencies(services: Sequence[ServiceReport]) -> str:
    most = services[:PLOTTED]
    legend = "".join(
        f'<span><i style="background: var(--s{at})"></i>{name}</span>' for at, name in enumerate(_plots.LATENCIES)
    )
    caption = "Percentiles of the time from request to reply" + (
        f", of the {PLOTTED} services with most requests" if len(services) > PLOTTED else ""
    )
    return _figure("latencies", "Latency", caption, _plots.latencies(most), legend, "No request was replied to.")


def _cdtp_figures(report: Report, counts: Counts) -> list[str]:
    names = {at: sender.title for at, sender in enumerate(report.senders[:COLOURS]) if sender.sender is not None}
    others = sum(sender.others or 1 for sender in report.senders if sender.sender is not None or sender.others)
    if others > len(names):
        names[OTHERS] = f"{others - len(names):,} more"
    legend = "".join(
        f'<span><i style="background: var(--s{COLOURS if at == OTHERS else at})"></i>{escape(name)}</span>'
        for at, name in names.items()
    )
    return [
        _figure("rate", "Rate over time", "Messages a second of each sender", _plots.rates(counts), legend, ""),
        _figure(
            "sizes",
            "Payload sizes",
            "Share of each sender's messages by the bytes of their payload",
            _plots.sizes(counts, names),
            "",
            "No message has a size.",
        ),
        _figure(
            "gaps",
            "Gaps",
            "Sequence numbers that were skipped, by when the message after the gap came",
            _plots.gaps(counts),
            legend,
            "No sequence number is missing.",
        ),
    ]


def _figure(key: str, title: str, caption: str, svg: str | None, legend: str, none: str) -> str:
    """A plot with its title, which is its accessible name too; words where there is nothing to plot."""
    drawn = f'<p class="none">{escape(none or "Nothing was recorded.")}</p>' if svg is None else svg
    legend = f'<div class="legend">{legend}</div>' if svg is not None and legend else ""
    return (
        f'<figure class="card" aria-labelledby="{key}"><h2 id="{key}">{escape(title)}</h2>'
        f"<figcaption><p>{escape(caption)}</p></figcaption>{legend}{drawn}</figure>"
    )

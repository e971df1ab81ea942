"""The report as a page."""

from __future__ import annotations

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
    from trunkline.spark.report import Report, RunReport, SenderReport

__all__ = ["page"]

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


def page(report: Report, counts: Counts, name: str | None) -> str:
    """The page, complete in itself."""
    return Template(_PAGE.read_text("utf-8")).substitute(
        title=escape("Recorded messages" if name is None else f"Recorded in {readable(name)}"),
        subtitle=escape(_period(report)),
        tiles="\n".join(_tiles(report)),
        columns="".join(f'<th scope="col"{_left(column)}>{escape(column)}</th>' for column in report.COLUMNS),
        senders="\n".join(_row(at, sender, report.COLUMNS) for at, sender in enumerate(report.senders)),
        notes=_NOTES,
        runs=_runs(report),
        plots="\n".join(_figures(report, counts)),
        version=escape(__version__),
    )


def _period(report: Report) -> str:
    first, last = report.first_received_at_ns, report.last_received_at_ns
    if first is None or last is None:
        return "Nothing was recorded."
    return f"{moment(first)} to {moment(last)} UTC, {span(last - first)}"


def _tiles(report: Report) -> list[str]:
    senders = sum(sender.others or 1 for sender in report.senders if sender.others or sender.sender is not None)
    return [
        _tile("Messages", f"{report.messages:,}"),
        _tile("Bytes", amount(report.bytes)),
        _tile("Senders", f"{senders:,}"),
        _tile("Runs", f"{report.run_count:,}"),
        _tile("Missing", f"{report.missing:,}", good=not report.missing),
        _tile("Malformed", f"{report.malformed:,}", good=not report.malformed),
    ]


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


def _runs(report: Report) -> str:
    """The section about runs, nothing where there are none."""
    if not report.runs:
        return ""
    left = {"sender", "run id", "condition"}
    heads = "".join(
        f'<th scope="col"{_class(left=column in left)}>{escape(column)}</th>' for column in report.RUN_COLUMNS
    )
    more = report.run_count - len(report.runs)
    notes = _RUN_NOTES + (f" {more:,} earlier runs are not listed." if more else "")
    return (
        '<section class="card runs" aria-labelledby="runs"><h2 id="runs">Runs</h2>'
        '<div class="scroll" tabindex="0" role="region" aria-labelledby="runs"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>"
        + "".join(_run(run, report.RUN_COLUMNS, left) for run in report.runs)
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
        _figure(
            "errors",
            "Errors",
            "Messages that do not decode, by kind",
            _plots.errors(counts),
            "",
            "Every message decodes.",
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

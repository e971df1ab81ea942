"""The page of a report, and the pieces that sections are made of."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from trunkline._native import __version__
from trunkline._native.analysis import Summary
from trunkline._text import amount, moment, readable, span
from trunkline.report.model import COLOURS, OTHERS, Clock, Tile

if TYPE_CHECKING:
    from trunkline.report.model import Report, Section

__all__ = ["about_others", "figure", "key", "legend", "line", "page", "table"]

_PAGE = Path(__file__).with_name("page.html")
_SCRIPT = Path(__file__).with_name("hover.js")
_REFRESH = Path(__file__).with_name("refresh.js")


def page(report: Report, name: str | None, refresh_s: float | None = None) -> str:
    """The page, complete in itself; with `refresh_s`, it reads itself anew whenever so many seconds have passed."""
    from trunkline.report import plots

    sections = report.shown
    errors = dict(sorted(report.malformed.items(), key=lambda kind: -kind[1]))
    figures = [*_volumes(report), *(drawn for section in sections for drawn in section.figures())]
    caption = "Messages that cannot be decoded, by kind"
    if report.rows:
        figures.append(figure("errors", "Errors", caption, plots.errors(errors), "", "Every message could be decoded."))
    scripts = [_SCRIPT] if refresh_s is None else [_SCRIPT, _REFRESH]
    script = "\n" + "".join(script.read_text("utf-8") for script in scripts)
    return Template(_PAGE.read_text("utf-8")).substitute(
        title=escape("Recorded messages" if name is None else f"Recorded in {readable(name)}"),
        subtitle=escape(_period(report, name)),
        selection=f"<p>Selected: {escape(report.selected)}</p>" if report.selected else "",
        tiles=_tiles(_head(report)),
        sections="".join(_own_tiles(report, section) + section.tables() for section in sections),
        plots="\n".join(figures),
        details="".join(section.details() for section in sections),
        version=escape(__version__),
        refresh="" if refresh_s is None else f' data-refresh="{refresh_s:g}"',
        script=script,
        # The one script that a browser will run here, whatever names from the network are made of.
        script_hash=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _period(report: Report, name: str | None) -> str:
    first, last = report.first_received_at_ns, report.last_received_at_ns
    if first is None or last is None:
        if report.selected is None:
            return "Nothing was recorded."
        return f"Nothing recorded{'' if name is None else f' in {readable(name)}'} matches the selection."
    return f"{moment(first)} to {moment(last)} UTC, {span(last - first)}"


def _volumes(report: Report) -> list[str]:
    """Bytes a second of each protocol, where there is more than CDTP."""
    from trunkline.report import over_time

    if not report.volumes:
        return []
    names = {at: protocol for at, protocol in enumerate(report.sections) if protocol in report.volumes}
    clock = Clock(report.first_received_at_ns or 0, report.bucket_ns)
    rows = {at: report.volumes[protocol] for at, protocol in names.items()}
    drawn = over_time.volumes(rows, clock, names, "Bytes per second over time, one line for each protocol")
    caption = "Bytes per second of each protocol, whole frames"
    return [figure("traffic", "Bytes over time", caption, drawn, legend(names), "")]


def _head(report: Report) -> list[Tile]:
    """The tiles of the whole, and those of a protocol that is alone."""
    malformed = sum(report.malformed.values())
    return [
        Tile("Messages", f"{report.rows:,}"),
        Tile("Bytes", amount(report.bytes)),
        *(report.shown[0].tiles() if len(report.shown) == 1 else ()),
        Tile("Malformed", f"{malformed:,}", not malformed),
    ]


def _own_tiles(report: Report, section: Section) -> str:
    """The tiles of one protocol among others."""
    if len(report.shown) == 1:
        return ""
    messages, volumes = report.messages[section.protocol], report.volumes[section.protocol]
    whole = (Tile("Messages", f"{messages:,}"), Tile("Bytes", amount(sum(volumes.values()))))
    tiles = _tiles([*whole, *section.tiles()])
    return f'<section aria-label="{section.title}"><h2>{section.title}</h2><dl class="tiles">{tiles}</dl></section>'


def _tiles(tiles: Iterable[Tile]) -> str:
    return "\n".join(map(_tile, tiles))


def _tile(tile: Tile) -> str:
    tone = "" if tile.good is None else ' class="good"' if tile.good else ' class="bad"'
    return f'<div class="card"><dt>{tile.title}</dt><dd{tone}>{escape(tile.value)}</dd></div>'


def table(
    key: str,
    title: str,
    columns: Sequence[str],
    left: Collection[str],
    rows: Iterable[str],
    notes: str,
    lead: str = "",
) -> str:
    """A table with its title and what there is to know of its columns, of which `left` are not numbers; `lead`, which is
    HTML, comes first.
    """
    heads = "".join(f'<th scope="col"{_class(left=column in left)}>{escape(column)}</th>' for column in columns)
    return (
        f'<section class="card" aria-labelledby="{key}"><h2 id="{key}">{escape(title)}</h2>{lead}'
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{key}"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>"
        + "\n".join(rows)
        + f"</tbody></table></div><p>{escape(notes)}</p></section>"
    )


def line(
    cells: Sequence[str],
    columns: Sequence[str],
    left: Collection[str] = (),
    bad: Collection[str] = (),
    mark: str = "",
    more: str = "",
) -> str:
    """A row of a table: the cells of `columns`, of which `left` are not numbers, and `bad` not what one wants. A click on
    the first one opens `more`, which is HTML.
    """
    title, *others = cells
    head = mark + escape(title)
    head = f"<details><summary>{head}</summary>{more}</details>" if more else head
    return (
        f'<tr><th scope="row">{head}</th>'
        + "".join(
            f"<td{_class(left=column in left, bad=column in bad)}>{_cell(cell)}</td>"
            for column, cell in zip(columns[1:], others, strict=True)
        )
        + "</tr>"
    )


def _cell(text: str) -> str:
    """A cell that breaks between the kinds it lists, if anywhere."""
    return ", ".join(f"<span>{escape(part)}</span>" for part in text.split(", "))


def _class(*, left: bool = False, bad: bool = False) -> str:
    classes = [*(["left"] if left else []), *(["bad"] if bad else [])]
    return f' class="{" ".join(classes)}"' if classes else ""


def about_others(beyond: int, what: str) -> str:
    """What there is to know of a table where there were more names than are told apart."""
    return (
        f" There were more than {Summary.NAMES:,} names: {beyond:,} {what} under the others are counted as of one."
        if beyond
        else ""
    )


def key(colour: int) -> str:
    """The mark of what has this colour in plots."""
    return f'<i style="background: var(--s{colour})"></i>'


def legend(names: Mapping[int, str]) -> str:
    """What has which colour in a plot, by its place."""
    return "".join(f"<span>{key(COLOURS if at == OTHERS else at)}{escape(name)}</span>" for at, name in names.items())


def figure(key: str, title: str, caption: str, svg: str | None, legend: str, none: str) -> str:
    """A plot with its title, which is its accessible name too; a line of words where there is nothing to plot."""
    heading = f'aria-labelledby="{key}"><h2 id="{key}">{escape(title)}</h2>'
    if svg is None:
        return f'<figure class="card none" {heading}<p>{escape(none or "Nothing was recorded.")}</p></figure>'
    legend = f'<div class="legend">{legend}</div>' if legend else ""
    return f'<figure class="card" {heading}<figcaption><p>{escape(caption)}</p></figcaption>{legend}{svg}</figure>'

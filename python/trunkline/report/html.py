"""The page of a report."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from trunkline._native import __version__
from trunkline._text import amount, moment, readable, span
from trunkline.report import payloads
from trunkline.report.bars import Bars
from trunkline.report.charts import Chart
from trunkline.report.colours import COLOURS, OTHERS
from trunkline.report.model import Clock, Tile

if TYPE_CHECKING:
    from trunkline.report.model import Report, Section
    from trunkline.report.tables import Column, Table

__all__ = ["page"]

# The most tiles in a row of a wide screen, and of a narrower one.
_IN_ROW = (8, 4)

# From so many tables and plots on a page has a list of them.
_LONG = 8

_PAGE = Path(__file__).with_name("page.html")
_SCRIPT = Path(__file__).with_name("hover.js")
_REFRESH = Path(__file__).with_name("refresh.js")


def page(report: Report, name: str | None, refresh_s: float | None = None) -> str:
    """The self-contained page; with `refresh_s`, it reloads itself at this interval."""
    sections = report.shown
    charts = [*_volumes(report), *(chart for section in sections for chart in section.charts())]
    if report.rows:
        charts.append(_errors(report))
    fields = [*(report.payloads or ())]
    charts += payloads.charts(fields)
    of_payloads = [payloads.table(fields)] if fields else []
    scripts = [_SCRIPT] if refresh_s is None else [_SCRIPT, _REFRESH]
    script = "\n" + "".join(script.read_text("utf-8") for script in scripts)
    return Template(_PAGE.read_text("utf-8")).substitute(
        title=escape("Recorded messages" if name is None else f"Recorded in {readable(name)}"),
        subtitle=escape(_period(report, name)),
        selection=f"<p>Selected: {escape(report.selected)}</p>" if report.selected else "",
        parts=_parts(sections, charts, of_payloads),
        tiles=_tiles(_head(report)),
        sections="".join(_own_tiles(report, section) + _tables(section.tables()) for section in sections),
        plots="\n".join(map(_figure, charts)),
        details="".join(_tables(section.details()) for section in sections) + _tables(of_payloads),
        version=escape(__version__),
        refresh="" if refresh_s is None else f' data-refresh="{refresh_s:g}"',
        script=script,
        # The content security policy allows only this script, whatever names from the network contain.
        script_hash=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _period(report: Report, name: str | None) -> str:
    first, last = report.first_received_at_ns, report.last_received_at_ns
    if first is None or last is None:
        if report.selected is None:
            return "Nothing was recorded."
        return f"Nothing recorded{'' if name is None else f' in {readable(name)}'} matches the selection."
    return f"{moment(first)} to {moment(last)} UTC, {span(last - first)}"


def _volumes(report: Report) -> list[Chart]:
    """Bytes a second by protocol, unless there is only CDTP."""
    from trunkline.report import over_time

    if not report.volumes:
        return []
    names = {at: protocol for at, protocol in enumerate(report.sections) if protocol in report.volumes}
    clock = Clock(report.first_received_at_ns or 0, report.bucket_ns)
    lines = over_time.volumes({at: report.volumes[protocol] for at, protocol in names.items()}, clock, names)
    return [Chart("traffic", "Bytes over time", "Bytes per second of each protocol, whole frames", lines, names)]


def _errors(report: Report) -> Chart:
    """Messages that cannot be decoded."""
    kinds = dict(sorted(report.malformed.items(), key=lambda kind: -kind[1]))
    bars = Bars(kinds) if kinds else None
    caption = "Messages that cannot be decoded, by kind"
    return Chart("errors", "Errors", caption, bars, none="Every message could be decoded.")


def _head(report: Report) -> list[Tile]:
    """The tiles of the whole, with those of a single protocol."""
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
    return f'<section aria-label="{section.title}"><h2>{section.title}</h2>{tiles}</section>'


def _parts(sections: Sequence[Section], charts: Sequence[Chart], others: Sequence[Table]) -> str:
    """Links to the tables and plots of a long page."""
    parts = [(table.key, table.title) for section in sections for table in section.tables()]
    parts += [(chart.key, chart.title) for chart in charts]
    parts += [(table.key, table.title) for section in sections for table in section.details()]
    parts += [(table.key, table.title) for table in others]
    if len(parts) < _LONG:
        return ""
    links = "".join(f'<a href="#{key}">{escape(title)}</a>' for key, title in parts)
    return f'<nav aria-label="Parts">{links}</nav>'


def _tiles(tiles: Sequence[Tile]) -> str:
    """Tiles in rows of about equal length, so that none stands alone."""
    wide, middle = (-(-len(tiles) // -(-len(tiles) // most)) if tiles else 1 for most in _IN_ROW)
    style = f"--wide: {wide}; --middle: {middle}"
    return f'<dl class="tiles" style="{style}">' + "\n".join(map(_tile, tiles)) + "</dl>"


def _tile(tile: Tile) -> str:
    tone = "" if tile.good is None else ' class="good"' if tile.good else ' class="bad"'
    return f'<div class="card"><dt>{tile.title}</dt><dd{tone}>{escape(tile.value)}</dd></div>'


def _tables(tables: Iterable[Table]) -> str:
    return "".join(map(_table, tables))


def _columns(table: Table) -> list[Column]:
    """The columns of a table: after the first one those that may be bad, which a narrow screen is to show."""
    first, *others = table.columns
    return [first, *sorted(others, key=lambda column: column.is_bad is None)]


def _table(table: Table) -> str:
    """A table with its title and notes."""
    heads = "".join(
        f'<th scope="col"{_class(left=column.is_text)}>{escape(column.title)}</th>' for column in _columns(table)
    )
    counts = " · ".join(f"<span{_class(bad=is_bad)}>{escape(words)}</span>" for words, is_bad in table.counts)
    return (
        f'<section class="card" aria-labelledby="{table.key}"><h2 id="{table.key}">{escape(table.title)}</h2>'
        + (f'<p class="conditions">{counts}</p>' if counts else "")
        + f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{table.key}"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>"
        + "\n".join(_row(table, at, row) for at, row in enumerate(table.rows))
        + f"</tbody></table></div><p>{escape(table.notes)}</p></section>"
    )


def _row(table: Table, at: int, row: object) -> str:
    """A row of a table; a click on its first cell shows its details."""
    title, *others = _columns(table)
    colour = table.colour(at) if table.colour else None
    opened = table.opens(row) if table.opens else {}
    head = ("" if colour is None else _key(colour)) + escape(title.cell(row))
    texts = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in opened.items())
    head = f"<details><summary>{head}</summary><dl>{texts}</dl></details>" if texts else head
    return f'<tr><th scope="row">{head}</th>{"".join(_cell(column, row) for column in others)}</tr>'


def _cell(column: Column, row: object) -> str:
    """A cell; a list of kinds breaks only between them."""
    parts = ", ".join(f"<span>{escape(part)}</span>" for part in column.cell(row).split(", "))
    return f"<td{_class(left=column.is_text, bad=column.marks(row))}>{parts}</td>"


def _class(*, left: bool = False, bad: bool = False) -> str:
    classes = [*(["left"] if left else []), *(["bad"] if bad else [])]
    return f' class="{" ".join(classes)}"' if classes else ""


def _key(colour: int) -> str:
    """The mark of a colour of the plots."""
    return f'<i style="background: var(--s{colour})"></i>'


def _figure(chart: Chart) -> str:
    """A plot with its title, also its accessible name; or a line of text without data."""
    heading = f'aria-labelledby="{chart.key}"><h2 id="{chart.key}">{escape(chart.title)}</h2>'
    if chart.plot is None:
        return f'<figure class="card none" {heading}<p>{escape(chart.none)}</p></figure>'
    keys = "".join(
        f"<span>{_key(COLOURS if at == OTHERS else at)}{escape(name)}</span>" for at, name in chart.names.items()
    )
    legend = f'<div class="legend">{keys}</div>' if keys else ""
    caption = f"<figcaption><p>{escape(chart.caption)}</p></figcaption>"
    return f'<figure class="card" {heading}{caption}{legend}{chart.plot.draw(chart.caption)}</figure>'

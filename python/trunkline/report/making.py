"""Makes a page from counts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from trunkline._arguments import need_path
from trunkline._locations import begun_name
from trunkline.report.cdtp import CdtpSection
from trunkline.report.counting import counted_of, summary
from trunkline.report.html import page
from trunkline.report.model import Counted, Report, Scope, Section, Total
from trunkline.report.payloads import PayloadCounts
from trunkline.report.sections import SECTIONS

__all__ = ["checked", "made"]


def checked(out_html: str | os.PathLike[str]) -> Path:
    """The path of a page, checked.

    Raises:
        FileNotFoundError: There is no such directory.
        LocalProtocolError: It is a URL.
    """
    need_path("out_html", out_html)
    out = Path(out_html)
    if not out.parent.is_dir():
        raise FileNotFoundError(2, "the directory of the report does not exist", str(out.parent))
    return out


def made(
    counted: Mapping[str, Counted],
    total: Total,
    out: Path,
    title: str | None,
    scope: Scope,
    refresh_s: float | None = None,
    payloads: PayloadCounts | None = None,
) -> Report:
    """Writes the page from the counts of each protocol, and returns its content.

    With `refresh_s` the page reloads itself at this interval.
    """
    sections: dict[str, Section] = {}
    for name, section in SECTIONS.items():
        found = counted.get(name) or counted_of(summary(name, scope, total.clock))
        sections[name] = section.of(found, total, scope)
    # CDTP has its volumes by sender.
    has_others = any(section.spoken for name, section in sections.items() if name != CdtpSection.protocol)
    known = counted if has_others else {}
    result = Report(
        path=out,
        rows=total.rows,
        bytes=total.bytes,
        first_received_at_ns=total.first_ns,
        last_received_at_ns=total.last_ns,
        sections=sections,
        volumes={protocol: found["volumes"] for protocol, found in known.items()},
        messages={protocol: found["rows"] for protocol, found in known.items()},
        selected=scope.said,
        bucket_ns=max((found["bucket_ns"] for found in counted.values()), default=total.bucket_ns),
        payloads=None if payloads is None else payloads.found(),
    )
    _write(out, page(result, title, refresh_s))
    return result


def _write(out: Path, text: str) -> None:
    """Writes a file atomically."""
    handle, name = tempfile.mkstemp(prefix=begun_name(out), dir=out.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        # The permissions of a file created directly.
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(out)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise

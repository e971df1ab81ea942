"""Numbers, times and names as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from html import escape

__all__ = [
    "OWN",
    "amount",
    "as_text",
    "client",
    "counted",
    "did_you_mean",
    "facts_table",
    "finite",
    "latency",
    "moment",
    "readable",
    "readable_bytes",
    "short",
    "span",
    "text_or_digits",
]

# The prefix of trunkline's own services and topics.
OWN = "trunkline."

# Removes tabs and line ends.
_LINES = str.maketrans("", "", "\t\n\r")


def amount(number: float) -> str:
    """A number of bytes.

    >>> amount(999), amount(1_500_000)
    ('999 B', '1.5 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def counted(number: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "message"), counted(1_500, "message")
    ('1 message', '1,500 messages')
    """
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def facts_table(facts: Mapping[str, str]) -> str:
    """Facts as a table of HTML, for notebooks.

    >>> facts_table({"path": "<runs>"})
    '<table><tr><th>path</th><td>&lt;runs&gt;</td></tr></table>'
    """
    rows = (
        f"<tr><th>{escape(readable(name))}</th><td>{escape(readable(fact))}</td></tr>" for name, fact in facts.items()
    )
    return f"<table>{''.join(rows)}</table>"


def were(number: int, what: str) -> str:
    """A number of things something happened to.

    >>> were(1, "message"), were(1_500, "message")
    ('1 message was', '1,500 messages were')
    """
    return f"{counted(number, what)} {'was' if number == 1 else 'were'}"


def did_you_mean(name: str, known: Iterable[str], before: str = ": ") -> str:
    """A suggestion for an unknown name: the most similar known one; empty without any.

    >>> did_you_mean("heder", ["header", "bind"]), did_you_mean("dat", ["BOR", "DAT"]), did_you_mean("x", ["bind"])
    (": did you mean 'header'?", ": did you mean 'DAT'?", '')
    """
    import difflib

    by_words = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_words, n=1)
    return f"{before}did you mean {by_words[close[0]]!r}?" if close else ""


def finite(number: float) -> float | str:
    """A number for JSON: NaN and infinities as their names.

    >>> finite(1.5), finite(float("nan")), finite(float("-inf"))
    (1.5, 'NaN', '-Infinity')
    """
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else f"{'-' * (number < 0)}Infinity"


def short(number: float) -> str:
    """A number in few letters.

    >>> short(950), short(1_500), short(2_000_000)
    ('950', '1.5k', '2M')
    """
    for unit in ("", "k", "M"):
        if abs(number) < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}G"


def moment(received_at_ns: int | None) -> str:
    """A moment, in UTC.

    >>> moment(1_795_251_125_874_512_487)
    '2026-11-21 08:52:05.874'
    """
    if received_at_ns is None:
        return ""
    try:
        return datetime.fromtimestamp(received_at_ns // 10**6 / 1000, UTC).isoformat(" ", "milliseconds")[:23]
    except (OverflowError, ValueError, OSError):
        return f"{received_at_ns} ns"


def span(nanoseconds: int) -> str:
    """A time that passed.

    >>> span(1_500_000), span(1_500_000_000), span(90_000_000_000)
    ('1.5 ms', '1.5 s', '1.5 min')
    """
    if 0 < nanoseconds < 1e9:
        return latency(nanoseconds)
    seconds = nanoseconds / 1e9
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def text_or_digits(data: bytes, *, has_lines: bool = False) -> str:
    r"""Bytes as printable text, which may have lines and tabs, or as 0x and hexadecimal digits. Text never begins with 0x.

    >>> text_or_digits(b"worker"), text_or_digits(b"\0k\x8b"), text_or_digits(b"0x1")
    ('worker', '0x006b8b', '0x307831')
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    is_text = (text.translate(_LINES) if has_lines else text).isprintable() and not text.startswith("0x")
    return text if is_text else f"0x{data.hex()}"


def as_text(value: object) -> str:
    """The value for JSON of other types: bytes as text with lines, or as digits."""
    return text_or_digits(value, has_lines=True) if isinstance(value, bytes) else str(value)


def latency(nanoseconds: float) -> str:
    """A short time.

    >>> latency(850), latency(1_500_000), latency(2_000_000_000)
    ('850 ns', '1.5 ms', '2 s')
    """
    for unit in ("ns", "µs", "ms"):
        if abs(nanoseconds) < 999.5:
            return f"{nanoseconds:.3g} {unit}"
        nanoseconds /= 1000
    return f"{nanoseconds:.3g} s" if nanoseconds < 999.5 else span(int(nanoseconds * 1e9))


def readable(name: str) -> str:
    r"""A name from the network, without characters that move the cursor or change the direction of text.

    >>> readable("Detector\x1b[2J")
    'Detector\\x1b[2J'
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape", "replace").decode() for char in name)


def client(peer: bytes, user: str | None, address: str | None) -> str:
    r"""A client of a service: its user, its routing id in hexadecimal digits, and where it connected from.

    >>> client(b"\0k\x8b", "ops", "tcp://127.0.0.1:37492"), client(b"\0k\x8b", None, None), client(b"", None, "tcp://[::1]:9")
    ('ops (006b8b, 127.0.0.1:37492)', '006b8b', '[::1]:9')
    """
    digits, place = peer[:32].hex(), (address or "").removeprefix("tcp://")
    if user:
        return f"{readable(user)} ({', '.join(filter(None, (digits, place)))})"
    return f"{digits} ({place})" if digits and place else digits or place


def readable_bytes(name: bytes) -> str:
    r"""As `readable`, for a name in any bytes.

    >>> readable_bytes(b"echo\n\xff")
    'echo\\n\\xff'
    """
    return readable(name.decode(errors="backslashreplace"))

"""The texts of errors, warnings and log lines, read from the sources; what varies in a text is `…`.

A text with fewer than two words of its own says nothing by itself and is left out.
"""

from __future__ import annotations

import errno
import functools
import os
import re
from collections.abc import Iterator

from tools import python_texts, rust_texts
from tools.python_texts import GAP, ROOT, Text, words

from trunkline.cli.process.endings import _ADVICE

__all__ = ["GAP", "Text", "key", "system", "texts", "words"]


@functools.cache
def texts() -> list[Text]:
    """All of them, in the order of the alphabet."""
    found = {_tidy(text) for text in [*python_texts.read(), *rust_texts.read()] if len(words(text.text)) > 1}
    return sorted(found, key=lambda text: (key(text.text), text))


def key(text: str) -> str:
    """By what a text is ordered."""
    return re.sub(r"^[^A-Za-z]+", "", text).casefold() or text


def system() -> Iterator[Text]:
    """Texts of the system, with what is advised."""
    for number, advice in _ADVICE.items():
        yield Text(f"{GAP}: {os.strerror(number)}: {advice}", "OSError", "python/trunkline/cli/process/endings.py")
    place = "rust/python/src/errors.rs"
    for name, advice in re.findall(r'libc::(E\w+)[^=\n]* => Some\("([^"]+)"\)', (ROOT / place).read_text()):
        yield Text(f"{GAP}: {os.strerror(getattr(errno, name))}: {advice}", "OSError", place)


def _tidy(text: Text) -> Text:
    joined = re.sub(rf"{GAP}(\.?{GAP}|\s{GAP}(?=\s*$))+", GAP, " ".join(text.text.split()))
    return text._replace(text=joined.strip())

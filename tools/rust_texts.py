"""The texts of errors in Rust: sentences beside the name of an error, those of captures, and those of the engine.

Whatever the engine says without an error is why a connection fails, which is logged.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

from tools.python_texts import GAP, ROOT, Text, is_shown, words

_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ERROR = re.compile(r"\b(?:Py)?(\w+Error|Trouble|timed_out)\b(?!Kind)")
_ARM = re.compile(r" Trouble::\w.*=> \{")
_LATER = re.compile(r"\blet (\w+) = [^;]*$")
# What becomes of errors in rust/python, by their types, and of what is none by its crate; a Trouble is logged.
_FROM_RUST = {
    "ColumnError": "ValueError",
    "LayoutError": "LocalProtocolError",
    "PlanError": "LocalProtocolError or ValueError",
    "StartError": "ClosedError",
    "StateError": "ValueError",
    "StoreError": "OSError",
    "TlsError": "LocalProtocolError",
    "TransportError": "LocalProtocolError or ClosedError",
    "Trouble": "WARNING",
    "timed_out": "TimeoutError",
    "capture": "CaptureError",
    "engine": "WARNING",
}
_PANIC = re.compile(r"(?:expect|panic!|unreachable!|assert\w*!|debug_assert\w*!)\((?:[^;]*,\s*)?$")


def read() -> Iterator[Text]:
    """All of the crates."""
    for file in sorted((ROOT / "rust").glob("*/src/**/*.rs")):
        yield from _sentences(file)


def _sentences(file: Path) -> Iterator[Text]:
    code = re.sub(r"(?m)^\s*//.*$|\s//[^\n\"]*$", "", file.read_text().partition("#[cfg(test)]")[0])
    code = code.replace("'\"'", "' '").replace("b'\"'", "' '")
    crate = file.relative_to(ROOT / "rust").parts[0]
    if crate == "fuzz":
        return
    for literal in _LITERAL.finditer(code):
        text = re.sub(r"\\\n\s*", "", literal[1]).replace('\\"', '"').replace("{{", "{").replace("}}", "}")
        text = re.sub(r"\{[\w.:?#]*\}", GAP, text)
        before = re.split(r"[;}]\s*\n|\n\s*\n", code[max(0, literal.start() - 600) : literal.start()])[-1]
        if len(words(text)) < 3 or not re.match(r"[a-z…]", text) or _PANIC.search(before):
            continue
        names = [*reversed(_ERROR.findall(before)), crate]
        if _ARM.search(code[max(0, literal.start() - 400) : literal.start()]):
            names.append("Trouble")
        if named := _LATER.search(before):
            after = code[literal.end() : literal.end() + 400]
            names = re.findall(rf"(?:Py)?(\w+Error)::new_err\({named[1]}\b", after)[:1] + names
        for name in names:
            if raised := name if is_shown(name) else _FROM_RUST.get(name):
                lead = f"{GAP}: " * (crate == "capture" and GAP not in text[0])
                if before.endswith("Unsupported("):
                    lead = "this transport has no "
                tail = f" within {GAP} s" * (name == "timed_out")
                yield Text(lead + text + tail, raised, str(file.relative_to(ROOT)))
                break


@functools.cache
def kinds() -> dict[str, dict[str, str]]:
    """The closed lists of kinds in Rust, by their places: the slugs, each with its meaning."""
    lists = {}
    for file in sorted((ROOT / "rust").glob("*/src/**/*.rs")):
        for name, body in re.findall(
            r"kinds! \{\s*(?:///[^\n]*\n\s*)*(\w+):\n(.*?)^\}", file.read_text(), re.MULTILINE | re.DOTALL
        ):
            place = f"{file.relative_to(ROOT / 'rust').parts[0]}.{file.stem}.{name}"
            lists[place] = dict(re.findall(r'^ +\w+ "(\w+)" "(.*)",$', body, re.MULTILINE))
    return lists

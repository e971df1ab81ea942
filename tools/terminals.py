"""Pictures of a terminal for the site: commands are run on traffic that comes with the package, and drawn as they print."""

from __future__ import annotations

import fcntl
import functools
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

from trunkline import capture
from trunkline.demo import DATA

COLUMNS, ROWS = 120, 40

# What is typed for the picture beside each command, in a directory with a capture called run7.
SHOWN = {
    "trunkline capture info": "trunkline capture info run7",
    "trunkline capture runs": "trunkline capture runs run7",
    "trunkline capture cat": "trunkline capture cat run7 --head 8",
    "trunkline capture verify": "trunkline capture verify run7",
}


def place(path: str) -> str:
    """Where the picture of a command is in the documentation."""
    return f"images/terminals/{path.removeprefix('trunkline ').replace(' ', '-')}.svg"


@functools.cache
def pictures() -> dict[str, str]:
    """All of them as SVG, by their places."""
    with tempfile.TemporaryDirectory() as directory:
        capture.import_([DATA / "cdtp1-release-0.5.1.jsonl.gz"], Path(directory, "run7"))
        return {place(path): drawn(typed, _printed(typed, directory)) for path, typed in SHOWN.items()}


def _printed(typed: str, directory: str) -> str:
    """What a command prints on a terminal, as far as a screen has room for it."""
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", *typed.split()]
    with subprocess.Popen(
        command, cwd=directory, stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    ) as ran:
        os.close(terminal)
        chunks = []
        while True:
            try:
                chunk = os.read(ours, 1 << 16)
            except OSError:  # as Linux reports that the other end is closed
                break
            if not chunk:
                break
            chunks.append(chunk)
    os.close(ours)
    text = b"".join(chunks).decode().replace("\r\n", "\n")
    if ran.returncode:
        message = f"{typed} exits with {ran.returncode}: {text}"
        raise RuntimeError(message)
    lines = text.splitlines()
    return "\n".join([*lines[:12], "…"] if len(lines) > 13 else lines)


def drawn(typed: str, printed: str, columns: int = COLUMNS) -> str:
    """What is typed on a terminal, and what is printed, as SVG."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    console.print(Text.assemble(("$ ", "bold green"), (typed, "bold")))
    console.print(Text.from_ansi(printed))
    # Nothing external is loaded: the font is the reader's own.
    return re.sub(r"@font-face \{.*?\}", "", console.export_svg(title=typed, unique_id="terminal"), flags=re.DOTALL)

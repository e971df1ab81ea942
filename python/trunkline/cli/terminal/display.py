"""A few lines at the bottom of a terminal that are redrawn; other output appears above."""

from __future__ import annotations

import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from trunkline.cli.terminal.stderr import NO_READER

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["shown"]


@contextmanager
def shown(draw: Callable[[], RenderableType], every_s: float) -> Iterator[None]:
    """Shows what is drawn on standard error, a terminal, and removes it at the end.

    Args:
        draw: Returns what to show.
        every_s: How often to draw. It is also drawn when the terminal is resized.
    """
    stream = sys.stderr
    display = _Display(stream, draw)
    # Reentrant, unlike an Event: a signal handler may interrupt another one.
    wakes: queue.SimpleQueue[str] = queue.SimpleQueue()

    def redraw() -> None:
        why = ""
        while why != "ended":
            display.redraw()
            try:
                why = wakes.get(timeout=every_s)
            except queue.Empty:
                continue

    resized = getattr(signal, "SIGWINCH", None)  # Windows has none
    before = signal.signal(resized, lambda *_: wakes.put("resized")) if resized is not None else None
    thread = threading.Thread(target=redraw, name="trunkline-panel", daemon=True)
    sys.stderr = cast("TextIO", display)
    thread.start()
    try:
        yield
    finally:
        sys.stderr = stream
        wakes.put("ended")
        thread.join()
        display.clear()
        if resized is not None:
            signal.signal(resized, before)


class _Display:
    """A terminal with lines at the bottom. It replaces the stream, so that other output appears above them.

    The terminal may be closed meanwhile, which is no error.
    """

    def __init__(self, stream: TextIO, draw: Callable[[], RenderableType]) -> None:
        from rich.console import Console

        self._stream = stream
        self._draw = draw
        self._console = Console(file=stream, markup=False, emoji=False)
        # Reentrant: a signal handler may write too.
        self._lock = threading.RLock()
        # The lines as last drawn, and their widths.
        self._lines = ""
        self._widths: list[int] = []
        # An incomplete written line.
        self._begun = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes complete lines above the shown ones."""
        with self._lock:
            whole, newline, self._begun = (self._begun + text).rpartition("\n")
            if newline:
                self._put(self._erasing() + whole + newline + self._lines)
        return len(text)

    def redraw(self) -> None:
        """Draws again in place of the last drawing."""
        from rich.cells import cell_len
        from rich.text import Text

        renderable = self._draw()
        with self._lock:
            with self._console.capture() as captured:
                self._console.print(renderable)
            lines = captured.get().splitlines()
            room = self._console.height
            if len(lines) > room:
                # Lines that scroll out of the terminal could not be erased.
                lines = [*lines[: room - 1], "…"]
            erasing = self._erasing()
            # A terminal echoes Ctrl-C at the cursor: at the end of a full line it would begin another row.
            self._lines = "\n".join(lines) + "\r"
            self._widths = [cell_len(Text.from_ansi(line).plain) for line in lines]
            self._put(erasing + self._lines)

    def clear(self) -> None:
        """Erases the shown lines."""
        with self._lock:
            self._put(self._erasing() + self._begun)
            self._widths = []

    def _erasing(self) -> str:
        """The sequence that erases the shown lines, from the last up, even if a narrower terminal has wrapped them.

        The cursor is in the first row of the last line, which is erased to its end; the others are erased row by row, as some
        terminals keep in their history what is cleared as a whole.
        """
        width = self._console.width
        above = sum(max(-(-wide // width), 1) for wide in self._widths[:-1])
        return "\r\x1b[J" + "\x1b[1A\x1b[2K" * above if self._widths else ""

    def _put(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            if error.errno not in NO_READER:
                raise

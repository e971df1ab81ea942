"""Writing decoded messages to a file, for all commands that do so."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, cast

import typer

from trunkline._formats import is_compressed
from trunkline._text import counted
from trunkline.cli.options.selection import Selecting, note_unmatched
from trunkline.cli.options.shared import (
    DECODABLE,
    DEFAULT,
    CaptureTags,
    DecodingCodec,
    MaxMessageBytes,
    Overwrite,
    Payload,
    PayloadFile,
    decoding_options,
    listed,
    need_decodable,
    spoken,
)
from trunkline.cli.process.atomic import whole
from trunkline.cli.terminal.output import Output
from trunkline.cli.terminal.progress import Progress
from trunkline.options import DEFAULTS

if TYPE_CHECKING:
    from trunkline._formats import Format

__all__ = ["Decoding", "whole_table"]


@contextmanager
def whole_table(path: Path, *, replaces: bool) -> Iterator[Path | IO[bytes]]:
    """A file to write a table to, which gets its name at the end, as by `whole`; compressed if the name says so."""
    with (
        whole(path, replaces=replaces) as part,
        gzip.open(part, "wb") if is_compressed(path) else nullcontext(part) as file,
    ):
        yield cast("Path | IO[bytes]", file)


@dataclass(frozen=True)
class Decoding:
    """The options of decoding a capture."""

    protocol: Annotated[
        str | None,
        typer.Option(
            "--protocol",
            help=f"What to decode: {DECODABLE}. [default: {DEFAULT}, or what else there is alone]",
            callback=spoken,
        ),
    ] = None
    tags: CaptureTags = None
    codec: DecodingCodec = None
    payload: Payload = None
    payload_file: PayloadFile = None
    max_message_bytes: MaxMessageBytes = DEFAULTS["max_message_bytes"]
    overwrite: Overwrite = False

    def write(
        self,
        directory: os.PathLike[str],
        out: Path,
        form: Format,
        selecting: Selecting,
        output: Output,
        *,
        event: str,
        escape_formulas: bool = False,
    ) -> None:
        """Writes the selected messages, and reports the number of rows."""
        exporting = self._exporting(directory, form, selecting, output, escape_formulas=escape_formulas)
        with whole_table(out, replaces=self.overwrite) as file:
            rows = exporting(file)
        output.result(event, f"{counted(rows, 'row')} in {out}", rows=rows, path=str(out))
        note_unmatched(output, directory, selecting.selection(), rows)

    def print(
        self,
        directory: os.PathLike[str],
        form: Format,
        selecting: Selecting,
        output: Output,
        *,
        escape_formulas: bool = False,
    ) -> None:
        """Writes the selected messages to standard output."""
        with output.file() as file:
            rows = self._exporting(directory, form, selecting, output, escape_formulas=escape_formulas)(file)
        note_unmatched(output, directory, selecting.selection(), rows)

    def _exporting(
        self, directory: os.PathLike[str], form: Format, selecting: Selecting, output: Output, *, escape_formulas: bool
    ) -> Callable[[Any], int]:
        """The function that writes the selected messages to a file and returns the number of rows; checks the options first."""
        options = decoding_options(self.tags, self.codec, payload=self.payload, payload_file=self.payload_file)
        if self.protocol is not None:
            need_decodable(self.protocol, options)
        selection = selecting.selection(self.protocol)
        from trunkline import capture
        from trunkline.capture import folders

        opened = folders.opened(directory, max_message_bytes=self.max_message_bytes)
        found = opened.info()
        protocol = self.protocol or _protocol_of(found.protocols, output)
        need_decodable(protocol, options)

        def export(file: Any) -> int:
            with Progress("decoding", found.messages) as progress:
                return capture.export(
                    opened,
                    file,
                    protocol,
                    format=form,
                    selection=selection,
                    escape_formulas=escape_formulas,
                    on_progress=progress.at,
                    **options,
                )

        return export


def _protocol_of(counts: Mapping[str, int], output: Output) -> str:
    """The default protocol to decode: the only one in the capture, else the first of all."""
    if len(counts) == 1:
        return next(iter(counts))
    others = {name: count for name, count in counts.items() if name != DEFAULT}
    if others:
        output.note(f"decodes {DEFAULT}; --protocol decodes others{listed(others)}")
    return DEFAULT

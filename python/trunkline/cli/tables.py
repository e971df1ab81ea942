"""Decoded messages in a file: what the commands that write one have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trunkline._text import counted
from trunkline.cli.options import (
    DECODABLE,
    DEFAULT,
    CaptureTags,
    DecodingCodec,
    Overwrite,
    Payload,
    decoding_options,
    listed,
    need_decodable,
)
from trunkline.cli.output import Output
from trunkline.cli.progress import Progress
from trunkline.cli.selecting import Selecting, tell_unmatched
from trunkline.cli.whole import whole

if TYPE_CHECKING:
    from trunkline.capture.exporting import Format

__all__ = ["Decoding"]


@dataclass(frozen=True)
class Decoding:
    """What is decoded of a capture, and into which columns."""

    protocol: Annotated[
        str | None,
        typer.Option(
            "--protocol", help=f"What to decode: {DECODABLE}. [default: {DEFAULT}, or what else there is alone]"
        ),
    ] = None
    tags: CaptureTags = None
    codec: DecodingCodec = None
    payload: Payload = False
    overwrite: Overwrite = False

    def write(
        self, directory: Path, out: Path, form: Format, selecting: Selecting, output: Output, *, event: str
    ) -> None:
        """Writes the messages that are selected, and says how many rows they are."""
        options = decoding_options(self.tags, self.codec, payload=self.payload)
        if self.protocol is not None:
            need_decodable(self.protocol, options)
        selection = selecting.selection(self.protocol)
        from trunkline import capture

        found = capture.open(directory).info()
        protocol = self.protocol or _protocol_of(found.protocols, output)
        need_decodable(protocol, options)
        with whole(out, replaces=self.overwrite) as part, Progress("decoding", found.messages) as progress:
            rows = capture.export(
                directory, part, protocol, format=form, selection=selection, on_progress=progress.at, **options
            )
        output.result(event, f"{counted(rows, 'row')} in {out}", rows=rows, path=str(out))
        tell_unmatched(output, directory, selection, rows)


def _protocol_of(counts: Mapping[str, int], output: Output) -> str:
    """What to decode where nobody says it: the only protocol there is, else the first of all."""
    if len(counts) == 1:
        return next(iter(counts))
    others = {name: count for name, count in counts.items() if name != DEFAULT}
    if others:
        output.note(f"decodes {DEFAULT}; --protocol decodes others{listed(others)}")
    return DEFAULT

"""`trunkline capture recover, verify, compact, ship`: maintenance of captures."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline import errors
from trunkline._text import amount, counted, did_you_mean, were
from trunkline.cli.options.shared import (
    DecodingCodec,
    Directory,
    Json,
    Metrics,
    Payload,
    PayloadFile,
    Readable,
    Tags,
    decoding_options,
    example,
)
from trunkline.cli.process.running import serving
from trunkline.cli.process.signals import Stopping
from trunkline.cli.process.waiting import rest
from trunkline.cli.terminal.output import Output
from trunkline.cli.terminal.progress import Progress

if TYPE_CHECKING:
    from trunkline.capture.recovery import Compaction, Decode, DecodedFiles
    from trunkline.capture.shipping import Shipment, Shipped
    from trunkline.cli.options.commands import Commands

__all__ = ["add_to"]

# How often `--watch` looks for new segments, and the longest wait while the store does not answer.
_LOOK_AGAIN_S = 1.0
_LOOK_AGAIN_MAX_S = 60.0


def recover(directory: Directory, *, as_json: Json = False) -> None:
    """Publishes what a killed recorder left behind, and verifies the checksums of all segments: exits with 1 if one does not match."""
    from trunkline import capture

    output = Output(json=as_json)
    found = capture.recover(directory)
    if output.json:
        output.event(
            "recovered", rows=found.rows, cut_bytes=found.cut_bytes, segment=found.segment, damaged=list(found.damaged)
        )
    elif found.rows:
        cut = f"; {counted(found.cut_bytes, 'byte')} of an unfinished write cut" if found.cut_bytes else ""
        output.line(f"{counted(found.rows, 'message')} recovered into segment {found.segment}{cut}")
    else:
        output.line("nothing to recover")
    if found.damaged:
        numbers = ", ".join(map(str, found.damaged))
        message = f"{directory}: not as they were published: segments {numbers}; trunkline capture verify says more"
        raise errors.CaptureError(message)


def verify(directory: Readable, *, as_json: Json = False) -> None:
    """Reads a whole capture and checks it: checksums, and numbers without gaps or duplicates. Exits with 1 if something is wrong."""
    from trunkline import capture

    output = Output(json=as_json)
    found = capture.verify(directory)
    counts = {"segments": found.segments, "messages": found.messages, "unchecked": found.unchecked}
    for problem in found.problems:
        text = f"{problem.path}: {problem.what}"
        output.result("problem", text, path=str(problem.path), what=problem.what)
    if output.json:
        output.event("verified", **counts, problems=len(found.problems))
    elif not found.problems:
        unchecked = f", {found.unchecked:,} of them without a sum to check" if found.unchecked else ""
        output.line(
            f"all is well: {counted(found.messages, 'message')} in {counted(found.segments, 'segment')}{unchecked}"
        )
    if found.problems:
        output.fail(f"{counted(len(found.problems), 'problem')} found")


def compact(
    directory: Directory,
    *,
    target_bytes: Annotated[
        int | None,
        typer.Option(
            "--target-bytes",
            min=1,
            metavar="BYTES",
            help="Merge segments that have no more bytes together. [default: 64 MiB]",
        ),
    ] = None,
    decode: Annotated[
        str | None,
        typer.Option(
            "--decode",
            metavar="PROTOCOL,...",
            help="Decode these protocols into Parquet beside the segments.",
        ),
    ] = None,
    tags: Tags = None,
    codec: DecodingCodec = None,
    payload: Payload = None,
    payload_file: PayloadFile = None,
    shred: Annotated[
        bool,
        typer.Option("--shred", help="Shred VARIANTs: Spark and DuckDB read one tag alone."),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Go on decoding what is recorded, until a signal."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Merges small segments into large ones, while nobody records. Readers and streams may run meanwhile, and see each row once."""
    from trunkline import capture
    from trunkline.capture.recovery import TARGET_BYTES

    output = Output(json=as_json)
    chosen = _decode(decode, decoding_options(tags, codec, payload=payload, payload_file=payload_file))
    for option, is_chosen in (("--watch", watch), ("--shred", shred)):
        if is_chosen and not chosen:
            message = f"{option} is for --decode: name the protocols to decode."
            raise typer.BadParameter(message)
    if watch:
        _decode_on(directory, chosen, output, target_bytes or TARGET_BYTES, shred=shred)
        return
    done = capture.compact(directory, target_bytes=target_bytes or TARGET_BYTES, decode=chosen, shred=shred)
    _report_merged(output, done)
    if chosen and not output.json:
        output.line(_decoded(done.decoded))


def _decode(names: str | None, options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The protocols of `--decode`, each with those of the options that it has."""
    from trunkline.columns import protocols

    known = {protocol.name: protocol.options for protocol in protocols()}
    chosen = [] if names is None else [name.strip() for name in names.split(",")]
    for name in chosen:
        if name not in known:
            message = (
                f"there is no protocol {name!r}{did_you_mean(name, known) or ': choose from ' + ', '.join(known)}."
            )
            raise typer.BadParameter(message, param_hint="--decode")
    for option in options:
        if not any(option in known[name] for name in chosen):
            message = f"--{option} is for --decode with a protocol that has {option}."
            raise typer.BadParameter(message)
    return {name: {option: value for option, value in options.items() if option in known[name]} for name in chosen}


def _report_merged(output: Output, done: Compaction) -> None:
    if output.json:
        output.event(
            "compacted",
            replaced=done.replaced,
            merged=done.merged,
            bytes_before=done.bytes_before,
            bytes_after=done.bytes_after,
            decoded=done.decoded,
        )
    elif done.merged:
        size = f"{amount(done.bytes_before)} to {amount(done.bytes_after)}"
        output.line(f"{counted(done.replaced, 'segment')} merged into {done.merged:,}; {size}")
    else:
        output.line("nothing to merge")


def _decoded(done: DecodedFiles) -> str:
    removed = f"; {done.removed:,} removed" if done.removed else ""
    return f"{counted(done.messages, 'message')} decoded into {counted(done.written, 'file')}{removed}"


def _decode_on(directory: Path, decode: Decode, output: Output, target_bytes: int, *, shred: bool) -> None:
    """Merges what is there unless it is recorded to, and decodes new segments until a signal comes."""
    from trunkline import capture
    from trunkline.capture.recovery import DecodedFiles, decode_files, is_recorded, need_decodable

    need_decodable(decode)
    if not is_recorded(directory):
        _report_merged(output, capture.compact(directory, target_bytes=target_bytes))
    with Stopping() as stopping:
        output.ready("capture.compact", [], f"decoding {', '.join(decode)} of {directory}")
        total = DecodedFiles()
        while not stopping.stopped:
            done = decode_files(directory, decode, lambda: not stopping.stopped, shred=shred)
            if done != DecodedFiles():
                output.result("decoded_files", _decoded(done), **asdict(done))
                total = DecodedFiles(*(sum(both) for both in zip(astuple(total), astuple(done), strict=True)))
            rest(stopping, _LOOK_AGAIN_S)
    output.stopped("signal", total)


def ship(
    directory: Directory,
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The folder to copy to: s3://bucket/runs/run7, another URL, or a path.")
    ],
    *,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on with what is recorded meanwhile, until a signal.")
    ] = False,
    delete_shipped: Annotated[
        bool,
        typer.Option("--delete-shipped", help="Delete segments here once they are there, all but the last one."),
    ] = False,
    metrics: Metrics = None,
    as_json: Json = False,
) -> None:
    """Copies published segments, and what a capture keeps beside them, to an object store, each checked against its checksum.

    What is there already is not copied again: one that was interrupted goes on where it was.
    """
    if metrics is not None and not watch:
        message = "--metrics is for what runs on: give --watch as well."
        raise typer.BadParameter(message)
    from trunkline.capture.shipping import Shipment

    output = Output(json=as_json)
    shipment = Shipment(directory, url, delete_shipped=delete_shipped)
    if watch:
        _watch(shipment, output, f"copying {directory} to {shipment.target}", metrics)
        return
    with Progress("copying (segments)", None) as progress:
        done = shipment.round(progress.at)
    _report(output, done)
    if done.missed:
        output.fail(f"{were(done.missed, 'segment')} deleted before being copied")


class _StoppedError(Exception):
    """A signal came while segments were copied."""


def _watch(shipment: Shipment, output: Output, doing: str, metrics: str | None) -> None:
    """Copies new segments until a signal comes; retries after errors of the store."""
    wait_s, state, is_cut_off = _LOOK_AGAIN_S, "serving", False
    with Stopping() as stopping, serving(shipment, lambda: state, metrics) as metrics_url:
        output.ready("capture.ship", [], doing, metrics_url=metrics_url)

        def at(_done: int, _all: int) -> None:
            if stopping.stopped:
                raise _StoppedError

        while not stopping.stopped:
            try:
                done = shipment.round(at)
            except _StoppedError:
                is_cut_off = True
                break
            except errors.CaptureError as error:
                wait_s, state = min(wait_s * 2, _LOOK_AGAIN_MAX_S), "disconnected"
                output.remark("retry", f"{error}; trying again in {wait_s:g} s", error=str(error), wait_s=wait_s)
            else:
                wait_s, state = _LOOK_AGAIN_S, "serving"
                if done.segments or done.missed:
                    _report(output, done)
            rest(stopping, wait_s)
    output.stopped("signal", shipment.total)
    if is_cut_off:
        # A call of a store that goes on would delay the end of the interpreter.
        sys.stdout.flush()
        os._exit(0)


def _report(output: Output, done: Shipped) -> None:
    parts = [f"{counted(done.segments, 'segment')}, {amount(done.bytes)} copied"]
    parts += [f"{done.already:,} there already"] if done.already else []
    parts += [f"{done.deleted:,} deleted here"] if done.deleted else []
    parts += [f"{done.missed:,} deleted before being copied"] if done.missed else []
    output.result(
        "shipped",
        "; ".join(parts),
        segments=done.segments,
        bytes=done.bytes,
        already=done.already,
        deleted=done.deleted,
        missed=done.missed,
    )


def add_to(app: Commands) -> None:
    """Adds these commands to their group."""
    app.command(epilog=example("trunkline capture recover run7"))(recover)
    app.command(epilog=example("trunkline capture verify run7", "trunkline capture verify s3://lab/runs/run7"))(verify)
    app.command(
        epilog=example(
            "trunkline capture compact run7 --target-bytes 134217728",
            "trunkline capture compact run7 --decode cdtp --tags run=bigint,*=variant --watch",
        )
    )(compact)
    app.command(
        epilog=example(
            "trunkline capture ship run7 s3://lab/runs/run7",
            "trunkline capture ship run7 s3://lab/runs/run7 --watch --delete-shipped",
        )
    )(ship)

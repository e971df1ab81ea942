"""`trunkline capture recover, verify, compact, ship`: maintenance of captures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trunkline import errors
from trunkline._text import amount, counted
from trunkline.cli.options import Directory, Json, Metrics, Readable, example
from trunkline.cli.output import Output
from trunkline.cli.pace import rest
from trunkline.cli.progress import Progress
from trunkline.cli.running import serving
from trunkline.cli.signals import Stopping

if TYPE_CHECKING:
    from trunkline.capture.shipping import Shipment, Shipped

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
            metavar="N",
            help="Merge segments that have no more bytes together. [default: 64 MiB]",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Merges small segments into large ones, while nobody records. Readers and streams may run meanwhile, and see each row once."""
    from trunkline import capture
    from trunkline.capture.recovery import TARGET_BYTES

    output = Output(json=as_json)
    done = capture.compact(directory, target_bytes=target_bytes or TARGET_BYTES)
    if output.json:
        output.event(
            "compacted",
            replaced=done.replaced,
            merged=done.merged,
            bytes_before=done.bytes_before,
            bytes_after=done.bytes_after,
        )
    elif done.merged:
        size = f"{amount(done.bytes_before)} to {amount(done.bytes_after)}"
        output.line(f"{counted(done.replaced, 'segment')} merged into {done.merged:,}; {size}")
    else:
        output.line("nothing to merge")


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
        output.fail(f"{counted(done.missed, 'segment')} deleted before they were copied")


class _StoppedError(Exception):
    """A signal came between two segments."""


def _watch(shipment: Shipment, output: Output, doing: str, metrics: str | None) -> None:
    """Copies new segments until a signal comes; retries after errors of the store."""
    wait_s, state = _LOOK_AGAIN_S, "serving"
    with Stopping() as stopping, serving(shipment, lambda: state, metrics) as metrics_url:
        output.ready("capture.ship", [], doing, metrics_url=metrics_url)

        def at(_done: int, _all: int) -> None:
            if stopping.stopped:
                raise _StoppedError

        while not stopping.stopped:
            try:
                done = shipment.round(at)
            except _StoppedError:
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


def _report(output: Output, done: Shipped) -> None:
    parts = [f"{counted(done.segments, 'segment')}, {amount(done.bytes)} copied"]
    parts += [f"{done.already:,} there already"] if done.already else []
    parts += [f"{done.deleted:,} deleted here"] if done.deleted else []
    parts += [f"{done.missed:,} deleted before they were copied"] if done.missed else []
    output.result(
        "shipped",
        "; ".join(parts),
        segments=done.segments,
        bytes=done.bytes,
        already=done.already,
        deleted=done.deleted,
        missed=done.missed,
    )


def add_to(app: typer.Typer) -> None:
    """Adds these commands to their group."""
    app.command(epilog=example("trunkline capture recover run7"))(recover)
    app.command(epilog=example("trunkline capture verify run7", "trunkline capture verify s3://lab/runs/run7"))(verify)
    app.command(epilog=example("trunkline capture compact run7 --target-bytes 134217728"))(compact)
    app.command(
        epilog=example(
            "trunkline capture ship run7 s3://lab/runs/run7",
            "trunkline capture ship run7 s3://lab/runs/run7 --watch --delete-shipped",
        )
    )(ship)

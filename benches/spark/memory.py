"""Memory of Spark's Python workers in a stream of contents: `python -m benches.spark.memory [--rows N] [--fast]`.

The highest resident size (`VmHWM`) that any worker has had, as seen ten times a second, in a session as `spark.session()` makes it
for two cores: 128 MiB for each bucket, and 256 MiB of frames for a micro-batch. The contents are those of `benches.spark.together`.
"""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benches.measure import arguments, machine, save
from benches.spark.processes import below
from benches.spark.together import TABLES, captured, streamed
from trunkline import spark

AIM_MIB = 400
# Of how many of the rows there is a capture each.
SHARES = (12, 3, 1)
_EVERY_S = 0.1


@contextmanager
def watched(jvm: int) -> Iterator[dict[int, float]]:
    """The highest resident size of each process below a JVM, in MiB."""
    peaks: dict[int, float] = {}
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(_EVERY_S):
            for pid in below(jvm):
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                # A process that has just ended has none.
                if found := re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE):
                    peaks[pid] = int(found[1]) / 1024

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield peaks
    finally:
        is_over.set()
        watching.join()


def main() -> None:
    """Runs a stream of each capture, and writes the peaks down."""
    options = arguments(12_000_000, fast_rows=1200)
    messages, source, table = TABLES["contents"]
    peaks: dict[int, tuple[int, float]] = {}
    for rows in (options.rows // share for share in SHARES):
        with tempfile.TemporaryDirectory(prefix="trunkline-memory-") as directory:
            path = Path(directory) / "capture"
            captured(path, messages(), rows)
            session = spark.session(master="local[2]")
            session.sparkContext.setLogLevel("OFF")
            jvm = session.sparkContext._gateway.proc.pid  # noqa: SLF001 - pyspark has no other way to know
            with watched(jvm) as seen:
                read = session.readStream.format("trunkline").options(**source).load(str(path))
                query = streamed(table(read), Path(directory) / "checkpoint")
            peaks[rows] = len(query.recentProgress), max(seen.values())
            session.stop()
    lines = [
        "# Memory of Spark's Python workers in a stream of contents",
        "",
        f"`python -m benches.spark.memory --rows {options.rows}`, {machine()}",
        "",
        __doc__.partition("\n\n")[2].strip(),
        "",
        "| messages | micro-batches | peak of a worker, MiB |",
        "|---|---|---|",
        *(f"| {rows:,} | {batches} | {peak:.0f} |" for rows, (batches, peak) in peaks.items()),
        "",
        f"Aim: at most {AIM_MIB} MiB, however many there are.",
    ]
    if options.fast:
        print("\n".join(lines))
    else:
        save("memory", lines, {"peaks": peaks})


if __name__ == "__main__":
    main()

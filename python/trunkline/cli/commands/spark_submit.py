"""`trunkline spark submit`: any other `trunkline spark` on a cluster."""

from __future__ import annotations

import importlib.util
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from trunkline._roles.reachability import why_not_at
from trunkline.cli.options.shared import example
from trunkline.cli.process.signals import ending_signals
from trunkline.errors import TrunklineError

__all__ = ["SUBMIT", "Submit", "submit"]

SUBMIT = example(
    "trunkline spark submit --master spark://lab:7077 -- spark decode /shared/run7 /shared/messages --protocol cdtp",
    "trunkline spark submit --master yarn --num-executors 8 -- spark stream /shared/runs /shared/table --protocol dcp",
)

# The packages in the archive for executors.
_PACKAGES = ("trunkline", "pyspark_trunkline")
_FOLDER = "trunkline-package"

# spark-submit prints both streams of the driver on its standard output: on Linux the driver uses our standard error.
_DRIVER = """\
import contextlib
import os
import sys

with contextlib.suppress(OSError):
    os.dup2(os.open("/proc/{pid}/fd/2", os.O_WRONLY | os.O_APPEND), 2)

from trunkline.__main__ import main

sys.argv[0] = "trunkline"
main()
"""

_COMMAND = "command"

# How long the master of a cluster may take to accept a connection.
_PROBE_S = 5.0


class Submit(TyperCommand):
    """A command that passes its arguments up to ``--`` to spark-submit."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Takes all arguments as they are, except a single `--help`."""
        at = args.index("--") if "--" in args else len(args)
        given, ctx.meta[_COMMAND] = args[:at], args[at + 1 :]
        if given and given[0] in {"--help", "-h"}:
            return super().parse_args(ctx, given)
        return super().parse_args(ctx, ["--", *given])


def submit(
    ctx: typer.Context,
    options: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SPARK-OPTION",
            help="Options as spark-submit takes them; then -- and the command, such as spark decode.",
        ),
    ] = None,
) -> None:
    """Runs another command of `trunkline spark` by spark-submit, on a cluster.

    Executors get this installation of trunkline with the job; they need a Python of the same version with pyarrow and pandas. Paths must be
    ones that all of them reach.
    """
    command: list[str] = ctx.meta[_COMMAND]
    if command[:1] != ["spark"] or len(command) < 2 or command[1] == "submit":
        such = "such as -- spark decode CAPTURE OUT --protocol cdtp"
        named = " ".join(command[:2])
        message = (
            f"{named!r} is no command of spark that a cluster can run, {such}."
            if named
            else f"name a command after --, {such}."
        )
        raise typer.BadParameter(message)
    need_master(options or [])
    from trunkline.spark._java import java_home
    from trunkline.spark._missing import needs_extra

    program = needs_extra(_spark_submit)()
    with tempfile.TemporaryDirectory(prefix="trunkline-submit-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        archive, driver = folder / f"{_FOLDER}.zip", folder / "trunkline_driver.py"
        _pack(archive)
        driver.write_text(_DRIVER.format(pid=os.getpid()))
        environment = dict(os.environ)
        home = java_home(folder)
        if home is not None:
            environment["JAVA_HOME"] = str(home)
        words = [*_settings(options or [], archive), str(driver), *command]
        raise typer.Exit(_run([program, *words], environment))


def need_master(given: Sequence[str]) -> None:
    """Refuses a standalone cluster that does not answer: Spark would try for a minute, and then say it in pages.

    Raises:
        TrunklineError: None of its masters can be reached.
    """
    master = next((after for word, after in itertools.pairwise(given) if word == "--master"), "")
    master = next((word.partition("=")[2] for word in given if word.startswith("--master=")), master)
    scheme, _, masters = master.partition("://")
    if scheme != "spark":
        return
    reasons = {}
    for at in masters.split(","):
        host, _, port = at.rpartition(":")
        reasons[at] = why_not_at(host.strip("[]"), int(port), _PROBE_S) if port.isdigit() else "it has no port"
    if all(reasons.values()):
        message = f"no cluster answers at {', '.join(f'spark://{at} ({reason})' for at, reason in reasons.items())}"
        raise TrunklineError(message)


def _spark_submit() -> str:
    """The program, which comes with pyspark."""
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / "spark-submit")


def _settings(given: Sequence[str], archive: Path) -> list[str]:
    """The options of spark-submit: the given ones, with our package added to the archives."""
    from trunkline.spark.session import NEEDED, QUIET

    words, archives, path = [], [f"{archive}#{_FOLDER}"], [f"./{_FOLDER}"]
    rest = iter(given)
    for word in rest:
        name, _, value = word.partition("=")
        if name == "--archives":
            archives.append(value or next(rest, ""))
        elif name in {"--conf", "-c"}:
            setting = value or next(rest, "")
            if setting.startswith("spark.executorEnv.PYTHONPATH="):
                path.append(setting.partition("=")[2])
            else:
                words += ["--conf", setting]
        else:
            words.append(word)
    # The driver runs this Python; executors may have another, which spark-submit would take for the driver as well.
    python = os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable)
    ours = {**NEEDED, "spark.executorEnv.PYTHONPATH": ":".join(path), "spark.pyspark.driver.python": python}
    is_quiet = not any(word.startswith("--driver-java-options") for word in words)
    # The last value wins.
    return [
        *(["--driver-java-options", f"-Dlog4j2.configurationFile={QUIET.as_uri()}"] if is_quiet else []),
        *(word for name, value in ours.items() for word in ("--conf", f"{name}={value}")),
        *words,
        "--archives",
        ",".join(archives),
    ]


def _pack(archive: Path) -> None:
    """Writes the packages for executors, from this installation."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for package in _PACKAGES:
            spec = importlib.util.find_spec(package)
            assert spec is not None
            assert spec.origin is not None
            root = Path(spec.origin).parent
            for path in _files(root):
                file.write(path, Path(package, path.relative_to(root)))


def _files(root: Path) -> Iterator[Path]:
    return (path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)


def _run(words: Sequence[str], environment: dict[str, str]) -> int:
    """Runs it until it ends; it handles signals, and we wait."""
    with subprocess.Popen(words, env=environment) as process:  # noqa: S603
        for number in ending_signals():
            signal.signal(number, lambda number, _: process.send_signal(number))
        code = process.wait()
    return code if code >= 0 else 128 - code

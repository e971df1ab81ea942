"""Libraries that commands run below by LD_PRELOAD, and the files they have mapped, which say what they do."""

import os
import subprocess
from pathlib import Path


def build(source: Path, directory: Path) -> Path:
    """Compiles a library, with the C compiler that Rust needs too."""
    made = directory / f"{source.stem}.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", made, source, "-ldl"], check=True)
    return made


def write_numbers(file: Path, numbers: bytes) -> None:
    """Writes the beginning of a file in place: processes that have it mapped see it at once."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT)
    os.write(handle, numbers)
    os.close(handle)

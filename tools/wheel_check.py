"""Installs a wheel in an empty environment and makes a round trip with what it depends on alone."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROUND_TRIP = """
import sys, tempfile, warnings
warnings.simplefilter("error")
from trunkline import cdtp, capture
from trunkline.errors import TrunklineError
with tempfile.TemporaryDirectory() as directory:
    with cdtp.Recorder(directory, bind="tcp://127.0.0.1:*") as recorder:
        with cdtp.Sender("Wheel.check", connect=recorder.endpoints[0]) as sender:
            for number in range(100):
                sender.send(b"payload", tags={"number": number})
        recorder.wait(count=100, timeout_s=30)
        recorder.flush()
        assert recorder.stats.durable == 100, recorder.stats
    try:
        capture.open(directory).read_all()
    except TrunklineError as error:
        assert "trunkline[capture]" in str(error), error
    else:
        sys.exit("pyarrow is there: this environment was to be empty")
print("a round trip, recorded, on", sys.version.split()[0])
"""


def main(wheel: Path) -> None:
    """Raises `CalledProcessError` where a step fails."""
    if "cp311-abi3" not in wheel.name:
        sys.exit(f"{wheel.name} is not an abi3 wheel for Python 3.11 and later")
    names = zipfile.ZipFile(wheel).namelist()
    if not any(".dist-info/sboms/" in name for name in names):
        sys.exit(f"{wheel.name} does not say what it was built of")
    for needed in (
        "/share/man/man1/trunkline.1",
        "trunkline/cli/schemas.json",
        "trunkline/py.typed",
        "pyspark_trunkline/__init__.py",
    ):
        if not any(name.endswith(needed) for name in names):
            sys.exit(f"{wheel.name} lacks {needed}")
    with tempfile.TemporaryDirectory() as directory:
        venv.create(directory, with_pip=True)
        python = Path(directory) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", wheel.resolve()], check=True)
        subprocess.run([python, "-I", "-c", ROUND_TRIP], check=True, cwd=directory)
        subprocess.run([python, "-I", "-m", "trunkline", "--version"], check=False, cwd=directory)


if __name__ == "__main__":
    (path,) = sys.argv[1:]
    main(Path(path))

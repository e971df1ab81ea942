"""Ways for a role to end, each played by a script in a process of its own: no hang, no crash, nothing on stderr."""

import os
import subprocess
import sys
from pathlib import Path

STYLES = ["blocking", "asyncio", "capture"]


def start(script: Path, ending: str, style: str, directory: Path) -> subprocess.Popen[str]:
    """Starts `SCRIPT ENDING STYLE DIRECTORY`."""
    command = [sys.executable, "-X", "dev", str(script), ending, style, str(directory / "capture")]
    # The scripts say what they do by this module as well.
    paths = filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True)


def say(text: str) -> None:
    """A line in one piece: what other threads say is not to come in between."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def finish(process: subprocess.Popen[str]) -> str:
    """Waits for its end, which is to be clean; what it still said."""
    try:
        out, err = process.communicate(timeout=50)
    finally:
        process.kill()
    assert err == ""
    assert process.returncode == 0
    assert out.endswith("ended\n")
    return out

"""A real browser without a window, spoken to over pipes."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

__all__ = ["CHROMIUM", "Browser"]

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    """A tab of Chromium."""

    def __init__(self, profile: Path) -> None:
        ours, theirs = os.pipe(), os.pipe()
        words = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        # It reads from descriptor 3 and writes to 4.
        command = f'exec "$0" "$@" 3<&{ours[0]} 4>&{theirs[1]}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, CHROMIUM, *words, "about:blank"],
            pass_fds=(ours[0], theirs[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours[0])
        os.close(theirs[1])
        self._to = os.fdopen(ours[1], "wb", buffering=0)
        self._from = os.fdopen(theirs[0], "rb")
        self._numbers = itertools.count(1)
        self._session: str | None = None
        targets = self.do("Target.getTargets")["targetInfos"]
        (page,) = [target["targetId"] for target in targets if target["type"] == "page"]
        self._session = self.do("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]

    def do(self, method: str, **parameters: Any) -> Any:
        """Has it do something; what comes of it."""
        number = next(self._numbers)
        command: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        self._to.write(json.dumps(command).encode() + b"\0")
        while True:
            answer = json.loads(self._read())
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def value(self, script: str) -> Any:
        """What an expression comes to in the page; None while it is being read."""
        found = self.do("Runtime.evaluate", expression=script, returnByValue=True)
        return found["result"].get("value")

    def _read(self) -> bytes:
        found = bytearray()
        while (byte := self._from.read(1)) != b"\0":
            assert byte, "the browser is gone"
            found += byte
        return bytes(found)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._to.close()
        self._from.close()

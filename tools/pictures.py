"""The pictures of the documentation that show what happened once: made by hand, with `python -m tools.pictures`, and looked at.
A test says when the report has other heads than its picture.

Those of commands that print the same each time are made with the site, by `tools.terminals`.
"""

from __future__ import annotations

import fcntl
import math
import os
import pty
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

import zmq
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from tools.terminals import drawn

from trunkline import capture, cdtp
from trunkline.demo import DATA
from trunkline.demo.traffic import LAYOUT

IMAGES = Path(__file__).parents[1] / "docs" / "images"

# Senders of the panel's picture, and how many messages a second each sends.
SENDERS = {"Detector.one": 1800, "Detector.two": 900, "Telescope": 360}
WATCHED_S = 40
WIDTH, HEIGHT = 80, 24

# What a picture of a report says of it.
_WORDS = "words"

# What is seen of a report on a page of this size, and of its payloads alone.
PAGE = (1280, 1645)
PAYLOADS = (1280, 850)

# Hides all else of a report.
_ALONE = "<style>nav, .tiles, h1, header, section, figure:not([aria-labelledby^=payload-]) { display: none }</style>"


def panel() -> str:
    """The panel of a receiver with results in a file, some time after it began."""
    endpoint = "tcp://127.0.0.1:9000"
    typed = f"trunkline cdtp receive --bind {endpoint} --json --count 200000"
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    written: list[bytes] = []
    with (
        tempfile.TemporaryFile() as out,
        subprocess.Popen(
            [sys.executable, "-m", *typed.split()], stdin=terminal, stdout=out, stderr=terminal, env=environment
        ) as role,
    ):
        os.close(terminal)
        threading.Thread(target=_read, args=(ours, written), daemon=True).start()
        over = threading.Event()
        senders = [threading.Thread(target=_send, args=(endpoint, name, rate, over)) for name, rate in SENDERS.items()]
        for sender in senders:
            sender.start()
        with zmq.Context() as context, context.socket(zmq.PUSH) as stranger:
            stranger.connect(endpoint)
            for _ in range(3):
                stranger.send_multipart([b"nonsense", b"x"])
            time.sleep(WATCHED_S)
        shown = b"".join(written).decode()
        role.send_signal(signal.SIGINT)
        over.set()
        for sender in senders:
            sender.join()
    # What stands there now, after all that was taken off.
    last = re.split(r"\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)*", shown)[-1].replace("\r\n", "\n")
    return drawn(f"{typed} > run", last, WIDTH)


def _read(terminal: int, written: list[bytes]) -> None:
    while True:
        try:
            written.append(os.read(terminal, 1 << 16))
        except OSError:  # as Linux reports that the other end is closed
            return


def _send(endpoint: str, name: str, rate: int, over: threading.Event) -> None:
    chance = random.Random(name)
    with cdtp.Sender(name, connect=endpoint, header="B", linger_s=0.5) as sender:
        while not over.wait(0.05):
            # Some more now, some less then.
            swing = 1 + 0.4 * math.sin(time.monotonic() / 2)
            for _ in range(int(rate / 20 * swing)):
                sender.send(chance.randbytes(chance.randrange(600, 1200)))


def report(directory: Path, out: Path, payload: str | None = None) -> None:
    """The report of the demo's capture, as a browser shows its beginning; with a layout the plots of payloads alone."""
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch, "report.html")
        capture.report(directory, page, name="the demo", payload=payload)
        if payload is not None:
            page.write_text(page.read_text(encoding="utf-8").replace("</head>", f"{_ALONE}</head>"), encoding="utf-8")
        browser = shutil.which("chromium") or "chromium"
        size = ",".join(map(str, PAGE if payload is None else PAYLOADS))
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}"]
        subprocess.run([*command, f"--screenshot={out}", page.as_uri()], check=True, capture_output=True)
    kept = PngInfo()
    kept.add_text(_WORDS, words())
    with Image.open(out) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(out, optimize=True, pnginfo=kept)


def words() -> str:
    """The heads of a report of the traffic that comes with the package: a picture with others is of another report."""
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch, "report.html")
        capture.import_(sorted(DATA.glob("*.gz")), Path(scratch, "capture"))
        capture.report(Path(scratch, "capture"), page, name="the demo")
        text = page.read_text(encoding="utf-8")
    tiles = "".join(re.findall(r'<dl class="tiles"[^>]*>.*?</dl>', text, re.DOTALL))
    heads = re.findall(r"<dt[^>]*>(.*?)</dt>", tiles) + re.findall(r'<(?:h2|th scope="col")[^>]*>(.*?)</', text)
    return "\n".join(dict.fromkeys(heads))


def words_of(picture: Path) -> str:
    """Those of the report that a picture was made of."""
    with Image.open(picture) as opened:
        return str(opened.info.get(_WORDS, ""))


def main() -> None:
    """Makes them, of the capture that `trunkline demo --output` leaves."""
    report(Path(sys.argv[1]), IMAGES / "report.png")
    report(Path(sys.argv[1]), IMAGES / "payloads.png", LAYOUT)
    (IMAGES / "panel.svg").write_text(panel())


if __name__ == "__main__":
    main()

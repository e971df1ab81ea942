"""A page that follows a capture, in a real browser."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from peers.browser import CHROMIUM, Browser
from peers.cdtp import BOR, EOR, header_b
from peers.recorded import write
from peers.waiting import until

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_a_reader_stays_where_they_are(start, run, tmp_path, width, scheme):
    def record(name: str) -> None:
        frames = [
            [header_b(0, BOR, name), b"\x81\xa1v\x01"],
            [header_b(1, name=name), b"x"],
            [header_b(2, EOR, name), b"\x80"],
        ]
        write(tmp_path / f"{name}.jsonl", frames, step_ns=10**9)
        run("capture", "import", f"{name}.jsonl", "--capture", "capture")

    for number in range(5):
        record(f"D.{number}")
    command = start("capture", "report", "capture", "report.html", "--follow", "0.2", "--json")
    command.event("report")
    with Browser(tmp_path / "profile") as browser:
        browser.do(
            "Emulation.setDeviceMetricsOverride", width=width, height=700, deviceScaleFactor=1, mobile=width < 500
        )
        browser.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        browser.do("Page.navigate", url=Path(tmp_path, "report.html").as_uri())
        until(lambda: browser.value("document.querySelectorAll('details').length") == 5)
        assert browser.value("document.documentElement.scrollWidth <= innerWidth")
        browser.value("scrollTo(0, 400); document.querySelector('details').open = true; window.before = true")
        opened = browser.value("document.querySelector('details summary').textContent")
        # The page has been read anew, and is where it was.
        until(lambda: browser.value("document.readyState === 'complete' && window.before === undefined"))
        assert browser.value("scrollY") == 400
        record("E.new")
        command.event("report")
        until(lambda: browser.value("document.querySelectorAll('details').length") == 6)
        assert browser.value("scrollY") == 400
        assert browser.value("[...document.querySelectorAll('details')].filter((one) => one.open).length") == 1
        assert browser.value(
            "[...document.querySelectorAll('details')].find((one) => one.open).textContent"
        ).startswith(opened)
    command.signal(signal.SIGINT)
    command.end()

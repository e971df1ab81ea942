"""The site as it is built: it stands by itself, and is searched from disk."""

import html
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from peers.browser import CHROMIUM, Browser
from peers.waiting import until

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    return folder


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pages_load_nothing_from_elsewhere_and_search_from_disk(site):
    pages = [*site.rglob("*.html")]
    assert len(pages) > 40
    for page in pages:
        text = page.read_text()
        assert not re.search(r'<(?:script|link|img)\b[^>]*(?:src|href)="(?:https?:)?//', text), page
        assert not re.search(r"&amp;(?:quot|lt|gt|amp);", text), page
        assert re.search(r'<script src="[./]*js/iframe-worker\.js"', text), page
    assert (site / "search" / "search_index.js").read_text().startswith("var __index = {")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize(
    ("query", "title"),
    [
        ('"its security mechanism"', "A connection is refused"),
        ("this request has already been answered", "this request has already been answered"),
        ('"this request has already been answered"', "this request has already been answered"),
    ],
)
def test_a_message_is_found_with_quotation_marks_and_without(site, tmp_path, query, title):
    with Browser(tmp_path / "profile") as browser:
        browser.do("Page.navigate", url=f"{(site / 'index.html').as_uri()}?q={quote(query)}")
        until(lambda: title in (browser.value("document.querySelector('.md-search-result__list').innerText") or ""))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pages_are_short_enough_to_be_read(site):
    for page in site.rglob("*.html"):
        article = re.search(r"<article.*?</article>", page.read_text(), re.DOTALL)
        if article is None or page.name == "changelog.html":
            continue
        text = re.sub(r"<(script|style).*?</\1>", "", article[0], flags=re.DOTALL)
        assert len(html.unescape(re.sub(r"<[^>]+>", " ", text)).split()) <= 4000, page

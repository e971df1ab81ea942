"""The tables of pages are those of what they are about: the extras of pyproject.toml, the results of benches."""

import pytest
from tools import extras, performance


@pytest.mark.parametrize("page", extras.PAGES)
def test_a_page_has_the_extras_that_there_are(page):
    text = (extras.ROOT / page).read_text()
    assert extras.written(text) == text, "run python tools/extras.py"


def test_the_readme_has_the_results_of_the_benches():
    text = (performance.ROOT / performance.PAGE).read_text()
    assert performance.written(text) == text, "run python tools/performance.py"

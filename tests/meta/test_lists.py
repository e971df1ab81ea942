"""The lists of protocols that type checkers read are those of the rows."""

import pytest
from tools import lists


@pytest.mark.parametrize("name", lists.FILES)
def test_lists_are_up_to_date(name):
    assert (lists.PACKAGE / name).read_text() == lists.text(name), "run python tools/lists.py"

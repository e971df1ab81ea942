"""Names and passwords, as they are compared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp.core import ScramException
from scramp.utils import saslprep as theirs

from trunkline.mtl.saslprep import saslprep


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        # The examples of RFC 4013.
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("a\u200bb", "ab"),
        ("e\u0301", "é"),
        ("\u0627\u0628", "\u0627\u0628"),
        ("", ""),
        ("\u00ad", ""),
    ],
)
def test_what_looks_alike_becomes_one(text, prepared):
    assert saslprep(text) == prepared


@pytest.mark.parametrize(
    "text",
    [
        "\x07",
        "\u0627\u0031",
        "a\x7f",
        "\ue000",
        "\ufdd0",
        "\ud800",
        "\ufff9",
        "\u0340\u200e",
        "a\u0627",
        "\u0627a\u0628",
        "\U000e0041",
    ],
)
def test_what_no_name_may_hold_is_refused(text):
    with pytest.raises(ValueError, match=r"not allowed|must not be mixed"):
        saslprep(text)


def test_only_what_is_kept_must_be_known_to_unicode_3_2():
    assert saslprep("a🦀") == "a🦀"
    with pytest.raises(ValueError, match="1F980"):
        saslprep("a🦀", stored=True)


@given(st.text())
def test_it_is_that_of_scramp(text):
    try:
        expected = theirs(text)
    except ScramException:
        with pytest.raises(ValueError, match=r"not allowed|must not be mixed"):
            saslprep(text, stored=True)
    else:
        assert saslprep(text, stored=True) == expected
        assert saslprep(expected, stored=True) == expected

"""The normalization of names and passwords (RFC 4013)."""

from __future__ import annotations

import stringprep
import unicodedata

__all__ = ["saslprep"]

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(text: str, *, stored: bool = False) -> str:
    """Normalizes a name or password, so that equivalent ones compare equal.

    Args:
        text: The text as it was typed, or received.
        stored: Whether it is to be stored: then characters that are not in Unicode 3.2 are refused, as their normalization is
            not defined.

    Raises:
        ValueError: It has characters that are not allowed.
    """
    if text.isascii() and text.isprintable():
        return text
    kept = (character for character in text if not stringprep.in_table_b1(character))
    mapped = "".join(" " if stringprep.in_table_c12(character) else character for character in kept)
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    for character in prepared:
        if any(is_in(character) for is_in in _PROHIBITED):
            message = f"U+{ord(character):04X} is not allowed"
            raise ValueError(message)
        if stored and stringprep.in_table_a1(character):
            message = f"U+{ord(character):04X} is not in Unicode 3.2, and not allowed"
            raise ValueError(message)
    if any(map(stringprep.in_table_d1, prepared)):
        is_right_to_left = stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])
        if not is_right_to_left or any(map(stringprep.in_table_d2, prepared)):
            message = "right-to-left text must not be mixed with other text"
            raise ValueError(message)
    return prepared

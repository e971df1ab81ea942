"""Names and passwords as they are compared (RFC 4013)."""

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
    """A name or password as it is compared: two that look alike become one.

    Args:
        text: What was typed, or came in.
        stored: Whether it is to be kept: then it may have no characters that Unicode 3.2 does not know, since it is open
            what they will be compared as.

    Raises:
        ValueError: It holds what no name or password may.
    """
    if text.isascii() and text.isprintable():
        return text
    kept = (character for character in text if not stringprep.in_table_b1(character))
    mapped = "".join(" " if stringprep.in_table_c12(character) else character for character in kept)
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    for character in prepared:
        if any(is_in(character) for is_in in _PROHIBITED):
            message = f"U+{ord(character):04X} is not allowed in it"
            raise ValueError(message)
        if stored and stringprep.in_table_a1(character):
            message = f"U+{ord(character):04X} is not known to Unicode 3.2, and so not allowed in it"
            raise ValueError(message)
    if any(map(stringprep.in_table_d1, prepared)):
        is_right_to_left = stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])
        if not is_right_to_left or any(map(stringprep.in_table_d2, prepared)):
            message = "what is written from right to left in it is mixed with what is not"
            raise ValueError(message)
    return prepared

"""States with some of their bytes changed."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st

# The first bytes of what is compressed.
_COMPRESSED = b"\x28\xb5\x2f\xfd"


@st.composite
def damaged(draw, state):
    """A state with up to four other bytes, and perhaps an end that is missing."""
    found = bytearray(state)
    if draw(st.booleans()):
        # What is damaged in there would mostly not be decompressed.
        at = found.index(_COMPRESSED)
        found[at:] = pa.CompressedInputStream(pa.BufferReader(bytes(found[at:])), "zstd").read()
    # Entries are in any order, so that the length of a state differs: a position must not depend on it.
    for _ in range(draw(st.integers(1, 4))):
        found[draw(st.integers(0, 1 << 20)) % len(found)] = draw(st.integers(0, 255))
    end = draw(st.integers(0, 1 << 20)) % len(found)
    return bytes(found[:end] if draw(st.booleans()) else found)

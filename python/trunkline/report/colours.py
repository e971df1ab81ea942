"""What of a plot has which colour."""

from __future__ import annotations

from trunkline._native.analysis import Summary

__all__ = ["COLOURS", "OTHERS"]

# How many of what is plotted have a colour of their own; the one after these is for all others.
COLOURS = Summary.COLOURS

# The index of all together that have none.
OTHERS = Summary.OTHERS

"""The colours of plots."""

from __future__ import annotations

from trunkline._native.analysis import Summary

__all__ = ["COLOURS", "OTHERS"]

# How many items of a plot have a colour of their own; the next colour is for all others.
COLOURS = Summary.COLOURS

# The index of all others.
OTHERS = Summary.OTHERS

"""Benches of columns of frames."""

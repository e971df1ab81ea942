"""Benchmarks of the CDTP roles."""

"""Benches of DCP."""

"""Benches of mc0."""

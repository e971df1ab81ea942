"""Benches of MTL."""

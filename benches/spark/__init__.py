"""Benches of decoding in Spark."""

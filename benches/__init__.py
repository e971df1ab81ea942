"""Benchmarks: each measures the rival in the same run and writes ratios to `benches/results`."""

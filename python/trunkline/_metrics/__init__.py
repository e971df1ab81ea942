"""Counters of roles, and what Prometheus reads of them."""

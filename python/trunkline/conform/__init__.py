"""Tests of other implementations from outside, for `trunkline conform`: no role of ours judges what comes from the wire.

Each protocol has its `SUITE` in the module of its name. What those share: `checks` has their form and runs them, `sockets` are
peers of ZeroMQ, and `relay` counts the bytes of their connections.
"""

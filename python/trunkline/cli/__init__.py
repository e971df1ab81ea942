"""The command line: `trunkline <protocol> <role>`.

A file for each room's commands; what they have in common is in `output` (what they print) and `ending` (how they end).
"""

"""The command line: `trunkline <protocol> <role>`.

One module per protocol; `output` prints results, and `ending` handles exceptions.
"""

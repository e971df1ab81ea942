"""The command line: `trunkline <protocol> <role>`.

`commands` use `options`, `process` and `terminal`; `process.endings` handles exceptions.
"""

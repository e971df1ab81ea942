"""The main job, end to end, on what comes with the package: senders, recorder, capture, Spark, table and report.

`traffic` says who sends what, `player` is the process of one sender, `run` puts them all together.
"""

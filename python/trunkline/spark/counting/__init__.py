"""A report counted by tasks: of segments, and of rows of a table."""

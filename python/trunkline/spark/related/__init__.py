"""Rows of messages that belong together: in one task, in recorded order, in batches and in streams."""

"""The life of a command: its input, its waits, its signals, its children, and how it ends."""

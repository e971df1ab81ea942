"""The commands, a module or several a group."""

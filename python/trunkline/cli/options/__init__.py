"""Options of commands: from arguments, from variables and from files."""

"""The command lines: one file a command."""

"""What a script does, read from its syntax tree without running it."""

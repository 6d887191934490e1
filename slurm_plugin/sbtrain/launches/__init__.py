"""What a script starts by itself, read from its text without running it."""

"""Talking to Slurm: the client protocol, its bodies, and the text and JSON they read."""

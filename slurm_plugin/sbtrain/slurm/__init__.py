"""Talking to Slurm: the client protocol, its bodies, and the text they read."""

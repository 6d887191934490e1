"""Bringing a data set to every node while reading it once."""

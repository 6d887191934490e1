"""Scores of the models on public measurements, beside the papers' own."""

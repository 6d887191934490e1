"""Requests, plans, and the models that predict training on a cluster."""

"""The closed forms: pure functions with units and sources."""

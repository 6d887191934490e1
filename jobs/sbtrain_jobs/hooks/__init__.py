"""What the launcher slips into the Python of a script that does not call join(): it tells the
supervisor which world formed, how long steps take, and what was saved."""

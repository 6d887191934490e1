"""What is written down of a run: its cause ledger, the record of an attempt, progress."""

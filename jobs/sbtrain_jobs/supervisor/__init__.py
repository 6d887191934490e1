"""The batch side of an attempt: phases, roster, rendezvous, record, agreement to stop."""

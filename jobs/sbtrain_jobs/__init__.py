"""What runs inside a job: supervisor, node agent, rendezvous, step clock, checkpoints."""

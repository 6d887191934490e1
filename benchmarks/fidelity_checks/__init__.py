"""What `make bench-fidelity` does: the same call by sbatch and by sbtrain, and all that can be
seen of it compared."""

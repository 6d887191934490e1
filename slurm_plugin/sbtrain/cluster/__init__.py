"""A private, rootless, multi-node Slurm on one host."""

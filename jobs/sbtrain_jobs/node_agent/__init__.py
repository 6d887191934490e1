"""One agent a node, under srun: its trainers' processes, their ports, what it reports."""

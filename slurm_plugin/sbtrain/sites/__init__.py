"""Site files: read, checked, and rendered for Slurm."""

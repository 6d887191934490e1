"""The ranks of a staging run, one a node, alone or over MPI."""

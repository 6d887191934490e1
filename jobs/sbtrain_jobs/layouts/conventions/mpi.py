"""MPI, as mpi4py: the library that a rank loads asks the launcher who else is there."""

from __future__ import annotations

from sbtrain_jobs.layouts.convention import Convention
from sbtrain_jobs.layouts.conventions import jax

# Beside MPI, such a script may start torch.distributed or JAX.
CONVENTION = Convention(variables=jax.CONVENTION.variables, by_mpi=True)

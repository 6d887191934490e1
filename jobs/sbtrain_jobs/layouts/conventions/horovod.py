"""Horovod over MPI. It would use Gloo where MPI does not answer, and find no other rank."""

from __future__ import annotations

from sbtrain_jobs.layouts.convention import Convention, Place
from sbtrain_jobs.layouts.conventions import torch


def variables(_place: Place) -> dict[str, str]:
    return {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}


CONVENTION = Convention(variables=(torch.variables, variables), by_mpi=True, all_gpus=True)

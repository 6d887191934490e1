"""What the environment says of a job or run around this process, and must not say of the job
that is submitted from inside it: sbatch hands on all that it finds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from sbtrain_jobs.layouts.environment import (
    ROLE,
    RUN_VARIABLES,
    TEMPORARY_PREFIX,
    TRAINER_VARIABLES,
)

# Slurm sets them in a job that asked for such, and srun takes them for its own options; the
# last ones are what a launcher told an MPI program.
_ASKED_FOR = (
    *("SLURM_CPUS_PER_", "SLURM_DIST", "SLURM_EXCLUSIVE", "SLURM_GPU", "SLURM_HET_"),
    *("SLURM_MEM_", "SLURM_NO_KILL", "SLURM_NPROCS", "SLURM_NTASKS", "SLURM_OVERCOMMIT"),
    *("SLURM_STEP", "SLURM_THREADS_PER_CORE", "SLURM_TRES_PER_", "SRUN_CPUS_PER_TASK"),
    *("PMI_", "PMIX_", "OMPI_COMM_WORLD_"),
)


def to_submit_from(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what an outer run gave its trainer, and without what an outer
    job asked Slurm for. All else is handed on as sbatch does, array numbers included."""
    kept = without_outer_run(environ)
    if "SLURM_JOB_ID" not in kept:
        return kept
    return {name: value for name, value in kept.items() if not name.startswith(_ASKED_FOR)}


def without_outer_run(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what an outer run gave its trainer, or the script that starts
    its ranks itself."""
    if "SBTRAIN_PLAN" not in environ:
        return dict(environ)
    dropped = set(TRAINER_VARIABLES if ROLE in environ else RUN_VARIABLES)
    if PurePath(environ.get("TMPDIR", "")).name.startswith(TEMPORARY_PREFIX):
        dropped.add("TMPDIR")  # removed when the trainer ends
    return {name: value for name, value in environ.items() if name not in dropped}

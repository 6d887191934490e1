"""Options by which a job script runs in a container. sbtrain runs in the job script, and no
image has it: they are refused, with what to write where the program starts."""

from __future__ import annotations

from collections.abc import Sequence

from sbtrain.options.argv import Setting
from sbtrain_perf.errors import RequestError
from sbtrain_perf.request import Launch

_OF_SLURM = ("container", "container-id")
_OF_PYXIS = ("container-", "no-container-")  # how the names of its options begin


def refuse_containers(settings: Sequence[Setting], launch: Launch) -> None:
    """Raises RequestError. Slurm's own are left to it where the script runs once."""
    for name, value in settings:
        ours = name in _OF_SLURM
        if not (ours or name.startswith(_OF_PYXIS)) or (ours and launch == "script"):
            continue
        said = f"--{name}" if value is None else f"--{name}={value}"
        raise RequestError(
            f"{said} puts the job script into a container, and sbtrain with it, which is not "
            "there",
            hint="give it to what starts the program: a shell script with the line `srun "
            f"{said} python train.py`, or `exec apptainer exec IMAGE python train.py` in one "
            "that --train-launch ranks starts; --train-launch none leaves the call to sbatch",
        )

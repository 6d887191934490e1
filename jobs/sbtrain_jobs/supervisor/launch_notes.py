"""What a script's imports say of a launcher that sbtrain does not start."""

from __future__ import annotations

from pathlib import Path

from sbtrain_jobs.script_imports import imported_names, joins
from sbtrain_perf.request import Plan
from sbtrain_perf.wording import count

_LAUNCHED = ("mpi4py", "horovod")  # their ranks find each other through mpirun or srun


def apart_by_launch(plan: Plan) -> str:
    """What to say where several trainers of a script may each find a world of their own.

    Of a script that joins nothing is said: join() looks at the world that it finds.
    """
    if len(plan.roles) < 2:
        return ""
    try:
        source = Path(plan.script).read_text(errors="replace")
    except OSError:
        return ""
    if source.startswith("#!") and "python" not in source.partition("\n")[0]:
        return ""
    names = {name.partition(".")[0] for name in imported_names(source)}
    used = " and ".join(package for package in _LAUNCHED if package in names)
    if not used or joins(source):
        return ""
    return (
        f"the script imports {used}, and no MPI launcher starts its "
        f"{count(len(plan.roles), 'trainer')}: each may be a world of one"
    )

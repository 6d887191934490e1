"""How srun starts ranks that meet through MPI: by the plugin that fits the library which the
user's Python loads. With another one each rank would find a world of its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from sbtrain_jobs.errors import CommandTimeoutError, LaunchError
from sbtrain_jobs.node_agent.trainer_command import first_line, trainer_argv
from sbtrain_jobs.process import run_command
from sbtrain_perf.request import Plan

LOOK_WITHIN_S = 20.0
OTHER_WAYS = (
    "use an MPI that this Slurm can start (by pmi2: MPICH, as of pip install mpich; by pmix: "
    "Open MPI), or start the ranks in the script with the mpirun of its own"
)
_OWN_CHOICE = ("", "none", "pmi2", "pmix")  # what a plan names where its site names nothing
_MOST_COMMON = "pmix"
# Prints what MPI the script would load; of mpich's wheel also that it is one.
_LOOK = r"""
import glob, os, sys
from importlib.util import find_spec
found = ""
try:
    import mpi4py
    mpi4py.rc.initialize = False
    from mpi4py import MPI
    found = MPI.Get_library_version()
except Exception:
    pass
horovod = find_spec("horovod")
for folder in list(horovod.submodule_search_locations) if horovod and not found else ():
    for path in glob.glob(os.path.join(folder, "*", "*.so")):
        with open(path, "rb") as stream:
            needs = stream.read()
        for name, vendor in ((b"libmpi.so.40", "Open MPI"), (b"libmpi", "MPICH")):
            if name in needs and not found:
                found = vendor
    found = found or "no MPI"
print(" ".join(found.split()))
print("wheel" if glob.glob(os.path.join(sys.prefix, "lib", "libmpi.so.12*")) else "")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MpiLaunch:
    """plugin: for srun's --mpi. variables: what the ranks' environment gains."""

    plugin: str
    variables: Mapping[str, str] = field(default_factory=dict)


def mpi_launch(plan: Plan, environ: Mapping[str, str]) -> MpiLaunch:
    """Asks the user's Python and srun. Where the user's environment or the site names a plugin
    of its own, that it is.

    Raises:
        LaunchError: srun has no plugin for the library, or the program has no MPI.
    """
    said = (environ.get("SLURM_MPI_TYPE", ""), plan.mpi_plugin)
    named = next((name for name in said if name not in _OWN_CHOICE), "")
    python, library, of_wheel = _library(plan, environ)
    if plan.framework == "horovod" and library == "no MPI":
        raise LaunchError(
            f"the Horovod of {python} was built without MPI: each rank would be a world of one",
            hint="build it with HOROVOD_WITH_MPI=1, or start the ranks in the script with "
            "horovodrun --gloo",
        )
    plugin = named or _fitting(library, plan.mpi_plugin)
    there = _plugins(environ)
    if there and plugin not in there:
        raise LaunchError(
            f"{library or 'MPI'} needs srun --mpi={plugin}, which this cluster's srun does not "
            f"have ({', '.join(there)}): each rank would be a world of one",
            hint=OTHER_WAYS,
        )
    # Lines of Slurm's pmi2 end at 1,024 bytes: the addresses of the wheel's UCX are longer.
    short = plugin == "pmi2" and of_wheel and "MPIR_CVAR_CH4_NETMOD" not in environ
    return MpiLaunch(plugin=plugin, variables={"MPIR_CVAR_CH4_NETMOD": "ofi"} if short else {})


def _fitting(library: str, planned: str) -> str:
    """planned: what fits the MPI of sbtrain's own Python, which staging uses."""
    if not library:
        return planned if planned in ("pmi2", "pmix") else _MOST_COMMON
    return "pmix" if "open mpi" in library.lower() else "pmi2"


def _library(plan: Plan, environ: Mapping[str, str]) -> tuple[str, str, bool]:
    """The user's Python, the first words of the version of the MPI that it loads (empty: it
    does not say), and whether that comes of a wheel beside it."""
    argv = trainer_argv(
        plan.script,
        (),
        shebang=first_line(plan.script),
        python=sys.executable,
        environ=environ,
    )
    python = argv[:-1]
    if "python" not in python[-1]:
        return python[0], "", False
    try:
        tried = run_command(
            [*python, "-c", _LOOK], timeout_s=LOOK_WITHIN_S, env=environ, check="keep"
        )
    except CommandTimeoutError:
        return python[-1], "", False
    library, _, wheel = tried.stdout.partition("\n")
    return python[-1], " ".join(library.split()[:3]), wheel.strip() == "wheel"


def _plugins(environ: Mapping[str, str]) -> tuple[str, ...]:
    """What srun has; nothing where it does not say."""
    said = run_command(
        ["srun", "--mpi=list"], timeout_s=LOOK_WITHIN_S, env=environ, check="keep"
    )
    lines = f"{said.stdout}\n{said.stderr}".splitlines()
    each = [line.strip() for line in lines if line[:1].isspace()]
    return (*each, *re.findall(r"\bpmix_v\d+", said.stdout + said.stderr))

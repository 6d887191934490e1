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

LOOK_WITHIN_S = 30.0
_BY_LIBRARY = ("pmi2", "pmix")  # what a plan names where its site names nothing
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
    found = found or "none"
print(" ".join(found.split()))
print("wheel" if glob.glob(os.path.join(sys.prefix, "lib", "libmpi.so.12*")) else "")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MpiLaunch:
    """plugin: for srun's --mpi. variables: what the ranks' environment gains."""

    plugin: str
    variables: Mapping[str, str] = field(default_factory=dict)


def mpi_launch(plan: Plan, environ: Mapping[str, str]) -> MpiLaunch:
    """Asks the user's Python and srun. Where the user or the site names a plugin, that it is.

    Raises:
        LaunchError: srun has no plugin for the library, or the program has no MPI.
    """
    named = environ.get("SLURM_MPI_TYPE", "")
    if not named and plan.mpi_plugin not in _BY_LIBRARY:
        named = plan.mpi_plugin
    python, library, of_wheel = _library(plan, environ)
    if plan.framework == "horovod" and library == "none":
        raise LaunchError(
            f"the Horovod of {python} was built without MPI: each rank would be a world of one",
            hint="build it with HOROVOD_WITH_MPI=1, or start the ranks in the script with "
            "horovodrun --gloo",
        )
    plugin = named or _fitting(library) or plan.mpi_plugin
    there = _plugins(environ)
    if there and plugin not in there:
        raise LaunchError(
            f"{library or 'MPI'} needs srun --mpi={plugin}, which this cluster's srun does not "
            f"have ({', '.join(there)}): each rank would be a world of one",
            hint="use an MPI that fits (pmi2: MPICH, as of pip install mpich; pmix: Open MPI), "
            "or start the ranks in the script with the mpirun of its own",
        )
    # Lines of Slurm's pmi2 end at 1,024 bytes: the addresses of the wheel's UCX are longer.
    short = plugin == "pmi2" and of_wheel and "MPIR_CVAR_CH4_NETMOD" not in environ
    return MpiLaunch(plugin=plugin, variables={"MPIR_CVAR_CH4_NETMOD": "ofi"} if short else {})


def _fitting(library: str) -> str:
    if not library or library == "none":
        return ""
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

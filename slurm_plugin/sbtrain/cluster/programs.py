"""Finding the programs of Slurm and munge on this host, and Slurm's version."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sbtrain.cluster.errors import ClusterError, SlurmNotInstalledError
from sbtrain_jobs.process import run_command

# Debian's package of each program; daemons live in sbin, which is not on every PATH.
PACKAGES = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sinfo": "slurm-client",
    "scontrol": "slurm-client",
    "munged": "munge",
}
ACCOUNTING_PACKAGES = {
    "slurmdbd": "slurmdbd",
    "sacctmgr": "slurm-client",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
}
SYSTEM_FOLDERS = (
    "/usr/local/sbin",
    "/usr/sbin",
    "/sbin",
    "/usr/local/bin",
    "/usr/bin",
    "/bin",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Absolute paths by name, the search path that led to them, and Slurm's version."""

    paths: Mapping[str, str]
    search_path: str
    version: str  # as in 22.05.8


def search_path(environ: Mapping[str, str], *, folders: Sequence[str] = SYSTEM_FOLDERS) -> str:
    """PATH with the system's sbin folders at its end."""
    given = [part for part in environ.get("PATH", "").split(os.pathsep) if part]
    return os.pathsep.join([*given, *(one for one in folders if one not in given)])


def find_programs(
    environ: Mapping[str, str], *, accounting: bool, folders: Sequence[str] = SYSTEM_FOLDERS
) -> Programs:
    """Look on PATH, then in these folders.

    Raises:
        SlurmNotInstalledError: naming what is missing and who can install it.
    """
    wanted = {**PACKAGES, **(ACCOUNTING_PACKAGES if accounting else {})}
    where = search_path(environ, folders=folders)
    paths = {name: path for name in wanted if (path := shutil.which(name, path=where))}
    missing = [name for name in wanted if name not in paths]
    if missing:
        packages = list(dict.fromkeys(wanted[name] for name in missing))
        if "slurmdbd" in missing:
            packages.append("slurm-wlm-mysql-plugin")
        raise SlurmNotInstalledError(
            f"not installed on this host: {', '.join(missing)}", hint=install_hint(packages)
        )
    said = run_command([paths["slurmctld"], "-V"], timeout_s=20, env=dict(environ)).stdout
    return Programs(paths=paths, search_path=where, version=version_in(said))


def install_hint(packages: Sequence[str]) -> str:
    line = f"apt-get install -y --no-install-recommends {' '.join(packages)}"
    if os.geteuid() == 0:
        return f"run: {line}"
    return (
        f"ask the administrator of this host to run: {line}  (the services need not be started)"
    )


def version_in(text: str) -> str:
    """The version in what `slurmctld -V` prints, as in "slurm-wlm 22.05.8"."""
    match = re.search(r"\d+\.\d+(?:\.\d+)?\S*", text)
    if match is None:
        raise ClusterError(f"cannot read Slurm's version in {text.strip()!r}")
    return match.group()


def release_of(version: str) -> tuple[int, int]:
    """(22, 5) for 22.05.8."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        raise ClusterError(f"cannot read Slurm's version {version!r}")
    return int(match[1]), int(match[2])

"""Where fidelity is measured: a private Slurm, and sbtrain installed from a wheel into an
environment of its own, as its users have it."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sbtrain.cluster import down, up

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = ("standard", "spot", "urgent")
SEEN = "FIDELITY_SEEN"  # the file in which the cli_filter notes what sbatch has understood
NOTED_ALONE = "FIDELITY_NOTED_ALONE"  # it goes no further then
_LOCAL_CONF = """CliFilterPlugins=lua
MinJobAge=120
MaxJobCount=200000
MaxArraySize=1001
FirstJobId=5000001
"""
_CLI_FILTER = f"""
local function note(text)
  local path = os.getenv("{SEEN}")
  if path then
    local file = io.open(path, "a")
    if file then file:write(text, "\\n"); file:close() end
  end
end
function slurm_cli_setup_defaults(options, early) return slurm.SUCCESS end
function slurm_cli_pre_submit(options, offset)
  note("options " .. offset .. " " .. slurm.json_cli_options(options))
  return os.getenv("{NOTED_ALONE}") and slurm.ERROR or slurm.SUCCESS
end
function slurm_cli_post_submit(offset, job, step)
  note("job " .. job)
  return slurm.SUCCESS
end
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """environ: what a login shell of this cluster has; state: where slurmctld keeps scripts and
    environments of jobs."""

    folder: Path
    environ: Mapping[str, str]
    sbtrain: Path
    sbatch: Path
    state: Path

    def made(self, name: str) -> Path:
        """A folder of this name, empty."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def slurm(self, *argv: str, check: bool = True) -> str:
        return subprocess.run(
            argv, env=dict(self.environ), capture_output=True, text=True, check=check,
            timeout=120, errors="surrogateescape", cwd=self.folder, stdin=subprocess.DEVNULL,
        ).stdout  # fmt: skip

    def that_plans(self) -> Place:
        """With what sbtrain depends on, as planning needs that, and a home for sbtrain."""
        (installed,) = self.sbtrain.parents[1].glob("lib/python*/site-packages")
        (installed / "needs.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        home = str(_folder(self.folder / "sbtrain-home"))
        return dataclasses.replace(self, environ={**self.environ, "SBTRAIN_HOME": home})

    def partitions(self, state: str) -> None:
        """DOWN: jobs are taken and wait, whatever they ask for."""
        for name in PARTITIONS:
            self.slurm("scontrol", "update", f"partitionname={name}", f"state={state}")

    def cancel_all(self) -> None:
        self.slurm("scancel", "--me", check=False)


@contextmanager
def place() -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="sbt-fidelity-", dir="/tmp"))
    etc = folder / "cluster/etc"
    try:
        up(folder / "cluster")  # writes the folder that the two files go into
        down(folder / "cluster")
        (etc / "local.conf").write_text(_LOCAL_CONF)
        (etc / "cli_filter.lua").write_text(_CLI_FILTER)
        cluster = up(folder / "cluster")
        sbatch = shutil.which("sbatch", path=cluster.environment["PATH"])
        if sbatch is None:
            raise SystemExit("there is no sbatch")
        environ = {
            "HOME": str(_folder(folder / "home")),
            "LANG": "C.UTF-8",
            "LOGNAME": os.environ.get("LOGNAME", "root"),
            "PATH": f"{Path(sbatch).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "SHELL": "/bin/bash",
            "SLURM_CONF": cluster.environment["SLURM_CONF"],
            "TERM": "xterm",
            "USER": os.environ.get("USER", "root"),
        }
        yield Place(
            folder=folder,
            environ=environ,
            sbtrain=_installed(folder),
            sbatch=Path(sbatch),
            state=folder / "cluster/state",
        )
    finally:
        down(folder / "cluster")
        shutil.rmtree(folder, ignore_errors=True)


def _installed(folder: Path) -> Path:
    """sbtrain from a wheel in an environment of its own, without what it depends on: none of
    that is needed to hand a call on."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    source = folder / "source"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/")):
            _folder((source / name).parent)
            shutil.copy(ROOT / name, source / name)
    subprocess.run(
        [*pip, "wheel", "-q", "--no-deps", "-w", str(folder), str(source)], check=True
    )
    (wheel,) = folder.glob("*.whl")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    subprocess.run(
        [*pip, "--python", str(venv / "bin/python"), "install", "-q", "--no-deps",
         "--no-index", str(wheel)],
        check=True,
    )  # fmt: skip
    return venv / "bin/sbtrain"


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path

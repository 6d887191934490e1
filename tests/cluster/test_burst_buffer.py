"""burst_buffer.lua on a real slurmctld: data is on the burst tier before the job starts.

Slurm gives root no burst buffer: where the tests run as root, all of this cluster runs in
user namespaces in which they are the user `daemon`.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusters import until
from commands import clean_environ
from sbtrain.cluster.errors import SlurmNotInstalledError
from sbtrain.cluster.programs import find_programs
from sbtrain_jobs.errors import CommandFailedError
from sbtrain_jobs.process import run_command

pytestmark = pytest.mark.slurm


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstCluster:
    """A private cluster with a burst tier, and the user that it and its jobs belong to."""

    folder: Path
    user: str

    @property
    def cluster(self) -> Path:
        return self.folder / "cluster"

    @property
    def burst(self) -> Path:
        return self.folder / "burst"

    def run(self, *argv: str) -> str:
        prefix: tuple[str, ...] = ()
        if os.geteuid() == 0:
            prefix = ("unshare", "--user", "--map-user=1", "--map-group=1", "--")
        conf = str(self.cluster / "etc" / "slurm.conf")
        environ = clean_environ(SLURM_CONF=conf, HOME=str(self.folder), USER=self.user)
        return run_command([*prefix, *argv], timeout_s=60, env=environ, cwd=self.folder).stdout

    def sbtrainctl(self, *words: str) -> str:
        return self.run(sys.executable, "-P", "-m", "sbtrain.commands.ctl", *words)

    def submit(self, source: Path) -> str:
        script = self.folder / "job.sh"
        script.write_text(
            f"#!/bin/sh\n#BB_LUA sbtrain stage={source}\n"
            'printf "%s\\n" "$SBTRAIN_STAGED"\ncat "$SBTRAIN_STAGED_1"\n'
        )
        output = f"--output={self.folder / 'job.out'}"
        return self.run("sbatch", "--parsable", output, str(script)).strip()

    def copies(self) -> list[dict[str, object]]:
        own = str(self.burst / self.user)
        found: list[dict[str, object]] = json.loads(
            self.sbtrainctl("stage", "status", "--to", own, "--json")
        )
        return found

    def shown(self, job: str) -> str:
        return self.run("scontrol", "show", "job", "-o", job)


@pytest.fixture
def burst_cluster() -> Iterator[BurstCluster]:
    try:
        find_programs(os.environ, accounting=False)
    except SlurmNotInstalledError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    root = os.geteuid() == 0
    user = pwd.getpwuid(1 if root else os.geteuid()).pw_name
    folder = Path(tempfile.mkdtemp(prefix="sbt-test-", dir="/tmp"))
    found = BurstCluster(folder=folder, user=user)
    place = ("--folder", str(found.cluster))
    try:
        found.run("true")
    except CommandFailedError as error:
        pytest.skip(f"no user namespace can be made here: {error.message}")
    try:
        found.sbtrainctl("cluster", "up", "--nodes", "1", *place)
        with_burst_buffer(found)
        found.sbtrainctl("cluster", "down", *place)
        found.sbtrainctl("cluster", "up", *place)
        yield found
    finally:
        found.sbtrainctl("cluster", "down", *place)
        shutil.rmtree(folder, ignore_errors=True)


def with_burst_buffer(one: BurstCluster) -> None:
    """What `sbtrainctl site burst-buffer` writes and says, for the cluster's own site."""
    one.run("mkdir", str(one.burst))
    site = one.cluster / "site.toml"
    site.write_text(f'burst_path = "{one.burst}"\n{site.read_text()}')
    one.sbtrainctl("site", "burst-buffer", str(site), "--output", str(one.cluster / "etc"))
    (one.cluster / "etc" / "local.conf").write_text("BurstBufferType=burst_buffer/lua\n")


def test_data_is_staged_before_the_job_starts(burst_cluster: BurstCluster) -> None:
    one = burst_cluster
    own = one.burst / one.user
    source = one.folder / "it's $(touch owned) data"
    source.write_text("rows\n")

    job = one.submit(source)
    assert "JobState=PENDING" in one.shown(job)
    until("the job is done", lambda: "JobState=COMPLETED" in one.shown(job), seconds=30)
    path, rows = (one.folder / "job.out").read_text().splitlines()
    assert rows == "rows"
    assert Path(path).is_relative_to(own)
    until("its claim has ended", lambda: not one.copies()[0]["pinned"], seconds=20)
    assert Path(path).read_text() == "rows\n"
    assert not list(one.folder.rglob("owned"))
    log = (one.cluster / "log" / "slurmctld.log").read_text()
    assert f"sbtrain burst buffer: staging for job {job}" in log

    lost = one.submit(one.folder / "gone")
    until("Slurm says why it waits", lambda: "gone" in one.shown(lost), seconds=20)
    assert "JobState=PENDING" in one.shown(lost)
    one.run("scancel", lost)

    with pytest.raises(CommandFailedError):
        one.submit(Path("no/absolute/path"))

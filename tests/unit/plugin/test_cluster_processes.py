"""Identity of processes, what counts as a cluster's own, and how they are ended; the
processes are real ones, named like daemons where that matters."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sbtrain.cluster.processes import (
    CLUSTER_NAME,
    MARK,
    Relative,
    end,
    identify,
    is_running,
    relatives,
    send,
)

# Processes of the whole host are looked through: these are this process's alone.
OURS = f"ours-{os.getpid()}"
CONF = f"/c-{os.getpid()}/slurm.conf"
Spawn = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str, **given: object) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(argv, start_new_session=True, **given)  # type: ignore[call-overload]
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def daemon(tmp_path: Path) -> str:
    """A program that only sleeps, but whose name is slurmd."""
    path = tmp_path / "slurmd"
    shutil.copy(shutil.which("sleep") or "", path)
    return str(path)


def found(log: Path, *, cluster_id: str = OURS, conf: str = CONF) -> list[Relative]:
    return relatives(cluster_id=cluster_id, conf=conf, log=log)


def pids(kin: list[Relative]) -> set[int]:
    return {one.identity.pid for one in kin}


def test_a_process_is_known_by_more_than_its_pid(spawn: Spawn) -> None:
    identity = identify(spawn("sleep", "60").pid)
    assert identity is not None
    assert is_running(identity)
    assert not is_running(replace(identity, start_ticks=identity.start_ticks + 1))
    assert not is_running(replace(identity, boot_id="another boot"))


def test_a_zombie_does_not_run(spawn: Spawn) -> None:
    process = spawn("true")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert identify(process.pid) is None


def test_never_signals_a_process_that_only_shares_the_pid(spawn: Spawn) -> None:
    process = spawn("sleep", "60")
    identity = identify(process.pid)
    assert identity is not None
    earlier = replace(identity, start_ticks=identity.start_ticks - 1)
    send(earlier, signal.SIGKILL)
    end([earlier], grace_s=0)
    assert process.poll() is None
    send(identity, signal.SIGKILL)
    assert process.wait(5) == -signal.SIGKILL


def test_a_kernel_without_pidfds_does_not_save_a_process(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(pid: int, flags: int = 0) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    process = spawn("sleep", "60")
    identity = identify(process.pid)
    assert identity is not None
    monkeypatch.setattr(os, "pidfd_open", missing)
    send(replace(identity, start_ticks=identity.start_ticks - 1), signal.SIGKILL)
    assert process.poll() is None
    send(identity, signal.SIGKILL)
    assert process.wait(5) == -signal.SIGKILL


def test_asks_first_and_kills_what_does_not_listen(spawn: Spawn) -> None:
    stubborn = spawn("sh", "-c", "trap '' TERM; echo ready; sleep 60", stdout=subprocess.PIPE)
    assert stubborn.stdout is not None
    with stubborn.stdout:
        assert stubborn.stdout.readline() == b"ready\n"
    polite = spawn("sleep", "60")
    both = [one for one in (identify(stubborn.pid), identify(polite.pid)) if one]
    end(both, grace_s=0.3)
    assert polite.wait(5) == -signal.SIGTERM
    assert stubborn.wait(5) == -signal.SIGKILL


def test_a_daemon_is_ours_by_its_mark_or_its_log(
    spawn: Spawn, daemon: str, tmp_path: Path
) -> None:
    marked = spawn(daemon, "60", env={MARK: OURS})
    foreign = spawn(daemon, "60", env={MARK: "theirs"})
    with (tmp_path / "slurmd.c7.log").open("wb") as stream:
        writing = spawn(daemon, "60", env={}, stdout=stream)
    kin = {one.identity.pid: one for one in found(tmp_path)}
    assert set(kin) == {marked.pid, writing.pid}
    assert foreign.pid not in kin
    assert (kin[marked.pid].kind, kin[marked.pid].node) == ("daemon", "")
    assert (kin[writing.pid].kind, kin[writing.pid].node) == ("daemon", "c7")
    (tmp_path / "slurmd.c7.log").unlink()
    assert writing.pid in pids(found(tmp_path)), "also when the log was removed"


def test_a_task_is_ours_only_when_slurmstepd_made_it(spawn: Spawn, tmp_path: Path) -> None:
    mine = {
        "SLURM_CONF": CONF,
        "SLURM_CLUSTER_NAME": CLUSTER_NAME,
        "SLURM_JOB_ID": "7",
    }
    task = spawn("sleep", "60", env={**mine, "SLURMD_NODENAME": "c1"})
    allocation = spawn("sleep", "60", env=mine)
    other = spawn(
        "sleep", "60", env={**mine, "SLURMD_NODENAME": "c1", "SLURM_CONF": "/d/slurm.conf"}
    )
    shell = spawn("sleep", "60", env={"SLURM_CONF": CONF})
    abroad = {**mine, "SLURM_CLUSTER_NAME": "big", "SLURMD_NODENAME": "n017"}
    in_a_job = spawn("sleep", "60", env=abroad)  # of the cluster that the user works on
    kin = {one.identity.pid: one for one in found(tmp_path)}
    assert set(kin) == {task.pid}
    assert (kin[task.pid].kind, kin[task.pid].node) == ("task", "c1")
    assert not {allocation.pid, other.pid, shell.pid, in_a_job.pid} & set(kin)


def test_what_descends_from_a_slurmstepd_is_its_nodes_task(
    spawn: Spawn, tmp_path: Path
) -> None:
    stepd = tmp_path / "slurmstepd"
    shutil.copy(shutil.which("bash") or "", stepd)
    with (tmp_path / "slurmd.g1.log").open("wb") as stream:
        parent = spawn(str(stepd), "-c", "env -i sleep 61 & wait", env={}, stdout=stream)
    deadline = time.monotonic() + 30
    wanted = {("stepd", "g1"), ("task", "g1")}
    while time.monotonic() < deadline:
        kin = found(tmp_path)
        if {(one.kind, one.node) for one in kin} == wanted:
            break
        time.sleep(0.02)
    assert {(one.kind, one.node) for one in kin} == wanted
    assert parent.pid in pids(kin)
    end([one.identity for one in kin], grace_s=0)


def test_never_finds_itself() -> None:
    script = (
        "import sys; from pathlib import Path; from sbtrain.cluster.processes import relatives;"
        f"print(relatives(cluster_id='x', conf={CONF!r}, log=Path('/none')))"
    )
    inside = {
        "SLURM_CONF": CONF,
        "SLURM_CLUSTER_NAME": CLUSTER_NAME,
        "SLURM_JOB_ID": "7",
        "SLURMD_NODENAME": "c1",
    }
    said = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **inside, "PYTHONPATH": os.pathsep.join(_wings())},
        capture_output=True,
        check=True,
        text=True,
    )
    assert said.stdout.strip() == "[]"


def _wings() -> list[str]:
    top = Path(__file__).parents[3]
    return [str(top / wing) for wing in ("slurm_plugin", "jobs", "perf", "io_staging")]

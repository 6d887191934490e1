"""Programs that sbtrain starts: what becomes of them when it is killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from sbtrain_jobs.batch_step import batch_step
from sbtrain_jobs.process import start_in_batch_step, start_process

STARTER = """
import sys, time
from sbtrain_jobs.batch_step import batch_step
from sbtrain_jobs.process import start_in_batch_step, start_process
child = start_process(["sleep", "60"], outlives_us=sys.argv[1] == "outlives")
sys.stdout.write(f"{child.pid}\\n"); sys.stdout.flush()
time.sleep(60)
"""


def gone(pid: int, *, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
            if state.rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("fate", ["dies", "outlives"])
def test_a_trainer_dies_with_an_agent_that_is_killed(fate: str) -> None:
    reader, writer = os.pipe()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    starter = start_process(
        [sys.executable, "-c", STARTER, fate], env=environment, stdout=writer
    )
    os.close(writer)
    with os.fdopen(reader) as stream:
        pid = int(stream.readline())
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait()
    if fate == "dies":
        assert gone(pid, within_s=30.0)
    else:
        assert not gone(pid, within_s=0.5)
        os.kill(pid, signal.SIGKILL)


def test_a_batch_script_gets_no_file_of_ours(tmp_path: Path) -> None:
    """Libraries open files that outlive an exec: HDF5 the timing log, say."""
    shown = tmp_path / "shown"
    theirs = os.open(shown, os.O_WRONLY | os.O_CREAT)
    os.set_inheritable(theirs, True)
    step = batch_step()
    ours = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(ours, True)
    try:
        script = f"cd /proc/self/fd; echo * >&{theirs}"
        pid = start_in_batch_step(("/bin/bash", "-c", script), environ={}, step=step)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        os.close(theirs)
        os.close(ours)
    found = set(shown.read_text().split())
    assert str(theirs) in found
    assert str(ours) not in found

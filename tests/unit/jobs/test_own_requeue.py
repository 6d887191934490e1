"""The scontrol that trainers find: what it keeps from Slurm, and what it hands on."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
from pathlib import Path

import pytest

from sbtrain_jobs.node_agent.own_requeue import command_path, is_own, write_command
from sbtrain_jobs.run_folder import AttemptFolder
from sbtrain_jobs.wire.control import ControlListener, PeerSaid
from sbtrain_jobs.wire.messages import Requeue

JOB = {"SBTRAIN_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "2"}


@pytest.mark.parametrize(
    ("words", "own"),
    [
        ("requeue 7", True),
        ("requeue 5_2", True),
        ("requeue 5", False),
        ("requeue 7,8", False),
        ("requeue incomplete 7", False),
        ("show job 7", False),
        ("requeue", False),
    ],
)
def test_the_requeue_of_ones_own_job_alone_is_kept(words: str, *, own: bool) -> None:
    assert is_own(words.split(), JOB) is own
    assert not is_own(["requeue", ""], {})


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Of a trainer whose own program stands before ours on PATH, and Slurm's behind."""
    slurms, mine = tmp_path / "slurm", tmp_path / "mine"
    for folder in (slurms, mine):
        folder.mkdir()
    (slurms / "scontrol").write_text('#!/bin/sh\necho "slurm: $*; $PATH"\nexit 3\n')
    (slurms / "scontrol").chmod(0o755)
    folder = AttemptFolder(path=tmp_path / "it's 0")
    folder.make()
    write_command(folder, python=sys.executable)
    write_command(folder, python=sys.executable)
    path = command_path(folder, {"PATH": f"{slurms}:/usr/bin:/bin"})["PATH"]
    return {**os.environ, **JOB, "PATH": f"{mine}:{path}"}


def called(environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["scontrol", *words], env=environ, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("words", [("show", "job 7"), ("requeue", "8"), ("requeue", "7")])
def test_all_else_is_slurms_and_so_is_what_nobody_takes(
    environ: dict[str, str], words: tuple[str, ...]
) -> None:
    found = called(environ, *words)
    assert found.stdout.startswith(f"slurm: {' '.join(words)};")
    assert "it's 0" not in found.stdout
    assert found.returncode == 3


@pytest.mark.parametrize("taken", [True, False])
def test_the_supervisor_is_asked(environ: dict[str, str], *, taken: bool) -> None:
    said: queue.SimpleQueue[Requeue] = queue.SimpleQueue()

    def heard(event: object) -> None:
        if isinstance(event, PeerSaid) and isinstance(event.message, Requeue):
            said.put(event.message)
            listener.send(event.peer, Requeue(rank=event.message.rank, taken=taken))

    listener = ControlListener(token="word", sink=heard)
    try:
        found = called(
            {
                **environ,
                "SBTRAIN_CONTROL": f"127.0.0.1:{listener.port}",
                "SBTRAIN_TOKEN": "word",
                "SBTRAIN_RANK": "1",
                "SBTRAIN_NODE": "0",
            },
            "requeue",
            "7",
        )
    finally:
        listener.close()
    assert said.get(timeout=1) == Requeue(rank=1)
    assert (found.stdout, found.returncode) == ("", 0) if taken else found.returncode == 3

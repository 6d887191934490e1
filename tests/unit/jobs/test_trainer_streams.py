"""A trainer's own streams: where they come from and go to, and what of them is copied."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from played_supervisor import eventually
from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.node_agent.trainer_process import TrainerProcess
from sbtrain_jobs.node_agent.trainer_streams import (
    MOST_AT_ONCE_BYTES,
    LogFile,
    TrainerStreams,
)
from sbtrain_jobs.run_folder import AttemptFolder
from sbtrain_jobs.supervisor.trainer_log import last_words


def test_what_floods_its_log_leaves_the_agent_time_for_its_duties(tmp_path: Path) -> None:
    sink = io.BytesIO()
    log = LogFile(path=tmp_path / "worker-0.log", copy_to=sink)
    os.close(log.opened())
    log.path.write_bytes(b"x" * (2 * MOST_AT_ONCE_BYTES + 1))
    copied = [(log.copied(), len(sink.getvalue()) / MOST_AT_ONCE_BYTES) for _ in range(2)]
    assert copied == [(False, 1), (False, 2)]
    assert log.copied()
    assert sink.getvalue() == log.path.read_bytes()


def test_stderr_has_a_file_of_its_own_where_it_is_wanted_apart(tmp_path: Path) -> None:
    out, err = io.BytesIO(), io.BytesIO()
    (tmp_path / "in.txt").write_text("read\n")
    process = TrainerProcess(
        ["/bin/sh", "-c", "echo said; cat; echo wrong >&2"],
        rank=0,
        streams=TrainerStreams(
            stdin=str(tmp_path / "in.txt"),
            stdout=LogFile(path=tmp_path / "worker-0.log", copy_to=out),
            stderr=LogFile(path=tmp_path / "worker-0.err", copy_to=err),
        ),
        environment=os.environ,
        ignored_signals=[],
    )
    eventually(process.look)
    assert process.returncode == 0
    assert (out.getvalue(), err.getvalue()) == (b"said\nread\n", b"wrong\n")
    assert (tmp_path / "worker-0.err").read_bytes() == err.getvalue()


def test_an_input_that_this_node_does_not_have_is_named(tmp_path: Path) -> None:
    stdout = LogFile(path=tmp_path / "worker-0.log")
    streams = TrainerStreams(stdout=stdout, stdin=str(tmp_path / "gone.txt"))
    with pytest.raises(LaunchError, match=r"gone\.txt cannot be read: No such file") as caught:
        TrainerProcess(
            ["/bin/cat"], rank=0, streams=streams, environment=os.environ, ignored_signals=[]
        )
    assert "all nodes share" in caught.value.hint


def test_the_last_words_of_a_trainer_are_on_stderr_or_in_its_log(tmp_path: Path) -> None:
    folder = AttemptFolder(path=tmp_path)
    log, errors = folder.trainer_log("worker-0"), folder.trainer_errors("worker-0")
    log.write_text("all is well\n")
    errors.write_text("")
    assert last_words(folder, "worker-0") == f"the end of {log}:\n    all is well"
    errors.write_text("not so\n")
    both = f"the end of {errors}:\n    not so\nthe end of {log}:\n    all is well"
    assert last_words(folder, "worker-0") == both

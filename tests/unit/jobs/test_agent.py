"""The agent's own parts: its place in the step, and the processes it starts."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from pathlib import Path
from typing import BinaryIO

import pytest

from plans import example_plan
from played_supervisor import eventually
from sbtrain_jobs.errors import CommandMissingError, LaunchError
from sbtrain_jobs.node_agent.agent import agent_number
from sbtrain_jobs.node_agent.trainer_command import first_line, uses_training_api
from sbtrain_jobs.node_agent.trainer_process import TrainerProcess, ignored
from sbtrain_jobs.node_agent.trainer_streams import (
    LogFile,
    TrainerStreams,
)
from sbtrain_jobs.run_folder import AttemptFolder
from sbtrain_jobs.staged_data import staged_paths
from sbtrain_jobs.supervisor.staging_step import why_failed
from sbtrain_jobs.supervisor.trainer_log import how_it_ended, last_lines
from sbtrain_staging.errors import SourceError, StagingError, WorldError
from sbtrain_staging.reports.run_report import (
    NodeReport,
    StagedSource,
    StagingReport,
    write_failure,
)

STEP = {
    "SLURM_NODEID": "1",
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
}


def test_a_node_knows_its_place() -> None:
    assert agent_number(example_plan(), STEP) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"SLURM_STEP_NUM_NODES": "3"},
        {"SLURM_STEP_NUM_TASKS": "8"},  # SLURM_NTASKS_PER_NODE of the user leaked in
        {"SLURM_NODEID": ""},
    ],
)
def test_a_step_of_another_shape_is_refused(changes: dict[str, str]) -> None:
    with pytest.raises(LaunchError) as caught:
        agent_number(example_plan(), STEP | changes)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"#!/bin/bash -e\nx\n", "#!/bin/bash -e"),
        (b"import os\n", ""),
        (b"", ""),
        (b"#!\xff\n", "#!\ufffd"),
    ],
)
def test_the_first_line_of_a_script(tmp_path: Path, content: bytes, line: str) -> None:
    script = tmp_path / "train"
    script.write_bytes(content)
    assert first_line(str(script)) == line


def logged(folder: Path, *, copy_to: BinaryIO | None = None) -> TrainerStreams:
    return TrainerStreams(stdout=LogFile(path=folder / "worker-0.log", copy_to=copy_to))


def trainer(tmp_path: Path, code: str, *, copy: bool = False) -> TrainerProcess:
    return TrainerProcess(
        [sys.executable, "-c", code],
        rank=0,
        streams=logged(tmp_path, copy_to=io.BytesIO() if copy else None),
        environment=os.environ,
        ignored_signals=[signal.SIGUSR1],
    )


def wait_for(process: TrainerProcess, within_s: float = 60.0) -> int:
    end_s = time.monotonic() + within_s
    while not process.look():
        assert time.monotonic() < end_s
        time.sleep(0.02)
    assert process.returncode is not None
    return process.returncode


def test_output_is_in_the_log_and_copied_whole(tmp_path: Path) -> None:
    sink = io.BytesIO()
    process = TrainerProcess(
        [sys.executable, "-c", "print('x' * 300_000); raise SystemExit(3)"],
        rank=0,
        streams=logged(tmp_path, copy_to=sink),
        environment=os.environ,
        ignored_signals=[],
    )
    assert wait_for(process) == 3
    assert sink.getvalue() == b"x" * 300_000 + b"\n"
    assert (tmp_path / "worker-0.log").read_bytes() == sink.getvalue()
    assert (tmp_path / "worker-0.log").stat().st_mode & 0o777 == 0o600


def test_a_closed_output_does_not_end_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb", buffering=0) as sink:
        process = TrainerProcess(
            [sys.executable, "-c", "print('hello')"],
            rank=0,
            streams=logged(tmp_path, copy_to=sink),
            environment=os.environ,
            ignored_signals=[],
        )
        assert wait_for(process) == 0
    assert "no longer copied" in capsys.readouterr().err


def test_term_then_kill_when_the_grace_is_over(tmp_path: Path) -> None:
    process = trainer(
        tmp_path,
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('on', flush=True); time.sleep(600)",
    )
    while not (tmp_path / "worker-0.log").read_text():
        time.sleep(0.02)
    began = time.monotonic()
    process.end(grace_s=0.5)
    assert wait_for(process) == -signal.SIGKILL
    assert time.monotonic() - began >= 0.5


def test_the_sooner_of_two_graces_counts(tmp_path: Path) -> None:
    process = trainer(
        tmp_path,
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('on', flush=True); time.sleep(600)",
    )
    while not (tmp_path / "worker-0.log").read_text():
        time.sleep(0.02)
    process.end(grace_s=600.0)
    process.end(grace_s=0.2)
    assert wait_for(process) == -signal.SIGKILL


def shell(tmp_path: Path, lines: str) -> TrainerProcess:
    """A bash script of a user, running when this returns."""
    process = TrainerProcess(
        ["/bin/bash", "-c", f"{lines}\necho on; while :; do sleep 0.05; done"],
        rank=0,
        streams=logged(tmp_path),
        environment=os.environ,
        ignored_signals=[],
    )
    while "on" not in (tmp_path / "worker-0.log").read_text():
        time.sleep(0.02)
    return process


def said(tmp_path: Path) -> list[str]:
    """The script's own lines, of one word each: bash tells of a sleep that a signal ended,
    in several words, too."""
    lines = (tmp_path / "worker-0.log").read_text().splitlines()
    return [line for line in lines if line.isalnum() and line.islower()]


def test_a_script_that_handles_the_signal_gets_it_and_its_time(tmp_path: Path) -> None:
    process = shell(tmp_path, "trap 'echo saving; sleep 0.5; echo saved; exit 7' USR1")
    process.end_after(signal.SIGUSR1, grace_s=30.0, delivered=False)
    assert wait_for(process) == 7
    assert said(tmp_path) == ["on", "saving", "saved"]


def test_a_signal_that_slurm_has_delivered_is_not_sent_again(tmp_path: Path) -> None:
    process = shell(tmp_path, "trap 'echo usr1' USR1; trap 'echo term; exit 0' TERM")
    process.end_after(signal.SIGUSR1, grace_s=2.0, delivered=True)
    assert wait_for(process) == 0
    assert said(tmp_path) == ["on", "term"]


def test_a_script_that_goes_on_after_the_signal_gets_term_then_kill(tmp_path: Path) -> None:
    process = shell(tmp_path, "trap 'echo usr1' USR1; trap 'echo term' TERM")
    began = time.monotonic()
    process.end_after(signal.SIGUSR1, grace_s=2.0, delivered=False)
    assert wait_for(process) == -signal.SIGKILL
    assert time.monotonic() - began >= 2.0
    assert said(tmp_path) == ["on", "usr1", "term"]


def test_a_shorter_grace_that_is_told_later_counts(tmp_path: Path) -> None:
    process = shell(tmp_path, "trap 'echo usr1' USR1; trap 'echo term; exit 0' TERM")
    process.end_after(signal.SIGUSR1, grace_s=600.0, delivered=False)
    process.end_after(signal.SIGUSR1, grace_s=1.0, delivered=False)
    assert wait_for(process) == 0
    assert said(tmp_path) == ["on", "usr1", "term"]


def test_a_script_without_a_handler_gets_term_at_once(tmp_path: Path) -> None:
    process = shell(tmp_path, "trap 'echo term; exit 0' TERM")
    process.end_after(signal.SIGUSR1, grace_s=600.0, delivered=False)
    assert wait_for(process) == 0
    assert said(tmp_path) == ["on", "term"]


@pytest.mark.parametrize(
    ("text", "uses"),
    [
        ("from sbtrain_jobs import join\n", True),
        ("from sbtrain import join\n", True),
        ("import sbtrain as sb\n", True),
        ("def main():\n    import sbtrain_jobs.training.session\n", True),
        ("print 'Python 2'\nfrom sbtrain import (join)\n", True),
        ("import lightning\n", False),
        ("# from sbtrain import join\nprint('import sbtrain_jobs')\n", False),
        ("from sbtrain_perf.timing_log import read_timing_log\n", False),
    ],
)
def test_which_scripts_use_the_training_api(tmp_path: Path, text: str, *, uses: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    assert uses_training_api(str(script)) is uses


def test_what_a_trainer_leaves_behind_is_ended(tmp_path: Path) -> None:
    process = trainer(
        tmp_path,
        "import subprocess, sys;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        "print(child.pid, flush=True)",
    )
    assert wait_for(process) == 0
    child = int((tmp_path / "worker-0.log").read_text())

    def gone() -> bool:
        try:
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        return state == "Z"

    eventually(gone)


def test_slurms_user_signal_does_not_kill_a_trainer_that_has_no_handler(
    tmp_path: Path,
) -> None:
    process = trainer(
        tmp_path,
        "import os, signal; os.kill(os.getpid(), signal.SIGUSR1); print('alive')",
    )
    assert wait_for(process) == 0
    assert (tmp_path / "worker-0.log").read_text() == "alive\n"


def test_ignoring_lasts_no_longer_than_the_start() -> None:
    before = signal.getsignal(signal.SIGUSR2)
    with ignored([signal.SIGUSR2]):
        assert signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGUSR2) == before


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CommandMissingError):
        TrainerProcess(
            ["/no/such/python"],
            rank=0,
            streams=logged(tmp_path),
            environment=os.environ,
            ignored_signals=[],
        )


def write_report(folder: Path, *nodes: tuple[str, str]) -> None:
    StagingReport(
        key="run",
        mode="replicate",
        dataset_bytes=8,
        source_bytes_read=8,
        seconds=0.5,
        sources=(
            StagedSource(source="/s/d.h5", name="d.h5", content="0", size_bytes=8, entries=1),
        ),
        nodes=tuple(
            NodeReport(
                node=node,
                bytes_received=8,
                source_bytes_read=0,
                seconds=0.5,
                peak_memory_bytes=1,
                paths=(path,),
            )
            for node, path in nodes
        ),
    ).write(folder / "stage.json")


def test_every_node_finds_its_own_copy(tmp_path: Path) -> None:
    write_report(tmp_path, ("c1", "/tmp/c1/d.h5"), ("c2", "/tmp/c2/d.h5"))
    plan, folder = example_plan(), AttemptFolder(path=tmp_path)
    assert staged_paths(plan, folder, node=1, node_name="c2") == ("/tmp/c2/d.h5",)
    with pytest.raises(LaunchError, match="node 1 \\(c3\\) is not in the staging report"):
        staged_paths(plan, folder, node=1, node_name="c3")


def test_without_scratch_the_data_is_where_it_was(tmp_path: Path) -> None:
    plan, folder = example_plan(scratch_path=None), AttemptFolder(path=tmp_path)
    assert staged_paths(plan, folder, node=0, node_name="c1") == plan.data.paths
    with pytest.raises(StagingError):
        staged_paths(example_plan(), folder, node=0, node_name="c1")


@pytest.mark.parametrize(
    ("returncode", "words"),
    [
        (3, "ended with exit status 3"),
        (-9, "was ended by SIGKILL"),
        (-63, "was ended by signal 63"),
    ],
)
def test_ends_in_words(returncode: int, words: str) -> None:
    assert how_it_ended(returncode) == words


def test_the_last_lines_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    assert "cannot be read" in last_lines(log)
    log.write_text("")
    assert "empty" in last_lines(log)
    log.write_text("".join(f"line {n}\n" for n in range(10_000)))
    assert last_lines(log).splitlines()[-1] == "    line 9999"
    assert len(last_lines(log).splitlines()) == 8


def test_the_exit_code_of_staging_is_in_its_own_words(tmp_path: Path) -> None:
    unsaid = (137, "staging ended with exit status 137")
    assert why_failed(AttemptFolder(path=tmp_path), returncode=137) == unsaid
    alone = why_failed(AttemptFolder(path=tmp_path), returncode=142)
    assert alone[0] == WorldError.exit_code
    assert "did not meet within 300 s" in alone[1]
    write_failure(tmp_path / "stage.json", SourceError("no such file: /s/d.h5"))
    said = (SourceError.exit_code, "staging ended with exit status 31")
    assert why_failed(AttemptFolder(path=tmp_path), returncode=137) == said
    assert why_failed(AttemptFolder(path=tmp_path), returncode=142) == said
    (tmp_path / "stage-error.json").write_text("{}")
    assert why_failed(AttemptFolder(path=tmp_path), returncode=137) == unsaid

"""What the body over Slurm's commands does without any Slurm: it is light to import, hands
on what it is given, tells missing from refused from silent, and never hangs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from sbtrain.errors import (
    SlurmError,
    SlurmMissingError,
    SlurmRejectedError,
    SlurmTimeoutError,
)
from sbtrain.slurm.client import Submission
from sbtrain.slurm.command_client import CommandsClient
from sbtrain.slurm.refusals import may_have_arrived, slurm_error, spoken
from sbtrain_jobs.errors import CommandFailedError, CommandMissingError, CommandTimeoutError
from sbtrain_jobs.process import run_command

SCRIPT = Submission(script_text="#!/bin/sh\n")


def client_over(
    folder: Path,
    *,
    timeout_s: float = 20.0,
    **commands: str,
) -> CommandsClient:
    """A client whose commands are the given shell lines."""
    for name, lines in commands.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o700)
    return CommandsClient(
        environ={"PATH": f"{folder}:/usr/bin:/bin" if commands else str(folder)},
        query_timeout_s=timeout_s,
        submit_timeout_s=timeout_s,
    )


def test_importing_it_brings_in_nothing_heavy() -> None:
    program = (
        "import sys; before = set(sys.modules); import sbtrain.slurm.command_client; "
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = run_command([sys.executable, "-c", program], timeout_s=60).stdout.split()
    assert "sbtrain.slurm.text_forms" in loaded
    heavy = {"numpy", "asyncio", "h5py", "sklearn", "tensorflow", "mpi4py", "pyslurm"}
    assert not heavy & {name.partition(".")[0] for name in loaded}
    assert "importlib.metadata" not in loaded
    assert "fake_slurm" not in loaded


def test_no_slurm_here(tmp_path: Path) -> None:
    client = client_over(tmp_path)
    calls = (
        client.version,
        client.nodes,
        client.partitions,
        client.jobs,
        lambda: client.submit(SCRIPT),
        lambda: client.history(["1"]),
        lambda: client.end_cause("1"),
    )
    for call in calls:
        with pytest.raises(
            SlurmMissingError, match=r"cannot run (scontrol|squeue|sbatch|sacct)"
        ) as no:
            call()
        assert "sbtrainctl cluster up" in no.value.hint


def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    client = client_over(tmp_path, timeout_s=0.5, scontrol="sleep 60")
    begin = time.monotonic()
    with pytest.raises(SlurmTimeoutError, match="did not answer within"):
        client.partitions()
    assert time.monotonic() - begin < 30


def test_an_id_that_was_printed_counts_even_if_sbatch_goes_on(tmp_path: Path) -> None:
    """With SBATCH_WAIT set, sbatch prints the id and stays until the job has ended."""
    waits = client_over(tmp_path, timeout_s=3.0, sbatch="echo 12; sleep 60")
    assert waits.submit(SCRIPT).job_id == "12"
    fails = client_over(tmp_path, sbatch="echo 13; exit 4")
    assert fails.submit(SCRIPT).job_id == "13"


def test_a_question_that_a_signal_ended_is_asked_once_more(tmp_path: Path) -> None:
    asked = f"echo x >> {tmp_path}/asked; [ $(wc -l < {tmp_path}/asked) = 2 ] || kill $$"
    client = client_over(tmp_path, scontrol=f"{asked}; echo slurm 22.05.8")
    assert client.version().year == 22
    with pytest.raises(SlurmTimeoutError, match="scontrol was ended by SIGTERM"):
        client.partitions()
    assert (tmp_path / "asked").read_text() == "x\n" * 4


def test_a_change_that_a_signal_ended_is_not_repeated(tmp_path: Path) -> None:
    client = client_over(tmp_path, scontrol=f"echo x >> {tmp_path}/asked; kill $$")
    with pytest.raises(SlurmTimeoutError, match="scontrol was ended by SIGTERM"):
        client.requeue("12")
    assert (tmp_path / "asked").read_text() == "x\n"


def test_options_script_and_arguments_are_handed_on_as_they_are(tmp_path: Path) -> None:
    client = client_over(
        tmp_path, sbatch=f'printf "%s|" "$@" > {tmp_path}/argv; pwd -P; echo 12'
    )
    client.submit(
        Submission(
            options=("-J", "a b", ":", "-p", "x"),
            script=Path("/s/train.sh"),
            script_args=("--lr", "0.1", ""),
            token="abcd",
            comment="own $x",
            working_dir=tmp_path,
        )
    )
    assert (tmp_path / "argv").read_text() == (
        "--parsable|-J|a b|--comment=own $x [sbtrain:abcd]|:|-p|x|/s/train.sh|--lr|0.1||"
    )


def test_the_jobs_environment_is_the_users_own(tmp_path: Path) -> None:
    """What makes the commands readable must not leak into the job."""
    client = client_over(
        tmp_path,
        sbatch='echo "12;${SLURM_TIME_FORMAT:-unset}"',
        squeue='echo "${SLURM_TIME_FORMAT}${SQUEUE_FORMAT}" >&2; exit 1',
        scontrol="echo slurm 22.05.1",
    )
    assert client.submit(SCRIPT).cluster == "unset"
    with pytest.raises(SlurmRejectedError, match=r"squeue refused: %s$"):
        client.jobs()


def test_a_refused_search_is_not_taken_for_no_jobs(tmp_path: Path) -> None:
    client = client_over(
        tmp_path,
        scontrol="echo slurm 22.05.8",
        squeue="echo 'slurm_load_jobs error: Access denied' >&2; exit 1",
        sacct="echo 'sacct: error: Access denied' >&2; exit 1",
    )
    with pytest.raises(SlurmRejectedError, match="Access denied"):
        client.jobs_by_id(["12"])
    with pytest.raises(SlurmRejectedError, match="Access denied"):
        client.history(["12"])
    assert client.history([]) == ()
    assert client.jobs_by_id([]) == ()


def failed(stderr: str, stdout: str = "", name: str = "sbatch") -> SlurmError:
    return slurm_error(
        CommandFailedError(
            f"{name} exited with 1", argv=[name], returncode=1, stdout=stdout, stderr=stderr
        )
    )


class TestRefusals:
    @pytest.mark.parametrize(
        ("stderr", "kind", "arrived"),
        [
            (
                "sbatch: error: Batch job submission failed: "
                "Socket timed out on send/recv operation",
                SlurmTimeoutError,
                True,
            ),
            (
                "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
                SlurmTimeoutError,
                False,
            ),
            (
                "scancel: error: Zero Bytes were transmitted or received",
                SlurmTimeoutError,
                True,
            ),
            ("sacct: error: Problem talking to the database: x", SlurmTimeoutError, True),
            (
                "sbatch: error: s_p_parse_file: cannot stat file /etc/slurm/slurm.conf\n"
                "sbatch: fatal: Unable to process configuration file",
                SlurmMissingError,
                True,
            ),
            (
                "sbatch: fatal: Could not establish a configuration source",
                SlurmMissingError,
                True,
            ),
            ("sbatch: error: invalid partition specified: x", SlurmRejectedError, True),
        ],
    )
    def test_what_a_failure_means(
        self, stderr: str, kind: type[SlurmError], arrived: bool
    ) -> None:
        error = failed(stderr)
        assert type(error) is kind
        assert error.hint
        assert error.stderr == stderr
        assert "\n" not in error.message
        assert may_have_arrived(error) is arrived

    def test_slurms_words_stand_on_one_line_without_its_name(self) -> None:
        said = (
            "sbatch: error: policy: at most 3 nodes.\n"
            "sbatch: error: Try -p preempt.\n"
            "sbatch: error: Batch job submission failed: Unspecified error\n"
        )
        assert failed(said).message == (
            "sbatch refused: policy: at most 3 nodes.; Try -p preempt.; "
            "Batch job submission failed: Unspecified error"
        )
        assert spoken("Invalid job id specified for job 9\n") == (
            "Invalid job id specified for job 9"
        )
        assert failed("", "Partition nope not found\n", "scontrol").message == (
            "scontrol refused: Partition nope not found"
        )
        assert failed("").message == "sbatch refused: sbatch exited with 1"

    @pytest.mark.parametrize(
        ("stderr", "hint"),
        [
            ("sbatch: error: invalid partition specified: x", "sinfo -s"),
            ("Invalid job id specified for job 9", "never on this cluster"),
            ("Requested operation is presently disabled for job 9", "--no-requeue"),
            ("allocation failure: Requested node configuration is not available", "no node"),
            ("sbatch: error: something new", "the cluster itself is fine"),
        ],
    )
    def test_the_hint_fits_the_words(self, stderr: str, hint: str) -> None:
        assert hint in failed(stderr).hint

    def test_missing_and_silent_commands(self) -> None:
        missing = slurm_error(CommandMissingError("cannot run sbatch: x", argv=["sbatch"]))
        assert type(missing) is SlurmMissingError
        silent = slurm_error(CommandTimeoutError("no answer", argv=["sbatch"]))
        assert type(silent) is SlurmTimeoutError
        assert may_have_arrived(silent)


def test_only_ids_of_jobs_are_handed_on(tmp_path: Path) -> None:
    client = client_over(tmp_path, scancel=f'echo "$@" > {tmp_path}/argv')
    client.cancel("12_3")
    assert (tmp_path / "argv").read_text() == "12_3\n"
    with pytest.raises(SlurmRejectedError, match="not the id of a job"):
        client.cancel("--me")

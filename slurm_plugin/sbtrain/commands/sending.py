"""From a plan to a job: the job script is printed, shown to Slurm, or submitted.

Whatever goes wrong on the way, neither a job nor a run folder is left behind.
"""

from __future__ import annotations

import dataclasses
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from sbtrain.commands.streams import StdoutError, told_while_slow
from sbtrain.commands.waiting import wait_for_job
from sbtrain.errors import SlurmError, SlurmTimeoutError
from sbtrain.options.argv import given, last_value
from sbtrain.runs.run_list import ListedRun, append_run
from sbtrain.slurm.client import SlurmClient, Submission, Submitted
from sbtrain.slurm.refusals import may_have_arrived
from sbtrain.submission.additions import Additions, additions, with_options
from sbtrain.submission.asked import Asked, waits
from sbtrain.submission.data import check_staging
from sbtrain.submission.job_script import JobScript, job_script
from sbtrain.submission.run_files import remove_run_folder, write_run_folder
from sbtrain_jobs.run_folder import RunFolder
from sbtrain_perf.errors import SbtrainError
from sbtrain_perf.request import Plan

MPI_PLUGIN = "pmix"  # where nothing tells which library the nodes have
_ARRIVES_WITHIN_S = 1.0  # a request that is on its way
_OVER_WITHIN_S = 15.0  # a job that is cancelled


def hand_over(
    client: SlurmClient, asked: Asked, plan: Plan, *, environ: Mapping[str, str]
) -> int:
    """Print the job script, ask Slurm whether it would take it, or submit it."""
    with told_while_slow("looking through the data set"):
        fitting, doubt = check_staging(plan)
    plan = dataclasses.replace(plan, mpi_plugin=plan.mpi_plugin or fitting or MPI_PLUGIN)
    if doubt:
        sys.stderr.write(f"sbtrain: warning: {doubt}\n")
    added = additions(asked, plan)
    plan = with_options(asked, plan, added)
    text = job_script(plan, _parts(asked, plan, added.directives))
    if asked.options.dry_run:
        _tell_additions(added)
        sys.stdout.write(text)
        return 0
    if "SLURM_JOB_ID" in environ:
        sys.stderr.write(
            f"sbtrain: warning: this is inside job {environ['SLURM_JOB_ID']}; the new job "
            "does not end with it\n"
        )
    words = (*asked.sbatch_words, *added.words)
    if given(asked.settings, "test-only"):
        return _test_only(client, words, text)
    return _submit(client, asked, plan, words=words, text=text, environ=environ)


def _tell_additions(added: Additions) -> None:
    for one in added.each:
        sys.stderr.write(f"sbtrain: adds {one.word}: {one.why}\n")
    sys.stderr.write("sbtrain: adds a mark to --comment: by it a lost answer is found again\n")


def _parts(asked: Asked, plan: Plan, directives: Sequence[str]) -> JobScript:
    return JobScript(
        directives=directives,
        user_lines=asked.directives.kept_lines,
        python=sys.executable,
        script_dir=str(asked.script.folder),
        plan_path=str(RunFolder.of(plan).plan),
    )


def _test_only(client: SlurmClient, words: Sequence[str], text: str) -> int:
    said = client.test_only(Submission(options=tuple(words), script_text=text))
    try:
        start = f"at {datetime.fromtimestamp(said.start_time_s).isoformat()}"
    except (ValueError, OverflowError):  # behind jobs without a limit
        start = "later than any date"
    sys.stderr.write(
        f"sbtrain: the job would start {start} on nodes {said.nodes} in partition "
        f"{said.partition}\n"
    )
    for job in said.preempts:
        sys.stderr.write(f"sbtrain: it would preempt job {job}\n")
    return 0


def _submit(
    client: SlurmClient,
    asked: Asked,
    plan: Plan,
    *,
    words: Sequence[str],
    text: str,
    environ: Mapping[str, str],
) -> int:
    _end_as_if_interrupted()
    job_path = write_run_folder(plan, script=asked.script, job_text=text)
    by_stdin = asked.script.from_stdin
    submission = Submission(
        options=tuple(words),
        script=None if by_stdin else job_path,
        script_text=text if by_stdin else None,
        token=plan.run_id,
        comment=last_value(asked.settings, "comment"),
    )
    with told_while_slow("waiting for Slurm to take the job"):
        submitted = _send(client, plan, submission)
    try:
        _announce(asked, plan, submitted, environ=environ)
        if waits(asked.settings, environ):
            ledger = RunFolder.of(plan).ledger
            return wait_for_job(client, submitted.job_id, ledger=ledger)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; job {submitted.job_id} goes on") from None
    return 0


def _end_as_if_interrupted() -> None:
    """A lost connection (HUP) or a TERM leaves no more behind than Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup has it ignored
            signal.signal(number, interrupt)


def _announce(
    asked: Asked, plan: Plan, submitted: Submitted, *, environ: Mapping[str, str]
) -> None:
    """Write the run into the user's list, and say on stdout what sbatch would say."""
    quiet = asked.quiet
    if not quiet:
        _say_as_sbatch(submitted, parsable=given(asked.settings, "parsable"))
    run = ListedRun(
        run_id=plan.run_id,
        job_id=submitted.job_id,
        run_dir=plan.run_dir,
        workload=plan.workload,
        submitted=plan.submitted_at,
        cluster=submitted.cluster,
        submit_dir=str(Path.cwd() / (last_value(asked.settings, "chdir") or "")),
    )
    try:
        append_run(run, environ)
    except SbtrainError as error:
        sys.stderr.write(f"sbtrain: warning: {error.message}; sbtrainctl will not list it\n")
    if not quiet or (quiet == 1 and "error" in submitted.messages):
        sys.stderr.write(submitted.messages)
    if not plan.quiet:
        sys.stderr.write(f"sbtrain: {plan.reason}\nsbtrain: run folder {plan.run_dir}\n")


def _send(client: SlurmClient, plan: Plan, submission: Submission) -> Submitted:
    """Submit; whatever goes wrong, neither a job nor a run folder is left behind."""
    try:
        return client.submit(submission)
    except KeyboardInterrupt:
        _withdraw(client, plan)
        remove_run_folder(plan)
        raise
    except SlurmTimeoutError as error:
        if not _may_be_queued(error):
            remove_run_folder(plan)
        raise
    except SbtrainError:
        remove_run_folder(plan)
        raise


def _may_be_queued(error: SbtrainError) -> bool:
    return isinstance(error, SlurmError) and may_have_arrived(error)


def _withdraw(client: SlurmClient, plan: Plan) -> None:
    """End the job that an interrupted submission may have become. One that runs already goes
    on writing into its folder until it is over."""
    cancelled: set[str] = set()
    began_s = time.monotonic()
    try:
        while True:
            found = client.find_by_token(plan.run_id)
            for job in found:
                if job.submission_id not in cancelled:
                    client.cancel(job.submission_id)
                    cancelled.add(job.submission_id)
            passed_s = time.monotonic() - began_s
            over = all(job.over for job in found) or passed_s > _OVER_WITHIN_S
            if over and passed_s > _ARRIVES_WITHIN_S:
                return
            time.sleep(0.25)
    except SbtrainError as error:
        raise KeyboardInterrupt(
            f"interrupted; {error.message}: whether there is a job, the comments tell that "
            f"'squeue --me -O JobID,Comment:200' shows: [sbtrain:{plan.run_id}]"
        ) from error


def _say_as_sbatch(submitted: Submitted, *, parsable: bool) -> None:
    """The job is there, whether or not stdout takes its id: that must not look like failure,
    or the caller submits again."""
    try:
        sys.stdout.write(_words(submitted, parsable=parsable))
        sys.stdout.flush()
    except StdoutError as error:
        sys.stderr.write(
            f"sbtrain: warning: cannot write to standard output: {error.strerror}; "
            f"it is job {submitted.job_id}\n"
        )


def _words(submitted: Submitted, *, parsable: bool) -> str:
    """sbatch's own words."""
    if parsable:
        cluster = f";{submitted.cluster}" if submitted.cluster else ""
        return f"{submitted.job_id}{cluster}\n"
    cluster = f" on cluster {submitted.cluster}" if submitted.cluster else ""
    return f"Submitted batch job {submitted.job_id}{cluster}\n"

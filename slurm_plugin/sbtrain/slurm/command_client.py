"""The body of SlurmClient over Slurm's own commands, every one with an end in time.

Their text is read, which is the same in Slurm 22.05, 24.11 and 26.05. Their JSON has another
shape in each of them, scontrol of 22.05 writes none, its squeue --json ignores every filter,
and a site's Slurm may have been built without it.

Imports the standard library alone, and no asyncio: this sits in front of sbatch.
"""

from __future__ import annotations

import math
import os
import pwd
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sbtrain.errors import (
    SlurmMissingError,
    SlurmRejectedError,
    SlurmTimeoutError,
    SlurmUnparsableError,
)
from sbtrain.slurm import text_forms
from sbtrain.slurm.client import (
    HistoryRow,
    JobInfo,
    JobStart,
    NoAccounting,
    NodeInfo,
    PartitionInfo,
    QueuedJob,
    SlurmVersion,
    StartEstimate,
    Submission,
    Submitted,
)
from sbtrain.slurm.cluster_config import ClusterConfig, read_config
from sbtrain.slurm.ending import awaits_success_of, end_cause_of, way_back_of
from sbtrain.slurm.queue_form import read_queue
from sbtrain.slurm.refusals import slurm_error
from sbtrain.slurm.token import LostAnswers, Patience, marked_comment, token_of
from sbtrain.slurm.user_limits import (
    ACCOUNT_FIELDS,
    NO_LIMITS,
    QOS_FIELDS,
    USER_FIELDS,
    UserLimits,
    read_limits,
)
from sbtrain_jobs.ending.job_control import EndCause, WayBack
from sbtrain_jobs.errors import CommandError
from sbtrain_jobs.hostlist import compress
from sbtrain_jobs.process import CommandResult, run_command

_JOB_ID = re.compile(r"(\d+)(?:_\d+|_\[[\d,:%-]+\]|\+\d+)?", re.ASCII)
_ACCOUNTING_S = 4.0  # sacctmgr itself waits for a silent slurmdbd for a long time
# A user's defaults for the commands' output would change what is read here.
_USER_DEFAULTS = ("SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_", "SCONTROL_")


class CommandsClient:
    """SlurmClient over sbatch, squeue, scontrol, scancel, sinfo and sacct.

    Args:
        environ: environment of the commands; None: this process's own.
        query_timeout_s, submit_timeout_s: when a command is given up and killed. Slurm's
            own clients give up after 10 to 30 s unless the site's MessageTimeout is longer.
        limit_warning_s: a running job this close to its limit is ending for that reason.
            Slurm sends the signal of --signal=..@S up to 60 s early, so give S + 60 at least.
        patience: how a submission whose answer was lost is dealt with.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        query_timeout_s: float = 60.0,
        submit_timeout_s: float = 180.0,
        limit_warning_s: float = 180.0,
        patience: Patience | None = None,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._query_environ = {
            name: value
            for name, value in self._environ.items()
            if not name.startswith(_USER_DEFAULTS)
        } | {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
        self._query_timeout_s = query_timeout_s
        self._submit_timeout_s = submit_timeout_s
        self._limit_warning_s = limit_warning_s
        self._lost_answers = LostAnswers(
            self, send=self._send, patience=patience, now=now, sleep=sleep
        )
        self._now = now
        self._known_version: SlurmVersion | None = None

    def version(self) -> SlurmVersion:
        if self._known_version is None:
            answer = self._ask(["scontrol", "--version"])
            self._known_version = text_forms.read_version(answer.stdout)
        return self._known_version

    def nodes(self) -> tuple[NodeInfo, ...]:
        argv = ["scontrol", "--all", "show", "nodes"]
        return text_forms.read_node_blocks(self._ask(argv).stdout)

    def partitions(self) -> tuple[PartitionInfo, ...]:
        argv = ["scontrol", "--all", "-o", "show", "partition"]
        return text_forms.read_partitions(self._ask(argv).stdout)

    def config(self) -> ClusterConfig:
        return read_config(self._ask(["scontrol", "show", "config"]).stdout)

    def limits(self, cluster: str) -> UserLimits:
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:  # the accounting knows users by name
            return NO_LIMITS
        shown = ["sacctmgr", "--noheader", "--parsable2", "show"]
        of = [f"cluster={cluster.lower()}"] if cluster else []
        return read_limits(
            *(
                self._query([*shown, *words], timeout_s=_ACCOUNTING_S).stdout
                for words in (
                    ["user", user, "withassoc", *of, f"format={','.join(USER_FIELDS)}"],
                    ["assoc", "user=", *of, f"format={','.join(ACCOUNT_FIELDS)}"],
                    ["qos", f"format={','.join(QOS_FIELDS)}"],
                )
            )
        )

    def jobs(self) -> tuple[JobInfo, ...]:
        return self._squeue("--me")

    def queue(self) -> tuple[QueuedJob, ...]:
        return read_queue(self._ask(["scontrol", "--all", "show", "jobs"]).stdout)

    def jobs_by_id(self, job_ids: Sequence[str]) -> tuple[JobInfo, ...]:
        bases = sorted({_base(job_id) for job_id in job_ids}, key=int)
        if not bases:
            return ()
        try:
            found = self._squeue(f"--jobs={','.join(bases)}")
        except SlurmRejectedError as error:
            if "Invalid job id" in error.stderr:
                return ()
            raise
        return tuple(job for job in found if any(job.answers_to(job_id) for job_id in job_ids))

    def submit(self, submission: Submission) -> Submitted:
        return self._lost_answers.submit(submission)

    def find_by_token(self, token: str) -> tuple[JobInfo, ...]:
        return tuple(job for job in self.jobs() if token_of(job) == token)

    def requeue(self, job_id: str) -> None:
        self._query(["scontrol", "requeue", _checked(job_id)])

    def cancel(self, job_id: str) -> None:
        self._query(["scancel", _checked(job_id)])

    def history(self, job_ids: Sequence[str]) -> tuple[HistoryRow, ...] | NoAccounting:
        if not job_ids:
            return ()
        separator = _separator()
        argv = [
            *("sacct", "--allocations", "--duplicates", "--noheader", "--noconvert"),
            *("--parsable", f"--delimiter={separator}"),
            f"--format={','.join(text_forms.SACCT_FIELDS)}",
            f"--jobs={','.join(sorted({_base(job_id) for job_id in job_ids}, key=int))}",
        ]
        try:
            answer = self._ask(argv)
        except SlurmRejectedError as error:
            if "accounting storage is disabled" in error.stderr:
                return NoAccounting(reason="Slurm accounting storage is disabled")
            raise
        rows = text_forms.read_sacct(answer.stdout, separator=separator)
        asked = set(job_ids)
        return tuple(
            sorted(
                (
                    row
                    for row in rows
                    if asked & {row.job_id, str(row.number), _base(row.job_id)}
                ),
                key=lambda row: (row.number, row.submit_time_s or 0, row.start_time_s or 0),
            )
        )

    def test_only(self, submission: Submission) -> StartEstimate:
        argv = ["sbatch", "--test-only", *_sbatch_words(submission)]
        answer = self._query(argv, submission=submission)
        return text_forms.read_start_estimate(answer.stderr)

    def end_cause(self, job_id: str, attempt: JobStart | None = None) -> EndCause:
        return end_cause_of(
            self._shown(job_id),
            attempt,
            now_s=self._now(),
            limit_warning_s=self._limit_warning_s,
            any_lost=self._any_lost,
            cancels=self._cancels,
        )

    def way_back(self) -> WayBack:
        return way_back_of(self.version())

    def forbid_requeue(self, job_id: str) -> None:
        self._query(["scontrol", "update", f"JobId={_checked(job_id)}", "Requeue=0"])

    def awaited(self, job_id: str) -> bool:
        waits = self._ask(["squeue", "--me", "--noheader", "--states=PENDING", "--format=%E"])
        return awaits_success_of(_base(job_id), waits.stdout)

    def _any_lost(self, names: tuple[str, ...]) -> bool:
        argv = ["scontrol", "--all", "show", "nodes", compress(names)]
        nodes = text_forms.read_node_blocks(self._ask(argv).stdout)
        return any(node.lost for node in nodes)

    def _cancels(self, partition: str) -> bool:
        argv = ["scontrol", "--all", "-o", "show", "partition", partition]
        found = text_forms.read_partitions(self._ask(argv).stdout)
        return any("CANCEL" in one.preempt_mode and not one.grace_s for one in found)

    def _shown(self, job_id: str) -> JobInfo:
        """One job by scontrol: the cheapest question to slurmctld, on every version.

        Raises:
            SlurmRejectedError: Slurm does not know it.
        """
        answer = self._ask(["scontrol", "--all", "show", "job", _checked(job_id)])
        return text_forms.read_job_block(answer.stdout)

    def _squeue(self, *filters: str) -> tuple[JobInfo, ...]:
        separator = _separator()
        fields = ",".join(f"{field}:{separator}" for field in text_forms.SQUEUE_FIELDS)
        argv = [
            *("squeue", "--all", "--states=all", *filters),
            *("--noheader", "--noconvert", f"--Format={fields}"),
        ]
        return text_forms.read_squeue(self._ask(argv).stdout, separator=separator)

    def _send(self, submission: Submission) -> Submitted:
        argv = ["sbatch", "--parsable", *_sbatch_words(submission)]
        self._find_configuration()
        try:
            answer = run_command(
                argv,
                timeout_s=self._submit_timeout_s,
                stdin=submission.script_text,
                env=self._environ,
                cwd=submission.working_dir,
            )
        except CommandError as error:
            # With --wait in its environment, sbatch says the id long before it ends.
            early = text_forms.read_submitted(error.stdout, error.stderr)
            if early is not None:
                return early
            raise slurm_error(error) from error
        submitted = text_forms.read_submitted(answer.stdout, answer.stderr)
        if submitted is None:
            raise SlurmUnparsableError(
                f"sbatch --parsable printed {answer.stdout.strip()[:80]!r}, expected a job id",
                hint="the job may have been accepted: see 'squeue --me'",
                argv=argv,
                stdout=answer.stdout,
                stderr=answer.stderr,
            )
        return submitted

    def _ask(self, argv: Sequence[str]) -> CommandResult:
        """Run a command that changes nothing; once more if a signal ended it. Slurm sends
        its signals to every process of a job, and so to a question asked inside it."""
        try:
            return self._query(argv)
        except SlurmTimeoutError as error:
            if error.returncode is None or error.returncode >= 0:
                raise
            return self._query(argv)

    def _query(
        self,
        argv: Sequence[str],
        *,
        submission: Submission | None = None,
        timeout_s: float = math.inf,
    ) -> CommandResult:
        """Run a command whose text is read here; its output does not depend on the user's
        settings."""
        self._find_configuration()
        try:
            return run_command(
                argv,
                timeout_s=min(timeout_s, self._query_timeout_s),
                stdin=submission.script_text if submission else None,
                env=self._query_environ,
                cwd=submission.working_dir if submission else None,
            )
        except CommandError as error:
            raise slurm_error(error) from error

    def _find_configuration(self) -> None:
        """Slurm's commands look for a missing configuration file for a whole minute."""
        conf = self._environ.get("SLURM_CONF")
        if conf and not Path(conf).exists():
            raise SlurmMissingError(
                f"there is no file {conf}, where SLURM_CONF says that Slurm's configuration is",
                hint="correct or unset SLURM_CONF; a private cluster may have been taken down",
            )


def _sbatch_words(submission: Submission) -> list[str]:
    """Options, the marked comment, and the script. Options of a het job's later parts stand
    behind a ':', so the comment goes before the first one."""
    options = list(submission.options)
    end = options.index(":") if ":" in options else len(options)
    comment = marked_comment(submission)
    if comment:
        options.insert(end, f"--comment={comment}")
    if submission.script is None:
        return options
    return [*options, str(submission.script), *submission.script_args]


def _checked(job_id: str) -> str:
    """The id itself, if it is one and not an option."""
    if not _JOB_ID.fullmatch(job_id):
        raise SlurmRejectedError(
            f"{job_id!r} is not the id of a job", hint="ids look like 12, 12_3 or 12+1"
        )
    return job_id


def _base(job_id: str) -> str:
    return re.split(r"[_+]", _checked(job_id), maxsplit=1)[0]


def _separator() -> str:
    """Nobody's job is named like this."""
    return f"~{secrets.token_hex(6)}~"

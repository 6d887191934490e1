"""What a failed Slurm command means: not there, not answering, or refused."""

from __future__ import annotations

import re
import signal

from sbtrain.errors import (
    SlurmError,
    SlurmMissingError,
    SlurmRejectedError,
    SlurmTimeoutError,
)
from sbtrain_jobs.errors import CommandError, CommandMissingError, CommandTimeoutError

_NO_CONFIGURATION = re.compile(
    r"Unable to process configuration file|Could not establish a configuration source"
    r"|cannot stat file|Unable to open config",
    re.IGNORECASE,
)
_NOT_REACHED = re.compile(
    r"connect failure|Connection refused|failed to open persistent connection"
    r"|No route to host|Network is unreachable",
    re.IGNORECASE,
)
_NO_ANSWER = re.compile(
    r"Unable to contact slurm controller|timed out|Zero Bytes were transmitted or received"
    r"|Transport endpoint is not connected|Connection reset by peer"
    r"|Communication (?:connection|shutdown) failure|Message (?:send|receive) failure"
    r"|Problem talking to the database|backup controller in standby"
    r"|temporarily unable to accept job",
    re.IGNORECASE,
)
_PREFIX = re.compile(
    r"^(?:\w+: )?(?:error|fatal): |^(?:slurm_load_\w+|scontrol_\w+) error: "
    r"|^allocation failure: |^\w+: "
)

_OF_PARTITION = re.compile(
    r"partition|group not permitted|Access/permission denied|accounting/QOS policy"
    r"|Invalid qos|node configuration is not available|Node count|time limit is invalid"
    r"|more processors than permitted|Memory required by task",
    re.IGNORECASE,
)
_OF_MEMORY = re.compile(r"Memory specification can not be|Memory required by task", re.I)

_HINTS = (
    (r"partition", "'sinfo -s' lists the partitions you may use"),
    (r"Invalid job id", "it has ended some minutes ago, or it was never on this cluster"),
    (r"account", "'sacctmgr show assoc user=$USER' lists your accounts"),
    (r"node configuration is not available", "no node has all that was asked for together"),
    (r"pending execution", "the job waits already; it will start when its turn comes"),
    (r"presently disabled", "the job may not be requeued: it was submitted with --no-requeue"),
    (r"permission|denied|authori[sz]ed", "the job belongs to someone else, or root alone may"),
    (r"munge|authentication", "the host's munge daemon does not answer or has another key"),
    (
        r"does not look like a batch script",
        "the script must start with a line such as #!/bin/sh",
    ),
)


def slurm_error(error: CommandError) -> SlurmError:
    """The error of a command as an error of Slurm, with Slurm's own words."""
    if isinstance(error, CommandMissingError):
        return _told(error, SlurmMissingError, error.message, hint=error.hint)
    if isinstance(error, CommandTimeoutError):
        return _told(error, SlurmTimeoutError, error.message)
    name = error.argv[0]
    if error.returncode is not None and error.returncode < 0:
        ended_by = signal.Signals(-error.returncode).name
        return _told(
            error, SlurmTimeoutError, f"{name} was ended by {ended_by} before it answered"
        )
    words = spoken(error.stderr) or spoken(error.stdout) or error.message
    if _NO_CONFIGURATION.search(error.stderr):
        hint = "log in to a node of the cluster, or set SLURM_CONF to its slurm.conf"
        message = f"{name} finds no configuration of Slurm: {words}"
        return _told(error, SlurmMissingError, message, hint=hint)
    if _NOT_REACHED.search(error.stderr) or _NO_ANSWER.search(error.stderr):
        return _told(error, SlurmTimeoutError, f"Slurm does not answer {name}: {words}")
    hint = next((hint for sign, hint in _HINTS if re.search(sign, words, re.IGNORECASE)), "")
    if name == "sbatch" and "Access/permission denied" in words:
        hint = "the partition is not open to you, or to jobs without a --reservation"
    return _told(error, SlurmRejectedError, f"{name} refused: {words}", hint=hint)


def _told(
    error: CommandError, kind: type[SlurmError], message: str, *, hint: str = ""
) -> SlurmError:
    return kind(
        message,
        hint=hint,
        argv=error.argv,
        returncode=error.returncode,
        stdout=error.stdout,
        stderr=error.stderr,
    )


def may_have_arrived(error: SlurmError) -> bool:
    """Whether a request may have reached Slurm although its answer did not come back."""
    return not _NOT_REACHED.search(error.stderr)


def of_partition(error: SlurmError) -> bool:
    """Whether another partition may take the job that this one does not."""
    return bool(_OF_PARTITION.search(error.message))


def of_memory(message: str) -> bool:
    """Whether only nodes with more memory may take the job."""
    return bool(_OF_MEMORY.search(message))


def spoken(text: str) -> str:
    """What a command wrote, on one line and without its own name before each line."""
    lines = (_PREFIX.sub("", line.strip()) for line in text.splitlines())
    return "; ".join(line for line in lines if line)

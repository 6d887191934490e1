"""A requeue of its own job that a trainer asks Slurm for, as Lightning and submitit do when
they have saved: it goes to the supervisor, which ends the attempt and requeues the job once.

    python -P -m sbtrain_jobs.node_agent.own_requeue requeue JOB
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence

from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.run_folder import AttemptFolder
from sbtrain_jobs.wire.messages import Hello, Requeue, from_line
from sbtrain_jobs.wire.reach import send_message
from sbtrain_staging.publish import publish_bytes

NAME = "scontrol"
ANSWER_WITHIN_S = 20.0
# All but a requeue goes to the scontrol that is next on PATH, without a Python in between.
_COMMAND = """\
#!/bin/sh
own={own}
path=:$PATH:
case $path in *:"$own":*) path=${{path%%:"$own":*}}:${{path#*:"$own":}} ;; esac
path=${{path#:}}
PATH=${{path%:}}
export PATH
case $1 in requeue) exec {python} -P -m {module} "$@" ;; esac
exec {name} "$@"
"""


def write_command(folder: AttemptFolder, *, python: str) -> None:
    """The scontrol that trainers find first.

    Raises:
        LaunchError: the run folder takes no file.
    """
    text = _COMMAND.format(
        own=shlex.quote(str(folder.commands)),
        python=shlex.quote(python),
        module=__name__,
        name=NAME,
    )
    path = folder.commands / NAME
    try:
        folder.commands.mkdir(mode=0o700, exist_ok=True)
        publish_bytes(path, text.encode())
        path.chmod(0o700)
    except OSError as error:
        raise LaunchError(f"cannot write {path}: {error.strerror}") from error


def command_path(folder: AttemptFolder, environ: Mapping[str, str]) -> dict[str, str]:
    """A trainer's PATH. environ: the job's."""
    return {"PATH": os.pathsep.join((str(folder.commands), environ.get("PATH", os.defpath)))}


def is_own(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether these words of scontrol requeue the run's job, and nothing else."""
    own = {environ.get("SBTRAIN_JOB_ID", "")}
    if "SLURM_ARRAY_TASK_ID" in environ:
        own.add(f"{environ.get('SLURM_ARRAY_JOB_ID')}_{environ['SLURM_ARRAY_TASK_ID']}")
    return len(words) == 2 and words[0] == "requeue" and words[1] in own - {""}


def taken(environ: Mapping[str, str]) -> bool:
    """Whether the supervisor sees to the requeue; not where it cannot be asked."""
    try:
        host, _, port = environ["SBTRAIN_CONTROL"].rpartition(":")
        rank = int(environ["SBTRAIN_RANK"])
        hello = Hello(
            who="asker",
            token=environ["SBTRAIN_TOKEN"],
            node=int(environ["SBTRAIN_NODE"]),
            node_name=socket.gethostname(),
            rank=rank,
        )
        address = (host.strip("[]"), int(port))
        with socket.create_connection(address, timeout=ANSWER_WITHIN_S) as stream:
            send_message(stream, hello)
            send_message(stream, Requeue(rank=rank))
            with stream.makefile("rb") as lines:
                answer = from_line(lines.readline())
        return isinstance(answer, Requeue) and answer.taken
    except (KeyError, OSError, ValueError):
        return False


def main(words: list[str]) -> int:
    if not (is_own(words, os.environ) and taken(os.environ)):
        os.execvp(NAME, (NAME, *words))  # noqa: S606
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

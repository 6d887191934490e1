"""The body of SlurmClient that asks pyslurm what it can tell, and the commands all else.

pyslurm tells of nodes, partitions and the queue. Of single jobs it has no question that
slurmctld would answer in part, and it submits otherwise than sbatch does. It is asked where the
user names it, it is installed beside sbtrain, and it is made for the release of Slurm that is
here; and by a child, so that what ends a process with libslurm in it ends nobody else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from sbtrain.slurm import text_forms
from sbtrain.slurm.client import NodeInfo, PartitionInfo, QueuedJob
from sbtrain.slurm.command_client import CommandsClient
from sbtrain.slurm.queue_form import queue_of
from sbtrain_jobs.process import run_command
from sbtrain_perf.errors import SbtrainError

T = TypeVar("T")
Row = Mapping[str, str]

CHOICE = "SBTRAIN_SLURM"  # the user's word: pyslurm
_CHILD = (sys.executable, "-E", "-P", str(Path(__file__).with_name("pyslurm_child.py")))
_WITHIN_S = 15.0  # libslurm gives a silent slurmctld up after 10 s


def client_for(
    environ: Mapping[str, str], *, own: Mapping[str, str], query_timeout_s: float
) -> CommandsClient:
    """With pyslurm where the user names it and it is installed.

    Args:
        environ: names the user's choice.
        own: environment of Slurm's commands.
    """
    from importlib.util import find_spec

    chosen = environ.get(CHOICE) == "pyslurm" and find_spec("pyslurm") is not None
    kind = PyslurmClient if chosen else CommandsClient
    return kind(environ=own, query_timeout_s=query_timeout_s)


class _Said(dict[str, str]):
    """A row of the child: a key that it never says is no empty one."""

    def get(self, key: str, default: object = None) -> str:
        return self[key]


class PyslurmClient(CommandsClient):
    """Once pyslurm has failed it is not asked again.

    Attributes:
        child: the program that asks pyslurm, and its arguments.
        given_up: why pyslurm is not asked any more; "" while it is.
    """

    child: tuple[str, ...] = _CHILD
    given_up: str = ""

    def nodes(self) -> tuple[NodeInfo, ...]:
        return self._told("nodes", text_forms.nodes_of, super().nodes)

    def partitions(self) -> tuple[PartitionInfo, ...]:
        return self._told("partitions", text_forms.partitions_of, super().partitions)

    def queue(self) -> tuple[QueuedJob, ...]:
        return self._told("queue", queue_of, super().queue)

    def _told(
        self, what: str, read: Callable[[Iterable[Row]], T], by_commands: Callable[[], T]
    ) -> T:
        if not self.given_up:
            try:
                return read(self._rows(what))
            except (SbtrainError, ValueError, TypeError, KeyError, AttributeError) as error:
                self.given_up = str(error) or type(error).__name__
        return by_commands()

    def _rows(self, what: str) -> list[_Said]:
        self._find_configuration()
        version = self.version()
        asked = {"ask": what, "release": [version.year, version.month]}
        answer = run_command(
            self.child, timeout_s=_WITHIN_S, stdin=json.dumps(asked), env=self._query_environ
        )
        rows = json.loads(answer.stdout)
        if not isinstance(rows, list):
            raise ValueError(f"pyslurm's child wrote {answer.stdout[:80]!r}")
        return [_Said(row) for row in rows]

"""How long a job would wait, by partition, how many nodes would start at once, and whose
running jobs it would push aside.

Slurm is asked by sbatch --test-only about the best row of each partition; where that would
wait, about half as many nodes, and half again. Slurm spends a job id on each question, so
few are put, and none where the user has fixed partition and nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from sbtrain.errors import SlurmError, SlurmMissingError, SlurmRejectedError
from sbtrain.options.argv import Setting, given, last_value
from sbtrain.slurm.client import Submission
from sbtrain.submission.asked import GPU_OPTIONS
from sbtrain.submission.job_script import WRITTEN
from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.hostlist import expand
from sbtrain_perf.request import slurm_partition

if TYPE_CHECKING:
    from sbtrain.slurm.client import PartitionInfo, SlurmClient
    from sbtrain.submission.asked import Asked
    from sbtrain_perf.decision import Row

MOST_PARTITIONS = 6
MOST_HALVINGS = 4
_NO_PREEMPTION = {"OFF", "GANG", "WITHIN", ""}
AT_ONCE_S = 60.0  # a wait of the scheduler's own making


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The partitions that Slurm has; none where no Slurm is. silence: why a Slurm that is
    there did not tell."""

    partitions: tuple[PartitionInfo, ...] = ()
    silence: str = ""


def ask_partitions(client: SlurmClient) -> Known:
    try:
        return Known(partitions=client.partitions())
    except SlurmMissingError:
        return Known()
    except SlurmError as error:
        return Known(silence=error.message)


def left_by_exclude(
    settings: Sequence[Setting], partitions: Sequence[PartitionInfo]
) -> dict[str, int]:
    """How many nodes of each partition --exclude leaves, where it takes any."""
    excluded = _nodes(last_value(settings, "exclude") or "")
    return {
        one.name: len(_nodes(one.nodes) - excluded)
        for one in partitions
        if _nodes(one.nodes) & excluded
    }


@cache
def _nodes(text: str) -> frozenset[str]:
    try:
        return frozenset(expand(text))
    except LaunchError:
        return frozenset()


def pushing_aside(partitions: Sequence[PartitionInfo]) -> frozenset[str]:
    """Names of partitions whose jobs Slurm lets take nodes from running jobs of another one:
    of a higher tier, on some of the nodes of one that may be preempted."""
    weak = [one for one in partitions if set(one.preempt_mode.split(",")) - _NO_PREEMPTION]
    return frozenset(
        one.name
        for one in partitions
        if any(
            one.priority_tier > other.priority_tier and _nodes(one.nodes) & _nodes(other.nodes)
            for other in weak
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """seconds: the wait in each partition that was asked about. at_once: where that is long,
    nodes that would start now. refused: partitions in which Slurm would never start the
    job, with its reason. pushing: partitions in which it would start by pushing running jobs
    aside. silence: why a Slurm that is there did not tell.

    All are empty where no Slurm is, and where the site file is that of another cluster."""

    seconds: dict[str, float] = field(default_factory=dict)
    at_once: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    pushing: set[str] = field(default_factory=set)
    silence: str = ""


def queue_waits(
    asked: Asked,
    rows: Sequence[Row],
    client: SlurmClient,
    *,
    known: Known,
    gres: Mapping[str, str] | None = None,
    now: Callable[[], float] = time.time,
) -> Waits:
    """Ask Slurm about the first row of each of the first partitions; rows come best first.

    gres: what the job asks for in partitions of several types of GPU.
    """
    best: dict[str, Row] = {}
    for row in rows:
        if row.prediction is not None:
            best.setdefault(row.partition, row)
    waits = Waits()
    names = {partition.name for partition in known.partitions}
    if not names & {slurm_partition(name) for name in best}:
        return Waits(silence=known.silence)
    try:
        for name, row in list(best.items())[:MOST_PARTITIONS]:
            if slurm_partition(name) not in names:
                waits.refused[name] = "Slurm has no such partition"
                continue
            try:
                _ask(asked, row, client, waits, now, (gres or {}).get(name, ""))
            except SlurmRejectedError as error:
                waits.refused[name] = error.message
    except SlurmMissingError:
        return Waits()
    except SlurmError as error:
        return Waits(silence=error.message)
    return waits


def _ask(
    asked: Asked,
    row: Row,
    client: SlurmClient,
    waits: Waits,
    now: Callable[[], float],
    gres: str,
) -> None:
    def wait_s(nodes: int) -> float:
        question = _question(asked, slurm_partition(row.partition), nodes, gres)
        said = client.test_only(question)
        if said.preempts:
            waits.pushing.add(row.partition)
        return max(said.start_time_s - now(), 0.0)

    nodes, least = row.nodes, asked.request.nodes.low
    waits.seconds[row.partition] = longest_s = wait_s(nodes)
    for _ in range(MOST_HALVINGS):
        if longest_s <= AT_ONCE_S or nodes // 2 < least:
            return
        nodes //= 2
        if wait_s(nodes) <= AT_ONCE_S:
            waits.at_once[row.partition] = nodes
            return


def _question(asked: Asked, partition: str, nodes: int, gres: str) -> Submission:
    """A job of that size with all that the user asked for, and no work in it."""
    lines = ("#!/bin/sh", WRITTEN, *asked.directives.kept_lines, "exit")
    return Submission(
        options=(
            *asked.sbatch_words,
            f"--partition={partition}",
            f"--nodes={nodes}",
            "--exclusive",
            *([f"--gres={gres}"] if gres and not given(asked.settings, *GPU_OPTIONS) else ()),
        ),
        script_text="\n".join(lines) + "\n",
    )

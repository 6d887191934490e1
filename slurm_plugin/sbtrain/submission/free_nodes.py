"""When a number of nodes will be free, reckoned from the queue.

As Slurm's backfill scheduler does, of a queue as `scontrol show jobs` tells it: running jobs
hold their nodes until their limits, waiting ones get theirs in the order of tier and priority,
and the newcomer comes last, or at once where it is through before a waiting job needs the
node. A node with any job on it counts as taken.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from sbtrain.sites.tiers import may_be_pushed
from sbtrain.slurm.client import PartitionInfo, QueuedJob
from sbtrain.slurm.node_kinds import names_in

MOST_CLAIMS = 500  # of waiting jobs, as many as Slurm's scheduler looks at in one round
MOST_MOMENTS = 400  # at which nodes come free, of which some are left out where there are more
# Where a job says so, though nodes seem to be free, what is known of them is old.
_NO_NODES = {"Resources", "ReqNodeNotAvail", "Nodes_required_for_job_are_DOWN"}

_Times = NDArray[np.float64]


class FreeNodes:
    """Times of one cluster's nodes; all are seconds since the epoch.

    Args:
        unusable: host list of nodes that run no jobs now.
    """

    def __init__(
        self,
        partitions: Sequence[PartitionInfo],
        queue: Sequence[QueuedJob],
        *,
        unusable: str = "",
        now_s: float,
    ) -> None:
        self._now_s = now_s
        self._partitions = {one.name: one for one in partitions}
        names = dict.fromkeys(name for one in partitions for name in names_in(one.nodes))
        self._place = {name: place for place, name in enumerate(names)}
        self._unusable = unusable
        self._running = [job for job in queue if job.nodes]
        self._waiting = [job for job in queue if job.in_line and self._best_of(job)]
        self._held: dict[int, _Times] = {}
        self._claims: dict[int, tuple[_Times, _Times]] = {}

    def wait_s(
        self,
        partition: str,
        nodes: int,
        *,
        among: Collection[str],
        limit_s: float | None,
        with_all: Collection[str] = (),
    ) -> float | None:
        """How long a job of so many nodes would wait; None where nobody can say.

        Args:
            among: nodes that it may take.
            limit_s: its time limit; None: it has none.
            with_all: nodes that it must have.
        """
        places, needed = self._places(among), self._places(with_all)
        tier = self._partitions[partition].priority_tier
        comes_free_s = np.concatenate([self._held_until(tier), self._claimed(tier)[1]])
        moments = np.unique(np.maximum(comes_free_s[np.isfinite(comes_free_s)], self._now_s))
        for moment in moments[:: math.ceil(len(moments) / MOST_MOMENTS) or 1]:
            free = self._free_at(float(moment), tier, limit_s)
            if free[places].sum() >= nodes and free[needed].all():
                return float(moment - self._now_s)
        return None

    def open_now(self, partition: str, *, among: Collection[str], limit_s: float | None) -> int:
        """How many nodes a job could take at once."""
        tier = self._partitions[partition].priority_tier
        return int(self._free_at(self._now_s, tier, limit_s)[self._places(among)].sum())

    @property
    def doubtful(self) -> bool:
        """Slurm says of a job that it waits for nodes, where there seem to be enough."""
        return any(
            job.node_count
            <= (self._held_until(best.priority_tier)[places] <= self._now_s).sum()
            for job in self._waiting
            if job.reason in _NO_NODES and (best := self._best_of(job))
            for places in [self._places(names_in(best.nodes))]
        )

    def _places(self, names: Collection[str]) -> NDArray[np.intp]:
        found = [self._place[name] for name in names if name in self._place]
        return np.array(found, dtype=np.intp)

    def _best_of(self, job: QueuedJob) -> PartitionInfo | None:
        """Of the partitions that a waiting job names, the one that goes first."""
        named = [self._partitions.get(name) for name in job.partition.split(",")]
        known = [one for one in named if one is not None]
        return max(known, key=lambda one: one.priority_tier, default=None)

    def _held_until(self, tier: int) -> _Times:
        """By running jobs that do not make way for one of this tier."""
        if tier not in self._held:
            until_s = np.zeros(len(self._place))
            until_s[self._places(names_in(self._unusable))] = math.inf
            for job in self._running:
                owner = self._partitions.get(job.partition)
                if owner and may_be_pushed(owner) and owner.priority_tier < tier:
                    continue
                places = self._places(names_in(job.nodes))
                ends_s = math.inf if job.ends_s is None else job.ends_s
                until_s[places] = np.maximum(until_s[places], ends_s)
            self._held[tier] = until_s
        return self._held[tier]

    def _claimed(self, tier: int) -> tuple[_Times, _Times]:
        """From when and until when waiting jobs of this tier or a higher one have each node."""
        if tier not in self._claims:
            from_s, until_s = np.full(len(self._place), math.inf), np.zeros(len(self._place))
            for job, partition in self._in_order(tier):
                places = self._places(names_in(partition.nodes))
                count = min(job.node_count * job.tasks, len(places))
                if not count:
                    continue
                free_s = np.maximum(self._held_until(partition.priority_tier), until_s)[places]
                taken = np.argpartition(free_s, count - 1)[:count]
                begin_s = max(free_s[taken].max(), self._now_s)
                limit_s = math.inf if job.limit_s is None else job.limit_s
                until_s[places[taken]] = begin_s + limit_s
                from_s[places[taken]] = np.minimum(from_s[places[taken]], begin_s)
            self._claims[tier] = from_s, until_s
        return self._claims[tier]

    def _in_order(self, tier: int) -> list[tuple[QueuedJob, PartitionInfo]]:
        found = [(job, best) for job in self._waiting if (best := self._best_of(job))]
        ahead = [one for one in found if one[1].priority_tier >= tier]
        ahead.sort(key=lambda one: (-one[1].priority_tier, -one[0].priority))
        return ahead[:MOST_CLAIMS]

    def _free_at(self, moment: float, tier: int, limit_s: float | None) -> NDArray[np.bool_]:
        """Nodes that a job could have from then on, for as long as its limit."""
        from_s, until_s = self._claimed(tier)
        through_s = math.inf if limit_s is None else moment + limit_s
        nobody_waits = (from_s >= through_s) | (until_s <= moment)
        return (self._held_until(tier) <= moment) & nobody_waits

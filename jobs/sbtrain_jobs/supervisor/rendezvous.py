"""Meeting all agents before any trainer starts: who has come, who is missing, and where
every role can be reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.layouts.ranks import ranks_on
from sbtrain_jobs.wire.messages import Ready
from sbtrain_perf.request import Plan
from sbtrain_perf.wording import count

MEET_WITHIN_S = 55.0


class Rendezvous:
    """Collects one Ready from each node of the plan."""

    def __init__(
        self,
        plan: Plan,
        node_names: Sequence[str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._began_s = clock()
        self._plan = plan
        self._names = tuple(node_names)
        self._ready: dict[int, Ready] = {}

    def add(self, ready: Ready) -> None:
        """Raises LaunchError when it does not fit the plan, or a node comes twice."""
        ranks = ranks_on(self._plan, ready.node)
        if not 0 <= ready.node < self._plan.nodes or len(ready.ports) != len(ranks):
            raise LaunchError(
                f"the agent of node {ready.node} holds {len(ready.ports)} ports, "
                f"the plan places {len(ranks)} roles there"
            )
        if ready.node in self._ready:
            raise LaunchError(f"two agents say they run on node {ready.node}")
        self._ready[ready.node] = ready

    @property
    def complete(self) -> bool:
        return len(self._ready) == self._plan.nodes

    def missing(self) -> tuple[str, ...]:
        """Names of the nodes whose agent has not come."""
        return tuple(name for node, name in enumerate(self._names) if node not in self._ready)

    def addresses(self, *, one_host: bool) -> tuple[str, ...]:
        """host:port by rank; on the loopback address where all nodes are one host."""
        found: dict[int, str] = {}
        for node, ready in self._ready.items():
            host = "127.0.0.1" if one_host else ready.host
            for rank, port in zip(ranks_on(self._plan, node), ready.ports, strict=True):
                found[rank] = f"{host}:{port}"
        return tuple(found[rank] for rank in range(len(self._plan.roles)))

    def begin(self) -> None:
        """The agents are being started: their time runs from now."""
        self._began_s = self._clock()

    def too_late(self) -> LaunchError | None:
        """What to say when the time is over, else None."""
        if self.complete or self._clock() <= self._began_s + MEET_WITHIN_S:
            return None
        missing = self.missing()
        return LaunchError(
            f"no agent answered within {MEET_WITHIN_S:g} s from "
            f"{len(missing)} of {count(self._plan.nodes, 'node')}: {', '.join(missing)}",
            hint="look for errors of srun above; the nodes must be able to connect to the "
            "first node of the job and to read the run folder",
        )

"""Meeting all agents before any trainer starts: who has come, who is missing, and where
every role can be reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.layouts.ranks import agent_node, agents
from sbtrain_jobs.wire.messages import Ready
from sbtrain_perf.request import Plan
from sbtrain_perf.wording import count

MEET_WITHIN_S = 55.0


class Rendezvous:
    """Collects one Ready from each agent of the plan."""

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
        self._agents = agents(plan)
        self._ready: dict[int, Ready] = {}

    def add(self, ready: Ready) -> None:
        """Raises LaunchError when it does not fit the plan, or an agent comes twice."""
        known = 0 <= ready.agent < len(self._agents)
        ranks = self._agents[ready.agent] if known else ()
        if not known or len(ready.ports) != len(ranks):
            raise LaunchError(
                f"agent {ready.agent} holds {len(ready.ports)} ports, "
                f"the plan gives it {len(ranks)} roles"
            )
        if ready.agent in self._ready:
            raise LaunchError(f"two agents say they are number {ready.agent}")
        self._ready[ready.agent] = ready

    @property
    def complete(self) -> bool:
        return len(self._ready) == len(self._agents)

    def missing(self) -> tuple[str, ...]:
        """Names of the nodes of which an agent has not come."""
        absent = {agent for agent in range(len(self._agents)) if agent not in self._ready}
        nodes = {agent_node(self._plan, agent) for agent in absent}
        return tuple(name for node, name in enumerate(self._names) if node in nodes)

    def addresses(self, *, one_host: bool) -> tuple[str, ...]:
        """host:port by rank; on the loopback address where all nodes are one host."""
        found: dict[int, str] = {}
        for agent, ready in self._ready.items():
            host = "127.0.0.1" if one_host else ready.host
            for rank, port in zip(self._agents[agent], ready.ports, strict=True):
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

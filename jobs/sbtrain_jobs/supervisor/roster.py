"""Who of an attempt is there: agents by number, trainers by rank, who has ended and how."""

from __future__ import annotations

from collections.abc import Sequence

from sbtrain_jobs.layouts.ranks import agents, chief_rank, role_name
from sbtrain_jobs.wire.control import Peer
from sbtrain_perf.request import Plan


class Roster:
    """Bookkeeping only; what an unknown rank or agent says is dropped."""

    def __init__(self, plan: Plan, node_names: Sequence[str]) -> None:
        self._plan = plan
        self._names = tuple(node_names)
        self._ranks = agents(plan)
        self._agents: dict[int, Peer] = {}
        self._trainers: dict[int, Peer] = {}
        self._witnesses: dict[int, Peer] = {}
        self._met: set[int] = set()
        self._lost: set[int] = set()
        self._ended: dict[int, int] = {}
        self.started = False  # trainers run, or are about to

    def joined(self, peer: Peer) -> bool:
        """Whether the peer has a place in the plan."""
        hello = peer.hello
        if hello.who == "agent":
            if not 0 <= hello.agent < len(self._ranks) or hello.agent in self._met:
                return False
            self._agents[hello.agent] = peer
            self._met.add(hello.agent)
            return True
        if hello.who == "asker" or not 0 <= hello.rank < len(self._plan.roles):
            return False
        self._by_rank(peer)[hello.rank] = peer
        return True

    def knows(self, peer: Peer) -> bool:
        hello = peer.hello
        if hello.who == "agent":
            return self._agents.get(hello.agent) == peer
        return self._by_rank(peer).get(hello.rank) == peer

    def left(self, peer: Peer, *, told_to: bool) -> None:
        """told_to: the agents were told to finish."""
        hello = peer.hello
        if hello.who == "agent" and self._agents.get(hello.agent) == peer:
            del self._agents[hello.agent]
            if told_to and not self.started:
                return
            if self._at_work(hello.agent):
                self._lost.add(hello.node)
        elif hello.who != "agent" and self.knows(peer):
            del self._by_rank(peer)[hello.rank]

    def ended(self, rank: int, returncode: int) -> bool:
        """Note a role's end; whether it is news."""
        if not 0 <= rank < len(self._plan.roles) or rank in self._ended:
            return False
        self._ended[rank] = returncode
        return True

    @property
    def agents(self) -> tuple[Peer, ...]:
        return tuple(self._agents.values())

    @property
    def connected(self) -> bool:
        return bool(self._agents or self._trainers or self._witnesses)

    def trainer(self, rank: int) -> Peer | None:
        return self._trainers.get(rank)

    @property
    def one_host(self) -> bool:
        return all(peer.here for peer in self._agents.values())

    @property
    def finished(self) -> bool:
        """Training is complete: the chief has ended well, and of all-reduce every worker."""
        if self._plan.layout == "ps":
            return self._ended.get(chief_rank(self._plan)) == 0
        return all(self._ended.get(rank) == 0 for rank in range(len(self._plan.roles)))

    @property
    def all_ended(self) -> bool:
        return len(self._ended) == len(self._plan.roles)

    @property
    def lost_nodes(self) -> tuple[str, ...]:
        """Nodes whose agent went away while roles of the node had not ended."""
        return tuple(self._names[node] for node in sorted(self._lost))

    def lose(self, names: Sequence[str]) -> None:
        """Nodes that never came may have died; whether they have is for others to find out."""
        self._lost.update(self._names.index(name) for name in names)

    def silent(self) -> None:
        """Agents that are still there but do not answer count as lost."""
        for agent, peer in self._agents.items():
            if self._at_work(agent):
                self._lost.add(peer.hello.node)

    def _at_work(self, agent: int) -> bool:
        return any(rank not in self._ended for rank in self._ranks[agent])

    def describe(self, rank: int) -> str:
        """worker 1 (rank 1) on node c2, for messages. A rank may be any that a peer named."""
        if not 0 <= rank < len(self._plan.roles):
            return f"rank {rank}"
        role = self._plan.roles[rank]
        return f"{role.name} {role.index} on node {self._names[role.node]}"

    def role_name(self, rank: int) -> str:
        return role_name(self._plan.roles[rank])

    def _by_rank(self, peer: Peer) -> dict[int, Peer]:
        """Where a peer that is no agent has its place."""
        return self._trainers if peer.hello.who == "trainer" else self._witnesses

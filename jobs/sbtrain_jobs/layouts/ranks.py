"""Who is in the world of a plan: its ranks by node, by agent, by role and by name."""

from __future__ import annotations

from sbtrain_jobs.layouts.convention import convention_of
from sbtrain_perf.request import Plan, Role


def by_mpi(plan: Plan) -> bool:
    """Whether srun starts each rank as a task of its own: MPI's ranks are an srun's tasks."""
    return convention_of(plan.framework).by_mpi


def agents(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """The ranks of each agent, in the order of Ready.ports: all of a node, or, of what meets
    through MPI, one, in the order of MPI's ranks."""
    if by_mpi(plan):
        by_index = sorted(range(len(plan.roles)), key=lambda rank: plan.roles[rank].index)
        return tuple((rank,) for rank in by_index)
    return tuple(ranks_on(plan, node) for node in range(plan.nodes))


def agent_node(plan: Plan, agent: int) -> int:
    """The node that an agent is on."""
    return plan.roles[agents(plan)[agent][0]].node if by_mpi(plan) else agent


def ranks_on(plan: Plan, node: int) -> tuple[int, ...]:
    """Ranks that the plan places on a node."""
    return tuple(rank for rank, role in enumerate(plan.roles) if role.node == node)


def local_workers(plan: Plan, node: int) -> list[Role]:
    """The workers on a node, by local rank."""
    return sorted(
        (role for role in plan.roles if role.node == node and role.name == "worker"),
        key=lambda role: role.index,
    )


def chief_rank(plan: Plan) -> int:
    """The rank whose output is the job's: the coordinator, or worker 0."""
    for rank, role in enumerate(plan.roles):
        if role.name == "chief":
            return rank
    return first_worker(plan)


def role_name(role: Role) -> str:
    """For messages and log files: worker-3."""
    return f"{role.name}-{role.index}"


def first_worker(plan: Plan) -> int:
    """The rank of worker 0."""
    return next(
        rank
        for rank, role in enumerate(plan.roles)
        if role.name == "worker" and role.index == 0
    )


def counting_ranks(plan: Plan) -> frozenset[int]:
    """Ranks that count steps: every worker of an all-reduce, the chief beside servers."""
    name = "worker" if plan.layout == "allreduce" else "chief"
    return frozenset(rank for rank, role in enumerate(plan.roles) if role.name == name)

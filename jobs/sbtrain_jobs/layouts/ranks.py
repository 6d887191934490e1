"""Who is in the world of a plan: its ranks by node, by role and by name."""

from __future__ import annotations

from sbtrain_perf.request import Plan, Role


def ranks_on(plan: Plan, node: int) -> tuple[int, ...]:
    """Ranks that the plan places on a node, in the order of Ready.ports."""
    return tuple(rank for rank, role in enumerate(plan.roles) if role.node == node)


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

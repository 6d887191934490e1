"""TensorFlow's TF_CONFIG: the addresses of all processes by role, and which of them this is."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sbtrain_jobs.layouts.convention import Convention, Place
from sbtrain_jobs.layouts.conventions import torch
from sbtrain_perf.request import Plan


def variables(place: Place) -> dict[str, str]:
    return {
        "TF_CONFIG": tf_config(place.plan, place.rank, place.addresses),
        # The agent holds the port; without this TensorFlow refuses to share it.
        "TF_GRPC_REUSE_PORT": "true",
    }


def tf_config(plan: Plan, rank: int, addresses: Sequence[str]) -> str:
    """TensorFlow's cluster and this process's task in it, as JSON."""
    cluster: dict[str, list[str]] = {}
    for name in ("chief", "worker", "ps"):
        members = sorted(
            (role.index, addresses[r]) for r, role in enumerate(plan.roles) if role.name == name
        )
        if members:
            cluster[name] = [address for _, address in members]
    role = plan.roles[rank]
    return json.dumps({"cluster": cluster, "task": {"type": role.name, "index": role.index}})


CONVENTION = Convention(variables=(torch.variables, variables))

"""What the cluster leaves to the plan: partitions that take the job, nodes that it may have,
how long it would wait for them, and whose running jobs it would push aside.

Reckoned from what Slurm is asked anyway (slurm/kept_answers.py); no question is put about the
job itself, since each would spend a job id.
"""

from __future__ import annotations

import contextlib
import dataclasses
import grp
import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sbtrain.errors import SlurmError, SlurmMissingError
from sbtrain.options.argv import Setting, given, last_value
from sbtrain.slurm.cluster_config import NO_CONFIG, ClusterConfig
from sbtrain.slurm.gres import read_gres
from sbtrain.slurm.kept_answers import (
    AGAIN_S,
    PARTITIONS_S,
    QUEUE_S,
    STATE_S,
    KeptAnswers,
)
from sbtrain.slurm.node_kinds import NO_NODES, Nodes, names_in
from sbtrain.slurm.refusals import of_memory
from sbtrain.slurm.user_limits import NO_LIMIT, NO_LIMITS, Limit, UserLimits
from sbtrain.submission.asked import GPU_OPTIONS
from sbtrain.submission.asked_nodes import suited
from sbtrain.submission.constraint import features_of_some
from sbtrain.submission.free_nodes import FreeNodes
from sbtrain_perf.request import slurm_partition
from sbtrain_perf.wording import count, duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sbtrain.slurm.client import PartitionAccess, PartitionInfo
    from sbtrain.slurm.node_kinds import NodeKind
    from sbtrain.submission.asked import Asked
    from sbtrain_perf.decision import Row
    from sbtrain_perf.request import ClusterShape, Partition

AT_ONCE_S = 60.0  # a wait of the scheduler's own making
MOST = 1 << 30  # where Slurm sets no limit to a job's nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What Slurm has; nothing where no Slurm is. free: when nodes are, where the queue matters.
    silence: why a Slurm that is there did not tell."""

    partitions: tuple[PartitionInfo, ...] = ()
    nodes: Nodes = NO_NODES
    config: ClusterConfig = NO_CONFIG
    limits: UserLimits = NO_LIMITS
    free: FreeNodes | None = None
    silence: str = ""

    def site(self) -> dict[str, Any] | None:
        """In the form of a site file; None where Slurm tells nothing."""
        return self._site(self.nodes.kinds) if self.partitions else None

    def site_for(self, asked: Asked) -> dict[str, Any] | None:
        """Of nodes that can run it alone; None where all or none can."""
        fitting = suited(asked, self.nodes.kinds)
        differ = fitting and fitting != self.nodes.kinds
        return self._site(fitting) if self.partitions and differ else None

    def _site(self, kinds: Sequence[NodeKind]) -> dict[str, Any]:
        from sbtrain.sites.discovery import discovered

        return discovered(self.partitions, kinds, self.config)

    def of(self, partition: Partition) -> PartitionInfo | None:
        name = slurm_partition(partition.name)
        return next((one for one in self.partitions if one.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """seconds: the wait in each partition, by its name in the site file; None where nobody can
    say, as behind a job without a time limit. at_once: where that is long, nodes that would
    start now. silence: why a Slurm that is there did not tell."""

    seconds: dict[str, float | None] = field(default_factory=dict)
    at_once: dict[str, int] = field(default_factory=dict)
    silence: str = ""


def ask_known(
    answers: KeptAnswers,
    *,
    anew: bool = True,
    named: Collection[str] = (),
    refused: bool = False,
    queue: bool = False,
    now: Callable[[], float] = time.time,
) -> Known:
    """
    Args:
        anew: what can be used now matters, and not only what there is.
        named: partitions that the user names; one that is not known may be new.
        refused: Slurm has just refused a job for its partition.
        queue: what takes jobs, runs and waits matters too.
    """
    try:
        state_s = QUEUE_S if refused else STATE_S if queue else PARTITIONS_S
        partitions = answers.partitions(most_s=state_s)
        if set(named) - {one.name for one in partitions}:
            partitions = answers.partitions(most_s=QUEUE_S)
        known = Known(
            partitions=partitions,
            nodes=answers.nodes(most_s=STATE_S if anew else PARTITIONS_S),
            config=answers.config(),
            limits=answers.limits() if anew else NO_LIMITS,
        )
    except SlurmMissingError:
        return Known()
    except SlurmError as error:
        return Known(silence=error.message)
    if not queue or not known.nodes.kinds:  # there is nothing to choose from
        return known
    try:
        return _with_queue(known, answers, now_s=now())
    except SlurmMissingError:
        return known
    except SlurmError as error:
        return dataclasses.replace(known, silence=error.message)


def _with_queue(known: Known, answers: KeptAnswers, *, now_s: float) -> Known:
    """What the queue contradicts is asked about again."""
    queue, partitions, nodes = answers.queue(), known.partitions, known.nodes
    up = {one.name for one in partitions if one.up}
    if any(up & set(job.partition.split(",")) for job in queue if job.partition_is_closed):
        partitions = answers.partitions(most_s=AGAIN_S)
    free = FreeNodes(partitions, queue, unusable=nodes.unusable, now_s=now_s)
    if free.doubtful:
        nodes = answers.nodes(most_s=AGAIN_S)
        free = FreeNodes(partitions, queue, unusable=nodes.unusable, now_s=now_s)
    return dataclasses.replace(known, partitions=partitions, nodes=nodes, free=free)


def fitted(
    asked: Asked, shape: ClusterShape, known: Known, closed: Mapping[str, str]
) -> tuple[ClusterShape, dict[str, str]]:
    """The cluster as the job may use it, and why partitions take no such job. These are left
    out, unless none takes it: then it is the same cluster, or those that have refused it. None
    of the others has more nodes than may be had.

    Args:
        closed: partitions of Slurm that have refused the job, and why.
    """
    if not any(known.of(one) for one in shape.partitions):
        return shape, {}
    kept, left_out = [], {}
    too_little_mib = _too_little_mib(known, closed)
    for one in shape.partitions:
        info = known.of(one)
        limit = _limit(asked, one, info, known.limits)
        why = closed.get(slurm_partition(one.name)) or _closed(asked, one, info, known, limit)
        if not why and info and _memory_mib(info, known.nodes) <= too_little_mib:
            why = "no node of it has more memory than those that were too small"
        if why or info is None:
            left_out[one.name] = why
            continue
        usable = len(usable_nodes(asked, one, info, known.nodes))
        most = [usable, info.max_nodes, limit.nodes, one.max_nodes_per_job]
        least = min(nodes for nodes in most if nodes is not None)
        kept.append(dataclasses.replace(one, max_nodes_per_job=least))
    wanted = {name for name in (asked.request.partition or "").split(",") if name}
    if not wanted:
        wanted = {slurm_partition(one.name) for one in shape.partitions}
    told = {name: why for name, why in left_out.items() if slurm_partition(name) in wanted}
    if not any(slurm_partition(one.name) in wanted for one in kept):
        refused = tuple(one for one in shape.partitions if slurm_partition(one.name) in closed)
        return dataclasses.replace(shape, partitions=refused) if refused else shape, told
    return dataclasses.replace(shape, partitions=tuple(kept)), told


def _too_little_mib(known: Known, closed: Mapping[str, str]) -> int:
    """Memory of a node that was not enough."""
    refused = [one for one in known.partitions if of_memory(closed.get(one.name, ""))]
    return max((_memory_mib(one, known.nodes) for one in refused), default=-1)


def _memory_mib(info: PartitionInfo, nodes: Nodes) -> int:
    """The most that a node of it has."""
    names = names_in(info.nodes)
    held = (kind.memory_mib for kind in nodes.kinds if names & names_in(kind.nodes))
    return max(held, default=0)


def closed_notes(
    left_out: Mapping[str, str], *, none_left: bool, most: int, apart: Collection[str]
) -> list[str]:
    """What is said of partitions that take no such job, and so are left out.

    Args:
        none_left: no other takes it.
        most: so many are named.
        apart: partitions of Slurm that are named whatever their number.
    """
    if none_left and left_out:
        words = [f"{name}: {why}" for name, why in list(left_out.items())[:most]]
        more = [f"and {len(left_out) - most} more"] if len(left_out) > most else []
        return [f"no partition starts such a job ({'; '.join(words + more)}): sbatch decides"]
    named = [name for name in left_out if slurm_partition(name) in apart]
    others = [name for name in left_out if name not in named]
    if len(others) > most:
        said = f"{', '.join(others[:most])} and {len(others) - most} more partitions take no"
        return [
            *(f"{name} is left out: {left_out[name]}" for name in named),
            f"{said} such job and are left out: --train-explain says why of each",
        ]
    return [f"{name} is left out: {why}" for name, why in left_out.items()]


def usable_nodes(
    asked: Asked, partition: Partition, info: PartitionInfo, nodes: Nodes
) -> frozenset[str]:
    """Nodes of a partition that the job may have now, as far as Slurm's words for them tell."""
    return _able_nodes(asked, partition, info, nodes) - names_in(nodes.unusable)


def _able_nodes(
    asked: Asked, partition: Partition, info: PartitionInfo, nodes: Nodes
) -> frozenset[str]:
    found = names_in(info.nodes) - names_in(last_value(asked.settings, "exclude") or "")
    fitting = suited(asked, nodes.kinds)
    if fitting != nodes.kinds:
        found &= frozenset().union(*(names_in(kind.nodes) for kind in fitting))
    by_user = given(asked.settings, *GPU_OPTIONS)
    gres = (last_value(asked.settings, "gres") or "") if by_user else partition.gres
    for wanted in read_gres(gres):
        having = nodes.with_gres(wanted)
        if having is not None:
            found &= frozenset().union(*map(names_in, having))
    return found


def _limit(
    asked: Asked, one: Partition, info: PartitionInfo | None, limits: UserLimits
) -> Limit:
    """What the accounting allows the job in a partition, in whole nodes."""
    if info is None:
        return NO_LIMIT
    account, qos = (last_value(asked.settings, name) or "" for name in ("account", "qos"))
    found = limits.of(info.name, info.qos, account=account, qos=qos)
    nodes = MOST if found.nodes is None else found.nodes
    if found.cpus is not None:
        nodes = min(nodes, found.cpus // one.cores_per_node)
    if found.gpus is not None and one.gpus_per_node:
        nodes = min(nodes, found.gpus // one.gpus_per_node)
    return dataclasses.replace(found, nodes=None if nodes == MOST else nodes)


def _closed(
    asked: Asked, one: Partition, info: PartitionInfo | None, known: Known, limit: Limit
) -> str:
    """Why Slurm would never start the job in a partition; empty: it would."""
    if info is None:
        return "Slurm has no such partition"
    if not info.up:
        return "it takes no jobs now"
    request = asked.request
    shut = _shut(info.access, asked.settings, default=info.default)
    if shut:
        return shut
    if info.max_time_s is not None and (request.time_limit_s or 0) > info.max_time_s:
        return f"its jobs may take {duration(info.max_time_s)} at most"
    if limit.wall_s is not None and (request.time_limit_s or 0) > limit.wall_s:
        return f"your jobs may take {duration(limit.wall_s)} at most (account or QOS)"
    if info.max_nodes == 0:
        return "its jobs may have no node (MaxNodes)"
    if _gets_too_much(asked, info, known):
        return "jobs that ask for no memory get more there than they may have (--mem)"
    if limit.nodes is not None and limit.nodes < max(request.nodes.low, info.min_nodes):
        return f"your jobs may have {count(limit.nodes, 'whole node')} there (account or QOS)"
    if request.nodes.high is not None and request.nodes.high < info.min_nodes:
        return f"its jobs have {info.min_nodes} nodes at least"
    required, able = _required(asked), _able_nodes(asked, one, info, known.nodes)
    if not required <= names_in(info.nodes):
        return "it does not hold all nodes of --nodelist"
    if not required <= able:
        return "not all nodes of --nodelist can run the job so"
    least = max(request.nodes.low, info.min_nodes)
    usable = able - names_in(known.nodes.unusable)
    if len(usable) < least <= info.node_count:
        return f"{count(len(usable), 'node')} of it can run the job now, and it needs {least}"
    for word, wanted in features_of_some(last_value(asked.settings, "constraint") or ""):
        having = len(usable & names_in(known.nodes.by_feature.get(word, "")))
        if having < wanted:
            have = count(having, "node") if having else "no node"
            return f"{have} of it can run the job with {word}, which {wanted} must have"
    return ""


def _gets_too_much(asked: Asked, info: PartitionInfo, known: Known) -> bool:
    """Slurm lets such a job wait for ever (MaxMemPerLimit)."""
    if info.max_memory_mib is None or info.default_memory or not known.config.all_memory:
        return False
    asks = any(given(asked.settings, name) for name in ("mem", "mem-per-cpu", "mem-per-gpu"))
    return not asks and _memory_mib(info, known.nodes) > info.max_memory_mib


def _required(asked: Asked) -> frozenset[str]:
    named = last_value(asked.settings, "nodelist") or ""
    return frozenset() if "/" in named else names_in(named)


def _shut(access: PartitionAccess, settings: Sequence[Setting], *, default: bool) -> str:
    """Why the user's jobs are not taken. Slurm's default partition is not doubted for the sake
    of an account or a QOS that nobody named: they have defaults that are not known here."""
    if access.reservation_only and not given(settings, "reservation"):
        return "it takes jobs of reservations alone (--reservation)"
    if os.getuid() != 0:
        if access.root_only:
            return "it takes root's jobs alone"
        if access.groups and not _groups() & set(access.groups):
            return f"it takes jobs of {', '.join(access.groups)} alone (groups)"
    for option, allowed, denied in (
        ("account", access.accounts, access.denied_accounts),
        ("qos", access.qos, access.denied_qos),
    ):
        named = last_value(settings, option)
        if named in denied or (allowed and named not in allowed and (named or not default)):
            words = f"of {', '.join(allowed)} alone" if allowed else f"of {named} never"
            return f"it takes jobs {words} (--{option})"
    return ""


def _groups() -> set[str]:
    names = set()
    for number in {os.getgid(), *os.getgroups()}:
        with contextlib.suppress(KeyError):
            names.add(grp.getgrgid(number).gr_name)
    return names


def queue_waits(
    asked: Asked,
    rows: Sequence[Row],
    shape: ClusterShape,
    known: Known,
    *,
    limit_s: float | None,
) -> Waits:
    """How long the best row of each partition would wait; rows come best first. Empty where no
    Slurm is, and where the site file is that of another cluster.

    Args:
        limit_s: the job's time limit as it is asked for; None: its partition's default.
    """
    best: dict[str, Row] = {}
    for row in rows:
        if row.prediction is not None:
            best.setdefault(row.partition, row)
    waits, free = Waits(silence=known.silence), known.free
    if free is None:
        return waits
    for one in shape.partitions:
        info, row_of_it = known.of(one), best.get(one.name)
        if info is None or row_of_it is None:
            continue
        among = usable_nodes(asked, one, info, known.nodes)
        runs_s = limit_s or info.default_time_s or info.max_time_s
        nodes, must_have = row_of_it.nodes, _required(asked)
        wait_s = free.wait_s(info.name, nodes, among=among, limit_s=runs_s, with_all=must_have)
        waits.seconds[one.name] = wait_s
        open_now = free.open_now(info.name, among=among, limit_s=runs_s)
        waits_long = wait_s is None or wait_s > AT_ONCE_S
        if waits_long and asked.request.nodes.low <= open_now < nodes:
            waits.at_once[one.name] = open_now
    return waits

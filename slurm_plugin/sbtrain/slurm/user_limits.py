"""What the accounting allows one job of this user: limits of associations and of QOS, as
`sacctmgr show assoc` and `sacctmgr show qos` print them. slurmdbd is asked, not slurmctld."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sbtrain.slurm.times import read_elapsed

ASSOCIATION_FIELDS = (
    "Account",
    "Partition",
    "QOS",
    "DefaultQOS",
    "MaxTRES",
    "MaxWall",
    "GrpTRES",
)
QOS_FIELDS = ("Name", "MaxTRES", "MaxWall", "GrpTRES")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """None: as many or as long as one likes."""

    nodes: int | None = None
    cpus: int | None = None
    gpus: int | None = None
    wall_s: int | None = None


NO_LIMIT = Limit()


@dataclass(frozen=True, slots=True, kw_only=True)
class Association:
    """partition: "" for all. default_qos: "" where jobs that name none have none."""

    account: str
    partition: str
    default_qos: str
    limit: Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class UserLimits:
    associations: tuple[Association, ...] = ()
    qos: dict[str, Limit]

    def of(self, partition: str, partition_qos: str, *, account: str, qos: str) -> Limit:
        """What binds a job that names these; empty: it names none. Of accounts of which none is
        named, the one that allows most: the default is not known here."""
        own = [
            one
            for one in self.associations
            if one.partition in ("", partition) and account in ("", one.account)
        ]
        each = [_both(one.limit, self.qos.get(qos or one.default_qos, NO_LIMIT)) for one in own]
        allowed = _most(each) if each else NO_LIMIT
        return _both(allowed, self.qos.get(partition_qos, NO_LIMIT))


NO_LIMITS = UserLimits(qos={})


def read_limits(associations: str, qos: str) -> UserLimits:
    """Of rows with `|` between the fields; one that cannot be read limits nothing."""
    return UserLimits(
        associations=tuple(
            Association(
                account=row[0],
                partition=row[1],
                default_qos=row[3] or (row[2] if "," not in row[2] else ""),
                limit=_limit(row[4], row[5], row[6]),
            )
            for row in _rows(associations, len(ASSOCIATION_FIELDS))
        ),
        qos={row[0]: _limit(*row[1:]) for row in _rows(qos, len(QOS_FIELDS))},
    )


def _rows(text: str, fields: int) -> Iterable[list[str]]:
    rows = (line.split("|") for line in text.splitlines())
    return (row for row in rows if len(row) == fields and row[0])


def _limit(most: str, wall: str, group: str) -> Limit:
    """group: of all jobs together, and so of one too."""
    try:
        wall_s = read_elapsed(wall)
    except ValueError:
        wall_s = None
    both = [dict(re.findall(r"([\w/:.-]+)=(\d+)", text)) for text in (most, group)]

    def least(key: str) -> int | None:
        found = [int(one[key]) for one in both if key in one]
        return min(found, default=None)

    return Limit(nodes=least("node"), cpus=least("cpu"), gpus=least("gres/gpu"), wall_s=wall_s)


def _both(one: Limit, other: Limit) -> Limit:
    return _of_each((one, other), min)


def _most(limits: Sequence[Limit]) -> Limit:
    return _of_each(limits, max)


def _of_each(limits: Sequence[Limit], chosen: Callable[[Iterable[float]], float]) -> Limit:
    def of(name: str) -> int | None:
        values = (getattr(one, name) for one in limits)
        found = chosen([math.inf if value is None else value for value in values])
        return None if math.isinf(found) else int(found)

    return Limit(nodes=of("nodes"), cpus=of("cpus"), gpus=of("gpus"), wall_s=of("wall_s"))

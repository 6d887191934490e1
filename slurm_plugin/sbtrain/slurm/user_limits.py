"""What the accounting allows one job of this user, and by whose jobs it may be pushed aside:
associations and QOS, as `sacctmgr` prints them. slurmdbd is asked, not slurmctld."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sbtrain.slurm.times import read_elapsed

USER_FIELDS = (
    *("Account", "DefaultAccount", "Partition", "QOS", "DefaultQOS"),
    *("MaxTRES", "MaxWall", "GrpTRES"),
)
ACCOUNT_FIELDS = ("Account", "ParentName", "GrpTRES")
QOS_FIELDS = (
    *("Name", "MaxTRES", "MaxWall", "GrpTRES", "MaxTRESPU", "MaxTRESPA"),
    *("Preempt", "GraceTime"),
)
_QOS = "normal"  # of an association that may use several and has no default


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
    """default_account: of jobs that name none; "" where it is not known. pushed: the grace
    time of every QOS, in seconds; None: of one whose jobs no other QOS pushes aside."""

    associations: tuple[Association, ...] = ()
    qos: dict[str, Limit]
    default_account: str = ""
    pushed: dict[str, int | None] = field(default_factory=dict)

    def unenforced(self) -> UserLimits:
        """Where the accounting is kept, and limits nobody."""
        free = (dataclasses.replace(one, limit=NO_LIMIT) for one in self.associations)
        return dataclasses.replace(self, associations=tuple(free), qos={})

    def graces(self, partition: str, *, account: str, qos: str) -> frozenset[int | None]:
        """As in `pushed`, of each QOS that a job that names these may have; none: not known."""
        own = self._own(partition, account or self.default_account)
        names = {qos} if qos else {one.default_qos or _QOS for one in own}
        return frozenset(self.pushed[name] for name in names & self.pushed.keys())

    def of(self, partition: str, partition_qos: str, *, account: str, qos: str) -> Limit:
        """What binds a job that names these; empty: it names none. Of accounts of which none is
        named and none is the default, the one that allows most."""
        account = account or self.default_account
        own = self._own(partition, account)
        each = [_both(one.limit, self.qos.get(qos or one.default_qos, NO_LIMIT)) for one in own]
        allowed = _most(each) if each else NO_LIMIT
        return _both(allowed, self.qos.get(partition_qos, NO_LIMIT))

    def _own(self, partition: str, account: str) -> list[Association]:
        return [
            one
            for one in self.associations
            if one.partition in ("", partition) and account in ("", one.account)
        ]


NO_LIMITS = UserLimits(qos={})


def read_limits(user: str, accounts: str, qos: str) -> UserLimits:
    """Of rows with `|` between the fields; one that cannot be read limits nothing. Slurm itself
    shows an association with what it inherits, but for what all jobs of an account share."""
    own = list(_rows(user, len(USER_FIELDS)))
    above = {row[0]: (row[1], row[2]) for row in _rows(accounts, len(ACCOUNT_FIELDS))}
    each = list(_rows(qos, len(QOS_FIELDS)))
    pushed = {name for row in each for name in row[6].split(",")}
    return UserLimits(
        associations=tuple(
            Association(
                account=row[0],
                partition=row[2],
                default_qos=row[4] or (_QOS if "," in row[3] else row[3]),
                limit=_limit(row[6], row[5], row[7], *_groups(row[0], above)),
            )
            for row in own
        ),
        qos={row[0]: _limit(row[2], row[1], *row[3:6]) for row in each},
        pushed={row[0]: _seconds(row[7]) or 0 if row[0] in pushed else None for row in each},
        default_account=own[0][1] if own else "",
    )


def _rows(text: str, fields: int) -> Iterable[list[str]]:
    rows = (line.split("|") for line in text.splitlines())
    return (row for row in rows if len(row) == fields and row[0])


def _groups(account: str, above: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """GrpTRES of an account and of those that it is part of."""
    seen = set[str]()
    while account in above and account not in seen:
        seen.add(account)
        account, group = above[account]
        yield group


def _limit(wall: str, *tres: str) -> Limit:
    """tres: of a job, or of all jobs of a user or an account together, and so of one too."""
    each = [dict(re.findall(r"([\w/:.-]+)=(\d+)", text)) for text in tres]

    def least(key: str) -> int | None:
        found = [int(one[key]) for one in each if key in one]
        return min(found, default=None)

    return Limit(
        nodes=least("node"), cpus=least("cpu"), gpus=least("gres/gpu"), wall_s=_seconds(wall)
    )


def _seconds(text: str) -> int | None:
    try:
        return read_elapsed(text)
    except ValueError:
        return None


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

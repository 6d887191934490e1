"""Which process is which: identity by pid and start time, and the search in /proc for the
processes of one cluster. Nothing is ever ended by its name or by its pid alone."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sbtrain.cluster.waiting import Wait

CLUSTER_NAME = "sbtrain"  # as slurmstepd says it in the environment of every task
MARK = "SBTRAIN_CLUSTER"  # in the environment of every daemon that we start: the cluster's id

_DAEMONS = (
    "munged",
    "slurmctld",
    "slurmscriptd",
    "slurmd",
    "slurmstepd",
    "slurmdbd",
    "mariadbd",
)
_POLL_S = 0.02
_KILL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One process, distinct from any later one that gets its pid."""

    pid: int
    start_ticks: int  # clock ticks from boot to its start
    boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """A process that belongs to a cluster, and the node whose work it does ("" for none)."""

    identity: Identity
    session: int  # every daemon leads a session of its own, its helpers stay in it
    kind: str  # daemon, stepd or task
    program: str
    node: str


@dataclass(frozen=True, slots=True)
class _Stat:
    program: str
    state: str
    parent: int
    session: int
    start_ticks: int


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def identify(pid: int) -> Identity | None:
    """None when no such process runs (a zombie does not run)."""
    stat = _read_stat(pid)
    if stat is None or stat.state in "ZX":
        return None
    return Identity(pid=pid, start_ticks=stat.start_ticks, boot_id=boot_id())


def is_running(identity: Identity) -> bool:
    return identify(identity.pid) == identity


def send(identity: Identity, number: signal.Signals) -> None:
    """Signal the process if it still is the one that was identified."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except OSError as error:
        if error.errno == errno.ENOSYS and is_running(identity):  # Linux before 5.3
            with suppress(OSError):
                os.kill(identity.pid, number)
        return
    try:
        if is_running(identity):
            with suppress(OSError):
                signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


def end(
    identities: Iterable[Identity],
    *,
    grace_s: float,
    reap: Callable[[], None] = lambda: None,
    slow: Callable[[], None] = lambda: None,
) -> None:
    """SIGTERM, then SIGKILL to what is left after grace_s seconds; 0 kills at once.

    Args:
        reap: called before each look, for processes that are this one's children.
        slow: called once when the wait gets long.
    """
    left = [one for one in identities if is_running(one)]
    if grace_s > 0:
        for one in left:
            send(one, signal.SIGTERM)
        left = _wait_gone(left, seconds=grace_s, reap=reap, slow=slow)
    for one in left:
        send(one, signal.SIGKILL)
    _wait_gone(left, seconds=_KILL_S, reap=reap, slow=slow)


def relatives(*, cluster_id: str, conf: str, log: Path) -> list[Relative]:
    """The running processes of one cluster: its daemons, slurmstepds, and their tasks.

    A daemon or slurmstepd is ours when its environment carries our mark, or (slurmstepd wipes
    its environment) when it writes to a log file in our folder. A task is ours when it is a
    descendant of such a slurmstepd, or names our SLURM_CONF together with variables that only
    slurmstepd sets: a shell in a job of another cluster has them too, with that one's name.
    This process and those that it runs under are left out.
    """
    stats = dict(_all_stats())
    own = set(_lineage(os.getpid(), stats))
    boot = boot_id()
    found: dict[int, Relative] = {}
    for pid, stat in stats.items():
        if pid in own or not _is_mine(pid):
            continue
        kind, node = _classify(pid, stat, cluster_id=cluster_id, conf=conf, log=log)
        if kind:
            found[pid] = _relative(pid, stat, kind, node, boot)
    stepds = {pid: one.node for pid, one in found.items() if one.kind == "stepd"}
    for pid, stat in stats.items():
        if pid in found or pid in own:
            continue
        for ancestor in _lineage(pid, stats):
            if ancestor in stepds:
                found[pid] = _relative(pid, stat, "task", stepds[ancestor], boot)
                break
    return list(found.values())


def _classify(
    pid: int, stat: _Stat, *, cluster_id: str, conf: str, log: Path
) -> tuple[str, str]:
    environment = _environment(pid)
    program = stat.program.partition(":")[0]
    if program in _DAEMONS:
        stem = _log_stem(pid, log)
        node = stem.removeprefix("slurmd.") if stem.startswith("slurmd.") else ""
        if stem or environment.get(MARK) == cluster_id:
            return ("stepd" if program == "slurmstepd" else "daemon"), node
        return "", ""
    said = (environment.get("SLURM_CONF"), environment.get("SLURM_CLUSTER_NAME"))
    node = environment.get("SLURMD_NODENAME", "")
    if said == (conf, CLUSTER_NAME) and "SLURM_JOB_ID" in environment and node:
        return "task", node
    return "", ""


def _relative(pid: int, stat: _Stat, kind: str, node: str, boot: str) -> Relative:
    identity = Identity(pid=pid, start_ticks=stat.start_ticks, boot_id=boot)
    return Relative(
        identity=identity, session=stat.session, kind=kind, program=stat.program, node=node
    )


def _log_stem(pid: int, log: Path) -> str:
    """Name, without .log or .err, of the file in our log folder that the process has open."""
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = Path(str(entry.readlink()).removesuffix(" (deleted)"))
                if target.parent == log and target.suffix in (".log", ".err"):
                    return target.stem
    return ""


def _environment(pid: int) -> dict[str, str]:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in raw.split(b"\0"))
    return {os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs if key}


def _lineage(pid: int, stats: dict[int, _Stat]) -> Iterator[int]:
    """The process, its parent, and so on to the top."""
    seen: set[int] = set()
    while pid in stats and pid not in seen:
        seen.add(pid)
        yield pid
        pid = stats[pid].parent


def _all_stats() -> Iterator[tuple[int, _Stat]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            stat = _read_stat(int(entry.name))
            if stat is not None and stat.state not in "ZX":
                yield int(entry.name), stat


def _read_stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        head, _, tail = text.rpartition(")")
        fields = tail.split()
        return _Stat(
            program=head.partition("(")[2],
            state=fields[0],
            parent=int(fields[1]),
            session=int(fields[3]),
            start_ticks=int(fields[19]),
        )
    except (OSError, ValueError, IndexError):
        return None


def _is_mine(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}").stat().st_uid == os.getuid()
    except OSError:
        return False


def _wait_gone(
    identities: list[Identity],
    *,
    seconds: float,
    reap: Callable[[], None],
    slow: Callable[[], None],
) -> list[Identity]:
    """Those still running after at most that many seconds."""
    left = identities
    wait = Wait(slow)
    while True:
        reap()
        left = [one for one in left if is_running(one)]
        if not left or wait.seconds > seconds:
            return left
        wait.look()
        time.sleep(_POLL_S)

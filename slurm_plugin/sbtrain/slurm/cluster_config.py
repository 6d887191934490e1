"""What of Slurm's configuration a plan goes by: read from slurm.conf where there is one to
read, which costs slurmctld nothing, else from `scontrol show config`; both write Key=Value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sbtrain_perf.request import KILL_WAIT_S

BY_TIERS, BY_QOS = "partition_prio", "qos"  # by what Slurm preempts
CREDENTIAL_S = 120  # Slurm's default cred_expire
_MOST_INCLUDES = 64
_PAIR = re.compile(r"(\w+)\s*=\s*(\"[^\"]*\"|[^\s\"]+)")
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*$", re.I)
_DEFAULT_MEMORY = ("defmempernode", "defmempercpu", "defmempergpu")
_KEYS = {
    *("clustername", "authinfo", "preempttype", "tmpfs"),
    *("selecttypeparameters", *_DEFAULT_MEMORY, "killwait"),
    *("accountingstoragetype", "accountingstorageenforce", "taskplugin"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """name: ClusterName, in small letters, as Slurm has it. requeue_s: how long a requeued job
    is held. kill_wait_s: from TERM to KILL. preempt_type: "" (none), BY_TIERS or BY_QOS.
    tmp_fs: a node's folder for what jobs leave behind. limits: whether the accounting limits
    jobs. binds_cpus: a task plugin keeps tasks on cores. all_memory: jobs that ask for none are
    given all of a node's."""

    name: str = ""
    requeue_s: int = CREDENTIAL_S
    kill_wait_s: float = KILL_WAIT_S
    preempt_type: str = ""
    tmp_fs: str = "/tmp"  # noqa: S108 - Slurm's default
    limits: bool = False
    binds_cpus: bool = False
    all_memory: bool = False


NO_CONFIG = ClusterConfig()


def read_config(text: str) -> ClusterConfig:
    """Of the text of slurm.conf, its includes taken in, or of `scontrol show config`."""
    said: dict[str, str] = {}
    for line in text.splitlines():
        for key, value in _PAIR.findall(line):
            if key.lower() in _KEYS and value not in {'""', "(null)"}:
                said[key.lower()] = value.strip('"')
    # When a dead run's credential is forgotten, and so how long a requeued job is held.
    held = re.search(r"\bcred_expire=(\d+)", said.get("authinfo", ""))
    preempt = said.get("preempttype", "").lower().removeprefix("preempt/")
    return ClusterConfig(
        name=said.get("clustername", "").lower(),
        requeue_s=int(held[1]) if held else CREDENTIAL_S,
        kill_wait_s=_seconds(said.get("killwait", ""), KILL_WAIT_S),
        preempt_type="" if preempt == "none" else preempt,
        tmp_fs=said.get("tmpfs", "/tmp"),  # noqa: S108
        limits=_limits(said),
        binds_cpus="affinity" in said.get("taskplugin", "").lower(),
        all_memory="memory" in said.get("selecttypeparameters", "").lower()
        and not any(said.get(key, "0").strip("0").isdecimal() for key in _DEFAULT_MEMORY),
    )


def _seconds(text: str, otherwise: float) -> float:
    """Of `30`, or of `30 sec` as scontrol prints it."""
    return float(text) if text.isdecimal() else otherwise


def _limits(said: Mapping[str, str]) -> bool:
    if not said.get("accountingstoragetype", "").lower().endswith("slurmdbd"):
        return False
    enforced = set(said.get("accountingstorageenforce", "").lower().split(","))
    return bool(enforced & {"limits", "safe", "qos", "all"})


def configuration_text(path: Path, read: list[Path] | None = None) -> str | None:
    """slurm.conf as Slurm reads it; None where it or a part cannot be read.

    Args:
        read: is given the files that make it up.
    """
    try:
        return "\n".join(
            _lines(path, path.parent, _MOST_INCLUDES, [] if read is None else read)
        )
    except (OSError, UnicodeDecodeError, RecursionError):
        return None


def _lines(path: Path, folder: Path, depth: int, read: list[Path]) -> Iterator[str]:
    if not depth:
        raise OSError(f"{path} includes itself")
    read.append(path)
    text = path.read_text(encoding="utf-8")
    for line in re.sub(r"\\\n", " ", text).splitlines():
        said = line.partition("#")[0]
        included = _INCLUDE.match(said)
        if included:
            yield from _lines(folder / included[1], folder, depth - 1, read)
        else:
            yield said

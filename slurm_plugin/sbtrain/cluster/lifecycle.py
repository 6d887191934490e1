"""Bringing a private cluster up, healing it, looking at it, and taking it down."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from sbtrain.cluster.daemons import Daemons
from sbtrain.cluster.errors import ClusterError
from sbtrain.cluster.folder import ClusterFolder, ClusterRecord, remove_root
from sbtrain.cluster.nodes import NodeState, node_states
from sbtrain.cluster.ports import listening
from sbtrain.cluster.programs import find_programs, search_path
from sbtrain.cluster.site_file import write_site_file
from sbtrain.cluster.start import Progress, end_all, record_for, start
from sbtrain_jobs.errors import CommandError


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateCluster:
    """A running private cluster.

    Attributes:
        environment: what a child process needs to use it: SLURM_CONF, and PATH with sbin.
        seconds: how long `up` took.
        started: names of the daemons that this `up` had to start; empty when all ran.
        listens_beyond_loopback: some daemon listens on another address than 127.x as well.
    """

    folder: Path
    record: ClusterRecord
    environment: dict[str, str]
    nodes: tuple[NodeState, ...]
    seconds: float
    started: tuple[str, ...]
    listens_beyond_loopback: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonState:
    name: str
    pid: int
    running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """state: up, degraded (some daemon or node is missing) or down."""

    folder: Path
    state: str
    record: ClusterRecord | None
    daemons: tuple[DaemonState, ...]
    nodes: tuple[NodeState, ...]
    problem: str


def up(
    folder: Path,
    *,
    nodes_per_kind: int | None = None,
    accounting: bool | None = None,
    progress: Progress | None = None,
    timeout_s: float = 60.0,
) -> PrivateCluster:
    """Start the cluster of this folder, or heal it, or find it running.

    Args:
        nodes_per_kind: how many nodes c1.. and as many g1..; None keeps what the folder has.
        accounting: with slurmdbd and MariaDB; None keeps what the folder has.
        progress: told in a few words what is being waited for.
        timeout_s: for all nodes to answer.

    Raises:
        SlurmNotInstalledError: a program is missing.
        ClusterError: the folder cannot be used, or a running cluster has other options.
        ClusterStartError: a daemon or node did not come up; all that was started is ended.
    """
    begin = time.monotonic()
    say = progress or (lambda _: None)
    place = ClusterFolder.at(folder)
    recorded = place.read_record()
    wants_accounting = accounting
    if wants_accounting is None:
        wants_accounting = recorded.accounting if recorded else False
    programs = find_programs(os.environ, accounting=wants_accounting)
    place.create()
    with place.locked(say):
        before = place.read_record()
        daemons = Daemons.of(place)
        wanted = record_for(
            place, programs, before, nodes_per_kind=nodes_per_kind, accounting=accounting
        )
        if before and daemons.running() and _options(wanted) != _options(before):
            raise ClusterError(
                f"a cluster with {_options(before)} runs in {place.path}, "
                f"not one with {_options(wanted)}",
                hint=f"end it first: sbtrainctl cluster down {place.option}",
            )
        deadline = time.monotonic() + timeout_s
        result = start(daemons, wanted, programs, progress=say, deadline=deadline)
        write_site_file(place.path, nodes_per_kind=result.record.nodes_per_kind)
    return PrivateCluster(
        folder=place.path,
        record=result.record,
        environment=environment_of(result.record),
        nodes=result.nodes,
        seconds=time.monotonic() - begin,
        started=result.started,
        listens_beyond_loopback=_listens_beyond_loopback(result.record),
    )


def down(
    folder: Path, *, wipe: bool = False, progress: Progress | None = None
) -> tuple[str, ...]:
    """End all that belongs to the cluster of this folder, and nothing else.

    Jobs end with it; Slurm keeps its queue in the folder and takes it up again at the next
    `up`, unless wipe removes the folder.

    Returns:
        what was ended, as "name pid".

    Raises:
        ClusterError: the folder's record cannot be read; what runs was ended all the same.
    """
    say = progress or (lambda _: None)
    place = ClusterFolder.at(folder)
    try:
        record = place.read_record()
    except ClusterError:
        end_all(Daemons.of(place), None, say)
        raise
    if record is None:
        return end_all(Daemons.of(place), None, say)
    place.check_owner()
    with place.locked(say):
        ended = end_all(Daemons.of(place), record, say)
        remove_root(place, record.root)
        if wipe:
            shutil.rmtree(place.path)
    return ended


def status(folder: Path) -> Status:
    """Look without touching.

    Raises:
        ClusterError: the folder's record cannot be read.
    """
    place = ClusterFolder.at(folder)
    record = place.read_record()
    if record is None:
        return Status(
            folder=place.path, state="down", record=None, daemons=(), nodes=(), problem=""
        )
    daemons = Daemons.of(place)
    running = daemons.running()
    states = tuple(
        DaemonState(name=name, pid=one.pid, running=name in running)
        for name, one in daemons.known.items()
    )
    nodes: tuple[NodeState, ...] = ()
    problem = ""
    if {"munged", "slurmctld"} <= running.keys():
        try:
            programs = find_programs(os.environ, accounting=False)
            nodes = node_states(record, programs)
        except (ClusterError, CommandError) as error:
            problem = error.message
    dead = [one.name for one in states if not one.running]
    silent = [one.name for one in nodes if not one.answers]
    if not running:
        state = "down"
    elif problem or dead or silent or len(nodes) < len(record.nodes):
        state = "degraded"
        problem = problem or f"not running or not answering: {', '.join((*dead, *silent))}"
    else:
        state = "up"
    return Status(
        folder=place.path,
        state=state,
        record=record,
        daemons=states,
        nodes=nodes,
        problem=problem,
    )


def environment(folder: Path) -> dict[str, str]:
    """What a child process needs to use the running cluster of this folder.

    Raises:
        ClusterError: no cluster runs there.
    """
    place = ClusterFolder.at(folder)
    record = place.read_record()
    if record is None or "slurmctld" not in Daemons.of(place).running():
        raise ClusterError(
            f"no cluster runs in {place.path}",
            hint=f"start it: sbtrainctl cluster up {place.option}",
        )
    return environment_of(record)


def environment_of(record: ClusterRecord) -> dict[str, str]:
    # Ranks on two of its nodes are on one host: MPICH would give both nodes' shared memory one
    # name there.
    alone = {"MPIR_CVAR_NOLOCAL": "1"}
    return {"SLURM_CONF": record.conf, "PATH": search_path(os.environ), **alone}


def _options(record: ClusterRecord) -> str:
    count = f"{len(record.nodes)} nodes"
    return f"{count} and accounting" if record.accounting else count


def _listens_beyond_loopback(record: ClusterRecord) -> bool:
    heard = listening()
    dbd_port = record.ports.slurmdbd if record.accounting else 0
    addresses = {
        address
        for port in (record.ports.slurmctld, dbd_port, *record.ports.nodes.values())
        for address in heard.get(port, ())
    }
    return not all(address.startswith("127.") for address in addresses)

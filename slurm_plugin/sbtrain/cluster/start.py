"""Starting what is missing of a cluster, and ending all of it.

The order: munged (everything signs with it), the accounting daemons where they are wanted,
slurmctld, then all slurmd at once. What already runs is left alone, unless the configuration
changed or the cluster does not come to life with it: then all of it is ended and started
anew, once.
"""

from __future__ import annotations

import os
import pwd
import random
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from sbtrain.cluster.config import (
    NODES_PER_KIND,
    Description,
    cgroup_conf,
    gres_conf,
    munge_socket,
    node_names,
    slurm_conf,
)
from sbtrain.cluster.daemons import (
    Daemons,
    PortTakenError,
    daemon_environment,
    munged_argv,
    reap_children,
    slurmctld_argv,
    slurmd_argv,
    slurmd_name,
)
from sbtrain.cluster.errors import ClusterError, ClusterStartError
from sbtrain.cluster.folder import RECORD_VERSION, ClusterFolder, Ports, Record, usable_root
from sbtrain.cluster.nodes import NodeState, wait_for_nodes
from sbtrain.cluster.ports import address_of, free_ports, listening
from sbtrain.cluster.processes import Relative, end, relatives
from sbtrain.cluster.programs import Programs, release_of
from sbtrain_staging.publish import publish_bytes

_PORT_TRIES = 5
_POLL_S = 0.01
_SLURM_GRACE_S = 5.0
_DATABASE_GRACE_S = 30.0
_PATIENCE_S = 30.0  # more, for the second try of healing


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    record: Record
    nodes: tuple[NodeState, ...]
    started: tuple[str, ...]


def record_for(
    folder: ClusterFolder,
    programs: Programs,
    before: Record | None,
    *,
    nodes_per_kind: int | None,
    accounting: bool | None,
) -> Record:
    """The cluster that is wanted: as before, where nothing else is asked for."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise ClusterError(
            f"user id {os.getuid()} has no name on this host, and Slurm wants one",
            hint="add the user to /etc/passwd",
        ) from None
    if nodes_per_kind is None:
        nodes_per_kind = before.nodes_per_kind if before else NODES_PER_KIND
    if nodes_per_kind < 1:
        raise ClusterError("a cluster needs at least one node of each kind")
    if accounting is None:
        accounting = before.accounting if before else False
    nodes = node_names(nodes_per_kind)
    ports = Ports(slurmctld=0, slurmdbd=0, nodes=dict.fromkeys(nodes, 0))
    same_nodes = before is not None and before.nodes == nodes
    root = usable_root(folder, before.root if before else None)
    return Record(
        version=RECORD_VERSION,
        cluster_id=before.cluster_id if before else secrets.token_hex(16),
        created=before.created if before else datetime.now(UTC).isoformat(timespec="seconds"),
        slurm_version=programs.version,
        host=socket.gethostname().partition(".")[0],
        host_address=address_of(socket.gethostname()),
        user=user,
        root=root,
        conf=f"{root}/etc/slurm.conf",
        nodes_per_kind=nodes_per_kind,
        accounting=accounting,
        nodes=nodes,
        ports=before.ports if before and same_nodes else ports,
    )


def start(
    daemons: Daemons,
    record: Record,
    programs: Programs,
    *,
    progress: Callable[[str], None],
    deadline: float,
) -> Started:
    """Raises ClusterStartError after ending all that belongs to the cluster."""
    folder = daemons.folder
    if folder.read_record() is None:
        folder.write_record(record)
    _end_strays(daemons, record)
    if daemons.running() and _written(folder) != _texts(record):
        progress("its configuration changed: starting all of it anew")
        end_all(daemons, record)
    healing = bool(daemons.running())
    for attempt in range(_PORT_TRIES):
        try:
            return _try_start(daemons, record, programs, progress, deadline)
        except PortTakenError:
            end_all(daemons, record)
            if attempt == _PORT_TRIES - 1:
                raise
            progress("another program took a port: trying others")
        except ClusterStartError:
            end_all(daemons, record)
            if not healing:
                raise
            progress("what ran of it does not answer: starting all of it anew")
            deadline += _PATIENCE_S
        except BaseException:
            end_all(daemons, record)
            raise
        healing = False
    raise AssertionError("unreachable")


def end_all(daemons: Daemons, record: Record) -> tuple[str, ...]:
    """End every process of the cluster; returns "name pid" of each."""
    before = daemons.running()
    kin = _kin(daemons.folder, record)
    slurm = [name for name in before if name == "slurmctld" or name.startswith("slurmd.")]
    daemons.end(slurm, grace_s=_SLURM_GRACE_S)
    for name in ("slurmdbd", "mariadbd"):
        daemons.end([name], grace_s=_DATABASE_GRACE_S)
    for _ in range(10):
        left = [one for one in _kin(daemons.folder, record) if one.program != "munged"]
        if not left:
            break
        kin += left
        end([one.identity for one in left], grace_s=0, reap=reap_children)
    daemons.end(["munged"], grace_s=_SLURM_GRACE_S)
    strays = _kin(daemons.folder, record)
    end([one.identity for one in strays], grace_s=0, reap=reap_children)
    names = {one.pid: name for name, one in before.items()}
    for one in (*kin, *strays):
        names.setdefault(one.identity.pid, one.program)
    daemons.forget(list(daemons.known))
    return tuple(f"{name} {pid}" for pid, name in names.items())


def _try_start(
    daemons: Daemons,
    record: Record,
    programs: Programs,
    progress: Callable[[str], None],
    deadline: float,
) -> Started:
    folder = daemons.folder
    fresh = not daemons.running()
    count = len(record.nodes) + 2
    chance = random.SystemRandom()
    with free_ports(count, source=chance) if fresh else nullcontext() as ports:
        if ports:
            nodes = dict(zip(record.nodes, ports[2:], strict=True))
            taken = Ports(slurmctld=ports[0], slurmdbd=ports[1], nodes=nodes)
            record = replace(record, ports=taken)
        folder.create_parts(record.nodes)
        _write_configuration(folder, record)
        folder.write_record(record)
        started = _start_missing(daemons, record, programs, progress, deadline)
        nodes_now = wait_for_nodes(daemons, record, programs, deadline=deadline)
    return Started(record=record, nodes=nodes_now, started=started)


def _start_missing(
    daemons: Daemons,
    record: Record,
    programs: Programs,
    progress: Callable[[str], None],
    deadline: float,
) -> tuple[str, ...]:
    environment = daemon_environment(record, programs)
    running = daemons.running()
    started: list[str] = []
    if "munged" not in running:
        daemons.start("munged", munged_argv(daemons.folder, record, programs), environment)
        started.append("munged")
    _wait(daemons, "munged", lambda: _accepts(munge_socket(record.root)), deadline)
    if "slurmctld" not in running:
        daemons.start("slurmctld", slurmctld_argv(record, programs), environment)
        started.append("slurmctld")
    _wait(daemons, "slurmctld", lambda: record.ports.slurmctld in listening(), deadline)
    for node in record.nodes:
        if slurmd_name(node) not in running:
            argv = slurmd_argv(record, programs, node)
            daemons.start(slurmd_name(node), argv, environment)
            started.append(slurmd_name(node))
    return tuple(started)


def _wait(daemons: Daemons, name: str, ready: Callable[[], bool], deadline: float) -> None:
    while not ready():
        if name not in daemons.running():
            raise daemons.failure(name)
        if time.monotonic() > deadline:
            raise ClusterStartError(
                f"{name} does not answer", hint=f"see the logs in {daemons.folder.log}"
            )
        time.sleep(_POLL_S)


def _accepts(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(path)
        except OSError:
            return False
    return True


def _kin(folder: ClusterFolder, record: Record) -> list[Relative]:
    return relatives(cluster_id=record.cluster_id, conf=record.conf, log=folder.log)


def _end_strays(daemons: Daemons, record: Record) -> None:
    """End daemons of this cluster that the ledger does not know: left by a start that was
    itself killed, or helpers of a daemon that was."""
    sessions = {one.pid for one in daemons.running().values()}
    strays = [
        one.identity
        for one in _kin(daemons.folder, record)
        if one.kind == "daemon" and one.session not in sessions
    ]
    end(strays, grace_s=_SLURM_GRACE_S, reap=reap_children)


def _texts(record: Record) -> dict[str, str]:
    release = release_of(record.slurm_version)
    described = Description(
        slurm_version=release,
        host=record.host,
        host_address=record.host_address,
        user=record.user,
        root=record.root,
        ports=record.ports,
        accounting=record.accounting,
    )
    return {
        "slurm.conf": slurm_conf(described),
        "gres.conf": gres_conf(record.nodes),
        "cgroup.conf": cgroup_conf(release),
        "plugstack.conf": "",
    }


def _written(folder: ClusterFolder) -> dict[str, str]:
    names = ("slurm.conf", "gres.conf", "cgroup.conf", "plugstack.conf")
    return {name: text for name in names if (text := _read(folder.etc / name)) is not None}


def _write_configuration(folder: ClusterFolder, record: Record) -> None:
    for name, text in _texts(record).items():
        if _read(folder.etc / name) != text:
            publish_bytes(folder.etc / name, text.encode())
    key = folder.etc / "munge.key"
    if not key.exists():
        publish_bytes(key, secrets.token_bytes(1024))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None

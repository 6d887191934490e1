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
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from sbtrain.cluster.accounting import (
    database_is_installed,
    database_socket,
    database_sql,
    install_database,
    mariadbd_argv,
    slurmdbd_argv,
    slurmdbd_conf,
)
from sbtrain.cluster.config import (
    NODES_PER_KIND,
    configuration,
    munge_socket,
    node_names,
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
from sbtrain.cluster.folder import (
    RECORD_VERSION,
    ClusterFolder,
    ClusterRecord,
    Ports,
    usable_root,
)
from sbtrain.cluster.nodes import NodeState, wait_for_nodes
from sbtrain.cluster.ports import address_of, free_ports, listening
from sbtrain.cluster.processes import Relative, end, relatives, send
from sbtrain.cluster.programs import Programs
from sbtrain.cluster.waiting import Wait
from sbtrain_staging.publish import publish_bytes

_PORT_TRIES = 5
_POLL_S = 0.01
_SLURM_GRACE_S = 5.0
_SLURMD_GRACE_S = 1.0  # it would wait for jobs to end, and keeps nothing worth waiting for
_DATABASE_GRACE_S = 30.0
_HEALING_S = 15.0  # for what still runs to answer, before all of it is started anew
_SWEEPS = 10


Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    record: ClusterRecord
    nodes: tuple[NodeState, ...]
    started: tuple[str, ...]


def record_for(
    folder: ClusterFolder,
    programs: Programs,
    before: ClusterRecord | None,
    *,
    nodes_per_kind: int | None,
    accounting: bool | None,
) -> ClusterRecord:
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
    return ClusterRecord(
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
    record: ClusterRecord,
    programs: Programs,
    *,
    progress: Progress,
    deadline: float,
) -> Started:
    """Start what does not run.

    Args:
        deadline: reading of time.monotonic() by which all nodes must answer.

    Raises:
        ClusterStartError: after ending all that belongs to the cluster.
    """
    before = daemons.folder.read_record()
    if before is None:
        daemons.folder.write_record(record)
    _end_strays(daemons, before)
    if daemons.running() and _written(daemons.folder) != configuration(record):
        progress("its configuration changed: starting all of it anew")
        end_all(daemons, before, progress)
    healing = bool(daemons.running())
    for tries_left in reversed(range(_PORT_TRIES)):
        patience = min(deadline, time.monotonic() + _HEALING_S) if healing else deadline
        attempt = _Attempt(daemons, record, programs, progress, patience)
        try:
            return attempt.run()
        except PortTakenError:
            end_all(daemons, record, progress)
            if not tries_left:
                raise
            progress("another program took a port: trying others")
        except ClusterStartError:
            end_all(daemons, record, progress)
            if not healing:
                raise
            progress("what still ran of it does not answer: starting all of it anew")
        except BaseException:
            end_all(daemons, record, progress)
            raise
        healing = False
    raise AssertionError("the last try returns or raises")


def end_all(
    daemons: Daemons, record: ClusterRecord | None, progress: Progress
) -> tuple[str, ...]:
    """End every process of the cluster; returns "name pid" of each."""
    before = daemons.running()
    found = kin(daemons.folder, record)
    if "slurmctld" in before:
        send(before["slurmctld"], signal.SIGTERM)  # saves its state while the slurmds end
    slurmds = [name for name in before if name.startswith("slurmd.")]
    daemons.end(slurmds, grace_s=_SLURMD_GRACE_S, progress=progress)
    daemons.end(["slurmctld"], grace_s=_SLURM_GRACE_S, progress=progress)
    for name in ("slurmdbd", "mariadbd"):
        daemons.end([name], grace_s=_DATABASE_GRACE_S, progress=progress)
    for _ in range(_SWEEPS):
        left = [one for one in kin(daemons.folder, record) if one.program != "munged"]
        if not left:
            break
        found += left
        end([one.identity for one in left], grace_s=0, reap=reap_children)
    daemons.end(["munged"], grace_s=_SLURM_GRACE_S, progress=progress)
    strays = kin(daemons.folder, record)
    end([one.identity for one in strays], grace_s=0, reap=reap_children)
    names = {one.pid: name for name, one in before.items()}
    for one in (*found, *strays):
        names.setdefault(one.identity.pid, one.program)
    if daemons.known:
        daemons.forget(list(daemons.known))
    return tuple(f"{name} {pid}" for pid, name in names.items())


def kin(folder: ClusterFolder, record: ClusterRecord | None) -> list[Relative]:
    """The cluster's running processes; those that write to its logs, where nothing else is
    known of it."""
    return relatives(
        cluster_id=record.cluster_id if record else "",
        conf=record.conf if record else str(folder.etc / "slurm.conf"),
        log=folder.log,
    )


@dataclass(slots=True)
class _Attempt:
    """One try at getting all daemons to run."""

    daemons: Daemons
    record: ClusterRecord
    programs: Programs
    progress: Progress
    deadline: float
    started: list[str] = field(default_factory=list)

    def run(self) -> Started:
        folder = self.daemons.folder
        count = len(self.record.nodes) + 2
        fresh = not self.daemons.running()
        with (
            free_ports(count, source=random.SystemRandom()) if fresh else nullcontext() as ports
        ):
            if ports:
                nodes = dict(zip(self.record.nodes, ports[2:], strict=True))
                taken = Ports(slurmctld=ports[0], slurmdbd=ports[1], nodes=nodes)
                self.record = replace(self.record, ports=taken)
            folder.create_parts(self.record.nodes)
            _write_configuration(folder, self.record)
            folder.write_record(self.record)
            self._start_missing()
            states = wait_for_nodes(
                self.daemons,
                self.record,
                self.programs,
                deadline=self.deadline,
                progress=self.progress,
            )
        return Started(record=self.record, nodes=states, started=tuple(self.started))

    def _start_missing(self) -> None:
        record, programs = self.record, self.programs
        self._start("munged", munged_argv(self.daemons.folder, record, programs))
        self._wait("munged", lambda: _accepts(munge_socket(record.root)))
        if record.accounting:
            self._start_accounting()
        self._start("slurmctld", slurmctld_argv(record, programs))
        self._wait("slurmctld", lambda: record.ports.slurmctld in listening())
        for node in record.nodes:
            self._start(slurmd_name(node), slurmd_argv(record, programs, node))

    def _start_accounting(self) -> None:
        folder, record, programs = self.daemons.folder, self.record, self.programs
        if not database_is_installed(folder):
            self.progress("setting up the accounting database (once)")
            begin = time.monotonic()
            install_database(folder, record, programs)
            self.deadline += time.monotonic() - begin
        publish_bytes(folder.etc / "database.sql", database_sql().encode())
        self._start("mariadbd", mariadbd_argv(record, programs))
        self._wait("mariadbd", lambda: _accepts(database_socket(record)))
        publish_bytes(folder.etc / "slurmdbd.conf", slurmdbd_conf(record).encode())
        self._start(
            "slurmdbd", slurmdbd_argv(programs), {"MYSQL_UNIX_PORT": database_socket(record)}
        )
        # slurmctld's first start is fatal when slurmdbd does not answer yet.
        self._wait("slurmdbd", lambda: record.ports.slurmdbd in listening())

    def _start(self, name: str, argv: list[str], more: Mapping[str, str] | None = None) -> None:
        if name not in self.daemons.running():
            environment = daemon_environment(self.record, self.programs)
            self.daemons.start(name, argv, {**environment, **(more or {})})
            self.started.append(name)

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        wait = Wait(lambda: self.progress(f"waiting for {name}"))
        while not ready():
            if name not in self.daemons.running():
                raise self.daemons.failure(name)
            if time.monotonic() > self.deadline:
                raise ClusterStartError(
                    f"{name} does not answer",
                    hint=f"see the logs in {self.daemons.folder.log}",
                )
            wait.look()
            time.sleep(_POLL_S)


def _accepts(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(path)
        except OSError:
            return False
    return True


def _end_strays(daemons: Daemons, record: ClusterRecord | None) -> None:
    """End daemons of this cluster that the ledger does not know: left by a start that was
    itself killed, or helpers of a daemon that was."""
    sessions = {one.pid for one in daemons.running().values()}
    strays = [
        one.identity
        for one in kin(daemons.folder, record)
        if one.kind == "daemon" and one.session not in sessions
    ]
    end(strays, grace_s=_SLURM_GRACE_S, reap=reap_children)


def _written(folder: ClusterFolder) -> dict[str, str]:
    names = ("slurm.conf", "gres.conf", "cgroup.conf", "plugstack.conf")
    return {name: text for name in names if (text := _read(folder.etc / name)) is not None}


def _write_configuration(folder: ClusterFolder, record: ClusterRecord) -> None:
    for name, text in configuration(record).items():
        if _read(folder.etc / name) != text:
            publish_bytes(folder.etc / name, text.encode())
    key = folder.etc / "munge.key"
    if not key.exists():
        publish_bytes(key, secrets.token_bytes(1024))
    local = folder.etc / "local.conf"
    if not local.exists():
        publish_bytes(local, b"# Lines of slurm.conf of your own.\n")


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None

"""The nodes of a private cluster: their states as slurmctld tells them, crashing one and
bringing it back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sbtrain.cluster.daemons import (
    Daemons,
    daemon_environment,
    reap_children,
    slurmd_argv,
    slurmd_name,
)
from sbtrain.cluster.errors import ClusterError, ClusterStartError
from sbtrain.cluster.folder import ClusterFolder, ClusterRecord
from sbtrain.cluster.ports import listening
from sbtrain.cluster.processes import end, relatives
from sbtrain.cluster.programs import Programs, find_programs
from sbtrain.cluster.waiting import Wait
from sbtrain_jobs.errors import CommandError
from sbtrain_jobs.process import run_command

_POLL_S = 0.05
_ANSWER_S = 5.0  # a client of a dead slurmctld would hang for minutes
_SILENT = ("*", "down", "unknown", "inval", "fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node as slurmctld sees it: state in sinfo's words, reason "" when there is none."""

    name: str
    state: str
    reason: str

    @property
    def answers(self) -> bool:
        return not any(word in self.state for word in _SILENT)


def node_states(record: ClusterRecord, programs: Programs) -> tuple[NodeState, ...]:
    """Raises CommandError when slurmctld does not answer."""
    said = run_command(
        [programs.paths["sinfo"], "-h", "-N", "-o", "%N|%T|%E"],
        timeout_s=_ANSWER_S,
        env=daemon_environment(record, programs),
    ).stdout
    found: dict[str, NodeState] = {}
    for line in said.splitlines():
        name, state, reason = (part.strip() for part in line.split("|", 2))
        found[name] = NodeState(
            name=name, state=state.lower(), reason="" if reason == "none" else reason
        )
    return tuple(found.values())


def wait_for_nodes(
    daemons: Daemons,
    record: ClusterRecord,
    programs: Programs,
    *,
    deadline: float,
    progress: Callable[[str], None],
) -> tuple[NodeState, ...]:
    """Until every node listens and answers slurmctld.

    Raises:
        ClusterStartError: a daemon ended, or time.monotonic() passed the deadline.
    """
    wanted = {slurmd_name(node): port for node, port in record.ports.nodes.items()}
    last = "no answer from slurmctld"
    wait = Wait(lambda: progress("waiting for the nodes to answer"))
    while True:
        running = daemons.running()
        for name in ("munged", "slurmctld", *wanted):
            if name in daemons.known and name not in running:
                raise daemons.failure(name)
        heard = listening()
        deaf = [name for name, port in wanted.items() if name in running and port not in heard]
        if not deaf:
            try:
                states = node_states(record, programs)
            except CommandError as error:
                last = error.message
            else:
                silent = [one for one in states if not one.answers]
                if not silent and len(states) == len(wanted):
                    return states
                last = "; ".join(f"{one.name} is {one.state} {one.reason}" for one in silent)
        if time.monotonic() > deadline:
            raise ClusterStartError(
                f"the nodes are not ready: {', '.join(deaf) or last}",
                hint=f"see the logs in {daemons.folder.log}",
            )
        wait.look()
        time.sleep(_POLL_S if wait.seconds < 1 else 4 * _POLL_S)


def crash_node(folder: Path, name: str) -> tuple[int, ...]:
    """Kill a node as a power cut would: slurmd, its slurmstepds and their tasks, with SIGKILL.

    slurmctld finds out after SlurmdTimeout. start_node brings the node back.

    Returns:
        the pids that were killed.

    Raises:
        ClusterError: there is no such cluster or node.
    """
    place, record = _cluster_with(folder, name)
    daemons = Daemons.of(place)
    killed: dict[int, None] = {}
    for _ in range(10):
        victims = [
            one.identity
            for one in relatives(cluster_id=record.cluster_id, conf=record.conf, log=place.log)
            if one.node == name
        ]
        if slurmd_name(name) in daemons.running():
            victims.append(daemons.known[slurmd_name(name)])
        if not victims:
            break
        end(dict.fromkeys(victims), grace_s=0, reap=reap_children)
        killed.update(dict.fromkeys(one.pid for one in victims))
    return tuple(killed)


def start_node(folder: Path, name: str, *, timeout_s: float = 30.0) -> NodeState:
    """Start the slurmd of a crashed node and wait until it has registered with slurmctld.

    Raises:
        ClusterError: there is no such cluster or node, or it did not come back in time.
    """
    place, record = _cluster_with(folder, name)
    programs = find_programs(os.environ, accounting=False)
    deadline = time.monotonic() + timeout_s
    daemon = slurmd_name(name)
    started_at_s = 0
    with place.locked():
        daemons = Daemons.of(place)
        if daemon not in daemons.running():
            started_at_s = int(time.time())
            argv = slurmd_argv(record, programs, name)
            daemons.start(daemon, argv, daemon_environment(record, programs))
    while True:
        if daemon not in daemons.running():
            raise daemons.failure(daemon)
        with suppress(CommandError):
            if _registered_at_s(record, programs, name) >= started_at_s:
                states = {one.name: one for one in node_states(record, programs)}
                if states[name].answers:
                    return states[name]
        if time.monotonic() > deadline:
            raise ClusterStartError(
                f"node {name} did not come back within {timeout_s:g} s",
                hint=f"see {place.log}/{daemon}.log",
            )
        time.sleep(_POLL_S)


def _registered_at_s(record: ClusterRecord, programs: Programs, name: str) -> float:
    """When the slurmd that last registered as this node had started; 0 for never.

    slurmctld goes on showing a node that crashed as it was, so its state does not tell.
    """
    said = run_command(
        [programs.paths["scontrol"], "-o", "show", "node", name],
        timeout_s=_ANSWER_S,
        env=daemon_environment(record, programs),
    ).stdout
    fields = dict(item.partition("=")[::2] for item in said.split())
    try:
        return datetime.fromisoformat(fields["SlurmdStartTime"]).timestamp()
    except (KeyError, ValueError):
        return 0


def _cluster_with(folder: Path, name: str) -> tuple[ClusterFolder, ClusterRecord]:
    place = ClusterFolder.at(folder)
    record = place.read_record()
    if record is None:
        raise ClusterError(
            f"no cluster was ever started in {place.path}",
            hint=f"start one: sbtrainctl cluster up {place.option}",
        )
    if name not in record.nodes:
        raise ClusterError(f"no node {name!r}", hint=f"the nodes are {', '.join(record.nodes)}")
    return place, record

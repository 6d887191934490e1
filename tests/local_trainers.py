"""Runs the trainers of a plan as processes of this host, without Slurm and without agents.

The environment is what the node agent gives; the other end of the control channel is the
supervisor's own listener and stop machine.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue

from plans import example_plan
from preloaded import Forked, PreloadedParent
from sbtrain_jobs.layouts.ranks import counting_ranks
from sbtrain_jobs.layouts.trainer import RoleContext, role_environment
from sbtrain_jobs.node_agent.held_port import HeldPort
from sbtrain_jobs.process import end_session, run_command
from sbtrain_jobs.supervisor.stop_agreement import (
    HeldAt,
    Joined,
    SendHold,
    SendStopAfter,
    StopAsked,
    StopEvent,
    StopState,
    advance,
)
from sbtrain_jobs.wire.control import ControlEvent, ControlListener, Peer, PeerJoined, PeerSaid
from sbtrain_jobs.wire.messages import (
    Held,
    Hold,
    Message,
    PhaseDone,
    Saved,
    StepsDone,
    StopAfter,
)
from sbtrain_perf.codec import plan_to_json
from sbtrain_perf.request import DataSet, Layout, Plan, Role

WITHIN_S = 150.0


def local_plan(
    folder: Path, *, layout: Layout, workers: int, servers: int, steps: int, data: Path
) -> Plan:
    roles = [Role(name="worker", index=i, node=i) for i in range(workers)]
    if layout == "ps":
        roles = [
            Role(name="chief", index=0, node=0),
            *(Role(name="ps", index=i, node=i) for i in range(servers)),
            *(Role(name="worker", index=i, node=servers + i) for i in range(workers)),
        ]
    return example_plan(
        run_id="local-run",
        run_dir=str(folder / "local-run"),
        layout=layout,
        workers=workers,
        servers=servers,
        nodes=workers + servers,
        roles=tuple(roles),
        steps=steps,
        batch_per_worker=32,
        data=DataSet(paths=(str(data),)),
        checkpoint_dir=str(folder / "local-run" / "checkpoints"),
        checkpoint_interval_s=3600.0,
    )


@dataclass
class LocalAttempt:
    """One attempt: its processes, and what they said to the supervisor's end."""

    plan: Plan
    number: int
    script: Path
    parent: PreloadedParent
    script_args: Sequence[str] = ()
    processes: dict[int, Forked] = field(default_factory=dict)
    said: list[Message] = field(default_factory=list)
    state: StopState = field(default_factory=StopState)

    def __post_init__(self) -> None:
        self.run_dir = Path(self.plan.run_dir)
        self.logs = self.run_dir / "attempts" / str(self.number)
        self._events: Queue[ControlEvent] = Queue()
        self._peers: dict[int, Peer] = {}
        self._token = secrets.token_hex(8)
        self._listener = ControlListener(token=self._token, sink=self._events.put)
        self._ports = [HeldPort() for _ in self.plan.roles]

    def __enter__(self) -> LocalAttempt:
        self.logs.mkdir(parents=True)
        plan_path = self.run_dir / "plan.json"
        plan_path.write_text(plan_to_json(self.plan))
        for rank, role in enumerate(self.plan.roles):
            context = RoleContext(
                rank=rank,
                attempt=self.number,
                job_id="",
                plan_path=str(plan_path),
                addresses=tuple(f"127.0.0.1:{port.number}" for port in self._ports),
                data=self.plan.data.paths,
                control=f"127.0.0.1:{self._listener.port}",
                token=self._token,
            )
            environment = {**os.environ, **role_environment(self.plan, context, {})}
            with (self.logs / f"{role.name}-{role.index}.log").open("wb") as log:
                self.processes[rank] = self.parent.start(
                    self.script, *self.script_args, env=environment, output=log.fileno()
                )
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            end_session(process)
            process.wait()
        self._listener.close()
        for port in self._ports:
            port.release()

    def log(self, rank: int) -> str:
        role = self.plan.roles[rank]
        return (self.logs / f"{role.name}-{role.index}.log").read_text(errors="replace")

    def close_listener(self) -> None:
        """The supervisor dies."""
        self._listener.close()

    def watch_until_step(self, step: int) -> None:
        """Return once a trainer has reported that step."""
        self._watch(lambda: any(s.first + len(s.seconds) > step for s in self.steps_done()))

    def ask_to_stop(self) -> None:
        self._advance(StopAsked(reason="preempted"))

    def wait(self) -> dict[int, int]:
        """Exit codes of those that count steps, by rank, once all have ended."""
        counting = counting_ranks(self.plan)
        self._watch(lambda: all(self.processes[r].poll() is not None for r in counting))
        time.sleep(0.2)
        self._watch(self._events.empty)
        return {rank: self.processes[rank].returncode for rank in counting}

    def parked(self) -> set[int]:
        """Ranks of servers and workers that only serve."""
        return set(self.processes) - counting_ranks(self.plan)

    def signal_as_slurm(self, number: signal.Signals) -> None:
        """Signal every trainer from a process that is not their parent."""
        for process in self.processes.values():
            run_command(["kill", f"-{number.value}", str(process.pid)], timeout_s=10)

    def end_parked(self, number: signal.Signals) -> dict[int, int]:
        """Signal servers and workers as the agent does; their exit codes by rank."""
        for rank in self.parked():
            self.processes[rank].send_signal(number)
        return {rank: self.processes[rank].wait(timeout=10) for rank in self.parked()}

    def steps_done(self) -> list[StepsDone]:
        return [m for m in self.said if isinstance(m, StepsDone)]

    def phases(self, name: str) -> list[PhaseDone]:
        return [m for m in self.said if isinstance(m, PhaseDone) and m.name == name]

    def saved(self) -> list[Saved]:
        return [m for m in self.said if isinstance(m, Saved)]

    def _watch(self, done: Callable[[], bool]) -> None:
        end_s = time.monotonic() + WITHIN_S
        while not done():
            if time.monotonic() > end_s:
                logs = "\n".join(self.log(rank)[-2000:] for rank in self.processes)
                raise AssertionError(f"not done within {WITHIN_S:g} s:\n{logs}")
            try:
                self._take(self._events.get(timeout=0.1))
            except Empty:
                continue

    def _take(self, event: ControlEvent) -> None:
        if isinstance(event, PeerJoined) and event.peer.hello.rank in counting_ranks(self.plan):
            self._peers[event.peer.hello.rank] = event.peer
            self._advance(Joined(rank=event.peer.hello.rank))
        elif isinstance(event, PeerSaid):
            self.said.append(event.message)
            if isinstance(event.message, Held):
                self._advance(HeldAt(rank=event.message.rank, step=event.message.step))

    def _advance(self, event: StopEvent) -> None:
        self.state, actions = advance(self.state, event)
        for action in actions:
            if isinstance(action, SendHold):
                self._listener.send(self._peers[action.rank], Hold(reason=action.reason))
            elif isinstance(action, SendStopAfter):
                self._listener.send(self._peers[action.rank], StopAfter(step=action.step))

"""The node agent: a task of srun, one a node or, where ranks meet through MPI, one a rank.
Holds ports, starts its trainers, reports their ends, ends them when told to or when the
supervisor is gone.

    python -P -m sbtrain_jobs.node_agent PLAN_JSON
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping

from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.hostlist import expand
from sbtrain_jobs.layouts.proxies import around_proxies
from sbtrain_jobs.layouts.ranks import agent_node, agents, by_mpi, chief_rank, role_name
from sbtrain_jobs.layouts.slurm_task import task_environment
from sbtrain_jobs.layouts.trainer import RoleContext, role_environment
from sbtrain_jobs.node_agent.cpu_share import allowed_cores, kept_on, own_cpus, thread_variables
from sbtrain_jobs.node_agent.held_port import HeldPort
from sbtrain_jobs.node_agent.left_segments import remove_left_segments
from sbtrain_jobs.node_agent.own_requeue import command_path
from sbtrain_jobs.node_agent.pulse import has_accelerators, pulse
from sbtrain_jobs.node_agent.temporary import temporary_folder
from sbtrain_jobs.node_agent.trainer_command import (
    first_line,
    import_path,
    trainer_argv,
    uses_training_api,
)
from sbtrain_jobs.node_agent.trainer_process import TrainerProcess
from sbtrain_jobs.node_agent.trainer_streams import LogFile, TrainerStreams
from sbtrain_jobs.run_folder import RunFolder
from sbtrain_jobs.signals import catch, notice_signals, signal_named
from sbtrain_jobs.staged_data import staged_paths
from sbtrain_jobs.wire.messages import (
    Finish,
    Hello,
    Look,
    Message,
    Notice,
    Ready,
    RoleEnded,
    Start,
)
from sbtrain_jobs.wire.messages import from_line as message_from_line
from sbtrain_jobs.wire.reach import connect_first, send_message
from sbtrain_perf.codec import read_plan
from sbtrain_perf.errors import SbtrainError
from sbtrain_perf.request import Plan
from sbtrain_perf.wording import count

REACH_WITHIN_S = 45.0
LOOK_EVERY_S = 0.1
ORPHAN_GRACE_S = 5.0  # the supervisor is gone: so is the job, in a moment
NOT_STARTED = 127


class SupervisorGone:
    """The control connection is closed."""


class Agent:
    """One task's part of one attempt."""

    def __init__(self, plan: Plan, plan_path: str, environ: Mapping[str, str]) -> None:
        self._plan = plan
        self._plan_path = plan_path
        self._environ = environ
        self._number = agent_number(plan, environ)
        self._node = agent_node(plan, self._number)
        self._name = environ.get("SLURMD_NODENAME") or socket.gethostname()
        self._attempt = int(environ["SBTRAIN_ATTEMPT"])
        self._folder = RunFolder.of(plan).attempt(self._attempt)
        self._ranks = agents(plan)[self._number]
        self._signals = notice_signals(plan.preemption_signal)
        self._received: set[int] = set()
        self._events: queue.SimpleQueue[Message | int | SupervisorGone]
        self._events = queue.SimpleQueue()
        self._ports: list[HeldPort] = []
        self._trainers: list[TrainerProcess] = []
        self._reported: set[int] = set()
        self._ignored: tuple[signal.Signals, ...] = ()
        self._data: tuple[str, ...] = ()
        self._temporary: dict[str, str] = {}

    def run(self) -> int:
        """Exit status: 0 once told to finish and everything here has ended."""
        catch(self._signals, self._events.put)
        self._ports = [HeldPort() for _ in self._ranks]
        self._data = staged_paths(
            self._plan, self._folder, node=self._node, node_name=self._name
        )
        stream, self._control = connect_first(
            self._environ["SBTRAIN_CONTROL"], within_s=REACH_WITHIN_S
        )
        with contextlib.closing(stream):
            self._stream = stream
            self._say(
                Hello(
                    who="agent",
                    token=self._environ["SBTRAIN_TOKEN"],
                    node=self._node,
                    node_name=self._name,
                    agent=self._number,
                    pid=os.getpid(),
                )
            )
            self._say(
                Ready(
                    agent=self._number,
                    host=stream.getsockname()[0],
                    ports=tuple(port.number for port in self._ports),
                    data=self._data,
                )
            )
            threading.Thread(target=self._listen, name="control", daemon=True).start()
            if by_mpi(self._plan):  # while the others meet
                remove_left_segments()
            with temporary_folder(self._plan, self._folder.path, self._environ) as gained:
                self._temporary = gained
                try:
                    return self._serve()
                finally:
                    self._end_all(grace_s=0.0)

    def _listen(self) -> None:
        try:
            with self._stream.makefile("rb") as lines:
                for line in lines:
                    self._events.put(message_from_line(line))
        except (OSError, ValueError):
            pass
        self._events.put(SupervisorGone())

    def _serve(self) -> int:
        finishing = False
        while True:
            try:
                event = self._events.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                event = None
            match event:
                case Start() if not self._trainers and not finishing:
                    self._start(event)
                case Look():
                    self._say_pulses()
                case Finish():
                    finishing = True
                    self._finish(event)
                case int():
                    self._received.add(event)
                    self._say(Notice(node=self._node, signal=signal.Signals(event).name))
                case SupervisorGone():
                    if finishing and not self._running():
                        return 0
                    sys.stderr.write(
                        f"sbtrain: warning: {self._name}: no connection to the supervisor any "
                        "more; ending trainers\n"
                    )
                    self._end_all(grace_s=ORPHAN_GRACE_S)
                    return LaunchError.exit_code
            self._report_ended()
            if finishing and not self._running():
                return 0

    def _start(self, told: Start) -> None:
        shebang = first_line(self._plan.script)
        if uses_training_api(self._plan.script):
            self._ignored = tuple(n for n in self._signals if n != signal.SIGTERM)
        argv = trainer_argv(
            self._plan.script,
            self._plan.script_args,
            shebang=shebang,
            python=sys.executable,
            environ=self._environ,
        )
        for rank, port in zip(self._ranks, self._ports, strict=True):
            context = RoleContext(
                rank=rank,
                attempt=self._attempt,
                job_id=self._environ.get("SLURM_JOB_ID", ""),
                plan_path=self._plan_path,
                addresses=told.addresses,
                data=self._data,
                control=self._control,
                token=self._environ["SBTRAIN_TOKEN"],
                accelerators=has_accelerators(),
            )
            if rank == chief_rank(self._plan):
                port.share()
            try:
                self._trainers.append(self._trainer(rank, argv, context, told))
            except (OSError, SbtrainError) as error:
                hint = getattr(error, "hint", None)
                sys.stderr.write(
                    f"sbtrain: error: {self._name}: cannot start "
                    f"{role_name(self._plan.roles[rank])}: {error}\n"
                    + (f"sbtrain: {hint}\n" if hint else "")
                )
                self._reported.add(rank)
                self._say(RoleEnded(rank=rank, returncode=NOT_STARTED))

    def _trainer(
        self, rank: int, argv: tuple[str, ...], context: RoleContext, told: Start
    ) -> TrainerProcess:
        plan, environ = self._plan, self._environ
        with kept_on(own_cpus(plan, rank, environ, cores=allowed_cores())):
            return TrainerProcess(
                argv,
                rank=rank,
                streams=self._streams(rank, told),
                environment={
                    **task_environment(plan, rank, environ),
                    **thread_variables(plan, rank, environ),
                    **around_proxies(environ, self._hosts(told)),
                    **self._temporary,
                    **role_environment(plan, context, environ),
                    **import_path(plan, environ),
                    **command_path(self._folder, environ),
                },
                ignored_signals=self._ignored,
                descriptors=launchers_descriptors(environ),
            )

    def _hosts(self, told: Start) -> tuple[str, ...]:
        """Of the run, by address and by name."""
        addresses = (address.rpartition(":")[0] for address in told.addresses)
        names = expand(self._environ.get("SLURM_STEP_NODELIST", ""))
        return (*dict.fromkeys(addresses), *names)

    def _streams(self, rank: int, told: Start) -> TrainerStreams:
        """The chief's are the job's: where these are two, its log is two files as well."""
        name = role_name(self._plan.roles[rank])
        log = self._folder.trainer_log(name)
        if rank != chief_rank(self._plan):
            return TrainerStreams(stdin=told.stdin, stdout=LogFile(path=log))
        stderr = LogFile(path=self._folder.trainer_errors(name), copy_to=sys.stderr.buffer)
        return TrainerStreams(
            stdin=told.stdin,
            stdout=LogFile(path=log, copy_to=sys.stdout.buffer),
            stderr=stderr if told.stderr_apart else None,
        )

    def _report_ended(self) -> None:
        self._look_at_trainers()
        for trainer in self._trainers:
            if trainer.returncode is not None and trainer.rank not in self._reported:
                self._reported.add(trainer.rank)
                self._say(RoleEnded(rank=trainer.rank, returncode=trainer.returncode))

    def _say_pulses(self) -> None:
        for trainer in self._trainers:
            if trainer.returncode is None:
                self._say(pulse(trainer.rank, trainer.pid))

    def _running(self) -> bool:
        return any(trainer.returncode is None for trainer in self._trainers)

    def _look_at_trainers(self) -> bool:
        """Whether any still runs."""
        for trainer in self._trainers:
            trainer.look()
        return self._running()

    def _finish(self, told: Finish) -> None:
        first = signal_named(told.signal) if told.signal else None
        for trainer in self._trainers:
            if first is None:
                trainer.end(grace_s=told.grace_s)
            else:
                # Slurm signals all processes of a step: theirs came when ours did.
                trainer.end_after(
                    first, grace_s=told.grace_s, delivered=first in self._received
                )

    def _end(self, *, grace_s: float) -> None:
        for trainer in self._trainers:
            trainer.end(grace_s=grace_s)

    def _end_all(self, *, grace_s: float) -> None:
        """End every trainer here and wait for it; nothing is reported."""
        self._end(grace_s=grace_s)
        while self._look_at_trainers():
            time.sleep(LOOK_EVERY_S)
        for port in self._ports:
            port.release()

    def _say(self, message: Message) -> None:
        # A supervisor that is gone is noticed by the listening thread.
        with contextlib.suppress(OSError):
            send_message(self._stream, message)


def agent_number(plan: Plan, environ: Mapping[str, str]) -> int:
    """Which of the plan's agents this task of the step is.

    Raises:
        LaunchError: the step does not have the plan's tasks on the plan's nodes.
    """
    try:
        node, nodes = int(environ["SLURM_NODEID"]), int(environ["SLURM_STEP_NUM_NODES"])
        task, tasks = int(environ["SLURM_PROCID"]), int(environ["SLURM_STEP_NUM_TASKS"])
    except (KeyError, ValueError) as error:
        raise LaunchError(
            f"the agent was not started by srun: {error} is not usable",
            hint="the supervisor starts it; do not run it by hand",
        ) from None
    number, wanted = task if by_mpi(plan) else node, len(agents(plan))
    if (nodes, tasks) != (plan.nodes, wanted) or agent_node(plan, number) != node:
        raise LaunchError(
            f"the step has {count(tasks, 'task')} on {count(nodes, 'node')}, the plan has "
            f"{count(wanted, 'agent')} on {count(plan.nodes, 'node')}, and this is task {task} "
            f"on node {node}",
            hint="do not set SLURM_ or SRUN_ variables in the job that change a step's shape",
        )
    return number


def launchers_descriptors(environ: Mapping[str, str]) -> tuple[int, ...]:
    """Open files by which MPI in a trainer talks to the launcher that started its agent."""
    number = environ.get("PMI_FD", "")
    return (int(number),) if number.isdecimal() else ()


def main(argv: list[str]) -> int:
    try:
        return Agent(read_plan(argv[0]), argv[0], dict(os.environ)).run()
    except SbtrainError as error:
        hint = f"\nsbtrain: {error.hint}" if error.hint else ""
        sys.stderr.write(f"sbtrain: error: {error.message}{hint}\n")
        return error.exit_code

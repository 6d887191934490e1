"""What an attempt is made of, and its own steps, one after another: staging, then the agents.
None outlives it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from sbtrain_jobs.ending.cause import CauseInquiry
from sbtrain_jobs.layouts.environment import RESUME_UP_TO
from sbtrain_jobs.layouts.ranks import by_mpi
from sbtrain_jobs.node_agent.own_requeue import write_command
from sbtrain_jobs.record.run_record import RunRecord
from sbtrain_jobs.run_folder import AttemptFolder
from sbtrain_jobs.slurm_job import SlurmJob
from sbtrain_jobs.supervisor.events import Events
from sbtrain_jobs.supervisor.mpi_launch import MpiLaunch, mpi_launch
from sbtrain_jobs.supervisor.srun_commands import (
    agent_command,
    srun_environment,
    staging_command,
    step_shape,
)
from sbtrain_jobs.supervisor.srun_step import SlurmStep
from sbtrain_jobs.training.checkpoint import CheckpointStore
from sbtrain_perf.request import Plan

END_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """plan_path: the plan's file; every node must be able to read it. environ: of the batch
    step, for what we start ourselves. binds_cpus: the cluster keeps tasks on cores. token: lets
    a process in."""

    plan: Plan
    plan_path: str
    job: SlurmJob
    number: int
    folder: AttemptFolder
    record: RunRecord
    events: Events
    inquiry: CauseInquiry
    environ: Mapping[str, str]
    binds_cpus: bool
    token: str


class AttemptSteps:
    """Starts them with the batch script's environment and what is added to it."""

    def __init__(self, attempt: Attempt) -> None:
        self._plan = attempt.plan
        self._plan_path = attempt.plan_path
        self._folder = attempt.folder
        before = CheckpointStore(attempt.plan.checkpoint_dir).steps()
        own = {
            "SBTRAIN_ATTEMPT": str(attempt.number),
            "SBTRAIN_TOKEN": attempt.token,
            RESUME_UP_TO: str(max(before, default=0)),
        }
        self._environ = {**srun_environment(attempt.environ), **own}
        self._shape = step_shape(attempt.environ, binds_cpus=attempt.binds_cpus)
        self._sink = attempt.events.put
        self._current: SlurmStep | None = None

    @property
    def running(self) -> bool:
        return self._current is not None

    def start_staging(self) -> None:
        assert self._plan.scratch_path is not None
        argv = staging_command(
            self._plan,
            self._shape,
            python=sys.executable,
            report=str(self._folder.staging_report),
            events=str(self._folder.staging_events),
            scratch=self._plan.scratch_path,
        )
        self._start("staging", argv)

    def start_agents(self, *, control: str) -> None:
        """control: addresses at which the supervisor listens.

        Raises:
            LaunchError: the ranks would not meet through MPI, or the run folder takes no file.
        """
        write_command(self._folder, python=sys.executable)
        mpi = MpiLaunch(plugin="none")
        if by_mpi(self._plan) and len(self._plan.roles) > 1:
            mpi = mpi_launch(self._plan, self._environ)
        argv = agent_command(
            self._plan,
            self._shape,
            python=sys.executable,
            plan_path=self._plan_path,
            mpi=mpi.plugin,
        )
        self._start("agents", argv, SBTRAIN_CONTROL=control, **mpi.variables)

    def ended(self) -> None:
        """StepEnded has come."""
        self._current = None

    def end(self) -> None:
        """Ask the current step to end."""
        if self._current is not None:
            self._current.end()

    def close(self) -> None:
        if self._current is None:
            return
        self._current.end()
        if not self._current.join(END_WITHIN_S):
            self._current.kill()
            self._current.join(END_WITHIN_S)

    def _start(self, name: str, argv: tuple[str, ...], **more: str) -> None:
        environment = {**self._environ, **more}
        self._current = SlurmStep(name, argv, environment=environment, sink=self._sink)

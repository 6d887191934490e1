"""The steps of an attempt, one after another: staging, then the agents. None outlives it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from sbtrain_jobs.run_folder import AttemptFolder
from sbtrain_jobs.supervisor.srun_commands import agent_command, staging_command
from sbtrain_jobs.supervisor.srun_step import SlurmStep, StepEnded
from sbtrain_perf.request import Plan

END_WITHIN_S = 5.0


class AttemptSteps:
    """Starts them with the batch script's environment and what is added to it."""

    def __init__(
        self,
        plan: Plan,
        plan_path: str,
        folder: AttemptFolder,
        *,
        environ: Mapping[str, str],
        sink: Callable[[StepEnded], None],
    ) -> None:
        self._plan = plan
        self._plan_path = plan_path
        self._folder = folder
        self._environ = environ
        self._sink = sink
        self._current: SlurmStep | None = None

    @property
    def running(self) -> bool:
        return self._current is not None

    def start_staging(self) -> None:
        assert self._plan.scratch_path is not None
        argv = staging_command(
            self._plan,
            python=sys.executable,
            report=str(self._folder.staging_report),
            events=str(self._folder.staging_events),
            scratch=self._plan.scratch_path,
        )
        self._start("staging", argv)

    def start_agents(self, *, control: str) -> None:
        """control: addresses at which the supervisor listens."""
        argv = agent_command(self._plan, python=sys.executable, plan_path=self._plan_path)
        self._start("agents", argv, SBTRAIN_CONTROL=control)

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

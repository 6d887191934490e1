"""The staging of an attempt: its step, one more try where that is worth it, and what a step
that failed means in words and as an exit code."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

from sbtrain_jobs.run_folder import AttemptFolder
from sbtrain_jobs.supervisor.attempt_steps import AttemptSteps
from sbtrain_jobs.supervisor.trainer_log import how_it_ended
from sbtrain_perf.request import Plan
from sbtrain_perf.wording import count, size

_NOT_BEGUN = 1  # of srun, where it could start nothing


class Staging:
    def __init__(
        self,
        plan: Plan,
        folder: AttemptFolder,
        *,
        steps: AttemptSteps,
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._steps = steps
        self._say = say
        self._again = False

    def begin(self) -> None:
        data, nodes = size(self._plan.data.total_bytes), count(self._plan.nodes, "node")
        self._say(f"staging {data} to {nodes}")
        self._steps.start_staging()

    def begins_again(self, returncode: int) -> bool:
        """One more try where a rank of staging died without a word."""
        if self._again or not may_succeed_again(self._folder, returncode=returncode):
            return False
        self._again = True
        self._say(f"staging {how_it_ended(returncode)}: a rank died; once more")
        self.begin()
        return True

    def in_place(self, returncode: int, nodes: Sequence[str]) -> bool:
        """Whether the run goes on without staging: it failed, was not killed, and not by fault
        of the data."""
        from sbtrain_staging.errors import ScratchError, WorldError

        code, words = why_failed(self._folder, returncode=returncode, nodes=nodes)
        if code not in (ScratchError.exit_code, WorldError.exit_code, _NOT_BEGUN):
            return False
        self._folder.unstaged.touch()
        self._say(f"warning: {words}; every node reads the data where it lies instead")
        return True


def may_succeed_again(folder: AttemptFolder, *, returncode: int) -> bool:
    """Whether a staging step that failed is worth another try: a rank was killed, and no
    rank came to say what was wrong. What has arrived is kept, and not fetched again."""
    from sbtrain_staging.ranks.meeting import waited_in_vain
    from sbtrain_staging.reports.run_report import read_failed_code

    report = folder.staging_report
    killed = returncode > 128 and returncode != 128 + signal.SIGALRM
    return killed and not waited_in_vain(report) and read_failed_code(report) is None


def why_failed(
    folder: AttemptFolder, *, returncode: int, nodes: Sequence[str] = ()
) -> tuple[int, str]:
    """The exit code of a staging step that failed, in staging's own words, and what to say.

    Args:
        returncode: the exit status of srun, the highest of all ranks: 137 where Slurm had to
            kill one after another had failed.
        nodes: of the attempt.
    """
    from sbtrain_staging.errors import WorldError
    from sbtrain_staging.ranks.meeting import MEETING_LIMIT_S, waited_in_vain
    from sbtrain_staging.ranks.world import LAUNCH_HINT
    from sbtrain_staging.reports.run_report import read_failed_code

    code = read_failed_code(folder.staging_report)
    waited = waited_in_vain(folder.staging_report)
    if code is None and (waited or returncode == 128 + signal.SIGALRM):
        missed = f"the ranks of staging did not meet within {MEETING_LIMIT_S} s"
        absent = [node for node in nodes if node not in waited]
        if waited and absent:
            return WorldError.exit_code, (
                f"{missed}: {', '.join(absent)} did not come, or stood still; look at that "
                f"node, or leave it out (--exclude={','.join(absent)})"
            )
        return WorldError.exit_code, (
            f"{missed}: the site's mpi_plugin and the MPI library may not belong together; "
            f"{LAUNCH_HINT}"
        )
    code = returncode if code is None else code
    return code, f"staging {how_it_ended(code)}"

"""What a staging step that failed means: one more try, or which words and exit code."""

from __future__ import annotations

import signal

from sbtrain_jobs.run_folder import AttemptFolder
from sbtrain_jobs.supervisor.trainer_log import how_it_ended


def may_succeed_again(folder: AttemptFolder, *, returncode: int) -> bool:
    """Whether a staging step that failed is worth another try: a rank was killed, and no
    rank came to say what was wrong. What has arrived is kept, and not fetched again."""
    from sbtrain_staging.reports.run_report import read_failed_code

    killed = returncode > 128 and returncode != 128 + signal.SIGALRM
    return killed and read_failed_code(folder.staging_report) is None


def why_failed(folder: AttemptFolder, *, returncode: int) -> tuple[int, str]:
    """The exit code of a staging step that failed, in staging's own words, and what to say.

    Args:
        returncode: the exit status of srun, the highest of all ranks: 137 where Slurm had to
            kill one after another had failed.
    """
    from sbtrain_staging.errors import WorldError
    from sbtrain_staging.ranks.world import LAUNCH_HINT, MEETING_LIMIT_S
    from sbtrain_staging.reports.run_report import read_failed_code

    code = read_failed_code(folder.staging_report)
    if code is None and returncode == 128 + signal.SIGALRM:
        return WorldError.exit_code, (
            f"the ranks of staging did not meet within {MEETING_LIMIT_S} s: the site's "
            f"mpi_plugin and the MPI library may not belong together; {LAUNCH_HINT}"
        )
    code = returncode if code is None else code
    return code, f"staging {how_it_ended(code)}"

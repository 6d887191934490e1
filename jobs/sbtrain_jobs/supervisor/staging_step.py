"""Where the data set is on a node: read from the staging report, by the node's name."""

from __future__ import annotations

import signal
from pathlib import Path

from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.node_agent.trainer_log import how_it_ended
from sbtrain_perf.request import Plan

REPORT_NAME = "stage.json"
EVENTS_NAME = "events.jsonl"


def wants_staging(plan: Plan) -> bool:
    return bool(plan.data.paths) and bool(plan.scratch_path)


def may_succeed_again(folder: Path, *, returncode: int) -> bool:
    """Whether a staging step that failed is worth another try: a rank was killed, and no
    rank came to say what was wrong. What has arrived is kept, and not fetched again."""
    from sbtrain_staging.reports.run_report import read_failed_code

    killed = returncode > 128 and returncode != 128 + signal.SIGALRM
    return killed and read_failed_code(folder / REPORT_NAME) is None


def why_failed(folder: Path, *, returncode: int) -> tuple[int, str]:
    """The exit code of a staging step that failed, in staging's own words, and what to say.

    Args:
        returncode: the exit status of srun, the highest of all ranks: 137 where Slurm had to
            kill one after another had failed.
    """
    from sbtrain_staging.errors import WorldError
    from sbtrain_staging.ranks.world import LAUNCH_HINT, MEETING_LIMIT_S
    from sbtrain_staging.reports.run_report import read_failed_code

    code = read_failed_code(folder / REPORT_NAME)
    if code is None and returncode == 128 + signal.SIGALRM:
        return WorldError.exit_code, (
            f"the ranks of staging did not meet within {MEETING_LIMIT_S} s: the site's "
            f"mpi_plugin and the MPI library may not belong together; {LAUNCH_HINT}"
        )
    code = returncode if code is None else code
    return code, f"staging {how_it_ended(code)}"


def staged_paths(plan: Plan, folder: Path, *, node: int, node_name: str) -> tuple[str, ...]:
    """The paths a trainer of this node reads, in the order of plan.data.paths.

    Without node-local scratch these are the paths of the plan itself.

    Args:
        folder: of the attempt, where the report lies.

    Raises:
        LaunchError: the report does not name this node.
        StagingError: there is no readable report.
    """
    if not wants_staging(plan):
        return plan.data.paths
    from sbtrain_staging.reports.run_report import read_report

    report = read_report(folder / REPORT_NAME)
    for entry in report.nodes:
        if entry.node == node_name:
            return tuple(entry.paths)
    raise LaunchError(
        f"node {node} ({node_name}) is not in the staging report {folder / REPORT_NAME}",
        hint="stage on the nodes of this attempt; a report of an earlier attempt is of no use",
    )

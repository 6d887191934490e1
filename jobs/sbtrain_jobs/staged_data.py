"""Where the data set is on a node: read from the staging report, by the node's name."""

from __future__ import annotations

from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.run_folder import AttemptFolder
from sbtrain_perf.request import Plan


def wants_staging(plan: Plan) -> bool:
    return bool(plan.data.paths) and bool(plan.scratch_path)


def staged_paths(
    plan: Plan, folder: AttemptFolder, *, node: int, node_name: str
) -> tuple[str, ...]:
    """The paths a trainer of this node reads, in the order of plan.data.paths.

    Without node-local scratch, or where staging failed, these are the paths of the plan.

    Args:
        folder: of the attempt, where the report lies.

    Raises:
        LaunchError: the report does not name this node.
        StagingError: there is no readable report.
    """
    if not wants_staging(plan) or folder.unstaged.exists():
        return plan.data.paths
    from sbtrain_staging.reports.run_report import read_report

    report = read_report(folder.staging_report)
    for entry in report.nodes:
        if entry.node == node_name:
            return tuple(entry.paths)
    raise LaunchError(
        f"node {node} ({node_name}) is not in the staging report {folder.staging_report}",
        hint="stage on the nodes of this attempt; a report of an earlier attempt is of no use",
    )

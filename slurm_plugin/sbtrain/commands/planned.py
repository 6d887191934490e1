"""A call that asks for training: read, warned of, planned, and explained or handed over."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

from sbtrain.commands.sending import hand_over
from sbtrain.commands.streams import screen_width, told_while_slow
from sbtrain.commands.telling import tell, warn
from sbtrain.errors import ScriptError, SlurmRejectedError
from sbtrain.options.argv import CommandLine, Setting, given
from sbtrain.options.pass_through import keep
from sbtrain.options.unknown_options import unknown_options_named
from sbtrain.slurm.client import SlurmClient
from sbtrain.slurm.outer_job import to_submit_from
from sbtrain.slurm.pyslurm_client import client_for
from sbtrain.slurm.refusals import of_partition
from sbtrain.submission.asked import Asked
from sbtrain.submission.job_script import refuse_own
from sbtrain.submission.lint import Surrounding, lint
from sbtrain.submission.notes import launch_note, plan_notes, script_notes
from sbtrain.submission.planning import Planned, decide, no_plan
from sbtrain.submission.read_call import (
    LeftToSbatchError,
    Surroundings,
    read_call,
    surroundings,
)
from sbtrain_jobs.slurm_calls import as_started_with
from sbtrain_perf.errors import SbtrainError
from sbtrain_perf.request import slurm_partition


def plan_and_submit(line: CommandLine, environ: Mapping[str, str]) -> int | None:
    """The exit status; None where the script itself says that sbatch is to have it. Otherwise
    a script on standard input is used up, as by sbatch."""
    status: int | None = 0
    try:
        status = _plan_and_submit(line, environ)
        return status
    finally:
        if status is not None and line.script is None and line.wrap is None:
            with suppress(OSError):  # a file, of which nothing is left for who reads on
                os.lseek(0, 0, os.SEEK_END)


def _plan_and_submit(line: CommandLine, environ: Mapping[str, str]) -> int | None:
    around = surroundings(environ)
    with suppress(ScriptError, OSError):  # sbatch may read it too
        keep(line.script)
    try:
        with unknown_options_named(line):
            asked = read_call(line, around)
    except LeftToSbatchError as why:
        warn([f"{why}: sbatch gets the call as it is"], who="sbtrain", strict=False)
        return 0 if line.shows_only else None
    if asked.options.launch == "none":
        if asked.options.dry_run or asked.options.explain:
            tell(["sbatch gets the call as it is; nothing is planned"], who="sbtrain")
            return 0
        return None
    refuse_own(asked.script)
    client = _client(environ)
    outcome = _planned(asked, line, around, client)
    if asked.options.explain:
        from sbtrain_perf.explain import plan_table

        sys.stdout.write(plan_table(outcome.decision, outcome.shape, width=screen_width()))
        return 0 if outcome.decision.chosen else no_plan(outcome.decision).exit_code
    if outcome.decision.chosen is None:
        raise no_plan(outcome.decision)
    try:
        return hand_over(client, outcome.asked, outcome.decision.chosen, environ=environ)
    except SlurmRejectedError as error:
        if asked.request.partition or not outcome.asked.opened or not of_partition(error):
            raise
        return _elsewhere(asked, around, client, outcome, error)


def _elsewhere(
    asked: Asked,
    around: Surroundings,
    client: SlurmClient,
    outcome: Planned,
    first: SlurmRejectedError,
) -> int:
    """Slurm refuses the job in the partition that the plan chose: the next best one has it."""
    closed: dict[str, str] = {}
    refused, said = first, outcome.warnings
    plan = outcome.decision.chosen
    while plan is not None:
        closed[slurm_partition(plan.partition)] = refused.message
        outcome = decide(asked, around, client, closed=closed)
        plan = outcome.decision.chosen
        if plan is None or slurm_partition(plan.partition) in closed:
            break
        new = [one for one in outcome.warnings if one not in said]
        warn(new, who="sbtrain", strict=asked.options.strict)
        said = outcome.warnings
        try:
            return hand_over(client, outcome.asked, plan, environ=around.environ)
        except SlurmRejectedError as error:
            if not of_partition(error):
                raise
            refused = error
    raise first


def _planned(
    asked: Asked, line: CommandLine, around: Surroundings, client: SlurmClient
) -> Planned:
    """Plan it, and say what the user should know."""
    strict, talks = asked.options.strict, not given(asked.settings, "quiet")
    call = (asked.script, asked.directives, asked.settings, line)
    place = Surrounding(
        cwd=around.cwd, environ=around.environ, slurm=_release(client, asked.settings)
    )
    found = list(lint(*call, place))
    warn(found, who="sbtrain", strict=strict)
    if talks:
        tell(script_notes(asked, line), who="sbtrain")
    with told_while_slow("weighing plans, and asking Slurm about its queue"):
        outcome = decide(asked, around, client)
    chosen = outcome.decision.chosen
    later = [one for one in lint(*call, place, plan=chosen) if one not in found]
    warn([*later, *outcome.warnings], who="sbtrain", strict=strict)
    if talks and chosen:
        how = launch_note(outcome.asked, each=chosen.workers_per_node)
        tell([how, *outcome.notes], who="sbtrain")
        tell(plan_notes(chosen, asked.settings), who="sbtrain")
        if not asked.options.explain and outcome.asked.opened:
            tell(outcome.decision.risks, who="sbtrain")
    return outcome


def _release(client: SlurmClient, settings: Sequence[Setting]) -> tuple[int, int] | None:
    """Slurm's, where the warnings depend on it."""
    if not given(settings, "cpus-per-task"):
        return None
    try:
        version = client.version()
    except SbtrainError:
        return None
    return version.year, version.month


def _client(environ: Mapping[str, str]) -> SlurmClient:
    """sbtrain itself waits for a job, so that its id is known at once."""
    own = to_submit_from(as_started_with(environ))
    own = {name: value for name, value in own.items() if name != "SBATCH_WAIT"}
    return client_for(environ, own=own, query_timeout_s=20.0)

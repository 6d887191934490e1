"""From the words of a call to a decision: what `sbtrain` and `sbtrainctl plan` share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sbtrain.argv import CommandLine, last_value
from sbtrain.directives import read_directives
from sbtrain.flags import FLAGS, read_flags
from sbtrain.home import learnt_coefficients
from sbtrain.run_folder import new_run_id, placed, runs_folder
from sbtrain.script import Script, read_script
from sbtrain.submission import Asked, ask, asked_signal
from sbtrain_perf.errors import PlanError, RequestError

if TYPE_CHECKING:
    from sbtrain_perf.decision import Decision
    from sbtrain_perf.request import ClusterShape


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a call finds around it; stdin reads a script that no word names."""

    cwd: Path
    environ: Mapping[str, str]
    stdin: Callable[[], bytes]


def read_call(line: CommandLine, around: Surroundings, script: Script | None = None) -> Asked:
    """What the call asks for; `script` stands in for the one that the line names.

    Raises:
        RequestError: script, directives, flags or data are wrong or missing.
    """
    if script is None:
        script = read_script(
            line.script,
            wrap=line.wrap,
            chdir=last_value(line.settings, "chdir"),
            cwd=around.cwd,
            environ=around.environ,
            stdin=around.stdin,
        )
    directives = read_directives(script.text, file=script.shown, train_flags=FLAGS)
    options = read_flags(line.train, directives.train)
    return ask(line, options, script, directives, cwd=around.cwd, environ=around.environ)


def decide(asked: Asked, around: Surroundings) -> tuple[ClusterShape, Decision]:
    """Plan it. `chosen` is None where nothing fits.

    Raises:
        SiteError: the site file is missing or wrong.
        CoefficientsError: what was learnt cannot be read.
        RequestError, PlanError: the request does not say enough, or not for this site.
    """
    from sbtrain.site import load_site
    from sbtrain_perf.coefficients import load_coefficients
    from sbtrain_perf.planner import plan_request

    shape = load_site(asked.options.site, around.environ)
    _check_partition(asked.request.partition, shape)
    now = datetime.now(UTC)
    run_id = new_run_id(asked.request.workload, now)
    decision = plan_request(
        asked.request,
        shape,
        load_coefficients(learnt_coefficients(around.environ)),
        run_id=run_id,
        run_dir=str(runs_folder(around.cwd, around.environ) / run_id),
    )
    if decision.chosen is None:
        return shape, decision
    plan = placed(decision.chosen, asked.script, now=now)
    own_signal = asked_signal(asked.settings)
    if own_signal:
        plan = dataclasses.replace(plan, preemption_signal=own_signal)
    return shape, dataclasses.replace(decision, chosen=plan)


def no_plan(decision: Decision) -> PlanError:
    return PlanError(decision.refusal, hint="--train-explain shows what was weighed and why")


def _check_partition(wanted: str | None, shape: ClusterShape) -> None:
    known = [partition.name for partition in shape.partitions]
    unknown = [name for name in (wanted or "").split(",") if name and name not in known]
    if unknown:
        shown = ", ".join(known[:10]) + (" ..." if len(known) > 10 else "")
        raise RequestError(
            f"the site {shape.name} has no partition {unknown[0]!r} ({shape.source})",
            hint=f"it has {shown}; another site file is named by --train-site",
        )

"""The job script: plan and options to text, a pure function.

sbatch reads its `#SBATCH` lines, bash the two below them. Values reach sbatch quoted by its
own rules and bash by shlex. The user's own directives stand as he wrote them.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from sbtrain.errors import ScriptError
from sbtrain.options.directives import quote_directive
from sbtrain.options.script import Script
from sbtrain_perf.request import Plan

WRITTEN = "# Written by sbtrain"  # the second line of every script that sbtrain submits


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScript:
    """directives are ours, one option each; user_lines are the user's, untouched.

    python: the interpreter that runs sbtrain on the nodes. script_dir: the folder of the
    user's own script, of which the plan runs a copy.
    """

    directives: Sequence[str]
    user_lines: Sequence[str]
    python: str
    script_dir: str
    plan_path: str


def job_script(plan: Plan, parts: JobScript) -> str:
    """The text that is handed to sbatch.

    Raises:
        RequestError: a value holds a line break.
    """
    lines = [
        "#!/bin/bash",
        f"{WRITTEN} for run {plan.run_id}; plan.json beside it says the rest.",
        *(f"#SBATCH {quote_directive(word)}" for word in parts.directives),
        *parts.user_lines,
        "",
        "# Until the supervisor listens, a signal must not end the job.",
        f"trap '' {shlex.quote(plan.preemption_signal)}",
        f"export SBTRAIN_SCRIPT_DIR={shlex.quote(parts.script_dir)}",
        f"exec {shlex.quote(parts.python)} -P -m sbtrain.commands.batch "
        f"{shlex.quote(parts.plan_path)}",
    ]
    return "\n".join(lines) + "\n"


def refuse_own(script: Script) -> None:
    """A script that sbtrain wrote comes back where a file named sbatch runs sbtrain on another
    host or in a container: submitted once more, it would come back again.

    Raises:
        ScriptError: this is one.
    """
    if script.content.partition(b"\n")[2].startswith(WRITTEN.encode()):
        raise ScriptError(
            f"{script.shown} is a job script that sbtrain has written: it is planned already",
            hint="Slurm's own sbatch takes it as it is; sbtrain takes the script that trains",
        )

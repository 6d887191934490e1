"""The job script: plan and options to text, a pure function.

sbatch reads its `#SBATCH` lines, bash or Python what stands below them. Values reach sbatch
quoted by its own rules, bash by shlex, Python by repr. The user's own directives stand as he
wrote them. Where the script that is run stands in for the job script, no shell comes between:
that would change its environment.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from sbtrain.errors import ScriptError
from sbtrain.options.directives import quote_directive
from sbtrain.options.script import Script
from sbtrain_perf.request import Plan

_LONGEST_INTERPRETER = 120  # bytes; before Linux 5.1 a first line has 127
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
    written = (*parts.directives, *parts.user_lines, parts.plan_path)
    direct = plan.launch == "script" and _fits_first_line(parts.python) and _is_text(written)
    lines = [
        f"#!{parts.python} -P" if direct else "#!/bin/bash",
        f"{WRITTEN} for run {plan.run_id}; plan.json beside it says the rest.",
        *(f"#SBATCH {quote_directive(word)}" for word in parts.directives),
        *parts.user_lines,
        "",
    ]
    return "\n".join([*lines, *(_by_python(parts) if direct else _by_bash(plan, parts))]) + "\n"


def _fits_first_line(python: str) -> bool:
    """Whether every kernel takes `#!PYTHON -P`."""
    return not re.search(r"\s", python) and len(os.fsencode(python)) <= _LONGEST_INTERPRETER


def _is_text(lines: Sequence[str]) -> bool:
    """Whether Python takes a source that holds them: bytes that are no UTF-8 are surrogates."""
    return not any("\ud800" <= mark <= "\udfff" for line in lines for mark in line)


def _by_python(parts: JobScript) -> list[str]:
    return [
        "import sys",
        "",
        "from sbtrain.commands.batch import main",
        "",
        f"sys.exit(main([{parts.plan_path!r}]))",
    ]


def _by_bash(plan: Plan, parts: JobScript) -> list[str]:
    return [
        "# Until the supervisor listens, a signal must not end the job.",
        f"trap '' {shlex.quote(plan.preemption_signal)}",
        f"export SBTRAIN_SCRIPT_DIR={shlex.quote(parts.script_dir)}",
        f"exec {shlex.quote(parts.python)} -P -m sbtrain.commands.batch "
        f"{shlex.quote(parts.plan_path)}",
    ]


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

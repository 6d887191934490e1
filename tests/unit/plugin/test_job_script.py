"""The job script: golden files, and what bash and sbatch make of it.

To write the golden files anew after a wanted change:

    SBTRAIN_UPDATE_GOLDEN=1 python -m pytest tests/unit/plugin/test_job_script.py
"""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plans import example_plan
from sbatch_reader import needs_sbatch, sbatch_reads
from sbtrain.options.argv import split_command_line
from sbtrain.options.directives import read_directives
from sbtrain.options.flag_table import FLAGS
from sbtrain.options.flags import read_flags
from sbtrain.options.script import Script
from sbtrain.submission.additions import additions
from sbtrain.submission.asked import Asked, ask
from sbtrain.submission.job_script import JobScript, job_script
from sbtrain_jobs.process import run_command
from sbtrain_perf.errors import RequestError
from sbtrain_perf.placement import roles_of
from sbtrain_perf.request import Plan

GOLDEN = Path(__file__).parents[2] / "golden"
SCRIPT = "#!/usr/bin/env python3\n{lines}\nfrom sbtrain_jobs import join\n"


def asked_for(argv: str, *, lines: str = "", environ: Mapping[str, str] | None = None) -> Asked:
    script = Script(
        name="train_digits.py",
        folder=Path("/home/ada"),
        content=SCRIPT.format(lines=lines).encode(),
        shown="train_digits.py",
    )
    line = split_command_line([*argv.split(), "train_digits.py"], FLAGS)
    found = read_directives(script.text, file=script.shown, train_flags=FLAGS)
    options = read_flags(line.train, found.train)
    return ask(line, options, script, found, cwd=Path("/home/ada"), environ=environ or {})


def text_for(plan: Plan, asked: Asked) -> str:
    return job_script(
        plan,
        JobScript(
            directives=additions(asked, plan).directives,
            user_lines=asked.directives.kept_lines,
            python="/opt/sbtrain/bin/python3",
            script_dir="/home/ada",
            plan_path=f"{plan.run_dir}/plan.json",
        ),
    )


SERVERS = example_plan(
    layout="ps", nodes=4, servers=1, workers=3, gpus_per_node=2, resumable=False
)
CASES = {
    "allreduce": text_for(example_plan(), asked_for("")),
    "script": text_for(example_plan(launch="script"), asked_for("")),
    "parameter-servers": text_for(SERVERS, asked_for("")),
    "user-says-most": text_for(
        example_plan(),
        asked_for(
            "-N 2 -t 30",
            lines='#SBATCH -p spot --job-name="my run"  # mine\n#SBATCH --signal=B:USR2@300\n'
            "#SBATCH --no-requeue\n#SBATCH --output=%x-%j.log --open-mode=truncate",
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    path = GOLDEN / f"job-{name}.sh"
    if os.environ.get("SBTRAIN_UPDATE_GOLDEN"):
        path.write_text(CASES[name])
    assert CASES[name] == path.read_text()


@needs_sbatch
@pytest.mark.parametrize("name", CASES)
def test_sbatch_takes_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(CASES[name])
    said = sbatch_reads(["job.sh"], cwd=tmp_path)
    assert not said.refused
    assert said.options["nodes" if name != "user-says-most" else "partition"]
    assert said.options["job-name"] == (
        "my run" if name == "user-says-most" else "train_digits.py"
    )


def test_nothing_is_added_where_the_user_spoke() -> None:
    asked = asked_for("-p spot -N2 -n2 --exclusive --requeue --signal=B:USR2@9 -J a")
    added = additions(asked, example_plan())
    assert added.directives == ("--open-mode=append",)
    assert added.words == ()


def test_later_attempts_add_to_the_output_where_there_can_be_any() -> None:
    for resumable in (True, False):
        plan = example_plan(resumable=resumable)
        words = additions(asked_for(""), plan).directives
        assert ("--open-mode=append" in words) == resumable


def test_the_environment_counts_as_the_users_word() -> None:
    environ = {"SBATCH_PARTITION": "spot", "SBATCH_OPEN_MODE": "truncate"}
    added = additions(asked_for("", environ=environ), example_plan())
    assert not [word for word in added.directives if "partition" in word or "open" in word]


def test_a_range_is_narrowed_behind_the_users_words() -> None:
    asked = asked_for("-N 2-4 -p spot,urgent")
    added = additions(asked, example_plan(nodes=3))
    assert added.words == ("--partition=spot", "--nodes=3")
    assert asked.sbatch_words == ("-N", "2-4", "-p", "spot,urgent")


@pytest.mark.parametrize(
    ("words", "added"),
    [
        ("", ["--ntasks-per-node=2", "--cpus-per-task=2"]),
        ("-c 4", ["--ntasks-per-node=2"]),
        ("-n 4", []),
        ("--ntasks-per-node=2", []),
        ("--ntasks-per-gpu=1", []),
    ],
)
def test_a_node_has_a_task_for_each_of_its_trainers(words: str, added: list[str]) -> None:
    plan = example_plan(
        workers=4, whole_nodes=False, roles=roles_of(nodes=2, servers=0, per_node=2)
    )
    directives = additions(asked_for(words), plan).directives
    assert [word for word in directives if "per-task" in word or "ntasks" in word] == added


def test_gpus_are_asked_for_once() -> None:
    assert "--gres=gpu:2" in additions(asked_for(""), SERVERS).directives
    for said in ("--gres=gpu:k80:1", "-G 4", "--gpus-per-node=1", "--gpus-per-task=1"):
        assert not [w for w in additions(asked_for(said), SERVERS).directives if "gpu" in w]


def test_bytes_that_are_no_utf_8_are_no_source_of_python() -> None:
    line = b"#SBATCH --comment=\xff".decode(errors="surrogateescape")
    asked = asked_for("")
    asked = dataclasses.replace(
        asked, directives=dataclasses.replace(asked.directives, kept_lines=(line,))
    )
    assert text_for(example_plan(launch="script"), asked).startswith("#!/bin/bash\n")


_ODD = st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r"), min_size=1)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(script_dir=_ODD, plan_path=_ODD, run_id=_ODD)
def test_no_value_is_read_as_shell(
    script_dir: str, plan_path: str, run_id: str, tmp_path: Path
) -> None:
    program = tmp_path / "it's a $(python) `here`"
    program.write_text("""#!/bin/sh\nprintf '%s\\0' "$@" "$SBTRAIN_SCRIPT_DIR"\n""")
    program.chmod(stat.S_IRWXU)
    plan = dataclasses.replace(example_plan(), run_id=run_id)
    text = job_script(
        plan,
        JobScript(
            directives=(),
            user_lines=(),
            python=str(program),
            script_dir=script_dir,
            plan_path=plan_path,
        ),
    )
    (tmp_path / "job.sh").write_bytes(text.encode())
    result = run_command(["bash", str(tmp_path / "job.sh")], timeout_s=20)
    words = ["-P", "-m", "sbtrain.commands.batch", plan_path, script_dir]
    assert result.stdout.split("\0")[:-1] == words


def test_a_line_break_in_a_directive_is_refused() -> None:
    parts = JobScript(
        directives=("--job-name=a\nrm -rf /",),
        user_lines=(),
        python="python3",
        script_dir="/",
        plan_path="/plan.json",
    )
    with pytest.raises(RequestError, match="line break"):
        job_script(example_plan(), parts)

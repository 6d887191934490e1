"""Scripts that start their ranks themselves, on a real Slurm: what sbatch makes of them, and
what a notice does to ranks that have joined."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from counting_trainer import TRAIN
from sbtrain_perf.request import DataSet
from slurm_runs import SLURMS_WORDS, SlurmRun, slurm_run

pytestmark = pytest.mark.slurm

OVER = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"}
OF_ITS_OWN = (  # variables that differ from job to job
    "SBTRAIN_|SLURM_JOB_NAME|SLURM_JOBID|SLURM_JOB_ID|SLURM_JOB_SLUID|SLURM_TASK_PID|"
    "SLURMD_NODENAME|SLURM_TOPOLOGY_ADDR|SLURM_JOB_START_TIME|SLURM_JOB_END_TIME|HOSTNAME|_=|PYTHONPATH="
)
WAITS = "exec 9<> <(:); while :; do read -rt 0.1 -u 9; done"  # bash tells of a sleep's end


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """options stand before the script; act is what is done to the job once it has begun."""

    name: str
    lines: str
    options: tuple[str, ...] = ()
    act: tuple[str, ...] = ()
    state: str = "COMPLETED"
    code: str = "0:0"


CASES = (
    Case(
        name="tasks",
        lines="srun bash -c 'echo $SLURM_PROCID of $SLURM_NTASKS' | sort",
        options=("-N2", "-n4"),
    ),
    Case(name="once", lines="echo once; echo $SLURM_NTASKS", options=("-N2", "-n3")),
    Case(name="exits", lines="exit 5", state="FAILED", code="5:0"),
    Case(name="killed", lines="kill -9 $$", state="FAILED", code="0:9"),
    Case(name="crashes", lines="ulimit -c 0; kill -SEGV $$", state="FAILED", code="0:11"),
    Case(
        name="traps",
        lines=f"trap 'echo bye; exit 0' TERM; echo begun; {WAITS}",
        act=("scancel", "-b", "-s", "TERM"),
    ),
    Case(
        name="untrapped",
        lines=f"echo begun; {WAITS}",
        act=("scancel", "-b", "-s", "USR1"),
        state="FAILED",
        code="0:10",
    ),
    Case(
        name="full",
        lines=(
            "trap 'echo script' USR2\n"
            f"""bash -c "trap 'echo child; exit 0' USR2; echo begun; {WAITS}"\nexit 3"""
        ),
        act=("scancel", "-f", "-s", "USR2"),
        state="FAILED",
        code="3:0",
    ),
    Case(
        name="cancelled",
        lines="echo begun; exec sleep 600",
        act=("scancel",),
        state="CANCELLED",
        code="0:15",
    ),
    Case(
        name="streams",
        lines="cat; echo wrong >&2; pwd; umask; ulimit -n; echo $0 | wc -l; echo $#",
        options=("-i", "in.txt", "-e", "err.txt"),
    ),
    Case(
        name="environment",
        lines=f"env -0 | sort -z | tr '\\0\\n' '\\n ' | grep -vE '^({OF_ITS_OWN})|NODELIST'",
    ),
)


def test_a_job_is_what_it_is_under_sbatch(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    """Output, error output, state and exit code, each beside a job of sbatch's own."""
    ours: dict[str, SlurmRun] = {}
    theirs: dict[str, str] = {}
    for case in CASES:
        folders = [tmp_path / f"{case.name}{end}" for end in ("", "-sbatch")]
        text = f"#!/bin/bash\n{case.lines}\n"
        for folder in folders:
            folder.mkdir()
            (folder / "in.txt").write_text("from a file\n")
        run = script_run(folders[0], slurm_environment, text)
        run.submit("--time=10", *case.options)
        runs.append(run)
        ours[case.name] = run
        (folders[1] / "run.sh").write_text(text)
        argv = ["sbatch", "--parsable", "--partition=standard", "--time=10", *case.options]
        argv += ["--job-name=run.sh", f"--chdir={folders[1]}", "--output=job.out"]
        theirs[case.name] = run.slurm([*argv, str(folders[1] / "run.sh")]).strip()

    def output(case: Case, end: str, name: str = "job.out") -> str:
        path = tmp_path / f"{case.name}{end}" / name
        text = path.read_text() if path.exists() else ""
        lines = [line for line in text.splitlines() if not line.startswith(SLURMS_WORDS)]
        return "\n".join(lines).replace(f"{case.name}-sbatch", case.name)

    for case in CASES:
        jobs = (ours[case.name].job_id, theirs[case.name])
        for job, end in zip(jobs, ("", "-sbatch"), strict=True) if case.act else ():
            run = ours[case.name]
            run.wait_for(lambda: "begun" in output(case, end), f"{case.name}{end}")  # noqa: B023
            run.slurm([*case.act, job])
    for case in CASES:
        run, job = ours[case.name], theirs[case.name]
        for one in (run.job_id, job):
            run.wait_for(lambda: run.shown("JobState", one) in OVER, case.name)  # noqa: B023
            found = (run.shown("JobState", one), run.shown("ExitCode", one))
            assert found == (case.state, case.code), (case.name, one, run.output)
        for name in ("job.out", "err.txt"):
            assert output(case, "", name) == output(case, "-sbatch", name), case.name
        for field in ("NumTasks", "NumCPUs", "NumNodes", "Requeue", "StdIn", "StdErr"):
            right = run.shown(field, job).replace(f"{case.name}-sbatch", case.name)
            assert run.shown(field) == right, (case.name, field)
        (attempt,) = run.attempts
        said = {"COMPLETED": "completed", "FAILED": "failed"}.get(case.state, "cancelled")
        assert attempt.cause == said, case.name


def script_run(
    folder: Path, environment: dict[str, str], text: str, **changes: object
) -> SlurmRun:
    values: dict[str, object] = {
        **{"partition": "standard", "launch": "script", "resumable": False, "name": "run.sh"},
        **changes,
    }
    return slurm_run(folder, environment, text, **values)


# -- ranks that join -------------------------------------------------------------------------

TRAINS = f"""#!/bin/bash
echo attempt $SBTRAIN_ATTEMPT on $SLURM_NNODES nodes
srun {sys.executable} $SBTRAIN_SCRIPT_DIR/train.py
echo srun ended with $?
"""
TRAPS = f"""#!/bin/bash
echo attempt $SBTRAIN_ATTEMPT
[[ -e $SBTRAIN_CHECKPOINT_DIR/saved ]] && exit 0
trap 'touch $SBTRAIN_CHECKPOINT_DIR/saved; exit 0' USR1
{WAITS}
"""


def test_a_notice_to_scripts(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    """Preempted with the signal to the batch script and to the steps, with and without joined
    ranks, with and without a way to resume; and the time limit. All at the same time."""

    def run(name: str, text: str, **changes: object) -> SlurmRun:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.py").write_text(TRAIN.replace("STEP_S", "0.1"))
        values: dict[str, object] = {
            **{"partition": "spot", "resumable": True, "steps": 150, "grace_s": 15.0},
            **{"checkpoint_interval_s": 3600.0, **changes},
        }
        made = script_run(folder, slurm_environment, text, **values)
        runs.append(made)
        return made

    (tmp_path / "rows").write_bytes(bytes(1000))
    data = DataSet(paths=(str(tmp_path / "rows"),), total_bytes=1000)
    (tmp_path / "scratch").mkdir()
    batch = run("batch", TRAINS, data=data, scratch_path=str(tmp_path / "scratch" / "%n"))
    steps = run("steps", TRAINS)
    trap = run("trap", TRAPS)
    plain = run("plain", TRAPS, resumable=False)
    batch.submit("--time=10", "-N2", "-n4", "--signal=B:USR1@60", nodelist="g1,g2")
    steps.submit("--time=10", "-N2", "-n2", "--signal=USR1@60", nodelist="g3,g4")
    trap.submit("--time=10", "--exclusive", nodelist="c3", not_added="")
    plain.submit("--time=10", "--exclusive", "--signal=B:USR1@60", nodelist="c4")
    limit = run("limit", TRAINS, partition="standard", steps=100_000)
    limit.submit("--time=2", "-N2", "-n2", "--signal=B:USR1@30", nodelist="c1,c2")

    def ranks(of: SlurmRun, *, attempt: int = 0) -> int:
        return of.output.count(f" attempt {attempt} starts after step ")

    batch.wait_for(lambda: ranks(batch) == 4, "ranks")
    steps.wait_for(lambda: ranks(steps) == 2, "ranks")
    for one in (trap, plain):
        one.wait_for(lambda: "attempt 0" in one.output, "traps")  # noqa: B023
    argv = ["sbatch", "--parsable", "--partition=urgent", "--exclusive", "--time=1"]
    for nodes in ("g1,g2", "g3,g4", "c3", "c4"):
        where = (f"--nodes={len(nodes.split(','))}", f"--nodelist={nodes}")
        batch.slurm([*argv, *where, "--output=/dev/null", "--wrap=sleep 2"])
    for one in (batch, steps, trap, plain):
        one.wait_for(lambda: one.state in OVER, one.plan.run_id, within_s=120)  # noqa: B023
        assert one.state == "COMPLETED", one.output
    for one, size in ((batch, 4), (steps, 2)):
        first, second = one.attempts
        saved = first.saved_step
        assert saved is not None, one.output
        assert (first.cause, first.exit_code, first.requeued) == ("preempted", 85, True)
        assert f"all stop after step {saved}\n" in one.output
        assert one.output.count(f" attempt 1 starts after step {saved}\n") == size
        assert one.output.count("sbtrain: training is complete") == 1
        assert second.cause == "completed"
        assert one.saved_steps[-1] == 150
        assert one.shown("Restarts") == "1"
    assert "staged in" in batch.output
    assert [one.cause for one in trap.attempts] == ["preempted", "completed"]
    # 24.11 requeues what it preempts also where it has ended well; so it does under sbatch.
    assert plain.attempts[0].cause == "preempted"
    assert [one.cause for one in plain.attempts[1:]] in ([], ["completed"])
    assert plain.shown("Restarts") == str(len(plain.attempts) - 1)
    assert "sbtrain:" not in plain.output
    limit.wait_for(lambda: ranks(limit, attempt=1) == 2, "a second attempt", within_s=150)
    (first, *_) = limit.attempts
    assert (first.cause, first.requeued) == ("time-limit", True)
    assert f" attempt 1 starts after step {first.saved_step}\n" in limit.output

"""A script that starts its ranks itself, under the real supervisor: once, as Slurm runs a batch
script. What Slurm itself does with it is in tests/cluster/test_script_launch_on_slurm.py."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from counting_trainer import TRAIN
from sbtrain_jobs.node_agent.trainer_command import HOOKS
from sbtrain_jobs.process import start_process
from sbtrain_perf.request import DataSet
from sbtrain_perf.timing_log import read_timing_log
from sbtrain_staging.errors import SourceError
from supervised_runs import SupervisedRun, descendants, supervised_run

USR1, TERM = signal.SIGUSR1, signal.SIGTERM
OURS = ("--signal=B:USR1@60", "--open-mode=append")  # as where the user named no signal
THEIRS = ("--open-mode=append", "--signal=B:USR1@60")
MakeRun = Callable[..., SupervisedRun]


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[MakeRun]:
    runs: list[SupervisedRun] = []

    def make(script: str, **changes: object) -> SupervisedRun:
        values: dict[str, object] = {
            **{"launch": "script", "resumable": False, "script_dir": str(tmp_path)},
            **{"name": "run.sh", "sbatch_options": THEIRS},
            **changes,
        }
        run = supervised_run(tmp_path, script, **values)
        Path(run.plan.script).chmod(0o700)
        # A few steps take so long that no rank comes late to them.
        step_s = "0.5" if values.get("steps") == 5 else "0.05"
        (tmp_path / "train.py").write_text(TRAIN.replace("STEP_S", step_s))
        runs.append(run)
        return run

    yield make
    for run in runs:
        run.stop()


def shell(*lines: str) -> str:
    return "\n".join(("#!/bin/bash", 'cd "$SBTRAIN_RUN_DIR"', *lines, ""))


def srun(ranks: int) -> str:
    return f"srun --ntasks={ranks} {sys.executable} $SBTRAIN_SCRIPT_DIR/train.py"


def written(run: SupervisedRun, name: str) -> str:
    path = run.run_dir / name
    return path.read_text() if path.exists() else ""


def train(run: SupervisedRun, *, ranks: int) -> bool:
    """Whether all are in their loop of steps, and have done one."""
    return run.output.count("starts after step 0") == ranks and "sbtrain: step " in run.output


def is_bash(pid: int) -> bool:
    return Path(f"/proc/{pid}/comm").read_text() == "run.sh\n"


# -- it runs as under sbatch ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "cause"),
    [
        ("true", 0, "completed"),
        ("exit 5", 5, "failed"),
        ("kill -9 $$", -9, "failed"),
        ("ulimit -c 0; kill -SEGV $$", -11, "failed"),
    ],
)
def test_its_end_is_the_job_s(make_run: MakeRun, line: str, code: int, cause: str) -> None:
    run = make_run(shell("echo once >> log", line))
    run.start()
    assert run.wait() == code, run.output
    assert written(run, "log") == "once\n"
    assert run.events() == ["started", "ended"]
    recorded = 128 - code if code < 0 else code
    assert (run.last("ended").cause, run.last("ended").exit_code) == (cause, recorded)
    assert run.output == ""  # what is the script's own affair is not spoken of
    assert run.requeues == []
    assert not list(run.run_dir.rglob("timings.h5"))  # nor is a time of it known


SHOWS = f"""#!{sys.executable}
import json, os, resource, sys
status = open("/proc/self/status").read().splitlines()
shown = {{
    "environ": sorted(open("/proc/self/environ", "rb").read().decode("latin-1").split("\\0")),
    "descriptors": [(n, os.readlink("/proc/self/fd/" + n)) for n in os.listdir("/proc/self/fd")
                    if os.path.exists("/proc/self/fd/" + n) and n not in "12"],
    "signals": [
        int(line.split()[1], 16) & ~(3 << 31)  # the two that are the C library's own
        for line in status if line.startswith(("SigBlk", "SigIgn", "SigCgt"))],
    "limits": [resource.getrlimit(n) for n in range(16)],
    "umask": os.umask(0),
    "cwd": os.getcwd(),
    "leads": os.getpid() == os.getpgid(0),
    "stdin": sys.stdin.read(),
    "argv": sys.argv[2:],
    "nice": os.nice(0),
    "cpus": sorted(os.sched_getaffinity(0)),
}}
with open(sys.argv[1], "w") as stream:
    json.dump(shown, stream)
print("to stdout", flush=True)
print("to stderr", file=sys.stderr, flush=True)
"""


def test_it_finds_all_as_it_is_without_us(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what the run adds, but nothing of Python's own or of our files."""
    for name in [n for n in os.environ if n == "LANG" or n.startswith(("LC_", "PYTHON"))]:
        monkeypatch.delenv(name)  # Python adds LC_CTYPE to its own environment then
    (tmp_path / "in").write_text("from stdin\n")
    by_us, without = tmp_path / "by-us", tmp_path / "without"
    run = make_run(SHOWS, script_args=(str(by_us), "two words"), name="show")
    run.environ["NOT_UTF8"] = os.fsdecode(b"\xff\xfe")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    extra = os.open(tmp_path / "in", os.O_RDONLY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    try:
        run.stdin, run.descriptors = os.open(tmp_path / "in", os.O_RDONLY), (extra,)
        run.start()
        assert run.wait() == 0, run.output
        os.lseek(extra, 0, os.SEEK_SET)
        os.lseek(run.stdin, 0, os.SEEK_SET)
        process = start_process(
            [run.plan.script, str(without), "two words"],
            env={**os.environ, **run.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"},
            stdin=run.stdin,
            pass_fds=(extra,),
        )
        assert process.wait(60) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(extra)
        os.close(run.stdin)
    found, right = json.loads(by_us.read_text()), json.loads(without.read_text())
    gained = dict(
        entry.split("=", 1) for entry in found["environ"] if entry not in right["environ"]
    )
    assert gained.pop("PYTHONPATH") == HOOKS
    ours = ("SBTRAIN_", "PYTHONPATH=")
    found["environ"] = [e for e in found["environ"] if not e.startswith(ours)]
    assert found == right
    assert set(gained) == {f"SBTRAIN_{name}" for name in GAINED.split()}
    assert gained["SBTRAIN_CHECKPOINT_DIR"] == run.plan.checkpoint_dir
    assert Path(run.plan.checkpoint_dir).is_dir()
    assert gained["SBTRAIN_JOB_ID"] == "7"
    assert run.output == "to stdout\nto stderr\n"


GAINED = "PLAN RUN_ID RUN_DIR ATTEMPT JOB_ID DATA CHECKPOINT_DIR CONTROL TOKEN SCRIPT_DIR"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("#!/no/such/interp\necho x\n", errno.ENOENT, "bad interpreter /no/such/interp"),
        ("#!/bin/bash -e\nfalse\ntouch $SBTRAIN_RUN_DIR/log\n", 1, ""),
    ],
)
def test_the_kernel_honours_the_shebang(
    make_run: MakeRun, text: str, code: int, said: str
) -> None:
    run = make_run(text)
    run.start()
    assert run.wait() == code, run.output
    assert said in run.output
    assert not written(run, "log")


def test_python_without_a_shebang_runs_in_the_user_s(make_run: MakeRun) -> None:
    run = make_run("import sbtrain_jobs, sys\nprint(sys.executable)\n", name="a.py")
    run.start()
    assert run.wait() == 0, run.output
    assert Path(run.output.strip()).parent == Path(sys.prefix, "bin")


def test_where_nothing_may_be_executed_its_interpreter_runs_it(make_run: MakeRun) -> None:
    run = make_run("#!/bin/bash -e\nfalse\ntouch $SBTRAIN_RUN_DIR/log\n")
    Path(run.plan.script).chmod(0o600)
    run.start()
    assert run.wait() == 1, run.output
    assert not written(run, "log")


# -- signals -------------------------------------------------------------------------------

COUNTS = shell("trap 'echo $1 >> heard' SIGNAL", "trap 'exit 3' HUP", "echo here > here")
SENT = [
    *(TERM, USR1, signal.SIGINT, signal.SIGCONT, signal.SIGABRT, signal.SIGXCPU),
    signal.SIGRTMIN + 3,
]
WAITS = "while :; do sleep 0.1; done\n"


@pytest.mark.parametrize("number", SENT)
def test_a_signal_to_the_batch_step_s_process_is_the_script_s(
    make_run: MakeRun, number: int
) -> None:
    run = make_run(COUNTS.replace("SIGNAL", str(int(number))) + WAITS)
    run.start()
    run.wait_for(lambda: written(run, "here"))
    run.signal(number)
    run.wait_for(lambda: written(run, "heard"))
    run.signal(signal.SIGHUP)
    assert run.wait() == 3, run.output
    assert written(run, "heard") == "\n"
    assert run.output == ""


@pytest.mark.parametrize(
    ("line", "code"), [("trap 'exit 0' TERM", 0), ("trap 'exit 7' TERM", 7), ("", -TERM)]
)
def test_term_ends_a_script_as_it_wishes(make_run: MakeRun, line: str, code: int) -> None:
    run = make_run(shell(line, "echo here > here") + WAITS)
    run.start()
    run.wait_for(lambda: written(run, "here"))
    run.signal(TERM)
    assert run.wait() == code, run.output
    assert run.last("ended").cause == ("failed" if code else "completed")
    assert run.output == ""


def test_stopped_alone_it_has_the_script_stand_still(make_run: MakeRun) -> None:
    run = make_run(COUNTS.replace("SIGNAL", "TERM") + WAITS)
    run.start()
    run.wait_for(lambda: written(run, "here"))
    assert run.process is not None
    script = next(p for p in descendants(run.process.pid) if is_bash(p) and os.getpgid(p) == p)

    def still() -> bool:
        return ") T " in Path(f"/proc/{script}/stat").read_text()

    run.signal(signal.SIGSTOP)
    run.wait_for(still)
    run.signal(signal.SIGCONT)
    run.wait_for(lambda: not still())
    run.signal(signal.SIGHUP)
    assert run.wait() == 3, run.output


def test_what_all_processes_get_comes_once(make_run: MakeRun) -> None:
    """Slurm's TERM, and what ends a suspension."""
    run = make_run(COUNTS.replace("SIGNAL", "TERM") + "while :; do sleep 0.1 || :; done\n")
    run.start()
    run.wait_for(lambda: written(run, "here"))
    assert run.process is not None
    for pid in (run.process.pid, *descendants(run.process.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, TERM)
    run.wait_for(lambda: written(run, "heard"))
    time.sleep(1.0)
    assert written(run, "heard") == "\n"
    run.signal(signal.SIGHUP)
    assert run.wait() == 3


def test_a_signal_to_the_group_reaches_what_the_script_runs(make_run: MakeRun) -> None:
    child = "bash -c \"trap 'echo child >> heard; exit 0' USR2; echo here > here; " + WAITS
    run = make_run(shell("trap 'echo script >> heard' USR2", child.strip() + '"', "exit 4"))
    run.start()
    run.wait_for(lambda: written(run, "here"))
    assert run.process is not None
    os.killpg(run.process.pid, signal.SIGUSR2)
    assert run.wait() == 4, run.output
    assert sorted(written(run, "heard").split()) == ["child", "script"]


@pytest.mark.parametrize("cause", ["preempted", "time-limit", "none"])
@pytest.mark.parametrize("options", [OURS, THEIRS])
def test_a_signal_that_only_we_asked_for_ends_no_script(
    make_run: MakeRun, cause: str, options: tuple[str, ...]
) -> None:
    """One that handles no signal goes on; but sent by hand, or asked for by the user, it ends
    the script as it does under sbatch."""
    run = make_run(
        shell("echo here > here", "sleep 2", "exit 6"), sbatch_options=options, resumable=True
    )
    run.say_cause(cause)
    run.start()
    run.wait_for(lambda: written(run, "here"))
    run.signal(USR1)
    code = run.wait()
    if cause == "none":
        assert (code, run.requeues) == (-USR1, [])
        return
    assert (code, run.requeues) == (85, ["7"])
    lasted = run.last("ended").at > run.last("notice").at
    assert lasted


# -- notices -------------------------------------------------------------------------------


@pytest.mark.parametrize("resumable", [True, False])
def test_a_script_that_saves_in_its_trap(make_run: MakeRun, resumable: bool) -> None:
    run = make_run(
        shell("trap 'echo saved >> saved; exit 0' USR1", "echo here > here") + WAITS,
        resumable=resumable,
    )
    run.start()
    run.wait_for(lambda: written(run, "here"))
    run.say_cause("preempted")
    run.signal(USR1)
    assert run.wait() == (85 if resumable else 0), run.output
    assert written(run, "saved") == "saved\n"
    assert run.requeues == (["7"] if resumable else [])
    assert run.last("ended").cause == "preempted"
    assert ("requeueing job 7" in run.output) is resumable
    assert resumable or run.output == ""


def test_a_script_that_saves_in_its_trap_while_slurm_is_away(make_run: MakeRun) -> None:
    """It may be a preemption, and its exit status does not tell."""
    run = make_run(shell("trap 'exit 0' USR1", "echo here > here") + WAITS, resumable=True)
    run.say_cause("error")
    run.start()
    run.wait_for(lambda: written(run, "here"))
    run.signal(USR1)
    run.wait_for(lambda: "waiting for Slurm" in run.output)
    run.say_cause("preempted")
    assert run.wait() == 85, run.output
    assert run.requeues == ["7"]


def test_ranks_train_to_the_end(make_run: MakeRun) -> None:
    run = make_run(shell("echo before", srun(3), "echo after"), steps=5)
    run.start()
    assert run.wait() == 0, run.output
    assert sorted(set(run.output.split("\n")) & {"before", "after"}) == ["after", "before"]
    assert all(f"rank {rank} attempt 0 starts after step 0" in run.output for rank in range(3))
    assert run.output.count("sbtrain: training is complete") == 1
    assert run.result() == {"weight": 5.0}
    assert run.saved_steps == [5]
    timings = read_timing_log(run.run_dir / "attempts" / "0" / "timings.h5")
    assert [(one.rank, len(one.step)) for one in timings.ranks] == [(0, 5), (1, 5), (2, 5)]
    assert (timings.plan.workers, len(timings.plan.roles)) == (3, 3)  # not as was planned
    assert timings.named("start")
    assert run.events() == ["started", "ended"]


def test_launches_one_after_another_are_worlds_of_their_own(make_run: MakeRun) -> None:
    """Train on two ranks, once more on three, evaluate in the script's own process."""
    evaluate = f"{sys.executable} -c 'from sbtrain_jobs import join; join().__enter__()'"
    run = make_run(shell(srun(2), srun(3), evaluate), steps=5)
    run.start()
    assert run.wait() == 0, run.output
    assert run.output.count("starts after step 0") == 2
    assert run.output.count("starts after step 5") == 3
    assert run.output.count("sbtrain: training is complete") == 1
    assert "warning" not in run.output
    assert run.result() == {"weight": 5.0}


def test_launches_side_by_side_are_told_apart_and_warned_of(make_run: MakeRun) -> None:
    run = make_run(shell(f"{srun(2)} &", f"{srun(1)} &", "wait"), steps=60)
    run.start()
    assert run.wait() == 0, run.output
    assert "warning: 2 launches of the script train at the same time" in run.output


def test_two_programs_side_by_side_save_apart_and_nobody_is_warned(make_run: MakeRun) -> None:
    other = srun(1).replace("train.py", "other.py")
    copy = 'cp "$SBTRAIN_SCRIPT_DIR/train.py" "$SBTRAIN_SCRIPT_DIR/other.py"'
    run = make_run(shell(copy, f"{srun(1)} &", f"{other} &", "wait"), steps=60)
    run.start()
    assert run.wait() == 0, run.output
    assert "train at the same time" not in run.output
    checkpoints = Path(run.plan.checkpoint_dir)
    first = (checkpoints / ".program").read_text()
    (second,) = {"train", "other"} - {first}
    assert (checkpoints / "step-60").is_dir()
    assert (checkpoints / second / "step-60").is_dir()
    assert "more than one process joined" not in run.output


def test_ranks_that_did_not_do_all_steps_are_not_complete(make_run: MakeRun) -> None:
    run = make_run(shell(srun(2)), steps=5)
    text = TRAIN.replace("weight += 1", "weight += 1\n        if weight == 3: break")
    (run.folder / "train.py").write_text(text.replace("STEP_S", "0.05"))
    run.start()
    assert run.wait() == 0, run.output
    assert "training is complete" not in run.output
    assert "training is not complete: ended after step 3 of 5" in run.output


def test_a_notice_saves_one_step_and_the_next_attempt_goes_on(make_run: MakeRun) -> None:
    """The script does not handle the signal, which its ranks' convention replaces."""
    goes_on = ("echo script ends with $?", "sleep 1", "echo and goes on")
    run = make_run(shell(srun(2), *goes_on), steps=100_000, resumable=True)
    run.start()
    run.wait_for(lambda: train(run, ranks=2))
    run.say_cause("preempted")
    run.signal(USR1)
    assert run.wait() == 85, run.output
    saved = run.last("saved").step
    assert run.saved_steps == [saved]
    assert f"all stop after step {saved}" in run.output
    assert "script ends with 85\nand goes on" in run.output
    assert run.requeues == ["7"]
    assert run.last("ended").cause == "preempted"
    run.say_cause("none")
    run.start(restart_count=1)
    run.wait_for(
        lambda: all(
            f"rank {rank} attempt 1 starts after step {saved}" in run.output for rank in (0, 1)
        )
    )


def test_ranks_save_when_slurms_last_signal_ends_the_script(make_run: MakeRun) -> None:
    """At the time limit, and at the end of a preemption's grace, all processes get TERM."""
    run = make_run(shell(srun(2)), steps=100_000, resumable=True)
    text = TRAIN.replace("def save(folder):", "def save(folder):\n        time.sleep(3)")
    (run.folder / "train.py").write_text(text.replace("STEP_S", "0.05"))
    run.start()
    run.wait_for(lambda: train(run, ranks=2))
    run.say_cause("time-limit")
    assert run.process is not None
    script, *_ = (pid for pid in descendants(run.process.pid) if os.getpgid(pid) == pid)
    below = descendants(run.process.pid)
    leaders = [pid for pid in below if b"srun" not in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert script in leaders
    for pid in (run.process.pid, *leaders):
        os.kill(pid, TERM)
    assert run.wait() == 85, run.output
    assert len(run.saved_steps) == 1
    assert run.last("saved").step == run.saved_steps[0]
    assert run.requeues == ["7"]


def test_a_script_that_joins_by_itself(make_run: MakeRun) -> None:
    run = make_run(f"#!{sys.executable}\n{TRAIN}", steps=100_000, resumable=True)
    run.start()
    run.wait_for(lambda: train(run, ranks=1))
    assert "rank 0 attempt 0" in run.output
    run.say_cause("preempted")
    run.signal(USR1)
    assert run.wait() == 85, run.output
    assert run.saved_steps == [run.last("saved").step]
    assert run.requeues == ["7"]


def test_a_signal_that_sbatch_takes_and_that_is_no_notice(make_run: MakeRun) -> None:
    run = make_run(shell("exit 3"), preemption_signal="CONT")
    run.start()
    assert run.wait() == 3, run.output


@pytest.mark.parametrize("cause", ["preempted", "none"])
def test_a_signal_to_the_steps_alone(make_run: MakeRun, cause: str) -> None:
    """Slurm's is a notice. Another, as of `timeout srun`, is the script's own affair."""
    run = make_run(
        shell(srun(2), "echo script ends with $?", "exit 9"), steps=100_000, resumable=True
    )
    run.say_cause(cause)
    run.start()
    run.wait_for(lambda: train(run, ranks=2))
    for task in (0, 1):
        os.kill(run.task_pid(task), USR1)
    code = run.wait()
    assert "script ends with 85" in run.output
    assert len(run.saved_steps) == 1
    if cause == "preempted":
        assert (code, run.requeues) == (85, ["7"])
        assert run.last("saved").step == run.saved_steps[0]
    else:
        assert (code, run.requeues) == (9, [])
        assert "told to stop" not in run.output


def test_a_signal_to_the_steps_while_slurm_is_away(make_run: MakeRun) -> None:
    """It may be a preemption: the end of the script does not tell."""
    run = make_run(shell(srun(1), "exit 0"), steps=100_000, resumable=True)
    run.say_cause("error")
    run.start()
    run.wait_for(lambda: train(run, ranks=1))
    os.kill(run.task_pid(0), USR1)
    run.wait_for(lambda: "waiting for Slurm" in run.output)
    assert run.requeues == []
    run.say_cause("preempted")
    assert run.wait() == 85, run.output
    assert run.requeues == ["7"]
    assert run.last("saved").step == run.saved_steps[0]


def test_a_signal_when_no_rank_is_there_any_more_is_the_script_s(make_run: MakeRun) -> None:
    after = shell(srun(1), "trap 'exit 7' TERM", "echo here > here") + WAITS
    run = make_run(after, steps=5, resumable=True)
    text = TRAIN.replace("weight += 1", "weight += 1\n        if weight == 3: break")
    (run.folder / "train.py").write_text(text.replace("STEP_S", "0.05"))
    run.start()
    run.wait_for(lambda: written(run, "here"))
    run.signal(TERM)
    assert run.wait() == 7, run.output
    assert run.requeues == []
    assert "told to stop" not in run.output


def test_a_script_that_goes_on_is_requeued_when_its_time_is_over(make_run: MakeRun) -> None:
    run = make_run(
        shell(srun(2), "sleep 600"),
        steps=100_000,
        resumable=True,
        sbatch_options=("--signal=B:USR1@8",),
    )
    run.start()
    run.wait_for(lambda: train(run, ranks=2))
    run.say_cause("time-limit")
    run.signal(USR1)
    assert run.wait() == 85, run.output
    assert f"the script goes on: step {run.saved_steps[-1]} is saved" in run.output
    assert run.requeues == ["7"]


# -- staging -------------------------------------------------------------------------------


def test_data_is_staged_before_the_first_line(make_run: MakeRun, tmp_path: Path) -> None:
    data = tmp_path / "rows"
    data.write_bytes(os.urandom(1000))
    (tmp_path / "scratch").mkdir()
    run = make_run(
        shell(f'cmp "$SBTRAIN_DATA" {data} && echo staged > log'),
        nodes=1,
        data=DataSet(paths=(str(data),), total_bytes=1000),
        scratch_path=str(tmp_path / "scratch" / "%n"),
    )
    run.environ["SLURMD_NODENAME"] = "c1"
    run.start()
    assert run.wait() == 0, run.output
    assert written(run, "log") == "staged\n"
    assert list((tmp_path / "scratch").iterdir())


def test_a_script_does_not_begin_without_its_data(make_run: MakeRun, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    run = make_run(
        shell("echo ran > log"),
        nodes=1,
        data=DataSet(paths=(str(tmp_path / "gone"),), total_bytes=1000),
        scratch_path=str(tmp_path / "scratch" / "%n"),
    )
    run.start()
    assert run.wait() == SourceError.exit_code, run.output
    assert not written(run, "log")

"""The supervisor and the agents, whole, under every kind of end. Slurm's part is injected:
what runs on a real Slurm is in tests/cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from counting_trainer import TRAIN
from played_supervisor import eventually
from sbtrain_perf.request import DataSet, Role
from sbtrain_staging.errors import WorldError
from supervised_runs import SupervisedRun, supervised_run

USR1, USR2, TERM, KILL = signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGKILL
MakeRun = Callable[..., SupervisedRun]


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[MakeRun]:
    runs: list[SupervisedRun] = []

    def make(script: str = TRAIN, **changes: object) -> SupervisedRun:
        run = supervised_run(tmp_path, script, **changes)
        runs.append(run)
        return run

    yield make
    for run in runs:
        run.stop()


def processes_of(run: SupervisedRun) -> list[str]:
    """Command lines of processes that still belong to this run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (
                    (entry / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode(errors="replace")
                )
            except OSError:
                continue
            if str(run.folder) in line:
                found.append(line)
    return found


def steps_begun(run: SupervisedRun) -> bool:
    return "sbtrain: step " in run.output


def test_training_to_its_end(make_run: MakeRun) -> None:
    run = make_run(steps=15)
    run.start()
    assert run.wait() == 0, run.output
    assert run.result() == {"weight": 15.0}
    assert run.saved_steps[-1] == 15
    assert run.events() == ["started", "ended"]
    assert run.last("ended").cause == "completed"
    assert (
        "rank 0 attempt 0 starts after step 0" in run.output
    )  # the chief's output is the job's
    assert "rank 1 attempt" not in run.output
    assert "rank 1 attempt 0 starts after step 0" in run.log("worker-1")
    assert processes_of(run) == []


@pytest.mark.parametrize("layout", ["allreduce", "ps"])
def test_environment_of_every_role(make_run: MakeRun, layout: str) -> None:
    script = (
        "import os, pathlib, time\n"
        "logs = pathlib.Path(os.environ['SBTRAIN_RUN_DIR'], 'attempts', '0')\n"
        "while os.environ['SBTRAIN_ROLE'] == 'chief':\n"
        "    if sum('HERE' in log.read_text() for log in logs.glob('*.log')) == 2:\n"
        "        break  # the others are ended when the chief ends\n"
        "    time.sleep(0.1)\n"
        "for name in ('SBTRAIN_ROLE', 'SBTRAIN_RANK', 'SBTRAIN_NODE', 'TF_CONFIG', 'HERE'):\n"
        "    print(name, os.environ[name], flush=True)\n"
    )
    roles = (Role(name="worker", index=0, node=0), Role(name="worker", index=1, node=1))
    if layout == "ps":
        roles = (
            Role(name="ps", index=0, node=0),
            Role(name="chief", index=0, node=0),
            Role(name="worker", index=0, node=1),
        )
    run = make_run(script, layout=layout, roles=roles)
    run.environ["HERE"] = "inherited"
    run.start()
    assert run.wait() == 0, run.output
    for rank, role in enumerate(roles):
        log = run.log(f"{role.name}-{role.index}")
        assert f"SBTRAIN_RANK {rank}" in log
        assert f"SBTRAIN_NODE {role.node}" in log
        assert "HERE inherited" in log
        assert log.count("127.0.0.1:") == len(roles)


LEAVES_FILES = (
    "import os, pathlib, signal, tempfile, time\n"
    "folder = pathlib.Path(os.environ.get('TMPDIR', '/nowhere'))\n"
    "(folder / 'left').write_text('x')\n"
    "assert tempfile.gettempdir() == str(folder)\n"
    "print(folder, oct(folder.stat().st_mode & 0o777), flush=True)\n"
    "os.kill(os.getpid(), signal.SIGKILL)\n"
)


def test_killed_trainers_leave_no_temporary_files(make_run: MakeRun) -> None:
    run = make_run(LEAVES_FILES)
    run.environ["TMPDIR"] = ""
    run.start()
    assert run.wait() == 137, run.output
    said = (run.log("worker-0") or run.log("worker-1")).split()
    folder, mode = Path(said[0]), said[1]
    assert mode == "0o700"
    assert folder.name.startswith("tmp-sbtrain-")
    assert not folder.exists()
    assert not list(run.run_dir.rglob("left"))


def test_a_temporary_folder_of_the_user_is_left_as_it_is(make_run: MakeRun) -> None:
    run = make_run(LEAVES_FILES)
    own = run.folder / "own"
    own.mkdir(mode=0o700)
    run.environ["TMPDIR"] = str(own)
    run.start()
    assert run.wait() == 137, run.output
    assert (own / "left").read_text() == "x"


def test_the_exit_code_of_training_is_the_jobs_and_the_rest_is_ended(
    make_run: MakeRun,
) -> None:
    script = (
        "import os, sys, time\n"
        "if os.environ['SBTRAIN_RANK'] == '1':\n"
        "    print('the learning rate is not a number', file=sys.stderr)\n"
        "    sys.exit(17)\n"
        "time.sleep(600)\n"
    )
    run = make_run(script)
    run.start()
    assert run.wait() == 17, run.output
    assert "worker 1 on node c2 ended with exit status 17" in run.output
    assert "    the learning rate is not a number" in run.output
    assert run.last("ended").cause == "failed"
    assert run.last("ended").exit_code == 17
    assert run.requeues == []
    assert processes_of(run) == []


def test_a_trainer_that_ignores_term_is_killed_and_so_are_its_children(
    make_run: MakeRun,
) -> None:
    script = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.environ['SBTRAIN_RANK'] == '1':\n"
        "    time.sleep(1)\n"
        "    os.kill(os.getpid(), signal.SIGSEGV)\n"
        "subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)', __file__])\n"
    )
    run = make_run(script)
    run.start()
    assert run.wait() == 128 + signal.SIGSEGV, run.output
    assert "worker 1 on node c2 was ended by SIGSEGV" in run.output
    assert processes_of(run) == []


def test_a_shell_script_trains_too(make_run: MakeRun) -> None:
    script = (
        "#!/bin/bash -e\n"
        'echo "I am $SBTRAIN_ROLE $SBTRAIN_ROLE_INDEX of $1"\n'
        "sleep $SBTRAIN_RANK\n"
        "exit 5\n"
    )
    run = make_run(script, name="train.sh", script_args=("two words",))
    run.start()
    assert run.wait() == 5, run.output
    assert "I am worker 0 of two words" in run.log("worker-0")


def test_a_script_that_is_not_there_is_named(make_run: MakeRun) -> None:
    run = make_run(script_args=())
    (run.folder / "train.py").unlink()
    run.start()
    assert run.wait() != 0
    assert "cannot read the script" in run.output
    assert run.requeues == []


@pytest.mark.parametrize("number", [USR1, USR2, TERM])
def test_a_notice_saves_the_agreed_step_and_requeues_once(
    make_run: MakeRun, number: signal.Signals
) -> None:
    run = make_run(steps=100_000)
    run.start()
    run.wait_for(lambda: steps_begun(run))
    run.say_cause("preempted")
    run.signal(number)
    assert run.wait() == 85, run.output
    saved = run.last("saved").step
    assert saved
    assert run.saved_steps == [saved]
    assert run.requeues == ["7"]
    assert run.events() == ["started", "notice", "saved", "ended", "requeued"] or (
        run.events() == ["started", "saved", "notice", "ended", "requeued"]
    )
    assert run.last("notice").detail == f"{number.name} in the batch script"
    assert run.last("ended").cause == "preempted"
    assert processes_of(run) == []

    run.say_cause("none")
    run.start(restart_count=1)
    run.wait_for(
        lambda: f"rank 0 attempt 1 starts after step {saved}" in run.log("worker-0", attempt=1)
    )
    run.wait_for(
        lambda: f"rank 1 attempt 1 starts after step {saved}" in run.log("worker-1", attempt=1)
    )


def test_a_notice_that_reaches_the_step_alone_counts(make_run: MakeRun) -> None:
    run = make_run(steps=100_000)
    run.start()
    run.wait_for(lambda: steps_begun(run))
    run.say_cause("preempted")
    os.kill(run.task_pid(1), USR1)
    assert run.wait() == 85, run.output
    assert run.last("notice").detail == "SIGUSR1 in the step on c2"
    assert run.last("saved").step == run.saved_steps[-1]
    assert run.requeues == ["7"]


def test_a_site_may_use_another_signal(make_run: MakeRun) -> None:
    run = make_run(steps=100_000, preemption_signal="SIGHUP")
    run.start()
    run.wait_for(lambda: steps_begun(run))
    run.signal(signal.SIGHUP)
    assert run.wait() == 85, run.output
    assert run.requeues == ["7"]


def test_notices_come_in_heaps(make_run: MakeRun) -> None:
    run = make_run(steps=100_000)
    run.start()
    run.wait_for(lambda: steps_begun(run))
    for _ in range(20):
        for number in (USR1, TERM):
            run.signal(number)
        os.kill(run.task_pid(0), USR1)
    assert run.wait() == 85, run.output
    assert run.requeues == ["7"]
    assert run.events().count("notice") == 1
    assert run.last("saved").step == run.saved_steps[-1]


def test_cancelled_is_saved_and_final(make_run: MakeRun) -> None:
    run = make_run(steps=100_000)
    run.start()
    run.wait_for(lambda: steps_begun(run))
    run.say_cause("cancelled")
    run.signal(TERM)
    assert run.wait() == 143, run.output
    assert run.saved_steps
    assert run.requeues == []
    assert run.last("ended").cause == "cancelled"


def test_a_cancel_that_comes_after_the_preemption_is_final_too(make_run: MakeRun) -> None:
    run = make_run(steps=100_000, step_s=2.0)
    run.start()
    run.wait_for(lambda: steps_begun(run))
    run.say_cause("preempted")
    run.signal(USR1)
    run.wait_for(lambda: "cause: preempted" in run.output)
    run.say_cause("cancelled")
    assert run.wait() == 143, run.output
    assert run.requeues == []
    assert run.last("ended").cause == "cancelled"


def test_what_slurm_has_requeued_is_not_requeued_again(make_run: MakeRun) -> None:
    run = make_run(steps=100_000)
    run.start()
    run.wait_for(lambda: steps_begun(run))
    run.say_cause("requeued")
    run.signal(TERM)
    assert run.wait() == 85, run.output
    assert run.requeues == []


def test_a_run_that_cannot_resume_is_not_requeued(make_run: MakeRun) -> None:
    run = make_run(steps=100_000, resumable=False)
    run.start()
    run.wait_for(lambda: steps_begun(run))
    run.say_cause("preempted")
    run.signal(USR1)
    assert run.wait() == 143, run.output
    assert run.requeues == []
    assert "may not be requeued: it ends here" in run.output


def test_the_cap_on_requeues(make_run: MakeRun) -> None:
    run = make_run(steps=100_000, max_requeues=2)
    run.start(restart_count=2)
    run.wait_for(lambda: steps_begun(run))
    run.signal(USR1)
    assert run.wait() == 143, run.output
    assert run.requeues == []
    run.start(restart_count=3)
    assert run.wait() == 21, run.output
    assert "was requeued 3 times, the plan allows 2" in run.output
    assert run.last("ended").cause == "launch-failed"


def test_slurm_away_is_waited_for_then_asked_again(make_run: MakeRun) -> None:
    run = make_run(steps=100_000)
    run.say_cause("error")
    run.start()
    run.wait_for(lambda: steps_begun(run))
    run.signal(USR1)
    run.wait_for(lambda: "waiting for Slurm" in run.output)
    assert run.requeues == []  # it might have been cancelled
    run.say_cause("preempted")
    assert run.wait() == 85, run.output
    assert run.requeues == ["7"]


def test_a_requeue_that_slurm_refuses_is_said(make_run: MakeRun) -> None:
    run = make_run(steps=100_000)
    (run.folder / "refuse").touch()
    run.start()
    run.wait_for(lambda: steps_begun(run))
    run.signal(USR1)
    assert run.wait() == 85, run.output
    assert "not requeued: Requested operation is presently disabled" in run.output
    assert "scontrol requeue 7" in run.output
    assert run.last("requeue-failed").detail


def test_a_notice_before_trainers_speak(make_run: MakeRun) -> None:
    run = make_run("import time; time.sleep(600)", grace_s=4.0)
    run.start()
    run.wait_for(lambda: "starting 2 trainers" in run.output)
    run.say_cause("preempted")
    run.signal(USR1)
    assert run.wait() == 85, run.output
    assert run.requeues == ["7"]
    assert "saved" not in run.events()


HANDLERS = {
    "train.sh": (
        "#!/bin/bash\n"
        "trap 'echo saved > \"$SBTRAIN_RUN_DIR/saved-$SBTRAIN_RANK\"; exit 0' USR1\n"
        "echo waiting\n"
        "while :; do sleep 0.1; done\n"
    ),
    "train.py": (
        "import os, pathlib, signal, sys, time\n"
        "def save(number, frame):\n"
        "    name = 'saved-' + os.environ['SBTRAIN_RANK']\n"
        "    pathlib.Path(os.environ['SBTRAIN_RUN_DIR'], name).write_text('saved')\n"
        "    sys.exit(0)\n"
        "if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:  # as Lightning asks\n"
        "    signal.signal(signal.SIGUSR1, save)\n"
        "print('waiting', flush=True)\n"
        "time.sleep(600)\n"
    ),
}


@pytest.mark.parametrize("name", sorted(HANDLERS))
def test_a_script_with_a_handler_of_its_own_saves_on_a_notice(
    make_run: MakeRun, name: str
) -> None:
    run = make_run(HANDLERS[name], name=name)
    run.start()
    run.wait_for(lambda: run.log("worker-0") and run.log("worker-1"))
    run.say_cause("preempted")
    run.signal(USR1)
    assert run.wait() == 85, run.output
    assert sorted(path.name for path in run.run_dir.glob("saved-*")) == ["saved-0", "saved-1"]
    assert run.requeues == ["7"]


def test_a_notice_before_agents_meet(make_run: MakeRun) -> None:
    run = make_run()
    run.environ["FAKE_SRUN_SKIP"] = "1"
    run.start()
    run.wait_for(lambda: "starting agents" in run.output)
    run.signal(USR1)
    assert run.wait() == 85, run.output
    assert run.requeues == ["7"]


def test_the_exit_code_of_staging_is_its_own_where_slurm_killed_a_rank(
    make_run: MakeRun,
) -> None:
    pytest.importorskip("mpi4py")
    run = make_run(
        data=DataSet(paths=("/shared/digits.h5",), total_bytes=1 << 20), scratch_path="/tmp/%n"
    )
    run.environ["FAKE_SRUN_STATUS"] = "137"  # without a launcher the two ranks do not meet
    run.start()
    run.wait_for(lambda: f"staging ended with exit status {WorldError.exit_code}" in run.output)
    assert run.wait() == 0, run.output  # it reads its data where it lies


def test_a_notice_during_staging(make_run: MakeRun) -> None:
    run = make_run(
        data=DataSet(paths=("/shared/digits.h5",), total_bytes=1 << 20), scratch_path="/tmp/%n"
    )
    run.environ["FAKE_SRUN_STAGE_S"] = "600"
    run.start()
    run.wait_for(lambda: "staging 1 MiB to 2 nodes" in run.output)
    run.say_cause("preempted")
    run.signal(USR1)
    assert run.wait() == 85, run.output
    assert run.requeues == ["7"]
    assert run.last("ended").cause == "preempted"


def test_a_run_whose_staging_fails_reads_its_data_where_it_lies(make_run: MakeRun) -> None:
    script = TRAIN.replace("starts after", "of {run.data} starts after")
    assert "run.data" in script
    run = make_run(script, data=DataSet(paths=("/shared/digits.h5",)), scratch_path="/tmp/%n")
    run.environ["FAKE_SRUN_STAGE_S"] = "0"
    run.start()
    assert run.wait() == 0, run.output
    assert "warning: staging ended with exit status 1; every node reads" in run.output
    assert "PosixPath('/shared/digits.h5')" in run.output
    assert "training is complete" in run.output


def test_a_notice_that_nobody_heard_is_asked_for(make_run: MakeRun) -> None:
    run = make_run(steps=100_000)
    run.say_cause("preempted")
    run.start()
    assert run.wait() == 85, run.output
    assert run.requeues == ["7"]


def test_a_notice_during_a_save(make_run: MakeRun) -> None:
    slow = "def save(folder):\n        print('saves', flush=True); time.sleep(1.5)"
    script = TRAIN.replace("def save(folder):", slow)
    run = make_run(script, steps=100_000, checkpoint_interval_s=0.5)
    run.start()
    run.wait_for(lambda: "saves" in run.output)
    run.signal(USR1)
    assert run.wait() == 85, run.output
    assert run.last("saved").step == run.saved_steps[-1]


STAYS = "print('stays', flush=True)\n        while not go.exists(): time.sleep(0.05)"


@pytest.mark.parametrize("place", ["weight += 1", "def save(folder):"])
def test_a_notice_in_the_last_step_or_its_save_completes_the_job(
    make_run: MakeRun, tmp_path: Path, place: str
) -> None:
    within = place if place.startswith("def") else f"{place}\n        if step < 3: continue"
    script = TRAIN.replace(place, f"{within}\n        {STAYS}")
    go = tmp_path / "go"
    run = make_run(f"from pathlib import Path\ngo = Path({str(go)!r})\n{script}", steps=3)
    run.start()
    run.wait_for(lambda: "stays" in run.output)
    run.say_cause("preempted")
    run.signal(USR1)
    run.wait_for(lambda: "cause: preempted" in run.output)
    go.touch()
    assert run.wait() == 0, run.output
    assert run.requeues == []
    assert run.last("ended").cause == "completed"
    assert run.saved_steps == [3]


def test_a_shell_script_gets_term_and_the_grace_to_save(make_run: MakeRun) -> None:
    script = (
        "#!/bin/bash\n"
        "trap 'sleep 1; echo kept > \"$SBTRAIN_RUN_DIR/state-$SBTRAIN_RANK\"; exit 0' TERM\n"
        "echo ready\n"
        "while :; do sleep 0.1; done\n"
    )
    run = make_run(script, name="train.sh")
    run.start()
    run.wait_for(lambda: "ready" in run.output and "ready" in run.log("worker-1"))
    run.say_cause("preempted")
    run.signal(USR1)
    run.wait()
    assert (run.run_dir / "state-0").read_text() == "kept\n"
    assert (run.run_dir / "state-1").read_text() == "kept\n"
    assert run.requeues == ["7"]


def test_a_save_that_hangs_past_the_time_limits_warning_is_left_behind(
    make_run: MakeRun,
) -> None:
    hangs = (
        "def save(folder):\n        if step > 3: print('hangs', flush=True); time.sleep(600)"
    )
    script = TRAIN.replace("def save(folder):", hangs)
    run = make_run(
        script, steps=100_000, checkpoint_interval_s=0.1, sbatch_options=("--signal=B:USR1@9",)
    )
    run.start()
    run.wait_for(lambda: "hangs" in run.output)
    run.say_cause("time-limit")
    run.signal(USR1)
    assert run.wait() == 85, run.output
    assert f"the checkpoint of step {run.saved_steps[-1]} counts" in run.output
    assert run.requeues == ["7"]
    assert run.last("ended").cause == "time-limit"
    assert "saved" not in run.events()


def test_a_missing_node_is_named(make_run: MakeRun) -> None:
    run = make_run()
    run.environ |= {"FAKE_SRUN_SKIP": "1", "FAKE_MEET_WITHIN_S": "2"}
    run.start()
    assert run.wait() == 21, run.output
    assert "from 1 of 2 nodes: c2" in run.output
    assert run.last("ended").cause == "failed"


def test_a_node_that_died_before_it_came_is_left_to_slurm(make_run: MakeRun) -> None:
    run = make_run()
    run.environ |= {
        "FAKE_SRUN_SKIP": "1",
        "FAKE_MEET_WITHIN_S": "2",
        "FAKE_SRUN_PROBE": "1",
    }
    run.start()
    run.wait_for(lambda: "waiting for Slurm to say what becomes of node c2" in run.output)
    assert "no word from c2" in run.output
    run.say_cause("node-fail")
    run.signal(TERM)
    assert run.wait() == 85, run.output
    assert run.requeues == []
    assert run.last("ended").cause == "node-fail"


def test_srun_that_fails_at_once_is_said_at_once(make_run: MakeRun) -> None:
    run = make_run()
    run.environ["FAKE_SRUN_EXIT"] = "1"
    run.environ["FAKE_MEET_WITHIN_S"] = "600"
    run.start()
    assert run.wait() == 21, run.output
    assert "srun ended with exit status 1 before all agents had met" in run.output


def test_an_agent_that_dies_on_a_node_that_is_well_fails_the_job(make_run: MakeRun) -> None:
    run = make_run(steps=100_000)
    run.start()
    run.wait_for(lambda: steps_begun(run))
    os.kill(run.task_pid(1), KILL)
    assert run.wait() == 21, run.output
    assert "the agent on node c2 ended without a word" in run.output
    assert run.requeues == []


def test_a_node_that_is_lost_is_left_to_slurm(make_run: MakeRun) -> None:
    run = make_run(steps=100_000)
    run.environ["FAKE_SRUN_PROBE"] = "1"
    run.start()
    run.wait_for(lambda: steps_begun(run))
    os.kill(run.task_pid(1), KILL)
    run.wait_for(lambda: "waiting for Slurm to say what becomes of node c2" in run.output)
    run.say_cause("node-fail")
    run.signal(TERM)
    assert run.wait() == 85, run.output
    assert run.requeues == []  # Slurm does it
    assert run.last("ended").cause == "node-fail"


def test_an_attempt_that_left_no_end_is_ended_by_the_next(make_run: MakeRun) -> None:
    run = make_run(steps=40, checkpoint_interval_s=1.0)
    run.start()
    run.wait_for(lambda: run.saved_steps)
    run.stop()
    run.start(restart_count=1)
    assert run.wait() == 0, run.output
    lost = next(entry for entry in run.ledger if entry.event == "ended")
    assert (lost.attempt, lost.cause) == (0, "unknown")  # its nodes are well
    assert "starts after step 0" not in run.log("worker-0", attempt=1)
    assert run.result() == {"weight": 40.0}


def test_agents_end_their_trainers_when_the_supervisor_is_killed(make_run: MakeRun) -> None:
    run = make_run(steps=100_000)
    run.start()
    run.wait_for(lambda: steps_begun(run))
    assert run.process is not None
    os.kill(run.process.pid, KILL)
    run.wait()
    eventually(lambda: processes_of(run) == [], within_s=60)


def test_tasks_of_an_array_share_nothing(make_run: MakeRun) -> None:
    run = make_run(steps=100_000)
    run.environ |= {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}
    run.start()
    run.wait_for(lambda: steps_begun(run))
    run.signal(USR1)
    assert run.wait() == 85, run.output
    assert run.requeues == ["7_3"]
    assert (run.run_dir / "task-3" / "ledger.jsonl").exists()
    assert not (run.run_dir / "ledger.jsonl").exists()
    assert list((run.run_dir / "task-3" / "checkpoints").rglob("step-*"))

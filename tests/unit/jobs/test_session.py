"""join() and the Run it gives: alone, and with the supervisor's end of the line played."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from plans import example_plan
from played_supervisor import PlayedSupervisor, eventually
from sbtrain_jobs.errors import CheckpointError, LaunchError
from sbtrain_jobs.process import run_command
from sbtrain_jobs.training import session
from sbtrain_jobs.training.checkpoint import CheckpointStore
from sbtrain_jobs.training.session import Run, join
from sbtrain_jobs.training.step_clock import StepClock
from sbtrain_jobs.wire.messages import (
    EXIT_STOPPED,
    Held,
    Hello,
    Hold,
    Message,
    PhaseDone,
    Saved,
    StepsBegun,
    StepsDone,
    StepsOver,
    StopAfter,
)
from sbtrain_perf.codec import plan_to_json
from sbtrain_perf.errors import MissingExtraError, PlanError
from sbtrain_perf.extras import install_extras
from sbtrain_perf.request import DataSet, Plan, Role


class Counter:
    """The state of a training that only counts."""

    def __init__(self) -> None:
        self.value = 0

    def save(self, folder: Path) -> None:
        (folder / "value").write_text(str(self.value))

    def load(self, folder: Path) -> None:
        self.value = int((folder / "value").read_text())


@pytest.fixture
def counter() -> Counter:
    return Counter()


def alone(folder: Path, *, steps: int = 10, interval_s: float = 3600.0) -> Run:
    return join(
        default_steps=steps,
        checkpoints=folder,
        checkpoint_interval_s=interval_s,
        data=[folder / "data.h5"],
        environ={},
    )


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@contextlib.contextmanager
def ends_with(code: int) -> Iterator[None]:
    """What runs inside must end in that SystemExit."""
    with pytest.raises(SystemExit) as ended:
        yield
    assert ended.value.code == code


def test_alone_it_is_rank_0_of_1_with_the_scripts_own_defaults(tmp_path: Path) -> None:
    with alone(tmp_path, steps=7) as run:
        assert (run.alone, run.role, run.rank, run.world_size) == (True, "worker", 0, 1)
        assert (run.is_chief, run.layout, run.attempt) == (True, "allreduce", 1)
        assert run.data == (tmp_path / "data.h5",)
        assert list(run.steps()) == [1, 2, 3, 4, 5, 6, 7]
    assert run.exit_code == 0


def test_alone_the_environment_names_the_data(tmp_path: Path) -> None:
    environ = {"SBTRAIN_DATA": f"/a/x.h5{os.pathsep}/b"}
    with join(data=["other"], checkpoints=tmp_path, environ=environ) as run:
        assert run.data == (Path("/a/x.h5"), Path("/b"))


def test_in_a_job_that_a_trainer_has_submitted_it_is_alone(tmp_path: Path) -> None:
    of_run = {"SBTRAIN_PLAN": "/no/plan.json", "SBTRAIN_JOB_ID": "85", "SBTRAIN_DATA": "/gone"}
    environ = {**of_run, "SLURM_JOB_ID": "86"}
    with join(data=["other"], checkpoints=tmp_path, environ=environ) as run:
        assert (run.alone, run.rank, run.data) == (True, 0, (Path("other"),))
    for own in (
        {"SLURM_JOB_ID": "85"},
        {},
    ):  # some scripts hide from frameworks that it is Slurm
        with pytest.raises(PlanError):
            join(checkpoints=tmp_path, environ={**of_run, **own})


def test_resumes_after_the_last_saved_step(tmp_path: Path, counter: Counter) -> None:
    for expected in ([1, 2, 3, 4], [5, 6]):
        state = Counter()
        with alone(tmp_path, steps=expected[-1]) as run:
            start = run.resume(state.load)
            ran = []
            for step in run.steps(start=start, save=state.save):
                ran.append(step)
                state.value += step
        assert ran == expected
    newest = CheckpointStore(tmp_path).newest_valid()
    assert newest is not None
    assert newest.step == 6
    counter.load(newest.path)
    assert counter.value == sum(range(7))


def test_saves_at_the_planned_interval(
    tmp_path: Path, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    now_s = 0.0

    def clock() -> float:
        return now_s

    def save(folder: Path) -> None:
        saved.append(counter.value)
        counter.save(folder)

    monkeypatch.setattr(session, "StepClock", functools.partial(StepClock, clock=clock))
    monkeypatch.setattr(time, "perf_counter", clock)
    with alone(tmp_path, steps=10, interval_s=1.0) as run:
        for step in run.steps(save=save):
            counter.value = step
            now_s += 0.25
    assert saved == [4, 8, 10]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_alone_a_signal_ends_it_after_the_step_with_its_state_saved(
    tmp_path: Path, counter: Counter, number: signal.Signals
) -> None:
    with ends_with(EXIT_STOPPED), alone(tmp_path) as run:
        for step in run.steps(save=counter.save):
            counter.value = step
            if step == 4:
                os.kill(os.getpid(), number)
    assert run.exit_code == EXIT_STOPPED
    newest = run.checkpoints.newest_valid()
    assert newest is not None
    assert newest.step == counter.value == 4
    os.kill(os.getpid(), number)  # one more changes nothing while the process ends


def test_alone_a_signal_before_the_first_step_is_remembered(
    tmp_path: Path, counter: Counter
) -> None:
    ran: list[int] = []
    with ends_with(EXIT_STOPPED), alone(tmp_path) as run:
        os.kill(os.getpid(), signal.SIGUSR1)
        ran += run.steps(save=counter.save)
    assert ran == []


def test_alone_it_can_be_terminated_where_it_takes_no_steps(tmp_path: Path) -> None:
    with ends_with(143), alone(tmp_path, steps=1) as run:
        for _ in run.steps():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)


def test_signals_mean_what_they_did_before_once_the_run_is_over(tmp_path: Path) -> None:
    numbers = (signal.SIGTERM, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    with alone(tmp_path):
        assert [signal.getsignal(number) for number in numbers] != before
    assert [signal.getsignal(number) for number in numbers] == before


def test_leaving_the_loop_early_is_no_failure(tmp_path: Path) -> None:
    with alone(tmp_path) as run:
        for step in run.steps():
            if step == 3:
                break
        run.report(loss=0.5)
    assert run.exit_code == 0


def test_a_periodic_save_that_fails_is_said_and_the_last_one_ends_the_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[int] = []
    folder = tmp_path / "checkpoints"
    code = CheckpointError.exit_code
    with ends_with(code), alone(folder, steps=5, interval_s=1e-9) as run:
        for step in run.steps(save=Counter().save):
            ran.append(step)
            if step == 1:
                folder.rmdir()
                folder.write_text("in the way")
    assert ran == [1, 2, 3, 4, 5]
    assert caplog.text.count("the next save tries again") == 4
    assert "sbtrain: cannot save step 5" in capfd.readouterr().err


def test_a_folder_that_cannot_be_written_ends_the_run_before_its_first_step(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    ran: list[int] = []
    with ends_with(CheckpointError.exit_code), alone(tmp_path / "file") as run:
        ran += run.steps(save=Counter().save)
    assert ran == []
    said = capfd.readouterr().err
    assert "sbtrain: cannot save checkpoints in" in said
    assert "--train-checkpoint" in said


def test_a_run_that_saves_nothing_needs_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with alone(tmp_path / "file", steps=3) as run:
        assert list(run.steps()) == [1, 2, 3]


# -- under a plan ------------------------------------------------------------------------


def plan_in(folder: Path, **changes: object) -> Plan:
    run_dir = folder / "run"
    values: dict[str, object] = {
        "run_dir": str(run_dir),
        "run_id": "run",
        "checkpoint_dir": str(run_dir / "checkpoints"),
        "workers": 1,
        "nodes": 1,
        "roles": (Role(name="worker", index=0, node=0),),
        "steps": 12,
    }
    return example_plan(**{**values, **changes})


def environment(
    plan: Plan, folder: Path, *, rank: int = 0, control: str = ""
) -> dict[str, str]:
    path = folder / "plan.json"
    path.write_text(plan_to_json(plan))
    role = plan.roles[rank]
    return {
        "SBTRAIN_PLAN": str(path),
        "SBTRAIN_ATTEMPT": "2",
        "SBTRAIN_ROLE": role.name,
        "SBTRAIN_ROLE_INDEX": str(role.index),
        "SBTRAIN_RANK": str(rank),
        "SBTRAIN_CONTROL": control,
        "SBTRAIN_TOKEN": "secret",
        "SLURMD_NODENAME": "c3",
    }


@pytest.fixture
def supervisor() -> Iterator[PlayedSupervisor]:
    played = PlayedSupervisor()
    yield played
    played.close()


def hear_all(supervisor: PlayedSupervisor) -> list[Message]:
    heard = []
    try:
        while True:
            heard.append(supervisor.hear())
    except EOFError:
        return heard


def test_a_whole_run_is_told_to_the_supervisor(
    tmp_path: Path, supervisor: PlayedSupervisor, counter: Counter
) -> None:
    environ = environment(plan_in(tmp_path), tmp_path, control=supervisor.address)
    with join(environ=environ) as run:
        supervisor.accept()
        assert run.attempt == 2
        assert run.batch_size == 32
        run.describe(variables=[60, 10, 20, 10])
        start = run.resume(counter.load)
        for step in run.steps(start=start, save=counter.save):
            counter.value = step
        run.report(accuracy=0.5, bad=float("nan"))
        run.report(accuracy=0.75)
    heard = hear_all(supervisor)
    hello = heard[0]
    assert isinstance(hello, Hello)
    assert (hello.who, hello.token, hello.rank) == ("trainer", "secret", 0)
    assert (hello.node_name, hello.pid) == ("c3", os.getpid())
    steps = [message for message in heard if isinstance(message, StepsDone)]
    assert sum(len(message.seconds) for message in steps) == 12
    assert (steps[0].first, steps[0].samples_per_step) == (1, 32)
    phases = [message for message in heard if isinstance(message, PhaseDone)]
    assert [phase.name for phase in phases] == ["start", "checkpoint", "evaluate"]
    assert {(phase.parameters, phase.tensors) for phase in phases} == {(100, 4)}
    assert [phase.variables for phase in phases] == [(60, 10, 20, 10), (), ()]
    assert (phases[1].step, phases[1].size_bytes) == (12, 2)
    assert phases[2].metrics == {"accuracy": 0.75}
    assert not [message for message in heard if isinstance(message, Saved)]
    result = json.loads((tmp_path / "run" / "final" / "result.json").read_text())
    assert result == {"accuracy": 0.75}


def test_stops_at_the_agreed_step_and_says_where_it_saved(
    tmp_path: Path, supervisor: PlayedSupervisor, counter: Counter
) -> None:
    environ = environment(plan_in(tmp_path), tmp_path, control=supervisor.address)
    with ends_with(EXIT_STOPPED), join(environ=environ) as run:
        supervisor.accept()
        for step in run.steps(save=counter.save):
            counter.value = step
            if step == 4:
                supervisor.say(Hold(reason="preempted"))
                while not isinstance(held := supervisor.hear(), Held):
                    continue
                assert held.step == 4
                supervisor.say(StopAfter(step=6))
    assert counter.value == 6
    (saved,) = [m for m in hear_all(supervisor) if isinstance(m, Saved)]
    assert saved == Saved(rank=0, step=6, path=str(tmp_path / "run/checkpoints/step-6"))

    environ = environment(plan_in(tmp_path), tmp_path)
    with join(environ=environ) as run:
        start = run.resume(counter.load)
        assert start == 6
        assert list(run.steps(start=start, save=counter.save)) == list(range(7, 13))


def test_asked_before_the_first_step_it_keeps_what_it_resumed_from(
    tmp_path: Path, supervisor: PlayedSupervisor, counter: Counter
) -> None:
    plan = plan_in(tmp_path)
    store = CheckpointStore(plan.checkpoint_dir)
    store.write(5, counter.save)
    environ = environment(plan, tmp_path, control=supervisor.address)
    with ends_with(EXIT_STOPPED), join(environ=environ) as run:
        supervisor.accept()
        supervisor.say(Hold(reason="preempted"))
        assert isinstance(supervisor.hear(), Hello)
        assert supervisor.hear() == Held(rank=0, step=0)
        supervisor.say(StopAfter(step=0))
        assert run.resume(counter.load) == 5
        assert list(run.steps(start=5, save=counter.save)) == []
    (saved,) = [m for m in hear_all(supervisor) if isinstance(m, Saved)]
    assert saved.step == 5
    assert store.steps() == (5,)


def test_asked_after_the_last_step_it_says_at_once_what_is_saved(
    tmp_path: Path, supervisor: PlayedSupervisor, counter: Counter
) -> None:
    environ = environment(plan_in(tmp_path), tmp_path, control=supervisor.address)
    with join(environ=environ) as run:
        supervisor.accept()
        for _ in run.steps(save=counter.save):
            pass
        supervisor.say(Hold(reason="preempted"))
        while not isinstance(held := supervisor.hear(), Held):
            continue
        supervisor.say(StopAfter(step=held.step))
        while not isinstance(saved := supervisor.hear(), Saved):  # while it evaluates
            continue
        assert saved.step == 12
        run.report(accuracy=1.0)
    assert run.exit_code == 0


def test_signals_are_left_to_the_supervisor_while_there_is_one(
    tmp_path: Path, supervisor: PlayedSupervisor, counter: Counter
) -> None:
    environ = environment(plan_in(tmp_path), tmp_path, control=supervisor.address)
    with ends_with(EXIT_STOPPED), join(environ=environ) as run:
        supervisor.accept()
        for step in run.steps(save=counter.save):
            counter.value = step
            if step in (3, 8):
                for number in (signal.SIGTERM, signal.SIGUSR1):
                    os.kill(os.getpid(), number)
            if step == 5:
                supervisor.close()
                eventually(lambda: not run._reports.heard)
    assert counter.value == 8


def test_only_the_chief_saves_cleans_and_reports(tmp_path: Path, counter: Counter) -> None:
    roles = tuple(Role(name="worker", index=i, node=i) for i in range(2))
    plan = plan_in(tmp_path, roles=roles, workers=2, checkpoint_interval_s=1e-6)
    with join(environ=environment(plan, tmp_path, rank=1)) as run:
        assert (run.rank, run.world_size, run.is_chief) == (1, 2, False)
        assert len(list(run.steps(save=counter.save))) == 12
        run.report(accuracy=1.0)
    assert not Path(plan.checkpoint_dir).exists()
    assert not (tmp_path / "run" / "final").exists()


def test_the_chief_of_a_run_removes_what_its_last_attempt_left(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    left = Path(plan.checkpoint_dir) / ".step-3.sbtrain-tmp-0badf00d"
    left.mkdir(parents=True)
    with join(environ=environment(plan, tmp_path)):
        assert not left.exists()


def test_two_runs_in_one_folder_do_not_meet(tmp_path: Path, counter: Counter) -> None:
    shared = str(tmp_path / "shared")
    for name in ("one", "two"):
        plan = plan_in(tmp_path, run_id=name, checkpoint_dir=f"{shared}/{name}")
        with join(environ=environment(plan, tmp_path)) as run:
            assert run.resume(counter.load) == 0
            assert len(list(run.steps(save=counter.save))) == 12
    assert sorted(p.name for p in Path(shared).iterdir()) == ["one", "two"]


def test_data_come_staged_or_from_the_plan_or_from_the_script(tmp_path: Path) -> None:
    planned, bare = plan_in(tmp_path), plan_in(tmp_path, data=DataSet())
    for plan, staged, expected in (
        (planned, "/scratch/digits.h5", Path("/scratch/digits.h5")),
        (planned, "", Path(planned.data.paths[0])),
        (bare, "", Path("own.h5")),
    ):
        environ = {**environment(plan, tmp_path), "SBTRAIN_DATA": staged}
        with join(data=["own.h5"], environ=environ) as run:
            assert run.data == (expected,)


class Playmates:
    """The other ranks: they saw an older checkpoint, and leave when asked."""

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self.left = 0

    def lowest(self, step: int) -> int:
        return min(step, self.newest)

    def leave_together(self) -> None:
        self.left += 1


def test_all_ranks_resume_from_what_all_of_them_see(tmp_path: Path, counter: Counter) -> None:
    plan = plan_in(tmp_path)
    store = CheckpointStore(plan.checkpoint_dir)
    for counter.value in (4, 8):
        store.write(counter.value, counter.save)
    with join(environ=environment(plan, tmp_path)) as run:
        run.peers = mates = Playmates(4)
        assert run.resume(counter.load) == 4
        assert counter.value == 4
        run.peers = Playmates(0)
        assert run.resume(counter.load) == 0
        run.peers = mates
        (store.path_of(4) / "value").unlink()
        with pytest.raises(CheckpointError, match="agreed to resume from step 4"):
            run.resume(counter.load)
    assert mates.left == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"SBTRAIN_RANK": None}, "SBTRAIN_RANK is not"),
        ({"SBTRAIN_RANK": "one"}, "not a whole number"),
        ({"SBTRAIN_RANK": "1"}, "the plan has 1 processes"),
        ({"SBTRAIN_ROLE": "ps"}, "started as ps 0, but rank 0 of the plan is worker 0"),
        ({"SBTRAIN_PLAN": "/nowhere/plan.json"}, "cannot read the plan"),
    ],
)
def test_a_place_that_contradicts_the_plan_is_refused(
    tmp_path: Path, changes: dict[str, str | None], said: str
) -> None:
    environ = {**environment(plan_in(tmp_path), tmp_path), **changes}
    with pytest.raises(PlanError, match=said) as caught:
        join(environ={name: value for name, value in environ.items() if value is not None})
    assert caught.value.hint


def test_a_signal_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, preemption_signal="SOON")
    with pytest.raises(LaunchError, match="'SOON'"):
        join(environ=environment(plan, tmp_path))


def test_the_seed_is_the_runs_own(tmp_path: Path) -> None:
    seeds = set()
    for name in ("one", "one", "two"):
        with join(environ=environment(plan_in(tmp_path, run_id=name), tmp_path)) as run:
            seeds.add(run.seed)
    assert len(seeds) == 2
    with join(seed=9, checkpoints=tmp_path, environ={}) as run:
        assert run.seed == 9


def test_metrics_that_are_no_numbers_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), alone(tmp_path) as run:
        run.report(loss=float("inf"))
    assert "loss is inf" in caplog.text


class Odd:
    def __float__(self) -> float:
        raise RuntimeError("two elements")


@pytest.mark.parametrize("value", [None, "high", [1.0], Odd(), 10**400])
def test_a_report_that_cannot_be_kept_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, value: object
) -> None:
    with join(environ=environment(plan_in(tmp_path, steps=2), tmp_path)) as run:
        list(run.steps(save=Counter().save))
        run.report(accuracy=value, loss=0.5)  # type: ignore[arg-type]
    assert run.exit_code == 0
    assert "sbtrain: accuracy is " in caplog.text
    assert "no number" in caplog.text
    result = json.loads((tmp_path / "run" / "final" / "result.json").read_text())
    assert result == {"loss": 0.5}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "many"])
def test_a_description_that_is_no_number_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, value: object
) -> None:
    with alone(tmp_path, steps=2) as run:
        run.describe(parameters=value, tensors=3)  # type: ignore[arg-type]
        list(run.steps())
    assert run.exit_code == 0
    assert f"parameters={value!r}" in caplog.text


def test_results_that_cannot_be_written_are_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with join(environ=environment(plan_in(tmp_path, steps=2), tmp_path)) as run:
        list(run.steps(save=Counter().save))
        (tmp_path / "run" / "final").write_text("in the way")
        run.report(loss=0.5)
    assert run.exit_code == 0
    assert 'cannot write the results {"loss": 0.5}' in caplog.text


def steps_told(supervisor: PlayedSupervisor) -> list[Message]:
    return [m for m in hear_all(supervisor) if isinstance(m, StepsBegun | StepsOver)]


def test_the_supervisor_is_told_that_all_is_done_and_saved_before_the_script_ends(
    tmp_path: Path, supervisor: PlayedSupervisor, counter: Counter
) -> None:
    environ = environment(plan_in(tmp_path), tmp_path, control=supervisor.address)
    with join(environ=environ) as run:
        supervisor.accept()
        list(run.steps(save=counter.save))
        while not isinstance(over := supervisor.hear(), StepsOver):
            continue
    assert over == StepsOver(rank=0, step=12, kept=True)
    assert run.checkpoints.steps() == (12,)


def test_a_stop_that_comes_while_it_joins_is_heard(
    tmp_path: Path, supervisor: PlayedSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer that joins after the notice is told at once; it may still be in join()."""
    at_once = session.Saves

    def slowly(*args: object, **named: object) -> object:
        time.sleep(0.5)
        return at_once(*args, **named)  # type: ignore[arg-type]

    def stop() -> None:
        supervisor.accept()
        supervisor.say(Hold(reason="preempted"))
        supervisor.say(StopAfter(step=0))

    monkeypatch.setattr(session, "Saves", slowly)
    stopping = threading.Thread(target=stop)
    stopping.start()
    environ = environment(plan_in(tmp_path), tmp_path, control=supervisor.address)
    with ends_with(EXIT_STOPPED), join(environ=environ) as run:
        stopping.join()
        until_s = time.monotonic() + 60
        while run._gate.stop_after is None and time.monotonic() < until_s:
            time.sleep(0.01)
        assert list(run.steps(save=Counter().save)) == []
    assert [m for m in hear_all(supervisor) if isinstance(m, Held)]


def test_the_supervisor_is_told_where_a_loop_was_left(
    tmp_path: Path, supervisor: PlayedSupervisor, counter: Counter
) -> None:
    environ = environment(plan_in(tmp_path), tmp_path, control=supervisor.address)
    with join(environ=environ) as run:
        supervisor.accept()
        for step in run.steps(save=counter.save):
            if step == 5:
                break
    assert steps_told(supervisor) == [
        StepsBegun(rank=0, start=0, saves=True),
        StepsOver(rank=0, step=5, kept=False),
    ]


def test_a_stop_after_the_last_step_lets_the_script_end(
    tmp_path: Path, supervisor: PlayedSupervisor, counter: Counter
) -> None:
    environ = environment(plan_in(tmp_path), tmp_path, control=supervisor.address)
    with join(environ=environ) as run:
        supervisor.accept()
        for step in run.steps(save=counter.save):
            if step == 12:
                supervisor.say(Hold(reason="preempted"))
                while not isinstance(supervisor.hear(), Held):
                    continue
                supervisor.say(StopAfter(step=12))
                eventually(lambda: run._gate.stop_after == 12)
        run.report(loss=0.5)
    assert run.exit_code == 0
    assert (tmp_path / "run" / "final" / "result.json").exists()
    said = hear_all(supervisor)
    assert [m.step for m in said if isinstance(m, Saved)] == [12]
    assert [m.kept for m in said if isinstance(m, StepsOver)] == [True]


def test_joining_imports_nothing_heavy() -> None:
    code = (
        "import sys; from sbtrain_jobs import join\n"
        "with join(default_steps=3, environ={}) as run: list(run.steps())\n"
        "heavy = {'numpy', 'tensorflow', 'h5py', 'torch', 'importlib.metadata', 'subprocess'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert run_command([sys.executable, "-c", code], timeout_s=60).stdout == "[]\n"


def test_missing_tensorflow_is_named_with_its_extra(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['tensorflow'] = None; from sbtrain_jobs import join\n"
        "with join(environ={}) as run: run.tensorflow()\n"
    )
    argv = [sys.executable, "-c", code]
    done = run_command(argv, timeout_s=60, check="keep", cwd=tmp_path)
    assert done.returncode == MissingExtraError.exit_code
    assert done.stderr == (
        "sbtrain: this run needs the Python package 'tensorflow', which is not installed "
        f"({install_extras('tensorflow')})\n"
    )

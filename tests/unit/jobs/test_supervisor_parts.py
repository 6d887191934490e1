"""The supervisor's parts: meeting agents, asking Slurm, the record, progress, the place."""

from __future__ import annotations

import queue
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from plans import example_plan
from sbtrain_jobs.ending import cause
from sbtrain_jobs.ending.cause import CauseFound, CauseInquiry, end_cause, requeue
from sbtrain_jobs.ending.job_control import EndCause, WayBack
from sbtrain_jobs.errors import CommandFailedError, LaunchError
from sbtrain_jobs.process import start_process
from sbtrain_jobs.record.ledger import AttemptRecord, Ledger, LedgerEntry, attempts
from sbtrain_jobs.record.progress_lines import ProgressLines
from sbtrain_jobs.record.run_record import RunRecord, steps_beyond
from sbtrain_jobs.run_folder import RunFolder, plan_of_task
from sbtrain_jobs.signals import notice_signals
from sbtrain_jobs.slurm_job import SlurmJob
from sbtrain_jobs.supervisor.rendezvous import MEET_WITHIN_S, Rendezvous
from sbtrain_jobs.supervisor.roster import Roster
from sbtrain_jobs.wire.control import Peer
from sbtrain_jobs.wire.messages import Hello, PhaseDone, Ready, StepsDone
from sbtrain_perf.errors import SbtrainError
from sbtrain_perf.request import Role

JOB = SlurmJob(
    job_id="7",
    restart_count=0,
    nodes=("c1", "c2"),
    node_list="c[1-2]",
    started_s=time.time(),
    down=("c3",),
)


# -- meeting ---------------------------------------------------------------------------


def test_all_nodes_meet_whatever_their_order() -> None:
    meeting = Rendezvous(example_plan(), ("c1", "c2"))
    meeting.add(Ready(agent=1, host="10.0.0.2", ports=(5001,)))
    assert not meeting.complete
    assert meeting.missing() == ("c1",)
    meeting.add(Ready(agent=0, host="10.0.0.1", ports=(5000,)))
    assert meeting.complete
    assert meeting.addresses(one_host=False) == ("10.0.0.1:5000", "10.0.0.2:5001")
    assert meeting.addresses(one_host=True) == ("127.0.0.1:5000", "127.0.0.1:5001")


def test_a_node_that_is_late_is_named() -> None:
    now_s = 0.0
    meeting = Rendezvous(example_plan(), ("c1", "c2"), clock=lambda: now_s)
    now_s = 100.0  # staging took long
    meeting.begin()
    meeting.add(Ready(agent=0, host="10.0.0.1", ports=(5000,)))
    now_s += MEET_WITHIN_S
    assert meeting.too_late() is None
    now_s += 0.1
    late = meeting.too_late()
    assert late is not None
    assert "from 1 of 2 nodes: c2" in late.message
    assert MEET_WITHIN_S < 60


@pytest.mark.parametrize(
    "ready",
    [
        Ready(agent=2, host="h", ports=()),
        Ready(agent=-1, host="h", ports=()),
        Ready(agent=1, host="h", ports=(1, 2)),
        Ready(agent=0, host="h", ports=(1,)),  # came already
    ],
)
def test_an_agent_that_does_not_fit_the_plan_is_an_error(ready: Ready) -> None:
    meeting = Rendezvous(example_plan(), ("c1", "c2"))
    meeting.add(Ready(agent=0, host="h", ports=(1,)))
    with pytest.raises(LaunchError):
        meeting.add(ready)


# -- who is there ----------------------------------------------------------------------


def peer(number: int, *, rank: int = -1, node: int = 0, here: bool = True) -> Peer:
    who = "agent" if rank < 0 else "trainer"
    agent = node if rank < 0 else -1
    name = f"c{node + 1}"
    hello = Hello(who=who, token="", node=node, node_name=name, agent=agent, rank=rank)
    return Peer(number=number, hello=hello, here=here)


def test_a_node_is_lost_when_its_agent_leaves_before_its_roles() -> None:
    roster = Roster(example_plan(), ("c1", "c2"))
    first, second = peer(1, node=0), peer(2, node=1)
    assert roster.joined(first)
    assert roster.joined(second)
    roster.started = True
    roster.ended(0, 0)
    roster.left(first, told_to=False)
    assert roster.lost_nodes == ()
    roster.left(second, told_to=True)
    assert roster.lost_nodes == ("c2",)


def test_an_agent_that_goes_home_before_the_start_is_not_lost() -> None:
    roster = Roster(example_plan(), ("c1", "c2"))
    first, second = peer(1, node=0), peer(2, node=1)
    roster.joined(first)
    roster.joined(second)
    roster.left(first, told_to=True)
    assert roster.lost_nodes == ()
    roster.left(second, told_to=False)
    assert roster.lost_nodes == ("c2",)


def test_strangers_to_the_plan_have_no_place() -> None:
    roster = Roster(example_plan(), ("c1", "c2"))
    assert not roster.joined(peer(1, node=2))
    assert not roster.joined(peer(2, rank=2))
    assert not roster.ended(2, 1)
    assert roster.joined(peer(3, node=0))
    assert not roster.joined(peer(4, node=0))  # a second agent of one node


def test_allreduce_is_finished_when_all_workers_are() -> None:
    roster = Roster(example_plan(), ("c1", "c2"))
    roster.ended(0, 0)
    assert not roster.finished
    roster.ended(1, 0)
    assert roster.finished


def test_servers_are_finished_when_their_chief_is() -> None:
    roles = (
        Role(name="ps", index=0, node=0),
        Role(name="chief", index=0, node=0),
        Role(name="worker", index=0, node=1),
    )
    roster = Roster(example_plan(layout="ps", roles=roles), ("c1", "c2"))
    roster.ended(1, 0)
    assert roster.finished


def test_addresses_are_local_only_when_every_agent_is() -> None:
    roster = Roster(example_plan(), ("c1", "c2"))
    roster.joined(peer(1, node=0, here=True))
    roster.joined(peer(2, node=1, here=False))
    assert not roster.one_host


# -- asking Slurm ----------------------------------------------------------------------


class Answers:
    """A batch system that gives these answers in turn; an exception is raised."""

    def __init__(self, *causes: EndCause | Exception, refusals: int = 0) -> None:
        self.causes = list(causes)
        self.refusals = refusals
        self.asked = 0
        self.requeued = 0
        self.pause_s = 0.0

    def end_cause(self, job_id: str) -> EndCause:
        self.asked += 1
        time.sleep(self.pause_s)
        answer = self.causes.pop(0) if len(self.causes) > 1 else self.causes[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def way_back(self) -> WayBack:
        return "requeue"

    def binds_cpus(self) -> bool:
        return False

    def forbid_requeue(self, job_id: str) -> None:
        raise AssertionError("not asked for")

    def awaited(self, job_id: str) -> bool:
        raise AssertionError("not asked for")

    def requeue(self, job_id: str) -> None:
        if self.refusals:
            self.refusals -= 1
            raise SbtrainError("Socket timed out")
        self.requeued += 1


def test_a_question_that_slurms_own_signal_killed_is_asked_again() -> None:
    killed = CommandFailedError("scontrol exited with -15", argv=["scontrol"], returncode=-15)
    assert end_cause(Answers(killed, "preempted"), "7").cause == "preempted"
    assert end_cause(Answers(SbtrainError("away")), "7") == CauseFound(
        cause="unknown", problem="away"
    )


def test_a_thousand_notices_are_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers("preempted")
    found: queue.SimpleQueue[CauseFound] = queue.SimpleQueue()
    inquiry = CauseInquiry(answers, "7", sink=found.put)
    for _ in range(1000):
        inquiry.ask()
    assert found.get(timeout=30).cause == "preempted"
    assert answers.asked <= 2


def test_an_answer_from_before_the_notice_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cause, "ASK_AGAIN_S", 0.1)
    answers = Answers("none", "preempted")
    answers.pause_s = 0.2
    found: queue.SimpleQueue[CauseFound] = queue.SimpleQueue()
    inquiry = CauseInquiry(answers, "7", sink=found.put)
    inquiry.ask()
    inquiry.ask()  # the notice comes while the first question is open
    assert found.get(timeout=30).cause == "none"
    assert inquiry.open
    while found.empty():
        inquiry.look()
        time.sleep(0.01)
    assert found.get().cause == "preempted"
    assert not inquiry.open


def test_between_the_answer_and_its_arrival_a_question_is_open() -> None:
    """Who sees none open, and then no event, takes it that nothing is known."""
    seen: queue.SimpleQueue[bool] = queue.SimpleQueue()
    came: queue.SimpleQueue[CauseFound] = queue.SimpleQueue()

    def sink(found: CauseFound) -> None:
        threading.Thread(target=lambda: seen.put(inquiry.open), daemon=True).start()
        time.sleep(0.3)
        if not seen.empty():
            seen.put(True)  # it was answered before the event had come
        came.put(found)

    inquiry = CauseInquiry(Answers("preempted"), "7", sink=sink)
    inquiry.ask()
    assert came.get(timeout=30).cause == "preempted"
    assert seen.get(timeout=30) is False
    time.sleep(0.05)
    assert seen.empty()


def test_slurm_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cause, "ANSWER_WITHIN_S", 0.2)
    answers = Answers("preempted")
    answers.pause_s = 1.0
    found: queue.SimpleQueue[CauseFound] = queue.SimpleQueue()
    inquiry = CauseInquiry(answers, "7", sink=found.put)
    inquiry.ask()
    while found.empty():
        inquiry.look()
        time.sleep(0.02)
    assert found.get().cause == "unknown"
    time.sleep(1.0)
    assert found.empty()  # what comes too late is not told


def test_a_requeue_whose_answer_was_lost_is_not_made_twice() -> None:
    answers = Answers("requeued", refusals=1)
    assert requeue(answers, "7", pause_s=0.01).done
    assert answers.requeued == 0


def test_a_requeue_stops_when_the_job_is_cancelled() -> None:
    answers = Answers("cancelled", refusals=1)
    result = requeue(answers, "7", pause_s=0.01)
    assert (result.done, result.cause) == (False, "cancelled")
    assert answers.requeued == 0


def test_a_requeue_is_tried_again_while_slurm_is_away() -> None:
    answers = Answers("unknown", refusals=3)
    assert requeue(answers, "7", pause_s=0.01).done
    assert answers.requeued == 1


def test_a_requeue_that_is_always_refused_is_given_up() -> None:
    result = requeue(Answers("none", refusals=99), "7", pause_s=0.01)
    assert (result.done, result.problem) == (False, "Socket timed out")


# -- the record ------------------------------------------------------------------------


def record(
    run_dir: Path, *, attempt: int = 0, earlier: tuple[AttemptRecord, ...] = ()
) -> RunRecord:
    folder = RunFolder(path=run_dir).attempt(attempt)
    folder.path.mkdir(parents=True, exist_ok=True)
    made = RunRecord(
        example_plan(run_dir=str(run_dir), submitted_at="2026-11-30T10:00:00+00:00"),
        JOB,
        attempt=attempt,
        folder=folder,
        earlier=earlier,
        lead_rank=0,
    )
    made.start()
    return made


def test_of_two_jobs_that_begin_at_once_the_first_goes_on(tmp_path: Path) -> None:
    RunFolder(path=tmp_path).make()
    ledger = Ledger(RunFolder(path=tmp_path).ledger)
    ledger.append(LedgerEntry(event="started", attempt=0, at="now", job_id="6"))
    with pytest.raises(LaunchError, match="job 6 began attempt 0 of this run just before"):
        record(tmp_path)
    ledger.append(LedgerEntry(event="ended", attempt=0, at="later", job_id="6", cause="failed"))
    (one,) = attempts(ledger.entries())
    assert (one.job_id, one.cause) == ("6", "failed")


@pytest.mark.parametrize(("resumed", "said"), [(0, True), (12, True), (18, False), (20, False)])
def test_a_saved_step_that_is_gone_is_said(
    tmp_path: Path, resumed: int, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = [
        AttemptRecord(
            attempt=n, job_id="7", started_at="x", nodes="", ended_at="y", saved_step=s
        )
        for n, s in enumerate((9, 18, None))
    ]
    written = record(tmp_path, attempt=3, earlier=tuple(earlier))
    for first in (resumed + 1, resumed + 2):
        written.steps_done(StepsDone(rank=0, first=first, seconds=(0.1,), samples_per_step=32))
    words = f"warning: step 18 was saved, and training goes on after step {resumed}: "
    assert capsys.readouterr().err.count(words) == said


def test_what_trainers_say_is_in_the_timing_log(tmp_path: Path) -> None:
    timing_log = pytest.importorskip("sbtrain_perf.timing_log")
    pytest.importorskip("h5py")
    written = record(tmp_path)
    written.phase_done(PhaseDone(rank=0, name="start", seconds=3.5, parameters=10, tensors=2))
    written.steps_done(StepsDone(rank=0, first=1, seconds=(0.1, 0.2), samples_per_step=32))
    written.steps_done(StepsDone(rank=1, first=1, seconds=(0.3,), samples_per_step=32))
    written.phase_done(
        PhaseDone(
            rank=0, name="evaluate", seconds=1.0, metrics={"accuracy": 0.9, "seconds": 4.0}
        )
    )
    written.close()
    read = timing_log.read_timing_log(tmp_path / "attempts" / "0" / "timings.h5")
    assert [phase.name for phase in read.phases] == ["queue", "start", "evaluate"]
    assert read.phases[2].numbers["accuracy"] == 0.9
    assert read.described("parameters") == 10
    assert [(r.rank, r.seconds.tolist()) for r in read.ranks] == [(0, [0.1, 0.2]), (1, [0.3])]
    since_s = time.time() - JOB.started_s
    assert abs(read.phases[1].at_s + 3.5 - since_s) < 30
    assert read.phases[0].at_s == -read.phases[0].seconds


def test_what_steps_waited_for_their_input_is_a_number_of_the_phase(tmp_path: Path) -> None:
    timing_log = pytest.importorskip("sbtrain_perf.timing_log")
    pytest.importorskip("h5py")
    written = record(tmp_path)
    for first in (2, 3):
        said = StepsDone(rank=1, first=first, seconds=(2.0,), input_s=0.5)
        written.steps_done(said, by_hooks=True)
    written.close()
    read = timing_log.read_timing_log(tmp_path / "attempts" / "0" / "timings.h5")
    (steps,) = read.named("steps")
    assert (steps.seconds, steps.numbers) == (4.0, {"rank": 1.0, "input_s": 1.0})


def test_steps_done_again_are_lost_time(tmp_path: Path) -> None:
    timing_log = pytest.importorskip("sbtrain_perf.timing_log")
    pytest.importorskip("h5py")
    first = record(tmp_path)
    first.steps_done(StepsDone(rank=0, first=1, seconds=(1.0, 2.0, 4.0, 8.0)))
    first.close()
    earlier = AttemptRecord(attempt=0, job_id="7", started_at="x", nodes="c3")
    empty = AttemptRecord(attempt=1, job_id="7", started_at="x", nodes="c1")
    second = record(tmp_path, attempt=2, earlier=(earlier, empty))
    second.steps_done(StepsDone(rank=1, first=3, seconds=(1.0,)))
    second.steps_done(StepsDone(rank=0, first=3, seconds=(1.0,)))
    second.steps_done(StepsDone(rank=0, first=4, seconds=(1.0,)))
    second.close()
    read = timing_log.read_timing_log(tmp_path / "attempts" / "2" / "timings.h5")
    (lost,) = read.named("lost")
    assert (lost.seconds, lost.numbers) == (12.0, {"steps": 2.0, "step": 2.0})
    ends = [
        entry
        for entry in Ledger(RunFolder(path=tmp_path).ledger).entries()
        if entry.event == "ended"
    ]
    assert [(entry.attempt, entry.cause) for entry in ends] == [
        (0, "node-fail"),
        (1, "unknown"),
    ]


def test_no_log_to_compare_with_is_no_error(tmp_path: Path) -> None:
    assert steps_beyond(tmp_path / "none.h5", rank=0, step=3) is None
    (tmp_path / "torn.h5").write_bytes(b"\x89HDF\r\n")
    assert steps_beyond(tmp_path / "torn.h5", rank=0, step=3) is None


def test_a_timing_log_that_cannot_be_written_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "attempts" / "0").mkdir(parents=True)
    (tmp_path / "attempts" / "0" / "timings.h5").write_text("in the way")
    written = record(tmp_path)
    for step in range(1, 5):
        written.steps_done(StepsDone(rank=0, first=step, seconds=(0.1,)))
    written.phase_done(PhaseDone(rank=0, name="start", seconds=1.0))
    written.close()
    assert capsys.readouterr().err.count("no timing log") == 1


def test_without_h5py_a_run_has_no_timing_log_and_says_so_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    written = record(tmp_path)
    written.steps_done(StepsDone(rank=0, first=1, seconds=(0.1,)))
    written.close()
    assert capsys.readouterr().err.count("needs the Python package 'h5py'") == 1


def test_a_phase_that_the_log_refuses_does_not_end_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timing_log = pytest.importorskip("sbtrain_perf.timing_log")
    pytest.importorskip("h5py")
    written = record(tmp_path)
    many = {f"metric-{n}": float(n) for n in range(500)}
    written.phase_done(PhaseDone(rank=0, name="evaluate", seconds=1.0, metrics=many))
    written.phase_done(PhaseDone(rank=0, name="start", seconds=1.0))
    written.close()
    assert "warning: timing log" in capsys.readouterr().err
    read = timing_log.read_timing_log(tmp_path / "attempts" / "0" / "timings.h5")
    assert [phase.name for phase in read.phases] == ["queue", "start"]


def test_a_ledger_that_fails_later_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = record(tmp_path)
    (tmp_path / "ledger.jsonl").rename(tmp_path / "gone")
    (tmp_path / "ledger.jsonl").mkdir()
    written.write("saved", step=3)
    assert "cannot write the ledger" in capsys.readouterr().err


# -- progress --------------------------------------------------------------------------


def test_progress_comes_at_most_every_half_minute() -> None:
    now_s, lines = 0.0, []
    progress = ProgressLines(steps=1000, write=lines.append, clock=lambda: now_s)
    for step in range(1, 651):
        now_s += 0.1
        progress.step(step)
    assert lines == [
        "sbtrain: step 1/1000\n",
        "sbtrain: step 301/1000, 10 steps/s, about 1 min 10 s left\n",
        "sbtrain: step 601/1000, 10 steps/s, about 40 s left\n",
    ]


def test_every_line_is_marked_as_ours_and_only_what_went_wrong_is_said_to_the_quiet() -> None:
    said: dict[bool, list[str]] = {False: [], True: []}
    for quiet, lines in said.items():
        progress = ProgressLines(steps=9, quiet=quiet, write=lines.append)
        progress.say("all nodes met")
        progress.step(1)
        progress.say("warning: no timing log")
        progress.say("error: worker 1 failed:\n    Error\nmend it")
    wrong = [
        "sbtrain: warning: no timing log\n",
        "sbtrain: error: worker 1 failed:\nsbtrain:     Error\nsbtrain: mend it\n",
    ]
    assert said[True] == wrong
    assert said[False] == ["sbtrain: all nodes met\n", "sbtrain: step 1/9\n", *wrong]


def test_a_line_of_ours_begins_where_the_programs_has_not_ended(tmp_path: Path) -> None:
    path = tmp_path / "job.err"
    for before in ("", "whole\n", "half a line"):
        path.write_text(before)
        module = "sbtrain_jobs.record.progress_lines"
        code = f"from {module} import ProgressLines; ProgressLines(steps=1).say('x')"
        with path.open("ab") as stream:
            process = start_process([sys.executable, "-c", code], stderr=stream)
        assert process.wait() == 0
        assert path.read_text().splitlines() == [*before.splitlines(), "sbtrain: x"]


# -- the job and its folders -----------------------------------------------------------


def test_array_tasks_have_plans_of_their_own() -> None:
    plan = example_plan()
    named = example_plan(checkpoint_dir="/work/kept/run")
    for plan, folder in (
        (example_plan(), "{run_dir}/task-{task}/checkpoints"),
        (named, "/work/kept/run/task-{task}"),
    ):
        tasks = {task: plan_of_task(plan, task) for task in ("1", "2")}
        for task, one in tasks.items():
            assert one.run_id == f"{plan.run_id}-{task}"
            assert one.run_dir == f"{plan.run_dir}/task-{task}"
            assert one.checkpoint_dir == folder.format(run_dir=plan.run_dir, task=task)


def test_a_run_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = RunFolder(path=tmp_path / "file" / "run")
    with pytest.raises(LaunchError, match="cannot write the run folder"):
        folder.make()


@pytest.mark.parametrize(
    ("name", "own"),
    [("USR1", signal.SIGUSR1), ("SIGHUP", signal.SIGHUP), ("urg", signal.SIGURG), ("12", 12)],
)
def test_notices_are_term_usr1_usr2_and_the_sites_own(name: str, own: int) -> None:
    found = notice_signals(name)
    assert {signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, own} == set(found)
    assert signal.SIGCONT not in found


@pytest.mark.parametrize("name", ["CONT", "KILL", "STOP", "NOPE", "", "99"])
def test_signals_that_cannot_be_a_notice(name: str) -> None:
    with pytest.raises(LaunchError) as caught:
        notice_signals(name)
    assert "site file" in caught.value.hint

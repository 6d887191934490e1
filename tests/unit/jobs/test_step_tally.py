"""What is known of a run's steps, and the words for it: never more than the trainers told."""

from __future__ import annotations

from pathlib import Path

import pytest

from plans import example_plan
from sbtrain_jobs.supervisor.step_tally import BEGIN_WITHIN_S, SETTLE_S, StepTally
from sbtrain_jobs.wire.messages import Apart, PhaseDone, StepsBegun, StepsDone, StepsOver
from sbtrain_perf.request import Role


class Told:
    """A tally of 20 steps, a clock, and short names for what trainers say."""

    def __init__(self, folder: Path, *, workers: int = 2) -> None:
        self.now_s = 1000.0
        self.plan = example_plan(
            steps=20,
            workers=workers,
            roles=tuple(Role(name="worker", index=n, node=n) for n in range(workers)),
            checkpoint_dir=str(folder),
        )
        self.tally = StepTally(self.plan, clock=lambda: self.now_s)

    def joins(self, *ranks: int) -> None:
        for rank in ranks:
            self.tally.joined(rank)

    def begins(self, *ranks: int, start: int = 0, saves: bool = True) -> None:
        self.joins(*ranks)
        for rank in ranks:
            self.tally.heard(StepsBegun(rank=rank, start=start, saves=saves))

    def ran_to(self, rank: int, step: int) -> None:
        self.tally.heard(StepsDone(rank=rank, first=1, seconds=(0.1,) * step))

    def over(self, rank: int, step: int = 20, *, kept: bool | None = None) -> None:
        kept = rank == 0 and step == 20 if kept is None else kept
        self.tally.heard(StepsOver(rank=rank, step=step, kept=kept))


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_what_a_script_saves_by_itself_is_something_new(told: Told, tmp_path: Path) -> None:
    told.begins(0, 1)
    assert told.tally.saved_words(None) == "nothing new saved"
    assert told.tally.stuck()
    told.tally.saved_by_script(str(tmp_path / "model.pt"))
    assert told.tally.saved_words(None) == "nothing new saved"  # it is not there yet
    (tmp_path / "model.pt").touch()
    assert told.tally.saved_words(None) == f"the script saved {tmp_path}/model.pt"
    assert told.tally.stuck() == ""


def test_complete_is_all_ranks_of_one_world_with_the_last_state_saved(told: Told) -> None:
    told.begins(0, 1)
    told.ran_to(0, 20)
    told.ran_to(1, 20)
    told.over(0)
    assert not told.tally.complete
    told.over(1)
    assert told.tally.complete
    assert told.tally.last_word() == "training is complete"


@pytest.mark.parametrize(
    ("worker_1", "said"),
    [
        ("never joins", "nothing was heard of worker 1"),
        ("joins", "worker 1 left after step 0 of 20 (the last it told of)"),
        ("leaves at 7", "worker 1 left after step 7 of 20"),
        ("tells of 19", "worker 1 left after step 19 of 20 (the last it told of)"),
    ],
)
def test_one_rank_alone_completes_nothing(told: Told, worker_1: str, said: str) -> None:
    told.begins(0)
    match worker_1:
        case "joins":
            told.joins(1)
        case "leaves at 7":
            told.begins(1)
            told.over(1, 7)
        case "tells of 19":
            told.begins(1)
            told.ran_to(1, 19)
    told.over(0)
    assert not told.tally.complete
    known = "not" if worker_1 == "leaves at 7" else "not known to be"
    assert told.tally.last_word() == f"warning: training is {known} complete: {said}"


def test_steps_without_a_save_are_done_but_not_kept(told: Told) -> None:
    told.begins(0, 1, saves=False)
    told.over(0, kept=False)
    told.over(1)
    assert not told.tally.complete
    assert told.tally.last_word() == (
        "all 20 steps are done; run.steps() was given no save, so sbtrain keeps no state of "
        "them"
    )


def test_a_last_state_that_was_not_saved_is_not_complete(told: Told) -> None:
    told.begins(0, 1)
    told.over(0, kept=False)  # it left the loop in its last step
    told.over(1)
    assert not told.tally.complete
    assert told.tally.last_word() == (
        "warning: training is not complete: the state after step 20 of 20 is not saved"
    )


def test_worlds_apart_are_not_complete(told: Told) -> None:
    told.begins(0, 1)
    for rank in (0, 1):
        told.tally.heard(Apart(rank=rank, words="mpi4py sees a world of 1, the plan has 2"))
    told.over(0)
    told.over(1)
    assert not told.tally.complete
    assert told.tally.last_word() == (
        "warning: training is not complete: mpi4py sees a world of 1, the plan has 2"
    )


def test_two_processes_of_one_rank_are_not_one_world(told: Told) -> None:
    told.begins(0, 1)
    words = "more than one process joined as worker 1"
    for _ in range(2):
        told.tally.joined_twice(1)
    assert told.tally.warnings() == [words]
    assert told.tally.warnings() == []
    told.over(0)
    told.over(1)
    assert not told.tally.complete
    assert told.tally.last_word() == f"warning: training is not complete: {words}"


def test_ranks_that_begin_after_different_steps_do_not_train_together(told: Told) -> None:
    told.begins(0, start=5)
    told.begins(1)
    told.begins(1, start=5)  # its second loop
    told.over(0)
    told.over(1)
    words = "worker 1 began after step 0, worker 0 after step 5"
    assert told.tally.warnings() == [words]
    assert not told.tally.complete
    assert told.tally.last_word() == f"warning: training is not complete: {words}"


def test_of_scripts_that_do_not_join_only_their_end_is_known(tmp_path: Path) -> None:
    assert Told(tmp_path).tally.last_word() == "all 2 trainers ended with exit status 0"
    alone = Told(tmp_path, workers=1)
    assert alone.tally.last_word() == "the trainer ended with exit status 0"
    roles = tuple(Role(name=name, index=0, node=0) for name in ("chief", "ps", "worker"))
    servers = StepTally(example_plan(layout="ps", roles=roles, checkpoint_dir=str(tmp_path)))
    assert servers.last_word() == "the chief ended with exit status 0"


# -- who is missing --------------------------------------------------------------------


def test_a_rank_that_runs_steps_alone_is_noticed_within_a_minute(tmp_path: Path) -> None:
    told = Told(tmp_path, workers=4)
    told.joins(0, 2)
    told.now_s += 1000.0  # nobody runs a step yet
    assert told.tally.warnings() == []
    told.begins(0, 3)
    told.now_s += BEGIN_WITHIN_S - 0.1
    assert told.tally.warnings() == []
    told.now_s += 0.2
    assert BEGIN_WITHIN_S + 0.2 < 60
    assert told.tally.warnings() == [
        "no step of worker 1 and worker 2 was heard of within 45 s of the first of worker 0; "
        "not joined, as far as is known: worker 1"
    ]
    assert told.tally.warnings() == []


def test_nobody_is_late_where_no_step_is_left(told: Told) -> None:
    told.begins(0, start=20)
    told.now_s += 1000.0
    assert told.tally.warnings() == []


def test_many_that_are_late_are_counted(tmp_path: Path) -> None:
    told = Told(tmp_path, workers=200)
    told.begins(0)
    told.now_s += BEGIN_WITHIN_S
    assert told.tally.warnings()[0].startswith(
        "no step of worker 1, worker 2, worker 3 and 196 others was heard"
    )


def test_one_that_ends_well_without_joining_while_others_go_on_deserts_them(
    told: Told,
) -> None:
    told.tally.ended_well(1)
    assert told.tally.deserted == ""
    told.begins(0)
    assert told.tally.deserted == (
        "worker 1 ended with exit status 0 without joining the run in which worker 0 runs steps"
    )


def test_it_deserts_too_where_others_ran_before_and_go_on(told: Told) -> None:
    told.begins(0)
    told.ran_to(0, 5)
    told.tally.ended_well(1)
    told.now_s += SETTLE_S
    told.ran_to(0, 6)  # reported late
    assert told.tally.deserted == ""
    told.now_s += 0.1
    told.ran_to(0, 7)
    assert told.tally.deserted


def test_one_that_does_not_join_and_ends_when_the_others_are_done_deserts_nobody(
    told: Told,
) -> None:
    """Only worker 0 joins, to save; all train together by other means."""
    told.begins(0)
    told.ran_to(0, 20)
    told.tally.ended_well(1)
    told.now_s += 100.0  # it saves
    told.over(0)
    assert told.tally.deserted == ""
    assert not told.tally.complete


def test_a_hello_that_comes_late_counts(told: Told) -> None:
    told.tally.ended_well(1)
    told.begins(0)
    told.joins(1)
    assert told.tally.deserted == ""


def test_one_that_joined_and_left_is_no_deserter(told: Told) -> None:
    told.joins(1)
    told.tally.ended_well(1)
    told.begins(0)
    assert told.tally.deserted == ""
    assert told.tally.left_behind(1) == "worker 1 left after step 0 of 20 (the last it told of)"


# -- what is saved ---------------------------------------------------------------------


def on_disk(told: Told, step: int) -> None:
    (Path(told.plan.checkpoint_dir) / f"step-{step}").mkdir()


def test_what_is_saved_is_said_as_it_is(told: Told, tmp_path: Path) -> None:
    tally = told.tally
    assert tally.saved_words(None) == ""  # nobody joined: the script's own affair
    assert tally.overdue_words(None) == "trainers have not ended within the grace"
    told.begins(0)
    told.ran_to(0, 11)
    assert tally.saved_words(None) == "nothing new saved"
    assert tally.overdue_words(None) == "not saved within the grace; there is none before"
    on_disk(told, 5)  # nobody told of it
    assert tally.saved_words(None) == "step 5 saved"
    tally.heard(PhaseDone(rank=0, name="checkpoint", seconds=1.0, step=7))
    assert tally.saved_words(None) == "step 7 saved"
    assert tally.overdue_words(None).endswith("the checkpoint of step 7 counts")
    assert tally.saved_words(9) == "step 9 saved"
    assert tally.overdue_words(9) == (
        "step 9 is saved, but trainers have not ended within the grace"
    )
    tally.heard(PhaseDone(rank=0, name="checkpoint", seconds=1.0, step=11))
    assert tally.overdue_words(None).startswith("step 11 is saved, but")


def test_what_was_saved_before_is_nothing_new(tmp_path: Path) -> None:
    (tmp_path / "step-5").mkdir()
    told = Told(tmp_path)
    told.begins(0, start=5)
    assert told.tally.saved_words(None) == "nothing new saved"
    told.ran_to(0, 6)
    assert told.tally.overdue_words(None).endswith("the checkpoint of step 5 counts")


def test_a_folder_that_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    told = Told(tmp_path / "file")
    told.begins(0)
    assert told.tally.saved_words(None) == ""
    assert told.tally.overdue_words(None) == "not saved within the grace"
    assert told.tally.stuck() == ""


def test_no_progress_names_who_is_missing(told: Told) -> None:
    told.begins(0, start=0)
    told.ran_to(0, 3)
    assert told.tally.stuck() == (
        "no progress in a whole attempt: it came to step 3 of 20, and nothing was saved beyond "
        "step 0; not joined, as far as is known: worker 1"
    )

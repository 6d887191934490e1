"""What the supervisor makes of the worlds that hooks tell of."""

from __future__ import annotations

import pytest

from plans import example_plan
from sbtrain_jobs.ending.world_watch import (
    ALL_THERE_WITHIN_S,
    ALONE_FOR_S,
    FORM_AT_WORK_WITHIN_S,
    FORM_WITHIN_S,
    SETTLE_S,
    NotTogether,
    WorldWatch,
)
from sbtrain_jobs.wire.messages import Formed, Forming, Pulse
from sbtrain_perf.request import Framework, Role

TORCH = "torch.distributed"


class Watched:
    """A watch of workers, each on a node of its own, and a clock."""

    def __init__(self, framework: Framework = "torch", *, workers: int = 2) -> None:
        self.now_s = 1000.0
        roles = tuple(Role(name="worker", index=n, node=n) for n in range(workers))
        self.watch = WorldWatch(
            example_plan(framework=framework, workers=workers, nodes=workers, roles=roles),
            describe=lambda rank: f"worker {rank} on node c{rank + 1}",
            clock=lambda: self.now_s,
        )

    def waits(self, rank: int, **claims: object) -> None:
        values = {"place": rank, "size": 2, "address": "10.0.0.1:29500", **claims}
        self.watch.heard(Forming(rank=rank, where=TORCH, **values))  # type: ignore[arg-type]

    def forms(self, rank: int, *, place: int | None = None, size: int = 2) -> None:
        at = rank if place is None else place
        self.watch.heard(Formed(rank=rank, where=TORCH, place=at, size=size))

    def works(self, rank: int, *, seconds: float, **grows: object) -> None:
        """Passes some time, in which the rank's node is asked as often as is wanted."""
        for moment in range(int(seconds)):
            self.now_s += 1.0
            if self.watch.wants_pulses():
                values = {"cpu_s": 0.0, "io_bytes": 0, "faults": 0, "on_disk": False}
                values |= {name: moment * step for name, step in grows.items()}  # type: ignore[operator]
                self.watch.felt(Pulse(rank=rank, **values))  # type: ignore[arg-type]

    def later(self, seconds: float) -> NotTogether | None:
        self.now_s += seconds
        return self.watch.found()

    def words(self) -> str:
        found = self.watch.found()
        return found.words if found else ""


@pytest.fixture
def two() -> Watched:
    return Watched()


def test_a_world_of_all_ranks_is_right(two: Watched) -> None:
    for rank in (0, 1):
        two.waits(rank)
    for rank in (0, 1):
        two.forms(rank)
    assert two.later(3600.0) is None
    two.watch.ended_well(0)
    assert two.watch.found(over=True) is None


def test_worlds_of_one_are_named_at_once(two: Watched) -> None:
    two.waits(1, place=0, size=1)
    assert "worker 1 on node c2 is in a world of 1 rank (torch.distributed)" in two.words()
    assert "the plan has 2 workers" in two.words()


def test_a_world_that_formed_of_one_is_named_though_nothing_was_claimed(two: Watched) -> None:
    two.waits(0, place=-1, size=0, address="")
    assert two.words() == ""
    two.forms(0, size=1)
    assert "world of 1 rank" in two.words()


def test_two_that_take_themselves_for_one_rank(two: Watched) -> None:
    two.waits(0)
    two.waits(1, place=0)
    assert two.words() == (
        "worker 0 on node c1 and worker 1 on node c2 are both rank 0 of torch.distributed"
    )


def test_ranks_that_look_in_different_places(two: Watched) -> None:
    two.waits(0, address="c1:29500")
    two.waits(1, address="localhost:29500")
    assert "worker 0 on node c1 at c1:29500, worker 1 on node c2 at localhost" in two.words()


def test_a_rank_that_does_not_come_is_named(two: Watched) -> None:
    two.waits(0)
    assert two.later(FORM_WITHIN_S - 1) is None
    found = two.later(1.5)
    assert found is not None
    assert found.about == 1
    assert found.words == (
        "worker 1 on node c2 did not come to torch.distributed, where worker 0 on node c1 "
        "waits: it runs, neither computes nor reads, and has not come within 46 s"
    )


def test_for_a_rank_that_has_ended_nobody_waits(two: Watched) -> None:
    two.waits(0)
    two.watch.ended_well(1)
    assert two.later(SETTLE_S / 2) is None
    found = two.later(SETTLE_S)
    assert found is not None
    assert found.words.endswith("waits: it ended with exit status 0")


def test_all_wait_and_find_nobody(two: Watched) -> None:
    two.waits(0)
    two.waits(1)
    found = two.later(FORM_WITHIN_S + 1)
    assert found is not None
    assert found.words == (
        "torch.distributed did not form: worker 0 on node c1 and worker 1 on node c2 wait for "
        "it at 10.0.0.1:29500"
    )
    for word in ("port", "127.x", "no_proxy", "--train-no-hooks"):
        assert word in found.hint


def test_ranks_that_train_on_without_the_world_they_waited_for(two: Watched) -> None:
    two.waits(0)
    two.waits(1)
    assert two.watch.found(over=True) is not None
    two.watch.stepped(0)
    two.watch.stepped(1)
    found = two.later(ALONE_FOR_S + 1)
    assert found is not None
    assert "train alone" in found.words


def test_many_names_are_counted() -> None:
    many = Watched(workers=9)
    many.waits(0, size=9)
    found = many.later(FORM_WITHIN_S + 1)
    assert found is not None
    assert "worker 3 on node c4 and 5 others did not come" in found.words


def test_steps_in_no_world_are_taken_alone(two: Watched) -> None:
    two.watch.stepped(0)
    assert two.later(ALONE_FOR_S - 1) is None
    assert two.watch.found(over=True) is not None
    two.watch.stepped(1)
    found = two.later(2.0)
    assert found is not None
    assert found.words == (
        "worker 0 on node c1 and worker 1 on node c2 train alone: no world of the plan's 2 "
        "workers was formed"
    )


def test_steps_before_the_world_forms_are_forgiven(two: Watched) -> None:
    two.watch.stepped(0)
    for rank in (0, 1):
        two.waits(rank)
        two.forms(rank)
        two.watch.stepped(rank)
    assert two.later(3600.0) is None


def test_a_later_world_is_the_scripts_own_affair(two: Watched) -> None:
    for rank in (0, 1):
        two.waits(rank)
        two.forms(rank)
    two.waits(0, size=1)
    assert two.later(3600.0) is None


def test_worlds_of_another_framework_do_not_count() -> None:
    mpi = Watched("mpi")
    mpi.waits(0, size=1)
    assert mpi.later(3600.0) is None


def test_without_a_framework_a_wrong_world_is_a_warning() -> None:
    plain = Watched("plain")
    assert plain.watch.warning() == ""
    plain.forms(0, size=1)
    assert plain.later(3600.0) is None
    assert "world of 1 rank" in plain.watch.warning()
    assert plain.watch.warning() == ""


def test_one_worker_may_be_alone() -> None:
    one = Watched(workers=1)
    one.watch.stepped(0)
    one.forms(0, size=1)
    assert one.later(3600.0) is None


def test_a_chief_waits_for_servers_and_workers() -> None:
    names = ("chief", "ps", "worker", "worker")
    roles = tuple(Role(name=n, index=max(0, i - 2), node=0) for i, n in enumerate(names))  # type: ignore[arg-type]
    now_s = [0.0]
    watch = WorldWatch(
        example_plan(framework="tensorflow", layout="ps", roles=roles, servers=1),
        describe=lambda rank: f"rank {rank}",
        clock=lambda: now_s[0],
    )
    for rank in (1, 2):
        watch.heard(Forming(rank=rank, where="tf.distribute.Server"))
    assert watch.found() is None
    watch.heard(Forming(rank=0, where="ParameterServerStrategy"))
    now_s[0] = FORM_WITHIN_S + 1
    found = watch.found()
    assert found is not None
    assert found.words.startswith("rank 3 did not come to ParameterServerStrategy")
    watch.heard(Formed(rank=0, where="ParameterServerStrategy", place=0, size=2))
    assert watch.found(over=True) is None


@pytest.mark.parametrize("sign", [{"cpu_s": 0.3}, {"io_bytes": 1 << 19}, {"faults": 30}])
def test_a_rank_that_works_before_it_comes_is_given_longer(
    two: Watched, sign: dict[str, float]
) -> None:
    two.waits(0)
    two.works(1, seconds=FORM_AT_WORK_WITHIN_S - 5.0, **sign)
    assert two.watch.found() is None
    two.works(1, seconds=10.0, **sign)
    assert "worker 1 on node c2 did not come" in two.words()
    assert "is still at work, and has not come within 60" in two.words()


def test_a_rank_that_only_polls_stands_still(two: Watched) -> None:
    two.waits(0)
    two.works(1, seconds=FORM_WITHIN_S + 1.0, cpu_s=0.01, io_bytes=100)
    assert "it runs, neither computes nor reads, and has not come within 46 s" in two.words()


def test_of_two_absent_ranks_the_one_that_stands_still_is_named() -> None:
    three = Watched(workers=3)
    three.waits(0, size=3)
    three.works(1, seconds=FORM_WITHIN_S + 1.0, cpu_s=1.0)
    assert "worker 2 on node c3 runs, neither computes nor reads" in three.words()


def test_a_rank_that_came_late_still_has_time_to_meet_the_others(two: Watched) -> None:
    two.waits(0)
    two.works(1, seconds=100.0, cpu_s=1.0)
    two.waits(1)
    assert two.later(ALL_THERE_WITHIN_S - 1.0) is None
    found = two.later(2.0)
    assert found is not None
    assert "did not form" in found.words


def test_nobody_is_asked_for_signs_before_it_is_late_nor_when_all_are_there(
    two: Watched,
) -> None:
    two.waits(0)
    two.now_s += 25.0
    assert not two.watch.wants_pulses()
    two.now_s += 10.0
    assert two.watch.wants_pulses()
    assert not two.watch.wants_pulses()  # just asked
    two.waits(1)
    two.now_s += 10.0
    assert not two.watch.wants_pulses()


def test_a_world_that_formed_and_that_accelerate_does_not_use(two: Watched) -> None:
    for rank in (0, 1):
        two.waits(rank)
        two.forms(rank)
    two.watch.heard(Formed(rank=1, where="Accelerate", place=0, size=1))
    assert "worker 1 on node c2 is in a world of 1 rank (Accelerate)" in two.words()


def test_of_a_script_without_a_framework_copies_that_train_alone_are_a_warning() -> None:
    plain = Watched("plain")
    plain.watch.stepped(0)
    assert plain.watch.warning(over=True) == ""  # one rank may have work that others lack
    plain.watch.stepped(1)
    assert plain.watch.warning() == ""
    plain.now_s += ALONE_FOR_S + 1.0
    assert plain.watch.warning() == (
        "worker 0 on node c1 and worker 1 on node c2 train alone: no world of the plan's "
        "2 workers was formed"
    )
    assert plain.watch.warning(over=True) == ""
    assert plain.watch.found(over=True) is None


def test_copies_that_were_soon_done_are_warned_of_at_the_end() -> None:
    plain = Watched("plain")
    for rank in (0, 1):
        plain.watch.stepped(rank)
    assert "train alone" in plain.watch.warning(over=True)

"""Whether the ranks of a run train together: what their hooks say of the world that forms, held
against the plan, and what to say where it does not."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sbtrain_jobs.ending.pulses import EVERY_S, Pulses
from sbtrain_jobs.layouts.ranks import counting_ranks
from sbtrain_jobs.wire.messages import Formed, Forming, Pulse
from sbtrain_perf.request import Framework, Plan
from sbtrain_perf.wording import count

FORM_WITHIN_S = 45.0  # since the first rank began to wait
FORM_AT_WORK_WITHIN_S = 600.0  # the same, of ranks that compute or read before they come
ALL_THERE_WITHIN_S = 30.0  # since the last rank began to wait, where that is later
ALONE_FOR_S = 20.0  # since its first step, of a rank that is in no world
SETTLE_S = 2.0  # for what others say when one has ended

_WORLDS: dict[Framework, frozenset[str]] = {
    "torch": frozenset(("torch.distributed", "Accelerate")),
    "jax": frozenset(("jax.distributed",)),
    "horovod": frozenset(("Horovod",)),
    "mpi": frozenset(("MPI",)),
    "tensorflow": frozenset(("MultiWorkerMirroredStrategy", "ParameterServerStrategy")),
}
_WHAT_COUNTS = "Accelerate"  # whatever torch.distributed made of the ranks
_BY_IMPORT = ("MPI",)  # a library that imports mpi4py forms it, whatever the script wants
_SERVER = "tf.distribute.Server"
_SWITCH = "--train-no-hooks turns this watch off"
_ONE_WORLD = (
    "the script must take rank, world size and address from what sbtrain sets (RANK, "
    "WORLD_SIZE, MASTER_ADDR, TF_CONFIG ...), or leave them to its framework; "
    f"{_SWITCH}"
)
_ALL_WAIT = (
    "look whether the port is taken by another program, whether every node resolves the name "
    "to the first node's address (127.x is each node's own), and whether http_proxy or "
    f"grpc_proxy is set without a no_proxy that names the nodes; {_SWITCH}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTogether:
    """Why the ranks do not train together. about: the rank whose log may tell more."""

    words: str
    hint: str
    about: int | None = None


class WorldWatch:
    """Bookkeeping only. Where nothing is heard from hooks, nothing is known, and nothing said.

    Args:
        describe: a rank in words, with its node.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        describe: Callable[[int], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._expected = counting_ranks(plan)
        self._everyone = frozenset(range(len(plan.roles)))
        self._serving: set[int] = set()  # servers and workers that a chief may use
        self._size = plan.workers
        self._one_process = len(plan.roles) < 2
        self._worlds = _WORLDS.get(plan.framework)
        self._describe = describe
        self._clock = clock
        self._waits: dict[int, Forming] = {}
        self._formed: dict[int, Formed] = {}
        self._first_s: float | None = None  # when the first of these came
        self._last_s = 0.0  # and the last rank that was new among them
        self._pulses = Pulses()
        self._ended_s: dict[int, float] = {}  # with exit status 0
        self._steps_s: dict[int, float] = {}  # in no world: when its first step ended
        self._warned = False

    @property
    def ends_runs(self) -> bool:
        """Whether the plan's framework must form a world; else what is found is a warning."""
        return self._worlds is not None

    def heard(self, message: Forming | Formed) -> None:
        rank = message.rank
        if message.where == _SERVER:
            self._serving.add(rank)
            return
        ours = (
            message.where in self._worlds if self._worlds else message.where not in _BY_IMPORT
        )
        known = rank in self._formed and message.where != _WHAT_COUNTS
        if not ours or rank not in self._expected or known:
            return
        if self._first_s is None:
            self._first_s = self._clock()
        if rank not in self._said:
            self._last_s = self._clock()
        if isinstance(message, Formed):
            self._formed[rank] = message
            self._steps_s.pop(rank, None)
        else:
            self._waits[rank] = message

    def stepped(self, rank: int) -> None:
        """It has ended steps of which its hooks told, and not the script itself."""
        if rank in self._expected and rank not in self._formed:
            self._steps_s.setdefault(rank, self._clock())

    def ended_well(self, rank: int) -> None:
        self._ended_s.setdefault(rank, self._clock())

    def wants_pulses(self) -> bool:
        """Whether nodes are to be asked now who is at work: it is late, and some are absent."""
        if not self.ends_runs or self._first_s is None or not self._absentees():
            return False
        now_s = self._clock()
        return now_s > self._first_s + FORM_WITHIN_S - 3 * EVERY_S and self._pulses.due(now_s)

    def felt(self, pulse: Pulse) -> None:
        self._pulses.heard(pulse, self._clock())

    def found(self, *, over: bool = False) -> NotTogether | None:
        """What is wrong by now. over: all have ended."""
        if not self.ends_runs or self._one_process:
            return None
        return self._wrong_world() or self._alone(over=over) or self._absent(over=over)

    def warning(self, *, over: bool = False) -> str:
        """What to say where the plan names no framework, once. over: all have ended."""
        if self.ends_runs or self._warned or self._one_process:
            return ""
        wrong = self._wrong_world()
        if wrong is None and len(self._steps_s) > 1:
            wrong = self._alone(over=over)
        if wrong is None:
            return ""
        self._warned = True
        return wrong.words

    # -- what can be wrong -------------------------------------------------------------

    def _wrong_world(self) -> NotTogether | None:
        said = self._said
        for rank, one in sorted(said.items()):
            if one.size not in (0, self._size):
                words = (
                    f"{self._describe(rank)} is in a world of {count(one.size, 'rank')} "
                    f"({one.where}), the plan has {count(self._size, 'worker')}"
                )
                return NotTogether(words=words, hint=_ONE_WORLD)
        places: dict[int, list[int]] = defaultdict(list)
        for rank, one in said.items():
            places[one.place].append(rank)
        for place, ranks in places.items():
            if place >= 0 and len(ranks) > 1:
                words = f"{self._names(ranks)} are both rank {place} of {said[ranks[0]].where}"
                return NotTogether(words=words, hint=_ONE_WORLD)
        return self._wrong_address()

    def _wrong_address(self) -> NotTogether | None:
        asked = {rank: one for rank, one in self._waits.items() if one.address}
        addresses = {one.address for one in asked.values()}
        if len(addresses) > 1:
            each = ", ".join(
                f"{self._describe(r)} at {asked[r].address}" for r in sorted(asked)
            )
            words = f"the ranks look for each other in different places: {each}"
            return NotTogether(words=words, hint=_ONE_WORLD)
        return None

    def _absent(self, *, over: bool) -> NotTogether | None:
        """Not all have come to where the first waits."""
        missing = self._expected - self._formed.keys()
        if self._first_s is None or not missing:
            return None
        now_s = self._clock()
        where = next(iter(self._said.values())).where
        came, absent = self._said.keys(), self._absentees()
        gone = [r for r in absent if now_s > self._ended_s.get(r, now_s) + SETTLE_S]
        if not (gone or over) and now_s < self._deadline_s(absent, now_s):
            return None
        if not absent:
            at = {self._waits[rank].address for rank in missing if rank in self._waits} - {""}
            words = (
                f"{where} did not form: {self._names(missing)} "
                f"{'waits' if len(missing) == 1 else 'wait'} for it{_listed(' at ', at)}"
            )
            return NotTogether(words=words, hint=_ALL_WAIT, about=min(missing))
        still = [r for r in absent if not self._pulses.at_work(r, now_s)]
        about = (gone or still or absent)[0]
        who = "it" if len(absent) == 1 else self._describe(about)
        words = (
            f"{self._names(absent)} did not come to {where}, where {self._names(came)} "
            f"{'waits' if len(came) == 1 else 'wait'}: {who} {self._what_became_of(about)}"
        )
        hint = f"every rank must come there; {_SWITCH}"
        return NotTogether(words=words, hint=hint, about=about)

    def _absentees(self) -> list[int]:
        return sorted(self._everyone - self._said.keys() - self._serving)

    def _deadline_s(self, absent: Iterable[int], now_s: float) -> float:
        assert self._first_s is not None
        if not absent:
            return max(self._first_s + FORM_WITHIN_S, self._last_s + ALL_THERE_WITHIN_S)
        at_work = all(self._pulses.at_work(rank, now_s) for rank in absent)
        return self._first_s + (FORM_AT_WORK_WITHIN_S if at_work else FORM_WITHIN_S)

    def _alone(self, *, over: bool) -> NotTogether | None:
        """Steps are taken in no world."""
        since_s = min(self._steps_s.values(), default=None)
        if since_s is None or not (over or self._clock() > since_s + ALONE_FOR_S):
            return None
        ranks = sorted(self._steps_s)
        words = (
            f"{self._names(ranks)} {'trains' if len(ranks) == 1 else 'train'} alone: no world "
            f"of the plan's {count(self._size, 'worker')} was formed"
        )
        return NotTogether(words=words, hint=_ONE_WORLD)

    @property
    def _said(self) -> dict[int, Forming | Formed]:
        return {**self._waits, **self._formed}

    # -- words -------------------------------------------------------------------------

    def _what_became_of(self, rank: int) -> str:
        if rank in self._ended_s:
            return "ended with exit status 0"
        assert self._first_s is not None
        now_s = self._clock()
        waited = f"has not come within {now_s - self._first_s:.0f} s"
        if self._pulses.at_work(rank, now_s):
            return f"is still at work, and {waited}"
        return f"runs, neither computes nor reads, and {waited}"

    def _names(self, ranks: Iterable[int]) -> str:
        names = [self._describe(rank) for rank in sorted(ranks)]
        if len(names) > 4:
            names[3:] = [count(len(names) - 3, "other")]
        head = ", ".join(names[:-1])
        return f"{head} and {names[-1]}" if head else names[-1]


def _listed(lead: str, words: Iterable[str]) -> str:
    found = ", ".join(sorted(words))
    return f"{lead}{found}" if found else ""

"""The worlds of ranks that a script's own launchers start, one after another or side by side:
which process belongs to which, and what is known of all of them together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from sbtrain_jobs.record.run_record import RunRecord
from sbtrain_jobs.supervisor.step_tally import StepTally
from sbtrain_jobs.supervisor.world import TrainingWorld
from sbtrain_jobs.wire.control import Peer
from sbtrain_jobs.wire.messages import Hello, Message, PhaseDone, StepsDone
from sbtrain_perf.request import Plan, Role

MOST_RANKS = 1 << 20


@dataclass(slots=True, kw_only=True)
class _Launch:
    """One world, by the words of its ranks' Hello. plan: with its ranks. gone: ranks whose
    process has left."""

    name: str
    size: int
    plan: Plan
    world: TrainingWorld
    peers: dict[int, Peer] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)


class ScriptWorlds:
    """Args:
    send: gives a message to a process that has joined.
    say: writes a line of progress.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        send: Callable[[Peer, Message], None],
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._send = send
        self._say = say
        self._launches: list[_Launch] = []
        self.spoke = False  # a process has joined
        self._reason = ""  # why all are to stop, those that are still to come too
        self._shared_said = False

    def joined(self, peer: Peer) -> bool:
        """Whether the process has a place in some world."""
        hello = peer.hello
        if hello.who != "trainer" or not 0 <= hello.rank < hello.size <= MOST_RANKS:
            return False
        self.spoke = True
        launch = self._launch_of(hello)
        twice = hello.rank in launch.peers
        launch.peers[hello.rank] = peer
        launch.world.joined(hello.rank, twice=twice)
        return True

    def heard(self, peer: Peer, message: Message) -> None:
        if (launch := self._with(peer)) is not None:
            launch.world.heard(peer.hello.rank, message)

    def left(self, peer: Peer) -> None:
        if (launch := self._with(peer)) is not None:
            del launch.peers[peer.hello.rank]
            launch.gone.add(peer.hello.rank)
            launch.world.ended(peer.hello.rank)

    def ask_to_stop(self, reason: str) -> None:
        """All that are there, and all that are still to come."""
        if not self._reason:
            self._reason = reason
            for launch in self._launches:
                launch.world.ask_to_stop(reason)

    def ask_one_to_stop(self, peer: Peer, reason: str) -> None:
        """The world of this process alone."""
        if (launch := self._with(peer)) is not None:
            launch.world.ask_to_stop(reason)

    def plan_of(self, peer: Peer) -> Plan:
        """The run's plan, with the ranks of this process's world."""
        launch = self._with(peer)
        return self._plan if launch is None else launch.plan

    # -- what is known -----------------------------------------------------------------

    @property
    def connected(self) -> bool:
        return any(launch.peers for launch in self._launches)

    @property
    def complete(self) -> bool:
        """All ranks of one world have done the last step, and its state is saved."""
        return any(tally.complete for tally in self._begun())

    def warnings(self) -> Iterator[str]:
        """What is to be said now, each once."""
        for launch in self._launches:
            if launch.peers:
                yield from launch.world.tally.warnings()
        training = [one for one in self._launches if one.peers and one.world.tally.begun]
        folders = [one.plan.checkpoint_dir for one in training]
        shared = next((one for one in folders if folders.count(one) > 1), "")
        if shared and not self._shared_said:
            self._shared_said = True
            yield (
                f"{folders.count(shared)} launches of the script train at the same time, and "
                f"save into one folder, {shared}: each would resume from the others'"
            )

    def last_word(self) -> str:
        """What is known of the training once the script has ended; or nothing."""
        begun = self._begun()
        done = next((tally for tally in begun if tally.complete), None)
        shown = done or (begun[-1] if begun else None)
        return "" if shown is None else shown.last_word()

    def saved_words(self) -> str:
        known = (one.world.tally.saved_words(one.world.saved_step) for one in self._newest())
        return next(filter(None, known), "")

    def overdue_words(self) -> str:
        newest = self._launches[-1]
        return newest.world.tally.overdue_words(newest.world.saved_step)

    def stuck(self) -> str:
        """What to say of an attempt in which no world kept anything new; else nothing."""
        said = [tally.stuck() for tally in self._begun()]
        return said[-1] if said and all(said) else ""

    # -- details -----------------------------------------------------------------------

    def _begun(self) -> list[StepTally]:
        return [one.world.tally for one in self._launches if one.world.tally.begun]

    def _newest(self) -> Iterator[_Launch]:
        return reversed(self._launches)

    def _with(self, peer: Peer) -> _Launch | None:
        rank = peer.hello.rank
        return next((one for one in self._newest() if one.peers.get(rank) == peer), None)

    def _launch_of(self, hello: Hello) -> _Launch:
        """The newest of its name, unless that had this rank before: then the same line of the
        script has started all of them once more."""
        folder = self._folder(hello)
        for launch in self._newest():
            of = (launch.name, launch.size, launch.plan.checkpoint_dir)
            if of == (hello.world, hello.size, folder):
                if hello.rank in launch.gone:
                    break
                return launch
        # Those of which no rank trained, and none is there, have nothing more to tell.
        told = [one for one in self._launches if one.peers or one.world.tally.begun]
        self._launches = [*told, self._new(hello)]
        return self._launches[-1]

    def _folder(self, hello: Hello) -> str:
        return hello.checkpoints or self._plan.checkpoint_dir

    def _new(self, hello: Hello) -> _Launch:
        plan = plan_of_world(self._plan, size=hello.size, folder=self._folder(hello))
        peers: dict[int, Peer] = {}

        def tell(rank: int, message: Message) -> None:
            if (peer := peers.get(rank)) is not None:
                self._send(peer, message)

        world = TrainingWorld(plan, tell=tell, say=self._say, stopped=lambda: None)
        if self._reason:
            world.ask_to_stop(self._reason)
        return _Launch(name=hello.world, size=hello.size, plan=plan, world=world, peers=peers)


class WatchedWorld:
    """What hooks tell of a script of which no rank joins: the steps of the first world that
    takes any, for the timing log alone."""

    def __init__(self, plan: Plan, record: RunRecord) -> None:
        self._plan = plan
        self._record = record
        self._of: tuple[str, int] | None = None
        self._peers: set[int] = set()  # process ids of its ranks that are there

    @property
    def connected(self) -> bool:
        return bool(self._peers)

    def heard(self, peer: Peer, message: Message) -> None:
        hello = peer.hello
        of = (hello.world, hello.size)
        if not 0 <= hello.rank < hello.size <= MOST_RANKS or self._of not in (None, of):
            return
        match message:
            case StepsDone():
                self._begin(of)
                self._record.steps_done(message, by_hooks=True, aloud=False)
            case PhaseDone(name=name) if name == "start" or self._of is not None:
                self._begin(of)
                self._record.phase_done(message)
            case _:
                return
        self._peers.add(hello.pid)

    def left(self, peer: Peer) -> None:
        self._peers.discard(peer.hello.pid)

    def _begin(self, of: tuple[str, int]) -> None:
        if self._of is None:
            self._of = of
            plan = plan_of_world(self._plan, size=of[1], folder=self._plan.checkpoint_dir)
            self._record.open_timings(plan)


def plan_of_world(plan: Plan, *, size: int, folder: str) -> Plan:
    """With the ranks of a world that the script started, block by block on the nodes; they keep
    their checkpoints in a folder."""
    nodes = min(plan.nodes, size)
    roles = (Role(name="worker", index=at, node=at * nodes // size) for at in range(size))
    return replace(
        plan,
        checkpoint_dir=folder,
        layout="allreduce",
        workers=size,
        servers=0,
        roles=tuple(roles),
    )

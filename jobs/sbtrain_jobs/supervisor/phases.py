"""One attempt from its first step to the end of its last process, as events arrive.

    staging --> meeting --> training --> ending
        \\__________ notice, failure or a lost node: straight to ending

It decides when the attempt is over and with what facts; what becomes of the job then is
sbtrain_jobs.supervisor.conclusion's.
"""

from __future__ import annotations

import queue
import signal
import time
from typing import Literal

from sbtrain_jobs.batch_step import BatchStep
from sbtrain_jobs.ending.cause import CauseFound
from sbtrain_jobs.ending.first_failure import FirstFailure
from sbtrain_jobs.ending.grace import FAILED_GRACE_S, window_s
from sbtrain_jobs.ending.notice import EndNotice, is_named
from sbtrain_jobs.ending.outcome import Failure, Outcome
from sbtrain_jobs.ending.slurms_words import SlurmsWords
from sbtrain_jobs.ending.world_watch import WorldWatch
from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.layouts.ranks import by_mpi
from sbtrain_jobs.staged_data import wants_staging
from sbtrain_jobs.supervisor.attempt_steps import Attempt, AttemptSteps
from sbtrain_jobs.supervisor.mpi_launch import OTHER_WAYS
from sbtrain_jobs.supervisor.rendezvous import Rendezvous
from sbtrain_jobs.supervisor.roster import Roster
from sbtrain_jobs.supervisor.srun_step import StepEnded
from sbtrain_jobs.supervisor.staging_step import Staging, why_failed
from sbtrain_jobs.supervisor.trainer_log import aborted_through_mpi, how_it_ended, last_words
from sbtrain_jobs.supervisor.world import DESERTED_HINT, TrainingWorld, hear_witness
from sbtrain_jobs.wire.control import ControlListener, Peer, PeerJoined, PeerLeft, PeerSaid
from sbtrain_jobs.wire.messages import (
    Finish,
    Look,
    Message,
    Notice,
    PhaseDone,
    Pulse,
    Ready,
    Requeue,
    RoleEnded,
    Saved,
    Start,
    StepsDone,
)
from sbtrain_jobs.wire.reach import candidate_addresses
from sbtrain_perf.wording import count

ENDING_SLACK_S = 15.0  # for agents to report after their trainers' grace
LAST_WORDS_S = 3.0  # for what is on the way when srun has ended
OUTPUT_WITHIN_S = 1.0  # for what trainers wrote last, on its way through srun
ASK_AGAIN_EVERY_S = 3.0  # while Slurm has not said why it told us to stop
SAME_NOTICE_S = 2.0  # signals of one notice come within this, as it ends others follow
REQUEUE_GRACE_S = 10.0  # for ranks to end, once one has asked for a requeue
OVERDUE_S = 60.0  # after the grace of a preemption that Slurm does not carry out


class AttemptPhases:
    """Runs to its Outcome in the calling thread."""

    def __init__(self, attempt: Attempt, *, step: BatchStep) -> None:
        self._step = step
        self._plan = plan = attempt.plan
        self._job = job = attempt.job
        self._folder = attempt.folder
        self._record = record = attempt.record
        self._events = attempt.events
        self._inquiry = attempt.inquiry
        self._steps = AttemptSteps(attempt)
        self._say = record.progress.say
        self._staging = Staging(plan, attempt.folder, steps=self._steps, say=self._say)
        self._phase: Literal["staging", "meeting", "training", "ending"] = "staging"
        self._roster = Roster(plan, job.nodes)
        self._rendezvous = Rendezvous(plan, job.nodes)
        self._world = TrainingWorld(
            plan, tell=self._tell_trainer, say=self._say, stopped=self._all_stopped
        )
        self._tally = self._world.tally
        self._failures = FirstFailure()
        self._watch = WorldWatch(plan, describe=self._roster.describe)
        self._notice = EndNotice(record, SlurmsWords(job.job_id))
        self._noticed_s: float | None = None
        self._ask_again_s = 0.0
        self._overdue_said = False
        self._closing_by_s: float | None = None
        self._requeue_asked = self._unasked = False  # by a rank; before anybody told it
        self._finished = False  # before anybody was told to end
        self._failure: Failure | None = None
        self._end_by_s = 0.0
        self._listener = ControlListener(token=attempt.token, sink=attempt.events.put)

    def run(self) -> Outcome:
        """Raises LaunchError when the steps cannot be started at all."""
        try:
            self._record.open_timings(self._plan)
            self._inquiry.ask()  # a notice may have come before anyone listened
            if wants_staging(self._plan):
                self._staging.begin()
            else:
                self._begin_agents()
            while not self._over():
                self._take(within_s=0.2)
                self._inquiry.look()
                self._look_at_clock()
            return self._outcome()
        finally:
            self._listener.close()
            self._steps.close()

    # -- beginnings --------------------------------------------------------------------

    def _begin_agents(self) -> None:
        self._phase = "meeting"
        self._rendezvous.begin()
        self._say(f"starting agents on {self._job.node_list}")
        self._steps.start_agents(control=candidate_addresses(self._listener.port))

    def _begin_training(self) -> None:
        self._phase = "training"
        self._roster.started = True
        addresses = self._rendezvous.addresses(one_host=self._roster.one_host)
        self._say(f"all nodes met; starting {count(len(self._plan.roles), 'trainer')}")
        stdin, apart = self._step.stdin, self._step.stderr_apart
        self._tell_agents(Start(addresses=addresses, stdin=stdin, stderr_apart=apart))

    # -- events ------------------------------------------------------------------------

    def _take(self, *, within_s: float) -> None:
        try:
            event = self._events.get(timeout=within_s)
        except queue.Empty:
            return
        match event:
            case PeerSaid(peer=peer, message=Requeue()):
                self._asked_for_requeue(peer)
            case PeerSaid(peer=peer, message=message) if self._roster.knows(peer):
                self._heard(peer, message)
            case PeerJoined(peer=peer):
                self._joined(peer)
            case PeerLeft(peer=peer):
                self._look_for_abort()
                self._roster.left(peer, told_to=self._phase == "ending")
                if self._roster.lost_nodes and self._phase in ("meeting", "training"):
                    self._say(f"no agent any more on {', '.join(self._roster.lost_nodes)}")
                    self._begin_ending(grace_s=self._grace_s())
            case StepEnded():
                self._step_ended(event)
            case CauseFound():
                self._cause_found(event)
            case int():
                self._noticed(f"{signal.Signals(event).name} in the batch script")

    def _joined(self, peer: Peer) -> None:
        rank = peer.hello.rank
        there = self._roster.trainer(rank)
        if not self._roster.joined(peer):
            return
        if peer.hello.who == "agent" and self._phase == "ending":
            self._listener.send(peer, Finish(grace_s=0.0))
        elif peer.hello.who == "trainer":
            twice = there is not None and there.hello.pid != peer.hello.pid
            self._world.joined(rank, twice=twice)

    def _heard(self, peer: Peer, message: Message) -> None:
        if peer.hello.who == "witness":
            of = (self._watch, self._failures, self._tally, self._record)
            hear_witness(peer.hello.rank, message, *of)
            return
        if peer.hello.who == "trainer":
            self._world.heard(peer.hello.rank, message)
        match message:
            case Ready():
                if self._phase == "meeting":
                    self._rendezvous.add(message)
                    if self._rendezvous.complete:
                        self._begin_training()
            case Notice(signal=name):
                node = self._job.nodes[peer.hello.node]
                self._noticed(f"{name} in the step on {node}")
            case StepsDone():
                self._record.steps_done(message)
            case PhaseDone():
                self._record.phase_done(message)
            case Pulse():
                self._watch.felt(message)
            case Saved(step=step) if self._noticed_s is not None:
                self._say(f"saved step {step}")
                self._record.write("saved", step=step, detail=message.path)
            case RoleEnded(rank=rank, returncode=returncode):
                if returncode == -signal.SIGKILL:
                    self._look_for_abort()
                if self._roster.ended(rank, returncode):
                    self._role_ended(rank, returncode)

    def _look_for_abort(self) -> None:
        """MPI_Abort has Slurm kill the whole step, the agent that was to tell of it too."""
        if self._phase != "training" or not by_mpi(self._plan):
            return
        names = [self._roster.role_name(rank) for rank in range(len(self._plan.roles))]
        for rank, returncode in aborted_through_mpi(self._folder, names):
            if self._roster.ended(rank, returncode):
                self._role_ended(rank, returncode)

    def _role_ended(self, rank: int, returncode: int) -> None:
        self._failures.ended(rank, returncode)
        if returncode == 0:
            self._tally.ended_well(rank)
            self._watch.ended_well(rank)
        if self._phase == "training" and self._roster.finished:
            self._finished = True
            self._closing_by_s = time.monotonic() + OUTPUT_WITHIN_S
            self._begin_ending(grace_s=FAILED_GRACE_S)
        self._world.ended(rank)
        if self._phase != "training":
            return
        self._look_for_failure()
        if self._phase == "training" and self._roster.all_ended:
            self._begin_ending(grace_s=0.0)
        elif returncode == 0 and (left := self._tally.left_behind(rank)):
            self._say(f"warning: {left}, with exit status 0; the others go on")

    def _look_for_failure(self, *, at_last: bool = False) -> None:
        first = self._failures.found(at_last=at_last) if self._noticed_s is None else None
        if first is None:
            return
        said = last_words(self._folder, self._roster.role_name(first.rank))
        ended = f"{self._roster.describe(first.rank)} {how_it_ended(first.returncode)}"
        self._fail(first.returncode, ended, hint=said)

    def _step_ended(self, event: StepEnded) -> None:
        self._steps.ended()
        if self._phase == "ending":
            self._say_finished()
            self._end_by_s = min(self._end_by_s, time.monotonic() + LAST_WORDS_S)
            return
        if event.name == "staging":
            if event.returncode != 0 and self._staging.begins_again(event.returncode):
                return
            nodes, code = self._job.nodes, event.returncode
            if code != 0 and not self._staging.in_place(code, nodes):
                self._fail(*why_failed(self._folder, returncode=code, nodes=nodes))
                return
            if code == 0:
                self._record.staged()
            self._begin_agents()
        elif self._phase == "meeting":
            missing = ", ".join(self._rendezvous.missing()) or "none"
            self._fail(
                LaunchError.exit_code,
                f"srun ended with exit status {event.returncode} before all agents had met; "
                f"missing: {missing}",
                hint=OTHER_WAYS if by_mpi(self._plan) else "",
            )
        else:
            self._look_for_failure(at_last=True)
            self._begin_ending(grace_s=0.0)
            self._end_by_s = time.monotonic() + LAST_WORDS_S

    def _cause_found(self, found: CauseFound) -> None:
        known = self._notice.learn(found)
        if self._noticed_s is None:
            if known and found.cause != "time-limit":
                self._noticed("Slurm says so when asked")
            return
        if known or not self._inquiry.open:
            self._notice.write()
        self._shorten_grace()

    def _say_finished(self) -> None:
        """Once, behind the trainers' own last lines."""
        due, self._closing_by_s = self._closing_by_s is not None, None
        if due and self._why_not_together(over=True) is None:  # that error is said by itself
            self._say_warnings(over=True)
            self._say(self._tally.last_word())

    # -- stopping ----------------------------------------------------------------------

    def _noticed(self, detail: str) -> None:
        self._inquiry.ask()
        if self._noticed_s is not None:
            again_s = time.monotonic() - self._noticed_s
            if detail.startswith("SIGTERM") and again_s > SAME_NOTICE_S:
                self._last_call()
            return
        self._noticed_s = time.monotonic()
        self._notice.detail = detail
        if self._phase == "ending":
            return
        self._say(f"told to stop: {detail}")
        if self._phase == "training":
            self._world.ask_to_stop(detail)
        else:
            self._begin_ending(grace_s=0.0)

    def _asked_for_requeue(self, peer: Peer) -> None:
        rank, takes = peer.hello.rank, self._plan.resumable
        self._listener.send(peer, Requeue(rank=rank, taken=takes))
        asks = f"{self._roster.describe(rank)} asks for a requeue"
        if not takes:
            self._say(f"warning: {asks}; say --requeue if it resumes")
        elif not self._requeue_asked:
            self._requeue_asked, self._unasked = True, self._noticed_s is None
            self._say(asks)
            self._noticed(asks)
            self._shorten_grace()

    def _last_call(self) -> None:
        """Slurm kills soon. Who is still saving may go on until then."""
        if self._phase == "training" and self._tally.complete:
            self._begin_ending(grace_s=1.0)

    def _all_stopped(self) -> None:
        # Those that did not join save on a signal, if they save at all.
        self._begin_ending(grace_s=FAILED_GRACE_S if self._world.spoke else self._grace_s())

    def _fail(self, code: int, words: str, hint: str = "") -> None:
        self._failure = self._failure or Failure(
            code=code, words=words, hint=hint, first=self._noticed_s is None
        )
        self._inquiry.ask()  # a trainer may have felt Slurm's signal before we did
        self._begin_ending(grace_s=FAILED_GRACE_S)

    def _begin_ending(self, *, grace_s: float) -> None:
        if self._phase == "ending":
            return
        if self._phase == "staging":
            self._steps.end()
        self._phase = "ending"
        self._end_by_s = time.monotonic() + grace_s + ENDING_SLACK_S
        self._tell_agents(self._finish(grace_s))

    def _shorten_grace(self) -> None:
        """Of trainers that save on a signal, if they save at all, by what is known now."""
        if self._phase == "ending" and not self._world.spoke:
            grace_s = self._grace_s()
            self._end_by_s = min(self._end_by_s, time.monotonic() + grace_s + ENDING_SLACK_S)
            self._tell_agents(self._finish(grace_s))

    def _finish(self, grace_s: float) -> Finish:
        noticed = self._noticed_s is not None and self._notice.cause != "cancelled"
        hand_on = noticed and not (self._failure or self._world.spoke or self._unasked)
        return Finish(grace_s=grace_s, signal=self._plan.preemption_signal if hand_on else "")

    def _look_at_clock(self) -> None:
        now_s = time.monotonic()
        if self._phase == "meeting" and (late := self._rendezvous.too_late()) is not None:
            missing = self._rendezvous.missing()
            self._say(f"no word from {', '.join(missing)}")
            self._roster.lose(missing)
            self._fail(late.exit_code, late.message, hint=late.hint)
        if self._closing_by_s is not None and now_s > self._closing_by_s:
            self._say_finished()
        if self._phase != "training":
            return
        if self._noticed_s is None:
            self._look_for_failure()
            self._look_for_absent()
            return
        if not is_named(self._notice.cause) and now_s >= self._ask_again_s:
            self._ask_again_s = now_s + ASK_AGAIN_EVERY_S
            self._inquiry.ask()
        over_s = now_s - self._noticed_s - self._window_s()
        if over_s > 0 and self._tally.complete:
            self._begin_ending(grace_s=0.0)
            return
        if over_s > 0 and not self._overdue_said:
            self._overdue_said = True
            self._say(self._tally.overdue_words(self._world.saved_step))
        if over_s > (OVERDUE_S if self._notice.cause == "preempted" else 0.0):
            self._begin_ending(grace_s=0.0)

    def _look_for_absent(self) -> None:
        self._say_warnings()
        if self._watch.wants_pulses():
            self._tell_agents(Look())
        if apart := self._why_not_together():
            self._fail(LaunchError.exit_code, *apart)

    def _say_warnings(self, *, over: bool = False) -> None:
        for words in filter(None, (*self._tally.warnings(), self._watch.warning(over=over))):
            self._say(f"warning: {words}")

    def _why_not_together(self, *, over: bool = False) -> tuple[str, str] | None:
        """In words, and what to do. over: all have ended."""
        if deserted := self._tally.deserted:
            return deserted, DESERTED_HINT
        if found := self._watch.found(over=over):
            name = "" if found.about is None else self._roster.role_name(found.about)
            log = f"\nits log: {self._folder.trainer_log(name)}" if name else ""
            return found.words, f"{found.hint}{log}"
        return None

    def _window_s(self) -> float:
        return window_s(self._plan, cause=self._notice.cause, detail=self._notice.detail)

    def _grace_s(self) -> float:
        """Until KILL for trainers that may be saving."""
        if self._noticed_s is None:
            return FAILED_GRACE_S
        most_s = REQUEUE_GRACE_S if self._requeue_asked else float("inf")
        return min(most_s, max(1.0, self._noticed_s + self._window_s() - time.monotonic()))

    # -- the end -----------------------------------------------------------------------

    def _over(self) -> bool:
        if self._phase != "ending" or self._inquiry.open or not self._events.empty():
            return False
        # What a process said last is read before its connection is seen to close. The srun
        # of a node that died does not end.
        step_over = not self._steps.running or bool(self._roster.lost_nodes)
        if step_over and not self._roster.connected:
            return True
        return time.monotonic() >= self._end_by_s

    def _outcome(self) -> Outcome:
        self._roster.silent()
        self._say_finished()
        if self._noticed_s is not None:
            self._notice.write()
        if self._finished and (apart := self._why_not_together(over=True)):
            self._fail(LaunchError.exit_code, *apart)
        return Outcome(
            finished=self._finished and self._failure is None,
            noticed=self._noticed_s is not None,
            cause=self._notice.cause,
            first_cause=self._notice.first_cause,
            failure=self._failure,
            lost_nodes=self._roster.lost_nodes,
            saved=self._tally.saved_words(self._world.saved_step),
            steps_done=self._tally.complete,
            requeue_asked=self._requeue_asked,
            shortfall=self._tally.shortfall(),
            stuck=self._tally.stuck() if self._noticed_s is not None else "",
        )

    def _tell_agents(self, message: Message) -> None:
        for peer in self._roster.agents:
            self._listener.send(peer, message)

    def _tell_trainer(self, rank: int, message: Message) -> None:
        if (peer := self._roster.trainer(rank)) is not None:
            self._listener.send(peer, message)

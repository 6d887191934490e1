"""One attempt of a script that starts its ranks itself: staging, then the script, once, as
Slurm would run it, and what its ranks say where they join.

    staging --> script --> its end

A signal to the batch step is the script's, by the way it was sent. Where ranks have joined it
is a notice too: they stop after the same step and save, and the script ends by itself. It
decides when the attempt is over and with what facts; what becomes of the job then is
sbtrain_jobs.supervisor.conclusion's.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import time
from pathlib import Path

from sbtrain_jobs.batch_step import BatchStep
from sbtrain_jobs.ending.cause import CauseFound
from sbtrain_jobs.ending.grace import signal_is_ours, window_s
from sbtrain_jobs.ending.notice import EndNotice, is_named
from sbtrain_jobs.ending.outcome import Failure, Outcome, ScriptEnd
from sbtrain_jobs.ending.slurms_words import SlurmsWords
from sbtrain_jobs.errors import CheckpointError, LaunchError
from sbtrain_jobs.layouts.environment import RunContext, run_environment
from sbtrain_jobs.node_agent.trainer_command import hooks_of
from sbtrain_jobs.run_folder import python_path
from sbtrain_jobs.signals import notice_signals, signal_named
from sbtrain_jobs.staged_data import staged_paths, wants_staging
from sbtrain_jobs.supervisor.attempt_steps import Attempt, AttemptSteps
from sbtrain_jobs.supervisor.script_process import ScriptEnded, ScriptProcess
from sbtrain_jobs.supervisor.script_worlds import ScriptWorlds, WatchedWorld
from sbtrain_jobs.supervisor.signal_ways import SignalWays, Way
from sbtrain_jobs.supervisor.srun_step import StepEnded
from sbtrain_jobs.supervisor.staging_step import Staging, why_failed
from sbtrain_jobs.training.checkpoint import CheckpointStore
from sbtrain_jobs.wire.control import ControlListener, Peer, PeerJoined, PeerLeft, PeerSaid
from sbtrain_jobs.wire.messages import (
    Message,
    Notice,
    PhaseDone,
    Saved,
    StepsBegun,
    StepsDone,
)
from sbtrain_jobs.wire.reach import candidate_addresses

LOOK_EVERY_S = 0.2
LAST_WORDS_S = 1.0  # for what ranks said last, when the script has ended
ASK_AGAIN_EVERY_S = 3.0  # while Slurm has not said why it told us to stop
ASK_AGAIN_WITHIN_S = 30.0
OVERDUE_S = 60.0  # after the grace of a preemption that Slurm does not carry out


class ScriptPhases:
    """Runs to its Outcome in the calling thread.

    Args:
        step: what Slurm gave us is the script's; its environment gains what the run adds.
        ways: tells by which way a signal came.
    """

    def __init__(self, attempt: Attempt, *, step: BatchStep, ways: SignalWays) -> None:
        self._attempt = attempt
        self._plan = plan = attempt.plan
        self._folder = attempt.folder
        self._record = attempt.record
        self._events = attempt.events
        self._inquiry = attempt.inquiry
        self._step = step
        self._ways = ways
        self._say = attempt.record.progress.say
        self._steps = AttemptSteps(attempt)
        self._staging = Staging(plan, attempt.folder, steps=self._steps, say=self._say)
        self._listener = ControlListener(token=attempt.token, sink=attempt.events.put)
        self._worlds = ScriptWorlds(plan, send=self._listener.send, say=self._say)
        self._watched = WatchedWorld(plan, attempt.record)
        self._notice_signals = notice_signals(plan.preemption_signal)
        self._notice = EndNotice(attempt.record, SlurmsWords(attempt.job.job_id))
        self._saved: Saved | None = None  # because they were told to stop
        self._felt_in_step = False
        self._heard = ""  # how it was heard that the job may be ending
        self._noticed_s: float | None = None  # when that was more than the script's own affair
        self._ask_again_s = 0.0
        self._taken: set[int] = set()  # by ranks that were there when they came
        self._kept_back: list[tuple[int, Way]] = []
        self._script: ScriptProcess | None = None
        self._code: int | None = None
        self._ended_s: float | None = None
        self._failure: Failure | None = None
        self._overdue_said = False
        self._given_up = False

    def run(self) -> Outcome:
        try:
            if wants_staging(self._plan):
                self._staging.begin()
            else:
                self._begin_script()
            while not self._over():
                self._take(within_s=min(LOOK_EVERY_S, self._ways.next_s or LOOK_EVERY_S))
                self._inquiry.look()
                for number, way in self._ways.known():
                    self._deliver(number, way)
                self._look_at_clock()
            return self._outcome()
        finally:
            self._listener.close()
            self._steps.close()

    # -- beginnings --------------------------------------------------------------------

    def _begin_script(self) -> None:
        self._prepare_checkpoints()
        attempt, given = self._attempt, self._attempt.environ
        context = RunContext(
            attempt=attempt.number,
            job_id=given.get("SLURM_JOB_ID", ""),
            plan_path=attempt.plan_path,
            data=self._data(),
            control=candidate_addresses(self._listener.port),
            token=attempt.token,
        )
        kept = {os.fsencode(name) for name in given}
        environ = {name: text for name, text in self._step.environ.items() if name in kept}
        for name, text in run_environment(self._plan, context).items():
            environ[os.fsencode(name)] = os.fsencode(text)
        inherited = os.fsdecode(environ.get(b"PYTHONPATH", b""))
        if found := python_path(self._plan, *hooks_of(self._plan, given), inherited):
            environ[b"PYTHONPATH"] = os.fsencode(found)
        try:
            self._script = ScriptProcess(
                self._plan,
                python=sys.executable,
                environ=environ,
                step=self._step,
                sink=self._events.put,
            )
            self._ways.follow(self._script.pid)
        except OSError as error:
            self._say(f"error: cannot run {self._plan.script}: {error.strerror}")
            self._script_ended(error.errno or LaunchError.exit_code)  # slurmstepd's own way

    def _prepare_checkpoints(self) -> None:
        """The folder is there for scripts that save by themselves, without what an attempt
        that was killed left in it: nobody writes there yet."""
        folder = Path(self._plan.checkpoint_dir)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            CheckpointStore(folder).clean_leftovers(sole_writer=True)
        except (OSError, CheckpointError) as error:
            self._say(f"warning: checkpoints cannot be kept in {folder}: {error}")

    def _data(self) -> tuple[str, ...]:
        attempt = self._attempt
        name = attempt.environ.get("SLURMD_NODENAME") or attempt.job.nodes[0]
        return staged_paths(self._plan, self._folder, node=0, node_name=name)

    # -- events ------------------------------------------------------------------------

    def _take(self, *, within_s: float) -> None:
        try:
            event = self._events.get(timeout=within_s)
        except queue.Empty:
            return
        match event:
            case PeerSaid(peer=peer, message=message) if peer.hello.who == "witness":
                if not self._worlds.spoke:
                    self._watched.heard(peer, message)
            case PeerSaid(peer=peer, message=message):
                self._said(peer, message)
            case PeerJoined(peer=peer):
                self._worlds.joined(peer)
            case PeerLeft(peer=peer):
                self._worlds.left(peer)
                self._watched.left(peer)
            case StepEnded():
                self._staged(event.returncode)
            case ScriptEnded(code=code):
                self._script_ended(code)
            case CauseFound():
                self._cause_found(event)
            case int():
                self._signalled(event)

    def _said(self, peer: Peer, message: Message) -> None:
        self._worlds.heard(peer, message)
        match message:
            case StepsBegun():
                self._record.open_timings(self._worlds.plan_of(peer))
            case StepsDone():
                self._record.steps_done(message)
            case PhaseDone():
                self._record.phase_done(message)
            case Saved(step=step):
                self._say(f"saved step {step}")
                self._saved = message
                if self._noticed_s is not None:
                    self._write_saved()
            case Notice(signal=name):
                self._felt_in_step = True
                self._told(f"{name} in a step on {peer.hello.node_name}")
                self._worlds.ask_one_to_stop(peer, self._heard)
            case _:
                pass

    def _write_saved(self) -> None:
        if self._saved is not None:
            self._record.write("saved", step=self._saved.step, detail=self._saved.path)
            self._saved = None

    def _staged(self, returncode: int) -> None:
        self._steps.ended()
        if self._code is not None:
            return
        if returncode == 0:
            self._record.staged()
            self._begin_script()
            return
        nodes = self._attempt.job.nodes
        if self._staging.begins_again(returncode):
            return
        if self._staging.in_place(returncode, nodes):
            self._begin_script()
        else:
            code, words = why_failed(self._folder, returncode=returncode, nodes=nodes)
            self._failure = Failure(code=code, words=words)
            self._inquiry.ask()  # it may have felt Slurm's signal before we did

    def _script_ended(self, code: int) -> None:
        self._code = code
        self._ended_s = time.monotonic()
        if code != 0:
            self._inquiry.ask()  # its steps may have felt Slurm's end of them before we did

    # -- signals -----------------------------------------------------------------------

    def _signalled(self, number: int) -> None:
        if self._script is not None:
            self._ways.arrived(number)
        elif number in self._notice_signals and self._code is None:
            # Nothing of the script could handle it: as by default, it ends the batch step.
            self._steps.end()
            self._script_ended(-number)
        if number in self._notice_signals:
            self._told(f"{signal.Signals(number).name} in the batch script")
            if self._worlds.connected:
                self._taken.add(number)
                self._begin_stop()

    def _deliver(self, number: int, way: Way) -> None:
        """To the script, what it has not had: once.

        A notice would end a script that does not handle it. So it is kept from one whose ranks
        are there and save on it; and from any where sbtrain itself has asked for it, unless it
        comes at a time at which Slurm has no reason of its own to send it.
        """
        taken = number in self._taken
        self._taken.discard(number)
        if way == "step" or self._script is None:
            return
        is_notice = number in self._notice_signals
        if not is_notice or self._script.handles(number):
            self._script.send(number, group=way == "group")
        elif taken:
            return
        elif number != signal_named(self._plan.preemption_signal) or not signal_is_ours(
            self._plan.sbatch_options
        ):
            self._script.send(number, group=way == "group")
        elif self._inquiry.open:
            self._kept_back.append((number, way))
        elif self._notice.cause == "none":
            self._script.send(number, group=way == "group")

    def _told(self, detail: str) -> None:
        self._heard = self._heard or detail
        self._inquiry.ask()

    def _cause_found(self, found: CauseFound) -> None:
        known = self._notice.learn(found)
        named = known and (found.cause != "time-limit" or self._heard)
        if named or (found.cause == "unknown" and self._may_be_ours):
            self._heard = self._heard or "Slurm says so when asked"
            self._begin_stop()
        elif found.cause == "none" and self._noticed_s is None:
            self._heard, self._felt_in_step, self._saved = "", False, None  # none of ours
        if self._script is not None and found.cause == "none":
            for number, way in self._kept_back:
                self._script.send(number, group=way == "group")
        self._kept_back.clear()
        if self._noticed_s is not None and (known or not self._inquiry.open):
            self._notice.write(aloud=self._aloud)

    @property
    def _may_be_ours(self) -> bool:
        """Whether a signal of which Slurm tells nothing is taken for a notice."""
        return self._felt_in_step or bool(self._heard and self._plan.resumable)

    def _begin_stop(self) -> None:
        """The job is ending, as far as is known: its ranks are to save."""
        if self._noticed_s is not None:
            return
        self._noticed_s = time.monotonic()
        self._notice.detail = self._heard
        if self._aloud:
            self._say(f"told to stop: {self._heard}")
        self._worlds.ask_to_stop(self._heard)
        self._write_saved()  # they may have been faster than Slurm's word

    @property
    def _aloud(self) -> bool:
        """Of what is the script's own affair nothing is said."""
        return self._worlds.spoke or self._plan.resumable

    def _look_at_clock(self) -> None:
        now_s = time.monotonic()
        if self._noticed_s is None:
            for words in self._worlds.warnings():
                self._say(f"warning: {words}")
            return
        if self._script is None or not self._worlds.spoke or not self._plan.resumable:
            return
        told_s = now_s - self._noticed_s
        if (
            not is_named(self._notice.cause)
            and now_s >= self._ask_again_s
            and told_s < ASK_AGAIN_WITHIN_S
        ):
            self._ask_again_s = now_s + ASK_AGAIN_EVERY_S
            self._inquiry.ask()
        over_s = told_s - self._window_s()
        if over_s > 0 and not self._overdue_said:
            self._overdue_said = True
            self._say(f"the script goes on: {self._worlds.overdue_words()}")
        if over_s > (OVERDUE_S if self._notice.cause == "preempted" else 0.0):
            self._given_up = self._notice.cause != "cancelled"

    def _window_s(self) -> float:
        return window_s(self._plan, cause=self._notice.cause, detail=self._notice.detail)

    # -- the end -----------------------------------------------------------------------

    def _over(self) -> bool:
        if self._given_up:
            return True
        if self._failure is None and self._ended_s is None:
            return False
        if self._inquiry.open or not self._events.empty():
            return False
        if self._ended_s is None:
            return True
        until_s = self._ended_s + LAST_WORDS_S
        if not self._worlds.connected:
            return not self._watched.connected or time.monotonic() >= until_s
        if self._noticed_s is not None:  # Slurm's signal may have ended the script before them
            until_s = max(until_s, self._noticed_s + self._window_s())
        return time.monotonic() >= until_s

    def _outcome(self) -> Outcome:
        noticed = self._noticed_s is not None
        if noticed:
            self._notice.write(aloud=self._aloud)
        elif words := self._worlds.last_word():
            self._say(words)
        return Outcome(
            finished=False,
            noticed=noticed,
            cause=self._notice.cause,
            first_cause=self._notice.first_cause,
            failure=self._failure,
            lost_nodes=(),
            saved=self._worlds.saved_words(),
            steps_done=self._worlds.complete,
            stuck=self._worlds.stuck() if noticed else "",
            script=ScriptEnd(code=self._code),
        )

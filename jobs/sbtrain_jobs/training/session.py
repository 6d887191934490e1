"""What a training script calls: join() and the Run it gives.

    from sbtrain import join

    with join(default_steps=400) as run:
        start = run.resume(load)
        for step in run.steps(start=start, save=save):
            ...
        run.report(accuracy=0.97)

The same script runs under sbtrain in every role, and alone under plain sbatch or on a
laptop. Nothing here knows a framework; TensorFlow's part is sbtrain_jobs.layouts.tensorflow.
"""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from sbtrain_jobs.errors import CheckpointError, LaunchError
from sbtrain_jobs.signals import signal_named
from sbtrain_jobs.training.checkpoint import CheckpointStore, Save
from sbtrain_jobs.training.context import Defaults, TrainerContext, trainer_context
from sbtrain_jobs.training.reports import Reports
from sbtrain_jobs.training.results import Results
from sbtrain_jobs.training.sampler import BatchSampler
from sbtrain_jobs.training.saves import Saves
from sbtrain_jobs.training.step_clock import StepClock, process_age_s
from sbtrain_jobs.training.step_gate import StepGate
from sbtrain_jobs.training.stop_signals import StopSignals
from sbtrain_jobs.training.world import HINT, HINT_LAUNCHED, world_apart
from sbtrain_jobs.wire.messages import EXIT_STOPPED
from sbtrain_perf.errors import SbtrainError
from sbtrain_perf.request import Layout, RoleName

if TYPE_CHECKING:
    from sbtrain_jobs.layouts.tensorflow import TensorFlowRoles

_log = logging.getLogger("sbtrain.run")


class Peers(Protocol):
    """What the ranks of one run say to each other through their framework."""

    def lowest(self, step: int) -> int:
        """The lowest of all ranks' steps; every rank must call it."""

    def leave_together(self) -> None:
        """Return once every rank has called it."""


def join(
    *,
    default_steps: int = 1000,
    default_batch: int = 32,
    data: Iterable[str | Path] = (),
    checkpoints: str | Path | None = None,
    checkpoint_interval_s: float = 60.0,
    seed: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> Run:
    """Take this process's place in the run.

    All arguments but data and seed are for a script that runs alone; under sbtrain the plan
    says.
    Servers and workers of the parameter-server layout do not return from here: they serve
    TensorFlow until the run ends.

    Args:
        default_steps, default_batch: steps to run, samples per step and worker.
        data: the data set's paths where neither SBTRAIN_DATA nor the plan names any.
        checkpoints: folder of the checkpoints; checkpoints/NAME for a script NAME.py.
        checkpoint_interval_s: seconds from one periodic save to the next.
        seed: of everything random; by default drawn from the run id.

    Raises:
        PlanError: SBTRAIN_PLAN is set, but the plan or the process's place cannot be read.
        LaunchError: the plan's preemption signal does not exist here.
        MissingExtraError: this place needs TensorFlow, which is not installed.
    """
    defaults = Defaults(
        steps=default_steps,
        batch_per_worker=default_batch,
        data=tuple(Path(path) for path in data),
        checkpoint_folder=_script_folder() if checkpoints is None else Path(checkpoints),
        checkpoint_interval_s=checkpoint_interval_s,
    )
    context = trainer_context(os.environ if environ is None else environ, defaults)
    if context.parks:
        from sbtrain_jobs.layouts.tensorflow import park

        park(
            context.role,
            context.role_index,
            workers=context.world_size,
            cores=context.node_cores,
        )
    return Run(context, seed=_seed_of(context.run_id) if seed is None else seed)


class Run:
    """One trainer's side of a run. Made by join(); used as a context manager.

    Attributes:
        data: paths of the data set, on this node's scratch where they were staged.
        steps_total: the last step of the run. All-reduce: steps of every worker;
            ps: updates of the servers.
        batch_size: samples per step and worker (ps: per update).
        seed: the same on all ranks and all attempts.
        checkpoints: the run's store; what `resume` and `steps` use.
        peers: set by the framework's glue where ranks can talk to each other.
    """

    def __init__(self, context: TrainerContext, *, seed: int) -> None:
        self.context = context
        self.seed = seed
        self.alone: bool = context.alone
        self.role: RoleName = context.role
        self.rank: int = context.rank
        self.world_size: int = context.world_size
        self.layout: Layout = context.layout
        self.is_chief: bool = context.is_chief
        self.attempt: int = context.attempt
        self.data: tuple[Path, ...] = context.data
        self.steps_total: int = context.steps
        self.batch_size: int = context.batch_per_worker
        self.checkpoints = CheckpointStore(context.checkpoint_folder)
        self.peers: Peers | None = None
        self.exit_code: int | None = None  # once the with block has ended
        self._started = False
        self._apart = False  # said that the framework's world is not the plan's
        self._over_told = False  # that all steps were run
        self._restore_s = 0.0
        self._loop_ended_at: float | None = None
        self._gate = StepGate(on_overdue=self._hold_overdue)
        self._reports = Reports(context)
        self._saves = Saves(
            context, store=self.checkpoints, gate=self._gate, reports=self._reports
        )
        self._results = Results(context.run_folder, self._reports)
        self._clock = StepClock(self._reports.steps)
        self._reports.open(gate=self._gate, on_stop=lambda _: self._saves.announce())
        self._signals = StopSignals(
            {signal.SIGTERM, signal_named(context.stop_signal)}, self._on_signal
        )
        if self.is_chief:
            # A script may start several runs: what is left over, the supervisor removes.
            sole_writer = not self.alone and context.launch == "ranks"
            self.checkpoints.clean_leftovers(sole_writer=sole_writer)

    # -- what the script calls ---------------------------------------------------------

    def describe(
        self,
        *,
        parameters: int | None = None,
        tensors: int | None = None,
        variables: Iterable[int] = (),
    ) -> None:
        """Say what is trained: what the run's predictions are refitted on. What is no number
        is a warning, and not kept.

        Args:
            variables: the elements of each, in the order of creation; they say how parameter
                servers share the work. The other two follow from them.
        """
        try:
            sizes = tuple(int(one) for one in variables)
            if sizes:
                parameters = sum(sizes) if parameters is None else parameters
                tensors = len(sizes) if tensors is None else tensors
            if parameters is None or tensors is None:
                raise TypeError("parameters and tensors, or variables, say it")
            self._reports.describe(
                parameters=int(parameters), tensors=int(tensors), variables=sizes
            )
        except Exception as error:  # whatever the script's own types raise
            _log.warning(
                "sbtrain: parameters=%r, tensors=%r, variables=%.40r are not whole numbers "
                "(%s): not kept",
                parameters,
                tensors,
                variables,
                error,
            )

    def sampler(self, samples: int) -> BatchSampler:
        """Batches of this rank from a data set of `samples` samples."""
        sharded = self.layout == "allreduce"
        return BatchSampler(
            samples=samples,
            batch=self.batch_size,
            shard=self.context.role_index if sharded else 0,
            shards=self.world_size if sharded else 1,
            seed=self.seed,
        )

    def tensorflow(self) -> TensorFlowRoles:
        """The TensorFlow strategy that the plan asks for, with what goes with it."""
        from sbtrain_jobs.layouts.tensorflow import AllReduce, connect

        roles = connect(self)
        if isinstance(roles, AllReduce):
            self.peers = roles
        return roles

    def resume(self, load: Callable[[Path], None]) -> int:
        """Load the newest whole checkpoint, the same one on every rank, if there is one.

        Args:
            load: reads the state from the folder that `save` wrote.

        Returns:
            The last step that is finished; 0 when training starts afresh.

        Raises:
            CheckpointError: there are checkpoints, and none is whole; or the step that all
                ranks agreed on is not whole here.
        """
        began = time.perf_counter()
        found = self.checkpoints.newest_valid(
            up_to=self.context.resume_up_to, set_aside=self.is_chief
        )
        step = found.step if found is not None else 0
        if self.peers is not None:
            step = self.peers.lowest(step)
        if step == 0:
            return 0
        if found is None or found.step != step:
            found = self.checkpoints.valid(step)
        if found is None:
            raise CheckpointError(
                f"the ranks agreed to resume from step {step}, which is not whole here",
                hint=f"all nodes must see the same {self.checkpoints.folder}",
            )
        load(found.path)
        self._saves.last = found
        self._restore_s = time.perf_counter() - began
        self._reports.phase("restore", self._restore_s, step=step, size_bytes=found.size_bytes)
        return step

    def steps(self, *, start: int = 0, save: Save | None = None) -> Iterator[int]:
        """Steps start+1 .. steps_total, timed; saves periodically and at the end.

        On a preemption notice all ranks stop after the same step, the chief saves, and the
        loop ends in SystemExit(EXIT_STOPPED); after the last step the script goes on to its
        end instead.

        Args:
            start: the last finished step, as `resume` returned it.
            save: writes the state into the folder it is given; called on the chief alone.

        Raises:
            LaunchError: Horovod or torch.distributed is started, and this rank is alone in it.
            CheckpointError: nothing can be saved in the folder, found out before the first
                step; the last save failed; or a save ended the process as if all were well
                (sys.exit). A periodic save that fails is said and tried again.
        """
        gate, clock = self._gate, self._clock
        self._begin(start, save)
        try:
            for step in range(start + 1, self.steps_total + 1):
                if not gate.enter(step):
                    break
                clock.begin(step)
                yield step
                if clock.end() >= self._saves.due_at:
                    self._saves.on_the_way(step, save)
        finally:
            clock.flush()
        if save is not None and self.is_chief:
            self._saves.last_of(gate.step, save)
        self._loop_ended_at = time.perf_counter()
        self._look_at_world(refuse=False)  # the script may have loaded it on the way
        if gate.step >= self.steps_total:
            self._over_told = True
            self._reports.steps_over(gate.step, kept=save is not None and self.is_chief)
            self._saves.announce()
        elif gate.stop_after is not None:
            self._saves.announce()
            unsaved = "" if save is not None else "; steps() got no save, so nothing is kept"
            _log.warning("sbtrain: stopped after step %d, as asked%s", gate.step, unsaved)
            raise SystemExit(EXIT_STOPPED)

    def report(self, **metrics: float) -> None:
        """Results of the run; the last value of each name counts.

        They are written to final/result.json of the run folder when the run ends. What is no
        number, or cannot be written, is a warning, and not kept.
        """
        self._results.add(metrics)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        failure = error if isinstance(error, SbtrainError) else None
        self.exit_code = _exit_code(error)
        stopped = self.exit_code == EXIT_STOPPED
        try:
            if self.exit_code == 0 and not self._over_told:
                self._reports.steps_over(self._last_step(), kept=False)
            if error is None and self.is_chief:
                ended_at = self._loop_ended_at
                since_s = 0.0 if ended_at is None else time.perf_counter() - ended_at
                self._results.publish(step=self._gate.step, seconds=since_s)
            if (error is None or stopped) and self.peers is not None:
                self.peers.leave_together()
        except SbtrainError as late:
            failure = late
        finally:
            self._reports.close()
            if stopped:
                self._signals.ignore()
            else:
                self._signals.give_back()
        if failure is not None:
            self.exit_code = failure.exit_code
            hint = f" ({failure.hint})" if failure.hint else ""
            sys.stderr.write(f"sbtrain: {failure.message}{hint}\n")
            raise SystemExit(failure.exit_code) from failure

    # -- steps ---------------------------------------------------------------

    def _begin(self, start: int, save: Save | None) -> None:
        self._gate.resume_from(start)
        self._look_at_world(refuse=start < self.steps_total)
        self._reports.steps_begun(start, saves=save is not None)
        self._saves.begin(start, save)
        if not self._started:
            self._started = True
            self._reports.phase(
                "start", max(0.0, process_age_s() - self._restore_s), step=start
            )

    def _look_at_world(self, *, refuse: bool) -> None:
        launched = self.context.launch == "script"
        sees = self.layout == "allreduce"
        found = world_apart(self.world_size, launched=launched) if sees else None
        if found is None or self._apart:
            return
        self._apart = True
        if refuse and found.alone:
            hint = HINT_LAUNCHED if launched else HINT
            raise LaunchError(f"{found.words}: they would not train together", hint=hint)
        _log.warning("sbtrain: %s: they do not train together", found.words)
        self._reports.apart(found.words)

    def _last_step(self) -> int:
        saved = self._saves.last
        return max(self._gate.step, 0 if saved is None else saved.step)

    # -- what comes from outside --------------------------------------------------------

    def _hold_overdue(self) -> None:
        _log.warning("sbtrain: asked to hold, but never told the last step: training goes on")

    def _on_signal(self, number: int) -> None:
        """Slurm signals every process of a step, trainers too. The supervisor decides what
        a signal means; only where there is none does the trainer act on it itself."""
        if self._reports.heard:
            self._reports.signalled(signal.Signals(number).name)
            return
        if self.world_size > 1 and self.layout == "allreduce":
            raise SystemExit(128 + number)  # the ranks cannot agree on a step
        if number == signal.SIGTERM and (not self._started or self._loop_ended_at is not None):
            raise SystemExit(128 + number)
        if self._loop_ended_at is None:
            self._gate.finish_at(self._gate.step)


def _exit_code(error: BaseException | None) -> int:
    """The exit status of a process that this error ends, as Python sets it."""
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    return 1


def _script_folder() -> Path:
    """Two scripts that are run by hand in one folder do not resume from each other."""
    return Path("checkpoints", Path(sys.argv[0]).stem.lstrip("-") or "interactive")


def _seed_of(run_id: str) -> int:
    return int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:4], "big") >> 1

"""What a trainer tells the supervisor of its steps, phases and saves; nothing when it runs
alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Literal

from sbtrain_jobs.training.checkpoint import Checkpoint
from sbtrain_jobs.training.context import TrainerContext
from sbtrain_jobs.training.step_gate import StepGate
from sbtrain_jobs.training.trainer_link import TrainerLink
from sbtrain_jobs.wire.messages import (
    Apart,
    Hello,
    Notice,
    PhaseDone,
    Saved,
    StepsBegun,
    StepsDone,
    StepsOver,
)

Phase = Literal["start", "restore", "checkpoint", "evaluate"]


class Reports:
    """Goes nowhere before `open`, and where the context names no supervisor."""

    def __init__(self, context: TrainerContext) -> None:
        self._context = context
        self._rank = context.rank
        self._samples_per_step = context.batch_per_worker
        self._parameters: int | None = None
        self._tensors: int | None = None
        self._variables: tuple[int, ...] = ()
        self._link: TrainerLink | None = None

    def open(self, *, gate: StepGate, on_stop: Callable[[int], None]) -> None:
        """Say Hello to the supervisor that the context names.

        Args:
            gate: is held and released as the supervisor says, from now on.
            on_stop: called in the link's thread once the last step is agreed.
        """
        context = self._context
        if not context.control:
            return
        hello = Hello(
            who="trainer",
            token=context.token,
            node=context.node,
            node_name=context.node_name,
            rank=context.rank,
            pid=os.getpid(),
            world=context.launched_world,
            size=context.world_size if context.launch == "script" else 0,
            checkpoints=str(context.checkpoint_folder) if context.launch == "script" else "",
        )
        self._link = TrainerLink(
            address=context.control, hello=hello, gate=gate, on_stop=on_stop
        )

    @property
    def heard(self) -> bool:
        """Whether a supervisor listens, who also decides what signals mean."""
        return self._link is not None and self._link.alive

    def signalled(self, name: str) -> None:
        """Pass on a signal that only processes of a step get; called from its handler. Where
        there is an agent, that has had it too."""
        if self._link is not None and self._context.launch == "script":
            notice = Notice(node=self._context.node, signal=name)
            self._link.send_from_handler(notice)

    def describe(
        self, *, parameters: int, tensors: int, variables: tuple[int, ...] = ()
    ) -> None:
        """What every later phase says of the network; of its variables the next one alone."""
        self._parameters = parameters
        self._tensors = tensors
        self._variables = variables

    def steps_begun(self, start: int, *, saves: bool) -> None:
        if self._link is not None:
            self._link.send(StepsBegun(rank=self._rank, start=start, saves=saves))

    def apart(self, words: str) -> None:
        if self._link is not None:
            self._link.send(Apart(rank=self._rank, words=words))

    def steps_over(self, step: int, *, kept: bool) -> None:
        if self._link is not None:
            self._link.send(StepsOver(rank=self._rank, step=step, kept=kept))

    def steps(self, first: int, seconds: tuple[float, ...]) -> None:
        if self._link is not None:
            self._link.send(
                StepsDone(
                    rank=self._rank,
                    first=first,
                    seconds=tuple(round(s, 7) for s in seconds),
                    samples_per_step=self._samples_per_step,
                )
            )

    def phase(
        self,
        name: Phase,
        seconds: float,
        *,
        step: int,
        size_bytes: int = 0,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        if self._link is not None:
            self._link.send(
                PhaseDone(
                    rank=self._rank,
                    name=name,
                    seconds=seconds,
                    step=step,
                    size_bytes=size_bytes,
                    parameters=self._parameters,
                    tensors=self._tensors,
                    variables=self._variables,
                    metrics=dict(metrics or {}),
                )
            )
            self._variables = ()

    def saved(self, checkpoint: Checkpoint) -> None:
        if self._link is not None:
            self._link.send(
                Saved(rank=self._rank, step=checkpoint.step, path=str(checkpoint.path))
            )

    def close(self) -> None:
        """Send what is queued and hang up."""
        if self._link is not None:
            self._link.close()

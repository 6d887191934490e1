"""Step times on one GPU, of what was measured and of what is near it.

Where nobody ran a network with a batch on a GPU, its step follows from the nearest that was
run, and the doubt grows with each step away: the same in another source; at another batch;
on another GPU, by how the two GPUs' steps differ; else the middle of all that is known. The
doubts are our own choice, set on the Gavel throughputs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from sbtrain_perf.fitting.parameter_server import Belief

SOURCE_SD = 0.25  # of a log step between two measurements of the same
BATCH_POWER, BATCH_POWER_SD = 0.75, 0.25  # the step grows as this power of the batch
BATCH_SD = 0.35  # of a log step, on top of what the batch's distance adds
NO_BATCH_SD = 0.7  # where one of the two batches is not known
GPU_SD = 0.65  # at least, from one GPU to another
UNLIKE_GPU_SD = 1.2  # between GPUs that ran nothing in common
MIDDLE_SD = 1.5  # at least, between networks


@dataclass(frozen=True, slots=True, kw_only=True)
class OneGpu:
    """What ran on one GPU. batch: samples, None where the source does not say."""

    source: str
    gpu: str
    network: str
    batch: float | None


class OneGpuRates:
    """Log step times by what ran. At least one is needed to answer."""

    def __init__(self, steps_s: Iterable[tuple[OneGpu, float]]) -> None:
        found: dict[OneGpu, list[float]] = {}
        for what, step_s in steps_s:
            found.setdefault(what, []).append(step_s)
        self._steps_s = {what: statistics.median(values) for what, values in found.items()}
        self._logs = {what: math.log(step_s) for what, step_s in self._steps_s.items()}

    def __len__(self) -> int:
        return len(self._logs)

    def step_s(self, asked: OneGpu) -> float:
        """Seconds of a step: the measured ones' median, else the belief's middle."""
        known = self._steps_s.get(asked)
        return math.exp(self.belief(asked).mean) if known is None else known

    def belief(self, asked: OneGpu) -> Belief:
        """Log of the step's seconds; sd 0 where it was measured itself."""
        if asked in self._logs:
            return Belief(mean=self._logs[asked], sd=0.0)
        return self._same_gpu(asked) or self._other_gpu(asked) or self._middle(asked)

    def _where(self, keep: Callable[[OneGpu], bool]) -> Mapping[OneGpu, float]:
        return {what: log for what, log in self._logs.items() if keep(what)}

    def _same_gpu(self, asked: OneGpu) -> Belief | None:
        """The network on its GPU: in another source, else at the nearest batch."""
        near = self._where(lambda o: (o.network, o.gpu) == (asked.network, asked.gpu))
        if not near:
            return None
        same = [log for what, log in near.items() if what.batch == asked.batch]
        if same:
            return Belief(mean=statistics.fmean(same), sd=SOURCE_SD)
        return min((_at_batch(what, log, asked) for what, log in near.items()), key=_doubt)

    def _other_gpu(self, asked: OneGpu) -> Belief | None:
        """The network on the GPU from which its step is least in doubt."""
        others = self._where(lambda o: o.network == asked.network)
        beliefs = []
        for gpu in sorted({what.gpu for what in others}):
            there = self.belief(replace(asked, gpu=gpu))
            apart = self._apart(gpu, asked.gpu)
            sd = math.hypot(there.sd, BATCH_SD, apart.sd)
            beliefs.append(Belief(mean=there.mean + apart.mean, sd=sd))
        return min(beliefs, key=_doubt) if beliefs else None

    def _apart(self, known: str, asked: str) -> Belief:
        """Log of one GPU's step over another's, over all that both ran."""
        pairs = (
            (log, self._logs.get(replace(what, gpu=asked)))
            for what, log in self._where(lambda o: o.gpu == known).items()
        )
        logs = [there - here for here, there in pairs if there is not None]
        if not logs:
            return Belief(mean=0.0, sd=UNLIKE_GPU_SD)
        spread = statistics.stdev(logs) if len(logs) > 1 else UNLIKE_GPU_SD
        return Belief(mean=statistics.fmean(logs), sd=max(GPU_SD, spread))

    def _middle(self, asked: OneGpu) -> Belief:
        """A network that never ran alone: as the others do, on its GPU where they did."""
        logs = list((self._where(lambda o: o.gpu == asked.gpu) or self._logs).values())
        spread = statistics.stdev(logs) if len(logs) > 1 else 0.0
        return Belief(mean=statistics.median(logs), sd=max(MIDDLE_SD, spread))


def _at_batch(known: OneGpu, log: float, asked: OneGpu) -> Belief:
    if known.batch is None or asked.batch is None:
        return Belief(mean=log, sd=NO_BATCH_SD)
    apart = math.log(asked.batch / known.batch)
    sd = math.hypot(BATCH_SD, BATCH_POWER_SD * apart)
    return Belief(mean=log + BATCH_POWER * apart, sd=sd)


def _doubt(belief: Belief) -> float:
    return belief.sd

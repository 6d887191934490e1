"""What the processes of one attempt say to each other: one JSON object a line, over TCP.

The supervisor (batch side) listens; node agents and trainers connect and say Hello first.

    agent   -> supervisor   Hello, Ready (address of every role it starts), RoleEnded, Notice,
                            Pulse
    trainer -> supervisor   Hello, StepsBegun, StepsDone, StepsOver, PhaseDone, Held, Saved,
                            Apart; Notice where no agent started it
    witness -> supervisor   Hello, Forming, Formed, StepsDone, PhaseDone, Saved, ScriptOver
    asker   -> supervisor   Hello, Requeue; and back: Requeue
    supervisor -> agent     Start (addresses of all roles), Look, Finish
    supervisor -> trainer   Hold, StopAfter

Stopping at an agreed step: on a preemption notice the supervisor sends Hold to every
trainer that counts steps. Each answers Held with the step it is running (or has finished)
and starts no later one. The supervisor answers StopAfter(max of them): every trainer runs
through that step, the saver writes it and says Saved, and all exit with EXIT_STOPPED.
"""

from __future__ import annotations

import json
from dataclasses import asdict, field
from typing import Literal, Union, get_args

from sbtrain_perf.codec import ShapeError, decode
from sbtrain_perf.values import dataclass

EXIT_STOPPED = 85  # a trainer that saved its state because it was asked to stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A witness speaks for the hooks in a rank's script: it tells, and takes no orders. An
    asker is a command that a rank runs, and asks one thing.

    agent: its number, -1 for others. world, size and checkpoints: of a trainer that no agent
    started, the launch that it belongs to, how many ranks that has, and the folder in which
    its program saves."""

    who: Literal["agent", "trainer", "witness", "asker"]
    token: str
    node: int  # index in the allocation
    node_name: str
    agent: int = -1
    rank: int = -1  # index in plan.roles; -1 for an agent
    pid: int = 0
    world: str = ""
    size: int = 0
    checkpoints: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """ports[i] belongs to the i-th role of the agent."""

    agent: int
    host: str
    ports: tuple[int, ...]
    data: tuple[str, ...] = ()  # staged paths on this node


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """addresses[r] is host:port of plan.roles[r]. stdin: the file that every trainer reads.
    stderr_apart: that of the job is not where its stdout goes."""

    addresses: tuple[str, ...]
    stdin: str = "/dev/null"
    stderr_apart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleEnded:
    rank: int
    returncode: int  # negative: ended by that signal


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A signal reached an agent, or a trainer without one: preemption, time limit, cancel."""

    node: int
    signal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue:
    """A rank's script has saved by itself, and asks to be put back into the queue. taken: the
    supervisor's answer, whether it sees to that."""

    rank: int
    taken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """End what still runs of an agent's, within grace_s. Trainers that handle `signal` get
    it first, and TERM only when most of grace_s is over."""

    grace_s: float
    signal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Say a Pulse of each trainer that runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """What a trainer and its children have computed and read since they began, and whether one
    of them waits for a disk or a filesystem right now. faults: pages that had to be read."""

    rank: int
    cpu_s: float
    io_bytes: int
    faults: int
    on_disk: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsBegun:
    """The loop of steps begins after step `start`. saves: it has a function that saves."""

    rank: int
    start: int
    saves: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """The world of ranks that the script's framework sees is not the plan's, in words."""

    rank: int
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forming:
    """The rank waits for the others, in `where`: init_process_group of torch.distributed.

    place, size and address: which of how many ranks it takes itself for, and where it looks
    for the others; -1, 0 and nothing where it does not say."""

    rank: int
    where: str
    place: int = -1
    size: int = 0
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formed:
    """The framework's world is there: `size` ranks, of which this one is number `place`."""

    rank: int
    where: str
    place: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptOver:
    """The rank's script has run to its end, or failed; its process still ends."""

    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsOver:
    """No step is begun any more; `step` was the last. kept: all planned steps were run, and
    the state after the last is saved; said by the chief alone."""

    rank: int
    step: int
    kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsDone:
    """Steps first..first+len(seconds)-1 ended; seconds[i] is the time of each. input_s: how
    long all of them waited for their data, where that is seen."""

    rank: int
    first: int
    seconds: tuple[float, ...]
    samples_per_step: int = 0
    input_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseDone:
    """A phase of this attempt ended. parameters and tensors describe the network when known;
    variables: the elements of each, in the order of creation, where somebody told."""

    rank: int
    name: Literal["start", "restore", "checkpoint", "evaluate"]
    seconds: float
    step: int = 0
    size_bytes: int = 0
    parameters: int | None = None
    tensors: int | None = None
    variables: tuple[int, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    rank: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAfter:
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    rank: int
    step: int
    path: str


Message = Union[
    Hello,
    Ready,
    Start,
    RoleEnded,
    Notice,
    Requeue,
    Finish,
    Look,
    Pulse,
    StepsBegun,
    Apart,
    Forming,
    Formed,
    ScriptOver,
    StepsDone,
    StepsOver,
    PhaseDone,
    Hold,
    Held,
    StopAfter,
    Saved,
]

_KINDS: dict[str, type[Message]] = {kind.__name__: kind for kind in get_args(Message)}


def to_line(message: Message) -> bytes:
    return json.dumps({"kind": type(message).__name__, **asdict(message)}).encode() + b"\n"


def from_line(line: bytes) -> Message:
    """Raises ValueError when the line is not a message."""
    data = json.loads(line)
    if not isinstance(data, dict) or data.get("kind") not in _KINDS:
        raise ShapeError("kind", "not a message of sbtrain")
    kind = _KINDS[data.pop("kind")]
    return decode(kind, data)

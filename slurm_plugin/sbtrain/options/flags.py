"""The values of sbtrain's own flags, `--train-*`.

They are read from the command line and from `#SBTRAIN` lines alike; the command line wins,
flag by flag, and over flags of the script that say the same thing in another way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Literal, TypeVar, get_args

from sbtrain_perf.errors import RequestError
from sbtrain_perf.request import Framework, LayoutChoice, NodeRange, Objective

T = TypeVar("T")
LaunchChoice = Literal["none", "script", "ranks"]

_RIVALS = (("train-epochs", "train-steps"),)  # of each, one may be given

_MOST = 10**15 - 1
_COUNT = re.compile(r"(\d{1,20}(?:\.\d{1,30})?)([KMGB]?)", re.ASCII | re.IGNORECASE)
_UNIT = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}
_SUREST = 0.999  # 99.9 / 100 is a bit more
_LONGEST_S = 100 * 366 * 86_400.0
_DEADLINE = re.compile(
    r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?"
    r"(?:@(\d{1,2}(?:\.\d+)?)%)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """What the `--train-*` flags say. None, or the default, where a flag was not given."""

    data: tuple[str, ...] = ()
    launch: LaunchChoice | None = None
    layout: LayoutChoice = "auto"
    servers: int | None = None
    framework: Framework | None = None
    nodes: NodeRange | None = None
    objective: Objective = field(default_factory=Objective)
    epochs: float | None = None
    steps: int | None = None
    samples: int | None = None
    batch: int = 128
    checkpoint_dir: str | None = None
    no_resume: bool = False
    no_hooks: bool = False
    name: str | None = None
    parameters: int | None = None
    tensors: int | None = None
    site: str | None = None
    explain: bool = False
    dry_run: bool = False
    strict: bool = False


def read_flags(
    command_line: Sequence[tuple[str, str | None]], script: Sequence[tuple[str, str | None]]
) -> TrainOptions:
    """The values of flags as split_command_line and read_directives found them.

    Raises:
        RequestError: a value is not of the flag's form; names the flag and its forms.
    """
    spoken = {name for name, _ in command_line}
    settled = spoken.union(*(rivals for rivals in _RIVALS if spoken & set(rivals)))
    flags = [*(pair for pair in script if pair[0] not in settled), *command_line]
    values = {name: value or "" for name, value in flags}

    def get(name: str, read: Callable[[str, str], T]) -> T | None:
        return read(name, values[name]) if name in values else None

    epochs, steps = get("train-epochs", _positive), get("train-steps", _steps)
    if epochs is not None and steps is not None:
        raise RequestError(
            "--train-epochs and --train-steps contradict each other", hint="give one of them"
        )
    layout = get("train-layout", _layout) or _Layout(layout="auto")
    return TrainOptions(
        data=tuple(_text(name, value or "") for name, value in flags if name == "train-data"),
        launch=get("train-launch", _launch),
        layout=layout.layout,
        servers=layout.servers,
        framework=layout.framework,
        nodes=get("train-nodes", _nodes),
        objective=get("train-objective", _objective) or Objective(),
        epochs=epochs,
        steps=steps,
        samples=get("train-samples", _count),
        batch=get("train-batch", _whole) or 128,
        checkpoint_dir=get("train-checkpoint", _text),
        no_resume="train-no-resume" in values,
        no_hooks="train-no-hooks" in values,
        name=get("train-name", _text),
        parameters=get("train-params", _count),
        tensors=get("train-tensors", _count),
        site=get("train-site", _text),
        explain="train-explain" in values,
        dry_run="train-dry-run" in values,
        strict="train-strict" in values,
    )


def _bad(name: str, value: str, forms: str) -> RequestError:
    return RequestError(f"--{name} does not take {value!r}", hint=f"give {forms}")


def _text(name: str, value: str) -> str:
    if not value or "\n" in value or "\0" in value:
        raise _bad(name, value, "a name or path of one line")
    return value


def _whole(name: str, value: str) -> int:
    if not re.fullmatch(r"\d{1,15}", value, re.ASCII) or int(value) < 1:
        raise _bad(name, value, f"a whole number from 1 to {_MOST:,}")
    return int(value)


def _positive(name: str, value: str) -> float:
    if not re.fullmatch(r"\d{1,15}(\.\d{1,30})?", value, re.ASCII) or float(value) <= 0:
        raise _bad(name, value, f"a number above 0, {_MOST:,} at most")
    return float(value)


def _count(name: str, value: str) -> int:
    """Rounded to a whole number, because 25.6M says no more than that."""
    number = round(_scaled(value))
    if not 1 <= number <= _MOST:
        raise _bad(name, value, f"a number from 1 to {_MOST:,}, e.g. 60000, 25.6M or 1.3B")
    return number


def _steps(name: str, value: str) -> int:
    number = _scaled(value)
    if not 1 <= number <= _MOST or number.denominator != 1:
        raise _bad(name, value, f"a whole number from 1 to {_MOST:,}, e.g. 400, 100k or 1.5M")
    return int(number)


def _scaled(value: str) -> Fraction:
    """What a number with its unit stands for, exactly: 1.001k is whole. 0 where it is none."""
    found = _COUNT.fullmatch(value)
    return Fraction(found[1]) * _UNIT[found[2].upper()] if found else Fraction(0)


def _launch(name: str, value: str) -> LaunchChoice:
    choices: dict[str, LaunchChoice] = {"none": "none", "script": "script", "ranks": "ranks"}
    if value in choices:
        return choices[value]
    raise _bad(name, value, "none, script or ranks")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    layout: LayoutChoice
    servers: int | None = None
    framework: Framework | None = None  # None: the one that the script follows


_LAYOUTS = {
    "auto": _Layout(layout="auto"),
    "allreduce": _Layout(layout="allreduce"),
    "ps": _Layout(layout="ps"),
    "tensorflow-ps": _Layout(layout="ps", framework="tensorflow"),
    **{name: _Layout(layout="allreduce", framework=name) for name in get_args(Framework)},
}


def _layout(name: str, value: str) -> _Layout:
    kind, colon, servers = value.partition(":")
    found = _LAYOUTS.get(kind)
    if found is not None and not colon:
        return found
    counted = re.fullmatch(r"[1-9]\d{0,5}", servers, re.ASCII)
    if found is not None and found.layout == "ps" and counted:
        return replace(found, servers=int(servers))
    *others, last = (f"{one}[:K]" if one.endswith("ps") else one for one in _LAYOUTS)
    forms = f"{', '.join(others)} or {last}, with K servers, 999,999 at most"
    raise _bad(name, value, forms)


def _nodes(name: str, value: str) -> NodeRange:
    if value == "auto":
        return NodeRange()
    found = re.fullmatch(r"([1-9]\d{0,6})(?:-([1-9]\d{0,6}))?", value, re.ASCII)
    if found:
        low, high = int(found[1]), int(found[2] or found[1])
        if low <= high:
            return NodeRange(low=low, high=high)
    raise _bad(name, value, "auto, a number of nodes, or a range A-B with A <= B <= 9,999,999")


def _objective(name: str, value: str) -> Objective:
    match value.partition(":"):
        case ("balanced" | "time" | "cost" | "node-hours" as kind, "", ""):
            return Objective(kind=kind)
        case ("deadline", ":", wanted) if found := _DEADLINE.fullmatch(wanted):
            parts = [float(part or 0) for part in found.groups()]
            days, hours, minutes, seconds, per_cent = parts
            total_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
            sure = min(per_cent / 100, _SUREST) if found[5] else Objective().sure
            if 0 < total_s <= _LONGEST_S and (not found[5] or 50 <= per_cent <= 99.9):
                return Objective(kind="deadline", deadline_s=total_s, sure=sure)
    raise _bad(
        name,
        value,
        "balanced, time, cost, node-hours, or deadline:T@P% with T like 90m, 6h, 1d12h, 100 "
        "years at most, and P from 50 to 99.9 (deadline:T is deadline:T@90%)",
    )


def absolute(path: str, cwd: Path) -> str:
    """A path as the nodes will find it: `~` expanded, relative to the submit folder."""
    return str(cwd / Path(path).expanduser())

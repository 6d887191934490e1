"""What the user's own sbatch options ask of nodes, as far as it binds a plan."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

_MIB = {"": 1, "M": 1, "G": 1024, "T": 1024**2}
_MEMORY = ("--mem", "--mem-per-cpu", "--mem-per-gpu")  # of these the last one counts
_SIZE = re.compile(
    r"\s*(?:\+|-(?=0+(?!\d)))?(\d{1,15})(?:([KMGT])B?)?", re.ASCII | re.IGNORECASE
)
# Before a count a type may be `3090`; alone it begins with a letter.
_TYPE, _COUNT = r"[A-Za-z_][^:=]*", r"\s*\+?(\d{1,9})(?:([kmgt])b?)?"
_GPUS = re.compile(rf"(?:(?:[^:=]+[:=])?{_COUNT}|{_TYPE})", re.ASCII | re.IGNORECASE)
_GRES = re.compile(
    rf"(?:gres[/:])?gpu(?:(?::[^:=]+)?[:=]{_COUNT}|:{_TYPE})?", re.ASCII | re.IGNORECASE
)
_GPU_TYPE = re.compile(r"\bgpu:(?!\s*\+?\d+(?:[kmgt]b?)?(?![^\s,]))([^:=,\s]+)", re.IGNORECASE)
_GPU_OPTIONS = {"--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket"}
_SHORT = {"-G": "--gpus", "-c": "--cpus-per-task", "-n": "--ntasks", "-N": "--nodes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedHardware:
    """0 where nothing is asked, or in a form that sbtrain does not read.

    gpu_types: that the options name, in small letters; None where none of them is of GPUs.
    memory_gib: of a node, asked by memory_option. task_gpus, cpus: of all tasks of a node.
    tasks: of all nodes together.
    """

    gpu_types: frozenset[str] | None = None
    gpus_per_node: int = 0
    task_gpus: int = 0
    gpus: int = 0
    cpus: int = 0
    tasks: int = 0
    tasks_per_gpu: int = 0
    memory_gib: float = 0.0
    memory_option: str = ""

    @classmethod
    def of(cls, sbatch_options: Sequence[str]) -> AskedHardware:
        """Options as words: `--name=value`, or the value in the word behind the name."""
        said = _values(sbatch_options)
        total, nodes = _number(said.get("--ntasks")), _number(said.get("--nodes"))
        tasks = max(_number(said.get("--ntasks-per-node")), 1)
        if total and nodes:
            tasks = math.ceil(total / nodes)
        gres = [_GRES.fullmatch(one.strip()) for one in said.get("--gres", "").split(",")]
        per_node = [_gpus(said.get("--gpus-per-node"))]
        per_node += [_counted(one) for one in gres if one]
        wants = any(gres) or any(map(_is_of_gpus, said.items()))
        typed = [f"gpu:{one}" for name in _GPU_OPTIONS for one in said.get(name, "").split(",")]
        asked = cls(
            gpu_types=gpu_types(" ".join((*sbatch_options, *typed))) if wants else None,
            gpus_per_node=max(per_node),
            task_gpus=_gpus(said.get("--gpus-per-task")) * tasks,
            gpus=_gpus(said.get("--gpus")),
            cpus=tasks * _number(said.get("--cpus-per-task")),
            tasks=total,
            tasks_per_gpu=_number(said.get("--ntasks-per-gpu")),
        )
        option = next((name for name in reversed(said) if name in _MEMORY), "")
        times = {
            "--mem": 1,
            "--mem-per-cpu": max(asked.cpus, tasks),
            "--mem-per-gpu": max(asked.gpus_per_node, asked.task_gpus),
        }
        mib = read_mib(said.get(option, ""))
        if mib is None:
            return asked
        return replace(asked, memory_gib=times[option] * mib / 1024, memory_option=option)

    def fewest_nodes(self, gpus_per_node: int) -> int:
        """Of so many GPUs each, that hold all GPUs asked for; 1 where none are."""
        return max(math.ceil(self.gpus / gpus_per_node), 1) if gpus_per_node else 1


def gpu_types(text: str) -> frozenset[str]:
    """Types in words like gpu:k80:2, in small letters."""
    return frozenset(map(str.lower, _GPU_TYPE.findall(text)))


def read_mib(text: str) -> int | None:
    """A size as sbatch reads it: MiB, or in K, M, G or T; parts of a MiB count as one. None:
    it would not take it."""
    size = _SIZE.fullmatch(text)
    if size is None:
        return None
    unit = (size[2] or "").upper()
    return math.ceil(int(size[1]) / 1024) if unit == "K" else int(size[1]) * _MIB[unit]


def _values(words: Sequence[str]) -> dict[str, str]:
    """By long name, in the order in which they were last given."""
    found: dict[str, str] = {}
    for word, after in pairwise((*words, "")):
        name, equals, value = word.partition("=")
        if not name.startswith("-"):
            continue
        if name[:2] in _SHORT and not name.startswith("--"):
            equals, value = name[2:], name[2:]
            name = _SHORT[name[:2]]
        found.pop(name, None)
        found[name] = value if equals else "" if after.startswith("-") else after
    return found


def _is_of_gpus(option: tuple[str, str]) -> bool:
    name, value = option
    return name in _GPU_OPTIONS or (name.startswith("--tres-per-") and "gpu" in value)


def _gpus(value: str | None) -> int:
    """`3`, `v100:3`, `v100` or several with commas; 0 where it is none of these."""
    found = [_GPUS.fullmatch(part.strip()) for part in (value or "").split(",")]
    return sum(_counted(one) for one in found if one) if all(found) else 0


def _counted(found: re.Match[str]) -> int:
    """One where no number is said; k, m, g and t stand for powers of 1024."""
    return int(found[1] or 1) << 10 * " kmgt".index((found[2] or " ").lower())


def _number(value: str | None) -> int:
    return int(value) if value and re.fullmatch(r"\d{1,9}", value, re.ASCII) else 0

"""What the user's own sbatch options ask of nodes, as far as it binds a plan."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

_GIB = {"": 1 / 1024, "K": 1 / 1024**2, "M": 1 / 1024, "G": 1.0, "T": 1024.0}
_MEMORY = ("--mem", "--mem-per-cpu", "--mem-per-gpu")  # of these the last one counts
_SIZE = re.compile(r"\+?(\d{1,15})([KMGT]?)B?", re.ASCII)
_GPUS = re.compile(r"(?:[A-Za-z_][^:=]*[:=])?(\d{1,9})", re.ASCII)
_GRES = re.compile(r"(?:gres/)?gpu(?::[A-Za-z_][\w.-]*)?(?::(\d{1,9}))?")
_GPU_TYPE = re.compile(r"gpu:([A-Za-z_][\w.-]*)")
_GPU_OPTIONS = {"--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket"}
_SHORT = {"-G": "--gpus", "-c": "--cpus-per-task"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedHardware:
    """0 where nothing is asked, or in a form that sbtrain does not read.

    gpu_types: that the options name, in small letters; None where none of them is of GPUs.
    memory_gib: of a node, asked by memory_option. task_gpus, cpus: of all tasks of a node.
    """

    gpu_types: frozenset[str] | None = None
    gpus_per_node: int = 0
    task_gpus: int = 0
    gpus: int = 0
    cpus: int = 0
    memory_gib: float = 0.0
    memory_option: str = ""

    @classmethod
    def of(cls, sbatch_options: Sequence[str]) -> AskedHardware:
        """Options as words: `--name=value`, or the value in the word behind the name."""
        said = _values(sbatch_options)
        tasks = max(_number(said.get("--ntasks-per-node")), 1)
        gres = [_GRES.fullmatch(one.strip()) for one in said.get("--gres", "").split(",")]
        per_node = [_gpus(said.get("--gpus-per-node"))]
        per_node += [int(one[1] or 1) for one in gres if one]
        wants = any(gres) or any(map(_is_of_gpus, said.items()))
        words = " ".join(sbatch_options)
        asked = cls(
            gpu_types=frozenset(map(str.lower, _GPU_TYPE.findall(words))) if wants else None,
            gpus_per_node=max(per_node),
            task_gpus=_gpus(said.get("--gpus-per-task")) * tasks,
            gpus=_gpus(said.get("--gpus")),
            cpus=tasks * _number(said.get("--cpus-per-task")),
        )
        option = next((name for name in reversed(said) if name in _MEMORY), "")
        times = {
            "--mem": 1,
            "--mem-per-cpu": max(asked.cpus, tasks),
            "--mem-per-gpu": max(asked.gpus_per_node, asked.task_gpus),
        }
        size = _SIZE.fullmatch(said.get(option, "").upper())
        if size is None:
            return asked
        gib = times[option] * int(size[1]) * _GIB[size[2]]
        return replace(asked, memory_gib=gib, memory_option=option)

    def fewest_nodes(self, gpus_per_node: int) -> int:
        """Of so many GPUs each, that hold all GPUs asked for; 1 where none are."""
        return max(math.ceil(self.gpus / gpus_per_node), 1) if gpus_per_node else 1


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
    """`3`, `v100:3` or several with commas; 0 where it is none of these."""
    found = [_GPUS.fullmatch(part.strip()) for part in (value or "").split(",")]
    return sum(int(one[1]) for one in found if one) if all(found) else 0


def _number(value: str | None) -> int:
    return int(value) if value and re.fullmatch(r"\d{1,9}", value, re.ASCII) else 0

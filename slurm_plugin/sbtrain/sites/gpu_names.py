"""The GPUs of a node: from what Slurm writes of it to what people call them, and back.

`gpu:nvidia_h100_80gb_hbm3:4` is four H100, which sbatch is asked for as
`gpu:nvidia_h100_80gb_hbm3`. A name is known where `sbtrain_perf.gpu_figures` has it, and where
all words of the GRES type are understood; else the type keeps Slurm's own word: `a40-48q` is a
part of an A40, `a100x` another board. A slice of a GPU (MIG) is named with its profile, and
has no figures of the whole.

Where GRES is untyped, a feature or the name of a partition may tell the type. Both are words
that people choose freely, and `a100` in them may as well be a rack. So

- a feature tells a type where nothing else stands in it: `a100`, `gpu_a100`, but not
  `rack-a100`, `no-v100`, `h100-ready`;
- a partition may have words of its own (`smith-h100`), but none of a place or a denial, and
  beside names that are short (`t4`, `a40`) or numbers (`3090`) only those that many partitions
  have: `a40-long`, but not `cms-t4`;
- `p4` and `a2` tell nothing: clouds call machines so that hold A100;
- all words together tell one type or none, and none where one of them tells of slices, or
  where the node has GPUs of several types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Literal

from sbtrain.slurm.client import Gres
from sbtrain.slurm.gres import gres_word
from sbtrain_perf.gpu_figures import PUBLISHED_GPUS

# Makers, generations, boards and what else is written beside a type.
_BESIDE = {
    *("nvidia", "tesla", "geforce", "amd", "radeon", "instinct", "intel", "data", "center"),
    *("gpu", "gpus", "generation", "accelerator", "nvlink", "hbm", "hbm2", "hbm3", "hbm3e"),
    *("kepler", "maxwell", "pascal", "volta", "turing", "ampere", "hopper", "blackwell"),
    *("oam", "mcm", "ac", "mba", "dgx", "dgxs", "hgx"),
    *("sxm", "sxm2", "sxm3", "sxm4", "sxm5", "sxm6"),
}
_TIMES = {f"x{n}" for n in range(1, 10)} | {f"{n}x" for n in range(1, 10)}
_IN_FEATURES = {*_BESIDE, *_TIMES, "sku", "type", "model", "name", "brand", "card", "device"}
_IN_PARTITIONS = {
    *_IN_FEATURES,
    *("long", "short", "dev", "devel", "debug", "test", "normal", "interactive", "batch"),
    *("high", "low", "prio", "priority", "preempt", "preemptable", "preemptible", "spot"),
    *("free", "queue", "part", "partition", "shared", "exclusive", "express", "node", "nodes"),
    *("small", "medium", "large", "all", "main", "general", "standard", "day", "week"),
    *("scavenge", "scavenger", "backfill", "single", "multi"),
}
_PLACES_AND_DENIALS = {
    *("rack", "racks", "row", "cab", "cabinet", "room", "aisle", "chassis", "enclosure", "pod"),
    *("island", "cell", "zone", "block", "building", "floor", "switch", "leaf", "host"),
    *("no", "non", "not", "without", "except", "pre", "like"),
}
_NEVER_GUESSED = {"P4", "A2"}

_FORMS = {"pcie": "PCIe", "hbm2e": "PCIe", "nvl": "NVL"}  # hbm2e: of an H100, without SXM
_SIZE = re.compile(r"(\d{2,3})(g|gb|gib)?")
_SLICE = re.compile(r"[._-]?(?<![a-z0-9])(?:mig[._-]?)?([1-7]g)[._-]?(\d+gb)(?:[+.]me)?")
_SLICED = re.compile(r"(?<![a-z])mig(?![a-z])|vgpu|(?<![a-z0-9])[1-7]g[._-]?\d+gb")
_GLUED = re.compile(r"(gpus?|[1-9]x)?(.+?)(x[1-9]|sxm\d?|pcie|nvl)?")  # gpua100x4, h100pcie
_MEMORY_OF_CPU = {"GH200": {120, 240, 480}}  # GiB, as NVML writes them
_MOST_WORDS = 4
UNTYPED = "gpu"  # what is called so of which nothing tells
_Form = Literal["long", "short", "number"]
_ALSO = {"rtx 8000": "Quadro RTX 8000", "rtx ada 6000": "RTX 6000 Ada"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpus:
    """GPUs of one type on a node.

    name: what people call the type (H100, A100-40GB, ...), or Slurm's own word where it is not
    known, "gpu" where nothing tells. gres: what sbatch is asked for, without the count
    (gpu:nvidia_h100_80gb_hbm3, or gpu where it is untyped). guessed_from: the words (features,
    names of partitions) that told the type; empty where GRES did.
    """

    name: str
    gres: str
    count: int
    guessed_from: tuple[str, ...] = ()


def node_gpus(
    gres: Sequence[Gres], *, features: Sequence[str], partitions: Sequence[str]
) -> tuple[NodeGpus, ...]:
    """One entry a type, in the order of GRES; none where the node has no GPU."""
    found: dict[str, NodeGpus] = {}
    for one in gres:
        if one.name != "gpu" or not one.count:
            continue
        word = gres_word(one)
        if word in found:  # sockets may have entries of their own
            found[word] = replace(found[word], count=found[word].count + one.count)
        else:
            name = gpu_name(one.kind) if one.kind else UNTYPED
            found[word] = NodeGpus(name=name, gres=word, count=one.count)
    if len(found) == 1:
        [(word, gpus)] = found.items()
        if set(_words(word)) <= _BESIDE:  # `gpu`, `gpu:tesla`
            name, told_by = _told(features, partitions)
            return (replace(gpus, name=name or gpus.name, guessed_from=told_by),)
    return tuple(found.values())


def is_slice(kind: str) -> bool:
    """Whether the type is a part of a GPU (MIG)."""
    return bool(_SLICE.search(kind.lower()))


@cache
def gpu_name(kind: str) -> str:
    """What people call a GRES type; the type itself where that is not known."""
    part = _SLICE.search(kind.lower())
    if part and part.end() == len(kind):
        whole = gpu_name(kind[: part.start()])
        return f"{whole}-{part[1]}.{part[2]}" if whole in PUBLISHED_GPUS else kind
    read = _read(kind)
    return read.names[0] if len(read.names) == 1 and read.beside <= _BESIDE else kind


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What stands in a word. names: of GPUs. form: of the name. beside: what else."""

    names: tuple[str, ...]
    form: _Form
    beside: frozenset[str]


def _told(features: Sequence[str], partitions: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The one type that these words tell, and those that do; empty where they tell none."""
    if any(_SLICED.search(word.lower()) for word in (*features, *partitions)):
        return "", ()
    told = {word: _by_feature(_read(word)) for word in features}
    for word in partitions:
        told[word] = told.get(word) or _by_partition(_read(word))
    names = {name for found in told.values() for name in found}
    exact = [one for one in names if not any(other.startswith(f"{one}-") for other in names)]
    if len(exact) != 1:
        return "", ()
    return exact[0], tuple(word for word, found in told.items() if found)


def _by_feature(read: _Read) -> tuple[str, ...]:
    sure = read.form != "number" or read.beside
    return _guesses(read) if sure and read.beside <= _IN_FEATURES else ()


def _by_partition(read: _Read) -> tuple[str, ...]:
    sure = read.form == "long" or read.beside <= _IN_PARTITIONS
    if not sure or read.beside & _PLACES_AND_DENIALS:
        return ()
    return _guesses(read) if read.form != "number" or read.beside & _BESIDE else ()


def _guesses(read: _Read) -> tuple[str, ...]:
    return tuple(one for one in read.names if one in PUBLISHED_GPUS.keys() - _NEVER_GUESSED)


@cache
def _read(word: str) -> _Read:
    words, spelled, beside = list(_words(word)), list[tuple[str, ...]](), list[str]()
    while words:
        lengths = range(min(_MOST_WORDS, len(words)), 0, -1)
        found = next((n for n in lengths if tuple(words[:n]) in _SPELLINGS), 0)
        if found:
            spelled.append(tuple(words[:found]))
        else:
            beside.append(words[0])
        del words[: found or 1]
    names = list(dict.fromkeys(_SPELLINGS[one] for one in spelled))
    if len(names) == 1:
        names[0], beside = _board(names[0], beside)
    letters = min(("".join(one) for one in spelled), key=len, default="")
    form: _Form = "number" if letters.isdecimal() else "short" if len(letters) < 4 else "long"
    return _Read(names=tuple(names), form=form, beside=frozenset(beside))


def _words(word: str) -> Iterator[str]:
    for found in re.findall("[a-z0-9]+", word.lower()):
        glued = _GLUED.fullmatch(found)
        if glued and (found,) not in _SPELLINGS and (glued[2],) in _SPELLINGS:
            yield from (part for part in glued.groups() if part)
        else:
            yield found


def _board(name: str, beside: list[str]) -> tuple[str, list[str]]:
    """The board that memory and form tell of, where they tell one; and what they leave."""
    board, sizes, left = name, list[int](), list[str]()
    family = [gpu for gpu in PUBLISHED_GPUS.values() if gpu.name.partition("-")[0] == name]
    own = {gpu.memory_gib for gpu in family}
    for word in beside:
        size = _SIZE.fullmatch(word)
        if size and (size[2] or int(size[1]) in own):
            sizes += {int(size[1])} - _MEMORY_OF_CPU.get(name, set())
        elif word in _FORMS:
            formed = f"{name}-{_FORMS[word]}"
            board = formed if formed in PUBLISHED_GPUS else board
        else:
            left.append(word)
    for gib in sizes:
        sized = f"{name}-{gib}GB"
        if sized in PUBLISHED_GPUS or PUBLISHED_GPUS[board].memory_gib != gib:
            board = sized
    return board, left


def _spellings() -> Iterator[tuple[tuple[str, ...], str]]:
    """`rtx 2080 ti`, and the same with some of its words run together, or without `rtx`."""
    plain = {name.lower(): name for name in PUBLISHED_GPUS if "-" not in name}
    for text, name in (plain | _ALSO).items():
        first, *others = text.split()
        for words in [[first, *others], *([others] if first in {"rtx", "gtx"} else [])]:
            for between in product(("", " "), repeat=len(words) - 1):
                pairs = zip(words, (*between, ""), strict=True)
                yield tuple("".join(map("".join, pairs)).split()), name


_SPELLINGS = dict(_spellings())

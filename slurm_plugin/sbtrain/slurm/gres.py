"""Slurm's words for generic resources: `gpu:k80:2(S:0-1),shard:8`, `cpu=8,gres/gpu:k80=2`."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from sbtrain.slurm.client import Gres

_BETWEEN = re.compile(r",(?![^()]*\))")
# Sockets, cores or indices may stand behind.
_WORD = re.compile(
    r"(?P<tres>gres/(?=.*=))?(?:gres[:/])?(?P<word>.+?)"
    r"(?:\((?:IDX:(?P<indices>[^()]*)|[^()]*)\))?"
)
_COUNT = re.compile(r"(\d+)([KMGTP]?)", re.IGNORECASE)
_NOTHING = {"", "N/A", "(null)"}


@lru_cache(maxsize=1024)  # thousands of nodes have a few between them
def read_gres(text: str) -> tuple[Gres, ...]:
    """What a node has or a job asks for; words without a count stand for one.

    Of TRES, such as `cpu=8,gres/gpu=4,gres/gpu:k80=3`, which tell of a resource as a whole and
    once more of its types: each type, and what is left of the whole without one.
    """
    found, of_tres = list[Gres](), list[Gres]()
    for text_of_one in _BETWEEN.split(text):
        word = _WORD.fullmatch(text_of_one.strip())
        if word is None or (not word["tres"] and "=" in word["word"]):
            continue  # nothing, or what is no GRES: cpu=8
        one = _one(word["word"], word["indices"])
        if one is not None:
            (of_tres if word["tres"] else found).append(one)
    return (*found, *_apart(of_tres))


def gres_word(gres: Gres) -> str:
    """What sbatch is asked for, without the count."""
    return f"{gres.name}:{gres.kind}" if gres.kind else gres.name


def _one(word: str, indices: str | None) -> Gres | None:
    name, *rest = re.split("[:=]", word)
    if name in _NOTHING:
        return None
    counted = _COUNT.fullmatch(rest[-1]) if rest else None
    kinds = rest[:-1] if counted else rest
    kind = ":".join(part for part in kinds if part not in {"(null)", "no_consume"})
    if counted:
        count = int(counted[1]) << 10 * " KMGTP".index(counted[2].upper() or " ")
    else:
        count = 1 if indices is None else _indices(indices)
    return Gres(name=name, kind=kind, count=count)


def _indices(text: str) -> int:
    """How many there are in `0-2,5`; none in `N/A`."""
    spans = re.findall(r"(\d+)(?:-(\d+))?", text)
    return sum(int(last or first) - int(first) + 1 for first, last in spans)


def _apart(of_tres: list[Gres]) -> list[Gres]:
    """Without what a whole and its types count twice."""
    typed = [one for one in of_tres if one.kind]
    for whole in (one for one in of_tres if not one.kind):
        left = whole.count - sum(one.count for one in typed if one.name == whole.name)
        if left > 0:
            typed.append(replace(whole, count=left))
    return typed

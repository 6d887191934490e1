"""Random host lists, right and wrong ones, read and written by sbtrain and by scontrol."""

from __future__ import annotations

import random
import re
import subprocess

from fidelity_checks.place import Place
from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.hostlist import MAX_HOSTS, compress, expand

_STEMS = ("n", "node", "c", "gpu-a", "r1n", "x.y", "N", "a_b", "\u00fc", "n0", "", "nid", "0")
_GLUE = ("", "", "", "-", "n", "x", "c0-", ".")
_BETWEEN = (",", ",", ",", ",", ",", " ", ", ", ",,", "\t", " ,")
# A bracket that nothing closes; something between a number and the - of its range: Slurm reads
# on, and what it makes of them is no node's name.
_MISREAD = re.compile(r"\[[^]]*$|\[[^]]*\d[^]\d,[-][^],[-]*-")
_WRONG = "[],- -[]0129ax:;+{}%/=*?\t."


def compare_hostlists(place: Place, *, count: int, seed: int) -> int:
    """How many of them differ; each is told."""
    differing = 0
    for number in range(count):
        rng = random.Random(f"hostlist {seed} {number}")
        if number % 4:
            text = _host_list(rng)
            ours, theirs = _expanded(text), _hostnames(place, text)
        else:
            text = ",".join(_hosts(rng))
            ours, theirs = compress(text.split(",")), _asked(place, "hostlist", text).strip()
        if ours != theirs:
            differing += 1
            print(f"host list {text!r}: {theirs!r:.400} | {ours!r:.400}")
    return differing


def _expanded(text: str) -> tuple[str, ...] | None:
    try:
        return expand(text)
    except LaunchError:
        return None


def _hostnames(place: Place, text: str) -> tuple[str, ...] | None:
    """None: refused, read as names that no node has, or as too many names."""
    try:
        said = _asked(place, "hostnames", text)
    except subprocess.TimeoutExpired:
        return None
    if said.count("\n") > MAX_HOSTS:
        return None
    names = tuple(said.removesuffix("\n").split("\n")) if said else ()
    refused = "error: " in said or "Invalid hostlist" in said or _MISREAD.search(text)
    return None if refused or any(set("[]") & set(name) for name in names) else names


def _asked(place: Place, what: str, text: str) -> str:
    return subprocess.run(
        ["scontrol", "--", "show", what, text], env=dict(place.environ), check=False, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
        errors="surrogateescape",
    ).stdout  # fmt: skip


def _host_list(rng: random.Random) -> str:
    words = [_word(rng) for _ in range(rng.choices((0, 1, 2, 3, 5), (1, 8, 8, 4, 2))[0])]
    text = "".join(word + rng.choice(_BETWEEN) for word in words)
    if rng.random() < 0.8:
        text = text.rstrip(", \t")
    if rng.random() < 0.05:
        text = rng.choice(_BETWEEN) + text
    for _ in range(rng.choices((0, 1, 2), (60, 30, 10))[0]):  # wrong in most places
        at = rng.randint(0, len(text))
        gone = rng.choice((0, 0, 1))
        text = text[:at] + rng.choice(_WRONG) + text[at + gone :]
    return text


def _word(rng: random.Random) -> str:
    text = rng.choice(_STEMS)
    brackets = rng.choices((0, 1, 2, 3), (5, 10, 3, 1))[0]
    for _ in range(brackets):
        text += f"[{_ranges(rng, wide=brackets == 1)}]" + rng.choice(_GLUE)
    if not text or rng.random() < 0.3:
        text += _number(rng)
    return text


def _ranges(rng: random.Random, *, wide: bool) -> str:
    parts = []
    for _ in range(rng.choices((1, 2, 3), (6, 3, 1))[0]):
        first = _number(rng)
        kind = rng.random()
        if kind < 0.45:
            parts.append(first)
        elif kind < 0.85:
            more = str(int(first) + rng.choice((0, 1, 2, 5, 12)))
            parts.append(f"{first}-{more.zfill(rng.choice((0, 0, len(first), 5)))}")
        elif kind < 0.93 and wide:
            parts.append(f"{first}-{_number(rng)}")  # backwards too
        elif kind < 0.95:
            parts.append(f"{first}-{int(first) + rng.choice((65_536, 10**9))}")  # too many
        else:
            parts.append(rng.choice((f"{first}-", f"-{first}", "", f" {first}", f"+{first}")))
    return ",".join(parts)


def _number(rng: random.Random) -> str:
    value = rng.choice((0, 1, 2, 3, 8, 9, 10, 11, 99, 100, 4095, rng.randint(0, 300)))
    return str(value).zfill(rng.choice((0, 0, 0, 2, 3, 7)))


def _hosts(rng: random.Random) -> list[str]:
    """Runs of names, as nodes have them, and what breaks a run."""
    hosts = list[str]()
    while len(hosts) < rng.choice((1, 2, 4, 9)):
        stem, first, width = rng.choice(_STEMS), rng.randint(0, 120), rng.choice((0, 0, 2, 4))
        step, end = rng.choice((1, 1, 1, 2, -1, 0)), rng.choice(("", "", "", "x", "-ib"))
        for place in range(rng.choice((1, 2, 3, 6))):
            number = str(max(first + step * place, 0)).zfill(width)
            hosts.append(f"{stem}{number}{end}")
    if rng.random() < 0.2:
        rng.shuffle(hosts)
    return hosts

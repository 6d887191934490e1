"""Random values of options, right and wrong ones, read by sbtrain and by sbatch, whose
cli_filter tells what it has understood and keeps it from submitting anything."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Callable, Mapping

from fidelity_checks.place import NOTED_ALONE, SEEN, Place
from sbtrain.slurm.times import read_time_limit
from sbtrain.slurm.values import read_nodes, read_signal, read_tasks
from sbtrain_jobs.ending.grace import warning_s
from sbtrain_perf.hardware import read_mib

_OPTIONS = re.compile(r"^options 0 (\{.*\})$", re.M)
_MISREAD_FROM = 2**31  # minutes: what sbatch makes of negative ones
_BLANKS = ("", "", "", "", "", "", "", " ", "+", "\t", "-")
_WRONG = " -:@+.,xkKmMGBR019\t/=_"
_NAMES = ("USR1", "USR2", "TERM", "INT", "HUP", "SIGUSR1", "sigterm", "usr1", "KILL", "URG",
          "1", "10", "15", "11", "SEGV", "NOPE", "SIG", "SIG10", "USR", "CONT", "Stop", "0",
          "CHLD", "XCPU", "xfsz")  # fmt: skip


def compare_values(place: Place, *, count: int, seed: int) -> int:
    """How many of them differ; each is told."""
    differing = 0
    kinds = list(_KINDS)
    for number in range(count):
        rng = random.Random(f"value {seed} {number}")
        option = kinds[number % len(kinds)]
        text = _bent(rng, _KINDS[option][0](rng))
        ours, theirs = _KINDS[option][1](text), _theirs(place, option, text)
        if ours != theirs and not _left_out(option, text, ours):
            differing += 1
            print(f"--{option}={text!r}: {theirs} | {ours}")
    return differing


def _left_out(option: str, text: str, ours: object) -> bool:
    """Lists and steps, which later releases take; numbers of which sbatch makes others."""
    if option == "time":
        return isinstance(ours, int) and ours * 60 >= 2**31
    if option != "nodes" or set(",:") & set(text):
        return option == "nodes"
    numbers = re.findall(r"(\d+)(k?)(m?)", text, re.IGNORECASE)
    return any(int(n) * 1024 ** (len(k) + 2 * len(m)) >= 2**31 for n, k, m in numbers)


def _theirs(place: Place, option: str, text: str) -> object:
    """None: refused."""
    noted = place.folder / "seen"
    noted.unlink(missing_ok=True)
    subprocess.run(
        [str(place.sbatch), f"--{option}={text}", "--wrap=true"], check=False,
        env={**place.environ, SEEN: str(noted), NOTED_ALONE: "1"}, capture_output=True,
        cwd=place.folder, timeout=60,
    )  # fmt: skip
    found = _OPTIONS.search(noted.read_text(errors="replace")) if noted.exists() else None
    options: Mapping[str, str] = json.loads(found[1]) if found else {}
    return _KINDS[option][2](options[option]) if option in options else None


def _or_none(read: Callable[[str], object]) -> Callable[[str], object]:
    def reads(text: str) -> object:
        try:
            return read(text)
        except ValueError:
            return None

    return reads


def _limit(text: str) -> object:
    limit_s = read_time_limit(text)
    return "UNLIMITED" if limit_s is None else limit_s // 60


def _told_limit(text: str) -> object:
    if text == "UNLIMITED":
        return text
    days, _, clock = text.rpartition("-")
    hours, minutes, _ = (int(part) for part in clock.split(":"))
    total = (int(days or 0) * 24 + hours) * 60 + minutes
    return total if total < _MISREAD_FROM else None


def _told_nodes(text: str) -> object:
    low, _, high = text.partition("-")
    nodes = max(int(low), 1), int(high or low)
    return nodes if nodes[1] >= 1 else None


def _signal(text: str) -> object:
    return read_signal(text), warning_s([f"--signal={text}"])


def _told_signal(text: str) -> object:
    name, _, lead = text.rpartition(":")[2].partition("@")
    try:
        return read_signal(name), float(lead or 60)
    except ValueError:  # a number of no signal
        return None


def _told_size(text: str) -> object:
    number, petabytes, _ = text.rstrip("?").partition("P")
    return int(number) * 1024**3 if petabytes else read_mib(number)


def _number(rng: random.Random) -> str:
    value = rng.choice((0, 1, 2, 3, 5, 7, 10, 59, 60, 90, 1023, 1024, rng.randint(0, 20_000)))
    return rng.choice(_BLANKS) + str(value).zfill(rng.choice((0, 0, 0, 2, 5)))


def _time(rng: random.Random) -> str:
    if rng.random() < 0.1:
        return rng.choice(("UNLIMITED", "infinite", "Infinite", "-1", "0", "", "inf", "unlim"))
    parts = ":".join(_number(rng) for _ in range(rng.choice((1, 1, 2, 2, 3, 3, 4))))
    return f"{_number(rng)}-{parts}" if rng.random() < 0.4 else parts


def _size(rng: random.Random) -> str:
    return _number(rng) + rng.choice(
        ("", "", "K", "M", "G", "T", "k", "g", "MB", "Gb", "P", "B")
    )


def _nodes(rng: random.Random) -> str:
    parts = [_number(rng) + rng.choice(("", "", "", "k", "K", "kk")) for _ in range(2)]
    if rng.random() < 0.1:
        return f"{rng.randint(0, 2047)}m"
    return "-".join(parts[: rng.choice((1, 2))]) + rng.choice(("", "", "", " ", "-"))


def _signals(rng: random.Random) -> str:
    before = rng.choice(("", "", "", "B:", "R:", "RB:", "BR:", "b:", ":", "x:", "B", "R"))
    lead = rng.choice(("", "", f"@{_number(rng)}", f"@{_number(rng)}", "@", "@60x"))
    return before + rng.choice(_NAMES) + lead


def _bent(rng: random.Random, text: str) -> str:
    for _ in range(rng.choices((0, 1, 2), (60, 30, 10))[0]):
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice(_WRONG) + text[at + rng.choice((0, 0, 1)) :]
    return text


# By option: random values, how sbtrain reads them, how the cli_filter's word is read.
_KINDS: dict[
    str,
    tuple[Callable[[random.Random], str], Callable[[str], object], Callable[[str], object]],
] = {
    "time": (_time, _or_none(_limit), _told_limit),
    "nodes": (_nodes, _or_none(read_nodes), _told_nodes),
    "signal": (_signals, _or_none(_signal), _told_signal),
    "mem": (_size, read_mib, _told_size),
    "tmp": (_size, read_mib, _told_size),
    "ntasks": (_number, _or_none(read_tasks), int),
}

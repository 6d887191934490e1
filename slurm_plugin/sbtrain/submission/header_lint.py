"""Lines of a script's head that sbatch reads otherwise than they look: misspelt and indented
directives, those behind a command, what it makes of `#PBS` and `#BSUB`, bytes it refuses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sbtrain.launches.shell_commands import read_shell
from sbtrain.options.argv import Setting, resolve
from sbtrain.options.directives import DirectiveError, Directives, read_directives
from sbtrain.options.script import Script
from sbtrain_perf.errors import RequestError

_BOM = "\ufeff"
_LOOKS = re.compile(r"([ \t]*)(#+!?[ \t]*)([A-Za-z]{4,9})(?=[ \t:=-])[:=]?(.*)", re.ASCII)
_NAMES = ("SBATCH", "SBTRAIN")
_ALIKE = 0.8  # of difflib
_GRID_ENGINE = re.compile(r"#\$[ \t]+-")
_PBS = re.compile(r"#PBS[ \t]+-(\w)[ \t]*(.*)")
_BSUB = re.compile(r"#BSUB[ \t]+-(\w+)[ \t]*(.*)")
# What sbatch 22.05 takes without a word and does nothing with.
_PBS_UNREAD: Mapping[str, str] = {
    "r": "#SBATCH --requeue or --no-requeue",
    "I": "salloc or srun --pty for an interactive job",
}
_PBS_RESOURCES_UNREAD: Mapping[str, str] = {
    "pmem": "#SBATCH --mem-per-cpu=M",
    "ngpus": "#SBATCH --gpus-per-node=N",
    "procs": "#SBATCH --ntasks=N",
    "place": "#SBATCH --exclusive, or nothing",
    "naccesspolicy": "#SBATCH --exclusive, or nothing",
    "feature": "#SBATCH --constraint=NAME",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadLine:
    """A line up to the first command, which is where sbatch looks for directives."""

    number: int
    text: str


def head_lines(text: str) -> tuple[HeadLine, ...]:
    lines = []
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.removeprefix(_BOM).strip(" \t\n\v\f\r")
        if stripped and not stripped.startswith("#"):
            break
        lines.append(HeadLine(number=number, text=line))
    return tuple(lines)


def settings_of(line: str, train_flags: Mapping[str, bool]) -> tuple[Setting, ...]:
    """The options of one directive; none where it holds none, or cannot be read."""
    try:
        found = read_directives(line, file="", train_flags=train_flags)
    except (DirectiveError, RequestError):
        return ()
    return found.settings


def header_lint(
    script: Script,
    directives: Directives,
    train_flags: Mapping[str, bool],
    *,
    ignores_pbs: bool,
) -> Iterator[str]:
    """One line each, `FILE:LINE: what; fix`.

    Args:
        ignores_pbs: sbatch was told to read neither `#PBS` nor `#BSUB`.
    """
    yield from _bytes_lint(script)
    if script.text.startswith(_BOM):
        return
    head = head_lines(script.text)
    for line in head:
        said = _misspelt(line.text, train_flags)
        if said:
            yield f"{script.shown}:{line.number}: {said}"
    if not ignores_pbs:
        yield from _others_lint(script, head)
    yield from _dropped_lint(script, directives)


def _bytes_lint(script: Script) -> Iterator[str]:
    name = shlex.quote(script.shown)
    if script.content.startswith(_BOM.encode()):
        yield (
            f"{script.shown}:1: begins with a byte-order mark, so sbatch sees no #! there; "
            f"sed -i '1s/^\\xEF\\xBB\\xBF//' {name}"
        )
    at = script.content.find(b"\r\n")
    if at >= 0:
        number = script.content.count(b"\n", 0, at) + 1
        yield (
            f"{script.shown}:{number}: has DOS line breaks, which sbatch refuses; "
            f"sed -i 's/\\r$//' {name}"
        )


def _misspelt(line: str, train_flags: Mapping[str, bool]) -> str:
    """What is said of a comment that was meant for a directive; empty for all others."""
    if _GRID_ENGINE.match(line):
        return "is a line for Grid Engine, which sbatch does not read; write #SBATCH options"
    match = _LOOKS.match(line)
    if match is None or line.startswith(tuple(f"#{name}" for name in _NAMES)):
        return ""
    indent, sign, word, rest = match.groups()
    if sign.startswith("##"):  # how a directive is switched off
        return ""
    name = _meant(word) if rest.lstrip(" \t").startswith("-") else ""
    if not name or not _are_options(name, rest, train_flags):
        return ""
    who = "sbatch" if name == "SBATCH" else "sbtrain"
    if indent and word == name and sign == "#":
        what = f"is indented, so {who} takes it for a comment"
    elif word == name:
        what = f"has something between # and {name}, so {who} takes it for a comment"
    else:
        what = f"is no directive, because #{word} is not #{name}"
    return f"{what}; write #{name}{rest.rstrip()} at the start of the line"


def _meant(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word.upper(), _NAMES, n=1, cutoff=_ALIKE)
    return near[0] if near else ""


def _are_options(name: str, rest: str, train_flags: Mapping[str, bool]) -> bool:
    """Whether a line's words are options, all of them known, and not a sentence."""
    try:
        found = read_directives(f"#{name}{rest}", file="", train_flags=train_flags)
        known = all(_is_known(one.name) for one in found.settings)
    except RequestError:
        return False
    return bool(found.settings or found.train) and known


def _is_known(name: str) -> bool:
    return len(name) > 1 and resolve(name) is not None


def _others_lint(script: Script, head: tuple[HeadLine, ...]) -> Iterator[str]:
    """`#PBS` and `#BSUB`, of which sbatch honours a part."""
    bsub = next((one.number for one in head if one.text.startswith("#BSUB")), 0)
    for line in head:
        place = f"{script.shown}:{line.number}"
        pbs, theirs = _PBS.match(line.text), _BSUB.match(line.text)
        if pbs and bsub:
            yield (
                f"{place}: is not read, because line {bsub} is a #BSUB line and sbatch reads "
                "one of the two kinds; write #SBATCH options"
            )
        elif pbs:
            yield from (f"{place}: {said}" for said in _pbs(pbs[1], pbs[2].strip()))
        elif theirs:
            yield from (f"{place}: {said}" for said in _lsf(theirs[1], theirs[2].strip()))


def _pbs(letter: str, value: str) -> Iterator[str]:
    if letter in _PBS_UNREAD:
        yield f"#PBS -{letter} does nothing under sbatch; write {_PBS_UNREAD[letter]}"
    if letter != "l":
        return
    for part in value.split(","):
        name, _, amount = part.partition("=")
        if name in _PBS_RESOURCES_UNREAD:
            fix = _PBS_RESOURCES_UNREAD[name]
            yield f"#PBS -l {name} does nothing under sbatch; write {fix}"
        if name in ("walltime", "cput") and re.fullmatch(r"\d+", amount, re.ASCII):
            yield (
                f"{name}={amount} is minutes for sbatch, and seconds for PBS; write "
                f"#SBATCH --time={_clock(int(amount))}"
            )


def _lsf(option: str, value: str) -> Iterator[str]:
    if option == "W" and (found := re.fullmatch(r"(\d+):(\d+)", value, re.ASCII)):
        minutes = int(found[1]) * 60 + int(found[2])
        yield (
            f"-W {value} is minutes and seconds for sbatch, and hours and minutes for LSF; "
            f"write #SBATCH --time={_clock(60 * minutes)}"
        )
    if option == "J" and (found := re.fullmatch(r"\"?([^\[\"]*)\[([^\]]+)\].*", value)):
        yield (
            f"-J {value} makes no array under sbatch; write #SBATCH --array={found[2]} "
            f"--job-name={found[1] or 'NAME'}"
        )


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _dropped_lint(script: Script, directives: Directives) -> Iterator[str]:
    """Directives behind a command. What stands in a here-document or a string is another
    script's."""
    if not directives.dropped:
        return
    own = _own_comments(script)
    for one in directives.dropped:
        number = int(one.place.rpartition(":")[2])
        if own is None or number in own:
            yield f"{one.message}; move it above line {one.command_line}"


def _own_comments(script: Script) -> frozenset[int] | None:
    """The numbers of lines that are comments of the script itself; None: not known."""
    text = script.text
    if script.is_python:
        import io
        import tokenize

        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        except (tokenize.TokenError, SyntaxError, ValueError):
            return None
        return frozenset(one.start[0] for one in tokens if one.type == tokenize.COMMENT)
    comments = read_shell(text, lambda name, text: False).comments
    numbers, number, before = set(), 1, 0
    for at in sorted(comments):
        number += text.count("\n", before, at)
        before = at
        numbers.add(number)
    return frozenset(numbers)

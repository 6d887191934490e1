"""Reading `#SBATCH` and `#SBTRAIN` lines of a script by sbatch's rules.

sbatch reads directives up to the first line that is neither blank nor a comment, and says
nothing about those after it: such lines are reported here, with file and line. The rules of
quotes, backslashes and `#` are those of sbatch (22.05 and 24.11); the tests compare with
the program itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sbtrain.errors import SbatchUsageError
from sbtrain.options.argv import (
    DONE_HERE,
    TRAIN_PREFIX,
    Setting,
    Words,
    heterogeneous,
    split_words,
)
from sbtrain_perf.errors import RequestError

# Read by slurmctld in the submitted script, and by sbatch as those of other schedulers.
_CARRIED = ("#BB", "#DW", "#STB", "#PBS", "#BSUB")
_OTHERS = ("#PBS", "#BSUB")  # behind commands too
_NAMES = re.compile(r"#PBS\s.*-N\s*\S|#BSUB\s.*-J\s*\S")
_BLANKS = " \t\n\v\f\r"


class DirectiveError(RequestError):
    """A directive that cannot be read. excerpt shows the line, with a caret under the place;
    exit_code is sbatch's own where sbatch would refuse the line too."""

    def __init__(self, message: str, *, hint: str, excerpt: str, exit_code: int) -> None:
        super().__init__(message, hint=hint)
        self.excerpt = excerpt
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A directive that sbatch ignores, and the line that makes it do so."""

    place: str  # file:line
    line: str
    command_line: int

    @property
    def message(self) -> str:
        by = "" if self.line.startswith("#SBTRAIN") else " by sbatch"
        return (
            f"{self.place}: ignored{by}, because line {self.command_line} is a "
            f"command: {self.line}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Directives:
    """What a script asks for.

    settings are the options of its `#SBATCH` lines, train those of its `#SBTRAIN` lines;
    kept_lines are the lines that the submitted script must carry on, untouched.
    """

    settings: tuple[Setting, ...] = ()
    train: tuple[tuple[str, str | None], ...] = ()
    kept_lines: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    file: str
    number: int
    line: str

    def error(
        self, message: str, *, column: int, hint: str, exit_code: int = RequestError.exit_code
    ) -> DirectiveError:
        indent = "".join("\t" if mark == "\t" else " " for mark in self.line[:column])
        return DirectiveError(
            f"{self.file}:{self.number}: {message}",
            hint=hint,
            excerpt=f"  {self.line}\n  {indent}^",
            exit_code=exit_code,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Word:
    text: str
    column: int  # 0-based place in the line


def named_otherwise(directives: Directives) -> bool:
    """Whether a line of another scheduler names the job."""
    return any(_NAMES.match(line) for line in directives.kept_lines)


def read_directives(text: str, *, file: str, train_flags: Mapping[str, bool]) -> Directives:
    """Read the directives of a script's text. `file` is its name in messages.

    Raises:
        DirectiveError: sbatch would refuse a line, or a `#SBTRAIN` line is wrong.
        RequestError: several components.
    """
    settings: list[Setting] = []
    train: list[tuple[str, str | None]] = []
    kept: list[str] = []
    dropped: list[Dropped] = []
    command_line = 0
    for number, line in enumerate(text.split("\n"), start=1):
        ours = re.match(r"#SBTRAIN(\s|$)", line) is not None
        theirs = line.startswith(("#SBATCH", "#SLURM"))
        if command_line:
            if ours or theirs:
                dropped.append(
                    Dropped(
                        place=f"{file}:{number}",
                        line=line.rstrip(),
                        command_line=command_line,
                    )
                )
            elif line.startswith(_OTHERS):
                kept.append(line)
            continue
        place = _Place(file=file, number=number, line=line)
        if line.startswith("#") and not theirs and not _is_utf8(line):
            if ours:
                raise place.error("is not UTF-8 text", column=0, hint="save it as UTF-8")
            continue
        if ours:
            train.extend(_ours(place, train_flags).train)
        elif theirs:
            split = _theirs(place)
            settings.extend(split.settings)
            kept.append(_carried(line, split))
        elif line.startswith(_CARRIED):
            kept.append(line)
        elif _is_command(line):
            command_line = number
    return Directives(
        settings=tuple(settings),
        train=tuple(train),
        kept_lines=tuple(kept),
        dropped=tuple(dropped),
    )


def quote_directive(word: str) -> str:
    """Write a word so that sbatch reads it back unchanged from a `#SBATCH` line.

    Raises:
        RequestError: the word holds a line break or NUL, which no directive can carry.
    """
    if any(mark in word for mark in "\n\r\0"):
        raise RequestError(
            f"a line break cannot stand in an sbatch directive: {word!r}",
            hint="give a value of one line",
        )
    if word and all(mark.isalnum() or mark in "-_=./,:@%+[]*" for mark in word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _is_utf8(line: str) -> bool:
    """Whether the line was decoded whole: bytes that are no UTF-8 come as surrogates."""
    return not any("\ud800" <= mark <= "\udfff" for mark in line)


def _is_command(line: str) -> bool:
    stripped = line.lstrip(_BLANKS)
    return bool(stripped) and not stripped.startswith("#")


def _theirs(place: _Place) -> Words:
    words = list(_words(place, start=7 if place.line.startswith("#SBATCH") else 6))
    texts = [word.text for word in words]
    for word in words:
        if word.text.startswith(TRAIN_PREFIX):
            raise place.error(
                "sbatch does not know this option",
                column=word.column,
                hint="write it on a line of its own that starts with #SBTRAIN",
                exit_code=SbatchUsageError.exit_code,
            )
    if "hetjob" in texts or "packjob" in texts:
        raise heterogeneous()
    split = _split(place, words, {})
    if split.rest:
        stray = words[len(words) - len(split.rest)]
        raise place.error(
            f"Invalid directive found in batch script: {stray.text}",
            column=stray.column,
            hint="quote a value that holds blanks; sbatch refuses this line too",
            exit_code=SbatchUsageError.exit_code,
        )
    return split


def _ours(place: _Place, train_flags: Mapping[str, bool]) -> Words:
    words = list(_words(place, start=len("#SBTRAIN")))
    split = _split(place, words, train_flags)
    if split.rest or split.settings:
        raise place.error(
            "a #SBTRAIN line holds --train-... options alone",
            column=words[0].column,
            hint="options of sbatch belong on a #SBATCH line",
        )
    return split


def _split(place: _Place, words: list[_Word], train_flags: Mapping[str, bool]) -> Words:
    try:
        return split_words([word.text for word in words], train_flags)
    except RequestError as error:
        raise place.error(
            error.message,
            column=words[-1].column,
            hint=error.hint,
            exit_code=error.exit_code,
        ) from None


def _carried(line: str, split: Words) -> str:
    """The line itself, or without what sbtrain does in sbatch's place."""
    if not any(setting.name in DONE_HERE for setting in split.settings):
        return line
    return " ".join(("#SBATCH", *map(quote_directive, split.words)))


def _words(place: _Place, *, start: int) -> Iterator[_Word]:
    """Words of a directive: quotes and backslashes as sbatch takes them.

    A backslash keeps the next character, also inside single quotes; an unescaped `#` outside
    quotes ends the line; an empty word ends the reading. A space after a backslash is kept
    as by 24.11 (22.05 ends the word there, and then refuses most such lines itself).
    """
    line, at = place.line, start
    while True:
        while at < len(line) and line[at] in _BLANKS:
            at += 1
        if at >= len(line):
            return
        if line[at] == ":":
            raise place.error(
                "unexpected ':'",
                column=at,
                hint="several components cannot stand in one directive",
                exit_code=1,
            )
        word, end = _word(place, start=at)
        if not word:
            return
        yield _Word(text=word, column=at)
        at = end


def _word(place: _Place, *, start: int) -> tuple[str, int]:
    line, taken, at = place.line, list[str](), start
    quote, quoted_from = "", start
    escaped = False
    while at < len(line):
        mark = line[at]
        if mark in _BLANKS and not quote and not (escaped and mark == " "):
            break
        if escaped:
            taken.append(mark)
            escaped = False
        elif mark == "\\":
            escaped = True
        elif quote:
            if mark == quote:
                quote = ""
            else:
                taken.append(mark)
        elif mark in "\"'":
            quote, quoted_from = mark, at
        elif mark == "#":
            at = len(line)
            break
        else:
            taken.append(mark)
        at += 1
    if quote:
        raise place.error(
            f"unmatched {quote}",
            column=quoted_from,
            hint="close the quote on the same line",
            exit_code=1,
        )
    return "".join(taken), at

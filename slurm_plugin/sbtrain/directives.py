"""Reading `#SBATCH` and `#SBTRAIN` lines of a script by sbatch's rules.

sbatch reads directives up to the first line that is neither blank nor a comment, and says
nothing about those after it: such lines are reported here, with file and line. The rules of
quotes, backslashes and `#` are those of sbatch (22.05 and 24.11), compared with the program itself
in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sbtrain.argv import TRAIN_PREFIX, Setting, heterogeneous, split_words
from sbtrain_perf.errors import RequestError

# Comment lines that sbatch, or slurmctld for burst buffers, reads in the submitted script.
_SLURM_READS = ("#SBATCH", "#SLURM", "#BB", "#DW", "#STB")
_BLANKS = " \t\n\v\f\r"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A directive that sbatch ignores, and the line that makes it do so."""

    place: str  # file:line
    line: str
    command_line: int

    @property
    def message(self) -> str:
        return (
            f"{self.place}: ignored by sbatch, because line {self.command_line} is a "
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
class _Word:
    text: str
    column: int  # 0-based place in the line


def read_directives(text: str, *, file: str, train_flags: Mapping[str, bool]) -> Directives:
    """Read the directives of a script's text. `file` is its name in messages.

    Raises:
        RequestError: a directive that sbatch refuses, or a `#SBTRAIN` line that is wrong;
            shows the line with a caret under the place.
    """
    settings: list[Setting] = []
    train: list[tuple[str, str | None]] = []
    kept: list[str] = []
    dropped: list[Dropped] = []
    command_line = 0
    for number, line in enumerate(text.split("\n"), start=1):
        ours = line.startswith("#SBTRAIN")
        theirs = line.startswith(("#SBATCH", "#SLURM"))
        if command_line:
            if ours or theirs:
                place = f"{file}:{number}"
                dropped.append(
                    Dropped(place=place, line=line.rstrip(), command_line=command_line)
                )
            continue
        if ours:
            train.extend(_ours(line, file=file, number=number, train_flags=train_flags))
        elif line.startswith(_SLURM_READS):
            if theirs:
                settings.extend(_theirs(line, file=file, number=number))
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


def _is_command(line: str) -> bool:
    stripped = line.lstrip(_BLANKS)
    return bool(stripped) and not stripped.startswith("#")


def _theirs(line: str, *, file: str, number: int) -> tuple[Setting, ...]:
    prefix = 7 if line.startswith("#SBATCH") else 6
    words = list(_words(line, start=prefix, file=file, number=number))
    texts = [word.text for word in words]
    for word in words:
        if word.text.startswith(TRAIN_PREFIX):
            raise _at(
                "sbatch does not know this option",
                line=line,
                column=word.column,
                file=file,
                number=number,
                hint="write it on a line of its own that starts with #SBTRAIN",
            )
    if "hetjob" in texts or "packjob" in texts:
        raise heterogeneous()
    try:
        split = split_words(texts, {})
    except RequestError as error:
        column = words[-1].column
        raise _at(
            error.message, line=line, column=column, file=file, number=number, hint=error.hint
        ) from None
    if split.rest:
        stray = words[len(words) - len(split.rest)]
        raise _at(
            f"invalid directive: {stray.text}",
            line=line,
            column=stray.column,
            file=file,
            number=number,
            hint="quote a value that holds blanks; sbatch refuses this line too",
        )
    return split.settings


def _ours(
    line: str, *, file: str, number: int, train_flags: Mapping[str, bool]
) -> tuple[tuple[str, str | None], ...]:
    words = list(_words(line, start=len("#SBTRAIN"), file=file, number=number))
    texts = [word.text for word in words]
    column = words[-1].column if words else 0
    try:
        split = split_words(texts, train_flags)
    except RequestError as error:
        raise _at(
            error.message, line=line, column=column, file=file, number=number, hint=error.hint
        ) from None
    if split.rest or split.settings:
        raise _at(
            "a #SBTRAIN line holds --train-... options alone",
            line=line,
            column=words[0].column,
            file=file,
            number=number,
            hint="options of sbatch belong on a #SBATCH line",
        )
    return split.train


def _words(line: str, *, start: int, file: str, number: int) -> Iterator[_Word]:
    """Words of a directive: quotes and backslashes as sbatch takes them.

    A backslash keeps the next character, also inside single quotes; an unescaped `#` outside
    quotes ends the line; an empty word ends the reading. A space after a backslash is kept
    as by 24.11 (22.05 ends the word there, and then refuses most such lines itself).
    """
    at = start
    while True:
        while at < len(line) and line[at] in _BLANKS:
            at += 1
        if at >= len(line):
            return
        if line[at] == ":":
            raise _at(
                "unexpected ':'",
                line=line,
                column=at,
                file=file,
                number=number,
                hint="several components cannot stand in one directive",
            )
        word, end = _word(line, start=at, file=file, number=number)
        if not word:
            return
        yield _Word(text=word, column=at)
        at = end


def _word(line: str, *, start: int, file: str, number: int) -> tuple[str, int]:
    taken: list[str] = []
    quote = ""
    quoted_from = start
    at = start
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
        raise _at(
            f"unmatched {quote}",
            line=line,
            column=quoted_from,
            file=file,
            number=number,
            hint="close the quote on the same line",
        )
    return "".join(taken), at


def _at(
    message: str, *, line: str, column: int, file: str, number: int, hint: str
) -> RequestError:
    caret = "".join("\t" if mark == "\t" else " " for mark in line[:column]) + "^"
    return RequestError(f"{file}:{number}: {message}\n  {line}\n  {caret}", hint=hint)

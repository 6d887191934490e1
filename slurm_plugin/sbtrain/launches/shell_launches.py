"""The launch lines of a shell script: its commands, with the variables that the script itself
gives a value looked up."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sbtrain.launches.launchers import LETTERS, SHELLS, Code, Launch, Unknown, judge, may_launch
from sbtrain.launches.shell_commands import ShellText, read_shell
from sbtrain.launches.shell_words import Assigned, Command, Expansion, Word

_MOST_VALUES = 8  # of one variable that are tried
_MOST_LENGTH = 4096  # of a value
_MOST_CODE = 20  # `eval` within `eval`
_SETTERS = frozenset({"export", "local", "declare", "typeset", "readonly", "setenv", "set"})
_DIGITS = frozenset("123456789")
_BENT = re.compile(r"[\\'\"\n]")
_SETS = re.compile(r"([A-Za-z_]\w*)(\+?)=", re.ASCII)

Value = str | tuple[str, ...]  # a tuple: the words of an array


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """at: where its command begins in the text. launch is Code where Python is to be read."""

    at: int
    launch: Launch | Code


def shell_launches(text: str) -> list[Found]:
    """In the order of the text; what cannot be read has none."""
    bent = _BENT.sub("", text)  # s"run" is srun
    if not any(letters in bent for letters in LETTERS):
        return []
    read = read_shell(text, _matters)
    script = _Script(read, budget=2 * len(text) + 65_536)
    for command in read.commands:
        script.assign(command)
    script.later, script.values = script.values, {}
    found = list[Found]()
    for command in read.commands:
        script.assign(command)
        found.extend(script.launches(command))
    return sorted(found, key=lambda one: one.at)


def _matters(name: str, text: str) -> bool:
    """Whether a command may launch something, or set a variable with which another does."""
    if name == "shift" or name in _SETTERS:
        return True
    if not may_launch(name):
        return False
    return "$" in text or name in SHELLS or any(letters in text for letters in LETTERS)


class _Script:
    """functions, documents: of the text; hands_on: functions that run their own words,
    what stands before these, and how many are shifted away; values: of each variable so far,
    newest first; later: of the whole script; budget: the letters that expansions may still
    make; done: `$(...)` stands for nothing, as in code that
    is run when it has run."""

    def __init__(self, read: ShellText, *, budget: int, nested: int = 0) -> None:
        self.functions = read.functions
        self.documents = read.documents
        self.hands_on = _hands_on(read.commands)
        self.values: dict[str, tuple[Value, ...]] = {}
        self.later: dict[str, tuple[Value, ...]] = {}
        self.budget = budget
        self.nested = nested
        self.done = False

    def assign(self, command: Command) -> None:
        if command.words:
            for name, value, adds in self._set_by(command.words):
                self._give(name, self._readings(value), adds=adds, perhaps=command.perhaps)
            return
        for one in command.assigned:
            self._give(one.name, self._assigned(one), adds=one.adds, perhaps=command.perhaps)

    def _give(self, name: str, new: Sequence[Value], *, adds: bool, perhaps: bool) -> None:
        old = self.values.get(name, ())
        if adds:
            new = [_sum(before, one) for before in old or ("",) for one in new]
        kept = [one for one in new if _size(one) <= _MOST_LENGTH] or [Unknown(f"${name}")]
        values = (*kept, *(old if perhaps else ()))
        self.values[name] = tuple(dict.fromkeys(values))[:_MOST_VALUES]

    def _assigned(self, one: Assigned) -> Sequence[Value]:
        if isinstance(one.value, list):
            return [tuple(field for word in one.value for field in self._fields(word, 0))]
        return self._readings(one.value)

    def _readings(self, word: Word) -> Sequence[Value]:
        """What a word on the right of `=`, which is not split, may stand for."""
        if isinstance(word, str):
            return [word]
        if len(word) == 1 and isinstance(word[0], Expansion):
            values = self._values_of(word[0], later=False)
            return [" ".join(one) if isinstance(one, tuple) else one for one in values]
        quoted = tuple(_whole(part) for part in word)
        readings = [self._fields(quoted, k) for k in range(self._ways(word))]
        return [one[0] if len(one) == 1 else " ".join(one) for one in readings]

    def _set_by(self, words: Sequence[Word]) -> Iterator[tuple[str, Word, bool]]:
        """`export A=1`; csh's `setenv A 1`, `set a = 1` and `set a = (1 2)`; `for a in 1 2`."""
        head = words[0]
        if head in ("for", "foreach") and len(words) > 2 and isinstance(words[1], str):
            for word in words[3 if words[2] == "in" else 2 :]:
                yield words[1], word, False
        elif head in _SETTERS:
            if head == "setenv" and len(words) == 3 and isinstance(words[1], str):
                yield words[1], words[2], False
            elif head == "set" and len(words) > 3 and words[2] == "=":
                if isinstance(words[1], str):
                    yield words[1], _spaced(words[3:]), False
            else:
                for word in words[1:]:
                    parts = (word,) if isinstance(word, str) else word
                    match = _SETS.match(parts[0]) if isinstance(parts[0], str) else None
                    if match:
                        rest = (str(parts[0])[match.end() :], *parts[1:])
                        yield match[1], rest, bool(match[2])

    def launches(self, command: Command) -> Iterator[Found]:
        words = command.words
        if not words or words[0] in ("for", "foreach", "case", "select"):
            return
        later = bool(command.function)
        ways = max(self._ways(word, later=later) for word in words)
        for k in range(ways):
            verdict = self._verdict(command, k)
            if isinstance(verdict, Code) and not verdict.python:
                self.done = True
                code = self._verdict(command, k)
                self.done = False
                inner = self._inner(command, code) if isinstance(code, Code) else []
                if inner:
                    yield from (Found(at=command.at, launch=one) for one in inner)
                    return
            elif verdict is not None:
                yield Found(at=command.at, launch=verdict)
                return

    def _verdict(self, command: Command, k: int) -> Launch | Code | None:
        name = command.words[0]
        fields = self._line(command, k)
        if isinstance(name, str) and name in self.hands_on:
            before, shifted = self.hands_on[name]
            return judge([*before, *fields[1 + shifted :]])
        return None if name in self.functions else judge(fields)

    def _line(self, command: Command, k: int) -> list[str]:
        later = bool(command.function)
        return [one for word in command.words for one in self._fields(word, k, later=later)]

    def _inner(self, command: Command, code: Code) -> list[Launch | Code]:
        """The launches of code that a word holds, or a here-document."""
        text = code.text
        if text is None:
            text = "" if command.document is None else self.documents[command.document]
        self.budget -= len(text)
        if self.nested >= _MOST_CODE or self.budget < 0:
            return []
        read = read_shell(text, _matters)
        script = _Script(read, budget=self.budget, nested=self.nested + 1)
        script.values, script.later = dict(self.values), self.later
        script.functions |= self.functions
        script.hands_on = self.hands_on | script.hands_on
        found = list[Launch | Code]()
        for inner in read.commands:
            script.assign(inner)
            found.extend(one.launch for one in script.launches(inner))
        self.budget = script.budget
        return found

    def _values_of(self, part: Expansion, *, later: bool) -> Sequence[Value]:
        if part.program:
            return (part.program,)
        known = self.values.get(part.name) or (self.later.get(part.name) if later else None)
        if part.alternate:
            other = self._default(part)[0]
            return tuple(dict.fromkeys(other if one else "" for one in known or ("", "set")))
        if not known:
            return self._default(part) if part.default is not None else (Unknown(part.text),)
        if part.default is not None and "" in known:
            return (*known, *self._default(part))
        return known

    def _default(self, part: Expansion) -> Sequence[Value]:
        return (" ".join(self._fields(part.default or "", 0)),)

    def _ways(self, word: Word, *, later: bool = False) -> int:
        if isinstance(word, str):
            return 1
        parts = (part for part in word if isinstance(part, Expansion))
        return max((len(self._values_of(part, later=later)) for part in parts), default=1)

    def _fields(self, word: Word, k: int, *, later: bool = False) -> list[str]:
        """The fields that a word becomes when its variables take their k-th value."""
        if isinstance(word, str):
            return [word]
        fields, current = list[str](), None
        for part in word:
            if isinstance(part, str):
                current = (current or "") + part
                continue
            values = self._values_of(part, later=later)
            value = values[min(k, len(values) - 1)]
            if self.done and isinstance(value, Unknown) and value.startswith(("$(", "`")):
                value = ""
            self.budget -= _size(value)
            if self.budget < 0:
                value = Unknown(part.text)
            if isinstance(value, Unknown) and len(word) == 1 and not part.quoted:
                return [value]
            if isinstance(value, Unknown) or (part.quoted and isinstance(value, str)):
                current = (current or "") + value
                continue
            if isinstance(value, tuple):
                pieces = list(value if part.every else value[:1])
            else:
                pieces = value.split()
            for place, piece in enumerate(pieces):
                if place:
                    fields.append(current or "")
                    current = piece
                else:
                    current = (current or "") + piece
        if current is not None:
            fields.append(current)
        return fields


def _hands_on(commands: Sequence[Command]) -> dict[str, tuple[list[str], int]]:
    """`run() { echo "$@"; "$@"; }`; `retry() { n=$1; shift; time "$@"; }`."""
    shifted: dict[str, int] = {}
    found: dict[str, tuple[list[str], int]] = {}
    for command in commands:
        name, words = command.function, command.words
        if not name or not words:
            continue
        if words[0] == "shift":
            by = words[1] if len(words) > 1 else "1"
            shifted[name] = shifted.get(name, 0) + (int(by) if by in _DIGITS else 1)
            continue
        own = next((at for at, word in enumerate(words) if _is_all(word)), None)
        if own is not None and name not in found:
            before = [one for one in words[:own] if isinstance(one, str)]
            if len(before) == own and _runs(before):
                found[name] = before, shifted.get(name, 0)
    return found


def _is_all(word: Word) -> bool:
    """`"$@"`, `$*`."""
    if isinstance(word, str) or len(word) != 1:
        return False
    return isinstance(word[0], Expansion) and word[0].name in ("@", "*")


def _runs(before: Sequence[str]) -> bool:
    """Whether a command that stands behind these words is run by them; those of a launcher
    are counted where it stands."""
    if not before or before == ["eval"]:
        return True
    return judge(before) is None and isinstance(judge([*before, "srun"]), Launch)


def _whole(part: str | Expansion) -> str | Expansion:
    """Behind `=` no value is split; an unknown one stays known as such."""
    if isinstance(part, str):
        return part
    return Expansion(
        text=part.text,
        name=part.name,
        default=part.default,
        alternate=part.alternate,
        quoted=True,
        every=part.every,
        program=part.program,
    )


def _spaced(words: Sequence[Word]) -> Word:
    parts = list[str | Expansion]()
    for word in words:
        parts += [" "] if parts else []
        parts += [word] if isinstance(word, str) else word
    return tuple(parts)


def _sum(before: Value, more: Value) -> Value:
    if isinstance(before, tuple):
        return (*before, *(more if isinstance(more, tuple) else (more,)))
    return (
        (before, *more)
        if isinstance(more, tuple) and before
        else (more if isinstance(more, tuple) else before + more)
    )


def _size(value: Value) -> int:
    return len(value) if isinstance(value, str) else sum(map(len, value)) + len(value)

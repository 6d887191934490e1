"""The words of a shell script: quotes, escapes, expansions and here-documents, as sh, bash,
dash, ksh and zsh read them. Words keep their expansions as written: what a variable holds is
not looked up here."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

MOST_STEPS = 100_000  # tokens of commands that are wanted: a second's work
_MOST_NESTED = 60
BARE = r"[^ \t\n;&|<>()$`'\"\\]"
_CHUNK = re.compile(rf"{BARE}++")
_DELIMITER = re.compile(rf"[ \t]*((?:'[^'\n]*'|\"[^\"\n]*\"|\\.|{BARE})++)")
_VARIABLE = re.compile(r"\$([A-Za-z_]\w*|[0-9@*#?$!-])", re.ASCII)
_PARAMETER = re.compile(
    r"\$\{([!#]?)([A-Za-z_]\w*|[0-9]+|[@*#?$!-])(\[[^\]\n]*\])?(:?[-=+?])?", re.ASCII
)
_ANSI = re.compile(r"\$'((?:[^'\\]++|\\.)*+)'", re.DOTALL)
_BACKTICK = re.compile(r"`((?:[^`\\]++|\\.)*+)`", re.DOTALL)
_IN_QUOTES = re.compile(r'[^"$`\\]++')
_IN_BRACES = re.compile(r"[^}$`'\"\\]++")
_ESCAPES = {"n": "\n", "t": "\t"}
_TABS = re.compile(r"^\t+", re.MULTILINE)
_SUBSTITUTIONS = re.compile(r"\$\([^()]*\)|`[^`]*`")
_BLANKS = re.compile(r"(?:[ \t]|\\\n)++")
_PARENTHESES = re.compile(r"[()]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """`$x`, `${x:-y}`, `$(...)` as written. name: of the variable whose value it is; default:
    what stands for one that is not set (alternate: for one that is); every: all words of an
    array; program: what `$(which srun)` finds."""

    text: str
    name: str = ""
    default: Word | None = None
    alternate: bool = False
    quoted: bool = False
    every: bool = False
    program: str = ""


Word = str | tuple[str | Expansion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """`name=value`, or `name+=value` where it adds; a list is an array's words."""

    name: str
    value: Word | list[Word]
    adds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A simple command. at: its place in the whole text. perhaps: it may be passed over, as
    in an arm or after `&&`. function: the one in whose
    body it stands; document: the here-document that it reads, by its place among them."""

    at: int
    words: tuple[Word, ...]
    assigned: tuple[Assigned, ...]
    perhaps: bool
    function: str = ""
    document: int | None = None


class EndOfReading(Exception):  # noqa: N818
    """The text ends inside a quote, or nests too deeply."""


def joined(parts: Sequence[str | Expansion]) -> Word:
    """One word of its parts: a plain string where nothing in it is expanded."""
    merged: list[str | Expansion] = []
    for part in parts:
        if part == "":
            continue
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    if not merged:
        return ""
    return merged[0] if len(merged) == 1 and isinstance(merged[0], str) else tuple(merged)


@dataclass(slots=True, kw_only=True)
class Findings:
    """What the readers of one text found. matters: whether a command is wanted, by its first
    word and its text; expanded: variables whose value is of interest; functions: whose
    definition is met in any case; defined: all; bodies: functions around the place that is
    read; documents: here-documents, without what is run when they are expanded; comments:
    where those of whole lines begin; steps: tokens that may still be read."""

    matters: Callable[[str, str], bool]
    commands: list[Command] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)
    expanded: frozenset[str] = frozenset()
    bodies: list[str] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    comments: set[int] = field(default_factory=set)
    steps: int = MOST_STEPS


class WordReader:
    """Reads one text; at is where. What backticks, here-documents and arithmetic hold is read
    by a reader of its own."""

    def __init__(self, text: str, found: Findings, *, base: int = 0, nested: int = 0) -> None:
        self.text = text
        self.found = found
        self.base = base
        self.nested = nested
        self.at = 0
        self.heredocs: list[tuple[str, bool, bool, int]] = []
        self.budget = 4 * len(text) + 10_000  # of looking ahead for the end of `((`

    def read(self, closing: str = "") -> None:
        """Commands up to the `)` that closes this list, or to the end of the text."""
        raise NotImplementedError

    def newline(self) -> None:
        """Steps over a line break, and the here-documents that begin behind it."""
        self.at += 1
        documents, self.heredocs = self.heredocs, []
        for delimiter, tabs, quoted, place in documents:
            start = self.at
            end = self._end_of_document(delimiter, tabs=tabs)
            body = self.text[start:end]
            if not quoted:
                self.within(start, end)
                body = _SUBSTITUTIONS.sub("", body)
            self.found.documents[place] = _TABS.sub("", body) if tabs else body

    def within(self, start: int, end: int) -> None:
        """What is run inside a part of the text that is itself no code."""
        inner = self.text[start:end]
        if "$" in inner or "`" in inner:
            self._reader(inner, start).quoted([], mark="")

    def _reader(self, text: str, start: int) -> Self:
        if self.nested >= _MOST_NESTED:
            raise EndOfReading
        base = self.base + start
        return type(self)(text, self.found, base=base, nested=self.nested + 1)

    def _end_of_document(self, delimiter: str, *, tabs: bool) -> int:
        """Steps behind the delimiter's line; the place where that begins."""
        text, size = self.text, len(self.text)
        while self.at < size:
            start = self.at
            end = text.find("\n", start)
            end = size if end < 0 else end
            self.at = min(end + 1, size)
            line = text[start:end]
            if (line.lstrip("\t") if tabs else line) == delimiter:
                return start
        return size

    def heredoc(self, *, tabs: bool) -> int | None:
        """Reads the word behind `<<`; the document's place among all of them."""
        match = _DELIMITER.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        raw = match[1]
        plain = re.sub(r"'([^'\n]*)'|\"([^\"\n]*)\"|\\(.)", r"\1\2\3", raw)
        place = len(self.found.documents)
        self.found.documents.append("")
        self.heredocs.append((plain, tabs, plain != raw, place))
        return place

    def target(self) -> None:
        """Steps over the word behind a redirection."""
        match = _BLANKS.match(self.text, self.at)
        if match:
            self.at = match.end()
        self.word()

    def word(self) -> Word:
        """The word that begins here; an empty one where none does."""
        text, parts = self.text, list[str | Expansion]()
        while self.at < len(text):
            mark = text[self.at]
            if mark in " \t\n;&|)":
                break
            if mark in "<>":
                if not text.startswith("(", self.at + 1):
                    break
                self.at += 1
                parts.append(self._substitution(quoted=True))
            elif mark == "(":
                before = parts[-1] if parts else ""
                if not (isinstance(before, str) and before.endswith(tuple("?*+@!"))):
                    break
                self.array()
                parts.append("()")
            elif mark == "'":
                end = text.find("'", self.at + 1)
                if end < 0:
                    raise EndOfReading
                parts.append(text[self.at + 1 : end])
                self.at = end + 1
            elif not self._special(parts, mark, quoted=False):
                match = _CHUNK.match(text, self.at)
                self.at = match.end() if match else self.at + 1
                parts.append(match[0] if match else mark)
        return joined(parts)

    def array(self) -> list[Word]:
        """The words between parentheses; steps behind the closing one."""
        words, deep = list[Word](), 0
        self.at += 1
        while self.at < len(self.text):
            mark = self.text[self.at]
            if mark == "\n":
                self.newline()
            elif mark == "#" and self.text[self.at - 1] in " \t\n(":
                self.at = self._line_end()
            elif mark == ")":
                self.at += 1
                if not deep:
                    return words
                deep -= 1
            elif mark in " \t;&|" or (
                mark in "<>" and not self.text.startswith("(", self.at + 1)
            ):
                self.at += 1
            elif mark == "(":
                deep += 1
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            else:
                words.append(self.word())
        raise EndOfReading

    def _line_end(self) -> int:
        end = self.text.find("\n", self.at)
        return len(self.text) if end < 0 else end

    def _special(self, parts: list[str | Expansion], mark: str, *, quoted: bool) -> bool:
        """Reads a quote, escape or expansion, if one begins here."""
        self.found.steps -= 1
        if self.found.steps < 0:
            raise EndOfReading
        if mark == '"':
            self.at += 1
            parts.append("")
            self.quoted(parts, mark='"')
        elif mark == "\\":
            following = self.text[self.at + 1 : self.at + 2]
            self.at += 2
            if following != "\n":
                parts.append(following)
        elif mark == "$":
            parts.append(self._dollar(quoted=quoted))
        elif mark == "`":
            parts.append(self._backtick(quoted=quoted))
        else:
            return False
        return True

    def quoted(self, parts: list[str | Expansion], *, mark: str) -> None:
        """Text by the rules of double quotes, up to `mark`, or to the end where it is empty."""
        text = self.text
        while self.at < len(text):
            match = _IN_QUOTES.match(text, self.at)
            if match:
                parts.append(match[0])
                self.at = match.end()
                continue
            sign = text[self.at]
            if sign == '"':
                self.at += 1
                if mark:
                    return
                parts.append(sign)
            elif sign == "\\" and text[self.at + 1 : self.at + 2] not in (
                "$",
                "`",
                '"',
                "\\",
                "\n",
            ):
                parts.append(sign)
                self.at += 1
            else:
                self._special(parts, sign, quoted=True)
        if mark:
            raise EndOfReading

    def _dollar(self, *, quoted: bool) -> str | Expansion:
        text, start = self.text, self.at
        following = text[start + 1 : start + 2]
        if following == "(":
            self.at += 1
            end = self.arithmetic()
            if end is None:
                return self._substitution(quoted=quoted)
            self.at = end
            self.within(start + 3, end - 2)
            return Expansion(text=text[start:end], quoted=quoted)
        if following == "{":
            return self._parameter(quoted=quoted)
        if following == "'" and not quoted:
            match = _ANSI.match(text, start)
            if match is None:
                raise EndOfReading
            self.at = match.end()
            return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), match[1])
        match = _VARIABLE.match(text, start)
        if match:
            self.at = match.end()
            every = match[1] in ("@", "*")
            return Expansion(text=match[0], name=match[1], quoted=quoted, every=every)
        self.at += 1  # also before a quote: `$"..."`
        return "" if following == '"' and not quoted else "$"

    def deeper(self) -> None:
        self.nested += 1
        if self.nested > _MOST_NESTED:
            raise EndOfReading

    def _substitution(self, *, quoted: bool) -> Expansion:
        """`(...)` behind `$`, `<` or `>`, whose sign stands before this place."""
        start, known = self.at - 1, len(self.found.commands)
        self.at += 1
        self.deeper()
        self.read(")")
        self.nested -= 1
        return Expansion(
            text=self.text[start : self.at],
            quoted=quoted,
            program=_found_program(self.found.commands[known:]),
        )

    def _backtick(self, *, quoted: bool) -> Expansion:
        match = _BACKTICK.match(self.text, self.at)
        if match is None:
            raise EndOfReading
        known = len(self.found.commands)
        escapes = r'\\([$`\\"])' if quoted else r"\\([$`\\])"
        self._reader(re.sub(escapes, r"\1", match[1]), self.at + 1).read()
        self.at = match.end()
        return Expansion(
            text=match[0], quoted=quoted, program=_found_program(self.found.commands[known:])
        )

    def _parameter(self, *, quoted: bool) -> Expansion:
        start = self.at
        match = _PARAMETER.match(self.text, start)
        self.at = match.end() if match else start + 2
        rest = list[str | Expansion]()
        self.deeper()
        self._up_to_brace(rest, quoted=quoted)
        self.nested -= 1
        text = self.text[start : self.at]
        if match is None or match[1] or (rest and not match[4]):
            return Expansion(text=text, quoted=quoted)
        return Expansion(
            text=text,
            name=match[2],
            default=joined(rest) if match[4] and "?" not in match[4] else None,
            alternate="+" in (match[4] or ""),
            quoted=quoted,
            every=match[3] in ("[@]", "[*]") or match[2] in ("@", "*"),
        )

    def _up_to_brace(self, parts: list[str | Expansion], *, quoted: bool) -> None:
        text = self.text
        while self.at < len(text):
            match = _IN_BRACES.match(text, self.at)
            if match:
                parts.append(match[0])
                self.at = match.end()
                continue
            mark = text[self.at]
            if mark == "}":
                self.at += 1
                return
            if mark == "'":
                end = text.find("'", self.at + 1) if not quoted else self.at
                if end < 0:
                    raise EndOfReading
                parts.append(text[self.at + 1 : end])
                self.at = end + 1
            else:
                self._special(parts, mark, quoted=quoted)
        raise EndOfReading

    def arithmetic(self) -> int | None:
        """Behind the `))` of a `((` that begins here; None where it opens two subshells."""
        if not self.text.startswith("((", self.at) or self.budget <= 0:
            return None
        deep = 0
        for match in _PARENTHESES.finditer(self.text, self.at):
            deep += 1 if match[0] == "(" else -1
            if deep == 1 and match[0] == ")":
                self.budget -= match.end() - self.at
                return match.end() + 1 if self.text.startswith(")", match.end()) else None
        self.budget = 0
        return None


def _found_program(commands: Sequence[Command]) -> str:
    """What `which srun`, alone in a substitution, finds; empty where it is another command."""
    if len(commands) != 1:
        return ""
    match commands[0].words:
        case ("which" | "whence", str(name)):
            return name
        case ("command", "-v", str(name)) | ("type" | "whence", "-p" | "-P", str(name)):
            return name
    return ""

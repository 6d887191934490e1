"""The simple commands of a shell script, as sh, bash, dash, ksh and zsh cut them out of a text.

Comments, quotes and here-documents are no commands; what stands in `$(...)`, backticks,
functions and the arms of `case` is. One pass over the text, and no text is an error: reading
ends where the shell itself could not go on.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass

from sbtrain.launches.shell_words import (
    BARE,
    Assigned,
    Command,
    EndOfReading,
    Findings,
    Word,
    WordReader,
)

_TOKEN = re.compile(
    r"(?P<blank>(?:[ \t]|\\\n)++)"
    rf"|(?P<plain>(?!\#){BARE}++(?=[ \t\n;&|<>()]|\Z))"
    r"|(?P<comment>\#[^\n]*+)"
    r"|(?P<newline>\n)"
    r"|(?P<arm>;;&|;;|;&)"
    r"|(?P<heredoc><<-?(?!<))"
    r"|(?P<redirect>&>>|&>|<<<|<&|>&|<>|>>|>\||<(?!\()|>(?!\())"
    r"|(?P<end>&&|\|\||\|&|;|&|\|)"
    r"|(?P<open>\()"
    r"|(?P<close>\))"
)
_ASSIGNS = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]\n]*\])?(\+?)=", re.ASCII)
_IO_NUMBER = re.compile(r"\d+|\{\w+\}", re.ASCII)
_NO_ARGUMENTS = re.compile(r"\([ \t]*\)")
_FUNCTION = re.compile(r"[ \t]+([^\s(){};&|<>$'\"`]+)[ \t]*(?:\([ \t]*\))?")
_COPROC_NAME = re.compile(r"[ \t]+[A-Za-z_]\w*(?=[ \t]+[({])", re.ASCII)
_TIME_PROGRAM = re.compile(r"time[ \t]+-(?!p[ \t])")
_TIME_OPTION = re.compile(r"[ \t]+-p(?=[ \t])")
_OPENING = frozenset({"if", "while", "until"})
_HEADS = frozenset({"for", "select", "case"})
_CLOSING = frozenset({"fi", "done", "esac"})
_NEUTRAL = frozenset({"then", "do", "else", "elif", "!", "coproc"})
_KEYWORDS = _OPENING | _HEADS | _CLOSING | _NEUTRAL | {"{", "}", "function"}
_EXPANDS = re.compile(r"\$(?:\{[!#]?)?([A-Za-z_]\w*)", re.ASCII)
_EXPANDED = r"\$\w+|\$\{\w+\}"
_QUOTED = rf"'[^'\n]*+'|\"(?:[^\"$`\\\n]|{_EXPANDED})*+\""
_ENDS = r"(?=[\n;&|)]|\Z)"
# A whole command that runs nothing within its words.
_SIMPLE = re.compile(
    r"([\w./+:,@%-]++|\[)"
    rf"(?:[ \t]++(?!\#)(?:[^\s;&|<>()$`'\"\\]|{_QUOTED}|{_EXPANDED}|"
    rf"[<>]&|&>|<(?![<(])|>(?!\())++)*+[ \t]*+{_ENDS}"
)
_SIMPLE_VALUE = re.compile(
    rf"([A-Za-z_]\w*)=([\w./+:,@%-]*+|'[^'\n]*+'|\"[^\"$`\\\n]*+\")[ \t]*+{_ENDS}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellText:
    """commands in the order in which they are met, those within a word before its own.
    functions: whose definition is met in any case; comments: where each begins that is a
    whole line; documents: the here-documents, without what is run when they are
    expanded."""

    commands: tuple[Command, ...]
    functions: frozenset[str]
    comments: frozenset[int]
    documents: tuple[str, ...]


def read_shell(text: str, matters: Callable[[str, str], bool]) -> ShellText:
    """Read a script's text.

    Args:
        matters: whether a command is wanted, by its first word and its text.
    """
    found = Findings(matters=matters, expanded=frozenset(_EXPANDS.findall(text)))
    with contextlib.suppress(EndOfReading, RecursionError):
        _Reader(text, found).read()
    return ShellText(
        commands=tuple(found.commands),
        functions=frozenset(found.functions),
        comments=frozenset(found.comments),
        documents=tuple(found.documents),
    )


class _Reader(WordReader):
    def read(self, closing: str = "") -> None:
        _List(self, self.found).read(closing)


class _List:
    """One list of commands: the whole text, or what stands in parentheses.

    cases: `case`s whose arms are being read; deep: compounds that may be passed over; braces,
    parens: for each `{` and `(` the function whose body it opens, or none; function: the one
    whose body is to come.
    """

    def __init__(self, reader: WordReader, found: Findings) -> None:
        self.reader = reader
        self.found = found
        self.words: list[Word] = []
        self.assigned: list[Assigned] = []
        self.begin = 0
        self.cases = 0
        self.deep = 0
        self.parens: list[str] = []
        self.document: int | None = None
        self.chained = False
        self.braces: list[str] = []
        self.function = ""

    def read(self, closing: str) -> None:
        reader = self.reader
        text, size = reader.text, len(reader.text)
        while reader.at < size:
            if not self.words and not self.assigned:
                self._step_over()
            self.found.steps -= 1
            if self.found.steps < 0:
                raise EndOfReading
            match = _TOKEN.match(text, reader.at)
            if match is None and reader.at >= size:
                break
            kind = match.lastgroup if match else "word"
            if match is None or kind == "plain":
                self._word(match[0] if match else "")
            elif kind == "blank":
                reader.at = match.end()
            elif kind == "comment":
                if reader.at == 0 or text[reader.at - 1] == "\n":
                    self.found.comments.add(reader.base + reader.at)
                reader.at = match.end()
            elif kind == "newline":
                self._end()
                reader.newline()
            elif kind == "end":
                reader.at = match.end()
                self._end(by=match[0])
            elif kind == "open":
                self._open()
            elif kind == "close":
                reader.at = match.end()
                self._end()
                if not self.parens and closing:
                    return
                self._leave(self.parens)
            else:
                reader.at = match.end()
                self._operator(kind or "", match[0])
        self._end()

    def _step_over(self) -> None:
        """Leaves a command behind that need not be known."""
        reader = self.reader
        match = _SIMPLE.match(reader.text, reader.at)
        if match:
            wanted = match[1] in self.found.defined or self.found.matters(match[1], match[0])
            if match[1] not in _KEYWORDS and not wanted:
                reader.at = match.end()
            return
        match = _SIMPLE_VALUE.match(reader.text, reader.at)
        if match and match[1] not in self.found.expanded:
            reader.at = match.end()

    def _operator(self, kind: str, sign: str) -> None:
        if kind == "arm":
            self._end()
            if self.cases:
                self._pattern()
        elif kind == "heredoc":
            self.document = self.reader.heredoc(tabs=sign == "<<-")
        else:
            self.reader.target()

    def _end(self, by: str = "") -> None:
        """The command that was being read is whole."""
        words, assigned = self.words, self.assigned
        if words or assigned:
            self.found.commands.append(
                Command(
                    at=self.reader.base + self.begin,
                    words=tuple(words),
                    assigned=tuple(assigned),
                    perhaps=bool(self.deep or self.parens or self.chained or self._piped(by)),
                    function=self.found.bodies[-1] if self.found.bodies else "",
                    document=self.document,
                )
            )
            self.words, self.assigned = [], []
        self.document = None
        self.chained = by in ("&&", "||", "|", "|&")

    def _piped(self, by: str) -> bool:
        return by in ("|", "|&", "&") or self.reader.nested > 0

    def _word(self, plain: str) -> None:
        reader, words = self.reader, self.words
        if not words and not self.assigned:
            self.begin = reader.at
            if plain in _KEYWORDS or (plain == "time" and self._times()):
                reader.at += len(plain)
                self._keyword(plain)
                return
        after = reader.at + len(plain)
        following = reader.text[after : after + 1] if plain else ""
        if following in ("<", ">") and _IO_NUMBER.fullmatch(plain):
            reader.at += len(plain)
            return
        if not words and (not plain or "=" in plain) and self._assignment():
            return
        if plain:
            reader.at += len(plain)
            words.append(plain)
            if plain == "in" and len(words) == 3 and words[0] == "case":
                self._end()
                self.cases += 1
                self._pattern()
            elif plain == "[[" and len(words) == 1:
                self._test()
        else:
            words.append(reader.word())

    def _times(self) -> bool:
        """`time` before any command, not the program of that name with its options."""
        return _TIME_PROGRAM.match(self.reader.text, self.reader.at) is None

    def _assignment(self) -> bool:
        reader = self.reader
        match = _ASSIGNS.match(reader.text, reader.at)
        if match is None:
            return False
        reader.at = match.end()
        array = reader.text.startswith("(", reader.at)
        value = reader.array() if array else reader.word()
        self.assigned.append(Assigned(name=match[1], value=value, adds=bool(match[2])))
        return True

    def _keyword(self, word: str) -> None:
        if word == "time":
            match = _TIME_OPTION.match(self.reader.text, self.reader.at)
            self.reader.at = match.end() if match else self.reader.at
        elif word in _OPENING:
            self.deep += 1
        elif word in _HEADS:
            self.deep += 1
            self.words.append(word)
        elif word == "coproc":
            match = _COPROC_NAME.match(self.reader.text, self.reader.at)
            self.reader.at = match.end() if match else self.reader.at
        elif word in _CLOSING:
            self.deep = max(self.deep - 1, 0)
            if word == "esac":
                self.cases = max(self.cases - 1, 0)
        elif word == "{":
            self._enter(self.braces)
        elif word == "}":
            self._leave(self.braces)
        elif word == "function":
            match = _FUNCTION.match(self.reader.text, self.reader.at)
            if match:
                self.reader.at = match.end()
                self._define(match[1])

    def _define(self, name: str) -> None:
        self.found.defined.add(name)
        if not (self.deep or self.parens or self.chained or self.found.bodies):
            self.found.functions.add(name)
        self.function = name

    def _enter(self, opened: list[str]) -> None:
        opened.append(self.function)
        if self.function:
            self.found.bodies.append(self.function)
        self.function = ""

    def _leave(self, opened: list[str]) -> None:
        if opened and opened.pop() and self.found.bodies:
            self.found.bodies.pop()

    def _open(self) -> None:
        """A subshell, arithmetic, a function's `()`, or what belongs to a word before it."""
        reader = self.reader
        if not self.words and not self.assigned:
            end = reader.arithmetic()
            if end is None:
                self._enter(self.parens)
                reader.at += 1
            else:
                reader.within(reader.at + 2, end - 2)
                reader.at = end
            return
        match = _NO_ARGUMENTS.match(reader.text, reader.at)
        if match and len(self.words) == 1 and isinstance(self.words[0], str):
            reader.at = match.end()
            self._define(self.words[0])
            self.words = []
            return
        self.words.extend(reader.array())

    def _pattern(self) -> None:
        """Steps behind the `)` of an arm's pattern; stays before an `esac`."""
        reader, text, size = self.reader, self.reader.text, len(self.reader.text)
        first = True
        while reader.at < size:
            mark = text[reader.at]
            match = _TOKEN.match(text, reader.at)
            if match and match.lastgroup in ("blank", "comment"):
                reader.at = match.end()
            elif mark == "\n":
                reader.newline()
            elif first and match and match[0] == "esac":
                return
            elif mark == "(" and not first:
                reader.array()
            elif mark in "(|":
                reader.at += 1
            elif mark == ")":
                reader.at += 1
                return
            elif mark in ";&<>":
                return
            else:
                first = False
                reader.word()

    def _test(self) -> None:
        """Steps behind the `]]` of a test; only what is run in its words counts."""
        reader, text, size = self.reader, self.reader.text, len(self.reader.text)
        while reader.at < size:
            mark = text[reader.at]
            if mark == "\n":
                reader.newline()
            elif mark in " \t;&|()<>" and not text.startswith(("<(", ">("), reader.at):
                reader.at += 1
            elif reader.word() == "]]":
                return

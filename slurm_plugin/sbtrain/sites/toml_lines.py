"""Where each key of a TOML text stands: tomllib does not say.

The text must be one that tomllib has read; this scanner only follows its outline.
"""

from __future__ import annotations

import tomllib

KeyPath = tuple[str, ...]


def key_lines(text: str) -> dict[KeyPath, int]:
    """Line (from 1) of every key and table header, by its path from the top.

    Elements of an array of tables share the path of the array; the last one counts.
    """
    return _Outline(text).read()


class _Outline:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[KeyPath, int] = {}

    def read(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        while self._skip_blank():
            if self._next("["):
                self._skip_over("[")
                table = self._key()
                self._note(table)
                self.at = self._end_of_line()
            else:
                self._pair(table)
        return self.lines

    def _pair(self, table: KeyPath) -> None:
        start = self.at
        key = self._key()
        for depth in range(1, len(key) + 1):
            self._note((*table, *key[:depth]), at=start)
        self._skip_over("= \t")
        self._value((*table, *key))

    def _key(self) -> KeyPath:
        """A dotted key. The parts may be quoted: tomllib itself takes them apart."""
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in "=]":
            if self.text[self.at] in "\"'":
                self._skip_string()
            else:
                self.at += 1
        data = tomllib.loads(self.text[start : self.at] + "=0")
        parts = []
        while isinstance(data, dict):
            ((part, data),) = data.items()
            parts.append(part)
        return tuple(parts)

    def _value(self, path: KeyPath) -> None:
        """Step over a value; note the keys of an inline table."""
        if self._next("[") or self._next("{"):
            inline_table = self._next("{")
            self.at += 1
            while self._skip_blank(and_commas=True) and self.text[self.at] not in "]}":
                if inline_table:
                    self._pair(path)
                else:
                    self._value(path)
            self.at += 1
        elif self._next('"') or self._next("'"):
            self._skip_string()
        else:
            while self.at < len(self.text) and self.text[self.at] not in ",]}#\n":
                self.at += 1

    def _skip_string(self) -> None:
        quote = self.text[self.at]
        triple = self.text.startswith(quote * 3, self.at)
        mark = quote * 3 if triple else quote
        self.at += len(mark)
        while not self.text.startswith(mark, self.at):
            self.at += 2 if quote == '"' and self._next("\\") else 1
        self.at += len(mark)
        while triple and self._next(quote):  # up to two quotes may end the content itself
            self.at += 1

    def _skip_blank(self, *, and_commas: bool = False) -> bool:
        """Step to the next thing that means something; False at the end of the text."""
        blank = " \t\r\n\ufeff" + ("," if and_commas else "")
        while self.at < len(self.text):
            if self._next("#"):
                self.at = self._end_of_line()
            elif self.text[self.at] in blank:
                self.at += 1
            else:
                return True
        return False

    def _skip_over(self, characters: str) -> None:
        while self.at < len(self.text) and self.text[self.at] in characters:
            self.at += 1

    def _end_of_line(self) -> int:
        end = self.text.find("\n", self.at)
        return len(self.text) if end < 0 else end

    def _next(self, character: str) -> bool:
        return self.text.startswith(character, self.at)

    def _note(self, path: KeyPath, *, at: int | None = None) -> None:
        where = self.at if at is None else at
        self.lines[path] = self.text.count("\n", 0, where) + 1

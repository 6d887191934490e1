"""The line of each key, in every form that TOML has."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from sbtrain.sites.toml_lines import key_lines

TEXT = '''\
# a comment = 1
name = "x # = [y]"  # [z]
a.b."c.d" = """
[not]
key = 1
"""""
lists = [ 1, # [
 "]", {q = 1, r.s = 'a"'} ]
[partitions.spot]  # trailing
nodes = 4
  indented = 'it''s'
[partitions."odd ]name"]
x = { y = "\\"}", z = [
 2 ] }
last = 1'''.replace("'it''s'", "'its'")


def test_keys_are_found_where_they_stand() -> None:
    tomllib.loads(TEXT)
    lines = key_lines(TEXT)
    assert lines["name",] == 2
    assert lines["a", "b", "c.d"] == 3
    assert ("key",) not in lines
    assert lines["lists",] == 7
    assert lines["partitions", "spot"] == 9
    assert lines["partitions", "spot", "nodes"] == 10
    assert lines["partitions", "spot", "indented"] == 11
    assert lines["partitions", "odd ]name"] == 12
    assert lines["partitions", "odd ]name", "x", "z"] == 13
    assert lines["partitions", "odd ]name", "last"] == 15


def test_an_empty_text_has_no_lines() -> None:
    assert key_lines("") == {}
    assert key_lines("# only this\n\n") == {}


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x7f"), max_size=12)
VALUES = st.one_of(st.integers(), st.booleans(), WORDS, st.lists(WORDS, max_size=3))


def toml_string(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " else f"\\u{ord(c):04x}" for c in escaped) + '"'


def toml_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",\n ".join(toml_value(entry) for entry in value) + "]"
    return str(value) if isinstance(value, int) else toml_string(str(value))


@given(st.dictionaries(WORDS, st.dictionaries(WORDS, VALUES, max_size=4), max_size=4))
def test_any_table_is_followed(tables: dict[str, dict[str, object]]) -> None:
    text = ""
    expected = {}
    for table, entries in tables.items():
        expected[(table,)] = text.count("\n") + 1
        text += f"[{toml_string(table)}]\n"
        for key, value in entries.items():
            expected[table, key] = text.count("\n") + 1
            text += f"{toml_string(key)} = {toml_value(value)}\n"
    assert tomllib.loads(text) == tables
    assert key_lines(text) == expected

"""What `--constraint` says of nodes, as far as it does; nothing of a form that is not known."""

from __future__ import annotations

import re
from collections.abc import Iterator

_WORD = r"[^\s&|,*()\[\]]+"
_ALTERNATIVES = re.compile(rf"({_WORD}(?:\|{_WORD})*)|\(({_WORD}(?:\|{_WORD})*)\)")
_COUNTED = re.compile(rf"({_WORD})\*(\d+)")


def features_of_each(constraint: str) -> Iterator[list[str]]:
    """Sets of features, of each of which every node needs one: a&b, a|b, (a|b)&c, and [a|b],
    of which all nodes need the same."""
    terms = _terms(constraint)
    found = [_ALTERNATIVES.fullmatch(one) for one in terms if not _COUNTED.fullmatch(one)]
    bracketed = constraint.startswith("[")
    if not all(found) or (bracketed and len(terms) > 1):
        return
    sets = [(one[1] or one[2]).split("|") for one in found if one]
    # Which of a|b&c binds first is Slurm's to say.
    bare = any("|" in one and not one.startswith("(") for one in terms)
    if not (bare and len(terms) > 1):
        yield from sets


def features_of_some(constraint: str) -> Iterator[tuple[str, int]]:
    """Features that so many nodes need, of all: a*2&b*4."""
    for one in _terms(constraint):
        counted = _COUNTED.fullmatch(one)
        if counted:
            yield counted[1], int(counted[2])


def _terms(constraint: str) -> list[str]:
    text = constraint
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    return re.split(r"[&,](?![^()]*\))", text) if text else []

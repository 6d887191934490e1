"""Holds the data of a site file against schema.json: types, ranges, missing and unknown keys.

The part of JSON Schema that schema.json uses, no more.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_TOO_LONG = 10**40  # to be shown

KeyPath = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong, and at which key."""

    path: KeyPath
    message: str


def schema_problems(
    data: object, schema: Mapping[str, object], path: KeyPath = (), *, whole: bool = True
) -> Iterator[Problem]:
    """Everything in data that schema does not allow, in the order of the data.

    whole: a missing key is a problem.
    """
    kind = str(schema.get("type"))
    if not _IS_KIND[kind](data):
        yield Problem(path=path, message=f"expected {_SAID[kind]}, found {_name(data)}")
    elif isinstance(data, dict):
        yield from _table_problems(data, schema, path, whole=whole)
    else:
        yield from _scalar_problems(data, schema, path)


def _table_problems(
    data: dict[str, object], schema: Mapping[str, object], path: KeyPath, *, whole: bool
) -> Iterator[Problem]:
    known = _table(schema.get("properties"))
    others = schema.get("additionalProperties")
    for key, value in data.items():
        inner = known.get(key, others)
        if isinstance(inner, dict):
            yield from schema_problems(value, inner, (*path, key), whole=whole)
        else:
            yield Problem(path=(*path, key), message=_unknown(key, known))
    required = schema.get("required") if whole else None
    for key in required if isinstance(required, list) else ():
        if key not in data:
            yield Problem(path=(*path, str(key)), message="missing")
    if len(data) < _number(schema.get("minProperties"), 0):
        yield Problem(path=path, message="empty: at least one is needed")


def _scalar_problems(
    data: object, schema: Mapping[str, object], path: KeyPath
) -> Iterator[Problem]:
    if isinstance(data, str):
        pattern = schema.get("pattern")
        if len(data) < _number(schema.get("minLength"), 0):
            yield Problem(path=path, message="empty")
        elif isinstance(pattern, str) and not re.search(pattern, data):
            yield Problem(path=path, message=f"{data!r} does not match {pattern}")
    elif isinstance(data, int | float) and not isinstance(data, bool):
        low = _number(schema.get("minimum"), -math.inf)
        above = _number(schema.get("exclusiveMinimum"), -math.inf)
        high = _number(schema.get("maximum"), math.inf)
        whole = isinstance(data, int) and abs(data) >= _TOO_LONG
        said = "a number of very many digits" if whole else f"{data}"
        if isinstance(data, float) and not math.isfinite(data):
            yield Problem(path=path, message=f"{data} is not a finite number")
        elif data <= above:
            yield Problem(path=path, message=f"{said} is not more than {above:g}")
        elif data < low:
            yield Problem(path=path, message=f"{said} is less than {low:g}")
        elif data > high:
            yield Problem(path=path, message=f"{said} is more than {high:,.12g}")


def _unknown(key: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return "unknown key" + (f"; did you mean {near[0]}?" if near else "")


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _number(value: object, default: float) -> float:
    return value if isinstance(value, int | float) else default


def _name(data: object) -> str:
    for kind in ("boolean", "integer", "number", "string", "object"):
        if _IS_KIND[kind](data):
            return _SAID[kind]
    return "a list" if isinstance(data, list) else "a date or time"


_IS_KIND = {
    "boolean": lambda data: isinstance(data, bool),
    "integer": lambda data: isinstance(data, int) and not isinstance(data, bool),
    "number": lambda data: isinstance(data, int | float) and not isinstance(data, bool),
    "string": lambda data: isinstance(data, str),
    "object": lambda data: isinstance(data, dict),
}
_SAID = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "a string",
    "object": "a table",
}

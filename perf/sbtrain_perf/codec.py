"""Frozen dataclasses to JSON and back, strictly: no unknown key, no wrong type, no default
for a value that the text leaves out unless the dataclass has one."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from sbtrain_perf.errors import PlanError
from sbtrain_perf.request import PLAN_VERSION, Plan

T = TypeVar("T")


class ShapeError(ValueError):
    """The data does not have the shape of the dataclass; path names the place, dotted."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path or 'top level'}: {message}")
        self.path = path
        self.message = message


def encode(value: object) -> Any:
    """A frozen dataclass as plain dicts, lists, strings and numbers."""
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]


def decode(kind: type[T], data: object, *, path: str = "") -> T:
    """Plain data as the dataclass `kind`.

    Raises:
        ShapeError: with the dotted path of the first place that does not fit.
    """
    if not isinstance(data, dict):
        raise ShapeError(path, f"expected a table, found {_name(data)}")
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in data:
        if key not in fields:
            raise ShapeError(_join(path, key), "unknown key")
    values = {}
    for name, spec in fields.items():
        if name in data:
            values[name] = _value(hints[name], data[name], _join(path, name))
        elif (
            spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING
        ):
            raise ShapeError(_join(path, name), "missing")
    return kind(**values)


def plan_to_json(plan: Plan) -> str:
    return json.dumps(encode(plan), indent=2) + "\n"


def plan_from_json(text: str) -> Plan:
    """Raises PlanError when the text is not a plan of this version."""
    try:
        data = json.loads(text)
        if isinstance(data, dict) and data.get("version") != PLAN_VERSION:
            raise PlanError(
                f"this plan has version {data.get('version')!r}, this sbtrain reads "
                f"version {PLAN_VERSION}",
                hint="submit again with the sbtrain that runs inside the job",
            )
        return decode(Plan, data)
    except ValueError as error:
        raise PlanError(
            f"not a plan: {error}", hint="submit again to write a new one"
        ) from error


def read_plan(path: str | Path) -> Plan:
    """Raises PlanError when the file is missing or not a plan."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(
            f"cannot read the plan {path}: {error.strerror}",
            hint="the run folder must be on a filesystem that all nodes share",
        ) from error
    return plan_from_json(text)


def _value(kind: Any, data: object, path: str) -> object:
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        return _union(typing.get_args(kind), data, path)
    if origin is typing.Literal:
        if data not in typing.get_args(kind):
            allowed = ", ".join(repr(choice) for choice in typing.get_args(kind))
            raise ShapeError(path, f"{data!r} is not one of {allowed}")
        return data
    if origin is tuple:
        if not isinstance(data, list | tuple):
            raise ShapeError(path, f"expected a list, found {_name(data)}")
        item = typing.get_args(kind)[0]
        return tuple(_value(item, entry, f"{path}[{i}]") for i, entry in enumerate(data))
    if origin is dict:
        if not isinstance(data, dict):
            raise ShapeError(path, f"expected a table, found {_name(data)}")
        item = typing.get_args(kind)[1]
        return {key: _value(item, entry, _join(path, key)) for key, entry in data.items()}
    if dataclasses.is_dataclass(kind):
        return decode(typing.cast("type[object]", kind), data, path=path)
    return _scalar(kind, data, path)


def _union(choices: tuple[Any, ...], data: object, path: str) -> object:
    if data is None and type(None) in choices:
        return None
    (inner,) = (choice for choice in choices if choice is not type(None))
    return _value(inner, data, path)


def _scalar(kind: Any, data: object, path: str) -> object:
    if kind is float and isinstance(data, int | float) and not isinstance(data, bool):
        if not math.isfinite(data):
            raise ShapeError(path, f"{data} is not a finite number")
        return float(data)
    if isinstance(data, kind) and (kind is bool or not isinstance(data, bool)):
        return data
    raise ShapeError(path, f"expected {_KINDS.get(kind, kind)}, found {_name(data)}")


_KINDS = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def _name(data: object) -> str:
    if data is None:
        return "nothing"
    return {list: "a list", dict: "a table", **_KINDS}.get(type(data), type(data).__name__)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key

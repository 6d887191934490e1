"""Frozen dataclasses to JSON and back, strictly: no unknown key, no wrong type, no default
for a value that the text leaves out unless the dataclass has one."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sbtrain_perf.errors import PlanError
from sbtrain_perf.request import PLAN_VERSION, Plan
from sbtrain_perf.values import field_types

T = TypeVar("T")


class ShapeError(ValueError):
    """The data does not have the shape of the dataclass; path names the place, dotted."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path or 'top level'}: {message}")
        self.path = path
        self.message = message

    def under(self, place: str) -> ShapeError:
        """The same error, seen from the data that holds this one."""
        return ShapeError(_join(place, self.path), self.message)


def encode(value: object) -> Any:
    """A frozen dataclass as plain dicts, lists, strings and numbers."""
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]


def decode(kind: type[T], data: object, *, path: str = "") -> T:
    """Plain data as the dataclass `kind`.

    Raises:
        ShapeError: with the dotted path of the first place that does not fit.
    """
    try:
        return typing.cast("T", _decoder(typing.cast("Any", kind))(data))
    except ShapeError as error:
        raise error.under(path) from None


def plan_to_json(plan: Plan) -> str:
    return json.dumps(encode(plan), indent=2) + "\n"


def plan_from_json(text: str, *, source: str = "the text") -> Plan:
    """Raises PlanError, which names source, when the text is not a plan of this version."""
    try:
        data = json.loads(text)
        if isinstance(data, dict) and data.get("version") != PLAN_VERSION:
            raise PlanError(
                f"{source} is a plan of version {data.get('version')!r}, this sbtrain "
                f"reads version {PLAN_VERSION}",
                hint="submit again with the sbtrain that runs inside the job",
            )
        return decode(Plan, data)
    except (ValueError, RecursionError) as error:
        raise _not_a_plan(source, error) from error


def read_plan(path: str | Path) -> Plan:
    """Raises PlanError when the file is missing or not a plan."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(
            f"cannot read the plan {path}: {error.strerror}",
            hint="the run folder must be on a filesystem that all nodes share",
        ) from error
    except ValueError as error:
        raise _not_a_plan(str(path), "not UTF-8 text") from error
    return plan_from_json(text, source=str(path))


def _not_a_plan(source: str, reason: object) -> PlanError:
    return PlanError(
        f"{source} is not a plan: {reason}", hint="submit again to write a new one"
    )


Decoder = Callable[[Any], object]


@functools.cache
def _decoder(kind: Any) -> Decoder:
    """Checks and converts data of one type; made once, since files hold many of a kind.

    Its errors name the place below the data that it was given.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, getattr(types, "UnionType", typing.Union)):
        return _of_union(arguments)
    if origin is typing.Literal:
        return _of_literal(arguments)
    if origin is tuple:
        return _of_tuple(arguments[0])
    if origin is dict:
        return _of_dict(arguments[1])
    if dataclasses.is_dataclass(kind):
        return _of_dataclass(typing.cast("type[object]", kind))
    return _of_scalar(kind)


def _of_dataclass(kind: type[object]) -> Decoder:
    hints = field_types(kind)
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    decoders = {field.name: _decoder(hints[field.name]) for field in fields}
    nothing = dataclasses.MISSING
    required = [f.name for f in fields if f.default is f.default_factory is nothing]

    def decode(data: Any) -> object:
        if not isinstance(data, dict):
            raise ShapeError("", f"expected a table, found {_name(data)}")
        values = {}
        for name, entry in data.items():
            if name not in decoders:
                raise ShapeError(name, "unknown key")
            try:
                values[name] = decoders[name](entry)
            except ShapeError as error:
                raise error.under(name) from None
        for name in required:
            if name not in values:
                raise ShapeError(name, "missing")
        return kind(**values)

    return decode


def _of_union(choices: tuple[Any, ...]) -> Decoder:
    (inner,) = (_decoder(choice) for choice in choices if choice is not type(None))
    return lambda data: None if data is None else inner(data)


def _of_literal(choices: tuple[Any, ...]) -> Decoder:
    def decode(data: Any) -> object:
        if data not in choices:
            raise ShapeError("", f"{data!r} is not one of {', '.join(map(repr, choices))}")
        return data

    return decode


def _of_tuple(kind: Any) -> Decoder:
    item = _decoder(kind)

    def decode(data: Any) -> object:
        if not isinstance(data, (list, tuple)):
            raise ShapeError("", f"expected a list, found {_name(data)}")
        values = []
        try:
            for entry in data:
                values.append(item(entry))
        except ShapeError as error:
            raise error.under(f"[{len(values)}]") from None
        return tuple(values)

    return decode


def _of_dict(kind: Any) -> Decoder:
    item = _decoder(kind)

    def decode(data: Any) -> object:
        if not isinstance(data, dict):
            raise ShapeError("", f"expected a table, found {_name(data)}")
        values = {}
        for key, entry in data.items():
            try:
                values[key] = item(entry)
            except ShapeError as error:
                raise error.under(key) from None
        return values

    return decode


def _of_scalar(kind: Any) -> Decoder:
    def decode(data: Any) -> object:
        if type(data) is kind and kind is not float:
            return data
        if kind is float and type(data) in (int, float):
            try:
                number = float(data)
            except OverflowError:  # a whole number that no float holds
                number = math.inf
            if not math.isfinite(number):
                raise ShapeError("", f"{number} is not a finite number")
            return number
        raise ShapeError("", f"expected {_KINDS.get(kind, kind)}, found {_name(data)}")

    return decode


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
    return f"{path}.{key}" if path and key and not key.startswith("[") else path + key

"""What sbtrain_perf.values offers, for Python 3.9."""

from __future__ import annotations

import ast
import dataclasses
import typing
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def dataclass(*, frozen: bool, slots: bool, kw_only: bool) -> Callable[[type[T]], type[T]]:
    """For values alone. They have no slots: what is frozen takes no further name anyway."""
    if not (frozen and slots and kw_only):
        raise TypeError("values are frozen, slotted and keyword-only")

    def decorated(kind: type[T]) -> type[T]:
        kind.__init__ = _take_keywords  # type: ignore[method-assign]
        return dataclasses.dataclass(frozen=True, init=False)(kind)

    return decorated


def field_types(kind: type[object]) -> dict[str, Any]:
    """typing.get_type_hints, of a value."""
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(kind)  # type: ignore[arg-type]
    written = {
        field.name: ast.unparse(_Unions().visit(ast.parse(str(field.type), mode="eval")))
        for field in fields
    }
    names = {"__annotations__": written, "__module__": kind.__module__}
    return typing.get_type_hints(type(kind.__name__, (), names), localns={"_typing": typing})


class _Unions(ast.NodeTransformer):
    """`A | B` as `_typing.Union[A, B]`."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        union = ast.parse("_typing.Union[0]", mode="eval").body
        assert isinstance(union, ast.Subscript)
        union.slice = ast.Tuple(elts=[node.left, node.right], ctx=ast.Load())
        return union


def _take_keywords(self: object, **given: object) -> None:
    """The __init__ of a value."""
    kind = type(self).__name__
    for field in dataclasses.fields(self):  # type: ignore[arg-type]
        if field.name in given:
            value = given.pop(field.name)
        elif field.default is not dataclasses.MISSING:
            value = field.default
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            raise TypeError(f"{kind}() misses the argument {field.name!r}")
        object.__setattr__(self, field.name, value)
    if given:
        raise TypeError(f"{kind}() takes no argument {next(iter(given))!r}")

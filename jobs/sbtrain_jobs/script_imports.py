"""What a Python script imports, by its syntax tree: comments and strings do not count."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(.+)|import[ \t]+(.+))$", re.M
)


def parsed(source: bytes | str, *, most_bytes: int = 0) -> ast.Module:
    """Raises ValueError, with the reason in words."""
    import ast
    import warnings

    if most_bytes and len(source) > most_bytes:
        raise ValueError(f"more than {most_bytes >> 20} MiB")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the script's own, of escapes and the like
            return ast.parse(source)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        raise ValueError(f"{where}{error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ValueError(str(error) or "nested too deeply") from error


def imported_names(source: str) -> frozenset[str]:
    """`a.b` for `import a.b`; `a` and `a.b` for `from a import b`; at any depth.

    A text that this Python cannot parse is read by its import lines.
    """
    import ast

    try:
        tree = parsed(source)
    except ValueError:
        return _by_lines(source)
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def joins(source: str) -> bool:
    """Whether the script imports the training API."""
    names = imported_names(source)
    return bool(names & {"sbtrain", "sbtrain.join"}) or any(
        name.split(".")[0] == "sbtrain_jobs" for name in names
    )


def _by_lines(source: str) -> frozenset[str]:
    names = set[str]()
    for module, members, modules in _IMPORT.findall(source):
        words = [word.split()[0] for word in (members or modules).split(",") if word.split()]
        words = [word.strip("()") for word in words]
        names |= {module, *(f"{module}.{word}" for word in words)} if module else set(words)
    return frozenset(names)

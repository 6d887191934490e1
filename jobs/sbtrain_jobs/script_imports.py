"""What a Python script imports, by its syntax tree: comments and strings do not count."""

from __future__ import annotations

import re

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(.+)|import[ \t]+(.+))$", re.M
)


def imported_names(source: str) -> frozenset[str]:
    """`a.b` for `import a.b`; `a` and `a.b` for `from a import b`; at any depth.

    A text that this Python cannot parse is read by its import lines.
    """
    import ast
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the script's own, of escapes and the like
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _by_lines(source)
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def joins(source: str) -> bool:
    """Whether the script imports the training API, whose runs save and resume by themselves."""
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

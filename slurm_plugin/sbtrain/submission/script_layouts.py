"""Which layouts a script can take part in, by what its code does: comments, messages and
strings do not count.

Servers are for scripts that can play one: by `run.tensorflow()`, which follows the plan; by
TensorFlow's own ParameterServerStrategy or Server; or by telling roles apart themselves.
Modules beside a Python script count as far as the script itself imports them. All others get
all-reduce, which any script can take part in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sbtrain.options.script import Script
from sbtrain_perf.request import LayoutChoice

if TYPE_CHECKING:
    import ast

MOST_BYTES = 1 << 20  # of a source that is read
_MOST_MODULES = 30
_SERVERS = frozenset({"ParameterServerStrategy", "ParameterServerStrategyV2", "Server"})
_RINGS = frozenset({"MultiWorkerMirroredStrategy", "CollectiveAllReduceStrategy"})
_ROLE_VARIABLES = frozenset({"TF_CONFIG", "SBTRAIN_ROLE"})
_ROLE_ATTRIBUTES = frozenset({"task_type", "role"})
# A shell script's own test of the role, at the head of a command.
_SHELL_ROLE = re.compile(
    r"^[^#'\"\n]*?(?:\[\[?|\btest|\bcase)[ \t]+\"?\$\{?SBTRAIN_ROLE\b", re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts:
    """layout: what may be planned where the user does not say; why: in words, of the script.
    plain: it plays no server, without doubt."""

    layout: LayoutChoice
    why: str
    plain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Uses:
    """What a source does. joins: imports the training API; follows: calls run.tensorflow();
    serves, rings: makes TensorFlow's strategy of parameter servers, of all-reduce; reads,
    tells: its role, a server from others."""

    tensorflow: bool = False
    joins: bool = False
    follows: bool = False
    serves: bool = False
    rings: bool = False
    reads: bool = False
    tells: bool = False

    def __or__(self, other: _Uses) -> _Uses:
        return _Uses(
            **{name: getattr(self, name) or getattr(other, name) for name in _Uses.__slots__}
        )


@lru_cache(maxsize=1)
def layouts_of(script: Script) -> Layouts:
    """Never fails: a script that cannot be read as Python gets all-reduce, and is said so."""
    if not script.is_python:
        if _SHELL_ROLE.search(script.text):
            return Layouts(layout="auto", why="tests $SBTRAIN_ROLE")
        return Layouts(layout="allreduce", why="is no Python and does not test $SBTRAIN_ROLE")
    try:
        tree = _parsed(script.content)
    except ValueError as error:
        return Layouts(layout="allreduce", why=f"cannot be read as Python ({error})")
    uses = _uses(tree)
    for module in _modules_beside(tree, script.folder):
        uses |= _uses(module)
    return _layouts(uses)


def _layouts(uses: _Uses) -> Layouts:
    tells = uses.reads and uses.tells
    if uses.joins and uses.follows and uses.tensorflow:
        return Layouts(layout="auto", why="calls run.tensorflow()")
    if uses.serves and not uses.rings:
        return Layouts(layout="ps", why="trains with TensorFlow's parameter servers alone")
    if tells:
        return Layouts(layout="auto", why="tells a server's role from others")
    if uses.serves:
        return Layouts(layout="allreduce", why="can do either, and no role decides")
    why = "neither calls run.tensorflow() nor makes a parameter server"
    return Layouts(layout="allreduce", why=why, plain=True)


def _parsed(content: bytes) -> ast.Module:
    """Raises ValueError, with the reason in words."""
    import ast
    import warnings

    if len(content) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES >> 20} MiB")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the script's own, of escapes and the like
            return ast.parse(content)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        raise ValueError(f"{where}{error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ValueError(str(error) or "nested too deeply") from error


def _uses(tree: ast.Module) -> _Uses:
    import ast

    nodes = list(ast.walk(tree))
    names = _bound(nodes, ("tensorflow", "keras"))
    made = {made for node in nodes if (made := _made(node, names))}
    return _Uses(
        tensorflow=bool(names),
        joins=bool(_bound(nodes, ("sbtrain", "sbtrain_jobs"))),
        follows=any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "tensorflow"
            for node in nodes
        ),
        serves=bool(made & _SERVERS),
        rings=bool(made & _RINGS),
        reads=any(map(_reads_role, nodes)),
        tells=any(map(_tells_servers, nodes)),
    )


def _bound(nodes: list[ast.AST], packages: tuple[str, ...]) -> dict[str, str]:
    """Names that imports of packages bind, and what each is called there."""
    import ast

    names = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in packages:
                    names[alias.asname or alias.name.split(".")[0]] = alias.name
        elif isinstance(node, ast.ImportFrom) and _root(node) in packages:
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
    return names


def _root(node: ast.ImportFrom) -> str:
    return "" if node.level else (node.module or "").split(".")[0]


def _made(node: ast.AST, names: dict[str, str]) -> str:
    """The TensorFlow class that a node calls, or gives a name; empty where it does neither."""
    import ast

    if isinstance(node, ast.Call):
        value: ast.AST | None = node.func
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        value = node.value
    else:
        return ""
    if isinstance(value, ast.Name):
        return names.get(value.id, "")
    last = value.attr if isinstance(value, ast.Attribute) else ""
    while isinstance(value, ast.Attribute):
        value = value.value
    return last if isinstance(value, ast.Name) and value.id in names else ""


def _reads_role(node: ast.AST) -> bool:
    """`environ["TF_CONFIG"]`, `getenv("SBTRAIN_ROLE")`, `resolver.task_type`, `run.role`."""
    import ast

    if isinstance(node, ast.Attribute):
        return node.attr in _ROLE_ATTRIBUTES and isinstance(node.ctx, ast.Load)
    key: ast.AST | None = None
    if isinstance(node, ast.Subscript):
        key = node.slice
    elif isinstance(node, ast.Call) and node.args:
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        key = node.args[0] if called in ("get", "getenv", "pop") else None
    return isinstance(key, ast.Constant) and key.value in _ROLE_VARIABLES


def _tells_servers(node: ast.AST) -> bool:
    """`== "ps"`, `in ("worker", "ps")`, `case "ps":`."""
    import ast

    if isinstance(node, ast.MatchValue):
        return _is_ps(node.value)
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    within = [one.elts for one in sides if isinstance(one, ast.Tuple | ast.List | ast.Set)]
    return any(_is_ps(one) for one in (*sides, *(one for of in within for one in of)))


def _is_ps(node: ast.AST) -> bool:
    import ast

    return isinstance(node, ast.Constant) and node.value == "ps"


def _modules_beside(tree: ast.Module, folder: Path) -> Iterator[ast.Module]:
    """The modules of the script's own folder that it imports; what cannot be read is none."""
    import ast

    wanted: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            wanted |= dict.fromkeys(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            wanted |= dict.fromkeys(
                (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
            )
    found = 0
    for name in wanted:
        stem = folder.joinpath(*name.split("."))
        for path in (stem.with_name(f"{stem.name}.py"), stem / "__init__.py"):
            try:
                if found >= _MOST_MODULES or not path.is_file():
                    continue
                found += 1
                with path.open("rb") as file:
                    yield _parsed(file.read(MOST_BYTES + 1))
            except (OSError, ValueError):
                continue

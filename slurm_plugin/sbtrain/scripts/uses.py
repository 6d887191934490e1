"""What a Python script does with the run that join() gives it, with its role and with
TensorFlow's strategies: read from its syntax tree and from those of the modules beside it.
Comments, messages and strings do not count."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sbtrain.options.script import Script
from sbtrain.scripts.modules import MOST_BYTES
from sbtrain.scripts.names import (
    HAS_SERVERS,
    IS_SERVER,
    NO_SERVER,
    NO_SERVERS,
    PS,
    RESULT,
    ROLE,
    Function,
    Space,
    Value,
)
from sbtrain.scripts.values import Values
from sbtrain.scripts.worlds import WorldStart, sets_place
from sbtrain_jobs.script_imports import parsed
from sbtrain_perf.request import Framework

_MOST_ROUNDS = 20
_LEAVES = frozenset({ast.Name, ast.Constant, ast.Load, ast.Store, ast.alias, ast.Pass})
_ENDS = frozenset({"exit", "quit", "_exit", "abort"})
_SAYS = frozenset({"print", "write", "flush", "log", "warn", "warning", "info", "debug"})
_SAYS |= {"error", "exception", "critical", "fatal"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """joins: imports the training API; follows: calls run.tensorflow(); serves, rings: makes
    TensorFlow's strategy of parameter servers, of all-reduce; tells: has a server do what
    others do not; refuses: ends where it is one, or where there are some. saves, resumes: as
    run.steps(start=..., save=...) and run.resume() do. worlds: of ranks, one a framework;
    ranked_by_mpi: MPI tells another framework which rank a process is; spawns: starts the
    processes of a node itself."""

    tensorflow: bool = False
    joins: bool = False
    follows: bool = False
    serves: bool = False
    rings: bool = False
    tells: bool = False
    refuses: bool = False
    saves: bool = False
    resumes: bool = False
    worlds: tuple[WorldStart, ...] = ()
    ranked_by_mpi: bool = False
    spawns: bool = False


@lru_cache(maxsize=1)
def script_uses(script: Script) -> Uses:
    """Raises ValueError, with the reason in words, where it cannot be read as Python."""
    tree = parsed(script.content, most_bytes=MOST_BYTES)
    try:
        return _Reader(tree, script.folder).read()
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def comes_back(script: Script) -> bool:
    """Whether it saves in its run, and goes on from there when it is started once more."""
    if not script.uses_sbtrain:
        return False
    try:
        uses = script_uses(script)
    except ValueError:
        return False
    return uses.saves and uses.resumes


class _Reader:
    """Goes through all modules again until no name may be anything more."""

    def __init__(self, tree: ast.Module, folder: Path) -> None:
        self._found = set[str]()
        self._worlds = dict[Framework, WorldStart]()
        self._values = Values(tree, folder, self._find)

    def read(self) -> Uses:
        values = self._values
        for _ in range(_MOST_ROUNDS):
            self._found.clear()
            values.begin()
            for module in values.modules:  # more on the way
                values.module = module
                self._block(module.tree.body, module.space)
            if not values.grew:
                break
        worlds = tuple(self._worlds.values())
        return Uses(worlds=worlds, **dict.fromkeys(self._found, True))

    def _find(self, fact: str | WorldStart) -> None:
        """Of layouts, what stands in the script and in what it imports itself counts."""
        module = self._values.module
        if isinstance(fact, str):
            if module.depth <= 1 or fact in ("saves", "resumes"):
                self._found.add(fact)
        elif module.depth <= 1:
            world = dataclasses.replace(fact, file=module.file)
            known = self._worlds.setdefault(world.framework, world)
            self._worlds[world.framework] = min(known, world, key=_nearness)

    def _block(self, body: Sequence[ast.stmt], space: Space) -> None:
        for index, node in enumerate(body):
            self._visit(node, space)
            if not isinstance(node, ast.If) or node.orelse or not _leaves(node.body):
                continue
            if NO_SERVER in self._values.of(node.test, space):
                surely = not _joined(node.test, ast.And)
                self._branch(body[index + 1 :], space, {IS_SERVER}, surely=surely)

    def _visit(self, node: ast.AST, space: Space) -> None:
        if type(node) in _LEAVES:
            return
        if isinstance(node, ast.ClassDef):
            self._class(node, space)
            return
        inner = space
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inner = self._values.define(node, space)
        self._take(node, space)
        self._within(node, space, inner)

    def _within(self, node: ast.AST, space: Space, inner: Space) -> None:
        """inner: the space of its body."""
        for name, child in ast.iter_fields(node):
            where = inner if name == "body" else space
            if isinstance(child, ast.AST):
                self._visit(child, where)
            elif isinstance(child, list) and child and isinstance(child[0], ast.stmt):
                self._block(child, where)
            elif isinstance(child, list):
                for one in child:
                    if isinstance(one, ast.AST):
                        self._visit(one, where)

    def _class(self, node: ast.ClassDef, space: Space) -> None:
        own = self._values.define_class(node, space)
        for one in (*node.bases, *node.keywords, *node.decorator_list):
            self._visit(one, space)
        for one in node.body:
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = self._values.define(one, space, owner=own)
                self._within(one, space, inner)
            else:
                self._visit(one, own)

    def _take(self, node: ast.AST, space: Space) -> None:
        """What one statement or expression binds, does or tests."""
        values = self._values
        if isinstance(node, ast.Import | ast.ImportFrom):
            values.bring(node, space)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            space.elsewhere.update(node.names)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                values.assign(target, node.value, space)
            if sets_place(node):
                values.rank_by(node.value, space)
        elif isinstance(node, ast.NamedExpr):
            values.assign(node.target, node.value, space)
        elif isinstance(node, ast.AnnAssign):
            said = values.annotated(node.annotation, space)
            values.bind(node.target, said | values.of(node.value, space), space)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            values.bind(node.optional_vars, values.of(node.context_expr, space), space)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            values.bind(node.target, set(), space)
        elif isinstance(node, ast.Return | ast.Yield | ast.YieldFrom):
            values.put(space, RESULT, values.of(node.value, space))
        elif isinstance(node, ast.Call | ast.Attribute):
            values.of(node, space)
        elif isinstance(node, ast.Assert):
            known = values.of(node.test, space) & {NO_SERVER, NO_SERVERS}
            if known and not _joined(node.test, ast.Or):
                self._find("refuses")
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            self._test(node, space)
        elif isinstance(node, ast.Match) and ROLE in values.of(node.subject, space):
            for case in node.cases:
                named = [
                    one for one in ast.walk(case.pattern) if isinstance(one, ast.MatchValue)
                ]
                if any(PS in values.of(one.value, space) for one in named):
                    self._branch(case.body, space, {IS_SERVER}, surely=case.guard is None)

    # -- tests of the role -------------------------------------------------------------------

    def _test(self, node: ast.If | ast.While | ast.IfExp, space: Space) -> None:
        said = self._values.of(node.test, space)
        surely = not _joined(node.test, ast.And)
        no = {NO_SERVER: IS_SERVER, NO_SERVERS: HAS_SERVERS}
        inverse: set[Value] = {no[one] for one in said if isinstance(one, str) and one in no}
        for branch, known in ((node.body, said), (node.orelse, inverse)):
            body = branch if isinstance(branch, list) else [ast.Expr(value=branch)]
            self._branch(body, space, known, surely=surely)

    def _branch(
        self, body: Sequence[ast.stmt], space: Space, known: set[Value], *, surely: bool
    ) -> None:
        """What is done where it is known that this is a server, or that there are some."""
        if not body or not known & {IS_SERVER, HAS_SERVERS}:
            return
        if self._refuses(body, space):
            if surely:
                self._find("refuses")
        elif IS_SERVER in known and any(_does(one) for one in body):
            self._find("tells")

    def _refuses(self, body: Sequence[ast.stmt], space: Space, depth: int = 0) -> bool:
        """Whether it ends, as a failure, in what stands there or in a function called."""
        for node in body:
            if isinstance(node, ast.Raise):
                return not _is_exit(node.exc) or _fails(node.exc)
            if isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant):
                return not node.test.value
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                if _is_exit(node.value) and _fails(node.value):
                    return True
                called = self._values.of(node.value.func, space) if depth < 3 else ()
                if any(self._is_refusal(one, depth + 1) for one in called):
                    return True
        return False

    def _is_refusal(self, called: Value, depth: int) -> bool:
        if not isinstance(called, Function) or isinstance(called.node, ast.Lambda):
            return False
        return self._refuses(called.node.body, called.space, depth)


def _nearness(world: WorldStart) -> tuple[bool, bool, int]:
    """What is sure comes first, then the script itself, then what stands above."""
    return not world.sure, bool(world.file), world.line


def _joined(test: ast.expr, by: type[ast.boolop]) -> bool:
    return isinstance(test, ast.BoolOp) and isinstance(test.op, by)


def _called(node: ast.AST | None) -> str:
    named = node.func if isinstance(node, ast.Call) else node
    return str(getattr(named, "attr", getattr(named, "id", "")))


def _is_exit(node: ast.AST | None) -> bool:
    return _called(node) in (*_ENDS, "SystemExit")


def _fails(node: ast.AST | None) -> bool:
    """Of a call that ends the process: whether it says a message or a status that is not 0."""
    if _called(node) == "abort":
        return True
    first = node.args[0] if isinstance(node, ast.Call) and node.args else None
    if isinstance(first, ast.Constant):
        return first.value not in (0, None)
    return isinstance(first, ast.JoinedStr | ast.BinOp | ast.UnaryOp) or (
        _called(first) == "format"
    )


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether what stands behind is for others; an error is for nobody."""
    last = body[-1]
    if isinstance(last, ast.Return | ast.Continue | ast.Break):
        return True
    exits = last.exc if isinstance(last, ast.Raise) else getattr(last, "value", None)
    return _is_exit(exits) and not _fails(exits)


def _does(node: ast.AST) -> bool:
    """Whether anything is called there but to say something or to end."""
    if isinstance(node, ast.Expr | ast.Raise | ast.Return):
        value = node.exc if isinstance(node, ast.Raise) else node.value
        if _is_exit(value):
            return any(_does(one) for one in getattr(value, "args", ()))
        if isinstance(value, ast.Call) and _called(value) in _SAYS:
            return False
        if isinstance(node, ast.Raise):
            return False
    if isinstance(node, ast.Call):
        return True
    return any(_does(one) for one in _children(node))


def _children(node: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        yield from ast.iter_child_nodes(node)

"""What the names of a Python script may be, as far as its run, its role and frameworks go.

Values are followed through assignments, `with`, arguments and results of the script's own
functions, attributes of its classes, and modules beside it; all else is unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

from sbtrain.scripts.modules import Modules
from sbtrain.scripts.names import (
    CONFIG,
    HAS_SERVERS,
    IS_SERVER,
    LAYOUT,
    NO_SERVER,
    NO_SERVERS,
    PS,
    RESOLVER,
    RESULT,
    ROLE,
    RUN,
    Definition,
    Function,
    Module,
    Space,
    Value,
)
from sbtrain.scripts.worlds import (
    COMM_WORLD,
    PACKAGES,
    WorldStart,
    sets_place,
    spawns,
    world_of_call,
    world_of_import,
)

_OURS = frozenset({"sbtrain", "sbtrain_jobs"})
_TENSORFLOW = frozenset({"tensorflow", "keras"})
_STRATEGIES = {
    "ParameterServerStrategy": "serves",
    "ParameterServerStrategyV2": "serves",
    "Server": "serves",
    "MultiWorkerMirroredStrategy": "rings",
    "CollectiveAllReduceStrategy": "rings",
}
_NOT = {IS_SERVER: NO_SERVER, HAS_SERVERS: NO_SERVERS}
_NOT |= {no: yes for yes, no in _NOT.items()}
_RING = "'allreduce'"
_VARIABLES = {"'SBTRAIN_ROLE'": ROLE, "'TF_CONFIG'": CONFIG}
_READERS = ("loads", "literal_eval", "safe_load")  # of a text with a configuration
_MOST_DOTS = 8
_STRINGS = frozenset({PS, _RING, "'type'", *_VARIABLES})


class Values:
    """Sets that only grow: who goes through `modules` until `grew` stays False has them all.

    found: is told what the script does, in the words of Uses, and which worlds it brings up.
    """

    def __init__(
        self, tree: ast.Module, folder: Path, found: Callable[[str | WorldStart], None]
    ) -> None:
        self.module = Module(tree=tree)  # the one that is being gone through
        self._modules = Modules(self.module, folder)
        self.modules = self._modules.all
        self.grew = False
        self._found = found
        self._defined = dict[ast.AST, Function | Space]()
        self._known = dict[ast.AST, set[Value]]()

    def begin(self) -> None:
        self.grew = False
        self._known.clear()

    # -- names ---------------------------------------------------------------------------

    def put(self, space: Space, name: str, values: set[Value]) -> None:
        while name in space.elsewhere and space.outer is not None:
            space = space.outer
        has = space.names.setdefault(name, set())
        self.grew |= not values <= has
        has |= values

    def bind(self, target: ast.expr, values: set[Value], space: Space) -> None:
        if isinstance(target, ast.Name):
            self.put(space, target.id, values)
        elif isinstance(target, ast.Attribute):
            for owner in self.of(target.value, space):
                if isinstance(owner, Space):
                    self.put(owner, target.attr, values)
        elif isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                self.bind(one, set(), space)

    def assign(self, target: ast.expr, value: ast.expr, space: Space) -> None:
        listed = ast.Tuple | ast.List
        if isinstance(target, listed) and isinstance(value, listed):
            for one, its in zip(target.elts, value.elts, strict=False):
                self.assign(one, its, space)
        else:
            self.bind(target, self.of(value, space), space)

    def define(self, node: Definition, space: Space, owner: Space | None = None) -> Space:
        """A function and what its parameters may be; returns the space of its body."""
        function = self._function(node, space, owner)
        own, arguments = function.space, node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        for one in (*positional, *arguments.kwonlyargs):
            self.put(own, one.arg, self.annotated(one.annotation, space))
        if owner is not None and positional and "staticmethod" not in function.marks:
            self.put(own, positional[0].arg, {owner})
        named = [
            *positional[len(positional) - len(arguments.defaults) :],
            *arguments.kwonlyargs,
        ]
        for one, given in zip(
            named, (*arguments.defaults, *arguments.kw_defaults), strict=True
        ):
            self.put(own, one.arg, self.of(given, space))
        if isinstance(node, ast.Lambda):
            self.put(own, RESULT, self.of(node.body, own))
        else:
            self.put(owner or space, node.name, {function})
        return own

    def define_class(self, node: ast.ClassDef, space: Space) -> Space:
        own = self._defined.setdefault(node, Space(outer=space))
        assert isinstance(own, Space)
        for base in node.bases:
            own.bases |= self.of(base, space)
        self.put(space, node.name, {own})
        return own

    def annotated(self, annotation: ast.expr | None, space: Space) -> set[Value]:
        """The run, where it says `Run` of the training API."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            said = space.find(annotation.value)
        else:
            said = self.of(annotation, space)
        ours = (one for one in said if isinstance(one, str) and _root(one) in _OURS)
        return {RUN} if any(one.endswith(".Run") for one in ours) else set()

    def _function(self, node: Definition, space: Space, owner: Space | None) -> Function:
        made = Function(node=node, space=Space(outer=space), owner=owner)
        function = self._defined.setdefault(node, made)
        assert isinstance(function, Function)
        return function

    # -- modules -------------------------------------------------------------------------

    def bring(self, node: ast.Import | ast.ImportFrom, space: Space) -> None:
        """What an import binds, and which package it names."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = tuple(alias.name.split("."))
                shown = parts if alias.asname else parts[:1]
                module, first = self._beside(parts), self._beside(shown)
                name = alias.asname or parts[0]
                own = module and first
                self.put(space, name, {own} if own else _named(".".join(shown)))
                self._note(parts[0], module)
                if module is None:
                    self._brought(world_of_import(alias.name, node))
            return
        parts = tuple(node.module.split(".")) if node.module else ()
        if node.level:
            package = self.module.package
            parts = (*package[: len(package) - node.level + 1], *parts)
        module = self._beside(parts) if parts else None
        for alias in node.names:
            deeper = self._beside((*parts, alias.name))
            if alias.name == "*":
                for name, values in dict(module.names if module else {}).items():
                    self.put(space, name, set(values))
                continue
            values = set(module.names.get(alias.name, ())) if module else set[Value]()
            if deeper is not None:
                values.add(deeper)
            if module is None and deeper is None and not node.level:
                values |= _named(f"{node.module}.{alias.name}")
                self._brought(world_of_import(f"{node.module}.{alias.name}", node))
            self.put(space, alias.asname or alias.name, values)
        if not node.level:
            self._note(parts[0], module)

    def _brought(self, world: WorldStart | None) -> None:
        if world is not None:
            self._found(world)

    def _note(self, root: str, beside: Space | None) -> None:
        if beside is None and root in _OURS:
            self._found("joins")
        elif beside is None and root in _TENSORFLOW:
            self._found("tensorflow")

    def _beside(self, parts: tuple[str, ...]) -> Space | None:
        known = len(self.modules)
        module = self._modules.beside(parts, depth=self.module.depth + 1)
        self.grew |= len(self.modules) > known
        return module

    # -- values --------------------------------------------------------------------------

    def of(self, node: ast.AST | None, space: Space) -> set[Value]:
        if node is None:
            return set()
        if node not in self._known:
            self._known[node] = self._valued(node, space)
        return self._known[node]

    def _valued(self, node: ast.AST, space: Space) -> set[Value]:
        if isinstance(node, ast.Name):
            return set(space.find(node.id))
        if isinstance(node, ast.Constant):
            return {*({f"'{node.value}'"} & _STRINGS)} if isinstance(node.value, str) else set()
        if isinstance(node, ast.Attribute):
            owners = self.of(node.value, space)
            values = {value for one in owners for value in self._part(one, node.attr)}
            if COMM_WORLD in values:
                self._found(
                    WorldStart(framework="mpi", call="MPI.COMM_WORLD", line=node.lineno)
                )
            return values
        if isinstance(node, ast.Call):
            return self._called(node, space)
        if isinstance(node, ast.Subscript):
            return _item(self.of(node.value, space), self.of(node.slice, space))
        if isinstance(node, ast.Compare):
            return self._compared(node, space)
        if isinstance(node, ast.UnaryOp):
            said = self.of(node.operand, space)
            return {_NOT[one] for one in said if isinstance(one, str) and one in _NOT}
        if isinstance(node, ast.BoolOp):
            return self._all(node.values, space)
        if isinstance(node, ast.IfExp):
            return self._all([node.body, node.orelse], space)
        if isinstance(node, ast.NamedExpr | ast.Await | ast.Starred):
            return self.of(node.value, space)
        if isinstance(node, ast.Lambda):
            return {self._function(node, space, None)}
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            return self._all(node.elts, space) & _STRINGS
        return set()

    def _all(self, nodes: list[ast.expr], space: Space) -> set[Value]:
        return set[Value]().union(*(self.of(one, space) for one in nodes))

    def _part(self, owner: Value, name: str) -> set[Value]:
        """An attribute of a value."""
        if isinstance(owner, Space):
            found = owner.attribute(name)
            made = [one for one in found if isinstance(one, Function)]
            read = [one for one in made if one.marks & {"property", "cached_property"}]
            return found.union(*(one.space.names.get(RESULT, set()) for one in read))
        if isinstance(owner, Function) or owner in _STRINGS:
            return set()
        if owner in (RUN, f"{RUN}.context"):
            if name == "resume":
                self._found("resumes")
            return {{"role": ROLE, "layout": LAYOUT}.get(name, f"{RUN}.{name}")}
        if owner in (ROLE, CONFIG):
            return {owner}
        if owner == RESOLVER:
            return {ROLE} if name == "task_type" else set()
        if name == "cluster_resolver" and owner.endswith(("Strategy", "StrategyV2")):
            return {RESOLVER}
        return _named(f"{owner}.{name}")

    def _called(self, node: ast.Call, space: Space) -> set[Value]:
        arguments = [self.of(one, space) for one in node.args]
        first = arguments[0] if arguments else set[Value]()
        last = getattr(node.func, "attr", getattr(node.func, "id", ""))
        called = self.of(node.func, space)
        if last in ("get", "getenv", "pop") and first & _STRINGS:
            return _item(called, first)
        if last == "enter_context":
            return first
        results = set[Value]()
        if not called and (last in _READERS or isinstance(node.func, ast.Name)):
            results = first & {ROLE, CONFIG} | {one for one in first if _is_of_mpi(one)}
        if sets_place(node):
            self.rank_by(node, space)
        for one in called:
            if isinstance(one, str):
                results |= self._made(one, node, space)
            elif isinstance(one, Function):
                self._pass(one, node, arguments, space)
                results |= one.space.names.get(RESULT, set())
            else:
                self._make(one, node, arguments, space)
                results.add(one)
        return results

    def _make(
        self, made: Space, node: ast.Call, arguments: list[set[Value]], space: Space
    ) -> None:
        """An instance of a class, or of a data class."""
        for base in made.bases:
            if isinstance(base, str):
                self._made(base, node, space)
        begins = [one for one in made.attribute("__init__") if isinstance(one, Function)]
        for begin in begins:
            self._pass(begin, node, arguments, space)
        if begins:
            return
        for name, values in zip(list(made.names), arguments, strict=False):
            self.put(made, name, values)
        for keyword in node.keywords:
            if keyword.arg is not None:
                self.put(made, keyword.arg, self.of(keyword.value, space))

    def rank_by(self, node: ast.AST, space: Space) -> None:
        """Of what says which rank a process is: whether MPI told the script."""
        names = (one.id for one in ast.walk(node) if isinstance(one, ast.Name))
        known = (value for name in names for value in space.find(name))
        told = (
            value.space.names.get(RESULT, set()) if isinstance(value, Function) else {value}
            for value in known
        )
        if any(_is_of_mpi(one) for values in told for one in values):
            self._found("ranked_by_mpi")

    def _made(self, called: str, node: ast.Call, space: Space) -> set[Value]:
        """What a call of a package's name, or of a value's method, gives."""
        last = called.rpartition(".")[2]
        if world := world_of_call(called, node):
            self._found(world)
            self.rank_by(node, space)
        elif spawns(called):
            self._found("spawns")
        if called == f"{RUN}.tensorflow":
            self._found("follows")
            self._found(
                WorldStart(framework="tensorflow", call="run.tensorflow()", line=node.lineno)
            )
        elif called == f"{RUN}.steps":
            given = {one.arg: one.value for one in node.keywords}
            said = [given.get("save"), given.get("start")]
            if None in given or not any(
                one is None or isinstance(one, ast.Constant) for one in said
            ):
                self._found("saves")
        elif called in (ROLE, CONFIG):
            return {called}
        elif _root(called) in _OURS:
            return {RUN} if last == "join" else set()
        elif _root(called) in _TENSORFLOW:
            if last in _STRATEGIES:
                self._found(_STRATEGIES[last])
            return {RESOLVER} if last.endswith("ClusterResolver") else {called}
        return {called} if _is_of_mpi(called) else set()

    def _pass(
        self, function: Function, node: ast.Call, arguments: list[set[Value]], space: Space
    ) -> None:
        listed = [*function.node.args.posonlyargs, *function.node.args.args]
        if function.owner is not None and "staticmethod" not in function.marks:
            del listed[:1]
        for parameter, values in zip(listed, arguments, strict=False):
            self.put(function.space, parameter.arg, values)
        for keyword in node.keywords:
            if keyword.arg is not None:
                self.put(function.space, keyword.arg, self.of(keyword.value, space))

    def _compared(self, node: ast.Compare, space: Space) -> set[Value]:
        found = set[Value]()
        sides = [self.of(one, space) for one in (node.left, *node.comparators)]
        for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
            within = isinstance(operator, ast.In | ast.NotIn)
            if not within and not isinstance(operator, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
                continue
            both = left | right
            said = set[Value]()
            if PS in both and ROLE in (left if within else both):
                said.add(IS_SERVER)
            if LAYOUT in both and PS in both:
                said.add(HAS_SERVERS)
            elif LAYOUT in both and _RING in both:
                said.add(NO_SERVERS)
            if isinstance(operator, ast.NotEq | ast.NotIn | ast.IsNot):
                said = {_NOT[str(one)] for one in said}
            found |= said
        return found


def _named(name: str) -> set[Value]:
    """A package's name, where the package is one that is followed."""
    followed = _root(name) in _OURS | _TENSORFLOW | PACKAGES
    return {name} if followed and name.count(".") <= _MOST_DOTS else set()


def _item(owner: set[Value], key: set[Value]) -> set[Value]:
    """`environ["SBTRAIN_ROLE"]`, `config["task"]`, `task["type"]`."""
    found = {_VARIABLES[str(one)] for one in key if one in _VARIABLES}
    if CONFIG in owner:
        found.add(ROLE if "'type'" in key else CONFIG)
    return {*found}


def _is_of_mpi(value: Value) -> bool:
    return isinstance(value, str) and _root(value) == "mpi4py"


def _root(name: str) -> str:
    return name.partition(".")[0]

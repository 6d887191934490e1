"""The launch lines of a Python script: calls of `subprocess`, `os`, `asyncio` and `pty` that
start a launcher, by the syntax tree. Strings that nothing runs do not count."""

from __future__ import annotations

import ast
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from sbtrain.launches.launchers import LETTERS, Code, Launch, judge

_MOST_BYTES = 1 << 20  # of a source that is read
_MOST_FOUND = 1000
_MOST_DEEP = 20
_MOST_VALUES = 8
_MOST_LENGTH = 16_384  # of a text that is looked at
_MOST_STEPS = 300  # for what one call runs
# How each function takes its command: "either": a list, or a text for the shell; "text"; "all":
# each argument a word; "list": the second argument of two.
_SUBPROCESS = ("run", "call", "check_call", "check_output", "Popen")
_RUNS: Mapping[str, str] = {
    **{f"subprocess.{name}": "either" for name in _SUBPROCESS},
    **dict.fromkeys(("subprocess.getoutput", "subprocess.getstatusoutput"), "text"),
    **dict.fromkeys(("os.system", "os.popen", "asyncio.create_subprocess_shell"), "text"),
    "asyncio.create_subprocess_exec": "all",
    "pty.spawn": "either",
    **dict.fromkeys(("os.execl", "os.execlp", "os.execle", "os.execlpe"), "argv0"),
    **dict.fromkeys(("os.execv", "os.execvp", "os.execve", "os.execvpe"), "list"),
    **dict.fromkeys(("os.posix_spawn", "os.posix_spawnp"), "list"),
    **dict.fromkeys(("os.spawnl", "os.spawnlp", "os.spawnle", "os.spawnlpe"), "mode argv0"),
    **dict.fromkeys(("os.spawnv", "os.spawnvp", "os.spawnve", "os.spawnvpe"), "mode list"),
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match)
_MODULES = ("subprocess", "os", "asyncio", "pty", "shlex", "shutil")

Words = list[str] | str  # a list of words, or a text for the shell


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCall:
    line: int
    launch: Launch


def python_launches(
    source: str, *, shell: Callable[[str], Sequence[Launch]], line: int = 0
) -> list[FoundCall]:
    """In the order of the source; one that cannot be parsed has none.

    Args:
        shell: the launches of a text that is run by a shell.
        line: of all that is found, where the source is itself one word; 0: its own lines.
    """
    if not any(letters in source for letters in LETTERS) or len(source) > _MOST_BYTES:
        return []
    found: list[FoundCall] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the script's own, of escapes and the like
            tree = ast.parse(source.encode("utf-8", errors="surrogateescape"))
        for at, launch in islice(_Source(tree, shell).calls(), _MOST_FOUND):
            found.append(FoundCall(line=line or at, launch=launch))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass  # what was found so far counts
    return sorted(found, key=lambda one: one.line)


class _Source:
    """One source. names: what imports bind; values: what is assigned to each name in each
    scope; handed:
    functions of the source that run one of their own arguments, by its place."""

    def __init__(self, tree: ast.Module, shell: Callable[[str], Sequence[Launch]]) -> None:
        self.shell = shell
        self.scopes: dict[ast.AST, ast.AST] = {}  # of each node the function, or the module
        self.perhaps: set[ast.AST] = set()  # what may be passed over where it stands
        self.nodes = list(self._walk(tree))
        self.names: dict[str, str] = {}
        self.values: dict[tuple[ast.AST, str], list[tuple[ast.expr, bool]]] = {}
        self.handed: dict[str, tuple[int, str]] = {}
        self.tree: ast.AST = tree
        self.scope: ast.AST = tree
        self.line = 0
        self.steps = _MOST_STEPS
        self.before: dict[tuple[ast.AST, str], int] = {}  # only values before this are read
        for node in self.nodes:
            self._bind(node)
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._hand_on(node)

    def _walk(self, tree: ast.Module) -> Iterator[ast.AST]:
        """Every node, in the order of the source."""
        waiting: list[tuple[ast.AST, ast.AST, bool]] = [(tree, tree, False)]
        while waiting:
            node, scope, perhaps = waiting.pop()
            self.scopes[node] = scope
            if perhaps:
                self.perhaps.add(node)
            yield node
            if isinstance(node, _FUNCTIONS):
                scope, perhaps = node, False
            perhaps = perhaps or isinstance(node, _BRANCHES)
            children = reversed(list(ast.iter_child_nodes(node)))
            waiting += [(child, scope, perhaps) for child in children]

    def calls(self) -> Iterator[tuple[int, Launch]]:
        for node in self.nodes:
            if isinstance(node, ast.Call):
                self.steps, self.scope, self.line = _MOST_STEPS, self.scopes[node], node.lineno
                for command in self._commands(node):
                    launches = self._launches(command)
                    yield from ((node.lineno, one) for one in launches)
                    if launches:
                        break

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                if root in _MODULES:
                    self.names[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom) and node.module in _MODULES and not node.level:
            for alias in node.names:
                if alias.name == "*":
                    known = (one for one in _RUNS if one.startswith(f"{node.module}."))
                    self.names |= {one.partition(".")[2]: one for one in known}
                else:
                    self.names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._give(node, target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value:
            self._give(node, node.target, node.value)
        elif isinstance(node, ast.AugAssign) and _dotted(node.target):
            both = ast.BinOp(left=node.target, op=node.op, right=node.value)
            ast.copy_location(both, node)
            self._give(node, node.target, both)

    def _give(self, node: ast.AST, target: ast.expr, value: ast.expr) -> None:
        name = _dotted(target)
        if name:
            scope = self.tree if "." in name else self.scopes[node]
            self.values.setdefault((scope, name), []).append((value, node in self.perhaps))

    def _hand_on(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """`def sh(command): subprocess.run(command, shell=True)`."""
        places = {
            one.arg: at for at, one in enumerate((*node.args.posonlyargs, *node.args.args))
        }
        for inner in ast.walk(node):
            if not isinstance(inner, ast.Call):
                continue
            way = _RUNS.get(self._named(inner.func), "")
            argument = inner.args[0] if inner.args and way in ("either", "text") else None
            if isinstance(argument, ast.Call) and argument.args:
                argument = argument.args[0]  # shlex.split(command)
            if isinstance(argument, ast.Name) and argument.id in places:
                self.handed[node.name] = (places[argument.id], way)

    def _named(self, function: ast.expr) -> str:
        """`subprocess.run`, however it was imported; empty for what is no module's."""
        if isinstance(function, ast.Name):
            return self.names.get(function.id, "")
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            module = self.names.get(function.value.id, "")
            return f"{module}.{function.attr}" if module else ""
        return ""

    def _commands(self, call: ast.Call) -> Iterator[Words]:
        """What a call may run."""
        arguments: list[ast.expr] = list(call.args)
        named = self._named(call.func)
        way = _RUNS.get(named, "")
        called = _dotted(call.func)
        if not way and called.removeprefix("self.") in self.handed:
            place, way = self.handed[called.removeprefix("self.")]
            arguments = arguments[place - called.startswith("self.") :]
        if not arguments and way in ("either", "text"):
            given = [
                one.value for one in call.keywords if one.arg in ("args", "cmd", "command")
            ]
            arguments = list(given)
        if way.startswith("mode "):
            arguments, way = arguments[1:], way.removeprefix("mode ")
        if not arguments:
            return
        if way == "either":
            for words in self._words(arguments[0]):
                by_shell = isinstance(words, list) and len(words) == 1 and " " in words[0]
                yield words[0] if by_shell else words
        elif way == "text":
            yield from (one for one in self._words(arguments[0]) if isinstance(one, str))
        elif way == "all":
            yield [word for one in arguments for word in self._several(one)]
        elif way == "argv0":
            words = [word for one in arguments for word in self._several(one)]
            yield [words[0], *words[2:]] if words else []
        elif way == "list" and len(arguments) > 1:
            for program in self._words(arguments[0]):
                for argv in self._words(arguments[1]):
                    if isinstance(program, str) and isinstance(argv, list):
                        yield [program, *argv[1:]]

    def _launches(self, command: Words) -> Sequence[Launch]:
        if isinstance(command, str):
            return self.shell(command)
        verdict = judge(command)
        if isinstance(verdict, Code):
            if not verdict.python:
                return self.shell(verdict.text or "")
            found = python_launches(verdict.text or "", shell=self.shell)
            return [one.launch for one in found]
        return [verdict] if verdict else []

    def _words(self, node: ast.expr, deep: int = 0) -> list[Words]:
        """What an expression may be: texts, and lists of words. Parts that only a run tells
        stand as written, in braces."""
        self.steps -= 1
        if deep > _MOST_DEEP or self.steps < 0:
            return []
        if isinstance(node, ast.Constant):
            value = node.value[:_MOST_LENGTH] if isinstance(node.value, str) else node.value
            if isinstance(value, bytes):
                value = value[:_MOST_LENGTH].decode(errors="replace")
            return [value if isinstance(value, str) else str(value)]
        if isinstance(node, ast.List | ast.Tuple):
            return [[word for one in node.elts for word in self._several(one, deep + 1)]]
        if isinstance(node, ast.JoinedStr):
            parts = [
                self._text(one.value if isinstance(one, ast.FormattedValue) else one, deep + 1)
                for one in node.values
            ]
            return ["".join(parts)]
        if isinstance(node, ast.Name | ast.Attribute):
            return self._looked_up(_dotted(node), deep)
        if isinstance(node, ast.IfExp):
            return [*self._words(node.body, deep + 1), *self._words(node.orelse, deep + 1)]
        if isinstance(node, ast.BinOp):
            return self._operated(node, deep)
        if isinstance(node, ast.Call):
            return self._called(node, deep)
        return []

    def _looked_up(self, name: str, deep: int) -> list[Words]:
        """Newest first; `a = a + b` is what was assigned before, and b."""
        key = (self.scope, name) if (self.scope, name) in self.values else (self.tree, name)
        values = self.values.get(key, [])
        outer = self.before.get(key)
        usable = len(values) if outer is None else outer
        if outer is None and key[0] is self.scope:
            usable = bisect_right(values, self.line, key=lambda one: one[0].lineno) or usable
        found: list[Words] = []
        for at in reversed(range(usable)):
            if len(found) >= _MOST_VALUES or self.steps < 0:
                break
            value, perhaps = values[at]
            self.before[key] = at
            found += self._words(value, deep + 1)
            if not perhaps and key[0] is self.scope:
                break
        if outer is None:
            self.before.pop(key, None)
        else:
            self.before[key] = outer
        return found[:_MOST_VALUES]

    def _operated(self, node: ast.BinOp, deep: int) -> list[Words]:
        left = self._words(node.left, deep + 1)[:_MOST_VALUES]
        if isinstance(node.op, ast.Mod):
            return [one for one in left if isinstance(one, str)]
        if isinstance(node.op, ast.Div):  # of paths
            return [self._text(node.right, deep + 1)]
        if not isinstance(node.op, ast.Add):
            return []
        right = self._words(node.right, deep + 1)[:1] or [self._text(node.right, deep + 1)]
        (more,) = right
        sums: list[Words] = []
        for one in left:
            if isinstance(one, list):
                sums.append([*one, *(more if isinstance(more, list) else [more])])
            elif isinstance(more, str):
                sums.append(one + more)
        return sums

    def _called(self, node: ast.Call, deep: int) -> list[Words]:
        """`shlex.split(x)`, `x.split()`, `" ".join(x)`, `x.format(...)`, `list(x)`, `str(x)`,
        `shutil.which(x)`, `os.path.join(x, y)`, `os.fspath(x)`."""
        function, arguments = node.func, node.args
        named = self._named(function)
        method = function.attr if isinstance(function, ast.Attribute) else ""
        bare = function.id if isinstance(function, ast.Name) else ""
        if named == "shlex.split" and arguments:
            found = self._words(arguments[0], deep + 1)
            return [one.split() if isinstance(one, str) else one for one in found]
        if named in ("shutil.which", "shlex.join", "os.fspath") or bare in (
            "str",
            "list",
            "tuple",
        ):
            found = self._words(arguments[0], deep + 1) if arguments else []
            if named == "shlex.join":
                return [" ".join(one) if isinstance(one, list) else one for one in found]
            return found
        if method in ("get", "getenv") and len(arguments) == 2:  # os.environ.get("L", "srun")
            return self._words(arguments[1], deep + 1)
        if method == "join" and arguments:
            if len(arguments) > 1 or bare == "Path":
                return [self._text(arguments[-1], deep + 1)]
            found = self._words(arguments[0], deep + 1)
            return [" ".join(one) for one in found if isinstance(one, list)]
        if bare in ("Path", "PurePath") and arguments:
            return [self._text(arguments[-1], deep + 1)]
        if isinstance(function, ast.Attribute) and method in (
            "split",
            "format",
            "strip",
            "copy",
        ):
            found = self._words(function.value, deep + 1)
            if method == "split":
                return [one.split() for one in found if isinstance(one, str)]
            return found
        return []

    def _several(self, node: ast.expr, deep: int = 0) -> list[str]:
        """The words that one element of a list stands for."""
        if isinstance(node, ast.Starred):
            found = self._words(node.value, deep)
            return list(found[0]) if found and isinstance(found[0], list) else []
        return [self._text(node, deep)]

    def _text(self, node: ast.expr, deep: int) -> str:
        found = self._words(node, deep)
        if found and isinstance(found[0], str):
            return found[0]
        return "{" + ast.unparse(node) + "}"


def _dotted(node: ast.expr) -> str:
    """`a`, or `self.a`; empty for what is neither."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""

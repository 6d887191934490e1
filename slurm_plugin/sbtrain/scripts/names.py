"""What a name in a Python script may stand for, as far as its run and its role go."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

# What a value may be, besides a package's dotted name, a function or a namespace.
RUN, ROLE, LAYOUT, CONFIG, RESOLVER = "<run>", "<role>", "<layout>", "<config>", "<resolver>"
IS_SERVER, NO_SERVER, HAS_SERVERS, NO_SERVERS = "<server>", "<other>", "<ps>", "<ring>"
PS = "'ps'"
RESULT = "return"  # what a function gives back: no name can be that

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(slots=True, kw_only=True, eq=False)
class Space:
    """Names of a module, a class (its instances' too) or a function, with what each may be."""

    names: dict[str, set[Value]] = field(default_factory=dict)
    outer: Space | None = None  # where names are looked up that are not here
    bases: set[Value] = field(default_factory=set)
    elsewhere: set[str] = field(default_factory=set)  # global, nonlocal

    def find(self, name: str) -> set[Value]:
        space: Space | None = self
        while space is not None:
            if name in space.names:
                return space.names[name]
            space = space.outer
        return set()

    def attribute(self, name: str) -> set[Value]:
        bases = [base for base in self.bases if isinstance(base, Space) and base is not self]
        return self.names.get(name, set()).union(
            *(base.names.get(name, set()) for base in bases)
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Function:
    node: Definition
    space: Space
    owner: Space | None  # the class of a method

    @property
    def marks(self) -> set[str]:
        listed = [] if isinstance(self.node, ast.Lambda) else self.node.decorator_list
        return {getattr(one, "attr", getattr(one, "id", "")) for one in listed}


Value = str | Function | Space


@dataclass(slots=True, kw_only=True, eq=False)
class Module:
    """depth: 0 for the script, 1 for what it imports itself. file: its name, empty for the
    script's own."""

    tree: ast.Module
    space: Space = field(default_factory=Space)
    package: tuple[str, ...] = ()
    depth: int = 0
    file: str = ""

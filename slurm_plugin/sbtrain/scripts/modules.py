"""The modules beside a Python script, read as the script imports them."""

from __future__ import annotations

from pathlib import Path

from sbtrain.scripts.names import Module, Space
from sbtrain_jobs.script_imports import parsed

MOST_BYTES = 1 << 20  # of a source that is read
_MOST_MODULES = 30


class Modules:
    """all: the script's own first, and behind it what lies beside it and is imported."""

    def __init__(self, script: Module, folder: Path) -> None:
        self.all = [script]
        self._folder = folder
        self._loaded = dict[tuple[str, ...], Space | None]()
        self._left_bytes = MOST_BYTES  # of modules beside the script, all together

    def beside(self, parts: tuple[str, ...], *, depth: int) -> Space | None:
        """The module of that name; what cannot be read is none. depth: of one that is read
        now."""
        if parts in self._loaded:
            return self._loaded[parts]
        self._loaded[parts] = None
        if len(parts) > 1:
            self.beside(parts[:-1], depth=depth)
        module = self._loaded[parts] = self._load(parts, depth)
        child = module
        for length in range(len(parts) - 1, 0, -1):
            if child is None:
                break
            above = self._loaded[parts[:length]] or Space()  # a folder without __init__.py
            self._loaded[parts[:length]] = above
            above.names.setdefault(parts[length], set()).add(child)
            child = above
        return module

    def _load(self, parts: tuple[str, ...], depth: int) -> Space | None:
        stem = self._folder.joinpath(*parts)
        for path in (stem / "__init__.py", stem.with_name(f"{stem.name}.py")):
            try:
                if len(self.all) > _MOST_MODULES or self._left_bytes <= 0:
                    return None
                if not path.is_file():
                    continue
                with path.open("rb") as file:
                    content = file.read(self._left_bytes + 1)
                module = Module(
                    tree=parsed(content, most_bytes=self._left_bytes),
                    package=parts if path.name == "__init__.py" else parts[:-1],
                    depth=depth,
                    file=path.name,
                )
            except (OSError, ValueError):
                continue
            self._left_bytes -= len(content)
            self.all.append(module)
            return module.space
        return None

"""The Python files that a script leads to, read and never run."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from advisor.config.constants import NotConstantError, worth

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from advisor.model import JsonScalar

MOST_FILES = 80
MOST_BYTES = 2 * 1024 * 1024
"""Of all files together: parsing that much takes about a second."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, eq=False)
class Module:
    """One file: what it defines, and what its names stand for."""

    path: Path
    text: str
    tree: ast.Module

    @cached_property
    def definitions(self) -> dict[str, Definition]:
        """Functions and classes of the file by name, also those under an `if` or a `try`."""
        return {
            node.name: node
            for node in _flat(self.tree.body)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        }

    @cached_property
    def constants(self) -> dict[str, JsonScalar]:
        """Names of the file that have one value, which needs nothing but the file."""
        known: dict[str, JsonScalar] = {}
        for node in self.tree.body:
            target = single_target(node)
            if target is not None and isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value:
                try:
                    known[target] = worth(node.value, known)
                except NotConstantError:
                    known.pop(target, None)
        return known

    @cached_property
    def imports(self) -> list[ast.Import | ast.ImportFrom]:
        """Every import of the file, wherever it stands."""
        return [n for n in ast.walk(self.tree) if isinstance(n, (ast.Import, ast.ImportFrom))]

    def comment_behind(self, node: ast.AST) -> str | None:
        """The comment that ends the line on which `node` ends."""
        line = self.lines[(getattr(node, "end_lineno", None) or 1) - 1]
        _, sign, said = line.encode()[getattr(node, "end_col_offset", 0) or 0 :].partition(b"#")
        return said.decode(errors="replace").strip() or None if sign else None

    @cached_property
    def lines(self) -> list[str]:
        """The lines as the parser counts them."""
        return self.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def single_target(node: ast.AST) -> str | None:
    """`x` of `x = ...` and `x: int = ...`."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target: ast.expr = node.targets[0]
    elif isinstance(node, ast.AnnAssign):
        target = node.target
    else:
        return None
    return target.id if isinstance(target, ast.Name) else None


@dataclass(eq=False)
class Project:
    """The files below `roots`, each read when it is first asked for."""

    roots: Sequence[Path]
    installed: Sequence[Path] = ()
    """Where the packages of others lie: looked into for one definition, never followed."""
    read: dict[Path, Module | None] = field(default_factory=dict)
    _bytes: int = 0
    _named: dict[tuple[str, Path | None, int], Module | None] = field(default_factory=dict)
    _meanings: dict[tuple[Path, str], tuple[Module, str] | None] = field(default_factory=dict)

    def module(self, path: Path) -> Module | None:
        """The file at `path`; None if it is no Python, or too much was read already."""
        try:
            path = path.resolve()
        except (OSError, ValueError):  # a NUL in a written name
            return None
        if path not in self.read:
            self.read[path] = self._parsed(path)
        return self.read[path]

    def _parsed(self, path: Path) -> Module | None:
        try:
            size = path.stat().st_size
            if not path.is_file() or len(self.read) >= MOST_FILES:
                return None
            if self._bytes + size > MOST_BYTES:
                return None
            self._bytes += size
            text = path.read_text(encoding="utf-8-sig", errors="replace")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an invalid escape is the program's own affair
                return Module(path, text, ast.parse(text))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    def named(self, name: str, near: Module | None = None, level: int = 0) -> Module | None:
        """The module `name`; `level` dots before it count from the folder of `near`."""
        key = (name, near.path.parent if near is not None and level else None, level)
        if key not in self._named:
            self._named[key] = self._look_for(name, near, level)
        return self._named[key]

    def _look_for(self, name: str, near: Module | None, level: int) -> Module | None:
        parts = [part for part in name.split(".") if part]
        if level and near is not None:
            folders = near.path.parents
            roots: Sequence[Path] = folders[level - 1 : level]
        else:
            roots = self.roots
        for root in roots:
            place = root.joinpath(*parts)
            for path in (place.with_suffix(".py") if parts else None, place / "__init__.py"):
                if path is not None and path.is_file():
                    return self.module(path)
        return None

    def meaning(self, module: Module, name: str, depth: int = 0) -> tuple[Module, str] | None:
        """The file and the name there that `name` stands for in `module`; "" for a file itself."""
        key = (module.path, name)
        if key not in self._meanings:
            self._meanings[key] = None  # files that import each other end here
            self._meanings[key] = self._meaning(module, name, depth)
        return self._meanings[key]

    def _meaning(self, module: Module, name: str, depth: int) -> tuple[Module, str] | None:
        first, _, rest = name.partition(".")
        if first in module.definitions:
            return module, name
        if depth > 8:
            return None
        everything: list[ast.ImportFrom] = []
        for node in module.imports:
            for alias in node.names:
                if isinstance(node, ast.Import):
                    bound = alias.asname or alias.name
                    if name == bound or name.startswith(f"{bound}."):
                        found = self.named(alias.name)
                        return self._inside(found, name[len(bound) + 1 :], depth) if found else None
                elif alias.name == "*":
                    everything.append(node)
                elif (alias.asname or alias.name) == first:
                    return self._imported(module, node, alias.name, rest, depth)
        for node in everything:  # `from x import *` is looked into last: it may be a whole package
            found = self.named(node.module or "", module, node.level)
            inner = self.meaning(found, name, depth + 1) if found else None
            if inner is not None:
                return inner
        return None

    def _imported(
        self, module: Module, node: ast.ImportFrom, name: str, rest: str, depth: int
    ) -> tuple[Module, str] | None:
        """What `from node.module import name` brings, and `rest` within it."""
        whole = f"{node.module}.{name}" if node.module else name
        found = self.named(whole, module, node.level)
        if found is not None:
            return self._inside(found, rest, depth)
        found = self.named(node.module or "", module, node.level)
        inside = f"{name}.{rest}" if rest else name
        return self._inside(found, inside, depth) if found else None

    def _inside(self, module: Module, name: str, depth: int) -> tuple[Module, str] | None:
        return self.meaning(module, name, depth + 1) if name else (module, "")

    def definition(self, module: Module, name: str) -> tuple[Module, Definition] | None:
        """The function or class that `name`, possibly dotted, stands for in `module`."""
        found = self.meaning(module, name)
        if found is None:
            return None
        node = found[0].definitions.get(found[1].partition(".")[0])
        return (found[0], node) if node is not None else None

    def anywhere(self, module: Module, name: str) -> tuple[Module, Definition] | None:
        """The same, also in the packages of others."""
        return self.definition(module, name) or self._packages.definition(module, name)

    @cached_property
    def _packages(self) -> Project:
        return Project([*self.roots, *self.installed])


@dataclass(frozen=True, eq=False)
class Unit:
    """Code that runs, or may run, when the script does: a file's own statements, or a definition
    with all that is inside it."""

    module: Module
    name: str
    """Of the definition; empty for the statements of a file."""
    nodes: tuple[ast.stmt, ...]

    @cached_property
    def every(self) -> tuple[ast.AST, ...]:
        """Every node; for a file's own statements without the insides of its definitions."""
        return tuple(self._walk())

    def _walk(self) -> Iterator[ast.AST]:
        waiting: list[ast.AST] = list(reversed(self.nodes))
        while waiting:
            node = waiting.pop()
            yield node
            if not self.name and isinstance(
                node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            ):
                outside = [*node.decorator_list]
                if isinstance(node, ast.ClassDef):
                    outside += node.bases
                waiting += reversed(outside)
            else:
                waiting += reversed(list(ast.iter_child_nodes(node)))


def reached(project: Project, script: Module) -> list[Unit]:
    """What runs when `script` does, nearest first: it and the project's files that it imports,
    and of these the definitions that are named on the way or decorated."""
    units: list[Unit] = []
    seen: set[tuple[Path, str]] = set()
    waiting: list[tuple[Module, str]] = [(script, "")]
    while waiting:
        module, name = waiting.pop(0)
        if (module.path, name) in seen:
            continue
        seen.add((module.path, name))
        if name and (module.path, "") not in seen:
            waiting.append((module, ""))
        if name:
            node = module.definitions.get(name)
            nodes: tuple[ast.stmt, ...] = (node,) if node is not None else ()
        else:
            nodes = tuple(n for n in module.tree.body if module is script or not is_guard(n))
        unit = Unit(module, name, nodes)
        units.append(unit)
        waiting += _named_in(project, unit)
    return units


def _named_in(project: Project, unit: Unit) -> Iterator[tuple[Module, str]]:
    for node in unit.every:
        if isinstance(node, (ast.Name, ast.Attribute)):
            found = project.meaning(unit.module, dotted(node))
            if found is not None:
                yield found[0], found[1].partition(".")[0]
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((module, "") for module in _modules_of(project, unit.module, node))
        elif isinstance(node, ast.FunctionDef) and node.decorator_list and not unit.name:
            yield unit.module, node.name


def _modules_of(
    project: Project, near: Module, node: ast.Import | ast.ImportFrom
) -> Iterator[Module]:
    if isinstance(node, ast.Import):
        found = [project.named(alias.name) for alias in node.names]
    else:
        package = node.module or ""
        inside = [f"{package}.{alias.name}" for alias in node.names if alias.name != "*"]
        found = [project.named(name, near, node.level) for name in (package, *inside)]
    yield from (module for module in found if module is not None)


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a chain of names; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def is_guard(node: ast.AST) -> bool:
    """`if __name__ == "__main__":`."""
    return isinstance(node, ast.If) and any(
        isinstance(inner, ast.Name) and inner.id == "__name__" for inner in ast.walk(node.test)
    )


def _flat(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            yield from _flat(node.body)
            yield from _flat(getattr(node, "orelse", []))
            for handler in getattr(node, "handlers", []):
                yield from _flat(handler.body)

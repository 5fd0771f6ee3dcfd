"""Names of a Python file that stand for literals: where each is bound, and where it is used."""

import ast
import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from advisor import files

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BINDERS = (
    *FUNCTIONS,
    ast.arg,
    ast.alias,
    ast.ExceptHandler,
    ast.ClassDef,
    ast.MatchAs,
    ast.MatchStar,
)
"""Nodes besides names that bind one: by `arg`, by `asname`, or by `name`."""
Binding = ast.Assign | ast.AnnAssign


def sole_binding(tree: ast.Module, name: str) -> Binding | None:
    """The assignment that binds `name`, if nothing else in the file may.

    Wherever it stands: a name that is bound at one place alone has its value, or none.
    """
    bound = list(_bound(tree))
    if bound.count(name) != 1 or "*" in bound:  # a star may import any name
        return None
    return next(
        (assignment for assignment in _assignments(tree) if name in _targets(assignment)),
        None,
    )


def binds_one(binding: Binding) -> bool:
    """True if the statement binds one name; `a = b = 4` binds two."""
    return len(_targets(binding)) == 1


def is_used_once(tree: ast.Module, name: str) -> bool:
    """True if the file reads `name` once, and no text of it is that name, as in `globals()`."""
    read = texts = 0
    for node in ast.walk(tree):
        read += isinstance(node, ast.Name) and node.id == name and _reads(node)
        texts += isinstance(node, ast.Constant) and node.value == name
    return read == 1 and not texts


def is_seen_elsewhere(tree: ast.Module, binding: Binding, path: Path, folder: Path) -> bool:
    """True if another Python file below `folder` may read the name that `binding` of `path` binds.

    It imports the module, and has the name or takes all. What a function binds nobody imports.
    """
    functions = (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))
    if any(binding in ast.walk(function) for function in functions):
        return False
    module = path.parent.name if path.stem == "__init__" else path.stem
    imports = re.compile(rf"^(?=.*\bimport\b).*\b{re.escape(module)}\b", re.MULTILINE)
    name = re.compile(rf"\b{re.escape(_targets(binding)[0])}\b|import \*")
    for other in files.sources(folder):
        with contextlib.suppress(OSError):  # gone meanwhile
            text = other.read_text(encoding="utf-8", errors="replace")
            if not other.samefile(path) and imports.search(text) and name.search(text):
                return True
    return False


class Options(NamedTuple):
    """Dictionary of keyword arguments whose keys are all known, used by one call alone."""

    binding: Binding
    keys: Mapping[str, int]
    """Position of each key in `values`."""
    values: list[ast.expr]


def sole_options(tree: ast.Module, given: ast.expr) -> Options | None:
    """The dictionary that `**given` names, if the call that has it is its only use."""
    if not isinstance(given, ast.Name) or not is_used_once(tree, given.id):
        return None
    binding = sole_binding(tree, given.id)
    if binding is None or not binds_one(binding) or not isinstance(binding.value, ast.Dict):
        return None
    dictionary = binding.value
    keys = {
        key.value: at
        for at, key in enumerate(dictionary.keys)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }
    return (
        Options(binding, keys, dictionary.values)
        if len(keys) == len(dictionary.keys)
        else None
    )


def _reads(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _bound(tree: ast.Module) -> Iterator[str]:
    """Each name that something binds, as often as it does; `*` for a star import."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            yield from node.names
        elif isinstance(node, ast.Name) and not _reads(node):
            yield node.id
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest
        elif isinstance(node, BINDERS):
            names = [getattr(node, key, None) for key in ("arg", "asname", "name")]
            yield from [name for name in names if name][:1]


def _assignments(tree: ast.Module) -> Iterator[Binding]:
    return (node for node in ast.walk(tree) if isinstance(node, Binding))


def _targets(binding: Binding) -> list[str]:
    """Names that an assignment binds by themselves; empty where it unpacks, or sets a part."""
    targets = binding.targets if isinstance(binding, ast.Assign) else [binding.target]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return names if len(names) == len(targets) else []

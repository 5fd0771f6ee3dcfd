"""What a stream does with the number of its workers: share the data, or seed its order only.

A stream that asks how many workers there are, and only seeds a random generator by the answer,
yields all of its items in each of them. It stands in the code of the function that asks.
"""

from __future__ import annotations

import ast
import functools
from typing import Any, Iterator

from . import set_in_loops
from .source_code import last_name

SEEDING = (
    "seed",
    "rng",
    "randomstate",
    "generator",
    "key",
    "print",
    "log",
    "info",
    "debug",
)
"""Parts of the names of functions that seed, or that only tell a person."""
PASSING = (ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Tuple, ast.List, ast.keyword, ast.Starred)
"""Expressions through which a number goes on to be a seed."""
SHARING = (ast.Mod, ast.Div, ast.FloorDiv)
"""Operations by which items are dealt out."""
CONVERSIONS = {"int", "str", "hash", "float", "abs"}


@functools.lru_cache(maxsize=64)
def only_seeds(name: str, line: int, field: str) -> bool:
    """Return True if the function at that line of a file uses the `field` for seeds alone."""
    function = set_in_loops.function_at(name, line)
    above = {
        inner: outer
        for outer in ast.walk(function)
        for inner in ast.iter_child_nodes(outer)
    }
    known: set[str] = set()
    uses = list(_uses(function, field, known))
    while uses:
        targets: set[str] = set()
        for use in uses:
            found = _goes_to(use, above)
            if found is None:
                return False
            targets |= found
        uses = [] if targets <= known else list(_uses(function, "", targets - known))
        known |= targets
    return bool(known) or _is_asked(function, field)


def _uses(function: ast.AST, field: str, names: set[str]) -> Iterator[ast.AST]:
    """Places that read the field, or one of the variables."""
    for node in ast.walk(function):
        of_field = isinstance(node, ast.Attribute) and node.attr == field
        if of_field or (isinstance(node, ast.Name) and node.id in names and _is_read(node)):
            yield node


def _is_read(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _is_asked(function: ast.AST, field: str) -> bool:
    return any(True for _ in _uses(function, field, set()))


def _goes_to(use: ast.AST, above: dict[ast.AST, ast.AST]) -> set[str] | None:
    """Variables that a value goes into; none where it seeds, None where it may share out."""
    node: Any = use
    while True:
        inner, node = node, above.get(node)
        if isinstance(node, ast.Call):
            called = last_name(node.func).lower()
            if inner is node.func:
                return None
            if any(part in called for part in SEEDING) or called == "random":
                return set()
            if called not in CONVERSIONS:
                return None
        elif isinstance(node, (ast.FormattedValue, ast.JoinedStr)):
            return set()
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            return names if len(names) == len(targets) else None
        elif not isinstance(node, PASSING) or _decides(node, inner):
            return None


def _decides(node: ast.AST, inner: ast.AST) -> bool:
    """Return True for a part of an expression that deals out or chooses."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, SHARING)
    return isinstance(node, ast.IfExp) and inner is node.test

"""What a stream does with the number of its workers: share the data, or seed its order only.

A stream that asks how many workers there are, and only seeds a random generator by the answer,
yields all of its items in each of them. It stands in the code of the function that asks.

A stream without an end may be cut to a number of items, so that a pass has one. Each worker cuts
its own: unless that number is divided by theirs, a pass has as many more items.
"""

from __future__ import annotations

import ast
import functools
from typing import Any, Iterator

from . import batch_limits, set_in_loops
from .source_code import last_name, leaves_loop

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
ENDLESS = ("cycle", "count", "repeat")
"""Functions of itertools' without an end."""
SHOWN = 60
"""Characters of a condition that a report shows.

Judgement: more break the sentence that quotes it, fewer cut it before what it compares."""
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


def ends_for_itself(functions: list[Any]) -> str:
    """Code by which these functions of a stream end what would go on for ever.

    Empty where nothing does, or where it follows the number of workers.
    """
    found = [set_in_loops.function_of(function.__code__) for function in functions]
    trees = [tree for tree in found if tree is not None]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    if not any(map(_is_endless, nodes)):
        return ""
    shared = {"num_workers"}
    for _ in range(2):  # a name of a name
        shared |= {
            name
            for node in nodes
            if isinstance(node, (ast.Assign, ast.AugAssign))
            and shared & set(_names_in(node.value))
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            for name in _names_in(target)
        }
    counted = {
        name
        for node in nodes
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)
        for name in _names_in(node.target)
    } - {"self"}
    for node in nodes:
        for shown, limit in _limits(node, counted):
            if not shared & set(_names_in(limit)):
                return shown[:SHOWN]
    return ""


def _is_endless(node: ast.AST) -> bool:
    if isinstance(node, ast.While):
        return isinstance(node.test, ast.Constant) and bool(node.test.value)
    return isinstance(node, ast.Call) and last_name(node.func) in ENDLESS


def _limits(node: ast.AST, counted: set[str]) -> Iterator[tuple[str, ast.AST]]:
    """What ends a stream after a number of items, and that number."""
    if (
        isinstance(node, ast.Call)
        and last_name(node.func) == "islice"
        and len(node.args) == 2
    ):
        yield ast.unparse(node), node.args[1]
    elif isinstance(node, ast.If) and leaves_loop(node.body):
        for shown, count, limit in batch_limits.compared(node.test):
            if counted & set(_names_in(count)):
                yield shown, limit
    elif isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
        draws = any(
            isinstance(part, ast.Call) and last_name(part.func) == "next"
            for part in ast.walk(node)
        )
        if last_name(node.iter.func) == "range" and len(node.iter.args) == 1 and draws:
            yield ast.unparse(node.iter), node.iter.args[0]


def _names_in(part: ast.AST) -> Iterator[str]:
    for node in ast.walk(part):
        name = getattr(node, "id", None) or getattr(node, "attr", None)
        if isinstance(name, str):
            yield name

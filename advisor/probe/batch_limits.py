"""Numbers of batches after which the program's own loop ends.

`if number == limit: break`, `islice(loader, limit)` or `for number in range(limit)` end a run
after so many batches: with larger batches it goes through more items, and with `len(data) // batch`
through fewer. No short window shows that end. The code shows it, and two things are seen while it
runs: that the number grows by one with each batch, and what it is held against.
"""

from __future__ import annotations

import ast
import functools
import math
from typing import Any, Iterator, NamedTuple

from . import call_sites, source_code
from .batch_counts import inside
from .copied_weights import variables_of
from .source_code import last_name, leaves_loop

LOOKS = 6
"""First batches of a pass at which the loops under way are looked at; later ones cost nothing.

Judgement: twice `LEAST`, as a loop may skip some of them. More cost steps in which nothing new
shows."""
LEAST = 3
"""Batches by which a number is known to grow by one: a constant or a size does not. Judgement."""
SHOWN = 60
"""Characters of a condition that a report shows."""
ENDLESS = 1_000_000
"""A limit from here on is a loop without an end: `range(10**9)` in a server. Judgement."""
WRAPPED = ("tqdm", "enumerate", "track", "iter", "progress_bar")
"""Calls around what a loop goes through, by the last part of their names."""
ORDERS = (ast.Gt, ast.GtE, ast.Lt, ast.LtE, ast.Eq)
CALLS: dict[str, Any] = {
    "bool": bool, "len": len, "min": min, "max": max, "int": int, "round": round, "abs": abs,
    "ceil": math.ceil, "floor": math.floor,
}  # fmt: skip
"""Functions by which limits are computed."""


class Bound(NamedTuple):
    """Code that ends a loop after a number of batches."""

    shown: str
    first: int
    last: int
    """Lines of the loop."""
    counted: ast.expr | None
    """What counts; None where the loop itself does."""
    limits: tuple[ast.expr, ...]
    """What it is held against; two are a limit and the number at which it begins."""
    besides: tuple[ast.expr, ...] = ()
    """What has to be true as well."""


class Limit:
    """What one bound was seen to count, batch by batch in each pass."""

    def __init__(self) -> None:
        self.counts: dict[int, list[float]] = {}
        """By the number of the pass."""
        self.limits: set[float] = set()

    def batches(self) -> float | None:
        """Batches of the loop; None where it is not they that are counted."""
        seen = [counts for counts in self.counts.values() if len(counts) >= LEAST]
        grown = {b - a for counts in seen for a, b in zip(counts, counts[1:])}
        limit = next(iter(self.limits)) if len(self.limits) == 1 else math.nan
        if grown == {-1}:  # it counts down, from where it was first seen
            limit = seen[0][0] - limit
        return limit if grown in ({1}, {-1}) and 0 < limit < ENDLESS else None


Limits = dict[Bound, Limit]


def look(found: Limits, number: int, *, fetched: bool) -> None:
    """Look at the loops under way as a batch of a pass comes (`fetched`), or was worked on."""
    for frame in call_sites.own_frames():
        bounds = bounds_in(frame.f_code.co_filename)
        held = [b for b in bounds if b.first <= frame.f_lineno <= b.last]
        variables = {**frame.f_globals, **variables_of(frame)} if held else {}
        for bound in held:
            # its own loop fetches in the line of its `for`
            if bound.counted is None and not (fetched and frame.f_lineno == bound.first):
                continue
            if any(value_of(part, variables) is False for part in bound.besides):
                continue
            _note(found.setdefault(bound, Limit()), number, bound, variables)


def _note(known: Limit, number: int, bound: Bound, variables: dict[str, Any]) -> None:
    counts = known.counts.setdefault(number, [])
    count: Any = len(counts)
    if bound.counted is not None:
        count = value_of(bound.counted, variables)
    limits = [value_of(limit, variables) for limit in bound.limits]
    if _is_number(count) and all(map(_is_number, limits)):
        counts.append(count)
        known.limits.add(limits[0] - sum(limits[1:]))


def content(found: Limits) -> dict[str, float]:
    """Batches after which a loop ends, by its condition in the program's words."""
    known = [(bound.shown, limit.batches()) for bound, limit in found.items()]
    return {shown: float(many) for shown, many in known if many is not None}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def value_of(part: ast.expr, variables: dict[str, Any]) -> Any:
    """Value of a plain expression; None where it is not plain, or fails."""
    try:
        return _value(part, variables)
    except Exception:  # a name that is not set yet, a key that is missing
        return None


def _value(part: ast.expr, variables: dict[str, Any]) -> Any:
    if isinstance(part, ast.Constant):
        return part.value
    if isinstance(part, ast.Name):
        return variables[part.id]
    if isinstance(part, ast.Attribute):
        return inside(_value(part.value, variables))[part.attr]
    if isinstance(part, ast.Subscript):
        return inside(_value(part.value, variables))[_value(part.slice, variables)]
    if isinstance(part, ast.Call) and not part.keywords:
        function = CALLS[last_name(part.func)]
        return function(*(_value(argument, variables) for argument in part.args))
    if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub):
        return -_value(part.operand, variables)
    if isinstance(part, ast.BinOp):
        old, new = (_value(side, variables) for side in (part.left, part.right))
        if _is_number(old) and _is_number(new):
            return OPERATIONS[type(part.op)](old, new)
    return None


OPERATIONS: dict[type, Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
}


@functools.lru_cache(maxsize=64)
def bounds_in(path: str) -> tuple[Bound, ...]:
    """Bounds of the loops in a file."""
    nodes = list(ast.walk(source_code.tree_of(path)))
    loops = [node for node in nodes if isinstance(node, (ast.For, ast.While))]
    named = {
        node.targets[0].id: node.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    return tuple(
        bound for loop in loops for bound in (*_of_loop(loop, named), *_of_ends(loop))
    )


def _of_loop(loop: ast.For | ast.While, named: dict[str, ast.expr]) -> Iterator[Bound]:
    """What the loop's own head counts; what it goes through may have been `named` before."""
    last = loop.end_lineno or loop.lineno
    if isinstance(loop, ast.While):
        for shown, count, limit in compared(loop.test):
            yield Bound(shown, loop.lineno, last, count, (limit,))
        return
    gone_through, target = loop.iter, loop.target
    if isinstance(gone_through, ast.Name):
        gone_through = named.get(gone_through.id, gone_through)
    while isinstance(gone_through, ast.Call) and gone_through.args:
        name = last_name(gone_through.func)
        if name not in WRAPPED:
            break
        if name == "enumerate":
            target = target.elts[-1] if isinstance(target, ast.Tuple) else target
        gone_through = gone_through.args[0]
    if not isinstance(gone_through, ast.Call):
        return
    name, given = last_name(gone_through.func), gone_through.args
    if name in ("range", "trange") and _is_by_one(given):
        if isinstance(target, ast.Name):
            yield _bound(loop, gone_through, target, given)
    elif name == "islice" and 2 <= len(given) <= 3:
        yield _bound(loop, gone_through, None, given[1:])
    elif name == "zip":
        for call in (each for each in given if isinstance(each, ast.Call)):
            if last_name(call.func) == "range" and _is_by_one(call.args):
                yield _bound(loop, call, None, call.args)


def _bound(
    loop: ast.For, call: ast.Call, count: ast.expr | None, given: list[ast.expr]
) -> Bound:
    last = loop.end_lineno or loop.lineno
    limits = (given[0],) if len(given) == 1 else (given[1], given[0])
    return Bound(ast.unparse(call)[:SHOWN], loop.lineno, last, count, limits)


def _is_by_one(given: list[ast.expr]) -> bool:
    steps = given[2:]
    return bool(given) and all(
        isinstance(step, ast.Constant) and step.value == 1 for step in steps
    )


def _of_ends(loop: ast.For | ast.While) -> Iterator[Bound]:
    """Conditions inside the loop that end it."""
    for node in ast.walk(loop):
        if isinstance(node, ast.If) and leaves_loop(node.body):
            test = node.test
            parts = [test]
            if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
                parts = test.values
            for part in parts:
                besides = tuple(_truth(other) for other in parts if other is not part)
                for shown, count, limit in compared(part):
                    last = loop.end_lineno or loop.lineno
                    yield Bound(shown, loop.lineno, last, count, (limit,), besides)


def _truth(part: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("bool"), [part], [])


def compared(test: ast.expr) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """Comparisons of one number with another: each side may be the one that counts."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ORDERS):
            one, other = node.left, node.comparators[0]
            shown = ast.unparse(node)[:SHOWN]
            for count, limit in ((one, other), (other, one)):
                if not isinstance(count, ast.Constant):
                    yield shown, count, limit

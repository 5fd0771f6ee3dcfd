"""Value of a constant Python expression, without running it."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING, NamedTuple

from advisor.config.spelling import is_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.model import JsonScalar

MAX_POWER = 64
MAX_NUMBER = 2**64

_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class Named(NamedTuple):
    """Named value with its literal's path."""

    value: JsonScalar
    path: str


class NotConstantError(Exception):
    """Value that only running the program could show."""


def is_literal(node: ast.AST) -> bool:
    """Return True for a literal or signed number."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        inner = node.operand
        return isinstance(inner, ast.Constant) and is_number(inner.value)
    return isinstance(node, ast.Constant) and (
        node.value is None or isinstance(node.value, (str, int, float))
    )


def worth(node: ast.AST, find: Callable[[str], Named | None]) -> JsonScalar:
    """Evaluate a literal, known name or arithmetic.

    Raises NotConstantError for everything else.
    """
    if isinstance(node, ast.Name) and (named := find(node.id)):
        return named.value
    if is_literal(node):
        value: JsonScalar = ast.literal_eval(node)
        return value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(worth(node.operand, find))
    if isinstance(node, ast.BinOp):
        left, right = (_number(worth(side, find)) for side in (node.left, node.right))
        return _computed(node.op, left, right)
    raise NotConstantError(ast.unparse(node)[:80])


def _computed(sign: ast.operator, left: float, right: float) -> float:
    try:
        if isinstance(sign, ast.Pow) and abs(right) <= MAX_POWER and abs(left) <= MAX_NUMBER:
            value = left**right
        elif type(sign) in _OPERATORS:
            value = _OPERATORS[type(sign)](left, right)
        else:
            raise NotConstantError
    except (ArithmeticError, ValueError) as problem:
        raise NotConstantError(str(problem)) from problem
    if isinstance(value, complex) or not abs(value) <= MAX_NUMBER:
        raise NotConstantError
    return _number(value)


def _number(value: object) -> float:
    if not is_number(value):
        raise NotConstantError
    return value

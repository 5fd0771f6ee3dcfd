"""Value of a constant Python expression, without running it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from advisor.config import paths
from advisor.config.spelling import is_number
from advisor.model import JsonScalar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


class NotConstantError(Exception):
    """Only running the program would tell."""


def is_literal(node: ast.AST) -> bool:
    """True for a literal: text, a signed number, True, None."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        inner = node.operand
        return isinstance(inner, ast.Constant) and is_number(inner.value)
    return isinstance(node, ast.Constant) and (
        node.value is None or isinstance(node.value, (str, int, float))
    )


def worth(node: ast.AST, names: Mapping[str, JsonScalar]) -> JsonScalar:
    """Value of a literal, a known name, or arithmetic of them.

    Raises NotConstantError for everything else.
    """
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if is_literal(node):
        value: JsonScalar = ast.literal_eval(node)
        return value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(worth(node.operand, names))
    if isinstance(node, ast.BinOp):
        left, right = (_number(worth(side, names)) for side in (node.left, node.right))
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


class Named(NamedTuple):
    """Value of a name, and the path of its literal."""

    value: JsonScalar
    path: str


class Scope(Mapping[str, JsonScalar]):
    """The names that code at `path` sees: its own, then the file's."""

    def __init__(self, names: Mapping[str, Named | None], path: str) -> None:
        self._names = names
        self._path = path

    def find(self, name: str) -> Named | None:
        """Value of `name`; None where only a run would tell."""
        own = paths.member(self._path, name)
        return self._names[own] if own in self._names else self._names.get(paths.member("", name))

    def __getitem__(self, name: str) -> JsonScalar:
        found = self.find(name)
        if found is None:
            raise KeyError(name)
        return found.value

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

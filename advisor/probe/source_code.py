"""The program's source code: its files as trees, and what single pieces of them say."""

from __future__ import annotations

import ast
import functools
from typing import Iterable

UNREAD = ast.Module([], [])
"""Tree of a file that cannot be read, or is no Python. It is empty: nothing is found in it."""
EXITS = ("exit", "_exit", "quit", "SystemExit")
"""Functions that end the program, by the last part of their names."""


@functools.lru_cache(maxsize=16)
def tree_of(path: str) -> ast.Module:
    """Code of a file; `UNREAD` where it tells nothing."""
    try:
        with open(path, "rb") as file:
            return ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return UNREAD


def last_name(node: ast.AST) -> str:
    """Name of a variable, or last part of a dotted one; empty for anything else."""
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def parts_of(body: Iterable[ast.stmt]) -> list[ast.AST]:
    """Every node of some statements."""
    return [part for statement in body for part in ast.walk(statement)]


def leaves_loop(body: Iterable[ast.stmt], *, returns: bool = True) -> bool:
    """Return True for code that leaves a loop around it, or the program.

    Without `returns`, leaving the function is no such sign: most conditions that return guard
    against something else.
    """
    leaving = (ast.Break, ast.Raise, ast.Return) if returns else (ast.Break, ast.Raise)
    return any(
        isinstance(part, leaving)
        or (isinstance(part, ast.Call) and last_name(part.func) in EXITS)
        for part in parts_of(body)
    )

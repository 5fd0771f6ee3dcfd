"""Names in the program's code: what it sets, reads, and only adds to."""

from __future__ import annotations

import ast
import dis
import functools
import os
import sys
import types
from typing import Any, Iterator

from . import call_sites, source_code

SETS_ATTRIBUTE, SETS_ITEM = "STORE_ATTR", "STORE_SUBSCR"
MODULES = 200
"""Modules of a program that are parsed: 1 s at most. Judgement."""
LOADS = ("LOAD_ATTR", "LOAD_METHOD")
"""Names of Python's instructions; before 3.12 a method is loaded by one of its own."""
ADDING = ("append", "appendleft", "add")
"""Methods that add to a container, and tell nothing of it."""
SHARED = ("multiprocessing", "ctypes", "mmap", "_thread", "threading", "logging", "_io")
"""Modules whose objects are shared with copies, or tell nothing."""
UNKNOWN: Any = object()
"""Value of an expression that only running it would tell."""


def is_shared(value: Any) -> bool:
    """Return True for an array in memory that workers share with the program."""
    try:
        return type(value).__name__ == "memmap" or bool(value.is_shared())
    except Exception:  # it is none
        return False


def by_hooks(loaded: set[str], wanted: set[str]) -> set[str]:
    """The `wanted` names that functions for an epoch name, if the loops around call such.

    A trainer's loop calls its callbacks' `on_epoch_start`, and one of these sets the dataset's
    epoch. Told by the name alone: which object is called is known at the call only.
    """
    hooks = {name for name in loaded if "epoch" in name.lower()}
    told = {name for name in wanted if "epoch" in name.lower() or name.startswith("set_")}
    if not hooks or not told:
        return set()
    own = _files()[: MODULES + 1]
    return {
        name
        for place in (own if len(own) <= MODULES else ())
        for function, names in _functions_in(place)
        if function in hooks
        for name in names & told
    }


def read_by_program() -> set[str]:
    """Attributes that the program's own modules read; "*": any, where one cannot be parsed."""
    own = _files()
    if len(own) > MODULES:
        return {"*"}
    return set().union(*map(_read_in_file, own))


def _files() -> list[str]:
    """Files of the program's own modules."""
    places = {
        str(getattr(module, "__file__", None)) for module in list(sys.modules.values())
    }
    return [
        place for place in places if not call_sites.is_foreign(place) and _is_source(place)
    ]


@functools.lru_cache(maxsize=MODULES)
def _functions_in(name: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """Functions of a file, each with the attributes of objects that it sets or calls."""
    return tuple(
        (node.name, frozenset(_named_in(node)))
        for node in ast.walk(source_code.tree_of(name))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )


def _named_in(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        part = node.func if isinstance(node, ast.Call) else node
        stored = isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
        if isinstance(part, ast.Attribute) and (stored or part is not node):
            yield part.attr


@functools.lru_cache(maxsize=None)
def _is_source(place: str) -> bool:
    """Return True for a file of Python; torch's modules of operators name files that are none."""
    return place.endswith(".py") and os.path.isfile(place)


@functools.lru_cache(maxsize=MODULES)
def _read_in_file(name: str) -> frozenset[str]:
    """Attributes that a file reads; one that is only added to is written there."""
    tree = source_code.tree_of(name)
    if tree is source_code.UNREAD:
        return frozenset("*")
    added_to = {
        id(node.value.func.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr in ADDING
    }
    return frozenset(
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and id(node) not in added_to
    )


@functools.lru_cache(maxsize=256)
def attributes(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Attributes that `code` sets, and those that it reads but to add to them.

    `self.seen += 1` reads a copy of the object on the stack, `self.took.append(1)` adds to it.
    "*": it may read any, by its name.
    """
    stored: set[str] = set()
    loaded: set[str] = set()
    before = ""
    every = [each for each in dis.get_instructions(code) if each.opname != "CACHE"]
    for instruction, following in zip(every, [*every[1:], every[-1]]):
        name = instruction.opname
        adds = following.opname in LOADS and following.argval in ADDING
        if name == SETS_ATTRIBUTE or (name in LOADS and adds):
            stored.add(instruction.argval)
        elif name in LOADS and before not in ("COPY", "DUP_TOP"):
            loaded.add(instruction.argval)
        before = name
    if {"getattr", "vars", "__dict__", "__getattribute__"} & set(code.co_names):
        loaded.add("*")
    for constant in code.co_consts:  # functions inside, and comprehensions
        if isinstance(constant, types.CodeType):
            sets, reads = attributes(constant)
            stored |= sets
            loaded |= reads
    return frozenset(stored), frozenset(loaded)


def sets_state(function: Any) -> bool:
    """Return True for a function that sets attributes, items or global variables."""
    if not isinstance(function, types.FunctionType):
        return False
    sets = (SETS_ATTRIBUTE, SETS_ITEM, "STORE_GLOBAL", "STORE_DEREF")
    return any(
        instruction.opname in sets
        for instruction in dis.get_instructions(function.__code__)
    )

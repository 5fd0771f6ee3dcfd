"""What the program's code sets in the loops around a pass over its data.

A short trial may never reach a second pass. That the dataset is told something between passes
(`dataset.epoch = epoch`, `dataset.set_epoch(epoch)`) then stands in the code only: in a loop
that encloses the line which begins the pass.
"""

from __future__ import annotations

import ast
import dis
import functools
import os
import sys
import types
from typing import Any, Iterator

from . import call_sites

SETS_ATTRIBUTE, SETS_ITEM = "STORE_ATTR", "STORE_SUBSCR"
MODULES = 200
"""Modules of a program that are parsed: 1 s at most. Judgement."""
LOADS = ("LOAD_ATTR", "LOAD_METHOD")
"""Names of Python's instructions; before 3.12 a method is loaded by one of its own."""


def around() -> tuple[set[str], set[str]]:
    """Attributes that are set, and those that are read or called, in loops under way.

    Only functions of the program's own are looked at, each in the loops that enclose the
    instruction at which it waits.
    """
    stored: set[str] = set()
    loaded: set[str] = set()
    frame: Any = sys._getframe()
    while frame is not None:
        if not call_sites.is_foreign(frame.f_code.co_filename):
            sets, loads = _in_loops(frame.f_code, frame.f_lasti)
            stored |= sets
            loaded |= loads
        frame = frame.f_back
    return stored, loaded


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


def inside() -> tuple[set[str], set[str]]:
    """The same of the loop whose pass is about to begin.

    That is the first `for` behind the instruction at which the innermost function of the program
    waits: the iterator of its data is made just before it.
    """
    frame: Any = sys._getframe()
    while frame is not None and call_sites.is_foreign(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return set(), set()
    stored, loaded = _in_next_loop(frame.f_code, frame.f_lasti)
    return set(stored), set(loaded)


@functools.lru_cache(maxsize=256)
def _in_next_loop(code: types.CodeType, at: int) -> tuple[frozenset[str], frozenset[str]]:
    """Names that are set, and loaded, in the first `for` of `code` from the offset `at` on."""
    every = list(dis.get_instructions(code))
    loop = next((i for i in every if i.opname == "FOR_ITER" and i.offset >= at), None)
    body = [i for i in every if loop and loop.offset < i.offset < loop.argval]
    stored = frozenset(i.argval for i in body if i.opname == SETS_ATTRIBUTE)
    return stored, frozenset(i.argval for i in body if i.opname in LOADS)


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
    try:
        with open(name, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return ()
    return tuple(
        (node.name, frozenset(_named_in(node)))
        for node in ast.walk(tree)
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
    try:
        with open(name, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return frozenset("*")
    return frozenset(
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    )


@functools.lru_cache(maxsize=256)
def attributes(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Attributes that `code` sets, and those that it reads but to add to them.

    `self.seen += 1` reads a copy of the object on the stack. "*": it may read any, by its name.
    """
    stored: set[str] = set()
    loaded: set[str] = set()
    before = ""
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if name == SETS_ATTRIBUTE:
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


@functools.lru_cache(maxsize=256)
def _in_loops(code: types.CodeType, at: int) -> tuple[frozenset[str], frozenset[str]]:
    """Names that are set, and loaded, in the loops of `code` around the offset `at`."""
    every = list(dis.get_instructions(code))
    jumps = set(dis.hasjrel) | set(dis.hasjabs)
    loops = [
        (instruction.argval, instruction.offset)
        for instruction in every
        if instruction.opcode in jumps and instruction.argval <= at <= instruction.offset
    ]
    inside = [
        instruction
        for instruction in every
        if any(a <= instruction.offset <= b for a, b in loops)
    ]
    stored = frozenset(
        instruction.argval for instruction in inside if instruction.opname == SETS_ATTRIBUTE
    )
    loaded = frozenset(
        instruction.argval for instruction in inside if instruction.opname in LOADS
    )
    return stored, loaded


def sets_state(function: Any) -> bool:
    """Return True for a function that sets attributes or items."""
    if not isinstance(function, types.FunctionType):
        return False
    sets = (SETS_ATTRIBUTE, SETS_ITEM)
    return any(
        instruction.opname in sets
        for instruction in dis.get_instructions(function.__code__)
    )

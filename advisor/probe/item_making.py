"""What the making of items reads, and what sets that.

Found by the names in the code of a dataset and of all that it reaches, without a run of it.
"""

from __future__ import annotations

import os
import types
from typing import Any, Iterator, NamedTuple

from . import loop_code
from .dataset_walk import (
    CODE,
    CONTAINERS,
    ENVIRONMENT,
    HOLDERS,
    WRAPPERS,
    Walk,
    attributes_of,
    functions_of,
    globals_of,
    is_own_class,
    is_plain,
    methods_of,
    names_of,
)


class Settable(NamedTuple):
    """What the making of items reads, so that whoever sets it changes items."""

    objects: dict[int, bool]
    """Objects that the dataset reaches, by their ids, and whether their class is a library's."""
    whole: bool
    """They are all known: a dataset of many parts is known by its first ones."""
    attributes: set[str]
    """Attributes of theirs that the program's code for making items reads."""
    methods: set[str]
    """Methods that set state beside it."""
    variables: set[tuple[int, str]]
    """Variables outside that it reads: id of their module's dictionary, or 0, and name."""
    sets: bool
    """Making an item sets something that lasts."""

    def reaches(self, value: Any) -> bool | None:
        """True for what the dataset reaches; None where that cannot be told."""
        if value is loop_code.UNKNOWN or isinstance(value, types.ModuleType):
            return None
        if type(value).__module__.startswith(loop_code.SHARED):
            return False
        if loop_code.is_shared(value):
            return False
        return True if id(value) in self.objects else None if not self.whole else False

    def is_set(self, owner: Any, name: str) -> bool:
        """Return True if setting the attribute of that owner changes what items are made of."""
        reached = self.reaches(owner)
        of_library = reached and self.objects[id(owner)]
        return reached is not False and (bool(of_library) or name in self.attributes)


def settable(roots: dict[str, Any]) -> Settable:
    """What the making of items reads, and what sets it."""
    walk = Walk(roots)
    objects: dict[int, bool] = {}
    held: set[str] = set()
    named: set[str] = set()
    methods: set[str] = set()
    variables: set[tuple[int, str]] = set()
    sets = False
    for _, value, own in walk:
        if is_plain(value):
            continue
        owner = value.__self__ if isinstance(value, types.MethodType) else value
        kind = type(owner)
        is_own, is_held = is_own_class(kind), kind.__name__ in HOLDERS
        data = is_own or is_held or isinstance(owner, (*CONTAINERS, *CODE, type))
        objects[id(owner)] = not data
        if own and (is_own or is_held):
            objects.update((id(base), False) for base in kind.__mro__ if is_own_class(base))
            held |= {name for name, _, _ in attributes_of(owner, kind)}
        making: set[str] = set()
        for function in functions_of(value) if own else ():
            code = function.__code__
            making |= names_of(code) | {function.__name__}
            if names_of(code) & ENVIRONMENT:
                objects[id(os.environ)] = False
            sets = sets or loop_code.sets_state(function)
            variables |= {(id(function.__globals__), name) for name in globals_of(code)}
            variables |= {(0, name) for name in code.co_freevars}
        named |= making
        if own and is_own:
            methods |= set(_setters(kind)) - making
    return Settable(objects, walk.whole, held & named, methods, variables, sets)


def _setters(kind: type) -> Iterator[str]:
    """Names of a class's methods that set state."""
    for base in kind.__mro__:
        if is_own_class(base) and not base.__module__.startswith(WRAPPERS):
            for name, function in vars(base).items():
                if not name.startswith("__") and loop_code.sets_state(function):
                    yield name


def unread(roots: dict[str, Any]) -> set[str]:
    """Attributes that the making of items sets, and that the program never reads but to add to.

    What is only counted may be counted by each worker for itself. A loop that reads the count of
    its dataset would find nothing there, so all modules of the program are looked at.
    """
    stored: set[str] = set()
    loaded: set[str] = set()
    for _, value, own in Walk(roots):
        kind = type(value)
        for method in methods_of(kind) if own and is_own_class(kind) else ():
            sets, reads = loop_code.attributes(method.__code__)
            stored |= sets
            loaded |= reads
    if "*" in loaded or stored <= loaded:
        return set()
    loaded |= loop_code.read_by_program()
    return set() if "*" in loaded else stored - loaded

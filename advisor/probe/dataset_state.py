"""State that items of a dataset may depend on: numbers, sizes and random generators.

A dataset is copied into each worker. What it keeps from item to item, or is told between
passes, is then another's in every copy; so two readings around an item tell what may not
be moved into workers.
"""

from __future__ import annotations

import gc
import itertools
import operator
from collections import deque
from typing import Any, Iterator

from .dataset_walk import (
    CONTAINERS,
    PLACES,
    Walk,
    is_network,
    is_own_class,
    is_plain,
    parameters_of,
    size_of,
    spread,
)
from .digests import array_digest, digest, generator_state

COUNTED = 100_000
"""Longest list whose empty places are counted: 3 ms.

Judgement: shorter takes an empty cache of large data for a full one, longer slows each watched
fetch."""
State = dict[str, "tuple[str, Any]"]
"""Path to kind and value, as `StateKind` of the model names them."""
HANDLES = ("_io", "mmap", "zipfile", "tarfile", "h5py", "lmdb", "sqlite3", "_sqlite3")
"""Modules of files that stay open: each worker opens its own, and that costs once."""


def read(roots: dict[str, Any]) -> State:
    """Read what the `roots` hold, each with its path."""
    state: State = {}
    for path, value, is_own in Walk(roots):
        generator = generator_state(value)
        if generator is not None:
            state[path] = ("generator", generator)
        elif is_plain(value):
            plain = value if isinstance(value, (bool, int, float)) else hash(value)
            if is_own:
                state[path] = ("value", plain)
            elif not path.rpartition(".")[-1].startswith("_"):
                # of a library's object: what the program told it, as the size of a crop
                state[path] = ("setting", plain)
        elif is_own and type(value) is itertools.count:
            state[path] = ("value", hash(repr(value)))
        elif is_own and is_network(value):
            if path.split(".")[-2:-1] != ["_modules"]:  # it is a network of its own
                state[path] = ("weights", tuple(map(array_digest, _weights(value))))
        elif is_own:
            state.update(_facts(path, value))
    return state


def changes(before: State, after: State, *, opened: bool = False) -> dict[str, str]:
    """Paths that differ, with their kind.

    A value that comes up, as a file that is opened once, is a change only if `opened`.
    """
    return {
        path: kind
        for path, (kind, value) in after.items()
        if path in before
        and before[path][0] == kind
        and before[path][1] != value
        and (opened or kind != "value" or None not in (value, before[path][1]))
    }


def growth(path: str, before: State, after: State) -> float:
    """By how much a number grew; 0 for any other value."""
    old, new = before[path][1], after[path][1]
    numbers = type(old) in (int, float) and type(new) in (int, float)
    return float(max(0, new - old)) if numbers else 0.0


def of_generators(state: State) -> State:
    """The part of a state that is that of random generators."""
    return {path: entry for path, entry in state.items() if entry[0] == "generator"}


def generators(state: State) -> dict[str, str]:
    return {path: value for path, (kind, value) in state.items() if kind == "generator"}


def _weights(network: Any) -> list[Any]:
    """Some of the parameters: of those that are trained, and of the others."""
    groups: dict[bool, list[Any]] = {True: [], False: []}
    for weight in parameters_of(network):
        groups[bool(weight.requires_grad)].append(weight)
    return [part for group in groups.values() for _, part in spread(group)]


def _facts(path: str, value: Any) -> Iterator[tuple[str, tuple[str, Any]]]:
    """Size and sampled content of a container or an array."""
    cache = getattr(type(value), "cache_info", None)
    if cache is not None:  # functools.lru_cache
        try:
            size = int(cache(value).currsize)
            if size > sum(map(_is_handle, _results(value))) or not size:
                yield path, ("size", size)
        except Exception:
            pass
    elif isinstance(value, CONTAINERS):
        if _holds_handles(value):
            return
        size = size_of(value)
        # Places to fill are no items. `list.count` would compare, which is the items' own code.
        places = list.__iter__(value) if isinstance(value, list) and size <= COUNTED else ()
        empty = sum(map(operator.is_, places, itertools.repeat(None)))
        yield path, ("size", size - empty)
        if isinstance(value, (list, tuple, deque)):
            plain = [
                part for _, part in spread(value) if isinstance(part, (int, float, str))
            ]
            if plain:
                yield f"{path}[]", ("order", (size, digest(plain)))
    elif hasattr(type(value), "__array_interface__") or hasattr(type(value), "is_shared"):
        content = array_digest(value)
        if content is not None:
            yield path, ("array", content)


def _holds_handles(value: Any) -> bool:
    """Return True for a container of open files, whose growth keeps no item."""
    parts = (
        [part for _, part in itertools.islice(dict.items(value), PLACES)]
        if isinstance(value, dict)
        else [part for _, part in spread(value)]
        if isinstance(value, (list, tuple, deque))
        else []
    )
    return bool(parts) and all(_is_handle(part) for part in parts if part is not None)


def _is_handle(value: Any) -> bool:
    """Return True for an open file, and for an object that holds one."""
    own = getattr(value, "__dict__", None) if is_own_class(type(value)) else None
    return any(
        type(part).__module__.partition(".")[0] in HANDLES
        or type(part).__name__ == "memmap"
        for part in (value, *(own.values() if isinstance(own, dict) else ()))
    )


def _results(cache: Any) -> list[Any]:
    """What an `lru_cache` holds, among others: results are its own, or lie in its dictionary."""
    held = gc.get_referents(cache)
    return held + [each for part in held if type(part) is dict for each in part.values()]

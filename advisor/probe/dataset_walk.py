"""Walk over what a dataset reaches: its parts, its class's, and what the code of its items names.

Nothing is called but `vars`, and no property of the program runs.
"""

from __future__ import annotations

import dis
import functools
import itertools
import os
import sys
import types
from collections import deque
from typing import Any, Iterator

from . import call_sites, loop_code
from .digests import generator_state

# By judgement: what items depend on is mostly near, and reading it must not slow the first batches.
DEPTH = 8
"""Levels below the dataset: transforms stand in a list, in a wrapper, in a subset."""
MOST = 600
"""Values read; a dataset of many parts is known by its first ones."""
PLACES = 8
"""Elements of a container that are read, evenly spread.

Judgement: fewer miss the one transform that draws or counts, more slow the first batches."""
METHODS: tuple[str, ...] = (
    "__getitem__", "__getitems__", "__iter__", "__call__", "forward",
)  # fmt: skip
"""Where items are made; what these functions name is a part of the state."""
WRAPPERS = "torch.utils.data"
"""Module of torch's datasets, which are parts of the program's."""
HOLDERS = (
    "Namespace",
    "SimpleNamespace",
    "DictConfig",
    "EasyDict",
    "ConfigDict",
    "Munch",
    "Box",
)
"""Libraries' classes that hold a program's settings: their attributes are the program's own."""
CODE = (types.FunctionType, types.MethodType, functools.partial)
"""What is called, and may hold more than itself."""
CONTAINERS = (dict, list, tuple, deque, set, frozenset)
"""Their own methods read the program's subclasses too, whose `__getitem__` may decode or draw."""
ENVIRONMENT = {"environ", "environb", "getenv"}
"""Names by which code reads the environment, of which a process has a copy."""
OF_TORCH = ("_parameters", "training")
"""Attributes of a network that its weights tell, and that tell nothing of an item."""


class Walk:
    """Path and value of the parts, each once, and whether the program's own code made it.

    Breadth first: where a dataset has more parts than MOST, those near to it are read, and they
    are likelier than deep ones to be what items depend on.
    """

    def __init__(self, roots: dict[str, Any]) -> None:
        self._roots = roots
        self.whole = True
        """No part was left out."""

    def __iter__(self) -> Iterator[tuple[str, Any, bool]]:
        seen: set[int] = set()
        queue = deque((path, value, 0, True) for path, value in self._roots.items())
        left = MOST
        while queue and left:
            path, value, depth, own = queue.popleft()
            left -= 1
            ends = is_plain(value) or generator_state(value) is not None
            if not ends and id(value) in seen:
                continue
            yield path, value, own
            if not ends and depth < DEPTH:
                queue.extend(
                    (f"{path}.{name}", part, depth + 1, own and is_own)
                    for name, part, is_own in _parts(value)
                )
            self.whole = self.whole and (ends or depth < DEPTH) and not _has_more(value)
            seen.add(id(value))
        self.whole = self.whole and not queue


def _has_more(value: Any) -> bool:
    """Return True for a container of objects that are not all read."""
    if not isinstance(value, CONTAINERS) or size_of(value) <= PLACES:
        return False
    return not all(_is_data(part) for _, part, _ in itertools.islice(_parts(value), PLACES))


def _is_data(value: Any, levels: int = 2) -> bool:
    """Return True for numbers, texts and arrays, and for small containers of them."""
    if isinstance(value, CONTAINERS) and levels:
        return all(_is_data(part, levels - 1) for _, part, _ in _parts(value))
    return is_plain(value) or hasattr(type(value), "__array__")


def is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, bytes))


def _parts(value: Any) -> Iterator[tuple[str, Any, bool]]:
    """Name, value, and whether the program's own code made it, of each part."""
    kind = type(value)
    if isinstance(value, CONTAINERS):
        if isinstance(value, dict):
            for at, (key, part) in enumerate(itertools.islice(dict.items(value), PLACES)):
                yield key[:40] if type(key) is str else str(at), part, True
        elif isinstance(value, (list, tuple, deque)):
            for at, part in spread(value):
                yield str(at), part, True
        if kind not in CONTAINERS:
            yield from attributes_of(value, kind)
    elif isinstance(value, types.MethodType):
        yield from _of_method(value)
    elif isinstance(value, types.FunctionType):
        yield from _named(value)
    elif kind.__name__ == "partial":
        yield "func", value.func, True
        yield "args", value.args, True
        yield "keywords", value.keywords, True
    elif isinstance(value, type):
        for name, part in _containers(value):
            yield name, part, True
    elif isinstance(value, types.ModuleType) or kind.__module__.startswith(
        loop_code.SHARED
    ):
        return
    else:
        yield from attributes_of(value, kind)


def _of_method(method: types.MethodType) -> Iterator[tuple[str, Any, bool]]:
    """What a bound method names: a trainer that makes batches holds its optimizer as well."""
    owner, kind = method.__self__, type(method.__self__)
    if not is_own_class(kind):
        yield "self", owner, True
    else:
        functions = functions_of(method)
        named = frozenset().union(*(names_of(function.__code__) for function in functions))
        for name, part, is_own in attributes_of(owner, kind):
            if name in named:
                yield f"self.{name}", part, is_own
    yield from _named(method.__func__)


def attributes_of(value: Any, kind: type) -> Iterator[tuple[str, Any, bool]]:
    """Attributes of an object, with what its class and its methods hold."""
    is_own = is_own_class(kind) or kind.__name__ in HOLDERS
    instance = getattr(value, "__dict__", None)
    attributes = dict(instance) if isinstance(instance, dict) else {}
    bases = [base for base in kind.__mro__ if is_own and is_own_class(base)]
    for base in bases:
        for name, part in [] if base.__module__.startswith("torch") else vars(base).items():
            if isinstance(part, (bool, int, float, str)) and not name.startswith("__"):
                attributes.setdefault(name, part)
            elif isinstance(part, types.MemberDescriptorType):  # a slot
                attributes.setdefault(name, getattr(value, name, None))
            elif hasattr(type(part), "cache_info"):
                attributes.setdefault(name, part)
        attributes = {**dict(_containers(base)), **attributes}
    torchs = kind.__module__.startswith(WRAPPERS)
    if "_parameters" in attributes and is_network(value):
        if not is_own:  # known by its weights
            return
        attributes = {
            name: part for name, part in attributes.items() if name not in OF_TORCH
        }
    for name, part in attributes.items():
        # what torch keeps to itself, it restores in workers
        if not torchs or not str(name).startswith("_") or is_own_class(type(part)):
            yield str(name), part, is_own
    for function in methods_of(kind) if is_own else ():
        yield from _named(function)


def _containers(kind: type) -> Iterator[tuple[str, Any]]:
    """Containers that a class of the program holds for all of its objects, as a cache may be."""
    for name, part in vars(kind).items() if is_own_class(kind) else ():
        if isinstance(part, (dict, list, set, deque)) and not name.startswith("__"):
            yield name, part


def methods_of(kind: type, first: tuple[str, ...] = METHODS) -> list[types.FunctionType]:
    """Functions that make items, and methods of the class that they name."""
    methods: list[types.FunctionType] = []
    names = list(first)
    for name in names:
        method = getattr(kind, name, None)
        if isinstance(method, types.FunctionType) and _written_here(method):
            methods.append(method)
            if len(names) < 4 * PLACES:
                names.extend(sorted(names_of(method.__code__) - set(names)))
    return methods


def functions_of(value: Any) -> list[types.FunctionType]:
    """Functions of the program that make items: those of an object or a method, or itself."""
    if isinstance(value, types.FunctionType):
        return [value] if _written_here(value) else []
    owner, first = value, METHODS
    if isinstance(value, types.MethodType):
        owner, first = value.__self__, (value.__func__.__name__,)
    kind = type(owner)
    own = is_own_class(kind) and not kind.__module__.startswith(WRAPPERS)
    return methods_of(kind, first) if own else []


def _named(function: Any) -> Iterator[tuple[str, Any, bool]]:
    """Variables outside a function of the program that its code names."""
    if not isinstance(function, types.FunctionType) or not _written_here(function):
        return
    variables = function.__globals__
    if names_of(function.__code__) & ENVIRONMENT:
        yield "os.environ", repr(sorted(os.environ.items())), True
    for name in globals_of(function.__code__):
        part = variables.get(name)
        if isinstance(part, types.ModuleType):
            for inner in function.__code__.co_names if _is_written_here(part) else ():
                if _may_hold(vars(part).get(inner)):
                    yield f"{name}.{inner}", vars(part)[inner], True
        elif _may_hold(part):
            yield name, part, True
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield name, cell.cell_contents, True
        except ValueError:  # not bound yet
            continue
    for part in function.__defaults__ or ():
        yield "default", part, True


@functools.lru_cache(maxsize=None)
def globals_of(code: types.CodeType) -> tuple[str, ...]:
    """Global variables that `code` reads; `co_names` has its attributes, too."""
    reads = [
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname == "LOAD_GLOBAL"
    ]
    for constant in code.co_consts:  # functions inside, and comprehensions
        reads += globals_of(constant) if isinstance(constant, types.CodeType) else ()
    return tuple(dict.fromkeys(reads))


@functools.lru_cache(maxsize=None)
def names_of(code: types.CodeType) -> frozenset[str]:
    """Attributes and variables outside that `code` names."""
    inner = [names_of(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    return frozenset(code.co_names).union(*inner)


def _may_hold(part: Any) -> bool:
    """Return True for a function, and for what is no code: it may hold state."""
    kind = type(part)
    code = callable(part) and not isinstance(part, (*CODE, type)) and not is_own_class(kind)
    network = hasattr(kind, "forward")
    kept = hasattr(kind, "cache_info") or generator_state(part) is not None
    return part is not None and (kept or network or not code)


def is_network(value: Any) -> bool:
    """Return True for a module of torch's that holds parameters."""
    return next(parameters_of(value), None) is not None


def parameters_of(module: Any) -> Iterator[Any]:
    """Parameters of a module and its parts, without a call of the program's code."""
    here, seen = [module], set()
    while here:
        part = here.pop()
        held = part.__dict__ if isinstance(getattr(part, "__dict__", None), dict) else {}
        own, inner = held.get("_parameters"), held.get("_modules")
        if id(part) in seen or not isinstance(own, dict) or not isinstance(inner, dict):
            continue
        seen.add(id(part))
        yield from (weight for weight in dict.values(own) if weight is not None)
        here += dict.values(inner)


def _container(value: Any) -> Any:
    """Python's own class of a container, of whatever subclass."""
    return next(kind for kind in CONTAINERS if isinstance(value, kind))


def size_of(value: Any) -> int:
    size: int = _container(value).__len__(value)
    return size


def spread(value: Any) -> list[tuple[int, Any]]:
    own, step = _container(value), max(1, size_of(value) // PLACES)
    places = range(0, size_of(value), step)[:PLACES]
    return [(at, own.__getitem__(value, at)) for at in places]


def _is_written_here(module: types.ModuleType) -> bool:
    place = getattr(module, "__file__", None)
    return place is not None and not call_sites.installed(place)


def _written_here(function: types.FunctionType) -> bool:
    name = function.__code__.co_filename
    return not name.startswith(call_sites.OWN) and not call_sites.installed(name)


def is_own_class(kind: type) -> bool:
    """Return True for a class of the program, or one of torch's that wraps a dataset."""
    if kind.__module__.startswith(WRAPPERS):
        return True
    module = sys.modules.get(kind.__module__)
    place = getattr(module, "__file__", None)
    if place is None:
        return kind.__module__ == "__main__"
    return not call_sites.installed(place)

"""State that items of a dataset may depend on: numbers, sizes and random generators.

A dataset is copied into each worker. What it keeps from item to item, or is told between
passes, is then another's in every copy; so two readings around an item tell what may not
be moved into workers. Nothing is called but `vars`, and no property of the program runs.
"""

from __future__ import annotations

import dis
import functools
import gc
import itertools
import operator
import random
import sys
import types
import zlib
from collections import deque
from typing import Any, Iterator

from . import call_sites, loop_code

# By judgement: what items depend on is mostly near, and reading it must not slow the first batches.
DEPTH = 8
"""Levels below the dataset: transforms stand in a list, in a wrapper, in a subset."""
MOST = 600
"""Values read; a dataset of many parts is known by its first ones."""
PLACES = 8
"""Elements of a container that are read, evenly spread."""
COUNTED = 100_000
"""Longest list whose empty places are counted: 3 ms."""
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

OF_TORCH = ("_parameters", "training")
"""Attributes of a network that its weights tell, and that tell nothing of an item."""

State = dict[str, "tuple[str, Any]"]
"""Path to kind and value, as `StateKind` of the model names them."""


def read(roots: dict[str, Any]) -> State:
    """Read what the `roots` hold, each with its path."""
    state: State = {}
    for path, value, is_own in Walk(roots):
        generator = generator_state(value)
        if generator is not None:
            state[path] = ("generator", generator)
        elif _is_plain(value):
            plain = value if isinstance(value, (bool, int, float)) else hash(value)
            if is_own:
                state[path] = ("value", plain)
            elif not path.rpartition(".")[-1].startswith("_"):
                # of a library's object: what the program told it, as the size of a crop
                state[path] = ("setting", plain)
        elif is_own and type(value) is itertools.count:
            state[path] = ("value", hash(repr(value)))
        elif is_own and _is_network(value):
            if path.split(".")[-2:-1] != ["_modules"]:  # it is a network of its own
                state[path] = ("weights", tuple(map(_array, _weights(value))))
        elif is_own:
            state.update(_facts(path, value))
    return state


def _is_network(value: Any) -> bool:
    """Return True for a module of torch's that holds parameters."""
    return next(_parameters(value), None) is not None


def _weights(network: Any) -> list[Any]:
    """Some of the parameters: of those that are trained, and of the others."""
    groups: dict[bool, list[Any]] = {True: [], False: []}
    for weight in _parameters(network):
        groups[bool(weight.requires_grad)].append(weight)
    return [part for group in groups.values() for _, part in _spread(group)]


def _parameters(module: Any) -> Iterator[Any]:
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
            ends = _is_plain(value) or generator_state(value) is not None
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
    if not isinstance(value, CONTAINERS) or _size(value) <= PLACES:
        return False
    return not all(_is_data(part) for _, part, _ in itertools.islice(_parts(value), PLACES))


def _is_data(value: Any, levels: int = 2) -> bool:
    """Return True for numbers, texts and arrays, and for small containers of them."""
    if isinstance(value, CONTAINERS) and levels:
        return all(_is_data(part, levels - 1) for _, part, _ in _parts(value))
    return _is_plain(value) or hasattr(type(value), "__array__")


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, bytes))


def settable(roots: dict[str, Any]) -> loop_code.Settable:
    """What the making of items reads, and what sets it."""
    walk = Walk(roots)
    objects: dict[int, bool] = {}
    held: set[str] = set()
    named: set[str] = set()
    methods: set[str] = set()
    variables: set[tuple[int, str]] = set()
    sets = False
    for _, value, own in walk:
        if _is_plain(value):
            continue
        owner = value.__self__ if isinstance(value, types.MethodType) else value
        kind = type(owner)
        is_own, is_held = _is_own(kind), kind.__name__ in HOLDERS
        data = is_own or is_held or isinstance(owner, (*CONTAINERS, *CODE, type))
        objects[id(owner)] = not data
        if own and (is_own or is_held):
            objects.update((id(base), False) for base in kind.__mro__ if _is_own(base))
            held |= {name for name, _, _ in _attributes(owner, kind)}
        making: set[str] = set()
        for function in _functions_of(value) if own else ():
            code = function.__code__
            making |= names_of(code) | {function.__name__}
            sets = sets or loop_code.sets_state(function)
            variables |= {(id(function.__globals__), name) for name in globals_of(code)}
            variables |= {(0, name) for name in code.co_freevars}
        named |= making
        if own and is_own:
            methods |= set(_setters(kind)) - making
    return loop_code.Settable(objects, walk.whole, held & named, methods, variables, sets)


def _setters(kind: type) -> Iterator[str]:
    """Names of a class's methods that set state."""
    for base in kind.__mro__:
        if _is_own(base) and not base.__module__.startswith(WRAPPERS):
            for name, function in vars(base).items():
                if not name.startswith("__") and loop_code.sets_state(function):
                    yield name


def _functions_of(value: Any) -> list[types.FunctionType]:
    """Functions of the program that make items: those of an object or a method, or itself."""
    if isinstance(value, types.FunctionType):
        return [value] if _written_here(value) else []
    owner, first = value, METHODS
    if isinstance(value, types.MethodType):
        owner, first = value.__self__, (value.__func__.__name__,)
    kind = type(owner)
    own = _is_own(kind) and not kind.__module__.startswith(WRAPPERS)
    return _methods(kind, first) if own else []


def unread(roots: dict[str, Any]) -> set[str]:
    """Attributes that the making of items sets, and that the program never reads but to add to.

    What is only counted may be counted by each worker for itself. A loop that reads the count of
    its dataset would find nothing there, so all modules of the program are looked at.
    """
    stored: set[str] = set()
    loaded: set[str] = set()
    for _, value, own in Walk(roots):
        kind = type(value)
        for method in _methods(kind) if own and _is_own(kind) else ():
            sets, reads = loop_code.attributes(method.__code__)
            stored |= sets
            loaded |= reads
    if "*" in loaded or stored <= loaded:
        return set()
    loaded |= loop_code.read_by_program()
    return set() if "*" in loaded else stored - loaded


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


def generator_state(value: Any) -> str | None:
    """Digest of a random generator's state; None for any other value."""
    kind = type(value)
    library, name = kind.__module__.partition(".")[0], kind.__name__
    try:
        if isinstance(value, random.Random):
            system = isinstance(value, random.SystemRandom)
            return None if system else _digest(value.getstate()[1])
        if library == "numpy" and name == "Generator":
            return _digest(value.bit_generator.state)
        if library == "numpy" and name == "RandomState":
            _, words, position, *_ = value.get_state()
            return _digest((zlib.crc32(words.tobytes()), position))
        if library == "torch" and name == "Generator" and value.device.type == "cpu":
            return _digest(zlib.crc32(bytes(value.get_state().tolist())))
    except Exception:  # a class of another library with one of these names
        pass
    return None


def _digest(state: Any) -> str:
    return f"{zlib.crc32(repr(state).encode()):08x}"


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
        size = _size(value)
        # Places to fill are no items. `list.count` would compare, which is the items' own code.
        places = list.__iter__(value) if isinstance(value, list) and size <= COUNTED else ()
        empty = sum(map(operator.is_, places, itertools.repeat(None)))
        yield path, ("size", size - empty)
        if isinstance(value, (list, tuple, deque)):
            plain = [
                part for _, part in _spread(value) if isinstance(part, (int, float, str))
            ]
            if plain:
                yield f"{path}[]", ("order", (size, _digest(plain)))
    elif hasattr(type(value), "__array_interface__") or hasattr(type(value), "is_shared"):
        content = _array(value)
        if content is not None:
            yield path, ("array", content)


HANDLES = ("_io", "mmap", "zipfile", "tarfile", "h5py", "lmdb", "sqlite3", "_sqlite3")
"""Modules of files that stay open: each worker opens its own, and that costs once."""


def _holds_handles(value: Any) -> bool:
    """Return True for a container of open files, whose growth keeps no item."""
    parts = (
        [part for _, part in itertools.islice(dict.items(value), PLACES)]
        if isinstance(value, dict)
        else [part for _, part in _spread(value)]
        if isinstance(value, (list, tuple, deque))
        else []
    )
    return bool(parts) and all(_is_handle(part) for part in parts if part is not None)


def _is_handle(value: Any) -> bool:
    """Return True for an open file, and for an object that holds one."""
    own = getattr(value, "__dict__", None) if _is_own(type(value)) else None
    return any(
        type(part).__module__.partition(".")[0] in HANDLES
        or type(part).__name__ == "memmap"
        for part in (value, *(own.values() if isinstance(own, dict) else ()))
    )


def _results(cache: Any) -> list[Any]:
    """What an `lru_cache` holds, among others: results are its own, or lie in its dictionary."""
    held = gc.get_referents(cache)
    return held + [each for part in held if type(part) is dict for each in part.values()]


def _array(value: Any) -> Any:
    """Digest of an array in this process's own memory, by 64 numbers."""
    try:
        if (
            type(value).__name__ == "memmap"
            or str(getattr(value, "dtype", "O")) == "object"
        ):
            return None
        flat = value
        if hasattr(value, "is_shared"):
            if value.device.type != "cpu" or value.is_shared():
                return None
            flat = value.detach()
        flat = flat.reshape(-1)
        return tuple(value.shape), _digest(flat[:: max(1, len(flat) // 64)][:64].tolist())
    except Exception:  # of another library, or not dense
        return None


def _container(value: Any) -> Any:
    """Python's own class of a container, of whatever subclass."""
    return next(kind for kind in CONTAINERS if isinstance(value, kind))


def _size(value: Any) -> int:
    size: int = _container(value).__len__(value)
    return size


def _spread(value: Any) -> list[tuple[int, Any]]:
    own, step = _container(value), max(1, _size(value) // PLACES)
    places = range(0, _size(value), step)[:PLACES]
    return [(at, own.__getitem__(value, at)) for at in places]


def _parts(value: Any) -> Iterator[tuple[str, Any, bool]]:
    """Name, value, and whether the program's own code made it, of each part."""
    kind = type(value)
    if isinstance(value, CONTAINERS):
        if isinstance(value, dict):
            for at, (key, part) in enumerate(itertools.islice(dict.items(value), PLACES)):
                yield key[:40] if type(key) is str else str(at), part, True
        elif isinstance(value, (list, tuple, deque)):
            for at, part in _spread(value):
                yield str(at), part, True
        if kind not in CONTAINERS:
            yield from _attributes(value, kind)
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
        yield from _attributes(value, kind)


def _of_method(method: types.MethodType) -> Iterator[tuple[str, Any, bool]]:
    """What a bound method names: a trainer that makes batches holds its optimizer as well."""
    owner, kind = method.__self__, type(method.__self__)
    if not _is_own(kind):
        yield "self", owner, True
    else:
        functions = _functions_of(method)
        named = frozenset().union(*(names_of(each.__code__) for each in functions))
        for name, part, is_own in _attributes(owner, kind):
            if name in named:
                yield f"self.{name}", part, is_own
    yield from _named(method.__func__)


def _attributes(value: Any, kind: type) -> Iterator[tuple[str, Any, bool]]:
    """Attributes of an object, with what its class and its methods hold."""
    is_own = _is_own(kind) or kind.__name__ in HOLDERS
    instance = getattr(value, "__dict__", None)
    attributes = dict(instance) if isinstance(instance, dict) else {}
    bases = [base for base in kind.__mro__ if is_own and _is_own(base)]
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
    if "_parameters" in attributes and _is_network(value):
        if not is_own:  # known by its weights
            return
        attributes = {
            name: part for name, part in attributes.items() if name not in OF_TORCH
        }
    for name, part in attributes.items():
        # what torch keeps to itself, it restores in workers
        if not torchs or not str(name).startswith("_") or _is_own(type(part)):
            yield str(name), part, is_own
    for function in _methods(kind) if is_own else ():
        yield from _named(function)


def _containers(kind: type) -> Iterator[tuple[str, Any]]:
    """Containers that a class of the program holds for all of its objects, as a cache may be."""
    for name, part in vars(kind).items() if _is_own(kind) else ():
        if isinstance(part, (dict, list, set, deque)) and not name.startswith("__"):
            yield name, part


def _methods(kind: type, first: tuple[str, ...] = METHODS) -> list[types.FunctionType]:
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


def _named(function: Any) -> Iterator[tuple[str, Any, bool]]:
    """Variables outside a function of the program that its code names."""
    if not isinstance(function, types.FunctionType) or not _written_here(function):
        return
    variables = function.__globals__
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
    code = callable(part) and not isinstance(part, (*CODE, type)) and not _is_own(kind)
    network = hasattr(kind, "forward")
    kept = hasattr(kind, "cache_info") or generator_state(part) is not None
    return part is not None and (kept or network or not code)


def _is_written_here(module: types.ModuleType) -> bool:
    place = getattr(module, "__file__", None)
    return place is not None and not call_sites.installed(place)


def _written_here(function: types.FunctionType) -> bool:
    name = function.__code__.co_filename
    return not name.startswith(call_sites.OWN) and not call_sites.installed(name)


def _is_own(kind: type) -> bool:
    """Return True for a class of the program, or one of torch's that wraps a dataset."""
    if kind.__module__.startswith(WRAPPERS):
        return True
    module = sys.modules.get(kind.__module__)
    place = getattr(module, "__file__", None)
    if place is None:
        return kind.__module__ == "__main__"
    return not call_sites.installed(place)

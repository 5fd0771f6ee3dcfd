"""Numbers of the program that count its batches, and that it computes with.

A weight that is annealed by `step / 20000`, or a layer that is set free at batch 5,000, follows the
batches: with larger batches and less accumulation it comes later, though an update has as many
samples. Nothing of torch's knows such a number. Two signs tell one: the program's code divides it,
raises something to its power or compares it with something, and it grows with each backward pass
between two updates, or by as much with each update. A number that is only printed, or held against
a length, is not among them: it comes to the same with other batches. Nor is one taken modulo
another, unless what is then done moves weights, adds to the loss or ends the loop: a target network
that is copied each 1,000 batches.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
import weakref
from collections import Counter
from itertools import chain, islice
from statistics import median
from typing import Any, Iterator

from . import call_sites, source_code
from .copied_weights import variables_of
from .dataset_walk import HOLDERS
from .session import Session
from .source_code import last_name, leaves_loop, parts_of

# By judgement: a count shows in the first updates, and later steps must cost nothing.
MOST_UPDATES = 5
"""Updates in which growth is counted."""
MOST_PASSES = 256
"""Backward passes in which growth is counted."""
FEWEST_STARTS = 3
"""Values at the starts of updates by which their growth is known.

Judgement: two give one growth, which nothing confirms. More hardly come in `MOST_UPDATES`."""
MOST_COUNTS = 24
"""Numbers that are watched at once.

Judgement: fewer may be full before the one that anneals a loss, more cost each watched pass their
look."""
HOLDERS_DEEP = 2
"""Holders between a variable and the object or dict with the number: `self.callbacks[1].seen`.

Judgement: fewer miss a trainer's state, each more multiplies the objects that are searched."""
MOST_HOLDERS = 1000
"""Objects and containers in reach of a function's variables that are looked into.

Judgement: fewer end amid a trainer's parts, more delay the first update for a list of all data."""
MOST_PARTS = 200
"""Parts of one object that are looked at.

Judgement: fewer miss attributes of a large trainer, more go through dicts of data."""
MOST_MODULES = 300
"""Parts of a network in whose buffers numbers are looked for.

Judgement: fewer miss layers of large networks, more delay the first update."""
FIRST_BATCHES = 20
"""A comparison with a smaller number is of the first batches, as for a picture or a log.

Lists of more are not looked into, either.

Judgement: smaller takes a look at the first few for an annealing, larger misses a warm-up of so
many batches."""
MOVES = frozenset(
    ("load_state_dict", "copy_", "lerp_", "step", "save_pretrained", "save_checkpoint")
)
"""Methods by which weights, or a schedule of theirs, move or are kept."""
VALIDATES = frozenset(("valid", "validate", "validation", "evaluate", "evaluation"))
"""Words of names by which a training is validated: what is kept, and its end, may follow it."""
CALLS_DEEP = 3
"""Levels of calls that are followed from a condition on. Judgement."""
SCALES = ("time", "elapsed", "second", "took", "dur", "len")
"""Parts of names by which a count is divided for a rate, or for a share of a pass."""
SHOWING = frozenset(
    (
        "print", "log", "info", "debug", "warning", "write", "format", "set_postfix",
        "set_description", "add_scalar",
    )
)  # fmt: skip
"""Functions that only tell a person."""
LOOKED_AT = frozenset(("item", "float", "int", "detach", "cpu", "numpy", "tolist"))
"""Methods by which a loss is looked at: no gradient comes of the result."""


class Count:
    """A number that may count batches, and what it was at each backward pass."""

    def __init__(self, code: Any, owner: str, path: tuple[Any, ...]) -> None:
        self.name = ".".join((owner, *map(str, path)))
        """As the program would write it: `self.step`."""
        self._code, self._owner, self._path = code, owner, path
        """Function, its variable, and attributes or keys from there on."""
        self._seen: list[tuple[int, int]] = []
        """At each look: updates so far, and the number."""

    @property
    def looks(self) -> int:
        return len(self._seen)

    def look(self, updates: int) -> None:
        """Note the number's present value; nothing where its function is not under way."""
        value = self._value()
        if type(value) is int:
            self._seen.append((updates, value))

    def _value(self) -> Any:
        frame = call_sites.frame_of(self._code)
        value = None if frame is None else variables_of(frame).get(self._owner)
        for name in self._path:
            value = inside(value).get(name)
        return value

    def growth(self) -> float | None:
        """By how much it grows in an update; None unless it grew by one with each pass.

        One that begins anew with each update, as that of an inner loop does, counts no batches.
        """
        values = [value for _, value in self._seen]
        if any(after - before != 1 for before, after in zip(values, values[1:])):
            return None
        passes = Counter(update for update, _ in self._seen)
        whole = sorted(passes)[1:-1]  # it was found in the first, and the last may go on
        return float(median(passes[update] for update in whole)) if whole else None

    def growth_at_updates(self) -> float | None:
        """By how much each update makes it grow; None where they do so unlike each other."""
        first: dict[int, int] = {}
        for update, value in self._seen:
            first.setdefault(update, value)
        values = list(first.values())[1:]
        grown = {after - before for before, after in zip(values, values[1:])}
        (growth,) = grown if len(grown) == 1 and len(values) >= FEWEST_STARTS else (0,)
        return float(growth) if growth > 0 else None


class CountInNetwork(Count):
    """A number that a part of a network keeps: an attribute, or a buffer of one element."""

    def __init__(self, owner: str, part: Any, name: str) -> None:
        super().__init__(None, owner, (name,))
        self._part, self._name = weakref.ref(part), name

    def _value(self) -> Any:
        return whole_number(vars(self._part()).get(self._name), self._buffer())

    def _buffer(self) -> Any:
        return getattr(self._part(), "_buffers", {}).get(self._name)


def whole_number(value: Any, buffer: Any) -> Any:
    """A whole number, or that of a buffer with one element."""
    if buffer is None or buffer.numel() != 1 or "int" not in str(buffer.dtype):
        return value
    return int(buffer)


def find(session: Session) -> None:
    """Find numbers in the functions that wait for the first optimizer's step."""
    if session.capture is not None:
        return
    of_frames = (
        Count(frame.f_code, owner, path)
        for frame in call_sites.own_frames()
        for owner, path in _numbers(frame)
    )
    found = chain(of_frames, _of_networks(session))
    session.counts += islice(found, MOST_COUNTS - len(session.counts))


def look(session: Session) -> None:
    """Look at each number as a backward pass begins, in the first MOST_UPDATES updates."""
    if session.capture is not None:
        return
    with session.unseen():
        for count in session.counts:
            if count.looks < MOST_PASSES:
                count.look(session.updates)


def content(session: Session) -> tuple[dict[str, float], dict[str, float]]:
    """Growth in an update: of each number that grows by one with each pass, and of the others."""
    found: tuple[dict[str, float], dict[str, float]] = ({}, {})
    for count in session.counts:
        ways = (count.growth(), count.growth_at_updates())
        for growths, growth in zip(found, ways):
            if growth is not None:
                growths[count.name] = growth
                break
    return found


def _of_networks(session: Session) -> Iterator[Count]:
    """Whole numbers that called networks keep, and their own code computes with."""
    for entry in session.modules:
        network = entry.module()
        named = network.named_modules() if hasattr(network, "named_modules") else ()
        for path, part in islice(named, MOST_MODULES):
            place = _place_of(part)
            if call_sites.is_foreign(place):
                continue
            for name in computed(place) & (vars(part).keys() | part._buffers.keys()):
                value = whole_number(vars(part).get(name), part._buffers.get(name))
                if type(value) is int:
                    owner = ".".join(filter(None, (type(network).__name__, path)))
                    yield CountInNetwork(owner, part, name)


def _numbers(frame: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Whole numbers in reach of a frame: its variables, and what its objects and dicts hold.

    Each by its variable and its path from there: a trainer's state may hold the count.
    """
    names = computed(frame.f_code.co_filename)
    seen: set[int] = set()
    for owner, value in list(variables_of(frame).items()):
        if type(value) is int and owner in names:
            yield owner, ()
        held: list[tuple[tuple[Any, ...], Any]] = [((), value)]
        for path, holder in held:
            held_there = inside(holder)
            if id(holder) in seen or not held_there or len(seen) > MOST_HOLDERS:
                continue
            seen.add(id(holder))
            plain = isinstance(holder, (dict, list, tuple))
            own = names if plain else computed(_place_of(holder)) | names
            for name, part in list(held_there.items())[:MOST_PARTS]:
                if type(part) is int and name in own:
                    yield owner, (*path, name)
                elif len(path) < HOLDERS_DEEP and type(name) in (str, int):
                    held.append(((*path, name), part))


def inside(value: Any) -> dict[Any, Any]:
    """What a dict, a short list, or an object of the program's own class holds, by name or place.

    Empty for others.
    """
    if type(value) is dict:
        return value
    if type(value) in (list, tuple):
        return dict(enumerate(value)) if len(value) <= FIRST_BATCHES else {}
    attributes = getattr(value, "__dict__", None)
    is_known_holder = type(value).__name__ in HOLDERS
    is_of_program = isinstance(attributes, dict) and (
        is_known_holder or not call_sites.is_foreign(_place_of(value))
    )
    return attributes if is_of_program else {}  # type: ignore[return-value]


def _place_of(value: Any) -> str:
    """File of the class of a value; one of Python's own where it has none."""
    module = sys.modules.get(type(value).__module__)
    return getattr(module, "__file__", None) or os.__file__


@functools.lru_cache(maxsize=64)
def computed(path: str) -> frozenset[str]:
    """Names of numbers in a file's code whose size decides on what it computes.

    Those that are divided, are an exponent, or are compared, but for what only scales a figure for
    a person; and those taken modulo another in a condition that changes the training.
    """
    tree = source_code.tree_of(path)
    functions = {
        node.name: node.body
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    ending, lengths = _names_that_end_loops(tree), _names_of_lengths(tree)
    losses = _names_of_losses(tree)
    names: set[str] = set()
    for node in _computing(tree):
        if isinstance(node, ast.BinOp) and not _is_scale(node.right, lengths):
            is_whole = isinstance(node.op, ast.FloorDiv)
            by_constant = isinstance(node.right, ast.Constant)
            if isinstance(node.op, ast.Div) or (is_whole and by_constant):
                names |= _named(node.left)
            elif isinstance(node.op, ast.Pow):
                names |= _named(node.right)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            scales = any(_is_scale(side, lengths) for side in sides)
            if not scales and not any(map(_is_small_or_product, sides)):
                names |= set().union(*map(_named, sides))
        elif isinstance(node, ast.If) and (
            _changes_training(node.body, functions, ending)
            or _adds_to_a_loss(node.body, losses)
        ):
            for part in ast.walk(node.test):
                if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod):
                    names |= _named(part.left)
    return frozenset(names)


def _computing(tree: ast.Module) -> Iterator[Any]:
    """Parts of a file's code, without those that only tell a person or are a schedule's own."""
    here: list[ast.AST] = [tree]
    of_schedules = _functions_of_schedules(tree)
    while here:
        part = here.pop()
        if part in of_schedules or getattr(part, "name", None) in of_schedules:
            continue
        if not isinstance(part, ast.JoinedStr) and not (
            isinstance(part, ast.Call) and last_name(part.func) in SHOWING
        ):
            yield part
            here += ast.iter_child_nodes(part)


def _functions_of_schedules(tree: ast.Module) -> set[Any]:
    """Functions that torch's schedulers call with their own steps, which are told otherwise."""
    return {
        given if isinstance(given, ast.Lambda) else last_name(given)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and last_name(node.func).endswith("LR")
        for given in (*node.args, *(each.value for each in node.keywords))
    } - {""}


def _names_of_lengths(tree: ast.Module) -> set[str]:
    """Names that are set to the length of something, or to a multiple of one.

    What is divided may be a length in updates, of which a count of batches is no share.
    """
    return {
        last_name(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and any(
            isinstance(p, ast.Call) and last_name(p.func) == "len"
            for p in ast.walk(node.value)
        )
        and not any(isinstance(p, (ast.Div, ast.FloorDiv)) for p in ast.walk(node.value))
        for target in node.targets
    } - {""}


def _names_of_losses(tree: ast.Module) -> set[str]:
    """Names of which gradients are asked: `loss.backward()`, `fabric.backward(loss / 4)`."""
    return {
        last_name(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and last_name(node.func) == "backward"
        for given in (node.func, *node.args)
        for part in ast.walk(given)
    } - {"", "backward"}


def _adds_to_a_loss(body: list[ast.stmt], losses: set[str]) -> bool:
    """Return True for code that sets a loss to something that has a gradient."""
    return any(
        isinstance(part, (ast.Assign, ast.AugAssign))
        and bool(set(map(_stored, ast.walk(part))) & losses)
        and not any(
            isinstance(each, ast.Call) and last_name(each.func) in LOOKED_AT
            for each in ast.walk(part.value)
        )
        and not isinstance(part.value, ast.Constant)
        for part in parts_of(body)
    )


def _named(part: ast.expr) -> set[str]:
    """Name of a variable or attribute, also with a constant added to it or as a number."""
    if name := last_name(part):
        return {name}
    if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Constant):
        return {part.slice.value} if isinstance(part.slice.value, str) else set()
    if isinstance(part, ast.BinOp) and isinstance(part.op, (ast.Add, ast.Sub)):
        return _named(part.left) if isinstance(part.right, ast.Constant) else set()
    if isinstance(part, ast.Call) and last_name(part.func) in (
        "float",
        "int",
        "min",
        "item",
    ):
        inner = [part.func.value] if isinstance(part.func, ast.Attribute) else part.args
        return _named(inner[0]) if len(inner) == 1 else set()
    return set()


def _changes_training(
    body: list[ast.stmt], functions: dict[str, list[ast.stmt]], ending: set[str]
) -> bool:
    """Return True for code that moves weights, validates, keeps weights or ends a loop.

    An update by accumulation is none, nor are a picture and a line of a log. Functions of the same
    file that it calls are a part of it.
    """
    parts = parts_of(body)
    ends = leaves_loop(body) or bool({_stored(part) for part in parts} & ending)
    reached: set[str] = set()
    for _ in range(CALLS_DEEP):
        called = [part.func for part in parts if isinstance(part, ast.Call)]
        names = {last_name(function) for function in called} - reached
        reached |= names
        parts = [p for name in names for p in parts_of(functions.get(name, []))] + parts
    return "zero_grad" not in reached and (
        ends or bool(reached & MOVES) or any(map(_validates_or_keeps, parts))
    )


def _names_that_end_loops(tree: ast.Module) -> set[str]:
    """Names in conditions by which loops end: `if stopper.done: break`, `while not stop`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.While) or (
            isinstance(node, ast.If) and leaves_loop(node.body, returns=False)
        ):
            names |= set(map(last_name, ast.walk(node.test)))
    return names - {""}


def _stored(part: ast.AST) -> str:
    """Name that is set; empty for what sets none."""
    is_stored = isinstance(getattr(part, "ctx", None), ast.Store)
    return last_name(part) if is_stored else ""


def _validates_or_keeps(part: ast.AST) -> bool:
    """Return True for a name of a validation's, and for `torch.save`."""
    if isinstance(part, ast.Attribute) and part.attr == "save":
        return getattr(part.value, "id", "") == "torch"
    name = last_name(part).lower()
    return name.startswith("val_") or bool(set(name.split("_")) & VALIDATES)


def _is_scale(part: ast.expr, lengths: set[str]) -> bool:
    """Return True for a length of the data or a time, by which a count of batches is a share."""
    names = [last_name(node) for node in ast.walk(part)]
    return bool(lengths & set(names)) or any(
        word in name.lower() for name in names for word in SCALES
    )


def _is_number(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant)


def _is_small_or_product(part: ast.expr) -> bool:
    """Return True for a number of the first batches, for no number, and for a product.

    `updates * accumulation` is another number of batches with another accumulation.
    """
    if isinstance(part, ast.BinOp):
        return isinstance(part.op, ast.Mult)
    if not isinstance(part, ast.Constant):
        return False
    return not isinstance(part.value, (int, float)) or part.value < FIRST_BATCHES

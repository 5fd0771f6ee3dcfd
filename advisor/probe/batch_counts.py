"""Numbers of the program that count its batches, and that it computes with.

A weight that is annealed by `step / 20000`, or a layer that is set free at batch 5,000, follows the
batches: with larger batches and less accumulation it comes later, though an update has as many
samples. Nothing of torch's knows such a number. Two signs tell one: the program's code divides it,
raises something to its power or compares it with something, and it grows with each backward pass
between two updates. A number that is only printed, or held against a length, is not among them: it
comes to the same with other batches. Nor is one taken modulo another, unless what is then done
moves weights or ends the loop: a target network that is copied each 1,000 batches.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections import Counter
from itertools import islice
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
MOST_COUNTS = 8
"""Numbers that are watched at once."""
HOLDERS_DEEP = 1
"""Holders between a variable and the object or dict with the number: `self.state.step`."""
MOST_PARTS = 200
"""Parts of one object that are looked at."""
FIRST_BATCHES = 20
"""A comparison with a smaller number is of the first batches, as for a picture or a log."""
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


class Count:
    """A number that may count batches, and what it was at each backward pass."""

    def __init__(self, code: Any, owner: str, path: tuple[str, ...]) -> None:
        self.name = ".".join((owner, *path))
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
        frame = call_sites.frame_of(self._code)
        value = None if frame is None else variables_of(frame).get(self._owner)
        for name in self._path:
            value = inside(value).get(name)
        if type(value) is int:
            self._seen.append((updates, value))

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


def find(session: Session) -> None:
    """Find numbers in the functions that wait for the first optimizer's step."""
    if session.updates != 1 or session.capture is not None:
        return
    counts = (
        Count(frame.f_code, owner, path)
        for frame in call_sites.own_frames()
        for owner, path in _numbers(frame)
    )
    session.counts += islice(counts, MOST_COUNTS - len(session.counts))


def look(session: Session) -> None:
    """Look at each number as a backward pass begins."""
    if not session.counts or session.updates > MOST_UPDATES or session.capture is not None:
        return
    for count in session.counts:
        if count.looks < MOST_PASSES:
            count.look(session.updates)


def content(session: Session) -> dict[str, float]:
    """Growth in an update, of each number that grows by one with each backward pass."""
    grown = {count.name: count.growth() for count in session.counts}
    return {name: growth for name, growth in grown.items() if growth is not None}


def _numbers(frame: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Whole numbers in reach of a frame: its variables, and what its objects and dicts hold.

    Each by its variable and its path from there: a trainer's state may hold the count.
    """
    names = computed(frame.f_code.co_filename)
    seen: set[int] = set()
    for owner, value in list(variables_of(frame).items()):
        if type(value) is int and owner in names:
            yield owner, ()
        holders: list[tuple[tuple[str, ...], Any]] = [((), value)]
        for path, holder in holders:  # which grows meanwhile
            parts = inside(holder)
            if id(holder) in seen or not parts:
                continue
            seen.add(id(holder))
            computed_here = (
                names if isinstance(holder, dict) else computed(_place_of(holder)) | names
            )
            for name, part in list(parts.items())[:MOST_PARTS]:
                if type(part) is int and name in computed_here:
                    yield owner, (*path, name)
                elif len(path) < HOLDERS_DEEP and type(name) is str:
                    holders.append(((*path, name), part))


def inside(value: Any) -> dict[Any, Any]:
    """What a dict, or an object of the program's own class, holds by name; empty for others."""
    if type(value) is dict:
        return value
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
    ending = _names_that_end_loops(tree)
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and not _is_scale(node.right):
            is_whole = isinstance(node.op, ast.FloorDiv)
            by_constant = isinstance(node.right, ast.Constant)
            if isinstance(node.op, ast.Div) or (is_whole and by_constant):
                names |= _named(node.left)
            elif isinstance(node.op, ast.Pow):
                names |= _named(node.right)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if not any(map(_is_scale, sides)) and not any(map(_is_small_or_product, sides)):
                names |= set().union(*map(_named, sides))
        elif isinstance(node, ast.If) and _changes_training(node.body, functions, ending):
            for part in ast.walk(node.test):
                if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod):
                    names |= _named(part.left)
    return frozenset(names)


def _named(part: ast.expr) -> set[str]:
    """Name of a variable or attribute, also with a constant added to it or as a number."""
    if name := last_name(part):
        return {name}
    if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Constant):
        return {part.slice.value} if isinstance(part.slice.value, str) else set()
    if isinstance(part, ast.BinOp) and isinstance(part.op, (ast.Add, ast.Sub)):
        return _named(part.left) if isinstance(part.right, ast.Constant) else set()
    if isinstance(part, ast.Call) and last_name(part.func) in ("float", "int", "min"):
        return _named(part.args[0]) if len(part.args) == 1 else set()
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


def _is_scale(part: ast.expr) -> bool:
    """Return True for a length of the data or a time, by which a count of batches is a share."""
    names = [last_name(node).lower() for node in ast.walk(part)]
    return any(word in name for name in names for word in SCALES)


def _is_small_or_product(part: ast.expr) -> bool:
    """Return True for a number of the first batches, for no number, and for a product.

    `updates * accumulation` is another number of batches with another accumulation.
    """
    if isinstance(part, ast.BinOp):
        return isinstance(part.op, ast.Mult)
    if not isinstance(part, ast.Constant):
        return False
    return not isinstance(part.value, (int, float)) or part.value < FIRST_BATCHES

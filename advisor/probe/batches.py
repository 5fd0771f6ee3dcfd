"""Batches: items in a batch of any container.

A batch may be a tensor, or a dict, list, tuple, dataclass or object that holds some, nested. The
first batch is searched in full. The path to the value that gave the count serves those after it.
"""

from __future__ import annotations

import sys
from typing import Any, Iterator, Tuple

Path = Tuple[Any, ...]
"""Steps into a nested value: by an item, or by an attribute."""

DEPTH = 6
WIDTH = 64
ITSELF, IN_IT = 1.5, 0.5
"""Levels that a sequence as long as the batch counts deeper than it is, the batch itself and one in
it: a pair is a batch of two by chance; and boxes of one image, deep inside, may be as many as the
images are."""


class Counter:
    """Count of items in successive batches of one source.

    `expected`: items that the loader was asked for, if it was.
    `least_depth`: a sequence less deep is a container, and its length no number of items.
    """

    def __init__(self, expected: float | None = None, least_depth: int = 0) -> None:
        self.expected = expected
        self._least_depth = least_depth
        self._path: Path | None = None
        self._axis = 0
        self._constant: float | None = None

    def keep(self, path: Path | None, axis: int) -> None:
        """Count along `axis` of the value at `path`; without a path each batch is one item."""
        self._path, self._axis = path, axis
        self._constant = 1.0 if path is None else None

    def count(self, batch: Any) -> float:
        """Items in `batch`, or 1 if unknown."""
        if self._constant is not None:
            return self._constant
        try:
            if self._path is not None:
                value = at(batch, self._path)
                return value.shape[self._axis] if self._axis else len(value)
        except Exception:
            self._path = None
        try:
            return self._search(batch)
        except Exception:  # a proxy of a tracer, an object that fights back
            return self.expected or 1.0

    def _search(self, batch: Any) -> float:
        """Find what counts the items: the most common size, or the one that was asked for."""
        tensors: list[tuple[float, float, Path]] = []
        sequences: list[tuple[float, float, Path]] = []
        for path, value in walk(batch):
            if is_tensor(value):
                if len(value.shape):
                    tensors.append((float(value.shape[0]), len(path), path))
            elif isinstance(value, (list, tuple)) and len(path) >= self._least_depth:
                depth = len(path) + (IN_IT if path else ITSELF)
                sequences.append((float(len(value)), depth, path))
        likely = [found for found in tensors + sequences if found[0] == self.expected]
        if likely:
            self.keep(min(likely, key=lambda found: found[1])[2], 0)
            return likely[0][0]
        pool = tensors or sequences
        if not pool or (self.expected and (not tensors or self.expected == 1)):
            # an item without batch dimension, or a collation that hides it
            self._constant = self.expected or 1.0
            return self._constant
        sizes = [size for size, _, _ in pool]
        common = max(sizes, key=lambda size: (sizes.count(size), -sizes.index(size)))
        self.keep(pool[sizes.index(common)][2], 0)
        return common


def is_tensor(value: Any) -> bool:
    """Return True for a tensor-like array with a `shape`."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return True
    try:
        return isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "dtype")
    except Exception:  # it answers for what it lacks in a way of its own
        return False


def at(value: Any, path: Path) -> Any:
    """Part of a nested value at `path`."""
    for by_item, key in path:
        value = value[key] if by_item else getattr(value, key)
    return value


def _children(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield steps and children of a container."""
    if isinstance(value, dict) or callable(getattr(value, "keys", None)):
        for key in list(value.keys())[:WIDTH]:
            yield (True, key), value[key]
    elif isinstance(value, (list, tuple)):
        for index, child in enumerate(value[:WIDTH]):
            yield (True, index), child
    elif not isinstance(value, (str, bytes, int, float, type(None), type)):
        held = getattr(value, "__dict__", None)
        names = list(held) if isinstance(held, dict) else list(getattr(value, "__slots__", ()))
        for name in names[:WIDTH]:
            child = getattr(value, name, None)
            if child is not None:
                yield (False, name), child


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield a nested value's parts with their paths."""
    yield path, value
    if is_tensor(value) or len(path) >= DEPTH:
        return
    try:
        children = list(_children(value))
    except Exception:  # one part that cannot be looked into hides no other
        return
    for step, child in children:
        yield from walk(child, (*path, step))


def tensors_in(value: Any, limit: int = 16) -> list[Any]:
    """The first tensors of a nested value."""
    found = []
    for _, child in walk(value):
        if is_tensor(child):
            found.append(child)
            if len(found) == limit:
                break
    return found

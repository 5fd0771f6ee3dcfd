"""Module tree: modules and parameters below a module.

Going through a large model takes milliseconds of the program's own time, names or no names, so it
is gone through once.
"""

from __future__ import annotations

import weakref
from typing import Any, List

LEAVES = 16
"""Limit of inspected leaf layers, largest first."""
HELD = 8
"""Limit of parameters compared later."""


def modules(module: Any) -> List[Any]:
    """Modules in torch's order, each once."""
    seen, found, waiting = set(), [], [module]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        found.append(one)
        if one._modules:
            waiting.extend(list(one._modules.values())[::-1])
    return found


def parameters(module: Any) -> List[Any]:
    """Parameters in torch's order, each once."""
    return _parameters_in(modules(module))


class Tree:
    """Some of what lies below a module, held weakly."""

    def __init__(self, module: Any) -> None:
        below = modules(module)
        found = _parameters_in(below)
        known = [p for p in found if not _is_lazy(p)]
        self._whole = len(known) == len(found)
        self.size = sum(p.numel() for p in known)
        """Numbers in the parameters."""
        self._largest = _weakly(sorted(known, key=_numbers_in)[-1:])
        self._convolutions = _weakly(
            p for p in known if p.dim() == 4 and max(p.shape[2:]) > 1 and p.shape[1] > 1
        )
        full = [p for p in known if p.numel()]
        self._some = _weakly(full[:: max(1, len(full) // HELD)][:HELD])
        layers = [m for m in below if not m._modules and m._parameters]
        self._leaves = _weakly(sorted(layers, key=size_of, reverse=True)[:LEAVES])

    def are_current(self) -> bool:
        """Return True if every parameter exists and is initialized."""
        refs = (*self._largest, *self._convolutions, *self._some, *self._leaves)
        return self._whole and all(ref() is not None for ref in refs)

    @property
    def largest(self) -> Any:
        """The largest parameter; None where there is none."""
        return next(iter(_there(self._largest)), None)

    @property
    def convolutions(self) -> List[Any]:
        """Weights of those convolutions that a layout could change."""
        return _there(self._convolutions)

    @property
    def some(self) -> List[Any]:
        """A few parameters from everywhere."""
        return _there(self._some)

    @property
    def leaves(self) -> List[Any]:
        """The layers with the most parameters, that one first."""
        return _there(self._leaves)


def size_of(layer: Any) -> int:
    """Numbers in a layer's own parameters."""
    own = layer._parameters.values()
    return sum(p.numel() for p in own if p is not None and not _is_lazy(p))


def _parameters_in(below: List[Any]) -> List[Any]:
    found = {}
    for one in below:
        if one._parameters:
            found.update({id(p): p for p in one._parameters.values() if p is not None})
    return list(found.values())


def _numbers_in(parameter: Any) -> int:
    return int(parameter.numel())


def _is_lazy(parameter: Any) -> bool:
    return "Uninitialized" in type(parameter).__name__


def _weakly(things: Any) -> List[Any]:
    return [weakref.ref(each) for each in things]


def _there(refs: List[Any]) -> List[Any]:
    return [each for ref in refs if (each := ref()) is not None]

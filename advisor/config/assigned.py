"""Leaves of ordered statements, with later ones replacing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.config.leaves import Leaf


class Assigned:
    """Current leaves, with None for replaced ones."""

    def __init__(self, found: list[Leaf | None]) -> None:
        self._found = found
        self._numbers: dict[str, list[int]] = {}
        """First part of a path, to the numbers of its leaves."""

    def __len__(self) -> int:
        return len(self._found)

    def add(self, leaf: Leaf) -> None:
        self._numbers.setdefault(_first_part(leaf.path), []).append(len(self._found))
        self._found.append(leaf)

    def is_at_or_below(self, place: str) -> bool:
        """Return True for a leaf at or below `place`."""
        return bool(self._below(place))

    def is_mapping(self, place: str) -> bool:
        """Return True if `place` holds a mapping."""
        return any(leaf.path.startswith(f"{place}.") for _, leaf in self._below(place))

    def forget(self, place: str) -> None:
        """Forget earlier values of a target and its parts."""
        for number, _ in self._below(place):
            self._found[number] = None

    def mark(self, place: str, why: str) -> None:
        """Mark leaves at `place` as not editable."""
        for number, leaf in self._below(place):
            self._found[number] = leaf._replace(why=leaf.why or why)

    def _below(self, place: str) -> list[tuple[int, Leaf]]:
        """Numbered leaves at `place` and below it."""
        first = _first_part(place)
        alive = [
            (number, leaf)
            for number in self._numbers.get(first, ())
            if (leaf := self._found[number]) is not None
        ]
        self._numbers[first] = [number for number, _ in alive]
        inside = (f"{place}.", f"{place}[")
        return [each for each in alive if each[1].path == place or each[1].path.startswith(inside)]


def _first_part(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]

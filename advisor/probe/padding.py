"""Padding: positions of loader batches and unused ones.

A mask tells, or the lengths of the rows beside the padded rows. What is a mask has that name;
lengths are found by what they do: the longest is as long as the rows are, in every batch, and that
length differs from batch to batch, or their name says it too. Every batch is counted.
"""

from __future__ import annotations

from typing import Any, Iterator, Sequence, Tuple

from .batches import is_tensor, walk

MASKS = ("attention_mask", "mask")
LENGTHS = ("lengths", "length", "input_lengths", "seq_lens")
MOST_LENGTHS = 4096
"""A longer list of numbers is no batch of rows."""

Path = Tuple[Any, ...]
"""Steps to a value: (whether by item, key) each."""


class Padding:
    """Padding in the batches of one loader."""

    def __init__(self) -> None:
        self._tellers: list[_Teller] | None = None

    def note(self, batch: Any) -> bool:
        """Count one batch; return False without padding evidence."""
        if self._tellers is None:
            try:
                self._tellers = list(_tellers(batch))
            except Exception:  # a batch of the program's own kind
                return False
        self._tellers = [teller for teller in self._tellers if teller.counts(batch)]
        return bool(self._tellers)

    def summary(self) -> tuple[int, int, int, bool] | None:
        """Summary of rows, positions and padding, or None."""
        for teller in self._tellers or ():
            if teller.positions and (teller.named or teller.varies):
                padded = teller.positions - teller.used
                return teller.rows, teller.positions, padded, teller.tokens
        return None


class _Teller:
    """Place in the batches that marks padding."""

    def __init__(self, path: Path, named: bool, beside: Path, at: int, tokens: bool) -> None:
        self._path, self._beside = path, beside
        self._at = at
        """Dimension of the padded value that counts its positions; -1: it is a mask."""
        self.named, self.tokens = named, tokens
        self.rows = self.positions = self.used = 0
        self.varies = False
        self._width: int | None = None

    def counts(self, batch: Any) -> bool:
        """Count `batch`; False where it does not fit."""
        try:
            sizes = self._read(_at(batch, self._path), _at(batch, self._beside))
        except Exception:
            return False
        if sizes is None:
            return False
        rows, width, used = sizes
        self.rows += rows
        self.positions += rows * width
        self.used += used
        self.varies = self.varies or self._width not in (None, width)
        self._width = width
        return True

    def _read(self, value: Any, beside: Any) -> tuple[int, int, int] | None:
        """(rows, positions of a row, positions in use)."""
        if self._at < 0:
            return int(value.shape[0]), int(value.shape[1]), int((value != 0).sum())
        lengths = value.tolist() if hasattr(value, "tolist") else value
        width = beside.shape[self._at]
        if not lengths or max(lengths) != width or min(lengths) < 1:
            return None
        rows = beside.shape[1 if self._at == 0 else 0]
        return (len(lengths), int(width), sum(lengths)) if rows == len(lengths) else None


def _tellers(batch: Any) -> Iterator[_Teller]:
    """Yield places that may mark padding, masks first."""
    parts = list(walk(batch))
    padded = [(path, value) for path, value in parts if is_tensor(value) and len(value.shape) > 1]
    for path, value in padded:
        if _name(path) in MASKS and len(value.shape) == 2 and _on_host(value):
            yield _Teller(path, True, path, -1, True)
    for path, value in parts:
        count = _as_lengths(value)
        if not count:
            continue
        named = _name(path) in LENGTHS
        for beside, rows in padded:
            for at in _places(rows.shape, count):
                tokens = named or (len(rows.shape) == 2 and not rows.is_floating_point())
                yield _Teller(path, named, beside, at, tokens)


def _places(shape: Sequence[int], count: int) -> list[int]:
    """Dimensions that may count positions of `count` rows."""
    last = len(shape) - 1
    places = [1, last] if shape[0] == count else []
    places += [0] if shape[1] == count else []
    return list(dict.fromkeys(places))


def _as_lengths(value: Any) -> int:
    """Return the count of lengths, or 0."""
    if is_tensor(value):
        whole = not getattr(value, "is_floating_point", lambda: True)()
        few = len(value.shape) == 1 and value.shape[0] <= MOST_LENGTHS
        return int(value.shape[0]) if whole and few and _on_host(value) else 0
    if not isinstance(value, (list, tuple)) or len(value) > MOST_LENGTHS:
        return 0
    return len(value) if all(type(each) is int for each in value) else 0


def _on_host(value: Any) -> bool:
    return getattr(getattr(value, "device", None), "type", None) == "cpu"


def _name(path: Path) -> Any:
    return path[-1][1] if path else None


def _at(value: Any, path: Path) -> Any:
    for by_item, key in path:
        value = value[key] if by_item else getattr(value, key)
    return value

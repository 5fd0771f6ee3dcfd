"""Padding: positions of loader batches, and those that hold nothing.

A mask tells by its name. Else whole numbers do whose longest is the second dimension of rows beside
them, in every batch: they are the lengths of the padded rows.
"""

from __future__ import annotations

from typing import Any

from .batches import is_tensor, walk

MASKS = ("attention_mask", "mask")
LEAST_POSITIONS = 8
"""Fewer positions are channels, and whole numbers beside them labels."""


class Padding:
    """Padding in the batches of one loader."""

    def __init__(self) -> None:
        self._rows = self._positions = self._used = 0

    def note(self, batch: Any) -> bool:
        """Count one batch; return False without padding evidence."""
        try:
            lengths, width = _lengths(batch)
        except Exception:  # a batch of the program's own kind, or of another form than the first
            self._positions = 0
            return False
        self._rows += len(lengths)
        self._positions += len(lengths) * width
        self._used += sum(lengths)
        return True

    def summary(self) -> dict[str, Any] | None:
        """Return counts of rows, positions and padding, or None."""
        if not self._positions:
            return None
        padded = self._positions - self._used
        return {"rows": self._rows, "positions": self._positions, "padded": padded}


def _lengths(batch: Any) -> tuple[list[int], int]:
    """Lengths of the rows, and the width that they are padded to. Raises LookupError."""
    parts = [(path, value) for path, value in walk(batch) if is_tensor(value)]
    shapes = [tuple(value.shape[:2]) for _, value in parts]
    whole = [(path, value) for path, value in parts if _is_whole(value)]
    for path, value in whole:
        if path and path[-1][1] in MASKS and len(value.shape) == 2:
            return (value != 0).sum(1).tolist(), int(value.shape[1])
    for _, value in whole:
        lengths = value.tolist() if len(value.shape) == 1 else []
        width = max(lengths, default=0)
        if width >= LEAST_POSITIONS and min(lengths) > 0 and (len(lengths), width) in shapes:
            return lengths, width
    raise LookupError


def _is_whole(value: Any) -> bool:
    """Return True for a tensor on the host without fractions."""
    host = getattr(getattr(value, "device", None), "type", None) == "cpu"
    return host and ("int" in str(value.dtype) or "bool" in str(value.dtype))

"""Padding: positions of loader batches, and those that hold nothing.

An attention mask tells, or the lengths of the padded rows, each by its name. Lengths without a name
are those whose longest is the second dimension of rows beside them, in every batch.
"""

from __future__ import annotations

from typing import Any

from .batches import Path, at, is_tensor, walk

MASKS = ("attention_mask", "mask")
LENGTHS = ("lengths", "length", "input_lengths", "seq_lens")
NAMES: dict[Any, int] = {**dict.fromkeys(MASKS, 2), **dict.fromkeys(LENGTHS, 1)}
"""Dimensions of each."""
LEAST_POSITIONS = 8
"""Fewer positions are channels, and whole numbers beside them labels."""


class Padding:
    """Padding in the batches of one loader."""

    def __init__(self) -> None:
        self._source: Path | None = None
        self._rows = self._positions = self._used = 0

    def note(self, batch: Any) -> bool:
        """Count one batch; return False without padding evidence."""
        try:
            if self._source is None:
                self._source = _source(batch)
            value = at(batch, self._source)
            rows = (value != 0).sum(1) if len(value.shape) == 2 else value
            lengths = rows.tolist()
            if not (_is_named(self._source, value) or _are_lengths(value, batch)):
                raise LookupError
        except Exception:  # a batch of the program's own kind, or of another form than the first
            self._positions = 0
            return False
        width = value.shape[1] if len(value.shape) == 2 else max(lengths)
        self._rows += len(lengths)
        self._positions += len(lengths) * int(width)
        self._used += sum(lengths)
        return True

    def summary(self) -> dict[str, Any] | None:
        """Return counts of rows, positions and padding, or None."""
        if not self._positions:
            return None
        padded = self._positions - self._used
        return {"rows": self._rows, "positions": self._positions, "padded": padded}


def _source(batch: Any) -> Path:
    """Path of a mask or lengths, with a name if possible. Raises LookupError without one."""
    whole = [(path, value) for path, value in walk(batch) if _is_whole(value)]
    named = [path for path, value in whole if _is_named(path, value)]
    return (named or [path for path, value in whole if _are_lengths(value, batch)])[0]


def _is_named(path: Path, value: Any) -> bool:
    return bool(path) and NAMES.get(path[-1][1]) == len(value.shape)


def _are_lengths(value: Any, batch: Any) -> bool:
    """Return True if the longest of `value` is the second dimension of rows beside it."""
    if len(value.shape) != 1:
        return False
    lengths = value.tolist()
    shapes = [tuple(other.shape[:2]) for _, other in walk(batch) if is_tensor(other)]
    is_width = (len(lengths), max(lengths)) in shapes
    return is_width and min(lengths) > 0 and max(lengths) >= LEAST_POSITIONS


def _is_whole(value: Any) -> bool:
    """Return True for a tensor on the host without fractions."""
    host = is_tensor(value) and getattr(getattr(value, "device", None), "type", None) == "cpu"
    return host and ("int" in str(value.dtype) or "bool" in str(value.dtype))

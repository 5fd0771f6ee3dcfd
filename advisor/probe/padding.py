"""Padding: positions of loader batches, and those that hold nothing.

An attention mask tells, or the lengths of the padded rows, each by its name.
"""

from __future__ import annotations

from typing import Any

from .batches import Path, at, is_tensor, walk

MASKS = ("attention_mask", "mask")
LENGTHS = ("lengths", "length", "input_lengths", "seq_lens")
NAMES: dict[Any, int] = {**dict.fromkeys(MASKS, 2), **dict.fromkeys(LENGTHS, 1)}
"""Dimensions of each."""


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
    """Path of a named mask or lengths. Raises LookupError without one."""
    for path, value in walk(batch):
        name = path[-1][1] if path else None
        if _is_whole(value) and NAMES.get(name) == len(value.shape):
            return path
    raise LookupError


def _is_whole(value: Any) -> bool:
    """Return True for a tensor on the host without fractions."""
    host = is_tensor(value) and getattr(getattr(value, "device", None), "type", None) == "cpu"
    return host and ("int" in str(value.dtype) or "bool" in str(value.dtype))

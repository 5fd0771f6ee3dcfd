"""Padding: positions of loader batches, and those that hold nothing.

An attention mask tells, or integer lengths beside the padded rows, each by its name. Lengths
without a name are those whose longest is the second dimension of the rows, in every batch.
"""

from __future__ import annotations

from typing import Any, Iterator, Tuple

from .batches import at, is_tensor, walk

MASKS = ("attention_mask", "mask")
LENGTHS = ("lengths", "length", "input_lengths", "seq_lens")

LEAST_POSITIONS = 8
"""Fewer positions are channels, and whole numbers beside them labels."""

Path = Tuple[Any, ...]


class Padding:
    """Padding in the batches of one loader."""

    def __init__(self) -> None:
        self._sources: list[Path] | None = None
        self._counts = (0, 0, 0)
        """Rows, positions, and positions in use."""

    def note(self, batch: Any) -> bool:
        """Count one batch; return False without padding evidence."""
        try:
            if self._sources is None:
                self._sources = list(_sources(batch))[:1]
            for path in self._sources:
                found = _sizes(batch, path)
                self._counts = tuple(map(sum, zip(self._counts, found)))  # type: ignore[assignment]
        except Exception:  # a batch of the program's own kind, or of another form than the first
            self._sources, self._counts = [], (0, 0, 0)
        return bool(self._sources)

    def summary(self) -> dict[str, Any] | None:
        """Return counts of rows, positions and padding, or None."""
        rows, positions, used = self._counts
        if not positions:
            return None
        return {"rows": rows, "positions": positions, "padded": positions - used}


def _sources(batch: Any) -> Iterator[Path]:
    """Yield paths of named masks, then of named lengths."""
    values = [(path, value) for path, value in walk(batch) if path and _is_whole(value)]
    for names, dims in ((MASKS, 2), (LENGTHS, 1)):
        for path, value in values:
            if path[-1][1] in names and len(value.shape) == dims:
                yield path
    for path, value in values:
        if len(value.shape) == 1 and _are_lengths(value, batch):
            yield path


def _are_lengths(value: Any, batch: Any) -> bool:
    """Return True if the longest of `value` is the second dimension of the rows beside it."""
    lengths = value.tolist()
    return min(lengths) > 0 and any(
        len(other.shape) > 1
        and (int(other.shape[0]), int(other.shape[1])) == (len(lengths), max(lengths))
        and other.shape[1] >= LEAST_POSITIONS
        for _, other in walk(batch)
        if is_tensor(other)
    )


def _is_whole(value: Any) -> bool:
    """Return True for a tensor on the host without fractions."""
    host = is_tensor(value) and getattr(getattr(value, "device", None), "type", None) == "cpu"
    return host and ("int" in str(value.dtype) or "bool" in str(value.dtype))


def _sizes(batch: Any, path: Path) -> tuple[int, int, int]:
    """Rows, positions and used positions of a batch."""
    value = at(batch, path)
    if len(value.shape) == 2:
        return int(value.shape[0]), int(value.numel()), int((value != 0).sum().tolist())
    if path[-1][1] not in LENGTHS and not _are_lengths(value, batch):
        raise ValueError
    lengths = value.tolist()
    return len(lengths), len(lengths) * max(lengths), sum(lengths)

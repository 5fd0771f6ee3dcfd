"""Facts that a recorder writes of DataLoaders and modules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, TypeVar

from pydantic import Field

from advisor.model.kinds import JsonScalar

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")
Finite = Annotated[float, Field(allow_inf_nan=False)]


def typed(values: Mapping[str, JsonScalar], name: str, kind: type[T]) -> T | None:
    """Value of that name, if it has this very type."""
    value = values.get(name)
    return value if type(value) is kind else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddingCount:
    """Positions of a loader's batches, and padded ones."""

    rows: int
    positions: int
    padded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderFacts:
    """Facts of one DataLoader's construction and use."""

    site: str | None = None
    """`train.py:88` where it was built."""
    arguments: dict[str, JsonScalar] = field(default_factory=dict)
    """Values in force by name of the argument: batch_size, num_workers, prefetch_factor, ..."""
    pass_items: int | None = None
    left_out: int | None = None
    iterated: bool = False
    other_thread: bool = False
    """Its batches are taken by another thread than the one that works."""
    padding: PaddingCount | None = None

    @property
    def workers(self) -> int:
        """Worker processes."""
        return typed(self.arguments, "num_workers", int) or 0

    @property
    def padding_share(self) -> float | None:
        """Padded share of batch positions."""
        found = self.padding
        return found.padded / found.positions if found is not None and found.positions else None

    @property
    def tokens_per_item(self) -> float | None:
        """Tokens of one item, without padding."""
        found = self.padding
        known = found is not None and found.rows > 0
        return (found.positions - found.padded) / found.rows if found and known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFacts:
    """One module that the program calls."""

    name: str = ""
    site: str | None = None
    """`train.py:95` of its first call."""
    parameters: int = 0
    same_shape: bool = False
    """Its output has the shape of its input."""
    flags: dict[str, JsonScalar] = field(default_factory=dict)
    """Flags in force during its calls: device, dtypes, tf32, compiled, channels_last, ..."""
    shapes: tuple[str, ...] = ()
    """Shapes of its tensor inputs, batch dimension left out."""
    tokens: Finite = 0.0
    """Token positions of the calls of `token_items` items."""
    token_items: Finite = 0.0
    inputs: tuple[tuple[float, ...], ...] = ()
    """Numbers that went into its first calls."""
    outputs: tuple[tuple[float, ...], ...] = ()
    """Numbers that came out of them."""

    @property
    def tokens_per_item(self) -> float | None:
        """Positions per sample with padding, or None."""
        return self.tokens / self.token_items if self.token_items > 0 else None

"""Intervals, decisions on knobs, and advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.model.kinds import JsonScalar, KnobClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate and the bounds it was proven to lie between."""

    estimate: float
    low: float
    high: float
    n: int
    """Number of independent units (processes or pairs of processes)."""
    confidence: float = 0.95


TuningResult = Literal["changed", "advised", "kept", "refused", "ignored", "listed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Decision on one knob with its evidence."""

    document: str
    path: str
    kind: str
    knob_class: KnobClass
    outcome: TuningResult
    old: JsonScalar | tuple[JsonScalar, ...]
    new: JsonScalar | tuple[JsonScalar, ...]
    reason: str
    """A key of the sentences that the report has."""
    data: tuple[tuple[str, JsonScalar], ...] = ()
    """Figures of the sentence."""
    trials: tuple[str, ...] = ()
    """Ids of the processes in which the knob was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Proven gain that only the user can write, as in code."""

    kind: Literal["switch", "loader", "buckets", "training-batch", "together"]
    title: str
    gain: Interval
    data: tuple[tuple[str, JsonScalar], ...] = ()
    """Figures of the sentence."""
    site: str | None = None
    patch: str | None = None
    used_contended_rounds: bool = False
    """rerun on an idle machine: the gain is that beside others."""

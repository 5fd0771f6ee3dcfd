"""Intervals, decisions on knobs, and advice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from advisor.model.kinds import JsonScalar, KnobClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Estimate with its proven bounds."""

    estimate: float
    low: float
    high: float
    n: int
    """Number of independent units (processes or pairs of processes)."""
    confidence: float = 0.95

    def widened(self, share: float) -> Interval:
        """The interval of a ratio, with bounds at least `share` away from the estimate."""
        least, most = self.estimate / (1 + share), self.estimate * (1 + share)
        return replace(self, low=min(self.low, least), high=max(self.high, most))


TuningResult = Literal["changed", "advised", "kept", "refused", "ignored", "listed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Decision about one knob, with its evidence."""

    document: str
    path: str
    kind: str
    knob_class: KnobClass
    outcome: TuningResult
    old: JsonScalar | tuple[JsonScalar, ...]
    new: JsonScalar | tuple[JsonScalar, ...]
    reason: str
    """A sentence for the report, printed as it is."""
    trials: tuple[str, ...] = ()
    """Ids of the processes that moved the knob."""
    in_phase: bool = True
    """The phase that ran uses it."""


class Advice(NamedTuple):
    """Confirmed change that the user must make."""

    title: str
    gain: Interval
    reason: str
    """Sentences for the report, printed as they are."""
    site: str | None = None
    patch: str | None = None

"""Asking: a turn is what is asked next with where the search stands; a stage is a row of turns."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from advisor.executor.requests import ABTest, SkippedRun, TrialRequest, TrialResult, Variant
from advisor.tuner.standing import Result, TunerState, key_of

if TYPE_CHECKING:
    from advisor.model import Candidate, Knob, Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStep:
    """What is asked next, and where the search stands meanwhile."""

    request: TrialRequest | ABTest
    standing: TunerState


Stage = Generator[SearchStep, Result, TunerState]
"""Asks, hears, and returns where it stands then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Nothing more is asked, and why."""

    reason: Literal["done", "baseline-failed", "not-measured", "budget-too-small"]
    standing: TunerState
    failed: TrialResult | None = None
    """baseline-failed: the run that did."""
    needed_s: float | None = None
    """budget-too-small: what would do."""

    @property
    def whole(self) -> bool:
        """Whether every stage had its say."""
        return self.reason == "done"


def ask_for(
    now: TunerState,
    candidate: Candidate,
    purpose: Purpose = "search",
    *,
    knob: Knob | None = None,
    **plan: object,
) -> TrialRequest:
    """One short process of `candidate`."""
    return TrialRequest(
        variant=Variant(candidate=candidate),
        purpose=purpose,
        plan=now.plan(candidate, **plan),
        knob=key_of(knob) if knob else None,
        expected_s=now.price_s,
    )


def tried(
    now: TunerState, request: TrialRequest, *, kept_s: float | None = None, matters: bool = True
) -> Generator[SearchStep, Result, tuple[TunerState, TrialResult | None]]:
    """The answer to `request`; None where it does not fit beside what is kept back.

    Unless told otherwise that is what the proof of all that may be written needs."""
    kept_s = now.reserve_s if kept_s is None else kept_s
    if request.expected_s > now.remaining_s - kept_s:
        return now.skip(request.label, request.expected_s, kept_s=kept_s, matters=matters), None
    answer = yield SearchStep(request=request, standing=now)
    now = now.heard(answer)
    if isinstance(answer, SkippedRun):
        return now.skip(request.label, answer.needed_s, matters=matters), None
    assert isinstance(answer, TrialResult)
    return now, answer

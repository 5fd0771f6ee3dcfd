"""Asking: a turn is what is asked next with where the search stands; a stage is a row of turns."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from advisor.experiments.attempts import Arm, Ask, Attempt, Contest, NotRun
from advisor.strategy.standing import Answer, Standing, key_of

if TYPE_CHECKING:
    from advisor.model import Candidate, Knob, Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What is asked next, and where the search stands meanwhile."""

    ask: Ask | Contest
    standing: Standing


Stage = Generator[Turn, Answer, Standing]
"""Asks, hears, and returns where it stands then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Nothing more is asked, and why."""

    reason: Literal["done", "baseline-failed", "not-measured", "budget-too-small"]
    standing: Standing
    failed: Attempt | None = None
    """baseline-failed: the run that did."""
    needed_s: float | None = None
    """budget-too-small: what would do."""

    @property
    def whole(self) -> bool:
        """Whether every stage had its say."""
        return self.reason == "done"


def ask_for(
    now: Standing,
    candidate: Candidate,
    purpose: Purpose = "search",
    *,
    knob: Knob | None = None,
    **plan: object,
) -> Ask:
    """One short process of `candidate`."""
    return Ask(
        arm=Arm(candidate=candidate),
        purpose=purpose,
        plan=now.plan(candidate, **plan),
        knob=key_of(knob) if knob else None,
        expected_s=now.price_s,
    )


def tried(
    now: Standing, ask: Ask, *, kept_s: float | None = None, matters: bool = True
) -> Generator[Turn, Answer, tuple[Standing, Attempt | None]]:
    """The answer to `ask`; None where it does not fit beside what is kept back, which is what the
    proof of all that may be written needs unless told otherwise."""
    kept_s = now.reserve_s if kept_s is None else kept_s
    if ask.expected_s > now.left_s - kept_s:
        return now.skip(ask.label, ask.expected_s, kept_s=kept_s, matters=matters), None
    answer = yield Turn(ask=ask, standing=now)
    now = now.heard(answer)
    if isinstance(answer, NotRun):
        return now.skip(ask.label, answer.needed_s, matters=matters), None
    assert isinstance(answer, Attempt)
    return now, answer

"""What a strategy asks for, and what came of it: frozen, so that all of it can be replayed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from advisor.model import Candidate, Failure, MeasurePlan, Purpose, Run

if TYPE_CHECKING:
    from advisor.objective import Objective

CommandName = Literal["own", "quality", "confirm-quality"]
"""The user's own command, or one of those declared for the quality measures."""
KnobKey = tuple[str, str]
"""Document and path of a knob."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What one process is to be: a candidate, and what is tried from inside on top of it."""

    candidate: Candidate = field(default_factory=Candidate)
    whatif: str | None = None
    extra_s: float = 0.0
    """Paid once before the window: compilation."""

    @property
    def label(self) -> str:
        """`batch_size=8, what if compile`"""
        label = self.candidate.label
        return f"{label}, what if {self.whatif}" if self.whatif else label


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRequest:
    """One measured process, and what it is for."""

    variant: Variant
    purpose: Purpose
    plan: MeasurePlan
    knob: KnobKey | None = None
    """The knob whose values are being tried."""
    command: CommandName = "own"
    repeat: int | None = None
    """Which repetition, of which each has a seed of its own; None: the seed of the call, if any."""
    series: str = ""
    """Names a repetition: two series of one measurement never stand in for each other."""
    fresh: bool = False
    """History will not do."""
    expected_s: float = 0.0
    """What it is to take; it is not begun with less left. 0: it is needed whatever it takes."""
    limit_s: float | None = None
    """Given up, as one that did not fit, so long after its first step; None: with the budget."""
    title: str = ""
    """Told in place of what it sets."""

    @property
    def label(self) -> str:
        """`batch_size=8`"""
        return self.title or self.variant.label


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumEffect:
    """The smallest gain that rounds are to prove."""

    objective: Objective
    gain: float
    """Above 1, as a share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ABTest:
    """Two arms to be run against each other in interleaved rounds of fresh processes."""

    purpose: Purpose
    title: str
    before: TrialRequest
    after: TrialRequest
    rounds: int
    """Rounds that nobody disturbed, fixed before the first."""
    max_rounds: int = 0
    """So many where the rounds turn out to take less of the budget than was feared. The clock alone
    decides that, so the bounds hold as if it had been fixed."""
    minimum_effect: MinimumEffect | None = None
    """Rounds end where it is out of reach. None: they are run whatever they say."""
    sigma: float = 0.0
    """Standard deviation of a log ratio of two equal processes, as it is known beforehand."""
    reseeded: bool = False
    """Each round has a seed of its own, the same for both arms; the first is that of the asks."""
    finish_once: bool = False
    """In the first round `after` finishes a whole item, which it has not done yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """One process that was asked for, and what came of it."""

    id: str
    request: TrialRequest
    result: Run | Failure
    reused: bool = False
    """Taken from history: measured by an earlier call."""
    repeated: bool = False
    """Disturbed, and run again: nothing rests on it."""
    remaining_s: float
    """Budget that was left after it."""

    @property
    def run(self) -> Run | None:
        """The run, unless it failed."""
        return self.result if isinstance(self.result, Run) else None

    @property
    def label(self) -> str:
        return self.request.label


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRun:
    """It would not have fitted into what was left of the budget."""

    request: TrialRequest | ABTest
    needed_s: float
    remaining_s: float


def disturbed(run: Run) -> bool:
    """Whether others took so much from it that its figure is not its own."""
    return run.disturbance.disturbed is True

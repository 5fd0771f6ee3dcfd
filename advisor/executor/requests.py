"""Requests for measurements and their results, all frozen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from advisor.model import Candidate, Failure, MeasurePlan, Purpose, Run
from advisor.objective import Objective

CommandName = Literal["own", "quality", "confirm-quality"]
"""The user's own command, or one of those declared for the quality measures."""
KnobKey = tuple[str, str]
"""Document and path of a knob."""
BEFORE, AFTER = "before", "after"
"""Names of the two variants of most tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Changes to the original, or another program."""

    candidate: Candidate = field(default_factory=Candidate)
    whatif: str | None = None
    """Change that the probe makes inside the process."""
    extra_s: float = 0.0
    """Paid once before the window: compilation."""
    program: str | None = None
    """Name of a program of its own: another config or command; None: the executor's."""

    @property
    def label(self) -> str:
        """Label, as in `batch 8 · prefetch_factor 4 in the code`."""
        label = self.candidate.label
        if not self.whatif:
            return label
        words = self.whatif.partition("@")[0].replace("loader.", "").replace("=", " ")
        in_code = f"{words.replace(',', ', ')} in the code"
        return f"{label} · {in_code}" if self.candidate.changes else in_code


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRequest:
    """One measured process, and its purpose."""

    variant: Variant
    purpose: Purpose
    plan: MeasurePlan
    knobs: tuple[KnobKey, ...] = ()
    """Every knob that the trial moves."""
    command: CommandName = "own"
    repeat: int | None = None
    """Number of the repetition, each with a seed of its own; None: the seed of the call, if any."""
    series: str = ""
    """Name of a repetition: two series of one measurement never stand in for each other."""
    fresh: bool = False
    """No kept run will do."""
    expected_s: float = 0.0
    """Expected time; it is not begun with less left. 0: it is needed whatever it takes."""
    limit_s: float | None = None
    """Given up, as one that did not fit, so long after its first step; None: with the budget."""
    title: str = ""
    """Label in place of the changes."""

    @property
    def label(self) -> str:
        """Label of the candidate, as in `batch 8`."""
        return self.title or self.variant.label


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumEffect:
    """The smallest gain that rounds must prove."""

    objective: Objective
    gain: float
    """Above 1, as a share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ABTest:
    """Variants for interleaved rounds of fresh processes."""

    purpose: Purpose
    title: str
    requests: tuple[TrialRequest, ...]
    """One a variant; the others are compared with the first."""
    names: tuple[str, ...] = (BEFORE, AFTER)
    rounds: int
    """Uncontended rounds, fixed before the first."""
    max_rounds: int = 0
    """More rounds, where they turn out to take less of the budget than expected. The clock alone
    decides that, so the bounds hold as if it had been fixed."""
    minimum_effect: MinimumEffect | None = None
    """Rounds end where it is out of reach. None: all of them are run."""
    sigma: float = 0.0
    """Standard deviation of a log ratio of two equal processes, known beforehand."""
    finish_once: bool = False
    """In the first round the last variant finishes a whole item, which it has not done yet."""

    @property
    def by_name(self) -> dict[str, TrialRequest]:
        """The request of each variant."""
        return dict(zip(self.names, self.requests, strict=True))

    @property
    def before(self) -> Variant:
        """The first variant, the reference."""
        return self.requests[0].variant

    @property
    def after(self) -> Variant:
        """The last variant."""
        return self.requests[-1].variant


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """One process that was requested, and its result."""

    id: str
    request: TrialRequest
    result: Run | Failure
    reused: bool = False
    """Taken from history: measured by an earlier call."""
    repeated: bool = False
    """Contended, and run again: nothing rests on it."""
    took_s: float = 0.0
    """Time of the process with its preparation, without a wait for a quiet machine."""
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
    """Process or test that did not fit the budget."""

    request: TrialRequest | ABTest
    needed_s: float
    remaining_s: float


def contended(run: Run) -> bool:
    """True if background load disturbed the rate."""
    return run.disturbance.disturbed is True

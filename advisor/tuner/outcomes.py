"""What stages note as they go: verdicts, gains that were not taken, tasks without room, quality.

A verdict decides on one setting. The others are no decisions: a near miss waits for another look,
a suggestion for its rounds, and what is left out or skipped is for the report alone.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from advisor import numbers
from advisor.executor.comparison import Comparison
from advisor.executor.requests import KnobKey, Variant
from advisor.model import (
    OUTCOMES,
    Candidate,
    DecisionCause,
    DecisionOutcome,
    JsonScalar,
    Knob,
    LeftOutCause,
    Run,
    SkipCause,
    TaskKind,
)
from advisor.quality import QualityJudgement

OUT_OF_TIME = "The budget was spent before another value could be judged."


class KnobVerdict(NamedTuple):
    """Verdict of a stage on a knob, before confirmation."""

    knob: KnobKey
    cause: DecisionCause
    reason: str

    @property
    def outcome(self) -> DecisionOutcome | Literal["found"]:
        """What follows from the cause; found: a better value, to be confirmed."""
        return "found" if self.cause == "faster" else OUTCOMES[self.cause]


TASKS: dict[TaskKind, str] = {
    "trial": "{}",
    "pass": "one pass over the data with {}",
    "whole-batch": "one whole batch with {}",
    "confirmation": "the confirmation of {}",
    "second-confirmation": "a second confirmation of {}",
    "comparison": "the comparison of {}",
    "quality": "the quality of {}",
    "quality-reference": "the quality that fewer steps or a narrower precision would cost",
    "quality-confirmation": "the quality confirmation of {}",
}
"""Tasks of a search, in words; `{}` is what they are about."""


class Task(NamedTuple):
    """Part of a search that takes time, as reports name it where the budget had none for it."""

    kind: TaskKind
    about: str = ""
    """Label of a candidate, or title of a suggestion; empty where the kind says all."""
    rest: bool = False
    """True for the rest of a task of which a part was done."""

    @property
    def text(self) -> str:
        words = TASKS[self.kind].format(self.about)
        return f"the rest of {words}" if self.rest else words


class Skipped(NamedTuple):
    """Task that did not fit the budget."""

    task: Task
    needed_s: float
    """Seconds that it takes."""
    remaining_s: float
    """Seconds that were left for it, without those kept for a proof."""
    matters: bool
    """It could have changed what is written."""
    cause: SkipCause
    """After a time limit it needs more than `needed_s`."""


class Objection(NamedTuple):
    """What is against a candidate, however fast it ran."""

    cause: LeftOutCause
    clause: str
    """Clause that follows `it`, or a sentence: where it is made says which."""
    kinds: tuple[str, ...] = ("batch_size",)
    """Kinds of changes that it speaks against; none: all."""


class LeftOut(NamedTuple):
    """Variant that ran faster and is neither written nor suggested."""

    what: str
    """Label of its changes."""
    gain: float
    """Ratio of the rates of one run and of the best so far."""
    cause: LeftOutCause
    clause: str
    """Reason against it, as it follows `in one run`: `. It would do other work.`"""
    is_open: bool = False
    """True if more runs could still judge its results."""

    @property
    def text(self) -> str:
        return f"{self.what}, {numbers.ratio(self.gain)} in one run{self.clause}".strip()


class NearMiss(NamedTuple):
    """Value that ran faster, but by less than equal runs differ: rounds may still tell."""

    knob: Knob
    value: JsonScalar
    gain: float
    """Ratio of the rates of one run and of the best so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """Stack of changes that ran faster, and that only the user can make."""

    title: str
    variant: Variant
    run: Run
    gain: float
    """Gain of its one run: how many rounds it gets is planned by it."""
    reason: str
    """Sentences for the report, without the gain."""
    less: "Suggestion | None" = None
    """This suggestion without its last step, to fall back on; None: it has one step."""
    outcome: Comparison | None = None
    """Rounds of the suggestion; None: not compared."""
    unfinished: bool = False
    """It was faster in its rounds, which were fewer than a proof takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityLog:
    """Figures of the declared quality measures, by measure; empty if none was measured."""

    reference: tuple[tuple[str, float], ...] = ()
    """Figures from which later calls count what is spent of each tolerance."""
    before: tuple[tuple[str, float], ...] = ()
    """Figures of the original; empty: it did not run the quality command."""
    compared: tuple[tuple[str, float], ...] = ()
    """Figures of `best` with the seeds and items of `after`."""
    after: tuple[tuple[str, float], ...] = ()
    """Figures of the latest candidate that was confirmed to be inside its tolerance."""
    judgements: tuple[tuple[str, QualityJudgement], ...] = ()
    """What was judged of each candidate, by its label."""
    best: Candidate | None = None
    """Best candidate without gated changes, which the others are compared with."""
    runs: tuple[Run, ...] = ()
    """Quality runs of `best`, with the seeds by which candidates are chosen."""

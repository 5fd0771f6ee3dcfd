"""The state of one search: the best so far, what was decided of each knob, and the tie rule."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from advisor import documents, knobs
from advisor.model import (
    Advice,
    Candidate,
    Ceilings,
    Change,
    Decision,
    Failure,
    JsonScalar,
    Knob,
    Machine,
    MeasurePlan,
    Outcome,
    Purpose,
    Run,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from advisor.quality import QualityJudgement
    from advisor.settings import Workload
    from advisor.tuning.runner import OverBudgetError, Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A document and what was found in it."""

    document: documents.Document
    findings: knobs.Findings


@dataclass(kw_only=True)
class Search:
    """What the stages read and write. One per `optimize`."""

    runner: Runner
    sources: tuple[Source, ...]
    """The config, and the command line: a document of its own."""
    workload: Workload
    machine: Machine
    memory_limit_gib: float
    """What a candidate may use: the target card's usable memory, or this host's RAM."""
    memory_owner: str
    """Whose memory that is, in words."""
    precisions: tuple[str, ...]
    """Compute dtypes that exist on the target, by torch name."""
    has_gpu: bool
    smallest_gain: float
    measure_s: float = 3.0
    noise: float = 0.0
    baseline: list[Run] = field(default_factory=list)
    best: Run | None = None
    best_candidate: Candidate = field(default_factory=Candidate)
    decisions: dict[tuple[str, str], Decision] = field(default_factory=dict)
    judgements: list[tuple[str, QualityJudgement]] = field(default_factory=list)
    """Candidate label and judgement."""
    quality_before: dict[str, float] = field(default_factory=dict)
    quality_after: dict[str, float] = field(default_factory=dict)
    advisable: list[tuple[Knob, int, Run]] = field(default_factory=list)
    """Faster, and the user's to decide: a training batch that no accumulation makes up for."""
    advice: list[Advice] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    stop_reason: str = ""
    cut_short: bool = False
    """The budget kept something from being run that could have changed the answer."""

    # --- measuring --------------------------------------------------------------------------

    @property
    def original(self) -> Run:
        """The baseline run that later ones are held against: the faster one, never flattered."""
        return max(self.baseline, key=lambda run: run.units_per_s)

    @property
    def iterative(self) -> bool:
        """Whether one unit takes many forwards: a diffusion sampler, a solver."""
        return (self.original.effects.forwards_per_unit or 1) >= 4

    @property
    def trains(self) -> bool:
        """Whether the program steps an optimizer."""
        return self.original.step_kind == "optimizer step"

    @property
    def ceilings(self) -> Ceilings | None:
        """The parts of the original alone, if they were measured."""
        for taken in self.runner.taken:
            if taken.purpose == "ceilings" and isinstance(taken.result, Run):
                return taken.result.ceilings
        return None

    @property
    def band(self) -> float:
        """Rates closer than this are a tie: the noise seen here, at least the smallest gain."""
        return max(self.smallest_gain, min(self.noise, 0.15))

    @property
    def level(self) -> float:
        """Rates closer than this are on one level: half the tie, one standard deviation.

        A neighbour on a rising curve is no stranger: what the other values did speaks for it, so
        less is asked than of a single run that claims to be faster.
        """
        return max(self.smallest_gain, self.band / 2)

    def plan(self, candidate: Candidate, **more: object) -> MeasurePlan:
        """A window for `candidate`; an iterative sampler's length follows its steps knob."""
        plan = MeasurePlan(
            measure_s=self.measure_s, min_steps=8, unit_regex=self.workload.unit_regex
        )
        if self.baseline and self.iterative:
            forwards = self.original.effects.forwards_per_unit or 1.0
            for change in candidate.changes:
                if change.kind == "timesteps" and isinstance(change.old, (int, float)):
                    forwards *= float(change.new or 0) / float(change.old)
            plan = replace(plan, forwards_per_unit=forwards)
        return replace(plan, **more)  # type: ignore[arg-type]

    def expected_s(self) -> float:
        """What one more short process will cost; those that finish an item only stand in."""
        seen = [
            taken
            for taken in self.runner.taken
            if not taken.reused and taken.purpose in {"baseline", "search"}
        ]
        short = [taken for taken in seen if not taken.whole] or seen
        return statistics.median(taken.result.wall_s for taken in short) if short else 0.0

    def finished_whole(self, candidate: Candidate) -> bool:
        """Whether `candidate` has run a whole item to its end, with its work checked."""
        return any(
            taken.whole and isinstance(taken.result, Run) and taken.candidate.key == candidate.key
            for taken in self.runner.taken
        )

    def run(
        self,
        candidate: Candidate,
        purpose: Purpose = "search",
        *,
        fresh: bool = False,
        **more: object,
    ) -> Run | Failure:
        """One short measured run of `candidate`. Raises OverBudgetError."""
        return self.runner.measure(
            candidate,
            purpose,
            self.plan(candidate, **more),
            fresh=fresh,
            expected_s=self.expected_s(),
        )

    def last_id(self) -> str:
        """Id of the newest trial, for evidence."""
        return self.runner.taken[-1].id

    def over_budget(self, what: str, problem: OverBudgetError, *, matters: bool = True) -> None:
        """Say what was not run because the budget is spent, and whether it could have won."""
        self.skipped.append(
            f"{what}: {problem} did not fit into what was left of the budget "
            f"({max(self.runner.left_s, 0):.0f} s)."
        )
        if matters:
            self.stop_reason, self.cut_short = "the budget is spent", True

    def adopt(self, candidate: Candidate, run: Run) -> None:
        """`candidate` is the best so far."""
        self.best_candidate, self.best = candidate, run

    def faster(self, run: Run, than: Run) -> bool:
        """Faster by more than a tie."""
        return run.units_per_s > than.units_per_s * (1 + self.band)

    # --- knobs and decisions ----------------------------------------------------------------

    @property
    def all_knobs(self) -> list[Knob]:
        """Every knob of every document."""
        return [knob for source in self.sources for knob in source.findings.knobs]

    def in_phase(self, knob: Knob) -> bool:
        """Whether the workload's phase uses `knob`, as far as the documents tell."""
        return self.workload.phase == "any" or knob.phase in {self.workload.phase, "any"}

    def of_kind(self, *kinds: str) -> list[Knob]:
        """Knobs of `kinds` that the workload's phase uses.

        Where a kind stands nowhere under that phase, its other knobs are taken: a program may use
        one value for all, and a knob it does not follow is found out when it is tried.
        """
        found = []
        for kind in kinds:
            knobs_ = [knob for knob in self.all_knobs if knob.kind == kind]
            found += [knob for knob in knobs_ if self.in_phase(knob)] or knobs_
        return found

    def tunable(self, *kinds: str) -> list[Knob]:
        """Knobs of `kinds` that may still move: editable, and neither ignored nor set aside."""
        return [
            knob
            for knob in self.of_kind(*kinds)
            if knob.editable
            and (
                (decision := self.decisions.get((knob.document, knob.path))) is None
                or decision.outcome in {"changed", "kept"}
            )
        ]

    def undecided(self, *kinds: str) -> list[Knob]:
        """Knobs of `kinds` that may be edited and are not decided yet; the others are decided."""
        found = []
        for knob in self.of_kind(*kinds):
            if (knob.document, knob.path) in self.decisions:
                continue
            if not knob.editable:
                self.decide(knob, "refused", left_alone(knob))
            else:
                found.append(knob)
        return found

    def decide(
        self,
        knob: Knob,
        outcome: Outcome,
        why: str,
        *,
        new: JsonScalar | tuple[JsonScalar, ...] = None,
        evidence: Iterable[str] = (),
        trials: Iterable[str] = (),
    ) -> None:
        """Settle `knob`; a later word replaces an earlier one and keeps its evidence."""
        key = (knob.document, knob.path)
        earlier = self.decisions.get(key)
        self.decisions[key] = Decision(
            document=knob.document,
            path=knob.path,
            kind=knob.kind,
            knob_class=knob.knob_class,
            outcome=outcome,
            old=knob.value,
            new=new if outcome == "changed" else knob.value,
            why=why,
            evidence=tuple(dict.fromkeys((*(earlier.evidence if earlier else ()), *evidence))),
            trials=tuple(dict.fromkeys((*(earlier.trials if earlier else ()), *trials))),
        )

    def current(self, knob: Knob) -> JsonScalar | tuple[JsonScalar, ...]:
        """The knob's value in the best candidate."""
        for change in self.best_candidate.changes:
            if (change.document, change.path) == (knob.document, knob.path):
                return change.new
        return knob.value

    def with_value(self, knob: Knob, value: JsonScalar) -> Candidate | knobs.Refusal:
        """The best candidate with `knob` at `value` and everything linked to it moved along."""
        source = next(s for s in self.sources if s.document.name == knob.document)
        moved = knobs.move(source.document, source.findings, knob.path, value)
        if isinstance(moved, knobs.Refusal):
            return moved
        return self.best_candidate.with_changes(*moved)


def left_alone(knob: Knob) -> str:
    """Why a knob that may not be edited was not: the reason alone, without how it was found."""
    return f"Left alone: {knob.why.rpartition('not editable: ')[2]}."


def shown(run: Run) -> str:
    """`1.61 tiles/s`, for evidence."""
    return f"{figure(run.units_per_s)} {run.unit}s/s"


def figure(value: float) -> str:
    """Three significant digits without an exponent: `3,460`, `0.0214`."""
    return f"{float(f'{value:.3g}'):,.10g}"


def single(change: Change) -> str:
    """`batch_size 1 to 8`, for evidence."""
    return f"{change.path.rsplit('.', 1)[-1]} {change.old} to {change.new}"

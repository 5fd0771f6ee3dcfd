"""What a search knows after each result.

The tuner is pure. A stage takes a state, yields requests, is sent results and ends with another
state; no clock, file or process is read on the way. A search is therefore replayed from its
results alone, which is all that resuming and the simulated searches of the tests need.
"""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Self, TypeGuard

from advisor import numbers
from advisor.executor.comparison import Comparison
from advisor.executor.requests import AFTER, KnobKey, SkippedRun, TrialResult
from advisor.executor.rounds import COLLAPSED
from advisor.knobs.discovery import Followed
from advisor.model import (
    SAMPLER_FORWARDS,
    Candidate,
    Change,
    DecisionCause,
    JsonScalar,
    Knob,
    MeasurePlan,
    Phase,
    Run,
    SkipCause,
    leaf_of,
)
from advisor.stats import noise_band, own_share
from advisor.tuner import policy
from advisor.tuner.context import TuningContext
from advisor.tuner.costs import ProcessCosts
from advisor.tuner.outcomes import (
    KnobVerdict,
    LeftOut,
    NearMiss,
    QualityLog,
    Skipped,
    Suggestion,
    Task,
)

KEPT = "gpu-advisor.toml keeps it"
"""Why a setting is not edited that its user named."""


Result = TrialResult | Comparison | SkippedRun
"""What a stage is sent for a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerState:
    """What a search knows after its results so far.

    `best` is the candidate that stages build upon, first by runs of the search and then by
    confirmations; what may be written is `confirm.proven_candidate` alone.
    """

    context: TuningContext
    remaining_s: float
    followed: tuple[Followed, ...] = ()
    """Settings that a run showed the program to follow, where no name told what they are."""
    originals: tuple[Run, ...] = ()
    """Baselines: runs of the original by this call."""
    costs: ProcessCosts = field(default_factory=ProcessCosts)
    best: Candidate = field(default_factory=Candidate)
    best_run: Run | None = None
    """Run by which `best` was adopted, or the best of its rounds; None: the original is best."""
    verdicts: tuple[KnobVerdict, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    confirmations: tuple[Comparison, ...] = ()
    """Comparisons of `best` with what is proven or the original, in their order."""
    likely: bool = False
    """The latest candidate was faster, and rounds have not proven it."""
    suggestions: tuple[Suggestion, ...] = ()
    near_misses: tuple[NearMiss, ...] = ()
    second_look: bool = False
    """A gain that noise may explain counts as faster for now: rounds will tell."""
    left_out: tuple[LeftOut, ...] = ()
    by_hand: bool = False
    """What is tried now may only be suggested: nothing that is written depends on it."""
    quality: QualityLog = field(default_factory=QualityLog)

    @property
    def original(self) -> Run:
        """Best of the baselines, so that no gain is flattered.

        Of three or more, one at twice the speed of each other is no measure: the machine has slowed
        since. Beside it nothing that runs now would look faster, and rounds would never ask.
        """
        best = self.context.objective.best(self.originals)
        others = [run for run in self.originals if run is not best]
        if len(others) < 2:
            return best
        second = self.context.objective.best(others)
        return second if self.gain(best, second) >= COLLAPSED else best

    @property
    def steady_originals(self) -> tuple[Run, ...]:
        """Baselines within twice the original's speed; all where fewer than two are left."""
        near = tuple(
            run
            for run in self.originals
            if 1 / COLLAPSED < self.gain(self.original, run) < COLLAPSED
        )
        return near if len(near) > 1 else self.originals

    @property
    def incumbent_run(self) -> Run:
        """Run of the best candidate so far, or of the original."""
        return self.best_run or self.original

    @property
    def incumbent_runs(self) -> tuple[Run, ...]:
        """Runs of the best so far: its rounds, else the adopted one; of the original, baselines."""
        if not self.best.changes:
            return self.steady_originals
        return self.confirmation_runs(self.best) or (self.incumbent_run,)

    def confirmation_runs(self, candidate: Candidate) -> tuple[Run, ...]:
        """Runs of `candidate` in its latest confirmation; none if it was not confirmed."""
        for comparison in reversed(self.confirmations):
            if comparison.ab_test.after.candidate.key == candidate.key and comparison.runs(
                AFTER
            ):
                return comparison.runs(AFTER)
        return ()

    def why_unproven(self, knob: Knob) -> str:
        """Why a value of `knob` that a trial found faster is not proven, as a clause."""
        compared = [
            comparison
            for comparison in self.confirmations
            if change_of(comparison.ab_test.after.candidate, knob) is not None
        ]
        if any(comparison.runs(AFTER) for comparison in compared):
            return "its rounds did not prove the gain"
        return "no rounds that would prove it ran"

    @property
    def iterative(self) -> bool:
        """True if one unit takes many forwards: a diffusion sampler, a solver."""
        return (self.original.effects.forwards_per_unit or 1) >= SAMPLER_FORWARDS

    @property
    def trains(self) -> bool:
        """True if the program trains, or may: no model was seen, and it is not declared a test."""
        doubtful = self.context.workload.phase not in {"test", "eval"}
        return any(run.trains or (doubtful and run.unseen) for run in self.originals)

    @property
    def waits(self) -> bool:
        """True if the best so far waits for its data long enough that faster loading may gain."""
        return (self.incumbent_run.wait_share or 0.0) > policy.MIN_WAIT_SHARE

    @property
    def computes_on_cpus(self) -> bool:
        """True if the best so far computes on the CPUs that loader workers use, too."""
        device = self.incumbent_run.effects.device or (
            "cuda" if self.context.has_gpu else "cpu"
        )
        return device.startswith("cpu")

    @property
    def copies(self) -> bool:
        """True if copies to a GPU take time, which pinned memory shortens."""
        return (self.incumbent_run.shares.host_to_device or 0.0) > policy.MIN_WAIT_SHARE

    @property
    def pads(self) -> bool:
        """True if padding fills many positions, which items of like length would save."""
        return (self.incumbent_run.effects.padding_share or 0.0) >= policy.WORTH_GROUPING

    @property
    def loader_alone(self) -> dict[int, float]:
        """Highest units/s of the loader alone, by number of workers."""
        rates: dict[int, list[float]] = {}
        for run in self.originals:
            for ceiling in run.ceilings:
                rates.setdefault(ceiling.workers, []).append(ceiling.units_per_s)
        return {workers: max(measured) for workers, measured in rates.items()}

    @property
    def noise(self) -> float:
        """Relative spread between equal processes of the original (`stats.noise_band`)."""
        return self.noise_of(Candidate())

    def noise_of(self, candidate: Candidate) -> float:
        """Relative spread between equal processes of a candidate, by its latest rounds.

        That of the original where it has too few.
        """
        return noise_band(self.rates_of_parts(candidate)) or 0.0

    def rates_of_parts(self, candidate: Candidate) -> list[tuple[float, ...]]:
        """Rates of the parts of equal runs, by run: a candidate's latest rounds, or baselines."""
        compared = self.confirmation_runs(candidate)
        runs = compared if len(compared) > 1 else self.steady_originals
        return [run.windows or (run.units_per_s,) for run in runs]

    @property
    def apart(self) -> str:
        """How far parts of equal runs were apart: `parts of equal runs were up to 1.35x apart`.

        Parts with the same items, where these and not the runs make them differ.
        """
        runs = self.rates_of_parts(self.best)
        sets = list(zip(*runs, strict=True)) if own_share(runs) < 1 else [sum(runs, ())]
        largest_ratio = max(max(rates) / max(min(rates), 1e-9) for rates in sets)
        return f"parts of equal runs were up to {numbers.ratio(largest_ratio)} apart"

    def sigma_of(self, candidate: Candidate) -> float:
        """Standard deviation of a log ratio of two such processes; noise is twice that of one."""
        return self.noise_of(candidate) / 2 * 2**0.5

    @property
    def tie_threshold(self) -> float:
        """Relative difference up to which two runs tie; at a second look noise makes no tie."""
        noise = 0.0 if self.second_look else min(self.noise_of(self.best), policy.MAX_TIE)
        return max(self.context.smallest_gain, noise)

    @property
    def tie_percent(self) -> str:
        """Tie threshold as text, and how far equal runs were apart where noise is more."""
        text = f"{100 * self.tie_threshold:.2g} %"
        if self.noise_of(self.best) > self.tie_threshold:
            return f"{text} ({self.apart})"
        return text

    def gain(self, run: Run, than: Run) -> float:
        """Ratio by which one run is better than another, by the objective."""
        score = self.context.objective.score
        return self.context.objective.metric.gain(score(than), score(run))

    def gain_over_incumbent(self, run: Run) -> float:
        """Ratio by which `run` is better than the best so far, by the median of its runs."""
        return self.gain_over(self.incumbent_runs, run)

    def gain_over(self, others: Iterable[Run], run: Run) -> float:
        """Ratio by which `run` is better than the median of others, as tables tell it."""
        score = self.context.objective.score
        return self.context.objective.metric.gain(
            statistics.median(map(score, others)), score(run)
        )

    def is_faster(self, run: Run, than: Run) -> bool:
        """True if `run` beats `than` by more than a tie, or keeps the constraints and `than` not.

        One run against one. What is faster in this way goes on in the search; what is written
        or suggested has proven it in rounds (`Comparison.proven`).
        """
        objective = self.context.objective
        if objective.broken(run):
            return False
        return bool(objective.broken(than)) or self.gain(run, than) > 1 + self.tie_threshold

    def beats_incumbent(self, run: Run) -> bool:
        """True if `run` is faster than the best so far, by its adopted run.

        At a second look by the median of its runs. Rounds will tell then, and the best of several
        equal runs would hide a gain that is smaller than they differ.
        """
        if not self.second_look or self.context.objective.broken(self.incumbent_run):
            return self.is_faster(run, self.incumbent_run)
        broken = self.context.objective.broken(run)
        return not broken and self.gain_over_incumbent(run) > 1 + self.tie_threshold

    @property
    def is_unproven(self) -> bool:
        """True for a best candidate that no rounds have compared yet."""
        return bool(self.best.changes) and not self.confirmation_runs(self.best)

    def with_result(self, result: Result) -> Self:
        """With the budget that `result` left; what it showed is for the stage to judge."""
        costs = self.costs.with_result(result)
        return replace(self, remaining_s=result.remaining_s, costs=costs)

    def set_verdict(self, knob: Knob | Change, cause: DecisionCause, reason: str) -> Self:
        """With a verdict on `knob` that replaces an earlier one."""
        verdict = KnobVerdict(key_of(knob), cause, reason)
        others = (other for other in self.verdicts if other.knob != verdict.knob)
        return replace(self, verdicts=(*others, verdict))

    def skip(
        self,
        task: Task,
        needed_s: float,
        *,
        kept_s: float = 0.0,
        matters: bool = True,
        cause: SkipCause = "no-room",
    ) -> Self:
        """State in which `task` did not fit the budget beside `kept_s`; fields as in Skipped."""
        entry = Skipped(task, needed_s, self.remaining_s - kept_s, matters, cause)
        return replace(self, skipped=(*self.done(task).skipped, entry))

    def done(self, task: Task) -> Self:
        """State in which `task` is no longer skipped."""
        others = tuple(skipped for skipped in self.skipped if skipped.task != task)
        return replace(self, skipped=others)

    def adopt(self, candidate: Candidate, run: Run) -> Self:
        """State with `candidate` as the best, by `run`."""
        return replace(self, best=candidate, best_run=run)

    @property
    def all_knobs(self) -> list[Knob]:
        """Knobs of all documents; those that the user wants to keep are not edited."""
        knobs = [knob for source in self.context.sources for knob in source.findings.knobs]
        return [replace(knob, frozen=KEPT) if self.keeps(knob) else knob for knob in knobs]

    def keeps(self, setting: Knob | Change) -> bool:
        """True if gpu-advisor.toml names the setting in `keep`."""
        names = {setting.path, leaf_of(setting.path), setting.kind}
        return not names.isdisjoint(self.context.workload.keep)

    def in_code(self, knob: Knob) -> bool:
        """True for a value of the running program, which no file holds."""
        documents_ = (source.document for source in self.context.sources)
        return any(d.name == knob.document and d.format == "process" for d in documents_)

    def verdict_on(self, knob: Knob | Change) -> KnobVerdict | None:
        return next(
            (verdict for verdict in self.verdicts if verdict.knob == key_of(knob)), None
        )

    def of_kind(self, *kinds: str) -> list[Knob]:
        """Knobs of each kind that belong to the running phase.

        Where none of a kind does, those of other phases stand in, unless the program trains.
        """
        knobs = []
        for kind in kinds:
            of_all_phases = [knob for knob in self.all_knobs if knob.kind == kind]
            of_this_phase = [knob for knob in of_all_phases if self.in_phase(knob)]
            others = of_all_phases if self.phase != "train" else []
            knobs += of_this_phase or others
        return knobs

    @property
    def phase(self) -> Phase:
        """Phase that runs: as declared; undeclared, training where updates were seen."""
        declared = self.context.workload.phase
        if declared == "any" and any(run.updates for run in self.originals):
            return "train"
        return declared

    def in_phase(self, knob: Knob) -> bool:
        """True if the knob may belong to the phase that runs."""
        return self.phase == "any" or knob.phase in {self.phase, "any"}

    def tunable(self, *kinds: str) -> list[Knob]:
        """Knobs of `kinds` that may be edited, unless a verdict has put them aside."""
        verdicts = (
            (knob, self.verdict_on(knob)) for knob in self.of_kind(*kinds) if knob.editable
        )
        return [
            knob
            for knob, verdict in verdicts
            if verdict is None or verdict.outcome in {"found", "kept"}
        ]

    def held_by_config(self, kind: str) -> bool:
        """True if a document has such a knob, which is neither ignored nor only listed."""
        verdicts = [self.verdict_on(knob) for knob in self.of_kind(kind)]
        return any(
            verdict is None or verdict.outcome not in {"ignored", "listed"}
            for verdict in verdicts
        )

    def current(self, knob: Knob) -> JsonScalar | tuple[JsonScalar, ...]:
        """Value of the knob in the best candidate."""
        change = change_of(self.best, knob)
        return knob.value if change is None else change.new

    def plan(self, candidate: Candidate, **more: object) -> MeasurePlan:
        """Plan of one process of `candidate`, with `more` of the plan's fields as given.

        What the baselines showed is used: a program that was not seen to train is not waited for
        until it does, and a sampler whose forwards an item are known may stop inside an item.

        Runs of a training begin at one seed, all but the first baseline: many programs build their
        network before they seed, and losses tell nothing of other weights. Results of inference
        are not given equal draws. Another batch would draw otherwise, and look as if it changed
        what the program otherwise draws anew.
        """
        workload = self.context.workload
        plan = MeasurePlan(measure_s=self.context.measure_s, min_steps=policy.MIN_STEPS)
        plan = replace(plan, validation=workload.validation, unit_regex=workload.unit_regex)
        never_trained = self.originals and not any(run.trains for run in self.originals)
        plan = replace(plan, trains=False if never_trained else workload.trains)
        plan = replace(plan, one_seed=any(run.updates for run in self.originals))
        if self.originals and self.iterative:
            forwards = self.original.effects.forwards_per_unit or 1.0
            for change in candidate.changes:
                if change.kind == "timesteps" and isinstance(change.old, (int, float)):
                    forwards *= float(change.new or 0) / float(change.old)
            plan = replace(plan, forwards_per_unit=forwards)
        return replace(plan, **more)  # type: ignore[arg-type]

    def short_plan(self) -> MeasurePlan:
        """Plan of a run that only shows which settings the program follows: a short window."""
        stepping_s = self.original.wall_s - (self.original.startup_s or 0.0)
        return self.plan(
            Candidate(),
            measure_s=min(policy.FOLLOWING_WINDOW_S, self.context.measure_s),
            min_steps=policy.FOLLOWING_STEPS,
            # rounded up to a power of two: the next call finds this run in its history
            longest_s=2.0 ** math.ceil(math.log2(max(policy.FOLLOWING_STEP_S, stepping_s))),
        )


def is_whole(value: object) -> TypeGuard[int]:
    """True for a count of one or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def key_of(knob: Knob | Change) -> KnobKey:
    return knob.document, knob.path


def change_of(candidate: Candidate, knob: Knob | Change) -> Change | None:
    return next((c for c in candidate.changes if key_of(c) == key_of(knob)), None)

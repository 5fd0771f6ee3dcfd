"""Context of a search, and its frozen state after each result.

The tuner is pure. A stage takes a state, yields requests, is sent results and ends with another
state; no clock, file or process is read on the way. A search is therefore replayed from its
results alone, which is all that resuming and the simulated searches of the tests need.
"""

import math
import statistics
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, NamedTuple, Self, TypeGuard, TypeVar

from advisor import config as documents, knobs, numbers
from advisor.executor.comparison import AFTER, COLLAPSED, Comparison
from advisor.executor.requests import (
    ABTest,
    KnobKey,
    SkippedRun,
    TrialRequest,
    TrialResult,
    Variant,
)
from advisor.knobs.discovery import Followed
from advisor.model import (
    OUTCOMES,
    SAMPLER_FORWARDS,
    Candidate,
    Change,
    DecisionCause,
    JsonScalar,
    Knob,
    KnobClass,
    MeasurePlan,
    Phase,
    Purpose,
    Run,
    TaskKind,
    TuningResult,
)
from advisor.objective import Objective
from advisor.quality import QualityJudgement
from advisor.settings import Workload
from advisor.stats import noise_band
from advisor.tuner import policy


class Source(NamedTuple):
    """A document that holds settings, and the knobs that were found in it."""

    document: documents.Document
    findings: knobs.Findings


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningContext:
    """All that is known before the first trial, and never changes but for knobs that are found."""

    sources: tuple[Source, ...]
    """The config, and the command line as its own document."""
    workload: Workload
    objective: Objective
    cpus: int
    memory_limit_gib: float
    """Usable memory of the target card, or this host."""
    host_memory_gib: float = math.inf
    """Memory of this host that the program may use."""
    precisions: tuple[str, ...]
    """Compute dtypes of the target, by torch name."""
    has_gpu: bool
    smallest_gain: float
    budget_s: float
    safe: bool = False
    """Refuse all that could change rounding or the product."""
    measure_s: float = 3.0
    quality_reference: tuple[tuple[str, float], ...] = ()
    """Quality by measure from before the first rewrite."""

    def allows(self, knob_class: KnobClass) -> bool:
        return not self.safe or knob_class in {"free", "training"}

    @property
    def consents(self) -> bool:
        """True if results may change within a tolerance."""
        return self.workload.numeric_tolerance is not None or bool(self.workload.quality)


Result = TrialResult | Comparison | SkippedRun

OUT_OF_TIME = "The budget was spent before another value could run."


class KnobVerdict(NamedTuple):
    """Verdict of a stage on a knob, before confirmation."""

    knob: KnobKey
    cause: DecisionCause
    reason: str

    @property
    def outcome(self) -> TuningResult | Literal["found"]:
        """What follows; found: a better value, to be confirmed."""
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
"""Tasks of a search, in words."""


class Task(NamedTuple):
    """Part of a search that takes time."""

    kind: TaskKind
    about: str = ""
    """Label of a candidate, or title of a suggestion."""
    rest: bool = False
    """What its end left over."""

    @property
    def text(self) -> str:
        words = TASKS[self.kind].format(self.about)
        return f"the rest of {words}" if self.rest else words


class Skipped(NamedTuple):
    """Task that did not fit the budget."""

    task: Task
    needed_s: float
    remaining_s: float
    """Left for it, beside the confirmation's time."""
    matters: bool
    """It could have changed what is written."""
    stopped: bool


class LeftOut(NamedTuple):
    """Faster code change that is not suggested."""

    what: str
    gain: float
    why: str
    is_open: bool = False
    """More runs could still judge its results."""

    @property
    def text(self) -> str:
        return f"{self.what}, {numbers.ratio(self.gain)} in one run{self.why}".strip()


class NearMiss(NamedTuple):
    """Value that ran faster, by less than equal runs differ."""

    knob: Knob
    value: JsonScalar
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """Faster change for the user to make."""

    title: str
    variant: Variant
    run: Run
    gain: float
    """Gain of single runs: it plans the rounds."""
    reason: str
    """Sentences for the report, without the gain."""
    less: "Suggestion | None" = None
    """The same without its last step, to fall back on."""
    outcome: Comparison | None = None
    unfinished: bool = False
    """Faster so far, in fewer rounds than its proof would take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityLog:
    """Declared measures; empty if none was measured."""

    reference: tuple[tuple[str, float], ...] = ()
    """Figures that later calls count from."""
    before: tuple[tuple[str, float], ...] = ()
    """The original's own; empty: it did not run the quality command."""
    compared: tuple[tuple[str, float], ...] = ()
    """Those of `best` on the seeds and items of `after`."""
    after: tuple[tuple[str, float], ...] = ()
    judgements: tuple[tuple[str, QualityJudgement], ...] = ()
    best: Candidate | None = None
    """Free candidate that the others are compared with."""
    runs: tuple[Run, ...] = ()
    """Its quality runs, with choosing seeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerState:
    """What a search knows after its results so far.

    `best` is the candidate that stages build upon, first by runs of the search and then by
    confirmations; what may be written is `confirm.proven_candidate` alone.
    """

    context: TuningContext
    remaining_s: float
    followed: tuple[Followed, ...] = ()
    """Values that a run showed to be knobs, and no name did."""
    originals: tuple[Run, ...] = ()
    costs_s: tuple[float, ...] = ()
    """Budget of each short process, with waits and repetitions."""
    delays: tuple[float, ...] = ()
    """Those costs over each process's own wall time."""
    best: Candidate = field(default_factory=Candidate)
    best_run: Run | None = None
    verdicts: tuple[KnobVerdict, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    confirmations: tuple[Comparison, ...] = ()
    """Each against the one before, the first against the original."""
    likely: bool = False
    """A faster candidate is not confirmed yet."""
    suggestions: tuple[Suggestion, ...] = ()
    near_misses: tuple[NearMiss, ...] = ()
    second_look: bool = False
    """A run within the tie counts as faster: only a comparison can tell."""
    left_out: tuple[LeftOut, ...] = ()
    by_hand: bool = False
    """What is tried now may only be suggested: nothing that is written depends on it."""
    quality: QualityLog = field(default_factory=QualityLog)

    @property
    def original(self) -> Run:
        """Better baseline run, so that no gain is flattered."""
        return self.context.objective.best(self.originals)

    @property
    def steady_originals(self) -> tuple[Run, ...]:
        """Baselines near the best, if two or more are."""
        near = tuple(
            run for run in self.originals if self.gain(self.original, run) < COLLAPSED
        )
        return near if len(near) > 1 else self.originals

    @property
    def incumbent_run(self) -> Run:
        """Run of the best candidate so far."""
        return self.best_run or self.original

    @property
    def incumbent_runs(self) -> tuple[Run, ...]:
        """Comparable runs of the best candidate so far."""
        if not self.best.changes:
            return self.steady_originals
        return self.confirmation_runs(self.best) or (self.incumbent_run,)

    def confirmation_runs(self, candidate: Candidate) -> tuple[Run, ...]:
        """Runs of `candidate` in its latest confirmation."""
        for each in reversed(self.confirmations):
            if each.ab_test.after.candidate.key == candidate.key and each.runs(AFTER):
                return each.runs(AFTER)
        return ()

    @property
    def iterative(self) -> bool:
        """True if one unit takes many forwards: a diffusion sampler, a solver."""
        return (self.original.effects.forwards_per_unit or 1) >= SAMPLER_FORWARDS

    @property
    def trains(self) -> bool:
        """True if the program trains, or in doubt."""
        doubtful = self.context.workload.phase not in {"test", "eval"}
        return any(run.trains or (doubtful and run.unseen) for run in self.originals)

    @property
    def waits(self) -> bool:
        return (self.incumbent_run.wait_share or 0.0) > policy.MIN_WAIT_SHARE

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
        """Best units/s of the loader alone by worker count."""
        rates: dict[int, list[float]] = {}
        for run in self.originals:
            for ceiling in run.ceilings:
                rates.setdefault(ceiling.workers, []).append(ceiling.units_per_s)
        return {workers: max(each) for workers, each in rates.items()}

    @property
    def noise(self) -> float:
        """Relative spread between equal processes of the original."""
        return self.noise_of(Candidate())

    def noise_of(self, candidate: Candidate) -> float:
        """Spread of equal processes of a candidate, else of the original."""
        compared = self.confirmation_runs(candidate)
        runs = compared if len(compared) > 1 else self.steady_originals
        return noise_band([run.windows or (run.units_per_s,) for run in runs]) or 0.0

    def sigma_of(self, candidate: Candidate) -> float:
        """Standard deviation of a log ratio of two such processes."""
        return self.noise_of(candidate) / 2 * 2**0.5

    @property
    def tie_threshold(self) -> float:
        """Relative difference below which runs tie."""
        noise = 0.0 if self.second_look else min(self.noise_of(self.best), policy.MAX_TIE)
        return max(self.context.smallest_gain, noise)

    @property
    def tie_percent(self) -> str:
        """Tie threshold as text, with the noise of equal runs if larger."""
        shown = f"{100 * self.tie_threshold:.2g} %"
        noise = self.noise_of(self.best)
        if noise > self.tie_threshold:
            return f"{shown} (equal runs differed by {numbers.percent(noise)})"
        return shown

    def gain(self, run: Run, than: Run) -> float:
        score = self.context.objective.score
        return self.context.objective.metric.gain(score(than), score(run))

    def gain_over_incumbent(self, run: Run) -> float:
        score = self.context.objective.score
        median = statistics.median(map(score, self.incumbent_runs))
        return self.context.objective.metric.gain(median, score(run))

    def is_faster(self, run: Run, than: Run) -> bool:
        """True if `run` beats `than` by a tie or alone keeps constraints.

        One run against one. What is faster in this way goes on in the search; what is written
        or suggested has proven it in rounds (`Comparison.proven`).
        """
        objective = self.context.objective
        if objective.broken(run):
            return False
        return bool(objective.broken(than)) or self.gain(run, than) > 1 + self.tie_threshold

    def beats_incumbent(self, run: Run) -> bool:
        """True if `run` is faster than the best so far, by the better of its runs.

        At a second look by their median: rounds will tell, and the best of several equal runs hides
        a gain that is smaller than they differ.
        """
        if not self.second_look or self.context.objective.broken(self.incumbent_run):
            return self.is_faster(run, self.incumbent_run)
        broken = self.context.objective.broken(run)
        return not broken and self.gain_over_incumbent(run) > 1 + self.tie_threshold

    @property
    def price_s(self) -> float:
        """Wall time of one more short process; cold starts do not count."""
        usual_s = [
            cost_s
            for cost_s in self.costs_s
            if cost_s <= policy.COLD_START * min(self.costs_s)
        ]
        return statistics.median(usual_s) if usual_s else 0.0

    def again_s(self, run: Run | None) -> float:
        """Wall time of `run`'s candidate once more."""
        return max(self.price_s, run.wall_s) if run is not None else self.price_s

    @property
    def round_s(self) -> float:
        """Wall time of a confirming round, with a margin."""
        confirmed = self.confirmation_runs(self.best.only("free", "training"))
        base_s = self.again_s(confirmed[-1]) if confirmed else self.price_s
        return policy.ROUND_FACTOR * (base_s + self.again_s(self.best_run))

    @property
    def proof_s(self) -> float:
        """Time that a proof is planned to take: more beside other programs, at most about half.

        As many rounds as a quarter of the budget buys, up to those with exact bounds. Where other
        programs delay the processes, rounds will be repeated: their delay is planned for.
        """
        most = policy.GOOD_ROUNDS if self.context.consents else policy.MOST_RESERVED
        bought = int(self.context.budget_s / max(self.price_s, 1e-9) / 4)
        planned_s = self.round_s * min(most, max(policy.FEWEST_ROUNDS, bought))
        recent = self.delays[-policy.RECENT_PROCESSES :]
        if len(recent) < policy.FEWEST_ROUNDS:
            return planned_s
        delay = statistics.quantiles(recent, method="inclusive")[-1]
        delayed_s = policy.GOOD_ROUNDS * self.round_s * delay
        return max(planned_s, min(delayed_s, self.context.budget_s / 2))

    @property
    def is_unproven(self) -> bool:
        """True for a best candidate that no rounds have compared yet."""
        return bool(self.best.changes) and not self.confirmation_runs(self.best)

    @property
    def reserve_s(self) -> float:
        """Time kept to confirm the best candidate."""
        return self.reserve_for(found=self.is_unproven)

    def reserve_for(self, *, found: bool) -> float:
        """Time kept beside the next trial: for the proof, if something was found to be proven.

        Before that there is nothing to prove, and half of the budget would be kept for it while
        settings stay untried. The fewest rounds are kept all the same: a find without any is lost.
        """
        return (
            self.proof_s
            if found
            else min(self.proof_s, policy.FEWEST_ROUNDS * self.round_s)
        )

    def search_reserve_s(self, *, found: bool) -> float:
        """Time that a search of free settings keeps: for their proof, and for sampling steps."""
        kept_s = self.reserve_for(found=found)
        if not self.judges_steps:
            return kept_s
        free = len(self.originals) + policy.SEARCH_PROCESSES
        judging_s = policy.JUDGING_PROCESSES * self.price_s
        whole_s = self.proof_s + free * self.price_s + judging_s
        return kept_s + (judging_s if whole_s <= self.context.budget_s else 0.0)

    @property
    def judges_steps(self) -> bool:
        """True if sampling steps are still to be tried, with a declared quality to judge them."""
        wanted = bool(self.context.workload.quality) and not self.context.safe
        return wanted and any(
            self.verdict_on(knob) is None for knob in self.tunable("timesteps")
        )

    @property
    def gated_reserve_s(self) -> float:
        """Time kept to confirm a candidate on top of a proven one."""
        return min(self.proof_s, policy.GATED_ROUNDS * self.round_s)

    @property
    def fewest_s(self) -> float:
        """Least time for one candidate and its confirmation."""
        return self.price_s + policy.FEWEST_ROUNDS * self.round_s

    def budget_for(self, more_s: float) -> float:
        """Budget that holds `more_s` of processes beside its present time."""
        return policy.NAMED_BUDGET_FACTOR * (self.context.budget_s + more_s)

    def with_result(self, result: Result) -> Self:
        """After `result`: clock and prices only."""
        state = replace(self, remaining_s=result.remaining_s)
        if not isinstance(result, TrialResult) or result.run is None or result.reused:
            return state
        run, request = result.run, result.request
        timed = request.purpose in {"search", "confirm"} and not request.plan.whole
        if not timed and request.purpose != "baseline":
            return state
        cost_s = max(result.took_s, run.wall_s)
        delay = cost_s / max(run.wall_s, 1e-9)
        if request.plan.ceilings_workers and run.window_ended_s is not None:
            cost_s -= max(0.0, run.wall_s - run.window_ended_s - policy.ENDING_S)
        return replace(state, costs_s=(*self.costs_s, cost_s), delays=(*self.delays, delay))

    def set_verdict(self, knob: Knob | Change, cause: DecisionCause, reason: str) -> Self:
        """With a verdict on `knob` that replaces an earlier one."""
        verdict = KnobVerdict(key_of(knob), cause, reason)
        others = (each for each in self.verdicts if each.knob != verdict.knob)
        return replace(self, verdicts=(*others, verdict))

    def skip(
        self,
        task: Task,
        needed_s: float,
        *,
        kept_s: float = 0.0,
        matters: bool = True,
        stopped: bool = False,
    ) -> Self:
        entry = Skipped(task, needed_s, self.remaining_s - kept_s, matters, stopped)
        return replace(self, skipped=(*self.done(task).skipped, entry))

    def done(self, task: Task) -> Self:
        """State without an earlier skip of `task`."""
        others = tuple(each for each in self.skipped if each.task != task)
        return replace(self, skipped=others)

    def adopt(self, candidate: Candidate, run: Run) -> Self:
        return replace(self, best=candidate, best_run=run)

    @property
    def all_knobs(self) -> list[Knob]:
        return [knob for source in self.context.sources for knob in source.findings.knobs]

    def in_code(self, knob: Knob) -> bool:
        """True for a value of the running program, which no file holds."""
        documents_ = (source.document for source in self.context.sources)
        return any(d.name == knob.document and d.format == "process" for d in documents_)

    def verdict_on(self, knob: Knob | Change) -> KnobVerdict | None:
        return next((each for each in self.verdicts if each.knob == key_of(knob)), None)

    def of_kind(self, *kinds: str) -> list[Knob]:
        """Knobs of `kinds` in the running phase, or else in others."""
        found = []
        for kind in kinds:
            alike = [knob for knob in self.all_knobs if knob.kind == kind]
            own = [knob for knob in alike if self.in_phase(knob)]
            found += own or (alike if self.phase != "train" else [])
        return found

    @property
    def phase(self) -> Phase:
        """Running phase: as declared, or training where updates were seen."""
        declared = self.context.workload.phase
        return (
            "train"
            if declared == "any" and any(r.updates for r in self.originals)
            else declared
        )

    def in_phase(self, knob: Knob) -> bool:
        return self.phase == "any" or knob.phase in {self.phase, "any"}

    def tunable(self, *kinds: str) -> list[Knob]:
        verdicts = (
            (knob, self.verdict_on(knob)) for knob in self.of_kind(*kinds) if knob.editable
        )
        return [
            k for k, each in verdicts if each is None or each.outcome in {"found", "kept"}
        ]

    def held_by_config(self, kind: str) -> bool:
        """True if a tunable knob of the documents sets this."""
        verdicts = [self.verdict_on(knob) for knob in self.of_kind(kind)]
        return any(
            each is None or each.outcome not in {"ignored", "listed"} for each in verdicts
        )

    def current(self, knob: Knob) -> JsonScalar | tuple[JsonScalar, ...]:
        change = change_of(self.best, knob)
        return knob.value if change is None else change.new

    def with_value(self, knob: Knob, value: JsonScalar) -> Candidate | knobs.InvalidChange:
        """Best candidate with `knob` at `value`, links moved along."""
        source = next(s for s in self.context.sources if s.document.name == knob.document)
        beside = {c.path: c.new for c in self.best.changes if c.document == knob.document}
        move = partial(knobs.move, source.document, source.findings, knob.path)
        moved = move(value, beside)
        if isinstance(moved, knobs.InvalidChange):
            return moved
        along = self._accumulation_elsewhere(knob, value)
        if isinstance(along, knobs.InvalidChange):
            return along
        moved = (*moved, *along)
        change = change_of(self.best, knob)
        if change is not None and value == knob.value:  # links go back too
            away = move(change.new, beside, beyond=True)
            back = () if isinstance(away, knobs.InvalidChange) else away
            moved = (*moved, *(replace(each, new=each.old) for each in back))
        return self.best.with_changes(*moved)

    def _accumulation_elsewhere(
        self, knob: Knob, value: JsonScalar
    ) -> tuple[Change, ...] | knobs.InvalidChange:
        """Accumulation of another document that keeps the samples of an update.

        Within a document links say what moves along; a batch in `data.yaml` belongs to the only
        accumulation of `train.yaml`, or of the command line.
        """
        linked = [
            path
            for source in self.context.sources
            for link in source.findings.links
            if link.kind == "product" and source.document.name == knob.document
            for path in link.paths
        ]
        if knob.kind != "batch_size" or knob.scope == "global" or knob.path in linked:
            return ()
        others = [
            each
            for each in self.of_kind("grad_accum")
            if each.document != knob.document and each.editable
        ]
        batches = [each for each in self.of_kind("batch_size") if each.scope != "global"]
        counts = (knob.value, others[0].value if len(others) == 1 else None, value)
        old, accumulation, new = counts
        if len(batches) != 1 or not (
            is_whole(old) and is_whole(accumulation) and is_whole(new)
        ):
            return ()
        if accumulation == 1:
            return ()
        if old * accumulation % new:
            return knobs.InvalidChange(
                reason=f"the product {old} x {accumulation} of {knob.path} and {others[0].path} "
                "cannot be kept"
            )
        source = next(
            s for s in self.context.sources if s.document.name == others[0].document
        )
        moved = old * accumulation // new
        return knobs.move(source.document, source.findings, others[0].path, moved)

    def plan(self, candidate: Candidate, **more: object) -> MeasurePlan:
        workload = self.context.workload
        plan = MeasurePlan(measure_s=self.context.measure_s, min_steps=policy.MIN_STEPS)
        plan = replace(plan, validation=workload.validation, unit_regex=workload.unit_regex)
        known = self.originals and not any(run.trains for run in self.originals)
        plan = replace(plan, trains=False if known else workload.trains)
        if self.originals and self.iterative:
            forwards = self.original.effects.forwards_per_unit or 1.0
            for change in candidate.changes:
                if change.kind == "timesteps" and isinstance(change.old, (int, float)):
                    forwards *= float(change.new or 0) / float(change.old)
            plan = replace(plan, forwards_per_unit=forwards)
        return replace(plan, **more)  # type: ignore[arg-type]

    def short_plan(self) -> MeasurePlan:
        """Short window that only shows which settings are followed."""
        stepping_s = self.original.wall_s - (self.original.startup_s or 0.0)
        return self.plan(
            Candidate(),
            measure_s=min(policy.FOLLOWING_WINDOW_S, self.context.measure_s),
            min_steps=policy.FOLLOWING_STEPS,
            # a power of two: the next call finds this run in its history
            longest_s=2.0 ** math.ceil(math.log2(max(policy.FOLLOWING_STEP_S, stepping_s))),
        )


def is_whole(value: object) -> TypeGuard[int]:
    """True for a count of one or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def key_of(knob: Knob | Change) -> KnobKey:
    return knob.document, knob.path


def change_of(candidate: Candidate, knob: Knob | Change) -> Change | None:
    return next((c for c in candidate.changes if key_of(c) == key_of(knob)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStep:
    """A request of a stage, with the state in which it was made."""

    request: TrialRequest | ABTest
    state: TunerState
    ahead: Iterable[TrialRequest] = field(default=(), compare=False)
    """Requests that may follow, for further cards; read once, if at all."""


Stage = Generator[SearchStep, Result, TunerState]
"""Stage of the search: requests in, results out, a new state at the end."""
T = TypeVar("T")
Trials = Generator[SearchStep, Result, tuple[TunerState, T]]
"""Part of a stage, with its trials' outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End of a search, with its reason."""

    reason: Literal["done", "baseline-failed", "not-measured", "budget-too-small"]
    state: TunerState
    failed: TrialResult | None = None
    """baseline-failed: the run that did."""
    needed_s: float | None = None
    """budget-too-small: the budget that would do."""


def make_request(
    state: TunerState,
    variant: Variant,
    purpose: Purpose | None = None,
    *,
    ran: Run | None = None,
    **plan: object,
) -> TrialRequest:
    """One short process of `variant`, about as long as `ran`; to confirm, a fresh one."""
    purpose = purpose or ("whatif" if state.by_hand else "search")
    return TrialRequest(
        variant=variant,
        purpose=purpose,
        plan=state.plan(variant.candidate, **plan),
        fresh=purpose == "confirm",
        expected_s=state.again_s(ran) + variant.extra_s,
    )


def run_trial(
    state: TunerState,
    request: TrialRequest,
    *,
    kept_s: float | None = None,
    more_s: float = 0.0,
    matters: bool = True,
    ahead: Iterable[TrialRequest] = (),
) -> Trials[TrialResult | None]:
    """Run `request`; None unless it fits beside `kept_s`, by default the reserve.

    `more_s`: time of what would follow, for the named budget.
    """
    kind: TaskKind = "pass" if request.title else "trial"
    task = Task("quality" if request.purpose == "quality" else kind, request.variant.label)
    kept_s = state.reserve_s if kept_s is None else kept_s
    matters = matters and not state.by_hand
    if request.expected_s > state.remaining_s - kept_s:
        needed_s = request.expected_s + more_s
        return state.skip(task, needed_s, kept_s=kept_s, matters=matters), None
    result = yield SearchStep(
        request=replace(request, kept_s=kept_s), state=state, ahead=ahead
    )
    state = state.with_result(result)
    if isinstance(result, SkippedRun):
        needed_s, stopped = result.needed_s + more_s, result.stopped
        return state.skip(task, needed_s, matters=matters, stopped=stopped), None
    assert isinstance(result, TrialResult)
    return state.done(task), result


def run_comparison(
    state: TunerState, ab_test: ABTest, task: Task, round_s: float, *, matters: bool = True
) -> Trials[Comparison]:
    """Run `ab_test`; what the budget cut off is skipped."""
    result = yield SearchStep(request=ab_test, state=state)
    assert isinstance(result, Comparison)
    state = state.with_result(result)
    if result.cut_short:
        # 1: a contended one, repeated
        missing = max(1, ab_test.rounds - len(result.counted))
        rest = task._replace(rest=True)
        state = state.skip(rest, missing * round_s, matters=matters)
    return state, result

"""What a search is given (its context), and what it knows after each result (its state).

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
    leaf_of,
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
    """All that is known before the first trial; only knobs that trials show are added to it."""

    sources: tuple[Source, ...]
    """The configs, then the command line; later also the running program."""
    workload: Workload
    objective: Objective
    cpus: int
    """CPUs of this host that the program may use."""
    memory_limit_gib: float
    """Usable memory of the target card, or of this host where there is none."""
    host_memory_gib: float = math.inf
    """Memory of this host that the program may use."""
    precisions: tuple[str, ...]
    """Compute dtypes of the target, by torch name."""
    has_gpu: bool
    smallest_gain: float
    """Least gain that is worth a change, as a share: 0.03 is 3 %."""
    budget_s: float
    """Seconds that the whole search may take."""
    safe: bool = False
    """Refuse all that could change rounding or the product."""
    measure_s: float = 3.0
    """Seconds of a trial's window."""
    quality_reference: tuple[tuple[str, float], ...] = ()
    """Quality by measure, from before the first call that wrote something; empty: none is kept."""

    def allows(self, knob_class: KnobClass) -> bool:
        """True if knobs of this class may be tried."""
        return not self.safe or knob_class in {"free", "training"}

    @property
    def consents(self) -> bool:
        """True if results may change within a tolerance."""
        return self.workload.numeric_tolerance is not None or bool(self.workload.quality)


KEPT = "gpu-advisor.toml keeps it"
"""Why a setting is not edited that its user named."""

Result = TrialResult | Comparison | SkippedRun
"""What a stage is sent for a request."""

OUT_OF_TIME = "The budget was spent before another value could be judged."


class KnobVerdict(NamedTuple):
    """Verdict of a stage on a knob, before confirmation."""

    knob: KnobKey
    cause: DecisionCause
    reason: str

    @property
    def outcome(self) -> TuningResult | Literal["found"]:
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
    stopped: bool
    """It ran and our limit ended it: it needs more than `needed_s`."""


class LeftOut(NamedTuple):
    """Variant that ran faster and is neither written nor suggested."""

    what: str
    """Label of its changes."""
    gain: float
    """Of one run, over the best so far."""
    why: str
    """Reason against it, as it follows `in one run`: `. It would do other work.`"""
    is_open: bool = False
    """True if more runs could still judge its results."""

    @property
    def text(self) -> str:
        return f"{self.what}, {numbers.ratio(self.gain)} in one run{self.why}".strip()


class NearMiss(NamedTuple):
    """Value that ran faster, but by less than equal runs differ: rounds may still tell."""

    knob: Knob
    value: JsonScalar
    gain: float
    """Of one run, over the best so far."""


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
    """The same without its last step, to fall back on; None: it has one step."""
    outcome: Comparison | None = None
    """Its rounds; None: not compared."""
    unfinished: bool = False
    """It was faster in its rounds, which were fewer than a proof takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityLog:
    """Figures of the declared quality measures, by measure; empty if none was measured."""

    reference: tuple[tuple[str, float], ...] = ()
    """Figures from which later calls count what is spent of each tolerance."""
    before: tuple[tuple[str, float], ...] = ()
    """Those of the original; empty: it did not run the quality command."""
    compared: tuple[tuple[str, float], ...] = ()
    """Those of `best` with the seeds and items of `after`."""
    after: tuple[tuple[str, float], ...] = ()
    """Those of the latest candidate that was confirmed to be inside its tolerance."""
    judgements: tuple[tuple[str, QualityJudgement], ...] = ()
    """What was judged of each candidate, by its label."""
    best: Candidate | None = None
    """Best candidate without gated changes, which the others are compared with."""
    runs: tuple[Run, ...] = ()
    """Quality runs of `best`, with the seeds by which candidates are chosen."""


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
    costs_s: tuple[float, ...] = ()
    """Seconds of the budget that each short process took, waits and preparation included."""
    delays: tuple[float, ...] = ()
    """Those seconds over the wall time of the process itself, 1 without any delay."""
    best: Candidate = field(default_factory=Candidate)
    best_run: Run | None = None
    """Its run that was adopted, or the best of its rounds; None: the original is best."""
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
        """Best of the baselines, so that no gain is flattered."""
        return self.context.objective.best(self.originals)

    @property
    def steady_originals(self) -> tuple[Run, ...]:
        """Baselines that did not collapse; all of them where fewer than two are left."""
        near = tuple(
            run for run in self.originals if self.gain(self.original, run) < COLLAPSED
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
        """True if the program trains, or may: no model was seen, and it is not declared a test."""
        doubtful = self.context.workload.phase not in {"test", "eval"}
        return any(run.trains or (doubtful and run.unseen) for run in self.originals)

    @property
    def waits(self) -> bool:
        """True if the best so far waits for its data long enough that faster loading may gain."""
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
        """Highest units/s of the loader alone, by number of workers."""
        rates: dict[int, list[float]] = {}
        for run in self.originals:
            for ceiling in run.ceilings:
                rates.setdefault(ceiling.workers, []).append(ceiling.units_per_s)
        return {workers: max(each) for workers, each in rates.items()}

    @property
    def noise(self) -> float:
        """Relative spread between equal processes of the original (`stats.noise_band`)."""
        return self.noise_of(Candidate())

    def noise_of(self, candidate: Candidate) -> float:
        """The same of a candidate by its latest rounds; of the original where it has too few."""
        compared = self.confirmation_runs(candidate)
        runs = compared if len(compared) > 1 else self.steady_originals
        return noise_band([run.windows or (run.units_per_s,) for run in runs]) or 0.0

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
        """Tie threshold as text, and how far equal runs differed if that is more."""
        shown = f"{100 * self.tie_threshold:.2g} %"
        noise = self.noise_of(self.best)
        if noise > self.tie_threshold:
            return f"{shown} (equal runs differed by {numbers.percent(noise)})"
        return shown

    def gain(self, run: Run, than: Run) -> float:
        """Ratio by which one run is better than another, by the objective."""
        score = self.context.objective.score
        return self.context.objective.metric.gain(score(than), score(run))

    def gain_over_incumbent(self, run: Run) -> float:
        """Ratio by which `run` is better than the best so far, by the median of its runs."""
        score = self.context.objective.score
        median = statistics.median(map(score, self.incumbent_runs))
        return self.context.objective.metric.gain(median, score(run))

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
    def price_s(self) -> float:
        """Seconds of the budget that one more short process takes; cold starts do not count.

        0 before the first process.
        """
        usual_s = [
            cost_s
            for cost_s in self.costs_s
            if cost_s <= policy.COLD_START * min(self.costs_s)
        ]
        return statistics.median(usual_s) if usual_s else 0.0

    def again_s(self, run: Run | None) -> float:
        """Seconds that the candidate of `run` takes once more; without a run, the usual price."""
        return max(self.price_s, run.wall_s) if run is not None else self.price_s

    @property
    def round_s(self) -> float:
        """Seconds of a round that confirms the best candidate, with a margin."""
        confirmed = self.confirmation_runs(self.best.only("free", "training"))
        base_s = self.again_s(confirmed[-1]) if confirmed else self.price_s
        return policy.ROUND_FACTOR * (base_s + self.again_s(self.best_run))

    @property
    def proof_s(self) -> float:
        """Seconds that are planned for a proof.

        As many rounds as a quarter of the budget buys processes, from the fewest up to those with
        exact bounds (with a declared tolerance, up to GOOD_ROUNDS). Where other programs delay the
        processes, rounds will be repeated: then their delay is planned for, up to half of the
        budget.
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
        """Seconds kept beside the next trial to confirm the best candidate."""
        return self.reserve_for(found=self.is_unproven)

    def reserve_for(self, *, found: bool) -> float:
        """Seconds kept beside the next trial: for a whole proof once there is something to prove.

        Until it is `found`, up to half of the budget would be kept for nothing while settings stay
        untried. The fewest rounds are kept all the same: what is found without any left is lost.
        """
        fewest_s = policy.FEWEST_ROUNDS * self.round_s
        return self.proof_s if found else min(self.proof_s, fewest_s)

    def search_reserve_s(self, *, found: bool) -> float:
        """Seconds that a search of free settings keeps: for their proof, and for sampling steps.

        For the steps only where the budget holds both, with the search itself and its proof.
        """
        kept_s = self.reserve_for(found=found)
        if not self.judges_steps:
            return kept_s
        search_s = (len(self.originals) + policy.SEARCH_PROCESSES) * self.price_s
        judging_s = policy.JUDGING_PROCESSES * self.price_s
        holds_both = self.proof_s + search_s + judging_s <= self.context.budget_s
        return kept_s + (judging_s if holds_both else 0.0)

    @property
    def judges_steps(self) -> bool:
        """True if sampling steps are still to be tried, with a declared quality to judge them."""
        wanted = bool(self.context.workload.quality) and not self.context.safe
        return wanted and any(
            self.verdict_on(knob) is None for knob in self.tunable("timesteps")
        )

    @property
    def gated_reserve_s(self) -> float:
        """Seconds kept to confirm a gated candidate on top of a proven one."""
        return min(self.proof_s, policy.GATED_ROUNDS * self.round_s)

    @property
    def fewest_s(self) -> float:
        """Fewest seconds in which one candidate can be tried and confirmed."""
        return self.price_s + policy.FEWEST_ROUNDS * self.round_s

    def budget_for(self, more_s: float) -> float:
        """Budget to name to the user: the present one and `more_s` of processes, with a margin."""
        return policy.NAMED_BUDGET_FACTOR * (self.context.budget_s + more_s)

    def with_result(self, result: Result) -> Self:
        """With the budget that `result` left, and what its process cost.

        What it showed is for the stage to judge. Only short processes and baselines tell a price;
        what a baseline measures after its window no other process pays.
        """
        state = replace(self, remaining_s=result.remaining_s)
        if not isinstance(result, TrialResult) or result.run is None or result.reused:
            return state
        run, request = result.run, result.request
        is_short = request.purpose in {"search", "confirm"} and not request.plan.whole
        if not is_short and request.purpose != "baseline":
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
        """State in which `task` did not fit the budget beside `kept_s`; fields as in Skipped."""
        entry = Skipped(task, needed_s, self.remaining_s - kept_s, matters, stopped)
        return replace(self, skipped=(*self.done(task).skipped, entry))

    def done(self, task: Task) -> Self:
        """State in which `task` is no longer skipped."""
        others = tuple(each for each in self.skipped if each.task != task)
        return replace(self, skipped=others)

    def adopt(self, candidate: Candidate, run: Run) -> Self:
        """State with `candidate` as the best, by `run`."""
        return replace(self, best=candidate, best_run=run)

    @property
    def all_knobs(self) -> list[Knob]:
        """Knobs of all documents; those that the user wants to keep are not edited."""
        found = [knob for source in self.context.sources for knob in source.findings.knobs]
        return [replace(each, frozen=KEPT) if self.keeps(each) else each for each in found]

    def keeps(self, setting: Knob | Change) -> bool:
        """True if gpu-advisor.toml names the setting in `keep`."""
        names = {setting.path, leaf_of(setting.path), setting.kind}
        return not names.isdisjoint(self.context.workload.keep)

    def in_code(self, knob: Knob) -> bool:
        """True for a value of the running program, which no file holds."""
        documents_ = (source.document for source in self.context.sources)
        return any(d.name == knob.document and d.format == "process" for d in documents_)

    def verdict_on(self, knob: Knob | Change) -> KnobVerdict | None:
        return next((each for each in self.verdicts if each.knob == key_of(knob)), None)

    def of_kind(self, *kinds: str) -> list[Knob]:
        """Knobs of each kind that belong to the running phase.

        Where none of a kind does, those of other phases stand in, unless the program trains.
        """
        found = []
        for kind in kinds:
            of_all_phases = [knob for knob in self.all_knobs if knob.kind == kind]
            of_this_phase = [knob for knob in of_all_phases if self.in_phase(knob)]
            others = of_all_phases if self.phase != "train" else []
            found += of_this_phase or others
        return found

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
            each is None or each.outcome not in {"ignored", "listed"} for each in verdicts
        )

    def current(self, knob: Knob) -> JsonScalar | tuple[JsonScalar, ...]:
        """Value of the knob in the best candidate."""
        change = change_of(self.best, knob)
        return knob.value if change is None else change.new

    def with_value(self, knob: Knob, value: JsonScalar) -> Candidate | knobs.InvalidChange:
        """Best candidate with `knob` at `value` and what is linked to it, or why that cannot be."""
        source = self._source_of(knob)
        beside = {c.path: c.new for c in self.best.changes if c.document == knob.document}
        move = partial(knobs.move, source.document, source.findings, knob.path)
        moved = move(value, beside)
        if isinstance(moved, knobs.InvalidChange):
            return moved
        elsewhere = self._accumulation_elsewhere(knob, value)
        if isinstance(elsewhere, knobs.InvalidChange):
            return elsewhere
        moved = (*moved, *elsewhere)
        if held := next(filter(self.keeps, moved), None):
            return knobs.InvalidChange(reason=f"{held.path} would move along, and {KEPT}")
        change = change_of(self.best, knob)
        if change is not None and value == knob.value:
            # back at the config's own value: what the present one had moved along goes back, too
            present = move(change.new, beside, beyond=True)
            along = () if isinstance(present, knobs.InvalidChange) else present
            moved = (*moved, *(replace(each, new=each.old) for each in along))
        return self.best.with_changes(*moved)

    def _source_of(self, knob: Knob) -> Source:
        """The document that holds the knob."""
        sources = self.context.sources
        return next(each for each in sources if each.document.name == knob.document)

    def _accumulation_elsewhere(
        self, knob: Knob, value: JsonScalar
    ) -> tuple[Change, ...] | knobs.InvalidChange:
        """Changes of another document's accumulation that keep the samples of an update.

        Within a document links say what moves along; a batch in `data.yaml` belongs to the only
        accumulation of `train.yaml`, or of the command line. None are needed where a link moves
        one, where it is not known which batch belongs to which accumulation, or where none is used.
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
        if len(batches) != 1 or len(others) != 1:
            return ()
        old, accumulation, new = knob.value, others[0].value, value
        if not (is_whole(old) and is_whole(accumulation) and is_whole(new)):
            return ()
        if accumulation == 1:
            return ()
        if old * accumulation % new:
            return knobs.InvalidChange(
                reason=f"the product {old} x {accumulation} of {knob.path} and {others[0].path} "
                "cannot be kept"
            )
        source = self._source_of(others[0])
        moved = old * accumulation // new
        return knobs.move(source.document, source.findings, others[0].path, moved)

    def plan(self, candidate: Candidate, **more: object) -> MeasurePlan:
        """Plan of one process of `candidate`, with `more` of the plan's fields as given.

        What the baselines showed is used: a program that was not seen to train is not waited for
        until it does, and a sampler whose forwards an item are known may stop inside an item.
        """
        workload = self.context.workload
        plan = MeasurePlan(measure_s=self.context.measure_s, min_steps=policy.MIN_STEPS)
        plan = replace(plan, validation=workload.validation, unit_regex=workload.unit_regex)
        never_trained = self.originals and not any(run.trains for run in self.originals)
        plan = replace(plan, trains=False if never_trained else workload.trains)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStep:
    """Request of a stage, with the state in which it was made."""

    request: TrialRequest | ABTest
    state: TunerState
    ahead: Iterable[TrialRequest] = field(default=(), compare=False)
    """Requests that may follow, for further cards; read once, if at all."""


Stage = Generator[SearchStep, Result, TunerState]
"""Stage of the search: requests in, results out, a new state at the end."""
T = TypeVar("T")
Trials = Generator[SearchStep, Result, tuple[TunerState, T]]
"""Part of a stage that ends with the state and the outcome of its trials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End of a search, and why it ended."""

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
    """Request of one short process of `variant`, expected to take as long as `ran` did.

    `plan`: fields of its plan. No kept run will do where the purpose is to confirm.
    """
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
    """Run `request`; None if the budget has no room for it, and it is skipped.

    `kept_s`: seconds that stay for a proof, by default the reserve. `more_s`: seconds of what would
    follow it, for the budget that is named to the user. `ahead`: requests that may follow.
    """
    kind: TaskKind = "pass" if request.title else "trial"
    kind = "quality" if request.purpose == "quality" else kind
    task = Task(kind, request.variant.label)
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
    """Run the rounds of `ab_test`; those that the budget cut off are told as skipped."""
    result = yield SearchStep(request=ab_test, state=state)
    assert isinstance(result, Comparison)
    state = state.with_result(result)
    if result.cut_short:
        # at least one: where enough count, the last was to repeat a contended one
        missing = max(1, ab_test.rounds - len(result.counted))
        rest = task._replace(rest=True)
        state = state.skip(rest, missing * round_s, matters=matters)
    return state, result

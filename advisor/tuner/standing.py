"""Where the search stands after each answer: what was measured, what it costs, what was said.

Frozen: a stage takes a Standing, asks, and returns the next one; nothing is written to.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from advisor import knobs
from advisor.executor.comparison import AFTER, COLLAPSED, Comparison
from advisor.executor.requests import SkippedRun, TrialResult, contended
from advisor.executor.startup_budget import StartupBudget, startup_times_s
from advisor.model import (
    SAMPLER_FORWARDS,
    BatchPlace,
    Candidate,
    JsonScalar,
    Knob,
    MeasurePlan,
    Run,
)
from advisor.tuner.facts import KnobVerdict, QualityLog, Skipped, StageLog, TuningContext
from advisor.tuner.prices import Prices

if TYPE_CHECKING:
    from advisor.executor.requests import KnobKey
    from advisor.model import Change, Phase
    from advisor.tuner.facts import Suggestion

Result = TrialResult | Comparison | SkippedRun
"""What comes of one ask."""

MIN_STEPS = 8
"""Steps without which a window tells nothing."""
WORTH_A_LOOK = 0.03
"""A wait share below this cannot be worth a loader search: it bounds the gain."""
MOST_NOISE = 0.15
"""A tie is never wider: beyond it the search would see nothing at all."""
MOST_RESERVED = 6
"""Rounds that the search leaves to the proof: the fewest with exact bounds."""
GOOD_ROUNDS = 4
"""Rounds from which on Student's bounds are no wider than they must be."""
FEWEST_ROUNDS = 2
"""Rounds without which there is no interval."""
SPARE = 1.2
"""A budget that is named must do."""
MARGIN = 1.1
"""Processes differ, and a proof that was begun is finished: this keeps it inside the budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerState:
    """Where the search stands."""

    facts: TuningContext
    clock_s: float
    """What is left of the budget."""
    originals: tuple[Run, ...] = ()
    prices: Prices = field(default_factory=Prices)
    noise: float = 0.0
    """Relative spread between equal processes: two of them differ by less five times of six."""
    best: Candidate = field(default_factory=Candidate)
    best_run: Run | None = None
    told: StageLog = field(default_factory=StageLog)
    proofs: tuple[Comparison, ...] = ()
    """Of what may be written: each against the one before, the first against the original."""
    proposals: tuple[Suggestion, ...] = ()
    quality: QualityLog = field(default_factory=QualityLog)

    @property
    def settled(self) -> tuple[KnobVerdict, ...]:
        """What was said of knobs, one word each."""
        return self.told.settled

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """What did not fit into the budget."""
        return self.told.skipped

    # --- what was measured --------------------------------------------------------------------

    @property
    def original(self) -> Run:
        """The baseline run that later ones are held against: the better one, never flattered."""
        return self.facts.objective.best(self.originals)

    @property
    def batch_at(self) -> BatchPlace | None:
        """Where the batch is, once an experiment had to show that."""
        return self.originals[-1].effects.batch_at if self.originals else None

    @property
    def near_best(self) -> tuple[Run, ...]:
        """The originals that did not collapse beside the best of them, which is one."""
        top = self.facts.objective.score(self.original)
        gain = self.facts.objective.gain
        return tuple(
            run for run in self.originals if gain(self.facts.objective.score(run), top) < COLLAPSED
        )

    @property
    def usual(self) -> tuple[Run, ...]:
        """The originals without those that collapsed, where another one says that they did."""
        return self.near_best if len(self.near_best) > 1 else self.originals

    @property
    def front(self) -> Run:
        """The run of the best so far."""
        return self.best_run or self.original

    @property
    def front_runs(self) -> tuple[Run, ...]:
        """What the best so far usually does: all runs of its own proof, of which the front is the
        luckiest; of the original those that did not collapse."""
        if not self.best.changes:
            return self.usual
        return self.proof_runs(self.best) or (self.front,)

    def proof_runs(self, candidate: Candidate) -> tuple[Run, ...]:
        """Runs of `candidate` in the latest proof of it that has some."""
        own = [p for p in self.proofs if p.ab_test.after.variant.candidate.key == candidate.key]
        return next(filter(None, (proof.runs(AFTER) for proof in reversed(own))), ())

    @property
    def iterative(self) -> bool:
        """Whether one unit takes many forwards: a diffusion sampler, a solver."""
        return (self.original.effects.forwards_per_unit or 1) >= SAMPLER_FORWARDS

    @property
    def trains(self) -> bool:
        """Whether the program trains, whoever steps; in doubt it does."""
        doubtful = self.facts.workload.phase not in {"test", "eval"}
        return any(run.trains or (doubtful and run.unseen) for run in self.originals)

    @property
    def waits(self) -> bool:
        """Whether the best so far loses enough time waiting for data."""
        share = self.front.wait_share
        return share is not None and share > WORTH_A_LOOK

    @property
    def without_waiting(self) -> float:
        """How many times faster the best so far were at most if it never waited for data."""
        return 1 / max(1e-9, 1 - (self.front.wait_share or 0.0))

    @property
    def waiting_shows(self) -> bool:
        """Whether no waiting at all would be more than a tie: no loader can gain more."""
        return self.without_waiting > 1 + self.band

    @property
    def loader_alone(self) -> dict[int, float]:
        """Units/s of the loader alone by worker count: the mean over the originals."""
        rates: dict[int, list[float]] = {}
        for run in self.originals:
            for ceiling in run.ceilings.loader if run.ceilings else ():
                rates.setdefault(ceiling.workers, []).append(ceiling.units_per_s)
        return {workers: statistics.fmean(each) for workers, each in rates.items()}

    @property
    def band(self) -> float:
        """Rates closer than this are a tie: the noise seen here, at least the smallest gain."""
        return max(self.facts.smallest_gain, min(self.noise, MOST_NOISE))

    @property
    def level(self) -> float:
        """Rates closer than this are on one level: half the tie, one standard deviation.

        A neighbour on a rising curve is no stranger: what the other values did speaks for it, so
        less is asked than of a single run that claims to be faster.
        """
        return max(self.facts.smallest_gain, self.band / 2)

    @property
    def sigma(self) -> float:
        """Standard deviation of a log ratio of two equal processes."""
        return self.noise / 2 * 2**0.5

    def gain(self, run: Run, than: Run) -> float:
        """How many times better `run` is."""
        score = self.facts.objective.score
        return self.facts.objective.gain(score(than), score(run))

    def gain_over_usual(self, run: Run) -> float:
        """How many times better `run` is than the best so far usually does: one run is not held
        against the luckiest of several."""
        score = self.facts.objective.score
        usual = statistics.median(map(score, self.front_runs))
        return self.facts.objective.gain(usual, score(run))

    def faster(self, run: Run, than: Run) -> bool:
        """Better by more than a tie, inside the constraints; or inside them where `than` is not."""
        objective = self.facts.objective
        if objective.broken(run):
            return False
        return bool(objective.broken(than)) or self.gain(run, than) > 1 + self.band

    # --- what it costs ------------------------------------------------------------------------

    @property
    def starts(self) -> StartupBudget:
        """What start-up takes; the first process may have found cold caches."""
        usual_s = min((run.startup_s or 0.0 for run in self.originals), default=0.0)
        return StartupBudget(
            budget_s=self.facts.budget_s, usual_s=usual_s, spent_s=self.prices.started_s
        )

    @property
    def remaining_s(self) -> float:
        """What is left for processes: of the budget, and of its part that may go to slow starts."""
        if not self.starts.slow:
            return self.clock_s
        return min(self.clock_s, self.starts.left * self.price_s)

    @property
    def buys(self) -> float:
        """Processes that the whole budget buys."""
        return min(self.facts.budget_s / max(self.price_s, 1e-9), self.starts.bought)

    def budget_for(self, more_s: float) -> float:
        """The budget that would do for what was spent and processes of `more_s` together."""
        whole_s = self.facts.budget_s - self.clock_s + more_s
        more = math.ceil(more_s / max(self.price_s, 1e-9))
        return SPARE * max(whole_s, self.starts.budget_for(more))

    @property
    def price_s(self) -> float:
        """What one more short process takes."""
        return self.prices.process_s

    @property
    def reserve_s(self) -> float:
        """What the search leaves for the proof: half of the processes that the budget buys, at
        least the fewest rounds that give an interval."""
        most = GOOD_ROUNDS if self.facts.consents else MOST_RESERVED
        rounds = min(most, max(FEWEST_ROUNDS, int(self.buys / 4)))
        return self.rounds_s(rounds)

    def rounds_s(self, rounds: int) -> float:
        """What so many rounds of the original and the best so far take, with a margin."""
        return MARGIN * rounds * self.prices.pair_s(self.best_run)

    @property
    def fewest_s(self) -> float:
        """The least that an answer takes: one candidate, and the fewest rounds that prove it."""
        return self.price_s + self.rounds_s(FEWEST_ROUNDS)

    @property
    def tries(self) -> int:
        """Processes that the search may still start."""
        return max(0, int((self.remaining_s - self.reserve_s) / max(self.price_s, 1e-9)))

    # --- asking -------------------------------------------------------------------------------

    def plan(self, candidate: Candidate, **more: object) -> MeasurePlan:
        """A window for `candidate`; an iterative sampler's length follows its steps knob."""
        workload = self.facts.workload
        plan = MeasurePlan(measure_s=self.facts.measure_s, min_steps=MIN_STEPS)
        plan = replace(plan, batch_at=self.batch_at, unit_regex=workload.unit_regex)
        if self.originals and self.iterative:
            forwards = self.original.effects.forwards_per_unit or 1.0
            for change in candidate.changes:
                if change.kind == "timesteps" and isinstance(change.old, (int, float)):
                    forwards *= float(change.new or 0) / float(change.old)
            plan = replace(plan, forwards_per_unit=forwards)
        return replace(plan, **more)  # type: ignore[arg-type]

    def heard(self, answer: Result) -> TunerState:
        """After `answer`, of which nothing is believed yet but what it cost."""
        usual_s = self.starts.usual_s
        took_s = sum(usual_s if each is None else each for each in startup_times_s(answer))
        prices = replace(self.prices, started_s=self.prices.started_s + took_s)
        now = replace(self, clock_s=answer.remaining_s, prices=prices)
        if not isinstance(answer, TrialResult) or answer.run is None or answer.reused:
            return now
        run = answer.run
        if answer.request.plan.whole or answer.request.purpose not in {"search", "confirm"}:
            return now
        return replace(now, prices=prices.with_wall(run.wall_s, held=contended(run)))

    def settle(self, knob: KnobKey, outcome: str, reason: str, **data: JsonScalar) -> TunerState:
        """With one more word on `knob`; the last one counts."""
        word = KnobVerdict(knob=knob, outcome=outcome, reason=reason, data=tuple(data.items()))  # type: ignore[arg-type]
        others = (said for said in self.settled if said.knob != knob)
        return replace(self, told=replace(self.told, settled=(*others, word)))

    def skip(
        self, what: str, needed_s: float, *, kept_s: float = 0.0, matters: bool = True
    ) -> TunerState:
        """Without `what`, which did not fit into the budget beside what is kept for the proof; the
        last word counts."""
        remaining_s = self.remaining_s - kept_s
        word = Skipped(what=what, needed_s=needed_s, remaining_s=remaining_s, matters=matters)
        others = tuple(s for s in self.told.skipped if s.what != what)
        return replace(self, told=replace(self.told, skipped=(*others, word)))

    def adopt(self, candidate: Candidate, run: Run) -> TunerState:
        """`candidate` is the best so far."""
        return replace(self, best=candidate, best_run=run)

    # --- knobs --------------------------------------------------------------------------------

    @property
    def all_knobs(self) -> list[Knob]:
        """Every knob of every document."""
        return [knob for source in self.facts.sources for knob in source.findings.knobs]

    def word_on(self, knob: Knob) -> KnobVerdict | None:
        """What was said of `knob` last."""
        return next((s for s in self.settled if s.knob == key_of(knob)), None)

    def of_kind(self, *kinds: str) -> list[Knob]:
        """Knobs of `kinds` that the phase which runs uses.

        Where a kind stands nowhere under that phase, its other knobs are taken: a program may use
        one value for all, and a knob it does not follow is found out when it is tried.
        """
        found = []
        for kind in kinds:
            alike = [knob for knob in self.all_knobs if knob.kind == kind]
            own = [knob for knob in alike if self.in_phase(knob)]
            found += own or [knob for knob in alike if self.stands_in(knob)]
        return found

    @property
    def phase(self) -> Phase:
        """The phase that runs: as it is declared, or a training where one was seen."""
        declared = self.facts.workload.phase
        return "train" if declared == "any" and any(r.updates for r in self.originals) else declared

    def in_phase(self, knob: Knob) -> bool:
        """Whether the phase that runs uses `knob`, as far as the documents and the runs tell."""
        return self.phase == "any" or knob.phase in {self.phase, "any"}

    def stands_in(self, knob: Knob) -> bool:
        """Whether a knob of another phase may hold the value of the one that runs: none of an
        evaluation in a training, and none that was found not to."""
        word = self.word_on(knob)
        return self.phase != "train" and (word is None or word.reason != "other-phase")

    def tunable(self, *kinds: str) -> list[Knob]:
        """Knobs of `kinds` that may still move: editable, and neither ignored nor set aside."""
        return [
            knob
            for knob in self.of_kind(*kinds)
            if knob.editable
            and ((word := self.word_on(knob)) is None or word.outcome in {"found", "kept"})
        ]

    def held_by_config(self, *kinds: str) -> bool:
        """Whether a knob of the documents sets this, and the program follows it."""
        words = [self.word_on(knob) for knob in self.of_kind(*kinds)]
        return any(word is None or word.outcome != "ignored" for word in words)

    def current(self, knob: Knob) -> JsonScalar | tuple[JsonScalar, ...]:
        """The knob's value in the best candidate."""
        change = change_of(self.best, key_of(knob))
        return knob.value if change is None else change.new

    def with_value(self, knob: Knob, value: JsonScalar) -> Candidate | knobs.InvalidChange:
        """The best candidate with `knob` at `value` and everything linked to it moved along."""
        source = self.facts.source(knob.document)
        beside = {c.path: c.new for c in self.best.changes if c.document == knob.document}
        move = partial(knobs.move, source.document, source.findings, knob.path)
        moved = move(value, beside)
        if isinstance(moved, knobs.InvalidChange):
            return moved
        change = change_of(self.best, key_of(knob))
        if change is not None and value == knob.value:  # what moved along with it goes back too
            away = move(change.new, beside, beyond=True)
            back = () if isinstance(away, knobs.InvalidChange) else away
            moved = (*moved, *(replace(each, new=each.old) for each in back))
        return self.best.with_changes(*moved)


def key_of(knob: Knob) -> KnobKey:
    return (knob.document, knob.path)


def change_of(candidate: Candidate, knob: KnobKey) -> Change | None:
    """What `candidate` does to one knob."""
    return next((c for c in candidate.changes if (c.document, c.path) == knob), None)

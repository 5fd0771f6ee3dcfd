"""What stands in the code, tried in the process and suggested as one stack.

A DataLoader's arguments and torch's switches are settings of the running program
(`knobs/process.py`). They are searched like a config's, each on top of those before it, and the
stack is compared as a whole: one number for what the user is asked to write. What does not hold is
taken off from its end.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from advisor import knobs, numbers
from advisor.executor.requests import ABTest, Variant
from advisor.knobs.registry import REGISTRY, KnobSpec, switches
from advisor.knobs.tree import number_of
from advisor.model import Candidate, Change, DecisionCause, JsonScalar, Run
from advisor.tuner import policy, reserves
from advisor.tuner.baseline import phase_of_program
from advisor.tuner.confirm import memory_caveat, objection, wanted_rounds
from advisor.tuner.context import Source
from advisor.tuner.effects import alters_training, is_only_suggested, training_note
from advisor.tuner.moves import with_value
from advisor.tuner.outcomes import Suggestion, Task
from advisor.tuner.search import (
    is_turn_of,
    leave_out,
    tune_all_workers,
    tune_batch_and_workers,
    worker_knobs,
)
from advisor.tuner.stages import Stage, make_request, run_comparison
from advisor.tuner.state import TunerState, change_of, key_of
from advisor.tuner.value_trials import (
    extra_start_s,
    no_need,
    try_values,
    tune_length_grouping,
    tune_loader,
)

OTHER_COMPANY = (
    "Items of like length share a batch: a pass holds the same items, an update other ones "
    "together. What that does to the results was not measured."
)


def suggest_changes(state: TunerState) -> Stage:
    """Tune what only the user may change: loader arguments, switches, and batches of a training.

    What changes no result comes first, then what only rounds otherwise, then what changes a
    training: so a stack without its end is left if that does not hold. Compilation costs each
    later trial its start and comes last, unless launches dominate.
    """
    launches = is_launch_bound(state)
    tried = [spec for spec in switches() if applies(state, spec)]
    tried.sort(
        key=lambda spec: (
            (spec.kind == "compile") is not launches,
            "tolerance" in spec.needs,
        )
    )
    state = with_process(state, tried)
    last = tuning(spec for spec in tried if spec.kind == "compile" and not launches)
    quick = [
        *tuning(spec for spec in tried if spec.kind != "compile" or launches),
        tune_threads_beside_a_worker,
    ]
    batches = (tune_length_grouping, tune_batch_and_workers)
    if any(is_only_suggested(state, knob) for knob in state.tunable("batch_size")):
        stages = (tune_all_workers, tune_loader, *quick, *batches, *last)
    else:
        stages = (*batches, tune_loader, *quick, *last)
    return (yield from suggest_settings(state, stages))


def tuning(specs: Iterable[KnobSpec]) -> list[Callable[[TunerState], Stage]]:
    """A stage for each switch."""
    return [partial(tune_switch, spec=spec) for spec in specs]


def applies(state: TunerState, spec: KnobSpec) -> bool:
    """True for a switch that is off, may do something here, and is in no config."""
    run, consents = (
        state.incumbent_run,
        state.context.consents and state.context.allows("numeric"),
    )
    seen = run.on_gpu or run.shares.compute is not None or "compute" not in spec.needs
    return (
        seen
        and spec.switched_off(run.effects)[0]
        and not state.held_by_config(spec.kind)
        and not no_need(state, spec)
        and (consents or "tolerance" not in spec.needs)
    )


def with_process(state: TunerState, tried: Sequence[KnobSpec]) -> TunerState:
    """With the running program as further documents, for kinds that no other one holds."""
    effects, phase = state.incumbent_run.effects, phase_of_program(state)
    configured = [kind for kind in REGISTRY if state.held_by_config(kind)]
    documents = knobs.process.find(effects, phase, tried, configured)
    sources = (*state.context.sources, *(Source(*document) for document in documents))
    return replace(state, context=replace(state.context, sources=sources))


def tune_switch(state: TunerState, spec: KnobSpec) -> Stage:
    """Try one switch of torch on top of the stack so far."""
    for knob in state.tunable(spec.kind):
        if state.in_code(knob):
            state = yield from try_values(state, knob, values_of(state, spec))
    return state


def tune_threads_beside_a_worker(state: TunerState) -> Stage:
    """Try one worker and one torch thread less together, where each alone would be slower.

    A program that computes on all CPUs and loads between its steps waits with all of them. A worker
    alone takes the CPUs that the step computes on, and fewer threads alone leave them idle.
    """
    run, cpus = state.incumbent_run, state.context.cpus
    shares_cpus = state.waits and state.computes_on_cpus and run.effects.workers == 0
    if not shares_cpus or cpus < 2 or (run.effects.world_size or 1) > 1:
        return state
    for workers, threads in itertools.product(
        worker_knobs(state), state.tunable("threads")
    ):
        beside = with_value(state, workers, 1)
        if isinstance(beside, Candidate):
            tried = yield from try_values(replace(state, best=beside), threads, [cpus - 1])
            if tried.best.key != beside.key:
                return tried
            state = replace(
                tried,
                best=state.best,
                verdicts=state.verdicts,  # on one thread by itself
                near_misses=state.near_misses,
            )
    return state


def values_of(state: TunerState, spec: KnobSpec) -> Sequence[JsonScalar]:
    """Values of a switch to try; most are flags."""
    values_by_kind: dict[str, Callable[[TunerState], Sequence[JsonScalar]]] = {
        "precision": autocast_dtypes,
        "threads": thread_counts,
        "compile": compile_modes,
    }
    return values_by_kind[spec.kind](state) if spec.kind in values_by_kind else (True,)


def autocast_dtypes(state: TunerState) -> tuple[str, ...]:
    """Autocast dtype; float16 only without gradients."""
    if "bfloat16" in state.context.precisions:
        return ("bfloat16",)
    return (
        ("float16",) if "float16" in state.context.precisions and not state.trains else ()
    )


def thread_counts(state: TunerState) -> Sequence[int]:
    """Two thread counts to try: what the workers leave first."""
    seen = state.incumbent_run.effects
    cpus = max(1, state.context.cpus // (seen.world_size or 1))
    left = [max(1, cpus - seen.workers)] if seen.workers else []
    wanted = dict.fromkeys([*left, cpus, max(1, cpus // 2), 1])
    return [count for count in wanted if count != seen.threads][:2]


def is_launch_bound(state: TunerState) -> bool:
    """True if a GPU waits for kernel launches."""
    run = state.incumbent_run
    return run.on_gpu and (run.shares.launch or 0.0) >= policy.LAUNCH_BOUND_SHARE


def compile_modes(state: TunerState) -> Sequence[str | bool]:
    """Compilation modes; CUDA graphs first where launches dominate."""
    return ("reduce-overhead", True) if is_launch_bound(state) else (True,)


def suggest_settings(
    state: TunerState, stages: Sequence[Callable[[TunerState], Stage]]
) -> Stage:
    """Suggest what `stages` find on top of the best: one stack, of which a part may hold."""
    now, stack = replace(state, by_hand=True), None
    for stage in stages:
        before = now.best.key
        now = yield from stage(now)
        if now.best.key != before and now.best_run is not None:
            stack = stacked(state, now, now.best_run, stack)
    told = {verdict.knob: verdict for verdict in now.verdicts}
    for knob in now.all_knobs:  # what was decided when it was its turn stays decided
        earlier = state.verdict_on(knob)
        if earlier is not None and not is_turn_of(now, knob):
            told[key_of(knob)] = earlier
    return replace(
        now,
        best=state.best,
        best_run=state.best_run,
        by_hand=False,
        # what a stack was judged by is no figure of what is written
        confirmations=state.confirmations,
        quality=replace(state.quality, judgements=now.quality.judgements),
        near_misses=tuple(
            near_miss
            for near_miss in now.near_misses
            if near_miss in state.near_misses or now.in_code(near_miss.knob)
        ),
        verdicts=tuple(told.values()),
        suggestions=(*state.suggestions, *([stack] if stack else [])),
    )


def stacked(
    state: TunerState, now: TunerState, run: Run, less: Suggestion | None
) -> Suggestion:
    """Suggestion of what `now` holds best and ran as `run`, on top of the best of `state`."""
    candidate, moved = now.best, now.best.moved_from(state.best)
    cost_s = sum(outcome.cost_s or 0.0 for outcome in run.overrides)
    reasons = [*reasons_of(state, now, run), *single_gains(state, moved, run, less)]
    return Suggestion(
        title=title_of(moved),
        variant=Variant(
            candidate=candidate, extra_s=cost_s or extra_start_s(candidate, state.best)
        ),
        run=run,
        gain=state.gain_over_incumbent(run),
        reason=" ".join(reasons),
        less=less,
    )


def title_of(moved: Sequence[Change]) -> str:
    """Its changes, by who writes them: `batch_size: 4 to 8; compile; threads=1`."""
    parts: list[str] = []
    written = [
        f"{change.path}: {change.old} to {change.new}"
        for change in moved
        if not change.in_code
    ]
    coded = [change for change in moved if change.in_code]
    arguments = [
        f"{change.path}={change.new!r}"
        for change in coded
        if REGISTRY[change.kind].switch is None
        and change.new is not None  # None: not given
    ]
    parts += [", ".join(written)] if written else []
    parts += [f"DataLoader arguments: {', '.join(arguments)}"] if arguments else []
    parts += [
        change.path if change.new is True else f"{change.path}={change.new}"
        for change in coded
        if REGISTRY[change.kind].switch is not None
    ]
    return "; ".join(parts)


def reasons_of(state: TunerState, now: TunerState, run: Run) -> list[str]:
    """What the user has to know of the stack: what to write, what it costs, what else it does."""
    candidate, moved = now.best, now.best.moved_from(state.best)
    coded = [change for change in moved if change.in_code]
    reasons: list[str] = []
    if any(REGISTRY[change.kind].switch is None for change in coded):
        reasons.append("No config key or option holds what stands in the code.")
    for change in coded:
        if (switch := REGISTRY[change.kind].switch) is not None:
            reasons.append(f"In the code: {switch.shown(change.new)}.")
        told = now.verdict_on(change)
        if told is not None and "tolerance" in REGISTRY[change.kind].needs:
            reasons.append(told.reason)
    if any(change.kind == "length_grouping" for change in moved):
        reasons.append(OTHER_COMPANY)
    batch = next((change for change in moved if change.kind == "batch_size"), None)
    if batch is not None and alters_training(state, candidate, run):
        old, new = (number_of(value) or 1.0 for value in (batch.old, batch.new))
        reasons.append(training_note(state, new / old))
    if batch is not None:
        reasons.append(memory_caveat(state, run).strip())
    if cost_s := sum(outcome.cost_s or 0.0 for outcome in run.overrides):
        reasons.append(f"It takes {cost_s:.0f} s once, at the start.")
    reasons += [
        f"Mind that {outcome.caution}." for outcome in run.overrides if outcome.caution
    ]
    return list(filter(None, reasons))


def single_gains(
    state: TunerState, moved: Sequence[Change], run: Run, less: Suggestion | None
) -> list[str]:
    """What each step of a stack gained in its one run, on top of those before it."""
    if less is None:
        return []
    steps: list[str] = []
    gain, now = state.gain_over_incumbent(run), tuple(moved)
    while less is not None:
        before = less.variant.candidate.moved_from(state.best)
        last = [change for change in now if change not in before]
        steps.append(f"{title_of(last)} {numbers.ratio(gain / less.gain)}")
        gain, now, less = less.gain, before, less.less
    steps.append(f"{title_of(now)} {numbers.ratio(gain)}")
    return [f"Each in one run, on top of those before: {'; '.join(reversed(steps))}."]


def compare_stacks(state: TunerState) -> Stage:
    """Compare what is suggested, each in its share of the budget."""
    waiting = sorted(to_compare(state), key=lambda stack: -stack.gain)
    for number, suggestion in enumerate(waiting):
        share_s = state.remaining_s / (len(waiting) - number)
        state = yield from compare(state, suggestion, share_s)
    return state


def to_compare(state: TunerState) -> list[Suggestion]:
    """Suggestions that wait for their rounds."""
    return [s for s in state.suggestions if s.outcome is None and is_sure(state, s.run)]


def compare(state: TunerState, suggestion: Suggestion, share_s: float) -> Stage:
    variant = suggestion.variant
    round_s = reserves.round_s(state) + policy.ROUND_FACTOR * variant.extra_s
    wanted = wanted_rounds(state, state.best, suggestion.gain)
    # without the margin of a round: a cut keeps the whole rounds
    fitting = int(policy.ROUND_FACTOR * state.remaining_s / round_s)
    rounds = min(wanted, max(policy.GOOD_ROUNDS, int(share_s / round_s)), fitting)
    task = Task("comparison", suggestion.title)
    if rounds < policy.FEWEST_ROUNDS:
        return state.skip(task, policy.FEWEST_ROUNDS * round_s, matters=False)
    if share_s >= state.remaining_s:
        # Nothing comes after: the rounds end with the budget, not with what was foreseen of it. A
        # first compilation is foreseen for each round, and later ones find most of it on the disk.
        rounds = wanted
    ab_test = ABTest(
        purpose="whatif",
        requests=(
            make_request(
                state, Variant(candidate=state.best), "whatif", ran=state.best_run
            ),
            make_request(state, variant, "whatif", ran=state.best_run),
        ),
        rounds=rounds,
        sigma=state.sigma_of(state.best),
    )
    state, result = yield from run_comparison(state, ab_test, task, round_s, matters=False)
    rest = task._replace(rest=True)
    others = tuple(other for other in state.suggestions if other is not suggestion)
    state = replace(state, suggestions=others)
    if against := objection(replace(state, by_hand=True), result):
        told = against._replace(clause=f". It {against.clause}")
        state = leave_out(state, variant, suggestion.run, told)
        return (yield from fall_back(state.done(rest), suggestion, share_s))
    compared = replace(suggestion, outcome=result)
    interval = result.interval(state.context.objective)
    if is_confirmed(state, compared):
        state = state.done(rest)
    elif interval is None or interval.estimate <= 1:
        state = with_outcome(state, compared)
        return (yield from fall_back(state, suggestion, share_s))
    else:
        compared = replace(compared, unfinished=result.cut_short or rounds < wanted)
        if rounds < wanted:
            left_s = (wanted - rounds) * round_s
            state = state.skip(rest, left_s, matters=False)
    return with_outcome(state, compared)


def fall_back(state: TunerState, suggestion: Suggestion, share_s: float) -> Stage:
    """Compare the same without its last step, if there is such."""
    if suggestion.less is None or not is_sure(state, suggestion.less.run):
        return state
    return (yield from compare(state, suggestion.less, share_s))


def with_outcome(state: TunerState, compared: Suggestion) -> TunerState:
    """With a compared suggestion, and a verdict on each setting that it moves."""
    state = replace(state, suggestions=(*state.suggestions, compared))
    moved = compared.variant.candidate.moved_from(state.best)
    cause: DecisionCause = "suggested" if is_confirmed(state, compared) else "not-proven"
    if cause == "suggested":
        alone = f"was faster in the search. {compared.reason}"
        together = f"is a part of what is suggested as one: {compared.title}."
    else:
        alone = "was faster in its own run; its comparison proved no gain."
        together = f"is a part of {compared.title}, whose comparison proved no gain."
    for change in moved:
        if (
            change_of(state.best, change) is None
        ):  # else its written value was proven by itself
            reason = f"{change.new} {alone if len(moved) == 1 else together}"
            state = state.set_verdict(change, cause, reason)
    return state


def is_confirmed(state: TunerState, suggestion: Suggestion) -> bool:
    """True if the rounds of a suggestion proved its gain."""
    outcome, context = suggestion.outcome, state.context
    return outcome is not None and outcome.proven(context.objective, context.smallest_gain)


def is_sure(state: TunerState, run: Run) -> bool:
    """True if `run` beats the incumbent by more than equal runs differ."""
    return state.gain_over_incumbent(run) > 1 + state.tie_threshold

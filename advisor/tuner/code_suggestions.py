"""Code changes tried in the process, suggested once a comparison confirms them."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace

from advisor import knobs
from advisor.executor.requests import ABTest, Variant
from advisor.knobs.registry import REGISTRY, loader_arguments
from advisor.knobs.tree import number_of
from advisor.model import PROCESS, Candidate, Change, JsonScalar, Run
from advisor.tuner.baseline import phase_of_program
from advisor.tuner.confirm import memory_caveat, objection, wanted_rounds
from advisor.tuner.effects import alters_training, training_note
from advisor.tuner.quality_gate import passes_gate
from advisor.tuner.search import is_turn_of, leave_out, tune_batch_and_workers, unusable
from advisor.tuner.state import (
    FEWEST_ROUNDS,
    GOOD_ROUNDS,
    MARGIN,
    Source,
    Stage,
    Suggestion,
    Task,
    Trials,
    TunerState,
    change_of,
    key_of,
    make_request,
    run_comparison,
    run_trial,
)
from advisor.tuner.value_trials import tune_length_grouping, tune_loader

MOST_COMPARED = 4
"""Suggestions that get their own comparison, most promising first."""
COMPILE_S = 30.0
"""Seconds of compilation that are assumed until one is measured; judgement."""
WORTH_COMPUTE = 0.3
"""Share of time in model calls from which faster calls gain enough; judgement."""
OTHER_COMPANY = (
    "Items of like length share a batch: a pass holds the same items, an update other ones "
    "together. What that does to the results was not measured."
)
LAUNCH_BOUND = 0.2
"""Share of time in kernel launches from which CUDA graphs come first; judgement."""


Tried = tuple[Variant, Run]


@dataclass(frozen=True, slots=True)
class Switch:
    """Change of the code that the probe can make inside the process."""

    name: str
    effect: str
    """Field of Effects that tells if it is on."""
    kind: str = ""
    """Knob that would hold it in a config."""
    _: KW_ONLY
    off: object = False
    """Observed value of `effect` that means off: only then is the switch tried. None: at any value
    that was seen."""
    needs: tuple[str, ...] = ()
    """cuda, training; compute: much of it without a GPU; tolerance: for other rounding."""
    values: Callable[[TunerState], Sequence[JsonScalar]] = lambda _: (True,)
    statement: str = ""
    """Code that can stand alone after the imports."""
    code: str = ""
    """Other code to write."""

    def shown(self, value: JsonScalar) -> str:
        mode: object = "" if value is True else value
        mode = f'mode="{value}"' if mode and self.name == "compile" else mode
        return (self.code or f"`{self.statement}`").format(value=mode)


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
    return run.on_gpu and (run.shares.launch or 0.0) >= LAUNCH_BOUND


def compile_modes(state: TunerState) -> Sequence[str | bool]:
    """Compilation modes; CUDA graphs first where launches dominate."""
    return ("reduce-overhead", True) if is_launch_bound(state) else (True,)


SWITCHES = (
    Switch(
        "cudnn_benchmark", "cudnn_benchmark", "cudnn_benchmark", needs=("cuda",),
        statement="torch.backends.cudnn.benchmark = True",
    ),
    Switch(
        "channels_last", "channels_last", "channels_last", needs=("compute",),
        code="`model = model.to(memory_format=torch.channels_last)`, and the same for its input",
    ),
    Switch(
        "non_blocking", "pin_memory", off=True, needs=("cuda",),
        code="`batch.to(device, non_blocking=True)`",
    ),
    Switch(
        "fused", "fused", "fused_kernels", needs=("cuda", "training"),
        code="`torch.optim.AdamW(..., fused=True)`, and the same for Adam and SGD",
    ),
    Switch(
        "tf32", "tf32", "tf32", needs=("cuda", "tolerance"),
        statement='torch.set_float32_matmul_precision("high")',
    ),
    Switch(
        "autocast", "dtype", "precision", off="float32", needs=("tolerance",),
        values=autocast_dtypes,
        code="`with torch.autocast(device_type, dtype=torch.{value}):` around the model's call",
    ),
    Switch(
        "threads", "threads", off=None, values=thread_counts,
        statement="torch.set_num_threads({value})",
        code="`torch.set_num_threads({value})`, or `OMP_NUM_THREADS={value}` before the command",
    ),
    Switch(
        "compile", "compiled", "compile", needs=("compute",), values=compile_modes,
        code="`model.compile({value})`",
    ),
)  # fmt: skip


def applies(state: TunerState, switch: Switch) -> bool:
    run = state.incumbent_run
    seen = getattr(run.effects, switch.effect)
    missing = {
        "cuda": not run.on_gpu,
        "training": not state.trains,
        "compute": not run.on_gpu and (run.shares.compute or 0.0) < WORTH_COMPUTE,
        "tolerance": not (state.context.consents and state.context.allows("numeric")),
    }
    return (
        seen is not None
        and switch.off in {None, seen}
        and not state.held_by_config(switch.kind)
        and not any(missing[need] for need in switch.needs)
    )


def suggest_changes(state: TunerState) -> Stage:
    """Tune what only the user may change, and try code changes once each.

    Compilation costs most and comes last, unless launches dominate.
    """
    state = with_process(state)
    state = yield from suggest_settings(
        state, (tune_length_grouping, tune_batch_and_workers, tune_loader)
    )
    launches = is_launch_bound(state)
    wanted = [switch for switch in SWITCHES if applies(state, switch)]
    wanted.sort(key=lambda each: (each.name == "compile") is not launches)
    for number, switch in enumerate(wanted, 1):
        state = yield from try_switch(state, switch, wanted[number:])
    return state


def with_process(state: TunerState) -> TunerState:
    """With the running program as a further document, for kinds that no other one holds."""
    kinds = ("batch_size", *loader_arguments())
    held = [kind for kind in kinds if state.held_by_config(kind)]
    found = knobs.process.find(state.incumbent_run.effects, phase_of_program(state), held)
    if found is None:
        return state
    sources = (*state.context.sources, Source(*found))
    return replace(state, context=replace(state.context, sources=sources))


def suggest_settings(
    state: TunerState, stages: Sequence[Callable[[TunerState], Stage]]
) -> Stage:
    """Suggest what `stages` find on top of the best: one stack, of which a part may hold."""
    now, stack = replace(state, by_hand=True), None
    for stage in stages:
        before = now.best.key
        now = yield from stage(now)
        if now.best.key != before and now.best_run is not None:
            stack = stacked(state, now.best, now.best_run, stack)
    told = {each.knob: each for each in now.verdicts}
    for knob in now.all_knobs:  # what was decided when it was its turn stays decided
        earlier = state.verdict_on(knob)
        if earlier is not None and not is_turn_of(now, knob):
            told[key_of(knob)] = earlier
    return replace(
        now,
        best=state.best,
        best_run=state.best_run,
        by_hand=False,
        near_misses=tuple(
            each
            for each in now.near_misses
            if each in state.near_misses or now.in_code(each.knob)
        ),
        verdicts=tuple(told.values()),
        suggestions=(*state.suggestions, *([stack] if stack else [])),
    )


def stacked(
    state: TunerState, candidate: Candidate, run: Run, less: Suggestion | None
) -> Suggestion:
    """Suggestion of the settings of `candidate`, which ran on top of the best."""
    moved = candidate.moved_from(state.best)
    written = [
        f"{each.path}: {each.old} to {each.new}" for each in moved if not each.in_code
    ]
    coded = ", ".join(f"{each.path}={each.new!r}" for each in moved if each.in_code)
    parts = [", ".join(written)] if written else []
    parts += [f"DataLoader arguments: {coded}"] if coded else []
    reasons = ["No config key or option holds what stands in the code."] if coded else []
    if any(each.kind == "length_grouping" for each in moved):
        reasons.append(OTHER_COMPANY)
    batch = next((each for each in moved if each.kind == "batch_size"), None)
    if batch is not None and alters_training(state, candidate, run):
        old, new = (number_of(value) or 1.0 for value in (batch.old, batch.new))
        reasons.append(training_note(state, new / old))
    reason = " ".join(reasons) + (memory_caveat(state, run) if batch else "") + caution(run)
    return Suggestion(
        title="; ".join(parts),
        variant=Variant(candidate=candidate),
        run=run,
        gain=state.gain_over_incumbent(run),
        reason=reason.strip(),
        less=less,
    )


def compare_faster(state: TunerState) -> Stage:
    """Compare the most promising suggestions, each in its budget share."""
    waiting = sorted(to_compare(state), key=lambda each: -each.gain)[:MOST_COMPARED]
    for number, suggestion in enumerate(waiting):
        share_s = state.remaining_s / (len(waiting) - number)
        state = yield from compare(state, suggestion, share_s)
    return state


def to_compare(state: TunerState) -> list[Suggestion]:
    """Suggestions that wait for their rounds."""
    return [s for s in state.suggestions if s.outcome is None and is_sure(state, s.run)]


def compare(state: TunerState, suggestion: Suggestion, share_s: float) -> Stage:
    variant = suggestion.variant
    round_s = state.round_s + MARGIN * variant.extra_s
    wanted = wanted_rounds(state, state.best, suggestion.gain)
    rounds = min(
        wanted, max(GOOD_ROUNDS, int(share_s / round_s)), int(state.remaining_s / round_s)
    )
    task = Task("comparison", suggestion.title)
    if rounds < FEWEST_ROUNDS:
        return state.skip(task, FEWEST_ROUNDS * round_s, matters=False)
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
    others = tuple(each for each in state.suggestions if each is not suggestion)
    state = replace(state, suggestions=others)
    if against := objection(replace(state, by_hand=True), result):
        state = leave_out(state, variant, suggestion.run, f". It {against.why}")
        return (yield from fall_back(state.done(rest), suggestion, share_s))
    compared = replace(suggestion, outcome=result)
    found = result.interval(state.context.objective)
    if is_confirmed(state, compared):
        state = state.done(rest)
    elif found is None or found.estimate <= 1:
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
    if compared.switch:
        return state
    confirmed = is_confirmed(state, compared)
    for change in compared.variant.candidate.moved_from(state.best):
        if change_of(state.best, change) is not None:
            continue  # its written value was proven by itself
        if confirmed:
            reason = f"{change.new} was faster in the search. {compared.reason}"
            state = state.set_verdict(change, "suggested", reason)
        else:
            reason = (
                f"{change.new} was faster in its own run; its comparison proved no gain."
            )
            state = state.set_verdict(change, "not-proven", reason)
    return state


def is_confirmed(state: TunerState, suggestion: Suggestion) -> bool:
    """True if the rounds of a suggestion proved its gain."""
    outcome, context = suggestion.outcome, state.context
    return outcome is not None and outcome.proven(context.objective, context.smallest_gain)


def fastest(
    state: TunerState, variants: Sequence[Variant], later: Sequence[Variant]
) -> Trials[Tried | None]:
    """Fastest of `variants`, if it beats the incumbent by more than the smallest gain.

    Beyond the first, each must win by a tie; a gain within the tie counts if none is larger.
    """
    best: Tried | None = None
    for number, variant in enumerate(variants):
        state, run = yield from try_variant(state, [*variants[number:], *later])
        if run is not None and is_faster(state, run, best):
            cost_s = sum(each.cost_s or 0.0 for each in run.overrides)
            best = replace(variant, extra_s=cost_s), run
    return state, best


def is_faster(state: TunerState, run: Run, best: Tried | None) -> bool:
    """True if `run` beats a sure `best` by a tie, or an unsure one at all.

    Among suggestions a gain within the tie is better than none, as rounds will prove it or not.
    """
    if best is not None and is_sure(state, best[1]):
        return state.is_faster(run, best[1])
    held = state.gain_over_incumbent(best[1]) if best else 1 + state.context.smallest_gain
    return state.gain_over_incumbent(run) > held


def is_sure(state: TunerState, run: Run) -> bool:
    """True if `run` beats the incumbent by more than equal runs differ."""
    return state.gain_over_incumbent(run) > 1 + state.tie_threshold


def try_variant(state: TunerState, queue: Sequence[Variant]) -> Trials[Run | None]:
    """First variant's sound run, if it fit, applied and kept bounds.

    The budget must hold its comparison too, beside an earlier one's.
    """
    variant = queue[0]
    compared_s = FEWEST_ROUNDS * state.round_s * (2 if to_compare(state) else 1)
    own, *ahead = (
        make_request(state, each, "whatif", ran=state.best_run) for each in queue
    )
    state, trial = yield from run_trial(
        state, own, kept_s=compared_s, matters=False, ahead=ahead
    )
    run = trial.run if trial else None
    if run is None or not is_applied(run):
        return state, None
    if state.context.objective.broken(run) or not counts_alike(state, run):
        return state, None
    if why := unusable(state, run):
        return leave_out(state, variant, run, f". It {why}."), None
    return state, run


def is_applied(run: Run) -> bool:
    """True if the probe put every override in place."""
    return bool(run.overrides) and all(each.applied for each in run.overrides)


def counts_alike(state: TunerState, run: Run) -> bool:
    """True if the batch of `run` was read as in the incumbent's runs.

    If it differs by more than asked of the loader, it and the rate were misread, as in
    compiled code. Batches that vary between runs are not compared.
    """
    batches = {batch_share(each) for each in state.incumbent_runs}
    return len(batches) > 1 or batch_share(run) in batches


def batch_share(run: Run) -> float | None:
    """Observed batch over the one asked of the loader, if any."""
    return run.effects.batch and run.effects.batch / (run.effects.batch_asked or 1)


def variants_of(state: TunerState, switch: Switch) -> list[Variant]:
    """The best candidate with each value of `switch` in the process."""
    changes = (
        Change(
            document=PROCESS,
            path=switch.name,
            kind=switch.kind or switch.name,
            knob_class=REGISTRY[switch.kind].knob_class if switch.kind else "free",
            old=None,
            new=value,
            in_code=True,
        )
        for value in switch.values(state)
    )
    extra_s = COMPILE_S if switch.name == "compile" else 0.0
    candidates = (state.best.with_changes(change) for change in changes)
    return [Variant(candidate=each, extra_s=extra_s) for each in candidates]


def try_switch(state: TunerState, switch: Switch, others: Sequence[Switch]) -> Stage:
    """Run `switch` by each value and suggest the fastest; `others` come later."""
    later = [each for other in others for each in variants_of(state, other)]
    state, best = yield from fastest(state, variants_of(state, switch), later)
    if best is None:
        return state
    variant, run = best
    inside = ""
    if "tolerance" in switch.needs:
        if not is_sure(state, run):
            return state  # too little to pay for comparing its results
        state, verdict = yield from passes_gate(state, variant, run)
        if not verdict.inside:
            why = f"{verdict.figures}. {verdict.why}"
            return leave_out(state, variant, run, why, is_open=not verdict.refuted)
        inside = f" It stayed inside its tolerance{verdict.figures}."
    cost = (
        f" It takes {variant.extra_s:.0f} s once, at the start." if variant.extra_s else ""
    )
    value = variant.candidate.in_code.changes[-1].new
    title = switch.name if value is True else f"{switch.name}={value}"
    code = switch.shown(value)
    reason = f"In the code: {code}.{inside}{cost}{caution(run)}"
    suggestion = Suggestion(
        title=title,
        variant=variant,
        run=run,
        gain=state.gain_over_incumbent(run),
        reason=reason,
        switch=switch.name,
    )
    return replace(state, suggestions=(*state.suggestions, suggestion))


def caution(run: Run) -> str:
    return "".join(f" Mind that {each.caution}." for each in run.overrides if each.caution)

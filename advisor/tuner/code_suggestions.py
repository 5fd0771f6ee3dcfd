"""Code changes tried in the process, suggested once a comparison confirms them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from advisor import knobs
from advisor.executor.requests import ABTest, Variant
from advisor.knobs.registry import LOADER_ARGUMENTS, REGISTRY, loader_arguments
from advisor.model import PROCESS, UNFINISHED, Change, JsonScalar, Knob, Purpose, Run
from advisor.tuner.confirm import memory_caveat, wanted_rounds
from advisor.tuner.effects import is_ignored, is_only_suggested, set_ignored, training_note
from advisor.tuner.quality_gate import passes_gate
from advisor.tuner.search import largest_batch, leave_out, unusable, worker_counts
from advisor.tuner.state import (
    FEWEST_ROUNDS,
    GOOD_ROUNDS,
    MARGIN,
    OUT_OF_TIME,
    Stage,
    Suggestion,
    Trials,
    TunerState,
    change_of,
    make_request,
    run_comparison,
    run_trial,
)

MOST_COMPARED = 4
"""Suggestions that get their own comparison, most promising first."""
MOST_VALUES = 4
"""Worker counts and batch growths that get a process."""
COMPILE_S = 30.0
"""Assumed compilation time, until one is measured."""
WORTH_COMPUTE = 0.3
"""Share of time in model calls from which faster ones gain enough."""
LAUNCH_BOUND = 0.2
"""Share of kernel launches from which CUDA graphs come first."""


Tried = tuple[Variant, Run]


@dataclass(frozen=True, slots=True)
class Switch:
    name: str
    effect: str
    """Field of Effects that tells if it is on."""
    kind: str = ""
    """Knob that would hold it in a config."""
    _: KW_ONLY
    off: object = False
    """Its value that makes the switch worth a try; None: any seen."""
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


def override(state: TunerState, document: str | None, **values: JsonScalar) -> Variant:
    """The best candidate with `values` in the code, at the line that `document` names."""
    changes = (
        Change(
            document=document or PROCESS,
            path=name,
            kind=name,
            knob_class=REGISTRY[name].knob_class if name in REGISTRY else "free",
            old=None,
            new=value,
            in_code=True,
        )
        for name, value in values.items()
    )
    return Variant(candidate=state.best.with_changes(*changes))


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
    """Try code changes once each, then compare the faster ones.

    The loader comes first if the program waits for it, else the batch. Compilation costs
    most and comes last, unless launches dominate.
    """
    stages = [try_loader_arguments, try_batches]
    for stage in stages if state.waits else reversed(stages):
        state = yield from stage(state)
    launches = is_launch_bound(state)
    wanted = [switch for switch in SWITCHES if applies(state, switch)]
    wanted.sort(key=lambda each: (each.name == "compile") is not launches)
    for number, switch in enumerate(wanted, 1):
        state = yield from try_switch(state, switch, wanted[number:])
    return (yield from compare_faster(state))


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
    if rounds < FEWEST_ROUNDS:
        return state.skip(suggestion.title, FEWEST_ROUNDS * round_s, matters=False)
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
    what = f"the comparison of {suggestion.title}"
    state, result = yield from run_comparison(state, ab_test, what, round_s, matters=False)
    compared = replace(suggestion, outcome=result)
    found = result.interval(state.context.objective)
    faster = found is not None and found.estimate > 1
    if is_confirmed(state, compared):
        state = state.done(f"the rest of {what}")
    elif faster:
        compared = replace(compared, unfinished=result.cut_short or rounds < wanted)
        if rounds < wanted:
            left_s = (wanted - rounds) * round_s
            state = state.skip(f"the rest of {what}", left_s, matters=False)
    others = tuple(each for each in state.suggestions if each is not suggestion)
    state = replace(state, suggestions=(*others, compared))
    if suggestion.knob is None:
        return state
    change = change_of(variant.candidate, suggestion.knob)
    new = change.new if change else suggestion.title
    if is_confirmed(state, compared):
        reason = f"{new} was faster in the search. {suggestion.reason}"
        return state.set_verdict(suggestion.knob, "advised", reason)
    reason = f"{new} was faster in its own run; its comparison proved no gain."
    return state.set_verdict(suggestion.knob, "kept", reason)


def is_confirmed(state: TunerState, suggestion: Suggestion) -> bool:
    outcome, context = suggestion.outcome, state.context
    return outcome is not None and outcome.proven(context.objective, context.smallest_gain)


def suggest(
    state: TunerState, title: str, tried: Tried, reason: str, **more: Any
) -> TunerState:
    variant, run = tried
    suggestion = Suggestion(
        title=title,
        variant=variant,
        run=run,
        gain=state.gain_over_incumbent(run),
        reason=reason,
        **more,
    )
    return replace(state, suggestions=(*state.suggestions, suggestion))


def fastest(
    state: TunerState,
    variants: Sequence[Variant],
    best: Tried | None = None,
    *,
    knob: Knob | None = None,
    climbing: bool = False,
    later: Iterable[Variant] = (),
) -> Trials[Tried | None]:
    """Fastest of `variants`, if it beats the incumbent, and `best` by a tie; else `best`.

    A gain within the tie counts if none is larger. Climbing ends at the first misfit, or
    at two in a row without a gain: one may have met a slow moment.
    """
    missed = False
    for number, variant in enumerate(variants):
        state, run = yield from try_variant(state, [*variants[number:], *later], knob)
        if run is not None and is_faster(state, run, best):
            cost_s = sum(each.cost_s or 0.0 for each in run.overrides)
            best, missed = (replace(variant, extra_s=cost_s), run), False
        elif climbing and (missed or run is None):
            break
        else:
            missed = True
    return state, best


def is_faster(state: TunerState, run: Run, best: Tried | None) -> bool:
    """True if `run` beats a sure `best` by a tie, or an unsure one at all."""
    if best is not None and is_sure(state, best[1]):
        return state.is_faster(run, best[1])
    held = state.gain_over_incumbent(best[1]) if best else 1 + state.context.smallest_gain
    return state.gain_over_incumbent(run) > held


def is_sure(state: TunerState, run: Run) -> bool:
    """True if `run` beats the incumbent by more than equal runs differ."""
    return state.gain_over_incumbent(run) > 1 + state.tie_threshold


def try_variant(
    state: TunerState, queue: Sequence[Variant], knob: Knob | None
) -> Trials[Run | None]:
    """First variant's sound run, if it fit, applied and kept bounds.

    The budget must hold its comparison too, beside an earlier one's.
    """
    variant = queue[0]
    compared_s = FEWEST_ROUNDS * state.round_s * (2 if to_compare(state) else 1)
    coded = bool(variant.candidate.in_code.changes)
    purpose: Purpose = "whatif" if coded else "search"
    own, *ahead = (make_request(state, each, purpose, ran=state.best_run) for each in queue)
    state, trial = yield from run_trial(
        state, own, kept_s=compared_s, matters=False, ahead=ahead
    )
    run = trial.run if trial else None
    if run is None or (coded and not is_applied(run)):
        return state, None
    if knob is not None and is_ignored(knob, variant.candidate, state.incumbent_run, run):
        return set_ignored(state, knob, variant.candidate, run), None
    if state.context.objective.broken(run) or (coded and not counts_alike(state, run)):
        return state, None
    if why := unusable(state, run, advised=knob is not None):
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
    extra_s = COMPILE_S if switch.name == "compile" else 0.0
    variants = [override(state, None, **{switch.name: v}) for v in switch.values(state)]
    return [replace(each, extra_s=extra_s) for each in variants]


def try_switch(state: TunerState, switch: Switch, others: Sequence[Switch]) -> Stage:
    """Run `switch` by each value and suggest the fastest; `others` come later."""
    later = [each for other in others for each in variants_of(state, other)]
    state, best = yield from fastest(state, variants_of(state, switch), later=later)
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
    return suggest(state, title, best, reason, switch=switch.name)


def caution(run: Run) -> str:
    return "".join(f" Mind that {each.caution}." for each in run.overrides if each.caution)


def try_batches(state: TunerState) -> Stage:
    """Double each batch that may only be suggested, while faster: of finished items alone."""
    if state.original.counted in UNFINISHED:
        return state
    for knob in state.tunable("batch_size"):
        if state.context.workload.validation:
            reason = "Left as it is: the training may use it too, and its validation was measured."
            state = state.set_verdict(knob, "listed", reason)
        elif is_only_suggested(state, knob):
            state = yield from try_larger_batches(state, knob)
    if not (state.held_by_config("batch_size") or state.context.workload.validation):
        state = yield from try_batches_in_code(state)
    return state


def try_batches_in_code(state: TunerState) -> Stage:
    """Suggest a larger DataLoader batch, where the code holds it."""
    seen = state.incumbent_run.effects
    old, site = seen.batch_asked or 0, seen.loader_site
    variants = [override(state, site, batch_size=size) for size in doubled(state, old)]
    state, best = yield from fastest(state, variants, climbing=True)
    if best is None:
        return state
    new = int(str(best[0].candidate.in_code.changes[-1].new))
    note = f" {training_note(state, new / old)}" if state.trains else ""
    reason = f"No key or option was found for it.{note}{memory_caveat(state, best[1])}"
    title = f"DataLoader arguments: batch_size={new}"
    return suggest(state, title, best, reason, arguments=(("batch_size", new),))


def doubled(state: TunerState, batch: int) -> list[int]:
    """Doublings of `batch` that the data fill."""
    sizes = [batch * 2**n for n in range(1, MOST_VALUES + 1)]
    return [size for size in sizes if batch < size <= largest_batch(state, batch)]


def try_larger_batches(state: TunerState, knob: Knob) -> Stage:
    """Suggest the largest batch faster than the one before."""
    old, before = int(str(state.current(knob))), len(state.skipped)
    variants = []
    for value in doubled(state, old):
        candidate = state.with_value(knob, value)
        if isinstance(candidate, knobs.InvalidChange):
            break
        variants.append(Variant(candidate=candidate))
    state, best = yield from fastest(state, variants, knob=knob, climbing=True)
    if best is None or not is_sure(state, best[1]):
        if knob not in state.tunable("batch_size"):
            return state
        if len(state.skipped) > before:
            return state.set_verdict(knob, "skipped", OUT_OF_TIME)
        reason = f"No larger batch ran faster by more than {state.tie_percent}."
        state = state.set_verdict(knob, "kept", reason)
        if best is None:
            return state
    change = change_of(best[0].candidate, knob)
    assert change is not None
    new = int(str(change.new))
    note = training_note(state, new / old) + memory_caveat(state, best[1])
    if is_sure(state, best[1]):
        state = state.set_verdict(
            knob, "advised", f"{new} was faster in the search. {note}"
        )
    title = f"{knob.path}: {old} to {new}"
    return suggest(state, title, best, note, knob=knob)


def try_loader_arguments(state: TunerState) -> Stage:
    """Try loader arguments, each atop the faster ones."""
    seen = state.incumbent_run.effects
    if seen.workers is None:
        return state
    chosen: dict[str, int | bool] = {}
    found: dict[str, int | bool] = {}
    best: Tried | None = None
    for name, values in loader_values(state):
        if name in loader_arguments("workers") and not chosen.get(
            "num_workers", seen.workers
        ):
            continue
        variants = [
            override(state, seen.loader_site, **chosen, **{name: value}) for value in values
        ]
        state, best = yield from fastest(state, variants, best)
        if best is not None and best[0].candidate in [each.candidate for each in variants]:
            new = best[0].candidate.in_code.changes[-1].new
            assert isinstance(new, int)
            found = {**chosen, name: new}
            chosen = found if is_sure(state, best[1]) else chosen
    if best is None:
        return state
    title = "DataLoader arguments: " + ", ".join(f"{n}={v!r}" for n, v in found.items())
    reason = f"They stand in the code, and no config key holds them.{caution(best[1])}"
    return suggest(state, title, best, reason, arguments=tuple(found.items()))


def loader_values(state: TunerState) -> Iterable[tuple[str, list[int] | list[bool]]]:
    seen = state.incumbent_run.effects
    waits = (
        1 / max(1e-9, 1 - (state.incumbent_run.wait_share or 0.0)) > 1 + state.tie_threshold
    )
    if waits and not state.held_by_config("num_workers"):
        rates = state.loader_alone
        counts = sorted(
            worker_counts(state, seen.workers), key=lambda v: (-rates.get(v, 0.0), v)
        )
        yield "num_workers", counts[:MOST_VALUES]
    for argument in LOADER_ARGUMENTS:
        helps = state.incumbent_run.on_gpu if "gpu" in argument.needs else waits
        held = state.held_by_config(argument.kind)
        if (
            argument.in_code is not None
            and helps
            and not held
            and argument.worth_suggesting(seen)
        ):
            yield argument.kind, [argument.in_code]

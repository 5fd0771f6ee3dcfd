"""Code changes, tried from inside the process.

They are suggested, not applied. What one run suggests is shown only once a comparison confirmed it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from advisor import knobs, numbers
from advisor.executor.comparison import Comparison
from advisor.executor.requests import ABTest, MinimumEffect, Variant
from advisor.knobs.registry import LOADER_ARGUMENTS, loader_arguments
from advisor.tuner import output_check
from advisor.tuner.confirm import planned_rounds, side
from advisor.tuner.quality_gate import passes_gate
from advisor.tuner.search import training_batch_promise, try_training_batches, worker_counts
from advisor.tuner.state import (
    FEWEST_ROUNDS,
    GOOD_ROUNDS,
    MARGIN,
    Result,
    SearchStep,
    Stage,
    Suggestion,
    TunerState,
    change_of,
    key_of,
    run_trial,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from advisor.model import Candidate, Run

MOST_COMPARED = 4
"""Suggestions that get a comparison of their own, the most promising first."""
MIN_PADDING = 0.1
"""Part of the batches that must be padding for buckets to be worth a process."""
MOST_COUNTS = 4
"""Worker counts that get a process."""
COMPILE_S = 90.0
"""Time that compilation may add to one process, outside the measured window."""
WORTH_COMPUTE = 0.3
"""Share of the time in the model's calls, below which to speed them up gains little."""
LAUNCH_BOUND = 0.2
"""Share of the time in kernel launches from which on CUDA graphs come first."""
MOST_VALUES = 2
"""Values of one switch that get a process."""
ADDS_UP = 0.9
"""Part of the product of single gains from which on they add up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Switch of the code, and its conditions for a trial."""

    name: str
    """As the probe knows it."""
    kind: str | None
    """The knob that would hold it in a config."""
    effect: str
    """Field of Effects that tells whether it is on."""
    off: object = None
    """Its value where the switch is worth a try; None: any that was seen."""
    values: Callable[[TunerState], tuple[str, ...]] | None = None
    """Values to set it to; None: it is put on."""
    needs_cuda: bool = True
    needs_training: bool = False
    guarded: bool = False
    """It changes rounding, so it needs a declared tolerance."""
    extra_s: float = 0.0
    least_compute: float = 0.0
    """Without a GPU the model must take this share of the time."""
    code: str
    """Code to write, with `{value}` where it has some."""
    statements: tuple[str, ...] = ()
    """The same, where it can stand by itself after the imports."""


def autocast_dtypes(state: TunerState) -> tuple[str, ...]:
    """Dtype of autocast; float16 only without gradients."""
    if "bfloat16" in state.context.precisions:
        return ("bfloat16",)
    return ("float16",) if "float16" in state.context.precisions and not state.trains else ()


def thread_counts(state: TunerState) -> tuple[str, ...]:
    """Thread counts worth a trial."""
    seen = state.incumbent_run.effects
    cpus = max(1, state.context.cpus // (seen.world_size or 1))
    workers = seen.workers or 0
    left = [max(1, cpus - workers)] if workers else []
    wanted = [*left, cpus, max(1, cpus // 2), 1]
    others = [count for count in dict.fromkeys(wanted) if count != seen.threads]
    return tuple(map(str, others[:MOST_VALUES]))


def is_launch_bound(state: TunerState) -> bool:
    """True if a GPU waits for kernel launches."""
    run = state.incumbent_run
    return run.on_gpu and (run.shares.launch or 0.0) >= LAUNCH_BOUND


def compile_modes(state: TunerState) -> tuple[str, ...]:
    """Compilation modes; CUDA graphs first where launches dominate."""
    return ("=reduce-overhead", "") if is_launch_bound(state) else ("",)


SWITCHES = (
    Switch(
        name="cudnn_benchmark",
        kind="cudnn_benchmark",
        effect="cudnn_benchmark",
        off=False,
        code="`torch.backends.cudnn.benchmark = True`",
        statements=("torch.backends.cudnn.benchmark = True",),
    ),
    Switch(
        name="channels_last",
        kind="channels_last",
        effect="channels_last",
        off=False,
        needs_cuda=False,
        least_compute=WORTH_COMPUTE,
        code="`model = model.to(memory_format=torch.channels_last)`, and the same for its input",
    ),
    Switch(
        name="non_blocking",
        kind=None,
        effect="pin_memory",
        off=True,
        code="`batch.to(device, non_blocking=True)`",
    ),
    Switch(
        name="set_to_none",
        kind=None,
        effect="set_to_none",
        off=False,
        needs_cuda=False,
        needs_training=True,
        code="`optimizer.zero_grad(set_to_none=True)`",
    ),
    Switch(
        name="fused",
        kind="fused_kernels",
        effect="fused",
        off=False,
        needs_training=True,
        code="`torch.optim.AdamW(..., fused=True)`, and the same for Adam and SGD",
    ),
    Switch(
        name="tf32",
        kind="tf32",
        effect="tf32",
        off=False,
        guarded=True,
        code='`torch.set_float32_matmul_precision("high")`',
        statements=('torch.set_float32_matmul_precision("high")',),
    ),
    Switch(
        name="autocast",
        kind="precision",
        effect="dtype",
        off="float32",
        needs_cuda=False,
        guarded=True,
        values=autocast_dtypes,
        code="`with torch.autocast(device_type, dtype=torch.{value}):` around the model's call",
    ),
    Switch(
        name="threads",
        kind=None,
        effect="threads",
        needs_cuda=False,
        values=thread_counts,
        code="`torch.set_num_threads({value})`, or `OMP_NUM_THREADS={value}` before the command",
        statements=("torch.set_num_threads({value})",),
    ),
    Switch(
        name="compile",
        kind="compile",
        effect="compiled",
        off=False,
        needs_cuda=False,
        least_compute=WORTH_COMPUTE,
        extra_s=COMPILE_S,
        values=compile_modes,
        code="`model.compile({value})`",
    ),
)


def code_of(switch: Switch, value: str) -> str:
    """Code of a switch with its value: `model.compile(mode="reduce-overhead")`."""
    if switch.name == "compile" and value:
        value = f'mode="{value}"'
    return switch.code.format(value=value)


def switch_of(whatif: str) -> tuple[Switch, str]:
    """Switch and value of `compile` or `threads=4`."""
    name, _, value = whatif.partition("=")
    return next(switch for switch in SWITCHES if switch.name == name), value


def applies(state: TunerState, switch: Switch) -> bool:
    """True if `switch` deserves a trial."""
    run = state.incumbent_run
    seen = getattr(run.effects, switch.effect)
    if seen is None or switch.off not in {None, seen}:
        return False
    if switch.kind and _tuned_in_config(state, switch.kind):
        return False
    if (switch.needs_cuda and not run.on_gpu) or (switch.needs_training and not state.trains):
        return False
    if not run.on_gpu and (run.shares.compute or 0.0) < switch.least_compute:
        return False
    return bool(whatifs(state, switch))


def whatifs(state: TunerState, switch: Switch) -> tuple[str, ...]:
    """Names of the switch's values for the probe."""
    if switch.values is None:
        return (switch.name,)
    values = switch.values(state)
    return tuple(
        switch.name + (value if value == "" or value.startswith("=") else f"={value}")
        for value in values
    )


def _tuned_in_config(state: TunerState, kind: str) -> bool:
    verdicts = [state.verdict_on(knob) for knob in state.of_kind(kind)]
    return any(each is None or each.outcome not in {"ignored", "listed"} for each in verdicts)


# --- the stage ------------------------------------------------------------------------------------


def suggest_changes(state: TunerState) -> Stage:
    """Try changes of the code and compare the faster ones.

    Waiting, padding and the throughput model bound the gain of loader, buckets and batch. Nothing
    foretells a switch, so switches follow; compilation waits until the cheap ones are compared,
    unless launches take the time.
    """
    padding = state.incumbent_run.effects.padding_share or 0.0
    foreseen = (
        (state.gain_without_waiting, try_loader_arguments),
        (1 / max(1e-9, 1 - padding), try_buckets),
        (training_batch_promise(state), try_training_batches),
    )
    by_promise = sorted(foreseen, key=lambda each: -each[0])
    worth = [gain > 1 + state.context.smallest_gain for gain, _ in by_promise]
    for number, (_, stage) in enumerate(by_promise, 1):
        state = yield from stage(state)
        state = yield from compare_best(state, later=sum(worth[number:]))
    may_round = state.context.consents and state.context.allows("numeric")
    wanted = [
        switch
        for switch in SWITCHES
        if applies(state, switch) and (may_round or not switch.guarded)
    ]
    for dear in (True, False) if is_launch_bound(state) else (False, True):
        for switch in wanted:
            if (switch.extra_s > state.price_s) is dear:
                state = yield from try_switch(state, switch)
        state = yield from compare_best(state)
    if together := all_at_once(state):
        state = replace(state, suggestions=(*state.suggestions, together))
        state = yield from compare(state, together)
    return state


def compare_best(state: TunerState, later: int = 0) -> Stage:
    """Compare the most promising suggestions within the budget.

    For each of so many `later` ones that are still to be tried, the least time is kept back.
    """
    without = sorted((s for s in state.suggestions if s.outcome is None), key=lambda s: -s.gain)
    for number, suggestion in enumerate(without[:MOST_COMPARED], 1):
        known = min(len(without), MOST_COMPARED) - number + (len(without) > 1)
        kept_s = known * state.rounds_s(FEWEST_ROUNDS) + later * state.fewest_s
        state = yield from compare(state, suggestion, kept_s)
    return state


def compare(state: TunerState, suggestion: Suggestion, later_s: float = 0.0) -> Stage:
    """Compare what was proven, with and without the suggestion.

    `later_s` are kept back, if this one gets its own fewest rounds.
    """
    variant = suggestion.variant
    if suggestion.kind == "training-batch":
        candidate = rebased(state, suggestion)
        if isinstance(candidate, knobs.InvalidChange):
            return state
        variant = replace(variant, candidate=candidate)
    round_s = state.rounds_s(1) + MARGIN * variant.extra_s
    spare_s = max(0.0, state.remaining_s - GOOD_ROUNDS * round_s)
    kept_s = min(spare_s, later_s)
    rounds = planned_rounds(state, suggestion.gain, round_s, kept_s=kept_s)
    if rounds < FEWEST_ROUNDS:
        return state.skip(suggestion.title, FEWEST_ROUNDS * round_s, matters=False)
    least = MinimumEffect(objective=state.context.objective, gain=state.context.smallest_gain)
    ab_test = ABTest(
        purpose="whatif",
        title=suggestion.title,
        requests=(
            side(state, Variant(candidate=state.best), "whatif"),
            side(state, variant, "whatif"),
        ),
        rounds=rounds,
        minimum_effect=None if suggestion.kind == "together" else least,
        sigma=state.sigma,
    )
    result = yield SearchStep(request=ab_test, state=state)
    assert isinstance(result, Comparison)
    state = state.with_result(result)
    if result.cut_short:
        rest_s = max(1, rounds - len(result.counted)) * round_s
        alone = not any(is_confirmed(state, each) for each in state.suggestions)
        what = f"the rest of the comparison of {suggestion.title}"
        state = state.skip(what, rest_s, matters=alone)
    others = tuple(each for each in state.suggestions if each is not suggestion)
    compared = replace(suggestion, variant=variant, outcome=result)
    state = replace(state, suggestions=(*others, compared))
    return without_gain(state, compared)


def rebased(state: TunerState, suggestion: Suggestion) -> knobs.InvalidChange | Candidate:
    """The suggested batch on top of the best so far."""
    knob = next(knob for knob in state.all_knobs if key_of(knob) == suggestion.knob)
    change = change_of(suggestion.variant.candidate, key_of(knob))
    assert change is not None
    return state.with_value(knob, change.new)


def without_gain(state: TunerState, suggestion: Suggestion) -> TunerState:
    """Set the verdict on an unconfirmed suggestion's knob."""
    key, result = suggestion.knob, suggestion.outcome
    if key is None or result is None or is_confirmed(state, suggestion):
        return state
    change = change_of(suggestion.variant.candidate, key)
    if change is None or change_of(state.best, key) is not None:
        return state
    reason = (
        f"{change.new} was faster in its own run; a comparison of "
        f"{numbers.many(len(result.counted), 'round')} confirmed no gain. It would change how the "
        "model is trained, too."
    )
    return state.set_verdict(key, "kept", reason)


def is_confirmed(state: TunerState, suggestion: Suggestion) -> bool:
    """True if its comparison confirmed a suggestion."""
    outcome = suggestion.outcome
    return outcome is not None and outcome.proven(
        state.context.objective, state.context.smallest_gain
    )


def is_sound(state: TunerState, run: Run) -> bool:
    """True if the change took effect and keeps every bound."""
    applied = run.whatif is None or run.whatif.applied
    fits = (run.held_gib or 0.0) <= state.context.memory_limit_gib
    inside = fits and not state.context.objective.broken(run)
    return applied and inside and not output_check.output_regression(state.originals, run)


def all_at_once(state: TunerState) -> Suggestion | None:
    """All confirmed suggestions together; None for fewer than two."""
    objective = state.context.objective
    proven = [
        each
        for each in state.suggestions
        if is_confirmed(state, each) and each.kind != "training-batch"
    ]
    if len(proven) < 2:
        return None
    gains = [each.outcome.interval(objective) for each in proven if each.outcome]
    product = math.prod(gain.estimate for gain in gains if gain)
    changes = [change for each in proven for change in each.variant.candidate.changes]
    variant = Variant(
        candidate=state.best.with_changes(*changes),
        whatif=joined([each.variant.whatif for each in proven if each.variant.whatif]),
        extra_s=max(each.variant.extra_s for each in proven),
    )
    return Suggestion(
        kind="together",
        title="All of these together",
        variant=variant,
        run=proven[0].run,
        gain=product,
        parts=tuple(each.title for each in proven),
        product=product,
    )


def overlap(suggestion: Suggestion, gain: float) -> str:
    """Sentence on how far single gains add up."""
    reached = numbers.percent(gain / suggestion.product)
    product = f"The product of the {len(suggestion.parts)} gains is {suggestion.product:.2f}x"
    if gain / suggestion.product >= ADDS_UP:
        return f"{product}, and {reached} of it was reached."
    return (
        f"{product}, and {reached} of it was reached: they save parts of the same time, or one "
        "hides the gain of another."
    )


# --- single runs ----------------------------------------------------------------------------------


def faster_run(
    state: TunerState, variant: Variant
) -> Generator[SearchStep, Result, tuple[TunerState, Run | None]]:
    """Run of `variant`, if it beat the incumbent.

    It must apply and win by half a tie. It is not begun where the budget does not hold its
    comparison, beside those of earlier ones.
    """
    fewest_s = FEWEST_ROUNDS * state.rounds_s(1)
    needed_s = state.price_s + variant.extra_s + fewest_s + FEWEST_ROUNDS * MARGIN * variant.extra_s
    needed_s += fewest_s if any(each.outcome is None for each in state.suggestions) else 0.0
    if needed_s > state.remaining_s:
        return state.skip(variant.label, needed_s, matters=False), None
    request = side(state, variant, "whatif")
    state, trial = yield from run_trial(state, request, kept_s=0.0, matters=False)
    run = trial.run if trial else None
    if run is None or run.whatif is None or not is_sound(state, run):
        return state, None
    faster = state.gain_over_incumbent(run) > 1 + state.level_threshold
    return state, run if faster else None


def try_switch(state: TunerState, switch: Switch) -> Stage:
    """Run `switch` by each value and suggest the fastest."""
    best: tuple[str, Run] | None = None
    for name in whatifs(state, switch):
        variant = Variant(candidate=state.best, whatif=name, extra_s=switch.extra_s)
        state, run = yield from faster_run(state, variant)
        if run is not None and (best is None or state.is_faster(run, best[1])):
            best = (name, run)
    if best is None:
        return state
    name, run = best
    variant = Variant(candidate=state.best, whatif=name, extra_s=switch.extra_s)
    inside = ""
    if switch.guarded:
        state, verdict = yield from passes_gate(state, variant, run)
        if not verdict.inside:
            return state
        inside = f" It stayed inside its tolerance{verdict.figures}."
    value = switch_of(name)[1]
    cost_s = run.whatif.cost_s if run.whatif else None
    cost = f" It takes {cost_s:.0f} s once, at the start." if cost_s else ""
    reason = f"In the code: {code_of(switch, value)}.{inside}{cost}{caution(run)}"
    suggestion = Suggestion(
        kind="switch",
        title=name,
        variant=variant,
        run=run,
        gain=state.gain_over_incumbent(run),
        reason=reason,
    )
    return replace(state, suggestions=(*state.suggestions, suggestion))


def caution(run: Run) -> str:
    """Side effect of a code change, in a sentence."""
    text = run.whatif.caution if run.whatif else None
    return f" Mind that {text}." if text else ""


# --- arguments of the DataLoader call -------------------------------------------------------------


def try_loader_arguments(state: TunerState) -> Stage:
    """Try loader arguments, each on top of the faster ones."""
    best = state.incumbent_run
    if best.effects.workers is None:
        return state
    site = best.effects.loader_site
    chosen: dict[str, int | bool] = {}
    fastest: Run | None = None
    for name, values in loader_values(state):
        for value in values:
            if needs_workers(name) and not chosen.get("num_workers", best.effects.workers):
                continue
            whatif = of_loader({**chosen, name: value}, site)
            variant = Variant(candidate=state.best, whatif=whatif)
            state, run = yield from faster_run(state, variant)
            if run is None and name == "batch_size":
                break
            if run is None or (fastest is not None and not state.is_faster(run, fastest)):
                continue
            fastest, chosen = run, {**chosen, name: value}
    if fastest is None:
        return state
    suggestion = Suggestion(
        kind="loader",
        title="DataLoader arguments: " + ", ".join(f"{n}={v!r}" for n, v in chosen.items()),
        variant=Variant(candidate=state.best, whatif=of_loader(chosen, site)),
        run=fastest,
        gain=state.gain_over_incumbent(fastest),
        reason=f"They stand in the code, and no config key holds them.{caution(fastest)}",
        arguments=tuple(chosen.items()),
    )
    return replace(state, suggestions=(*state.suggestions, suggestion))


def loader_values(state: TunerState) -> Iterable[tuple[str, list[int] | list[bool]]]:
    """Loader arguments and values worth trying, in order."""
    seen = state.incumbent_run.effects
    waits = state.gain_without_waiting > 1 + state.tie_threshold
    if waits and not state.held_by_config("num_workers"):
        yield "num_workers", fastest_counts(state, seen.workers)
    for argument in LOADER_ARGUMENTS:
        helps = state.incumbent_run.on_gpu if "gpu" in argument.needs else waits
        held = state.held_by_config(argument.kind)
        if argument.in_code is not None and helps and not held and argument.worth_suggesting(seen):
            yield argument.kind, [argument.in_code]
    if not state.trains and not state.held_by_config("batch_size") and seen.batch:
        yield "batch_size", [int(seen.batch) * times for times in (2, 4, 8, 16)]


def fastest_counts(state: TunerState, current: object) -> list[int]:
    """Worker counts worth a process, best loader first."""
    rates = state.loader_alone
    ordered = sorted(worker_counts(state, current), key=lambda v: (-rates.get(v, 0.0), v))
    return ordered[: max(1, min(MOST_COUNTS, state.trials_left // 2))]


def needs_workers(name: str) -> bool:
    """True for an argument that a DataLoader takes only with workers."""
    return name in loader_arguments("workers")


def try_buckets(state: TunerState) -> Stage:
    """Try length buckets where padding is large."""
    seen = state.incumbent_run.effects
    if (seen.padding_share or 0.0) < MIN_PADDING:
        return state
    whatif = of_loader({"buckets": 1}, seen.loader_site)
    variant = Variant(candidate=state.best, whatif=whatif)
    state, run = yield from faster_run(state, variant)
    if run is None:
        return state
    after = run.effects.padding_share
    cost_s = run.whatif.cost_s if run.whatif else None
    reading = (
        f" To read the length of every item took {numbers.duration(cost_s)} at the start; where "
        "yours are known from their files, give those."
        if cost_s
        else ""
    )
    reason = (
        f"{numbers.percent(seen.padding_share)} of the positions of its batches are padding; drawn "
        f"from pools of items of like length it is {numbers.percent(after)}. Give the DataLoader a "
        "`batch_sampler` that sorts some hundred batches by length, cuts them, and shuffles the "
        f"batches.{reading}{caution(run)}"
    )
    suggestion = Suggestion(
        kind="buckets",
        title="Batches of items of like length",
        variant=variant,
        run=run,
        gain=state.gain_over_incumbent(run),
        reason=reason,
    )
    return replace(state, suggestions=(*state.suggestions, suggestion))


def of_loader(values: Mapping[str, int | bool], site: str | None) -> str:
    """`loader.num_workers=4,loader.prefetch_factor=4@train.py:88`."""
    words = ",".join(f"loader.{name}={int(value)}" for name, value in values.items())
    return words + (f"@{site}" if site else "")


def joined(whatifs_: Sequence[str]) -> str | None:
    """Join several names; those of a DataLoader in one line."""
    parts = [each.partition("@") for each in whatifs_]
    site = next((site for _, _, site in parts if site), "")
    words = ",".join(words for words, _, _ in parts)
    return f"{words}@{site}" if site else words or None

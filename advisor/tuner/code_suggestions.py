"""Code changes, tried from inside the process.

They are suggested, not applied. What one run suggests is shown only once a comparison confirmed it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from advisor import knobs
from advisor.executor.comparison import Comparison
from advisor.executor.requests import ABTest, MinimumEffect, Variant
from advisor.knobs.registry import LOADER_ARGUMENTS, loader_arguments
from advisor.tuner.confirm import side, wanted_rounds
from advisor.tuner.effects import is_ignored, set_ignored
from advisor.tuner.quality_gate import passes_gate
from advisor.tuner.search import largest_batch, memory_caveat, unusable, worker_counts
from advisor.tuner.state import (
    FEWEST_ROUNDS,
    GOOD_ROUNDS,
    MARGIN,
    OUT_OF_TIME,
    Result,
    SearchStep,
    Stage,
    Suggestion,
    TunerState,
    key_of,
    run_trial,
)
from advisor.tuner.training import is_only_suggested, training_note

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from advisor.executor.requests import KnobKey
    from advisor.model import Candidate, Knob, Run

MOST_COMPARED = 4
"""Suggestions that get a comparison of their own, the most promising first."""
MOST_VALUES = 4
"""Worker counts, and growths of a batch, that get a process."""
COMPILE_S = 30.0
"""Assumed time of a compilation, until one was measured."""
WORTH_COMPUTE = 0.3
"""Share of the time in the model's calls, below which to speed them up gains little."""
LAUNCH_BOUND = 0.2
"""Share of the time in kernel launches from which on CUDA graphs come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Switch of the code, and its conditions for a trial."""

    name: str
    """As the probe knows it."""
    effect: str
    """Field of Effects that tells whether it is on."""
    off: object = False
    """Its value where the switch is worth a try; None: any that was seen."""
    kind: str = ""
    """The knob that would hold it in a config."""
    needs: frozenset[str] = frozenset()
    """cuda, training, compute: much of it without a GPU; tolerance: it changes rounding."""
    values: Callable[[TunerState], tuple[str, ...]] = lambda _: ("",)
    """Values to set it to."""
    statement: str = ""
    """Code that can stand by itself after the imports."""
    code: str = ""
    """Other code to write."""

    def shown(self, value: str) -> str:
        """Code to write, with `value`."""
        mode = f'mode="{value}"' if value and self.name == "compile" else value
        return (self.code or f"`{self.statement}`").format(value=mode)


def autocast_dtypes(state: TunerState) -> tuple[str, ...]:
    """Dtype of autocast; float16 only without gradients."""
    if "bfloat16" in state.context.precisions:
        return ("bfloat16",)
    return ("float16",) if "float16" in state.context.precisions and not state.trains else ()


def thread_counts(state: TunerState) -> tuple[str, ...]:
    """Two thread counts worth a trial: what the workers leave first."""
    seen = state.incumbent_run.effects
    cpus = max(1, state.context.cpus // (seen.world_size or 1))
    left = [max(1, cpus - seen.workers)] if seen.workers else []
    wanted = dict.fromkeys([*left, cpus, max(1, cpus // 2), 1])
    return tuple(str(count) for count in wanted if count != seen.threads)[:2]


def is_launch_bound(state: TunerState) -> bool:
    """True if a GPU waits for kernel launches."""
    run = state.incumbent_run
    return run.on_gpu and (run.shares.launch or 0.0) >= LAUNCH_BOUND


def compile_modes(state: TunerState) -> tuple[str, ...]:
    """Compilation modes; CUDA graphs first where launches dominate."""
    return ("reduce-overhead", "") if is_launch_bound(state) else ("",)


CUDA, COMPUTE = frozenset({"cuda"}), frozenset({"compute"})
SWITCHES = (
    Switch(
        name="cudnn_benchmark",
        effect="cudnn_benchmark",
        kind="cudnn_benchmark",
        needs=CUDA,
        statement="torch.backends.cudnn.benchmark = True",
    ),
    Switch(
        name="channels_last",
        effect="channels_last",
        kind="channels_last",
        needs=COMPUTE,
        code="`model = model.to(memory_format=torch.channels_last)`, and the same for its input",
    ),
    Switch(
        name="non_blocking",
        effect="pin_memory",
        off=True,
        needs=CUDA,
        code="`batch.to(device, non_blocking=True)`",
    ),
    Switch(
        name="fused",
        effect="fused",
        kind="fused_kernels",
        needs=frozenset({"cuda", "training"}),
        code="`torch.optim.AdamW(..., fused=True)`, and the same for Adam and SGD",
    ),
    Switch(
        name="tf32",
        effect="tf32",
        kind="tf32",
        needs=frozenset({"cuda", "tolerance"}),
        statement='torch.set_float32_matmul_precision("high")',
    ),
    Switch(
        name="autocast",
        effect="dtype",
        off="float32",
        kind="precision",
        needs=frozenset({"tolerance"}),
        values=autocast_dtypes,
        code="`with torch.autocast(device_type, dtype=torch.{value}):` around the model's call",
    ),
    Switch(
        name="threads",
        effect="threads",
        off=None,
        values=thread_counts,
        statement="torch.set_num_threads({value})",
        code="`torch.set_num_threads({value})`, or `OMP_NUM_THREADS={value}` before the command",
    ),
    Switch(
        name="compile",
        effect="compiled",
        kind="compile",
        needs=COMPUTE,
        values=compile_modes,
        code="`model.compile({value})`",
    ),
)


def switch_of(whatif: str) -> tuple[Switch, str]:
    """Switch and value of `compile` or `threads=4`."""
    name, _, value = whatif.partition("=")
    return next(switch for switch in SWITCHES if switch.name == name), value


def applies(state: TunerState, switch: Switch) -> bool:
    """True if `switch` deserves a trial."""
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


# --- the stage ------------------------------------------------------------------------------------


def suggest_changes(state: TunerState) -> Stage:
    """Try changes of the code and compare the faster ones.

    Waiting bounds the gain of the loader, and more batches may fit; nothing foretells a switch.
    Compilation costs most, so it comes last, unless launches take the time.
    """
    for stage in (try_loader_arguments, try_training_batches):
        state = yield from stage(state)
        state = yield from compare_faster(state)
    wanted = [switch for switch in SWITCHES if applies(state, switch)]
    for costly in (True, False) if is_launch_bound(state) else (False, True):
        for switch in wanted:
            if (switch.name == "compile") is costly:
                state = yield from try_switch(state, switch)
        state = yield from compare_faster(state)
    return state


def compare_faster(state: TunerState) -> Stage:
    """Compare the most promising suggestions within the budget."""
    waiting = sorted((s for s in state.suggestions if s.outcome is None), key=lambda s: -s.gain)
    waiting = waiting[:MOST_COMPARED]
    for number, suggestion in enumerate(waiting, 1):
        later_s = (len(waiting) - number) * state.rounds_s(FEWEST_ROUNDS)
        state = yield from compare(state, suggestion, later_s)
    return state


def compare(state: TunerState, suggestion: Suggestion, later_s: float) -> Stage:
    """Compare the best so far with and without the suggestion.

    `later_s` are kept back, if this one gets its own good rounds.
    """
    variant = suggestion.variant
    round_s = state.rounds_s(1) + MARGIN * variant.extra_s
    kept_s = min(max(0.0, state.remaining_s - GOOD_ROUNDS * round_s), later_s)
    room = int((state.remaining_s - kept_s) / max(round_s, 1e-9))
    rounds = min(wanted_rounds(state, suggestion.gain), room)
    if rounds < FEWEST_ROUNDS:
        return state.skip(suggestion.title, FEWEST_ROUNDS * round_s, matters=False)
    ab_test = ABTest(
        purpose="whatif",
        title=suggestion.title,
        requests=tuple(
            side(state, each, "whatif") for each in (Variant(candidate=state.best), variant)
        ),
        rounds=rounds,
        minimum_effect=MinimumEffect(
            objective=state.context.objective, gain=state.context.smallest_gain
        ),
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
    compared = replace(suggestion, outcome=result)
    state = replace(state, suggestions=(*others, compared))
    if suggestion.knob is not None and not is_confirmed(state, compared):
        reason = f"{suggestion.title} was faster in its own run; a comparison confirmed no gain."
        state = state.set_verdict(suggestion.knob, "kept", reason)
    return state


def is_confirmed(state: TunerState, suggestion: Suggestion) -> bool:
    """True if its comparison confirmed a suggestion."""
    outcome = suggestion.outcome
    return outcome is not None and outcome.proven(
        state.context.objective, state.context.smallest_gain
    )


def suggest(state: TunerState, suggestion: Suggestion) -> TunerState:
    """With one more suggestion."""
    return replace(state, suggestions=(*state.suggestions, suggestion))


# --- single runs ----------------------------------------------------------------------------------


def try_variant(
    state: TunerState, variant: Variant, knob: KnobKey | None = None
) -> Generator[SearchStep, Result, tuple[TunerState, Run | None]]:
    """Sound run of `variant`; None where it did not fit, apply or keep the bounds.

    It is not begun where the budget does not hold its comparison, beside that of an earlier one.
    """
    needed_s = state.price_s + variant.extra_s + state.rounds_s(FEWEST_ROUNDS)
    if any(each.outcome is None for each in state.suggestions):
        needed_s += state.rounds_s(FEWEST_ROUNDS)
    if needed_s > state.remaining_s:
        return state.skip(variant.label, needed_s, matters=False), None
    request = side(state, variant, "whatif" if variant.whatif else "search")
    request = replace(request, knobs=(knob,) if knob else ())
    state, trial = yield from run_trial(state, request, kept_s=0.0, matters=False)
    run = trial.run if trial else None
    if run is None or (variant.whatif and not (run.whatif and run.whatif.applied)):
        return state, None
    is_sound = not state.context.objective.broken(run) and not unusable(state, run)
    return state, run if is_sound else None


def is_gain(state: TunerState, run: Run | None, best: Run | None) -> bool:
    """True if `run` beats the best so far, and the fastest change by a tie."""
    if run is None or state.gain_over_incumbent(run) <= 1 + state.level_threshold:
        return False
    return best is None or state.is_faster(run, best)


def try_switch(state: TunerState, switch: Switch) -> Stage:
    """Run `switch` by each value and suggest the fastest.

    Its first run tells what a compilation costs.
    """
    best: tuple[Variant, Run] | None = None
    extra_s = COMPILE_S if switch.name == "compile" else 0.0
    for value in switch.values(state):
        whatif = f"{switch.name}={value}" if value else switch.name
        variant = Variant(candidate=state.best, whatif=whatif, extra_s=extra_s)
        state, run = yield from try_variant(state, variant)
        if run is not None and run.whatif is not None:
            extra_s = run.whatif.cost_s or 0.0
        if run is not None and is_gain(state, run, best[1] if best else None):
            best = replace(variant, extra_s=extra_s), run
    if best is None:
        return state
    variant, run = best
    inside = ""
    if "tolerance" in switch.needs:
        state, verdict = yield from passes_gate(state, variant, run)
        if not verdict.inside:
            return state
        inside = f" It stayed inside its tolerance{verdict.figures}."
    cost = f" It takes {extra_s:.0f} s once, at the start." if extra_s else ""
    code = switch.shown((variant.whatif or "").partition("=")[2])
    suggestion = Suggestion(
        kind="switch",
        title=variant.whatif or "",
        variant=variant,
        run=run,
        gain=state.gain_over_incumbent(run),
        reason=f"In the code: {code}.{inside}{cost}{caution(run)}",
    )
    return suggest(state, suggestion)


def caution(run: Run) -> str:
    """Side effect of a code change, in a sentence."""
    text = run.whatif.caution if run.whatif else None
    return f" Mind that {text}." if text else ""


# --- batches of a training ------------------------------------------------------------------------


def try_training_batches(state: TunerState) -> Stage:
    """Double each batch that would change the training, while that is faster."""
    for knob in state.tunable("batch_size"):
        if is_only_suggested(state, knob):
            state = yield from try_larger_batches(state, knob)
    return state


def try_larger_batches(state: TunerState, knob: Knob) -> Stage:
    """Suggest the largest batch that was faster than the one before."""
    key, old, before = key_of(knob), int(str(state.current(knob))), len(state.skipped)
    best: tuple[int, Candidate, Run] | None = None
    for value in [old * 2**n for n in range(1, MOST_VALUES + 1)]:
        candidate = state.with_value(knob, value)
        if value > largest_batch(state, old) or isinstance(candidate, knobs.InvalidChange):
            break
        state, run = yield from try_variant(state, Variant(candidate=candidate), key)
        if run is not None and is_ignored(knob, candidate, state.incumbent_run, run):
            return set_ignored(state, knob, candidate, run)
        filled = run is not None and (run.effects.batch or value) >= value
        if run is None or not filled or not is_gain(state, run, best[2] if best else None):
            break
        best = value, candidate, run
    if best is None:
        if len(state.skipped) > before:
            return state.set_verdict(key, "skipped", OUT_OF_TIME)
        reason = f"No larger batch ran faster by more than {state.tie_percent}."
        return state.set_verdict(key, "kept", reason)
    new, candidate, run = best
    note = training_note(state, new / old) + memory_caveat(state, run)
    suggestion = Suggestion(
        kind="training-batch",
        title=f"{knob.path}: {old} to {new}",
        variant=Variant(candidate=candidate),
        run=run,
        gain=state.gain_over_incumbent(run),
        reason=note,
        knob=key,
    )
    state = state.set_verdict(key, "advised", f"{new} was faster in the search. {note}")
    return suggest(state, suggestion)


# --- arguments of the DataLoader call -------------------------------------------------------------


def try_loader_arguments(state: TunerState) -> Stage:
    """Try loader arguments, each on top of the faster ones."""
    seen = state.incumbent_run.effects
    if seen.workers is None:
        return state
    chosen: dict[str, int | bool] = {}
    fastest: Run | None = None
    for name, values in loader_values(state):
        for value in values:
            workers = chosen.get("num_workers", seen.workers)
            if name in loader_arguments("workers") and not workers:
                continue
            whatif = of_loader({**chosen, name: value}, seen.loader_site)
            variant = Variant(candidate=state.best, whatif=whatif)
            state, run = yield from try_variant(state, variant)
            if is_gain(state, run, fastest):
                fastest, chosen = run, {**chosen, name: value}
            elif name == "batch_size":
                break
    if fastest is None:
        return state
    suggestion = Suggestion(
        kind="loader",
        title="DataLoader arguments: " + ", ".join(f"{n}={v!r}" for n, v in chosen.items()),
        variant=Variant(candidate=state.best, whatif=of_loader(chosen, seen.loader_site)),
        run=fastest,
        gain=state.gain_over_incumbent(fastest),
        reason=f"They stand in the code, and no config key holds them.{caution(fastest)}",
        arguments=tuple(chosen.items()),
    )
    return suggest(state, suggestion)


def loader_values(state: TunerState) -> Iterable[tuple[str, list[int] | list[bool]]]:
    """Loader arguments and values worth trying, in order."""
    seen = state.incumbent_run.effects
    waits = 1 / max(1e-9, 1 - (state.incumbent_run.wait_share or 0.0)) > 1 + state.tie_threshold
    if waits and not state.held_by_config("num_workers"):
        rates = state.loader_alone
        counts = sorted(worker_counts(state, seen.workers), key=lambda v: (-rates.get(v, 0.0), v))
        yield "num_workers", counts[: max(1, min(MOST_VALUES, state.trials_left // 2))]
    for argument in LOADER_ARGUMENTS:
        helps = state.incumbent_run.on_gpu if "gpu" in argument.needs else waits
        held = state.held_by_config(argument.kind)
        if argument.in_code is not None and helps and not held and argument.worth_suggesting(seen):
            yield argument.kind, [argument.in_code]
    if not state.trains and not state.held_by_config("batch_size") and seen.batch:
        yield "batch_size", [int(seen.batch) * times for times in (2, 4, 8, 16)]


def of_loader(values: Mapping[str, int | bool], site: str | None) -> str:
    """`loader.num_workers=4,loader.prefetch_factor=4@train.py:88`."""
    words = ",".join(f"loader.{name}={int(value)}" for name, value in values.items())
    return words + (f"@{site}" if site else "")

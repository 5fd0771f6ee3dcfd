"""Effects of settings: asked values against observed ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.executor.requests import TrialRequest, Variant
from advisor.knobs.registry import REGISTRY, loader_arguments
from advisor.model import Change, Failure, Knob, MeasurePlan
from advisor.tuner.baseline import with_few_steps
from advisor.tuner.state import SearchStep, Stage, TunerState, change_of, key_of, run_trial

if TYPE_CHECKING:
    from collections.abc import Generator

    from advisor.model import Candidate, EffectVerdict, Run
    from advisor.tuner.state import Result

LOADER_KINDS = {"batch_size", *loader_arguments()}
UNTUNED = ("sample_num", "image_size")
"""Kinds that are never written, and that a program may ignore."""


def verdict(change: Change, before: Run, after: Run) -> EffectVerdict:
    """True if `change` took effect in `after`."""
    spec, seen, old = REGISTRY.get(change.kind), after.effects, before.effects
    if spec is not None and spec.effect is not None:
        value = spec.observed(seen)
        if value is None:
            return "unknown"
        if value == change.new:
            return "took effect"
        if change.kind == "batch_size" and seen.batch_asked == change.new:
            return "took effect"  # the loader was built with it, and the data did not fill it
        return "ignored" if value == spec.observed(old) else "unknown"
    if change.kind == "precision" and (seen.dtype or seen.autocast_dtype):
        same = (seen.dtype, seen.autocast_dtype) == (old.dtype, old.autocast_dtype)
        return "ignored" if same else "took effect"
    return "unknown"


def is_ignored(knob: Knob, candidate: Candidate, before: Run, after: Run) -> bool:
    """True if `candidate` changes `knob` without an effect."""
    change = change_of(candidate, key_of(knob))
    return change is not None and verdict(change, before, after) == "ignored"


def set_ignored(state: TunerState, knob: Knob, candidate: Candidate, run: Run) -> TunerState:
    """Set the verdict that the program ignores `knob`.

    It names the value used instead. A knob of another phase may be followed there, of which nothing
    was seen.
    """
    key, seen = key_of(knob), run.effects
    if not state.in_phase(knob):
        return state.set_verdict(key, "listed", other_phase(knob, state))
    value = seen.dtype if knob.kind == "precision" else REGISTRY[knob.kind].observed(seen)
    used = f"{value:g}" if isinstance(value, float) else str(value)
    change = change_of(candidate, key)
    override = overriding(knob.path, knob.value if change is None else change.new, run)
    site = seen.loader_site if knob.kind in LOADER_KINDS else None
    built = f" (DataLoader built at {site})" if site else ""
    reason = f"Ignored by the program: it uses {used}{built} whatever the config says{override}."
    return state.set_verdict(key, "ignored", reason)


def other_phase(knob: Knob, state: TunerState) -> str:
    """Sentence on a knob of a phase that does not run."""
    return f"Belongs to the {knob.phase} phase; what was measured here is {state.phase}."


def overriding(leaf: str, value: object, run: Run) -> str:
    """Clause on a command-line value that overrides a knob named `leaf`; else empty."""
    name = leaf.rsplit(".", 1)[-1].split("[", maxsplit=1)[0]
    arguments = dict(run.effects.arguments)
    if name not in arguments or arguments[name] == value:
        return ""
    own = "own default " if name in run.effects.defaulted_arguments else ""
    return f"; the command line's {own}--{name} {arguments[name]} is used instead"


# --- settings that are never written --------------------------------------------------------------


def find_unused_settings(state: TunerState) -> Stage:
    """Find quality knobs that change nothing, with what the search left of the budget.

    Each is halved in a run of its own. All run with as few steps as the schedule allows, to their
    own end.
    """
    doubtful = [k for k in state.of_kind(*UNTUNED) if halved(k) and can_hold(state, k)]
    before: Run | Failure | None = None
    base = with_few_steps(state)
    if doubtful:
        state, before = yield from observe(state, base)
    if before is None or isinstance(before, Failure):
        return state
    for knob in doubtful:
        changes = halved(knob)
        state, alone = yield from observe(state, base.with_changes(*changes))
        if alone is None:
            continue
        outcome = "listed"
        if isinstance(alone, Failure):
            reason = "At half its value the program fails. It is never tuned."
            if alone.kind in {"timeout", "hang"}:
                reason = "The run at half its value reached a time limit, so nothing is known."
        elif changed := differences(before, alone):
            reason = f"It changes {' and '.join(changed)}, so it is never tuned."
        else:
            values = ", ".join(str(change.new) for change in changes)
            override = overriding(knob.path, changes[0].new, alone)
            outcome = "ignored"
            reason = f"Ignored by the program: with {values} its outputs are identical{override}."
        state = state.set_verdict(key_of(knob), outcome, reason)
    return state


def observe(
    state: TunerState, candidate: Candidate
) -> Generator[SearchStep, Result, tuple[TunerState, Run | Failure | None]]:
    """Result of `candidate`; None where it did not fit."""
    plan = MeasurePlan(mode="whole") if state.iterative else state.plan(candidate)
    request = TrialRequest(
        variant=Variant(candidate=candidate),
        purpose="effects",
        plan=plan,
        command="quality" if state.iterative else "own",
        expected_s=state.price_s,
    )
    state, trial = yield from run_trial(state, request, kept_s=0.0, matters=False)
    return state, trial.result if trial else None


def halved(knob: Knob) -> tuple[Change, ...]:
    """Half of a count, item by item."""
    values = knob.value if isinstance(knob.value, tuple) else (knob.value,)
    many = isinstance(knob.value, tuple)
    return tuple(
        Change(
            document=knob.document,
            path=f"{knob.path}[{number}]" if many else knob.path,
            kind=knob.kind,
            knob_class=knob.knob_class,
            old=value,
            new=value // 2,
        )
        for number, value in enumerate(values)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 2
    )


def can_hold(state: TunerState, knob: Knob) -> bool:
    """True if the document can hold half of the value."""
    document = state.context.source(knob.document).document
    return all(document.takes(change.path, change.new) for change in halved(knob))


def differences(before: Run, after: Run) -> list[str]:
    """Aspects that differ, of those seen on both sides."""
    aspects = {
        "the model's input shapes": (before.effects.input_shapes, after.effects.input_shapes),
        "its forwards per unit": (
            before.effects.forwards_per_unit,
            after.effects.forwards_per_unit,
        ),
        "its first outputs": (before.effects.fingerprint, after.effects.fingerprint),
        "the files it wrote": (before.output_digest, after.output_digest),
    }
    return [name for name, (old, new) in aspects.items() if old and new and old != new]

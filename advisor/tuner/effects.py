"""Effects of settings: asked values against observed ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.executor.requests import TrialRequest, Variant
from advisor.knobs.registry import REGISTRY, loader_arguments
from advisor.model import Change, Failure, Knob, MeasurePlan, leaf_of
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
    spec = REGISTRY.get(change.kind)
    if spec is not None and spec.effect is not None:
        seen, old = spec.observed(after.effects), spec.observed(before.effects)
        if seen is None:
            return "unknown"
        if seen == change.new:
            return "took effect"
        if change.kind == "batch_size" and after.effects.batch_asked == change.new:
            return "took effect"  # the loader was built with it, and the data did not fill it
        return "ignored" if seen == old else "unknown"
    if change.kind == "precision":
        return _differs(
            (before.effects.dtype, before.effects.autocast_dtype),
            (after.effects.dtype, after.effects.autocast_dtype),
        )
    if change.kind == "timesteps":
        return _differs(before.effects.forwards_per_unit, after.effects.forwards_per_unit)
    return "unknown"


def _differs(before: object, after: object) -> EffectVerdict:
    if after is None or after == (None, None):
        return "unknown"
    return "ignored" if before == after else "took effect"


def is_ignored(knob: Knob, candidate: Candidate, before: Run, after: Run) -> bool:
    """True if `candidate` changes `knob` without an effect."""
    change = change_of(candidate, key_of(knob))
    return change is not None and verdict(change, before, after) == "ignored"


def set_ignored(state: TunerState, knob: Knob, candidate: Candidate, run: Run) -> TunerState:
    """Set the verdict that the program ignores `knob`.

    It names the value used instead. A knob of another phase may be followed there, of which nothing
    was seen.
    """
    key = key_of(knob)
    if not state.in_phase(knob):
        reason = other_phase(knob, state)
        return state.set_verdict(key, "kept", reason, other_phase=True)
    used, site = used_instead(knob, run)
    change = change_of(candidate, key)
    override = overriding(knob.path, knob.value if change is None else change.new, run)
    did = "computes in" if knob.kind == "precision" else "uses"
    built = f" (DataLoader built at {site})" if site else ""
    clause = f"; {override}" if override else ""
    reason = f"Ignored by the program: it {did} {used}{built} whatever the config says{clause}."
    return state.set_verdict(key, "ignored", reason)


def other_phase(knob: Knob, state: TunerState) -> str:
    """Sentence on a knob of a phase that does not run."""
    return f"Belongs to the {knob.phase} phase; what was measured here is {state.phase}."


def used_instead(knob: Knob, run: Run) -> tuple[str | None, str | None]:
    """Value that the program used, and its place."""
    seen = run.effects
    if knob.kind == "precision":
        return seen.dtype, None
    value = REGISTRY[knob.kind].observed(seen)
    used = f"{value:g}" if isinstance(value, float) else str(value)
    return used, seen.loader_site if knob.kind in LOADER_KINDS else None


def overriding(leaf: str, value: object, run: Run) -> str | None:
    """Command-line value that overrides a knob named `leaf`."""
    name = leaf.rsplit(".", 1)[-1].split("[", maxsplit=1)[0]
    arguments = dict(run.effects.arguments)
    if name in arguments and arguments[name] != value:
        shown = f"--{name} {arguments[name]}"
        if name in run.effects.defaulted_arguments:
            return f"the command line's own default {shown} is used instead"
        return f"the command line says {shown}, which is used instead"
    return None


# --- settings that are never written --------------------------------------------------------------


def find_unused_settings(state: TunerState) -> Stage:
    """Find quality knobs that change nothing.

    All are changed in one experiment. Both sides run with as few steps as the schedule allows, to
    their own end.
    """
    suspects = [*state.of_kind(*UNTUNED), *look_alikes(state)]
    doubtful = [knob for knob in suspects if perturb(knob) and can_hold(state, knob)]
    base = with_few_steps(state)
    if not doubtful:
        return state
    state, before = yield from observe(state, base)
    if not isinstance(before, Failure) and before is not None:
        state = yield from compare_effects(state, doubtful, base, before)
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


def look_alikes(state: TunerState) -> list[Knob]:
    """Values outside the catalogue with a knob's name."""
    names = {leaf_of(knob.path): knob.kind for knob in state.of_kind(*UNTUNED)}
    return [
        Knob(
            document=source.document.name,
            path=trap.path,
            kind=names[leaf],
            phase="any",
            knob_class="quality",
            value=source.document.scalars[trap.path].value,
            editable=False,
            why=trap.why,
        )
        for source in state.context.sources
        for trap in source.findings.traps
        if (leaf := leaf_of(trap.path)) in names and trap.path in source.document.scalars
    ]


def perturb(knob: Knob) -> tuple[Change, ...]:
    """Half of a count, item by item."""
    items = (
        {f"{knob.path}[{i}]": item for i, item in enumerate(knob.value)}
        if isinstance(knob.value, tuple)
        else {knob.path: knob.value}
    )
    return tuple(
        Change(
            document=knob.document,
            path=path,
            kind=knob.kind,
            knob_class=knob.knob_class,
            old=value,
            new=value // 2,
        )
        for path, value in items.items()
        if isinstance(value, int) and not isinstance(value, bool) and value >= 2
    )


def can_hold(state: TunerState, knob: Knob) -> bool:
    """True if the document can hold the perturbed value."""
    document = state.context.source(knob.document).document
    return all(document.takes(change.path, change.new) for change in perturb(knob))


def compare_effects(state: TunerState, doubtful: list[Knob], base: Candidate, before: Run) -> Stage:
    """Test all knobs together, then one by one if needed."""
    together = base.with_changes(*(change for knob in doubtful for change in perturb(knob)))
    state, after = yield from observe(state, together)
    if after is None:
        return state
    if not isinstance(after, Failure) and not differences(before, after):
        for knob in doubtful:
            state = set_without_effect(state, knob, after)
        return state
    for knob in doubtful:
        state, alone = yield from observe(state, base.with_changes(*perturb(knob)))
        if alone is None:
            continue
        if isinstance(alone, Failure):
            state = state.set_verdict(key_of(knob), "listed", failed_at_half(alone))
        elif changed := differences(before, alone):
            reason = f"It changes {' and '.join(changed)}, so it is never tuned."
            state = state.set_verdict(key_of(knob), "listed", reason)
        else:
            state = set_without_effect(state, knob, alone)
    return state


def failed_at_half(failure: Failure) -> str:
    """Sentence on a knob whose half fails."""
    if failure.kind in {"timeout", "hang"}:
        return "Not known whether it has an effect: the run at half its value reached a time limit."
    return "At half its value the program fails. It is never tuned, as it changes the product."


def set_without_effect(state: TunerState, knob: Knob, run: Run) -> TunerState:
    """Set the verdict that `knob` has no effect."""
    values = ", ".join(str(change.new) for change in perturb(knob))
    override = overriding(knob.path, perturb(knob)[0].new, run)
    shapes = ", ".join(run.effects.input_shapes) if knob.kind == "image_size" else ""
    detail = f"; {override}" if override else ""
    if shapes and not override:
        detail = f"; the model saw inputs of {shapes} either way"
    reason = f"Ignored by the program: with {values} its outputs are identical{detail}."
    return state.set_verdict(key_of(knob), "ignored", reason)


def behaviour(run: Run) -> dict[str, object]:
    """Outputs and shapes of a run, by aspect."""
    return {
        "the model's input shapes": run.effects.input_shapes,
        "its forwards per unit": run.effects.forwards_per_unit,
        "its first outputs": run.effects.fingerprint,
        "the files it wrote": run.output_digest,
    }


def differences(before: Run, after: Run) -> list[str]:
    """Aspects that differ, of those seen on both sides."""
    old, new = behaviour(before), behaviour(after)
    return [
        aspect
        for aspect, seen in old.items()
        if seen not in (None, ()) and new[aspect] not in (None, ()) and new[aspect] != seen
    ]

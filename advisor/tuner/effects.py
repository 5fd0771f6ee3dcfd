"""What a candidate asked for against what the program did: a knob counts only if it took effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.model import Change, EffectVerdict, Knob, Run

OBSERVED = {
    "batch_size": "batch",
    "num_workers": "workers",
    "prefetch_factor": "prefetch_factor",
    "persistent_workers": "persistent_workers",
    "pin_memory": "pin_memory",
    "grad_accum": "accumulation",
    "num_devices": "world_size",
    "cudnn_benchmark": "cudnn_benchmark",
    "channels_last": "channels_last",
    "tf32": "tf32",
    "compile": "compiled",
    "grad_checkpoint": "recomputes",
}
"""Kinds whose value the probe sees as it is, and the field of Effects that shows it."""

LOADER_KINDS = {
    "batch_size",
    "num_workers",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory",
}


def verdict(change: Change, before: Run, after: Run) -> EffectVerdict:
    """Whether `change` took effect in `after`, against `before` which ran without it."""
    if change.kind in OBSERVED:
        seen = getattr(after.effects, OBSERVED[change.kind])
        was = getattr(before.effects, OBSERVED[change.kind])
        if seen is None:
            return "unknown"
        if seen == change.new:
            return "took effect"
        if change.kind == "batch_size" and after.effects.batch_asked == change.new:
            return "took effect"  # the loader was built with it, and the data did not fill it
        return "ignored" if seen == was else "unknown"
    if change.kind == "precision":
        return _differs(
            (before.effects.dtype, before.effects.autocast_dtype),
            (after.effects.dtype, after.effects.autocast_dtype),
        )
    if change.kind == "timesteps":
        return _differs(before.effects.forwards_per_unit, after.effects.forwards_per_unit)
    return "unknown"


def used_instead(knob: Knob, run: Run) -> tuple[str | None, str | None]:
    """What a program that ignores `knob` used, and where its DataLoader was built."""
    seen = run.effects
    if knob.kind == "precision":
        return seen.dtype, None
    value = getattr(seen, OBSERVED.get(knob.kind, ""), None)
    used = f"{value:g}" if isinstance(value, float) else str(value)
    return used, seen.loader_site if knob.kind in LOADER_KINDS else None


def _differs(before: object, after: object) -> EffectVerdict:
    if after is None or after == (None, None):
        return "unknown"
    return "ignored" if before == after else "took effect"


def behaviour(run: Run) -> dict[str, object]:
    """What a program computed and left behind, by aspect: equal when a knob changed nothing."""
    return {
        "the model's input shapes": run.effects.input_shapes,
        "its forwards per unit": run.effects.forwards_per_unit,
        "its first outputs": run.effects.fingerprint,
        "the files it wrote": run.output_digest,
    }


def differences(before: Run, after: Run) -> list[str]:
    """Aspects of behaviour that differ; one that was not seen on both sides does not count."""
    old, new = behaviour(before), behaviour(after)
    return [
        aspect
        for aspect, seen in old.items()
        if seen not in (None, ()) and new[aspect] not in (None, ()) and new[aspect] != seen
    ]


def overriding(leaf: str, value: object, run: Run) -> str | None:
    """What overrides a knob named `leaf` in a `run` that was to have `value`, where the probe saw
    it; one clause, or None: arguments with that very value were followed as far as they go."""
    name = leaf.rsplit(".", 1)[-1].split("[", maxsplit=1)[0]
    arguments = dict(run.effects.arguments)
    if name in arguments and arguments[name] != value:
        shown = f"--{name} {arguments[name]}"
        if name in run.effects.defaulted_arguments:
            return f"the command line's own default {shown} is used instead"
        return f"the command line says {shown}, which is used instead"
    return None

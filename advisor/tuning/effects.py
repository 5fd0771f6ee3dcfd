"""What a candidate asked for against what the program did: a knob counts only if it took effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.model import Candidate, Change, EffectVerdict, Knob, Run

OBSERVED = {
    "batch_size": "batch",
    "num_workers": "workers",
    "prefetch_factor": "prefetch_factor",
    "persistent_workers": "persistent_workers",
    "pin_memory": "pin_memory",
    "grad_accum": "accumulation",
    "num_devices": "world_size",
    "cudnn_benchmark": "cudnn_benchmark",
    "tf32": "tf32",
    "compile": "compiled",
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


def done_instead(knob: Knob, run: Run) -> str:
    """What a program that ignores `knob` did: `used 6 (DataLoader built at train.py:8)`."""
    seen = run.effects
    if knob.kind == "precision":
        return f"computed in {seen.dtype or 'the same dtype'}"
    value = getattr(seen, OBSERVED.get(knob.kind, ""), None)
    used = f"{value:g}" if isinstance(value, float) else str(value)
    loads = knob.kind in LOADER_KINDS and seen.loader_site
    return f"used {used} (DataLoader built at {seen.loader_site})" if loads else f"used {used}"


def _differs(before: object, after: object) -> EffectVerdict:
    if after is None or after == (None, None):
        return "unknown"
    return "ignored" if before == after else "took effect"


def unprocessed(before: Run, after: Run) -> str | None:
    """Why `after` would finish less than `before` does; None if it finishes as much.

    In training a smaller last batch that is left out comes back in another epoch; in inference
    its samples are missing from the product.
    """
    was, now = before.effects.left_out, after.effects.left_out
    if not now or was is None or now <= was or after.step_kind == "optimizer step":
        return None
    batch = after.effects.batch
    return (
        f"in batches of {batch:g}, {now} samples of a pass would be left out, where {was} are: "
        "the loader drops a last batch that is not full (drop_last)"
        if batch
        else None
    )


def ignored(candidate: Candidate, before: Run, after: Run) -> list[Change]:
    """Changes of `candidate` that the program did not follow."""
    return [c for c in candidate.changes if verdict(c, before, after) == "ignored"]


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
    """What overrides a knob named `leaf`, where the probe saw it; one clause, or None."""
    name = leaf.rsplit(".", 1)[-1].split("[", maxsplit=1)[0]
    arguments = dict(run.effects.arguments)
    if name in arguments and arguments[name] != value:
        shown = f"--{name} {arguments[name]}"
        if name in run.effects.defaulted_arguments:
            return f"the command line's own default {shown} is used instead"
        return f"the command line says {shown}, which is used instead"
    return None

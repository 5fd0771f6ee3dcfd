"""What a setting of a run's length counts: updates, or the batches they are made of.

A batch that grows while accumulation shrinks leaves an update as it was. A run of so many
batches then goes through more samples, and no short window shows its end. One run that is
made short tells: it ends by itself after few updates, or goes on.
"""

import re
from dataclasses import replace
from typing import NamedTuple

from advisor import knobs
from advisor.executor.requests import TrialRequest, Variant
from advisor.knobs.tree import canonical, parts_of
from advisor.model import Candidate, Change, Knob
from advisor.tuner.state import Trials, TunerState, run_trial

LENGTHS = re.compile(
    r"(max|total|num|nb|n)?_?(train|training|optim)?_?(steps|iters?|iterations|updates)"
)
"""Names of a run's length; those of warm-ups, intervals and horizons have other words."""
ENDS_AFTER = 4
"""Updates of the short run, if its length counts batches."""
SEEN = 8
"""Updates of a window that holds more than that."""


class Length(NamedTuple):
    document: str
    path: str
    value: int
    line: int
    accumulation: int


def length_of(state: TunerState, batch: Knob) -> Length | None:
    """Setting of the run's length that a move of `batch` may stretch; None without one."""
    value = state.current(batch)
    if not isinstance(value, int) or not state.trains:
        return None
    larger = state.with_value(batch, 2 * value)
    if isinstance(larger, knobs.InvalidChange):
        return None
    moved = (each for each in larger.changes if each.kind == "grad_accum")
    old = next((int(float(str(each.old))) for each in moved), 1)
    if old < 2:
        return None
    known = {(knob.document, knob.path) for knob in state.all_knobs}
    for source in state.context.sources:
        document = source.document
        for path, scalar in document.scalars.items():
            parts = [str(part) for part in parts_of(path)]
            number = scalar.value
            if (
                LENGTHS.fullmatch(canonical(parts[-1]))
                and isinstance(number, int)
                and number > 2 * ENDS_AFTER * old
                and scalar.editable
                and scalar.given
                and (document.name, path) not in known
            ):
                line = document.text.count("\n", 0, scalar.start) + 1
                return Length(document.name, path, number, line, old)
    return None


def counts_batches(state: TunerState, length: Length) -> Trials[bool]:
    """True unless the run was seen to go on after as many batches; in doubt, too."""
    short = Change(
        document=length.document,
        path=length.path,
        kind="length",
        knob_class="quality",
        old=length.value,
        new=ENDS_AFTER * length.accumulation,
    )
    variant = Variant(candidate=Candidate().with_changes(short))
    request = TrialRequest(
        variant=variant,
        purpose="effects",
        plan=replace(state.short_plan(), min_steps=SEEN),
        expected_s=state.price_s,
    )
    state, trial = yield from run_trial(state, request, matters=False)
    work = trial.run.work if trial is not None and trial.run is not None else None
    seen = work.updates_seen if work is not None else None
    return state, seen is None or seen <= ENDS_AFTER


def why_kept(length: Length, batch: Knob) -> str:
    """Sentences on a run that would go through more samples."""
    where = f"`{length.path}` ({length.document}, line {length.line})"
    return (
        f"Not tried: {where} counts batches, so a larger batch trains on more samples. "
        f'Change it along with `{batch.path}`, or set `accept = ["counters"]`.'
    )

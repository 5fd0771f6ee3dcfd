"""Whether a unit of one variant is the same work as a unit of another: else no ratio compares."""

from collections.abc import Callable, Sequence

from advisor.model import Run

TOLERANCE = 0.05
"""Relative difference of counts that is none: a window may end amid an item.

Judgement: windows of `compare` and `gate` have 20 steps or more, of which one is 5 %."""


def work_differences(first: Sequence[Run], other: Sequence[Run]) -> list[str]:
    """Sentences on different work for the same unit.

    Empty if equal. Only what all of a variant's runs agree on counts: inputs of changing
    length, or a figure that one run lacks, are no difference.
    """
    sentences = []
    for name, read in FACTS.items():
        old, new = _constant(first, read), _constant(other, read)
        if old is not None and new is not None and not _same(old, new):
            sentences.append(f"{name}: {_shown(old)} against {_shown(new)}")
    return sentences


FACTS: dict[str, Callable[[Run], object | None]] = {
    "unit": lambda run: run.unit,
    "counted as": lambda run: run.way or None,
    "kind of step": lambda run: run.step_kind,
    "items of the dataset": lambda run: run.effects.data_items,
    "forwards for one unit": lambda run: run.effects.forwards_per_unit,
    "shape of the inputs": lambda run: run.effects.input_shapes or None,
    "units of the whole run": lambda run: (
        (run.whole_units or None) if run.to_its_end else None
    ),
}


def _constant(runs: Sequence[Run], read: Callable[[Run], object | None]) -> object | None:
    values = [read(run) for run in runs]
    return (
        values[0] if values and all(_same(values[0], value) for value in values) else None
    )


def _same(old: object | None, new: object | None) -> bool:
    if isinstance(old, (int, float)) and isinstance(new, (int, float)):
        return abs(new - old) <= TOLERANCE * max(abs(old), abs(new))
    return old == new


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)

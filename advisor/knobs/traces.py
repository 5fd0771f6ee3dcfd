"""What a setting leaves behind in what the program was seen to do: kinds, and how they show."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.knobs.tree import number_of
from advisor.knobs.values import row_of
from advisor.model import SAMPLER_FORWARDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from advisor.model import Effects, JsonScalar, Knob

Shown = float | str
"""What is seen: a count, or the name of a dtype."""

SMALLEST_SIDE = 8
"""Of an image; shorter ones are channels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """How what is seen follows from a setting."""

    name: str
    """A key of the sentences that the report has."""
    shown: Callable[[JsonScalar, Effects], Shown | None]
    """What would be seen with this value; None where it is no value for it."""
    kind: str | None = None
    """What the setting is then, where that is not the kind that it shows in."""
    scope: str | None = None
    last_resort: bool = False
    """So rare that it is not looked at where another relation explains what was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aspect:
    """One thing that the probe sees, and the kind of knob that decides it."""

    kind: str
    seen: Callable[[Effects], frozenset[Shown]]
    """Empty where it was not seen, or is too common to be anybody's trace."""
    relations: tuple[Relation, ...]

    def explained(self, value: JsonScalar, seen: Effects) -> Relation | None:
        """How `value` would show as what was seen; None if it would not. The plainest comes first.

        A relation that equals a plainer one (ranks, where there is one rank) is not asked.
        """
        wanted = self.seen(seen)
        return next((r for r in self.relations if r.shown(value, seen) in wanted), None)

    def known_from(self, knobs: Iterable[Knob], seen: Effects) -> bool:
        """Whether one of `knobs`, found by name, may decide it: what cannot be compared does."""
        return any(
            not _comparable(knob, value) or self.explained(value, seen) is not None
            for knob in knobs
            for value in (knob.value if isinstance(knob.value, tuple) else (knob.value,))
        )


def _comparable(knob: Knob, value: JsonScalar) -> bool:
    if knob.kind == "precision":
        return isinstance(value, str) and bool(row_of(value)[0])
    counts_samples = knob.kind != "batch_size" or knob.unit in (None, "sample")
    return counts_samples and not isinstance(value, bool) and number_of(value) is not None


def _times(
    factor: Callable[[Effects], float], plus: float = 0.0
) -> Callable[[JsonScalar, Effects], Shown | None]:
    def shown(value: JsonScalar, seen: Effects) -> Shown | None:
        number = number_of(value)
        return None if number is None else round(number * factor(seen) + plus, 6)

    return shown


def _one(_: Effects) -> float:
    return 1.0


def _ranks(seen: Effects) -> float:
    return float(seen.group_size or seen.world_size or 1)


def _updates_apart(seen: Effects) -> float:
    """Batches of one optimizer step."""
    return float(seen.accumulation or 1.0)


def _batch(seen: Effects) -> float | None:
    return seen.batch if seen.batch_asked is None else float(seen.batch_asked)


def _spelled(value: JsonScalar, _: Effects) -> Shown | None:
    row, dtype = row_of(value)
    return dtype if row and isinstance(value, str) else None


ITSELF = Relation(name="itself", shown=_times(_one))


def _counts(*numbers: float | None, least: float = 0.0) -> frozenset[Shown]:
    return frozenset(float(n) for n in numbers if n is not None and n >= least)


def _sides(seen: Effects) -> frozenset[Shown]:
    """Heights and widths of inputs with channels; flatter ones do not tell what is a length."""
    shapes = [re.findall(r"\d+", shape) for shape in seen.input_shapes]
    sides = (float(side) for shape in shapes if len(shape) > 2 for side in shape[-2:])
    return _counts(*sides, least=SMALLEST_SIDE)


BATCH = Aspect(
    kind="batch_size",
    seen=lambda seen: _counts(_batch(seen), least=1),
    relations=(
        ITSELF,
        Relation(
            name="global-over-accumulation",
            shown=_times(lambda seen: 1 / _updates_apart(seen)),
            scope="global",
        ),
        Relation(
            name="global-over-ranks",
            shown=_times(lambda seen: 1 / _ranks(seen)),
            scope="global",
        ),
        Relation(
            name="global-over-both",
            shown=_times(lambda seen: 1 / _ranks(seen) / _updates_apart(seen)),
            scope="global",
        ),
        Relation(
            name="of-one-update",
            shown=_times(_updates_apart),
            scope="micro",
            last_resort=True,
        ),
        Relation(name="of-one-device", shown=_times(_ranks), scope="device", last_resort=True),
    ),
)
ASPECTS = (
    BATCH,
    Aspect(
        kind="num_workers",
        seen=lambda seen: _counts(seen.workers),
        relations=(
            ITSELF,
            Relation(name="of-all-ranks", shown=_times(lambda seen: 1 / _ranks(seen))),
        ),
    ),
    Aspect(
        kind="grad_accum",
        seen=lambda seen: _counts(seen.accumulation, least=2),
        relations=(
            ITSELF,
            Relation(name="of-all-ranks", shown=_times(lambda seen: 1 / _ranks(seen))),
            Relation(
                name="global-decides-accumulation",
                shown=_times(lambda seen: 1 / _ranks(seen) / (_batch(seen) or 1.0)),
                kind="batch_size",
                scope="global",
            ),
        ),
    ),
    Aspect(
        kind="timesteps",
        seen=lambda seen: _counts(seen.forwards_per_unit, least=SAMPLER_FORWARDS),
        relations=(
            ITSELF,
            Relation(name="one-less", shown=_times(_one, -1)),
            Relation(name="one-more", shown=_times(_one, 1)),
            Relation(name="twice", shown=_times(lambda _: 2.0)),
            Relation(name="twice-less-one", shown=_times(lambda _: 2.0, -1)),
        ),
    ),
    Aspect(
        kind="precision",
        seen=lambda seen: frozenset({seen.dtype} if seen.dtype else ()),
        relations=(Relation(name="spelled", shown=_spelled),),
    ),
    Aspect(kind="image_size", seen=_sides, relations=(ITSELF,)),
)
"""What the search can use comes first."""

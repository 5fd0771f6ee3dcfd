"""Suspects tried out: values to move them to, each of which would show as itself, and what a run
with those values says of them. Pure."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from advisor.knobs.findings import Followed
from advisor.knobs.traces import ASPECTS, ITSELF, Aspect, Shown
from advisor.knobs.tree import number_of
from advisor.knobs.values import row_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from advisor.knobs.suspects import Suspect
    from advisor.model import Effects, JsonScalar

MOST = 16
"""Values moved in one run: more would hardly leave a program that runs."""
MULTIPLES = (2, 4, 8, 16)
"""Tried first: what the present value must be a multiple of, its multiples are too, and of two of
them one divides the other."""
MOST_WORKERS = 8
"""A value that may be the workers is not raised beyond it, unless it was more than half of that."""
WIDTHS = ("bfloat16", "float16", "float32")
"""Dtypes to move to, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A suspect and the value it is tried out with."""

    suspect: Suspect
    new: JsonScalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one run with moved values says."""

    followed: tuple[Followed, ...]
    unclear: frozenset[str]
    """Kinds that changed, or were not seen, and not as any one of the moved values would show."""


def moves(
    suspected: Sequence[Suspect],
    seen: Effects,
    *,
    room: float = 1e9,
    lower: bool = False,
    backwards: bool = False,
) -> tuple[Move, ...]:
    """A value for each suspect, so that whichever the program follows, it shows which one.

    Of several with one value the later ones get the larger values, `backwards` the smaller: where
    one of them must divide another, it does in one of the two. `room`: how many times as much
    memory there is. `lower`: smaller values first. What cannot be told apart is left out.
    """
    alike: dict[tuple[JsonScalar, str], list[Suspect]] = {}
    for suspect in suspected[:MOST]:
        alike.setdefault((suspect.value, type(suspect.value).__name__), []).append(suspect)
    # Where batches share an update, what shows as the batch depends on how that is moved.
    groups = sorted(alike.values(), key=lambda group: not _in_accumulation(group))
    worlds = [seen]
    taken: dict[str, set[Shown]] = {aspect.kind: set(aspect.seen(seen)) for aspect in ASPECTS}
    chosen: dict[Suspect, JsonScalar] = {}
    for group in groups:
        values = _apart(group, worlds, taken, _alternatives(group, seen, room, lower=lower))
        values.sort(key=lambda value: number_of(value) or 0.0, reverse=backwards)
        chosen |= dict(zip(group, values, strict=False))
        if _in_accumulation(group):
            numbers = [number for value in values if (number := number_of(value))]
            worlds += [replace(seen, accumulation=number) for number in numbers]
            taken["batch_size"] |= _shared_out(seen, numbers)
    return tuple(Move(suspect=each, new=chosen[each]) for each in suspected if each in chosen)


def _in_accumulation(group: Sequence[Suspect]) -> bool:
    """Whether one of `group` may be the accumulation itself."""
    traces = (trace for suspect in group for trace in suspect.traces)
    return any("grad_accum" == aspect.kind == (r.kind or aspect.kind) for aspect, r in traces)


def _of_one_update(seen: Effects) -> float:
    """Samples that go into one update of one rank."""
    return float(seen.batch_asked or seen.batch or 1) * (seen.accumulation or 1.0)


def _shared_out(seen: Effects, accumulations: Iterable[float]) -> set[Shown]:
    """Batches of a global batch that stands in the code, over another accumulation."""
    return {float(math.floor(_of_one_update(seen) / number)) for number in accumulations}


def _apart(
    group: Sequence[Suspect],
    worlds: Sequence[Effects],
    taken: dict[str, set[Shown]],
    values: Iterable[JsonScalar],
) -> list[JsonScalar]:
    """As many of `values` as the group has members, which show as nothing that is `taken`."""
    traces = dict.fromkeys(trace for suspect in group for trace in suspect.traces)
    found: list[JsonScalar] = []
    for value in values:
        if len(found) == len(group):
            break
        shows = [
            [(aspect.kind, relation.shown(value, world)) for aspect, relation in traces]
            for world in worlds
        ]
        if not all(_whole(shown) for _, shown in shows[0]):
            continue
        seen = {(kind, _rounded(shown)) for world in shows for kind, shown in world}
        if any(shown in taken[kind] for kind, shown in seen):
            continue
        for kind, shown in seen:
            if shown is not None:
                taken[kind].add(shown)
        found.append(value)
    return found


def _rounded(shown: Shown | None) -> Shown | None:
    """As programs share out what does not divide: the rest is left."""
    return float(math.floor(shown)) if isinstance(shown, float) else shown


def _whole(shown: Shown | None) -> bool:
    """Whether it could be seen: half a batch cannot."""
    return isinstance(shown, str) or (shown is not None and shown >= 1 and shown == int(shown))


def _alternatives(
    group: Sequence[Suspect], seen: Effects, room: float, *, lower: bool
) -> Iterator[JsonScalar]:
    """Values to move a group to, the safest first, spelled as its present one is."""
    old, kinds = group[0].value, frozenset[str]().union(*(each.kinds for each in group))
    number = number_of(old)
    if number is None:
        row, _ = row_of(old)
        yield from (row[dtype] for dtype in WIDTHS if dtype in row and row[dtype] != old)
        return
    value = int(number)
    most = room * value
    if "num_workers" in kinds:
        most = min(most, max(MOST_WORKERS, 2 * value))
    if _in_accumulation(group):  # no update has less than one sample a batch
        most = min(most, _of_one_update(seen))
    times = [value * n for n in MULTIPLES if value and value * n <= most]
    parts = [value // n for n in MULTIPLES if value % n == 0 and value // n > 1]
    costly = kinds <= {"timesteps", "num_workers"}  # more of it only takes longer
    first = [*parts, *times] if lower or costly else [*times, *parts]
    more = (value + n for n in range(1, 4 * MOST))
    less = (value - n for n in range(1, value))
    for new in itertools.chain(first, *((less, more) if not times else (more, less))):
        yield _like(new, old)


def _like(number: int, old: JsonScalar) -> JsonScalar:
    return (
        str(number) if isinstance(old, str) else float(number) if isinstance(old, float) else number
    )


# --- what a run with them says ------------------------------------------------------------


def read(
    moved: Sequence[Move], before: Effects, after: Effects, aspects: Iterable[Aspect]
) -> Reading:
    """Which of the moved values the program follows: those that show exactly as they would."""
    followed: list[Followed] = []
    unclear = set()
    for aspect in aspects:
        was, now = aspect.seen(before), aspect.seen(after)
        fresh = now - was
        if now and not fresh:
            continue
        shown = [
            found
            for move in moved
            if (found := _followed(move, aspect, before, after, fresh)) is not None
        ]
        # A batch over an accumulation that moved with it shows as the quotient by definition.
        shown = [each for each in shown if each.relation == ITSELF.name] or shown
        if len(shown) == 1:
            followed += shown
        else:
            unclear.add(aspect.kind)
    return Reading(followed=tuple(followed), unclear=frozenset(unclear))


def _followed(
    move: Move, aspect: Aspect, before: Effects, after: Effects, fresh: frozenset[Shown]
) -> Followed | None:
    suspect = move.suspect
    for its, relation in suspect.traces:
        if its is not aspect:
            continue
        was, exact = relation.shown(suspect.value, before), relation.shown(move.new, after)
        now = next((shown for shown in (exact, _rounded(exact)) if shown in fresh), None)
        if was is None or now is None:
            continue
        return Followed(
            document=suspect.document,
            path=suspect.path,
            kind=relation.kind or aspect.kind,
            shown_in=aspect.kind,
            value=suspect.value,
            relation=relation.name,
            scope=relation.scope,
            moved_to=move.new,
            before=was,
            after=now,
        )
    return None

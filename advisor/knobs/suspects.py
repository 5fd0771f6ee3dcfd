"""Values that equal what the program was seen to do, and that no name tells of: suspects.

Pure. Leaves of the documents and observed effects go in; out come suspects, values to try them out
with, each of which would show as itself, and what a run with those values says of them.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import tomllib
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import TYPE_CHECKING

from advisor.knobs.catalogue import catalogue
from advisor.knobs.findings import Followed
from advisor.knobs.traces import ASPECTS, ITSELF, Aspect, Relation, Shown
from advisor.knobs.tree import Leaf, leaves, number_of, parts_of
from advisor.knobs.values import row_of
from advisor.model import Knob

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from advisor.documents import Document
    from advisor.knobs.findings import Findings
    from advisor.model import Effects, JsonScalar, Phase

MOST = 16
"""Values moved in one run: more would hardly leave a program that runs."""
MULTIPLES = (2, 4, 8, 16)
"""Tried first: what the present value must be a multiple of, its multiples are too, and of two of
them one divides the other."""
MOST_WORKERS = 8
"""A value that may be the workers is not raised beyond it, unless it was more than half of that."""
WIDTHS = ("bfloat16", "float16", "float32")
"""Dtypes to move to, in this order."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """One value that may decide what was seen."""

    document: str
    path: str
    value: JsonScalar
    traces: tuple[tuple[Aspect, Relation], ...]
    """What it may decide, and how it would show; for each aspect the plainest first."""
    weight: float
    """How much its name and place speak for it; 0 is neutral."""
    built: bool
    """It stands among the parts of a network or an optimizer."""

    @property
    def kinds(self) -> frozenset[str]:
        """Of the aspects it may decide."""
        return frozenset(aspect.kind for aspect, _ in self.traces)


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


def open_aspects(
    found: Iterable[Findings], seen: Effects, kinds: Iterable[str], phases: Iterable[str]
) -> tuple[Aspect, ...]:
    """What of `kinds` the program visibly has and no knob of `phases` explains by its value.

    Where a kind stands nowhere under these phases, its other knobs count.
    """
    wanted, phases, found = set(kinds), set(phases), tuple(found)
    open_ = []
    for aspect in ASPECTS:
        if aspect.kind not in wanted or not aspect.seen(seen):
            continue
        alike = [k for each in found for k in each.knobs if k.kind == aspect.kind]
        in_phase = [knob for knob in alike if knob.phase in phases]
        if not aspect.known_from(in_phase or alike, seen):
            open_.append(aspect)
    return tuple(open_)


# --- who is suspected ---------------------------------------------------------------------


def suspects(
    sources: Iterable[tuple[Document, Findings]], seen: Effects, aspects: Sequence[Aspect]
) -> tuple[Suspect, ...]:
    """Values that would show as what was seen, those that most speaks for first."""
    all_ = [
        suspect
        for document, findings in sources
        for leaf in _unknown(document, findings)
        if (suspect := _suspect(document, findings, leaf, seen, aspects)) is not None
    ]
    free = frozenset[str]().union(*(each.kinds for each in all_ if not each.built))
    kept = [each for each in all_ if not each.built or each.kinds - free]
    return tuple(sorted(kept, key=lambda each: -each.weight))


def _suspect(
    document: Document, findings: Findings, leaf: Leaf, seen: Effects, aspects: Sequence[Aspect]
) -> Suspect | None:
    known, words = _words(), _words_in(leaf.name)
    if words & known.never:
        return None
    for_kinds = {kind for kind, own in known.speaks.items() if own & words}
    if not for_kinds and words & known.against:
        return None
    assert not isinstance(leaf.value, tuple)
    traces = tuple(
        (aspect, relation)
        for aspect in aspects
        for relation in aspect.relations
        if relation.shown(leaf.value, seen) in aspect.seen(seen)
        and (not for_kinds or (relation.kind or aspect.kind) in for_kinds)
    )
    if not traces:
        return None
    kinds = {relation.kind or aspect.kind for aspect, relation in traces}
    above = _words_in(*leaf.ancestors)
    beside = any(
        knob.path.rpartition(".")[0] == leaf.mapping and knob.kind in ("batch_size", "num_workers")
        for knob in findings.knobs
    )
    weight = (
        2.0 * bool(for_kinds)
        + any(known.hints.get(kind, frozenset()) & words for kind in kinds)
        + 0.5 * any(known.above.get(kind, frozenset()) & above for kind in kinds)
        + 0.5 * (beside and bool(leaf.mapping))
        - 0.5 * (number_of(leaf.value) in (0, 1))  # half of all flags are one of these
    )
    return Suspect(
        document=document.name,
        path=leaf.path,
        value=leaf.value,
        traces=traces,
        weight=weight,
        built=not for_kinds and bool(above & known.built),
    )


def _unknown(document: Document, findings: Findings) -> list[Leaf]:
    """Values that can be moved and of which the finder does not know what they are."""
    known = {
        *(knob.path for knob in findings.knobs),
        *(trap.path for trap in findings.traps),
        *(path for link in findings.links for path in link.paths),
        *(reference.path for reference in findings.references),
        *findings.outputs,
    }
    every = leaves(document.scalars)
    return [leaf for leaf in every if leaf.path not in known and _movable(document, leaf)]


def _movable(document: Document, leaf: Leaf) -> bool:
    """A plain number or word that is written there, and that no comment protects."""
    value, scalar = leaf.value, leaf.scalar
    if leaf.is_list or not scalar.editable or leaf.path in document.aliases:
        return False
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    number = number_of(value)
    plain = bool(row_of(value)[0]) if number is None else number >= 0 and number == int(number)
    return plain and not catalogue().comments["constraint"].search(scalar.comment or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """suspects.toml."""

    never: frozenset[str]
    against: frozenset[str]
    built: frozenset[str]
    speaks: Mapping[str, frozenset[str]] = field(default_factory=dict)
    hints: Mapping[str, frozenset[str]] = field(default_factory=dict)
    above: Mapping[str, frozenset[str]] = field(default_factory=dict)


@functools.cache
def _words() -> _Words:
    text = resources.files("advisor.knobs").joinpath("suspects.toml").read_text("utf-8")
    table = tomllib.loads(text)
    sets = {name: frozenset(table[name]) for name in ("never", "against", "built")}
    by_kind = {
        name: {kind: frozenset(words) for kind, words in table[name].items()}
        for name in ("speaks", "hints", "above")
    }
    return _Words(**sets, **by_kind)  # type: ignore[arg-type]


def _words_in(*names: str) -> frozenset[str]:
    """Words of canonical names, without the digits at their ends."""
    words = (word for name in names for word in name.split("_"))
    return frozenset(re.sub(r"\d+$", "", word) or word for word in words)


# --- what to try them out with ------------------------------------------------------------


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
        values = _apart(group, worlds, taken, _alternatives(group, room, lower=lower))
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


def _shared_out(seen: Effects, accumulations: Iterable[float]) -> set[Shown]:
    """Batches of a global batch that stands in the code, over another accumulation."""
    batch, of_one = seen.batch_asked or seen.batch or 0.0, seen.accumulation or 1.0
    return {float(math.floor(batch * of_one / number)) for number in accumulations}


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


def _alternatives(group: Sequence[Suspect], room: float, *, lower: bool) -> Iterator[JsonScalar]:
    """Values to move a group to, the safest first, spelled as its present one is."""
    old, kinds = group[0].value, frozenset[str]().union(*(each.kinds for each in group))
    number = number_of(old)
    if number is None:
        row, _ = row_of(old)
        yield from (row[dtype] for dtype in WIDTHS if dtype in row and row[dtype] != old)
        return
    value = int(number)
    most = max(MOST_WORKERS, 2 * value) if "num_workers" in kinds else int(room * value)
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


def better_half(
    suspected: Sequence[Suspect], open_: Mapping[Suspect, frozenset[str]]
) -> tuple[Suspect, ...]:
    """For each kind in doubt the half of its suspects that most speaks for; at least one."""
    kept: set[Suspect] = set()
    for kind in frozenset[str]().union(*(open_[each] for each in suspected)):
        alike = [each for each in suspected if kind in open_[each]]
        kept.update(alike[: (len(alike) + 1) // 2])
    return tuple(each for each in suspected if each in kept)


def fewer(suspected: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """After a run that failed: half of each kind, else half of the kinds."""
    half = better_half(suspected, {each: each.kinds for each in suspected})
    return half if len(half) < len(suspected) else half[: (len(half) + 1) // 2]


def knob_of(found: Followed, phase: Phase) -> Knob:
    """What is followed, as a knob like those that a name told of."""
    kind = catalogue().kinds[found.kind]
    key = str(parts_of(found.path)[-1])
    phase = kind.phase or phase
    return Knob(
        document=found.document,
        path=found.path,
        kind=found.kind,
        phase=phase,
        knob_class=kind.class_in(phase),
        value=found.value,
        unit=kind.unit,
        scope=found.scope,
        why=f"`{key}` is a {found.kind} by experiment: the program follows it",
    )

"""Discovery of knobs by experiment with suspected values."""

from __future__ import annotations

import functools
import itertools
import math
import re
import tomllib
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import TYPE_CHECKING

from advisor.knobs.candidate_values import row_of
from advisor.knobs.catalogue import catalogue
from advisor.knobs.constraints import find_links
from advisor.knobs.finder import Classified
from advisor.knobs.findings import Followed, Shown
from advisor.knobs.registry import REGISTRY
from advisor.knobs.tree import Leaf, leaves, number_of, parts_of
from advisor.model import SAMPLER_FORWARDS, Knob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from advisor.config import Document
    from advisor.knobs.findings import Findings
    from advisor.model import Effects, JsonScalar, KnobConstraint, Phase


SMALLEST_SIDE = 8
"""Shortest side of an image; shorter ones are channels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A rule from a setting to its observed value."""

    name: str
    """A key of the sentences that the report has."""
    shown: Callable[[JsonScalar, Effects], Shown | None]
    """Expected observation for a value; None where it is no value for it."""
    kind: str | None = None
    """Kind of the setting, where it shows in another."""
    scope: str | None = None
    last_resort: bool = False
    """True for a rare relation, tried only where no other explains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aspect:
    """Observed quantity, with the kind of its knob."""

    kind: str
    seen: Callable[[Effects], frozenset[Shown]]
    """Empty where it was not seen, or is too common to be anybody's trace."""
    relations: tuple[Relation, ...]

    def explained(self, value: JsonScalar, seen: Effects) -> Relation | None:
        """Plainest relation from `value` to the observation, or None.

        A relation that equals a plainer one (ranks, where there is one rank) is not asked.
        """
        wanted = self.seen(seen)
        return next((r for r in self.relations if r.shown(value, seen) in wanted), None)

    def known_from(self, knobs: Iterable[Knob], seen: Effects) -> bool:
        """True if a named knob may explain it.

        Also if one cannot be compared.
        """
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
    """Heights and widths of inputs that have channels."""
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
"""Kinds in order; the search can use the first."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """One value that may decide what was seen."""

    document: str
    path: str
    value: JsonScalar
    traces: tuple[tuple[Aspect, Relation], ...]
    """Aspects it may decide, each with its plainest relation first."""
    weight: float
    """Weight of its name and place; 0 is neutral."""
    built: bool
    """It stands among the parts of a network or an optimizer."""

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of the aspects it may decide."""
        return frozenset(aspect.kind for aspect, _ in self.traces)


def open_aspects(
    found: Iterable[Findings], seen: Effects, kinds: Iterable[str], phases: Iterable[str]
) -> tuple[Aspect, ...]:
    """Observed quantities that no knob explains.

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


def find_suspects(
    sources: Iterable[tuple[Document, Findings]], seen: Effects, aspects: Sequence[Aspect]
) -> tuple[Suspect, ...]:
    """Suspects for the observations, the likeliest first."""
    all_ = [
        suspect
        for document, findings in sources
        for leaf in _unknown(document, findings)
        if (suspect := _suspect(document, findings, leaf, seen, aspects)) is not None
    ]
    all_ = _without_last_resorts(all_)
    free = frozenset[str]().union(*(each.kinds for each in all_ if not each.built))
    kept = [each for each in all_ if not each.built or each.kinds - free]
    return tuple(sorted(kept, key=lambda each: -each.weight))


def _without_last_resorts(all_: Sequence[Suspect]) -> list[Suspect]:
    """Drop rare relations beside a plainer one."""
    plain = {aspect.kind for each in all_ for aspect, r in each.traces if not r.last_resort}
    kept = (
        replace(
            each,
            traces=tuple(
                (aspect, relation)
                for aspect, relation in each.traces
                if not relation.last_resort or aspect.kind not in plain
            ),
        )
        for each in all_
    )
    return [each for each in kept if each.traces]


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
    """Movable values that the finder does not know."""
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
    """True for a plain, editable, unprotected value."""
    value, scalar = leaf.value, leaf.scalar
    if leaf.is_list or not scalar.editable or leaf.path in document.aliases:
        return False
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    number = number_of(value)
    plain = bool(row_of(value)[0]) if number is None else number >= 0 and number == int(number)
    return plain and not any(
        catalogue().comments[kind].search(scalar.comment or "")
        for kind in ("constraint", "multiple")
    )


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
    """Words of canonical names, without final digits."""
    words = (word for name in names for word in name.split("_"))
    return frozenset(re.sub(r"\d+$", "", word) or word for word in words)


# --- some of them -----------------------------------------------------------------------


def better_half(
    suspected: Sequence[Suspect], open_: Mapping[Suspect, frozenset[str]]
) -> tuple[Suspect, ...]:
    """Likelier half of the suspects of each doubtful kind."""
    kept: set[Suspect] = set()
    for kind in frozenset[str]().union(*(open_[each] for each in suspected)):
        alike = [each for each in suspected if kind in open_[each]]
        kept.update(alike[: (len(alike) + 1) // 2])
    return tuple(each for each in suspected if each in kept)


def fewer(suspected: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """Fewer suspects after a failed run."""
    half = better_half(suspected, {each: each.kinds for each in suspected})
    return half if len(half) < len(suspected) else half[: (len(half) + 1) // 2]


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
    """Suspect, with its value in the experiment."""

    suspect: Suspect
    new: JsonScalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The evidence of one run with moved values."""

    followed: tuple[Followed, ...]
    unclear: frozenset[str]
    """Kinds that changed, or were not seen, and not as any one of the moved values would show."""


def trial_values(
    suspected: Sequence[Suspect],
    seen: Effects,
    *,
    room: float = 1e9,
    lower: bool = False,
    backwards: bool = False,
) -> tuple[Move, ...]:
    """Distinct value for each suspect.

    Of several with one value the later ones get the larger values, `backwards` the smaller: where
    one of them must divide another, it does in one of the two. `room`: how many times as much
    memory there is. `lower`: smaller values first. Indistinguishable values are left out.
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
    """True if one of `group` may be the accumulation."""
    traces = (trace for suspect in group for trace in suspect.traces)
    return any("grad_accum" == aspect.kind == (r.kind or aspect.kind) for aspect, r in traces)


def _of_one_update(seen: Effects) -> float:
    """Samples that go into one update of one rank."""
    return float(seen.batch_asked or seen.batch or 1) * (seen.accumulation or 1.0)


def _shared_out(seen: Effects, accumulations: Iterable[float]) -> set[Shown]:
    """Batches of an unwritten global batch, by accumulation."""
    return {float(math.floor(_of_one_update(seen) / number)) for number in accumulations}


def _apart(
    group: Sequence[Suspect],
    worlds: Sequence[Effects],
    taken: dict[str, set[Shown]],
    values: Iterable[JsonScalar],
) -> list[JsonScalar]:
    """Values for the group that show as nothing `taken`."""
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
    """Round down, as programs do with a remainder."""
    return float(math.floor(shown)) if isinstance(shown, float) else shown


def _whole(shown: Shown | None) -> bool:
    """True for a whole, observable value."""
    return isinstance(shown, str) or (shown is not None and shown >= 1 and shown == int(shown))


def _alternatives(
    group: Sequence[Suspect], seen: Effects, room: float, *, lower: bool
) -> Iterator[JsonScalar]:
    """Values for a group, the safest first.

    Spelled as its present one is.
    """
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
    costly = kinds <= {"timesteps", "num_workers", "grad_accum"}  # more of it takes longer to show
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


def read_outcome(
    moved: Sequence[Move], before: Effects, after: Effects, aspects: Iterable[Aspect]
) -> Outcome:
    """Find the moved values that show exactly as predicted."""
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
    return Outcome(followed=tuple(followed), unclear=frozenset(unclear))


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


def joined(
    document: Document, findings: Findings, followed: Iterable[Followed], phase: Phase
) -> Findings:
    """Add followed values of a `phase` to `findings`."""
    mine = {each.path: each for each in followed if each.document == document.name}
    if not mine:
        return findings
    knobs = (*findings.knobs, *(_knob(each, phase) for each in mine.values()))
    before = _links(document, findings, findings.knobs)
    kept = (link for link in findings.links if link not in before)
    return replace(
        findings,
        knobs=knobs,
        links=(*_links(document, findings, knobs), *kept),
        followed=tuple(mine.values()),
    )


def _links(
    document: Document, findings: Findings, knobs: Sequence[Knob]
) -> tuple[KnobConstraint, ...]:
    return find_links(
        Classified(
            document=document,
            leaves=tuple(leaves(document.scalars)),
            knobs=tuple(knobs),
            traps=findings.traps,
            links=(),
            references=findings.references,
            outputs=findings.outputs,
        )
    )


def _knob(found: Followed, phase: Phase) -> Knob:
    kind = REGISTRY[found.kind]
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
        why=f"`{parts_of(found.path)[-1]}` is a {found.kind} by experiment",
    )

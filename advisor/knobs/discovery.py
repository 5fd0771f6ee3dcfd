"""Discovery of knobs by experiment with suspected values."""

from __future__ import annotations

import functools
import itertools
import math
import re
import tomllib
from dataclasses import dataclass, replace
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from advisor.knobs.catalogue import catalogue
from advisor.knobs.constraints import find_links
from advisor.knobs.findings import Followed
from advisor.knobs.registry import REGISTRY
from advisor.knobs.tree import Leaf, leaves, number_of, parts_of
from advisor.model import SAMPLER_FORWARDS, Knob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from advisor.config import Document
    from advisor.knobs.findings import Findings
    from advisor.model import Effects, JsonScalar, Phase


# --- from settings to observations --------------------------------------------------------


class Relation(NamedTuple):
    """Observation that follows from a setting: its value over those that share it."""

    over: tuple[Literal["update", "rank", "batch"], ...] = ()
    times: float = 1.0
    kind: str | None = None
    """Kind of the setting, where it shows in another."""
    scope: str | None = None

    def shown(self, value: JsonScalar, seen: Effects) -> float | None:
        """Expected observation; None if `value` cannot be such a setting."""
        number = number_of(value)
        shares = {
            "update": seen.accumulation,
            "rank": seen.group_size or seen.world_size,
            "batch": seen.batch_asked or seen.batch,
        }
        parts = math.prod(float(shares[each] or 1) for each in self.over)
        return None if number is None else round(number * self.times / parts, 6)


ITSELF = Relation()


@dataclass(frozen=True, slots=True, kw_only=True)
class Aspect:
    """Observed count, with the kind of its knob."""

    kind: str
    observation: Callable[[Effects], float | None]
    least: float = 0.0
    """Smaller observations are too common to be a trace."""
    relations: tuple[Relation, ...] = (ITSELF,)

    def seen(self, effects: Effects) -> float | None:
        """The observation, if it can be a trace."""
        value = self.observation(effects)
        return float(value) if value is not None and value >= self.least else None

    def known_from(self, knobs: Iterable[Knob], effects: Effects) -> bool:
        """True if a named knob may explain it, or cannot be compared."""
        wanted = self.seen(effects)
        return any(
            not _comparable(knob, value)
            or any(relation.shown(value, effects) == wanted for relation in self.relations)
            for knob in knobs
            for value in (knob.value if isinstance(knob.value, tuple) else (knob.value,))
        )


def _comparable(knob: Knob, value: JsonScalar) -> bool:
    counts_samples = knob.kind != "batch_size" or knob.unit in (None, "sample")
    return counts_samples and number_of(value) is not None


BATCH = Aspect(
    kind="batch_size",
    observation=lambda seen: seen.batch if seen.batch_asked is None else seen.batch_asked,
    least=1,
    relations=(
        ITSELF,
        Relation(("update",), scope="global"),
        Relation(("rank",), scope="global"),
        Relation(("update", "rank"), scope="global"),
    ),
)
ASPECTS = (
    BATCH,
    Aspect(kind="num_workers", observation=lambda seen: seen.workers),
    Aspect(
        kind="grad_accum",
        observation=lambda seen: seen.accumulation,
        least=2,
        relations=(ITSELF, Relation(("rank", "batch"), kind="batch_size", scope="global")),
    ),
    Aspect(
        kind="timesteps",
        observation=lambda seen: seen.forwards_per_unit,
        least=SAMPLER_FORWARDS,
        relations=(ITSELF, Relation(times=2.0)),
    ),
)
"""Kinds in order; the search can use the first."""


def open_aspects(
    found: Iterable[Findings], seen: Effects, kinds: Iterable[str], phases: Iterable[str]
) -> tuple[Aspect, ...]:
    """Observed quantities that no knob explains.

    Where a kind stands nowhere under these phases, its other knobs count.
    """
    wanted, phases = set(kinds), set(phases)
    knobs = [knob for each in found for knob in each.knobs]
    open_ = []
    for aspect in ASPECTS:
        if aspect.kind not in wanted or aspect.seen(seen) is None:
            continue
        alike = [knob for knob in knobs if knob.kind == aspect.kind]
        in_phase = [knob for knob in alike if knob.phase in phases]
        if not aspect.known_from(in_phase or alike, seen):
            open_.append(aspect)
    return tuple(open_)


# --- suspects -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Suspect:
    """One value that may decide an observation."""

    document: str
    path: str
    value: JsonScalar
    traces: tuple[tuple[Aspect, Relation], ...]
    """Aspects it may decide, each with its plainest relation first."""
    named: bool
    """Its name speaks for the kind."""
    built: bool
    """It stands among the parts of a network or an optimizer."""

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of the aspects it may decide."""
        return frozenset(aspect.kind for aspect, _ in self.traces)


def find_suspects(
    sources: Iterable[tuple[Document, Findings]], seen: Effects, aspects: Sequence[Aspect]
) -> tuple[Suspect, ...]:
    """Suspects for the observations, the likeliest first."""
    every = [
        suspect
        for document, findings in sources
        for leaf in _unknown(document, findings)
        if (suspect := _suspect(document.name, leaf, seen, aspects)) is not None
    ]
    free = frozenset[str]().union(*(each.kinds for each in every if not each.built))
    kept = (each for each in every if not each.built or each.kinds - free)
    return tuple(sorted(kept, key=lambda each: not each.named))


def _suspect(document: str, leaf: Leaf, seen: Effects, aspects: Sequence[Aspect]) -> Suspect | None:
    known, words = _words(), _words_in(leaf.name)
    named = {kind for kind, own in known["speaks"].items() if not words.isdisjoint(own)}
    against = known["never"] if named else [*known["never"], *known["against"]]
    if not words.isdisjoint(against):
        return None
    assert not isinstance(leaf.value, tuple)
    traces = tuple(
        (aspect, relation)
        for aspect in aspects
        for relation in aspect.relations
        if relation.shown(leaf.value, seen) == aspect.seen(seen)
        and (not named or (relation.kind or aspect.kind) in named)
    )
    if not traces:
        return None
    built = not named and not _words_in(*leaf.ancestors).isdisjoint(known["built"])
    return Suspect(document, leaf.path, leaf.value, traces, bool(named), built)


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
    if not scalar.editable or leaf.path in document.aliases:
        return False
    number = None if isinstance(value, tuple) else number_of(value)
    if number is None or number < 0 or number != int(number):
        return False
    return not any(
        catalogue().comments[kind].search(scalar.comment or "")
        for kind in ("constraint", "multiple")
    )


@functools.cache
def _words() -> dict[str, Any]:
    """Contents of suspects.toml."""
    text = resources.files("advisor.knobs").joinpath("suspects.toml").read_text("utf-8")
    return tomllib.loads(text)


def _words_in(*names: str) -> frozenset[str]:
    """Words of canonical names, without final digits."""
    words = (word for name in names for word in name.split("_"))
    return frozenset(re.sub(r"\d+$", "", word) or word for word in words)


def better_half(
    suspected: Sequence[Suspect], open_: Mapping[Suspect, frozenset[str]]
) -> tuple[Suspect, ...]:
    """Likelier half of the suspects of each doubtful kind."""
    kept: set[Suspect] = set()
    for kind in frozenset[str]().union(*(open_[each] for each in suspected)):
        alike = [each for each in suspected if kind in open_[each]]
        kept.update(alike[: (len(alike) + 1) // 2])
    return tuple(each for each in suspected if each in kept)


# --- values of the experiment -------------------------------------------------------------

MOST = 16
"""Values moved in one run: more would hardly leave a program that runs."""
MULTIPLES = (2, 4, 8, 16)
"""Tried first: of two multiples one divides the other, as heads and widths need."""
MOST_WORKERS = 8
"""A value that may be the workers is not raised beyond it, or twice its present value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Suspect, with its value in the experiment."""

    suspect: Suspect
    new: JsonScalar


def trial_values(
    suspected: Sequence[Suspect],
    seen: Effects,
    *,
    room: float = 1e9,
    lower: bool = False,
    backwards: bool = False,
) -> tuple[Move, ...]:
    """Distinct value for each suspect; indistinguishable ones are left out.

    Of several with one value the later ones get the larger values, `backwards` the smaller: where
    one of them must divide another, it does in one of the two. `room`: how many times as much
    memory there is. `lower`: smaller values first.
    """
    alike: dict[tuple[JsonScalar, str], list[Suspect]] = {}
    for suspect in suspected[:MOST]:
        alike.setdefault((suspect.value, type(suspect.value).__name__), []).append(suspect)
    # Where batches share an update, the batch that shows depends on the new accumulation.
    groups = sorted(alike.values(), key=lambda group: not _in_accumulation(group))
    worlds = [seen]
    taken = {(aspect.kind, aspect.seen(seen)) for aspect in ASPECTS}
    chosen: dict[Suspect, JsonScalar] = {}
    for group in groups:
        values = _apart(group, worlds, taken, _alternatives(group, seen, room, lower=lower))
        values.sort(key=lambda value: number_of(value) or 0.0, reverse=backwards)
        chosen |= dict(zip(group, values, strict=False))
        if _in_accumulation(group):
            numbers = [number for value in values if (number := number_of(value))]
            worlds += [replace(seen, accumulation=number) for number in numbers]
            taken |= {("batch_size", _rounded(_of_one_update(seen) / n)) for n in numbers}
    return tuple(Move(suspect=each, new=chosen[each]) for each in suspected if each in chosen)


def _in_accumulation(group: Sequence[Suspect]) -> bool:
    """True if one of `group` may be the accumulation."""
    traces = (trace for suspect in group for trace in suspect.traces)
    return any(aspect.kind == "grad_accum" and not r.kind for aspect, r in traces)


def _of_one_update(seen: Effects) -> float:
    """Samples that go into one update of one rank."""
    return float(seen.batch_asked or seen.batch or 1) * (seen.accumulation or 1.0)


def _apart(
    group: Sequence[Suspect],
    worlds: Sequence[Effects],
    taken: set[tuple[str, float | None]],
    values: Iterable[JsonScalar],
) -> list[JsonScalar]:
    """Values for the group that show as nothing `taken`."""
    traces = dict.fromkeys(trace for suspect in group for trace in suspect.traces)
    found: list[JsonScalar] = []
    for value in values:
        if len(found) == len(group):
            break
        if not all(_whole(relation.shown(value, worlds[0])) for _, relation in traces):
            continue
        shown = {
            (aspect.kind, _rounded(relation.shown(value, world)))
            for world in worlds
            for aspect, relation in traces
        }
        if not shown & taken:
            taken |= shown
            found.append(value)
    return found


def _rounded(shown: float | None) -> float | None:
    """Round down, as programs do with a remainder."""
    return None if shown is None else float(math.floor(shown))


def _whole(shown: float | None) -> bool:
    """True for a whole, observable value."""
    return shown is not None and shown >= 1 and shown == int(shown)


def _alternatives(
    group: Sequence[Suspect], seen: Effects, room: float, *, lower: bool
) -> Iterator[JsonScalar]:
    """Values for a group, the safest first, in the present spelling."""
    old, kinds = group[0].value, frozenset[str]().union(*(each.kinds for each in group))
    number = number_of(old)
    assert number is not None
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
    like = type(old)
    assert like in (int, float, str)
    for new in itertools.chain(first, *((less, more) if not times else (more, less))):
        yield like(new)


# --- outcome of a run ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Evidence of one run with moved values."""

    followed: tuple[Followed, ...]
    unclear: frozenset[str]
    """Kinds whose change no single moved value explains."""


def read_outcome(
    moved: Sequence[Move], before: Effects, after: Effects, aspects: Iterable[Aspect]
) -> Outcome:
    """Find the moved values that show exactly as predicted."""
    followed: list[Followed] = []
    unclear = set()
    for aspect in aspects:
        old, new = aspect.seen(before), aspect.seen(after)
        if new is not None and new == old:
            continue
        shown = [
            (move, relation)
            for move in moved
            if (relation := _explains(move, aspect, after, new)) is not None
        ]
        # A batch over an accumulation that moved with it shows as the quotient by definition.
        shown = [pair for pair in shown if pair[1] is ITSELF] or shown
        if len(shown) != 1 or old is None or new is None:
            unclear.add(aspect.kind)
            continue
        move, relation = shown[0]
        followed.append(
            Followed(
                document=move.suspect.document,
                path=move.suspect.path,
                kind=relation.kind or aspect.kind,
                shown_in=aspect.kind,
                value=move.suspect.value,
                scope=relation.scope,
                moved_to=move.new,
                before=old,
                after=new,
            )
        )
    return Outcome(followed=tuple(followed), unclear=frozenset(unclear))


def _explains(move: Move, aspect: Aspect, after: Effects, new: float | None) -> Relation | None:
    """Plainest relation by which the moved value shows as `new`."""
    for its, relation in move.suspect.traces:
        exact = relation.shown(move.new, after)
        if its is aspect and new is not None and new in (exact, _rounded(exact)):
            return relation
    return None


def joined(
    document: Document, findings: Findings, followed: Iterable[Followed], phase: Phase
) -> Findings:
    """Add followed values of a `phase` to `findings`."""
    mine = {each.path: each for each in followed if each.document == document.name}
    if not mine:
        return findings
    knobs = (*findings.knobs, *(_knob(each, phase) for each in mine.values()))
    every = leaves(document.scalars)
    before = find_links(document.name, every, findings.knobs)
    kept = (link for link in findings.links if link not in before)
    return replace(
        findings,
        knobs=knobs,
        links=(*find_links(document.name, every, knobs), *kept),
        followed=tuple(mine.values()),
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
        why=f"`{parts_of(found.path)[-1]}`: {kind.words}, by experiment",
    )

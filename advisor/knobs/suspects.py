"""Values that equal what the program was seen to do, and that no name tells of: suspects.

Pure: leaves of the documents, what the finder knows of them, and observed effects go in.
"""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import TYPE_CHECKING

from advisor.knobs.catalogue import catalogue
from advisor.knobs.traces import ASPECTS, Aspect, Relation
from advisor.knobs.tree import Leaf, leaves, number_of
from advisor.knobs.values import row_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from advisor.config import Document
    from advisor.knobs.findings import Findings
    from advisor.model import Effects, JsonScalar


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
    all_ = _without_last_resorts(all_)
    free = frozenset[str]().union(*(each.kinds for each in all_ if not each.built))
    kept = [each for each in all_ if not each.built or each.kinds - free]
    return tuple(sorted(kept, key=lambda each: -each.weight))


def _without_last_resorts(all_: Sequence[Suspect]) -> list[Suspect]:
    """What only a rare relation makes a suspect is none where a plainer one explains the same."""
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
    """Words of canonical names, without the digits at their ends."""
    words = (word for name in names for word in name.split("_"))
    return frozenset(re.sub(r"\d+$", "", word) or word for word in words)


# --- some of them -----------------------------------------------------------------------


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

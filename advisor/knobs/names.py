"""Names by their parts: what the words of a name, and what stands around it, speak for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from advisor.knobs.catalogue import catalogue
from advisor.knobs.tree import Leaf, number_of, words_of
from advisor.knobs.vocabulary import spoken, table, words_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.knobs.vocabulary import KindOfName, Phrases

_OUTSIDE_USUAL = -5
_COMMENT = 1
_OTHER_COMMENT = -9
_LEAST_ROUND = 16
_WHOLE = frozenset({"value", "default"})
"""Names of a leaf that is the whole of what the key above names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A name taken apart in its place."""

    kind: str
    score: int
    why: str
    """The evidence with its weights: "`batch size` +6, `sw` -1, under `loader` +1"."""
    is_knob: bool
    """False for a look-alike, whose name has the words but something speaks against it."""
    is_sure: bool
    is_only: bool
    """A look-alike by its place alone: a knob all the same where nothing else is of the kind."""


def read(leaf: Leaf) -> Reading | None:
    """What `leaf` most likely is by the words around it; None where nothing speaks for a kind."""
    vocabulary = table()
    said = spoken(leaf.name)
    if not said:
        return None
    readings = [
        _reading(leaf, kind, said[kind.kind])
        for kind in vocabulary.kinds
        if kind.kind in said and kind.family.holds(leaf.value)
    ]
    knobs = [reading for reading in readings if reading.is_knob]
    best = max(knobs, key=lambda reading: reading.score, default=None)
    if best:
        return best
    return next((r for r in readings if said[r.kind].speaking >= vocabulary.enough), None)


def of_key_above(leaf: Leaf) -> Leaf | None:
    """`leaf` under the name of the key above, where its own only says that it is the value."""
    vocabulary = table()
    kind = vocabulary.value_names.get(leaf.name)
    words = words_in(leaf.name)
    is_part = words and vocabulary.names_of_parts.issuperset(words)
    is_one = leaf.name.isdecimal() and "".join(leaf.ancestors[:1]).endswith(vocabulary.several)
    if kind is None and (is_part or is_one):
        kind = "any"
    if kind is None or not leaf.ancestors or leaf.keys & vocabulary.bounds:
        return None
    name, *above = leaf.ancestors
    said = spoken(name)
    heard = said.values() if kind == "any" else filter(None, (said.get(kind),))
    is_known = kind == "any" and leaf.name in _WHOLE and bool(catalogue().rules_for(name))
    if not is_known and all(phrases.weight < vocabulary.enough for phrases in heard):
        return None
    return replace(leaf, name=name, ancestors=tuple(above))


def _reading(leaf: Leaf, kind: KindOfName, said: Phrases) -> Reading:
    vocabulary = table()
    evidence = list(_around(leaf, kind))
    score = said.weight + sum(weight for _, weight in evidence)
    words = " and ".join(f"`{phrase}`" for phrase in (*said.speaks, *said.objects))
    parts = [
        f"{words} in its name {said.weight:+d}",
        *(f"{what} {weight:+d}" for what, weight in evidence),
    ]
    return Reading(
        kind=kind.kind,
        score=score,
        why=", ".join(parts),
        is_knob=score >= vocabulary.enough,
        is_sure=score >= vocabulary.high,
        is_only=kind.only and said.weight >= vocabulary.enough,
    )


def _around(leaf: Leaf, kind: KindOfName) -> Iterator[tuple[str, int]]:
    """What stands around a name, and how much it weighs for `kind`."""
    places = [(name, kind.called, "in a") for name in leaf.called]
    places += [(name, kind.above, "under") for name in leaf.ancestors]
    for name, weights, where in places:
        listed = words_of(name) & weights.keys()
        if listed:
            word = max(sorted(listed), key=lambda w: abs(weights[w]))
            yield f"{where} `{word}`", weights[word]
            break
    stage = stage_of(leaf)
    if stage:
        yield f"beside `{stage}`", -table().unknown
    beside = leaf.siblings & kind.beside.keys()
    if beside:
        key = max(sorted(beside), key=lambda k: kind.beside[k])
        yield f"beside `{key}`", kind.beside[key]
    if kind.comment and kind.comment.search(leaf.comment or ""):
        yield "its comment", _COMMENT
    if kind.not_comment and kind.not_comment.search(leaf.comment or ""):
        yield "its comment", _OTHER_COMMENT
    if kind.as_list and leaf.is_list:
        yield "a list", kind.as_list
    if kind.as_round and words_in(leaf.name)[-1] in kind.speaking and _is_round(leaf.value):
        yield f"the value {leaf.value}", kind.as_round
    values = leaf.value if isinstance(leaf.value, tuple) else (leaf.value,)
    numbers = [number for value in values if (number := number_of(value)) is not None]
    if kind.usual and any(not kind.usual[0] <= number <= kind.usual[1] for number in numbers):
        yield f"the value {leaf.value}", _OUTSIDE_USUAL


def stage_of(leaf: Leaf) -> str | None:
    """A key beside `leaf` that shows its strange first word to name a stage of training."""
    vocabulary = table()
    first = leaf.name.split("_")[0]
    if not vocabulary.known.isdisjoint(words_in(first)):
        return None
    keys = (f"{first}_{key}" for key in vocabulary.stage)
    return next((key for key in keys if key in leaf.siblings), None)


def _is_round(value: object) -> bool:
    return isinstance(value, int) and value >= _LEAST_ROUND and value.bit_count() == 1

"""Vocabulary of names, weighed by names.toml."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass, replace
from importlib import resources
from typing import TYPE_CHECKING, Any

from advisor.knobs.catalogue import Family, catalogue
from advisor.knobs.tree import Leaf, number_of, words_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


Words = tuple[str, ...]

_LEAST_PLURAL = 4
_LONG_PART = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrases:
    """Evidence of a name for and against one kind."""

    weight: int
    """Weight of every phrase and unknown word together."""
    speaks: tuple[str, ...]
    """Phrases that speak for the kind, as read."""
    objects: tuple[str, ...]
    """Phrases that speak against it."""
    speaking: int
    """The weight of `speaks` alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOfName:
    kind: str
    family: Family
    phrases: Mapping[Words, int]
    """The longest first, of those the heaviest."""
    speaking: frozenset[str]
    """First words of the phrases that speak for the kind."""
    called: Mapping[str, int]
    above: Mapping[str, int]
    beside: Mapping[str, int]
    comment: re.Pattern[str] | None
    not_comment: re.Pattern[str] | None
    usual: tuple[float, float] | None
    as_list: int
    as_round: int
    only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Everything names.toml says."""

    enough: int
    high: int
    unknown: int
    stage: tuple[str, ...]
    """Keys that, with a strange word before them, tell of a stage of training."""
    spelling: Mapping[str, Words]
    neutral: frozenset[str]
    known: frozenset[str]
    """Every word of the file."""
    parts: frozenset[str]
    """Those that a glued word may be made of: neutral ones and such as speak for a kind. What
    speaks against one must stand alone, or `gammanet` would be two."""
    kinds: tuple[KindOfName, ...]
    scope: Mapping[str, tuple[Words, ...]]
    unit: Mapping[str, tuple[Words, ...]]
    value_names: Mapping[str, str]
    """Names of a leaf that is what the key above it names, and of which kind that must be."""
    names_of_parts: frozenset[str]
    """Words that, like neutral ones, only say for which part of it."""
    several: tuple[str, ...]
    """Ends of keys below which a number names one of several values."""
    bounds: frozenset[str]
    """Keys beside such a leaf that tell of a search space."""


@functools.cache
def table() -> Vocabulary:
    text = resources.files("advisor.knobs").joinpath("names.toml").read_text("utf-8")
    data = tomllib.loads(text)
    spelling = {
        other: tuple(word.split()) for word, others in data["spelling"].items() for other in others
    }
    kinds = tuple(_kind_of_name(kind, row, spelling) for kind, row in data["kind"].items())
    neutral = frozenset(w for word in data["neutral"]["words"] for w in spelling.get(word, (word,)))
    weighed = [(phrase, weight) for kind in kinds for phrase, weight in kind.phrases.items()]
    known = {word for phrase, _ in weighed for word in phrase}
    speaking = {word for phrase, weight in weighed if weight > 0 for word in phrase}
    respelled = {
        part: {
            meaning: tuple(_respelled(phrase, spelling) for phrase in phrases)
            for meaning, phrases in data[part].items()
        }
        for part in ("scope", "unit")
    }
    return Vocabulary(
        enough=data["enough"],
        high=data["high"],
        unknown=data["unknown"],
        stage=tuple(data["stage"]),
        spelling=spelling,
        neutral=neutral,
        known=frozenset(known) | neutral | spelling.keys(),
        parts=frozenset(speaking) | neutral | spelling.keys(),
        kinds=kinds,
        scope=respelled["scope"],
        unit=respelled["unit"],
        value_names=data["value-of-the-key-above"]["names"],
        names_of_parts=neutral | frozenset(data["value-of-the-key-above"]["parts"]),
        several=tuple(data["value-of-the-key-above"]["several"]),
        bounds=frozenset(data["value-of-the-key-above"]["bounds"]),
    )


def _kind_of_name(kind: str, row: dict[str, Any], spelling: Mapping[str, Words]) -> KindOfName:
    weights = {
        _respelled(phrase, spelling): int(weight)
        for weight, phrases in row["name"].items()
        for phrase in phrases
    }
    order = sorted(weights, key=lambda phrase: (-len(phrase), -abs(weights[phrase])))
    return KindOfName(
        kind=kind,
        family=catalogue().families[row["value"]],
        phrases={phrase: weights[phrase] for phrase in order},
        speaking=frozenset(phrase[0] for phrase in order if weights[phrase] > 0),
        called=_weights(row.get("called", {})),
        above=_weights(row.get("above", {})),
        beside=_weights(row.get("beside", {})),
        comment=_pattern(row.get("comment")),
        not_comment=_pattern(row.get("not-comment")),
        usual=tuple(row["usual"]) if "usual" in row else None,
        as_list=row.get("list", 0),
        as_round=row.get("round", 0),
        only=row.get("only", False),
    )


def _pattern(text: str | None) -> re.Pattern[str] | None:
    return re.compile(text, re.IGNORECASE) if text else None


def _weights(row: Mapping[str, Iterable[str]]) -> dict[str, int]:
    return {word: int(weight) for weight, words in row.items() for word in words}


def _respelled(phrase: str, spelling: Mapping[str, Words]) -> Words:
    return tuple(w for word in phrase.split() for w in spelling.get(word, (word,)))


# --- words --------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=8192)
def words_in(name: str) -> Words:
    """Words of a canonical name.

    `maxbatchsize0` is max, batch, size.
    """
    vocabulary = table()
    found: list[str] = []
    for token in filter(None, name.split("_")):
        bare = token.rstrip("0123456789")
        one = token.removesuffix("s") if len(token) > _LEAST_PLURAL else token
        parts = (token,) if token in vocabulary.known else _parted(token) or _parted(bare)
        if not parts and one in vocabulary.known:
            parts = (one,)
        for word in parts or filter(None, (bare,)):
            found.extend(vocabulary.spelling.get(word, (word,)))
    return tuple(found)


def _parted(token: str) -> Words:
    """Split a glued word; abbreviations alone make none."""
    parts = _unglued(token)
    return parts if any(len(part) >= _LONG_PART for part in parts) else ()


@functools.lru_cache(maxsize=8192)
def _unglued(token: str) -> Words:
    """Split `token` into the fewest known words.

    Empty where there are none.
    """
    parts = table().parts
    if token in parts:
        return (token,)
    found = []
    for cut in range(1, len(token)):
        head, tail = token[:cut], token[cut:]
        if head in parts and (cut > 1 or head == "n") and len(tail) > 1:
            rest = _unglued(tail)
            found += [(head, *rest)] if rest else []
    return min(found, key=len, default=())


@functools.lru_cache(maxsize=8192)
def spoken(name: str) -> Mapping[str, Phrases]:
    """Evidence of a canonical name, by kind."""
    words = words_in(name)
    found = {
        kind.kind: _phrases(words, kind.phrases)
        for kind in table().kinds
        if not kind.speaking.isdisjoint(words)
    }
    return {kind: phrases for kind, phrases in found.items() if phrases.speaks}


def _phrases(words: Words, weights: Mapping[Words, int]) -> Phrases:
    vocabulary = table()
    left = dict(enumerate(words))
    speaks, objects, weight, speaking = [], [], 0, 0
    for phrase in weights:
        if phrase[0] not in words:
            continue
        while (at := _where(phrase, left)) is not None:
            for place in at:
                del left[place]
            weight += weights[phrase]
            if weights[phrase] > 0:
                speaks.append(" ".join(phrase))
                speaking += weights[phrase]
            elif weights[phrase] < 0:
                objects.append(" ".join(phrase))
    strange = sum(word not in vocabulary.neutral for word in left.values())
    return Phrases(
        weight=weight + vocabulary.unknown * strange,
        speaks=tuple(speaks),
        objects=tuple(objects),
        speaking=speaking,
    )


def _where(phrase: Words, left: Mapping[int, str]) -> tuple[int, ...] | None:
    """Places of the words of `phrase`, in order.

    At most neutral words lie between them.
    """
    neutral = table().neutral
    places = sorted(left)
    for start, first in enumerate(places):
        if left[first] != phrase[0]:
            continue
        at = [first]
        for place in places[start + 1 :]:
            if len(at) == len(phrase):
                break
            if left[place] == phrase[len(at)]:
                at.append(place)
            elif left[place] not in neutral:
                break
        if len(at) == len(phrase):
            return tuple(at)
    return None


def speaks(name: str) -> bool:
    """True if the canonical name alone suggests a knob."""
    return any(found.weight >= table().enough for found in spoken(name).values())


def scope_of(name: str) -> str | None:
    """Scope of a batch: micro, device or global."""
    return _meaning_of(name, table().scope)


def unit_of(name: str) -> str | None:
    """Unit of a batch, if not samples."""
    return _meaning_of(name, table().unit)


def _meaning_of(name: str, phrases: Mapping[str, tuple[Words, ...]]) -> str | None:
    words = dict(enumerate(words_in(name)))
    meanings = (
        m for m, several in phrases.items() for p in several if _where(p, words) is not None
    )
    return next(meanings, None)


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
    """Most likely kind of `leaf`, by its words."""
    vocabulary = table()
    by_kind = spoken(leaf.name)
    if not by_kind:
        return None
    readings = [
        _reading(leaf, kind, by_kind[kind.kind])
        for kind in vocabulary.kinds
        if kind.kind in by_kind and kind.family.holds(leaf.value)
    ]
    knobs = [reading for reading in readings if reading.is_knob]
    best = max(knobs, key=lambda reading: reading.score, default=None)
    if best:
        return best
    return next((r for r in readings if by_kind[r.kind].speaking >= vocabulary.enough), None)


def of_key_above(leaf: Leaf) -> Leaf | None:
    """Give `leaf` the name of the key above it.

    Only where its own name means no more than a value.
    """
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
    by_kind = spoken(name)
    counted = by_kind.values() if kind == "any" else filter(None, (by_kind.get(kind),))
    is_known = kind == "any" and leaf.name in _WHOLE and bool(catalogue().rules_for(name))
    if not is_known and all(phrases.weight < vocabulary.enough for phrases in counted):
        return None
    return replace(leaf, name=name, ancestors=tuple(above))


def _reading(leaf: Leaf, kind: KindOfName, phrases: Phrases) -> Reading:
    vocabulary = table()
    evidence = list(_around(leaf, kind))
    score = phrases.weight + sum(weight for _, weight in evidence)
    words = " and ".join(f"`{phrase}`" for phrase in (*phrases.speaks, *phrases.objects))
    parts = [
        f"{words} in its name {phrases.weight:+d}",
        *(f"{what} {weight:+d}" for what, weight in evidence),
    ]
    return Reading(
        kind=kind.kind,
        score=score,
        why=", ".join(parts),
        is_knob=score >= vocabulary.enough,
        is_sure=score >= vocabulary.high,
        is_only=kind.only and phrases.weight >= vocabulary.enough,
    )


def _around(leaf: Leaf, kind: KindOfName) -> Iterator[tuple[str, int]]:
    """Surroundings of a name and their weights for `kind`."""
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
    """Key that shows a strange first word as a stage."""
    vocabulary = table()
    first = leaf.name.split("_")[0]
    if not vocabulary.known.isdisjoint(words_in(first)):
        return None
    keys = (f"{first}_{key}" for key in vocabulary.stage)
    return next((key for key in keys if key in leaf.siblings), None)


def _is_round(value: object) -> bool:
    return isinstance(value, int) and value >= _LEAST_ROUND and value.bit_count() == 1

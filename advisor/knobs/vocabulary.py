"""Vocabulary of names, weighed by names.toml."""

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from advisor.knobs.catalogue import Family, Meaning, families, rules_for, table_of, within
from advisor.knobs.tree import Leaf, words_of

Words = tuple[str, ...]

_LEAST_PLURAL = 4
"""Letters of the longest word whose final s is no plural: `bias`, `loss`.

Judgement: smaller may find a known word in one that is no plural, larger keeps `steps` a plural."""
_OUTSIDE_USUAL = -5
"""Weight of a value outside of the usual ones of a kind, against that kind; judgement."""
_WHOLE = frozenset({"value", "default"})
"""Names of a leaf that is all the key above names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOfName:
    """Weights of words for and against one kind."""

    kind: str
    family: Family
    phrases: Mapping[Words, int]
    """Longest first, of those the heaviest."""
    above: Mapping[str, int]
    usual: tuple[float, float]


def names() -> dict[str, Any]:
    return table_of("names.toml")


@functools.cache
def spelling() -> Mapping[str, Words]:
    """Words of each other spelling: `bs` is `batch size`."""
    rows = names()["spelling"].items()
    return {other: tuple(word.split()) for word, others in rows for other in others}


@functools.cache
def neutral() -> frozenset[str]:
    """Words without weight for or against any kind."""
    return frozenset(_respelled(" ".join(names()["neutral"]["words"])))


@functools.cache
def kinds() -> tuple[KindOfName, ...]:
    return tuple(_kind_of_name(kind, row) for kind, row in names()["kind"].items())


@functools.cache
def known() -> frozenset[str]:
    weighed = (word for kind in kinds() for phrase in kind.phrases for word in phrase)
    return neutral().union(spelling(), weighed)


def _kind_of_name(kind: str, row: dict[str, Any]) -> KindOfName:
    phrases = {_respelled(p): weight for p, weight in _weights(row, "name").items()}
    ordered = sorted(phrases.items(), key=lambda entry: (-len(entry[0]), -abs(entry[1])))
    return KindOfName(
        kind=kind,
        family=families()[row["value"]],
        phrases=dict(ordered),
        above=_weights(row, "above"),
        usual=tuple(row.get("usual", (-math.inf, math.inf))),
    )


def _weights(row: dict[str, Any], of: str) -> dict[str, int]:
    return {
        word: int(weight) for weight, words in row.get(of, {}).items() for word in words
    }


def _respelled(phrase: str) -> Words:
    return tuple(w for word in phrase.split() for w in spelling().get(word, (word,)))


@functools.lru_cache(maxsize=8192)
def words_in(name: str) -> Words:
    """Words of a canonical name, without plurals and final digits."""
    words: list[str] = []
    for token in filter(None, name.split("_")):
        bare = token.rstrip("0123456789")
        one = token.removesuffix("s") if len(token) > _LEAST_PLURAL else token
        word = next((form for form in (token, bare, one) if form in known()), bare)
        words.extend(spelling().get(word, (word,)) if word else ())
    return tuple(words)


class Phrases(NamedTuple):
    """Evidence of a name for and against one kind."""

    weight: int
    """Weight of all phrases and unknown words."""
    speaking: int
    """Weight of the phrases for the kind."""
    read: tuple[str, ...]
    """Phrases of the name with a weight."""


@functools.lru_cache(maxsize=8192)
def spoken(name: str) -> Mapping[str, Phrases]:
    """Evidence of a canonical name, by kind."""
    by_kind = {kind.kind: _phrases(words_in(name), kind.phrases) for kind in kinds()}
    return {kind: phrases for kind, phrases in by_kind.items() if phrases.speaking}


def _phrases(words: Words, weights: Mapping[Words, int]) -> Phrases:
    left = dict(enumerate(words))
    read: list[tuple[int, str]] = []
    for phrase in weights:
        if phrase[0] not in words:
            continue
        while (at := _where(phrase, left)) is not None:
            for place in at:
                del left[place]
            read.append((weights[phrase], " ".join(phrase)))
    strange = sum(word not in neutral() for word in left.values())
    return Phrases(
        weight=sum(weight for weight, _ in read) + names()["unknown"] * strange,
        speaking=sum(weight for weight, _ in read if weight > 0),
        read=tuple(phrase for weight, phrase in read if weight),
    )


def _where(phrase: Words, left: Mapping[int, str]) -> range | None:
    """Places of the words of `phrase`, in a row."""
    runs = (range(start, start + len(phrase)) for start in left)
    return next((run for run in runs if tuple(map(left.get, run)) == phrase), None)


def speaks(name: str) -> bool:
    """True if the canonical name alone suggests a knob."""
    return any(phrases.weight >= names()["enough"] for phrases in spoken(name).values())


def _said_of_batch(name: str, table: str) -> str | None:
    """Scope or unit in the name of a batch."""
    words = dict(enumerate(words_in(name)))
    phrases = ((m, p) for m, several in names()[table].items() for p in several)
    return next((m for m, p in phrases if _where(_respelled(p), words)), None)


def read(leaf: Leaf) -> Meaning | None:
    by_kind = spoken(leaf.name)
    enough = names()["enough"]
    scored = [
        _scored(leaf, kind, by_kind[kind.kind])
        for kind in kinds()
        if kind.kind in by_kind and kind.family.holds(leaf.value)
    ]
    knobs = [candidate for candidate in scored if candidate[0] >= enough]
    if knobs:
        return max(knobs, key=lambda candidate: candidate[0])[1]
    alike = (m for _, m in scored if by_kind[m.kind].speaking >= enough)
    return next(alike, None)


def _scored(leaf: Leaf, kind: KindOfName, phrases: Phrases) -> tuple[int, Meaning]:
    evidence = list(_around(leaf, kind))
    score = phrases.weight + sum(weight for _, weight in evidence)
    words = " and ".join(f"`{phrase}`" for phrase in phrases.read)
    parts = [(f"{words} in its name", phrases.weight), *evidence]
    reasons = ", ".join(f"{what} ({weight:+d})" for what, weight in parts)
    enough, is_batch = names()["enough"], kind.kind == "batch_size"
    return score, Meaning(
        kind=kind.kind,
        trap=None if score >= enough else f"no {kind.kind}: {reasons}",
        unit=_said_of_batch(leaf.name, "unit") if is_batch else None,
        scope=_said_of_batch(leaf.name, "scope") if is_batch else None,
        why=reasons if score >= names()["high"] else f"{reasons}: barely enough",
    )


def _around(leaf: Leaf, kind: KindOfName) -> Iterator[tuple[str, int]]:
    """Surroundings of a name and their weights for `kind`."""
    for name in leaf.ancestors:
        listed = sorted(words_of(name) & kind.above.keys())
        if listed:
            word = max(listed, key=lambda word: abs(kind.above[word]))
            yield f"under `{word}`", kind.above[word]
            break
    low, high = kind.usual
    if not within(low, leaf.value, high):
        yield f"the value {leaf.value}", _OUTSIDE_USUAL


def of_key_above(leaf: Leaf) -> Leaf | None:
    """Name `leaf` by the key above, if its own says nothing."""
    row = names()["value-of-the-key-above"]
    words = words_in(leaf.name)
    is_part = words and neutral().union(row["parts"]).issuperset(words)
    if not (is_part or leaf.name in row["names"]) or not leaf.ancestors:
        return None
    name, *above = leaf.ancestors
    is_known = leaf.name in _WHOLE and bool(rules_for(name))
    if not leaf.keys.isdisjoint(row["bounds"]) or not (is_known or speaks(name)):
        return None
    return replace(leaf, name=name, ancestors=tuple(above))

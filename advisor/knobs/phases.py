"""Which phase of the program a setting belongs to: train, eval, test, or any."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from advisor.knobs.catalogue import Catalogue, Kind
    from advisor.knobs.tree import Leaf
    from advisor.model import Phase


def of_document(
    catalogue: Catalogue, leaves: Iterable[Leaf], names: frozenset[str], title: str
) -> Phase:
    """What the whole document is for: what it says itself, else its keys, else its name."""
    for leaf in leaves:
        if not leaf.ancestors and catalogue.phase_switches.fullmatch(leaf.name):
            said = catalogue.phase_words.get(str(leaf.value).lower())
            if said:
                return said
    for phase, pattern in catalogue.document_phases.items():
        if any(pattern.fullmatch(name) for name in names):
            return phase
    words = reversed(re.split(r"[^a-z0-9]+", title.lower()))
    return _first(catalogue, words, "any") or "any"


def of_leaf(
    catalogue: Catalogue, leaf: Leaf, kind: Kind, document: Phase, names: frozenset[str]
) -> Phase:
    """The phase of one setting: its own name decides, then the nearest key above that speaks."""
    if kind.phase:
        return kind.phase
    own = leaf.name.split("_")
    spoken = (
        _first(catalogue, (w for w in own if w in catalogue.own_phase_words), document)
        or _first(catalogue, (w for a in leaf.ancestors for w in reversed(a.split("_"))), document)
        or (None if kind.usual_phase == "test" else _twin(catalogue, leaf))
    )
    if spoken:
        return spoken
    if {"train", "test"} <= names and leaf.words & {"dataloader", "data_loader"}:
        return "any"  # one block of loader settings for both
    if kind.usual_phase == "test":
        return "test"
    if document == "any":
        return kind.usual_phase or "any"
    return document


def _first(catalogue: Catalogue, words: Iterable[str], document: Phase) -> Phase | None:
    return next((p for word in words if (p := _phase(catalogue, word, document))), None)


def _phase(catalogue: Catalogue, word: str, document: Phase) -> Phase | None:
    if word in catalogue.sample_words:
        return "eval" if document == "train" else "test"
    return catalogue.phase_words.get(word)


def _twin(catalogue: Catalogue, leaf: Leaf) -> Phase | None:
    """`batch_size` beside `val_batch_size` is the training one."""
    for sibling in leaf.siblings:
        if sibling.endswith(f"_{leaf.name}"):
            prefix = sibling.removesuffix(f"_{leaf.name}")
            if catalogue.phase_words.get(prefix) in ("eval", "test"):
                return "train"
    return None

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
    said = _switched_to(catalogue, leaves)
    if said:
        return said
    for phase, pattern in catalogue.document_phases.items():
        if any(pattern.fullmatch(name) for name in names):
            return phase
    return of_title(catalogue, title) or "any"


def of_command(catalogue: Catalogue, leaves: Iterable[Leaf], words: Iterable[str]) -> Phase | None:
    """What a command says it runs: `--phase test`, `--eval_only`, or a subcommand such as `fit`.

    `words` are its own words before any flag. The name of the program alone says nothing here:
    many a `train.py` is told to test.
    """
    said = _switched_to(catalogue, leaves)
    return said or next((p for word in words if (p := catalogue.phase_words.get(word))), None)


def of_title(catalogue: Catalogue, title: str) -> Phase | None:
    """What the name of a file or a program speaks of, its last word first."""
    return _first(catalogue, reversed(re.split(r"[^a-z0-9]+", title.lower())), "any")


def _switched_to(catalogue: Catalogue, leaves: Iterable[Leaf]) -> Phase | None:
    """The phase that a switch at the top names, or a flag that leaves only one."""
    flagged = None
    for leaf in leaves:
        if not leaf.ancestors and catalogue.phase_switches.fullmatch(leaf.name):
            said = catalogue.phase_words.get(str(leaf.value).lower())
            if said:
                return said
        for phase, flags in catalogue.phase_flags.items():
            if flags.fullmatch(leaf.name) and leaf.value is True:
                flagged = phase
    return flagged


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

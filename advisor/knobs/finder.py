"""Finder of knobs, their look-alikes, and values that live elsewhere."""

import itertools
import re
from collections.abc import Iterable
from pathlib import PurePath

from advisor.config import Document, argv
from advisor.config.leaves import ALIAS, COMPUTED
from advisor.knobs import candidate_values, vocabulary
from advisor.knobs.catalogue import (
    Meaning,
    catalogue,
    pattern_of,
    phase_words,
    rules_for,
    types_of,
)
from advisor.knobs.constraints import find_links
from advisor.knobs.registry import REGISTRY, KnobSpec
from advisor.knobs.tree import Findings, Leaf, leaves, plain_count, words_of
from advisor.model import FalseMatch, Knob, Phase

_REFERENCE = re.compile(r"\$\{|\A<[^<>\s]+>|\A\$?@[\w#]|\A\$[A-Za-z_]\w*\Z")


REFERENCES_TOLD = 5
"""Most settings of one document that are told to have their value from elsewhere.

Judgement: fewer hides the one that the user looks for. More fills the page where a config is made
of references."""


def lives_elsewhere(leaf: Leaf) -> bool:
    """True for an alias, a computed value, a reference such as `${a.b}`."""
    why = leaf.scalar.why or ""
    computed = leaf.value is None and why.startswith(COMPUTED)
    refers = isinstance(leaf.value, str) and _REFERENCE.search(leaf.value) is not None
    return why.startswith(ALIAS) or computed or refers


def files_named(leaf: Leaf) -> list[str]:
    values = leaf.value if isinstance(leaf.value, tuple) else (leaf.value,)
    texts = [value for value in values if isinstance(value, str)]
    # a Hydra config group
    if leaf.path.startswith("defaults[") and "hydra" not in leaf.key:
        group = leaf.key.removeprefix("override ").strip("/").split("@")[0]
        return [f"{group}/{text}.yaml" for text in texts if text]
    if not pattern_of("references").fullmatch(leaf.name):
        return []
    suffixes = tuple(catalogue()["references"]["suffixes"])
    return [text for text in texts if text.endswith(suffixes)]


def find(document: Document, *, phase: Phase | None = None) -> Findings:
    """Find knobs, links, look-alikes and outputs; `phase` is the command's."""
    finder, name = _Finder(document, phase), document.name
    knobs: list[Knob] = []
    traps: list[FalseMatch] = []
    references: list[str] = []
    assumed: list[str] = []
    for leaf in finder.leaves:
        known = rules_for(leaf.name) or vocabulary.speaks(leaf.name)
        if known and lives_elsewhere(leaf):
            if isinstance(leaf.value, str):
                references.append(f"{leaf.path} has its value from elsewhere: {leaf.value}")
            continue
        meaning = finder.meaning(leaf)
        if meaning and (why := meaning.trap or _unused(leaf)):
            traps.append(FalseMatch(document=name, path=leaf.path, why=why))
        elif meaning:
            knobs.append(finder.knob(leaf, meaning))
            if finder.phase_told(leaf, REGISTRY[meaning.kind]) is None:
                assumed.append(leaf.path)
    return Findings(
        document=name,
        knobs=tuple(knobs),
        links=find_links(name, finder.leaves, knobs),
        traps=tuple(traps),
        outputs=tuple(leaf.path for leaf in finder.leaves if _is_output(leaf)),
        files=tuple(file for leaf in finder.leaves for file in files_named(leaf)),
        notes=tuple(references[:REFERENCES_TOLD]),
        assumed=tuple(assumed),
    )


def phase_of_command(document: Document) -> Phase | None:
    """Phase by flags or subcommands: many a `train.py` runs a test."""
    named = (phase_words().get(word) for word in _title(document).split())
    return _switched_to(leaves(document.scalars)) or next(filter(None, named), None)


def _phase_of_document(
    document: Document, leaves: list[Leaf], names: frozenset[str]
) -> Phase:
    if document.format == "argv":
        found = phase_of_command(document)
    else:
        of = "phase-of-document"
        named = (phase for phase in catalogue()[of] if _any(pattern_of(of, phase), names))
        found = _switched_to(leaves) or next(named, None)
    title = re.split(r"[^a-z0-9]+", _title(document).lower())
    return found or _first(reversed(title), "any") or "any"


def _title(document: Document) -> str:
    """Name of the document, or a command's first words."""
    if document.format != "argv":
        return PurePath(document.name).stem
    words = argv.split(document.raw)
    own = argv.first_own_word(words)
    behind = itertools.takewhile(
        lambda word: word[:1] != "-" and "=" not in word, words[own:]
    )
    return " ".join((*words[max(own - 1, 0) : own], *behind))


def _switched_to(leaves: Iterable[Leaf]) -> Phase | None:
    flagged: Phase | None = None
    for leaf in leaves:
        if not leaf.ancestors and pattern_of("phase-switch").fullmatch(leaf.name):
            switched = phase_words().get(str(leaf.value).lower())
            if switched:
                return switched
        for phase in catalogue()["phase-flag"]:
            if leaf.value is True and pattern_of("phase-flag", phase).fullmatch(leaf.name):
                flagged = phase
    return flagged


def _phase_told(
    leaf: Leaf, spec: KnobSpec, document: Phase, names: frozenset[str]
) -> Phase | None:
    """Phase of one setting, by its kind or its nearest telling name; None where nothing tells."""
    if spec.phase:
        return spec.phase
    own = (w for w in leaf.name.split("_") if w in catalogue()["own-phase-words"]["words"])
    above = (word for name in leaf.ancestors for word in reversed(name.split("_")))
    if spoken := _first(itertools.chain(own, above), document):
        return spoken
    if {"train", "test"} <= names and leaf.words & {"dataloader", "data_loader"}:
        return "any"  # one block of loader settings for both
    if spec.usual_phase == "test":
        return "test"
    return None if document == "any" else document


def _first(words: Iterable[str], document: Phase) -> Phase | None:
    """Phase of the first word that names one."""
    for word in words:
        if word in catalogue()["phase-words"]["sample"]:
            return "eval" if document == "train" else "test"
        if word in phase_words():
            return phase_words()[word]
    return None


def _any(pattern: re.Pattern[str], names: Iterable[str]) -> bool:
    return any(map(pattern.fullmatch, names))


class _Finder:
    """Names and phase of a document, to read its leaves."""

    def __init__(self, document: Document, phase: Phase | None) -> None:
        self.document = document
        self.leaves = leaves(document.scalars)
        self.names = frozenset(
            n for leaf in self.leaves for n in (leaf.name, *leaf.ancestors)
        )
        self.phase = phase or _phase_of_document(document, self.leaves, self.names)

    def meaning(self, leaf: Leaf) -> Meaning | None:
        meaning = self._by_rule(leaf) or vocabulary.read(leaf)
        above = None if meaning else vocabulary.of_key_above(leaf)
        return self.meaning(above) if above else meaning

    def _by_rule(self, leaf: Leaf) -> Meaning | None:
        wrappers = catalogue()["wrappers"]
        around = {
            "under": leaf.words,
            "parent": words_of(next((a for a in leaf.ancestors if a not in wrappers), "")),
            "sibling": leaf.keys - {leaf.name},
            "document": self.names,
        }
        fitting = (
            rule.meaning
            for rule in rules_for(leaf.name)
            if rule.fits(leaf, around, self.document.format, self.phase)
        )
        return next(fitting, None)

    def phase_told(self, leaf: Leaf, spec: KnobSpec) -> Phase | None:
        return _phase_told(leaf, spec, self.phase, self.names)

    def knob(self, leaf: Leaf, meaning: Meaning) -> Knob:
        spec = REGISTRY[meaning.kind]
        phase = self.phase_told(leaf, spec) or spec.usual_phase or "any"
        above = f" under `{leaf.ancestors[0]}`" if leaf.ancestors else ""
        is_batch = meaning.kind == "batch_size"
        return Knob(
            document=self.document.name,
            path=leaf.path,
            kind=spec.kind,
            phase=phase,
            knob_class=spec.class_in(phase),
            value=plain_count(leaf.value) if spec.family == "sizes" else leaf.value,
            unit=meaning.unit or (is_batch and self._switched_unit(leaf)) or spec.unit,
            scope=meaning.scope or (self._scope(leaf) if is_batch else None),
            frozen=_frozen(leaf, spec),
            why=f"`{leaf.key}`{above}: {spec.words}, by {meaning.why}",
            comment=leaf.comment,
        )

    def _switched_unit(self, leaf: Leaf) -> str | None:
        row = catalogue()["unit-switch"]
        beside = [other for other in self.leaves if other.mapping == leaf.mapping]
        words = (str(other.value).lower() for other in beside if other.name in row["keys"])
        return next((row["units"][word] for word in words if word in row["units"]), None)

    def _scope(self, leaf: Leaf) -> str | None:
        """Scope by the comment beside it, else by the document's keys."""
        for scope in ("device", "global"):
            if pattern_of("comments", scope).search(leaf.comment or ""):
                return scope
        row = catalogue()["global-batch"]
        shared = not self.names.isdisjoint(row["keys"]) and self.names.isdisjoint(
            row["not-keys"]
        )
        return "global" if shared else None


def _unused(leaf: Leaf) -> str | None:
    unused = pattern_of("comments", "unused").search(leaf.comment or "")
    return f'the comment beside it says "{leaf.comment}"' if unused else None


def _frozen(leaf: Leaf, spec: KnobSpec) -> str | None:
    if candidate_values.is_ban(leaf.comment):
        return f'the comment beside it says "{leaf.comment}"'
    if isinstance(leaf.value, tuple):
        return "it is a list of values"
    if not leaf.scalar.editable:
        return leaf.scalar.why
    kinds = types_of(leaf.value)
    if "auto" in kinds:
        return "auto: another program or file fills it in"
    if "missing" in kinds:
        return "??? stands for a value that another file or the command line gives"
    if leaf.value == "" or (leaf.value is None and not spec.none_is_a_value):
        return "no value is set here: the program's default decides"
    return None


def _is_output(leaf: Leaf) -> bool:
    """True for an editable value that names an output directory."""
    # `dir` under `output` is read as `output_dir`.
    names = (leaf.name, *(f"{parent}_{leaf.name}" for parent in leaf.ancestors[:1]))
    return bool(
        _any(pattern_of("outputs"), names)
        and leaf.words.isdisjoint(catalogue()["outputs"]["not-under"])
        and isinstance(leaf.value, str)
        and leaf.scalar.editable
        and leaf.scalar.given
        and re.fullmatch(r"[^:]*[^:.]|\.", leaf.value)
        and not PurePath(leaf.value).suffix
    )

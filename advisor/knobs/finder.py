"""Finder of knobs and their look-alikes."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from advisor.config.argv import first_own_word
from advisor.config.leaves import COMPUTED
from advisor.knobs import candidate_values, vocabulary
from advisor.knobs.catalogue import catalogue, types_of
from advisor.knobs.findings import Reference
from advisor.knobs.registry import REGISTRY
from advisor.knobs.tree import Leaf, canonical, leaves, number_of, parts_of, path_of
from advisor.model import FalseMatch, Knob, KnobConstraint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from advisor.config import Document
    from advisor.knobs.catalogue import Catalogue
    from advisor.knobs.registry import KnobSpec
    from advisor.model import Phase


def _phase_of_document(
    catalogue: Catalogue, leaves: Iterable[Leaf], names: frozenset[str], title: str
) -> Phase:
    """Phase of a document by switches, keys or name."""
    switched = _switched_to(catalogue, leaves)
    if switched:
        return switched
    for phase, pattern in catalogue.document_phases.items():
        if any(pattern.fullmatch(name) for name in names):
            return phase
    return _phase_of_title(catalogue, title) or "any"


def _phase_of_words(
    catalogue: Catalogue, leaves: Iterable[Leaf], words: Iterable[str]
) -> Phase | None:
    """Phase of a command, by flags and subcommands.

    `--phase test`, `--eval_only`, or a subcommand such as `fit`. `words` are its own words before
    any flag. The program's name alone proves nothing: many a `train.py` runs a test.
    """
    switched = _switched_to(catalogue, leaves)
    return switched or next((p for word in words if (p := catalogue.phase_words.get(word))), None)


def _phase_of_title(catalogue: Catalogue, title: str) -> Phase | None:
    """Phase in a file name, its last word first."""
    return _first(catalogue, reversed(re.split(r"[^a-z0-9]+", title.lower())), "any")


def _switched_to(catalogue: Catalogue, leaves: Iterable[Leaf]) -> Phase | None:
    """Phase of a switch at the top."""
    flagged = None
    for leaf in leaves:
        if not leaf.ancestors and catalogue.phase_switches.fullmatch(leaf.name):
            switched = catalogue.phase_words.get(str(leaf.value).lower())
            if switched:
                return switched
        for phase, flags in catalogue.phase_flags.items():
            if flags.fullmatch(leaf.name) and leaf.value is True:
                flagged = phase
    return flagged


def _phase_of_leaf(
    catalogue: Catalogue, leaf: Leaf, spec: KnobSpec, document: Phase, names: frozenset[str]
) -> Phase:
    """Phase of one setting, by its nearest telling name."""
    if spec.phase:
        return spec.phase
    own = leaf.name.split("_")
    spoken = (
        _first(catalogue, (w for w in own if w in catalogue.own_phase_words), document)
        or _first(catalogue, (w for a in leaf.ancestors for w in reversed(a.split("_"))), document)
        or (None if spec.usual_phase == "test" else _twin(catalogue, leaf))
    )
    if spoken:
        return spoken
    if {"train", "test"} <= names and leaf.words & {"dataloader", "data_loader"}:
        return "any"  # one block of loader settings for both
    if spec.usual_phase == "test":
        return "test"
    if document == "any":
        return spec.usual_phase or "any"
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


_REFERENCE = re.compile(r"\$\{|\A<[^<>\s]+>|\A\$?@[\w#]|\A\$[A-Za-z_]\w*\Z")
_PLAIN_REFERENCE = re.compile(r"\$\{([\w./\[\]-]+)\}|<([\w.\[\]-]+)>|\$?@([\w#]+)|\$([A-Za-z_]\w*)")


def reference_link(document: Document, why: str, *paths: str) -> KnobConstraint:
    """Link a path to the place of its value.

    `paths` holds both; the second may be missing.
    """
    return KnobConstraint(kind="reference", document=document.name, paths=paths, why=why)


def _repeats(document: Document, path: str, target: str) -> KnobConstraint:
    """Mark `path` as the same value as `target`."""
    return reference_link(document, f"repeats {target}: change it there", path, target)


def _reference(document: Document, leaf: Leaf) -> KnobConstraint | None:
    """Link to the place of a referenced value."""
    scalar = leaf.scalar
    repeated = document.aliases.get(scalar.path)
    if repeated:
        return _repeats(document, leaf.path, repeated)
    if leaf.value is None and scalar.why and scalar.why.startswith(COMPUTED):
        return reference_link(document, scalar.why, leaf.path)
    if isinstance(leaf.value, str) and _REFERENCE.search(leaf.value):
        target = _target(document, leaf.value)
        where = f"the value lives at {target}" if target else "it is computed elsewhere"
        paths = (leaf.path, target) if target else (leaf.path,)
        return reference_link(document, f"{leaf.value}: {where}", *paths)
    return None


def _literals_of_models(document: Document, leaves: Iterable[Leaf]) -> dict[str, str]:
    """Paths that a model's keys refer to, with keys."""
    found = {}
    for leaf in leaves:
        if isinstance(leaf.value, str) and "model" in leaf.words:
            target = _target(document, leaf.value)
            if target:
                found[target] = leaf.path
    return found


def _files_named(catalogue: Catalogue, leaf: Leaf) -> list[str]:
    """The files that `leaf` says more values live in."""
    values = leaf.value if isinstance(leaf.value, tuple) else (leaf.value,)
    texts = [value for value in values if isinstance(value, str)]
    if leaf.path.startswith("defaults[") and "hydra" not in leaf.key:  # a Hydra config group
        group = leaf.key.removeprefix("override ").strip("/").split("@")[0]
        return [f"{group}/{text}.yaml" for text in texts if text]
    if not catalogue.reference_names.fullmatch(leaf.name):
        return []
    return [text for text in texts if text.endswith(catalogue.reference_suffixes)]


def _target(document: Document, text: str) -> str | None:
    """Target of a plain reference, if in this document.

    Such as `${a.b}`, `<a.b>` or `@a#b`.
    """
    found = _PLAIN_REFERENCE.fullmatch(text.strip())
    if not found:
        return None
    path = path_of(parts_of(next(filter(None, found.groups())).replace("#", ".")))
    return path if path in document.scalars else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    """Leaves of a document, some classified."""

    document: Document
    leaves: tuple[Leaf, ...]
    knobs: tuple[Knob, ...]
    traps: tuple[FalseMatch, ...]
    links: tuple[KnobConstraint, ...]
    """Links of kind `reference`: values that live elsewhere."""
    references: tuple[Reference, ...]
    outputs: tuple[str, ...]


def classify(document: Document, phase: Phase | None = None) -> Classified:
    """Classify all leaves of `document`.

    `phase`: the phase that the command runs, where it says so; what the document leaves open is
    of that phase.
    """
    finder = _Finder(document, phase)
    finder.run()
    return Classified(
        document=document,
        leaves=tuple(finder.leaves),
        knobs=tuple(finder.knobs),
        traps=tuple(finder.traps),
        links=tuple(finder.links),
        references=tuple(finder.references),
        outputs=finder.outputs(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meaning:
    """Kind of a leaf, or with `trap` a look-alike."""

    kind: str
    trap: str | None
    phase: Phase | None = None
    unit: str | None = None
    scope: str | None = None
    why: str
    of_model: bool = False
    """Part of the architecture: what has its name and value elsewhere must agree with it."""
    or_only: bool = False
    """With `trap`: a knob all the same where nothing else in the document is of the kind."""


def phase_of_command(document: Document) -> Phase | None:
    """Phase that a command line names, if any."""
    return _phase_of_words(catalogue(), leaves(document.scalars), _title(document).split())


class _Finder:
    """One pass over one document."""

    def __init__(self, document: Document, phase: Phase | None) -> None:
        known = self.catalogue = catalogue()
        self.document = document
        self.leaves = leaves(document.scalars)
        self.names = frozenset(n for leaf in self.leaves for n in (leaf.name, *leaf.ancestors))
        self.phase = phase or self._own_phase()
        self.knobs: list[Knob] = []
        self.traps: list[FalseMatch] = []
        self._waiting: list[tuple[Leaf, _Meaning]] = []
        self.links: list[KnobConstraint] = []
        self.references: list[Reference] = []
        self._shares_batch = self._has(known.global_batch) and not self._has(known.not_global_batch)
        self._of_models = _literals_of_models(document, self.leaves)
        self._variants = {
            leaf.mapping
            for leaf in self.leaves
            if leaf.mapping and "." in leaf.key and leaf.key in document.scalars
        }

    def _own_phase(self) -> Phase:
        title = _title(self.document)
        if self.document.format == "argv":
            phase = _phase_of_words(self.catalogue, self.leaves, title.split())
            return phase or _phase_of_title(self.catalogue, title) or "any"
        return _phase_of_document(self.catalogue, self.leaves, self.names, title)

    def _has(self, pattern: re.Pattern[str]) -> bool:
        return any(map(pattern.fullmatch, self.names))

    def run(self) -> None:
        """Sort every leaf whose name the catalogue knows."""
        document, known = self.document, self.catalogue
        by_name: dict[str, list[Leaf]] = {}
        for leaf in self.leaves:
            by_name.setdefault(leaf.name, []).append(leaf)
        for leaf in self.leaves:
            for file in _files_named(known, leaf):
                self.references.append(Reference(path=leaf.path, file=file))
                self.links.append(reference_link(document, f"values live in {file}", leaf.path))
            self._sort(leaf, by_name[leaf.name])
        self._settle_waiting()
        self._repeated_lists()

    def _settle_waiting(self) -> None:
        """Settle look-alikes; alone of their kind, they are knobs."""
        found = {knob.kind for knob in self.knobs}
        for leaf, meaning in self._waiting:
            if meaning.kind in found:
                self._refuse(leaf, meaning.trap or "")
            else:
                self.knobs.append(self._knob(leaf, replace(meaning, trap=None)))

    def _refuse(self, leaf: Leaf, why: str) -> None:
        self.traps.append(FalseMatch(document=self.document.name, path=leaf.path, why=why))

    def _sort(self, leaf: Leaf, twins: list[Leaf]) -> None:
        """Sort `leaf` among knobs, traps or references."""
        known = self.catalogue.rules_for(leaf.name) or vocabulary.speaks(leaf.name)
        link = _reference(self.document, leaf) if known else None
        if link:
            self.links.append(link)
            return
        meaning = self._meaning(leaf)
        if meaning is None:
            return
        if meaning.trap and meaning.or_only:
            self._waiting.append((leaf, meaning))
            return
        trap = meaning.trap or self._context_trap(leaf, meaning, twins)
        if trap:
            self._refuse(leaf, trap)
            return
        self.knobs.append(self._knob(leaf, meaning))
        if "auto" in types_of(leaf.value):
            why = "auto: the value lives in the program or file that launches this one"
            self.links.append(reference_link(self.document, why, leaf.path))

    def _meaning(self, leaf: Leaf) -> _Meaning | None:
        """Meaning of `leaf` by its name, else by parts."""
        meaning = self._by_rule(leaf) or self._by_parts(leaf)
        above = None if meaning else vocabulary.of_key_above(leaf)
        return self._meaning(above) if above else meaning

    def _by_rule(self, leaf: Leaf) -> _Meaning | None:
        """Meaning by the first rule that `leaf` meets."""
        rules = self.catalogue.rules_for(leaf.name)
        parent = next((a for a in leaf.ancestors if a not in self.catalogue.wrappers), "")
        where = (parent, self.names, self.document.format, self.phase)
        fitting = (rule for rule in rules if rule.fits(leaf, *where))
        rule = next(
            (rule for rule in fitting if not rule.of_stage or vocabulary.stage_of(leaf)), None
        )
        if rule is None:
            return None
        return _Meaning(
            kind=rule.kind or rule.or_only or "",
            trap=rule.trap,
            phase=rule.phase,
            unit=rule.unit,
            scope=rule.scope,
            why="its name and value",
            of_model=rule.of_model,
            or_only=rule.or_only is not None,
        )

    def _by_parts(self, leaf: Leaf) -> _Meaning | None:
        """Meaning by words of the name and surroundings."""
        reading = vocabulary.read(leaf)
        if reading is None:
            return None
        batch = reading.kind == "batch_size"
        return _Meaning(
            kind=reading.kind,
            trap=None if reading.is_knob else f"no {reading.kind}: {reading.why}",
            or_only=reading.is_only,
            unit=vocabulary.unit_of(leaf.name) if batch else None,
            scope=vocabulary.scope_of(leaf.name) if batch else None,
            why=reading.why if reading.is_sure else f"{reading.why}: barely enough",
        )

    def _repeated_lists(self) -> None:
        """Aliases of whole YAML lists and mappings.

        They have no value of their own.
        """
        for path, target in self.document.aliases.items():
            key = next((part for part in reversed(parts_of(path)) if isinstance(part, str)), "")
            name = canonical(key)
            known = self.catalogue.rules_for(name) or vocabulary.speaks(name)
            if path not in self.document.scalars and known:
                self.links.append(_repeats(self.document, path, target))

    def outputs(self) -> tuple[str, ...]:
        """Paths of values that name an output directory."""
        known = self.catalogue
        return tuple(
            leaf.path
            for leaf in self.leaves
            if any(known.output_names.fullmatch(name) for name in _names_with_parent(leaf))
            and not known.output_not_under & leaf.words
            and isinstance(leaf.value, str)
            and leaf.scalar.editable
            and re.fullmatch(r"[^:]*[^:.]|\.", leaf.value)
            and not PurePath(leaf.value).suffix
        )

    # --- what a rule alone cannot see -----------------------------------------------------

    def _context_trap(self, leaf: Leaf, meaning: _Meaning, twins: list[Leaf]) -> str | None:
        """Reason why a knob-like leaf is none."""
        if self.catalogue.comments["unused"].search(leaf.comment or ""):
            return f'the comment beside it says "{leaf.comment}"'
        if _is_sweep(leaf, meaning):
            return "several batch sizes that the program tries one after the other: no one setting"
        searched = self._searched(leaf, meaning)
        if searched:
            return f"several values, as {searched} has: part of a search space, no one setting"
        if leaf.mapping in self._variants:
            return f"part of {leaf.mapping}, a variant that overrides other values of this config"
        if REGISTRY[meaning.kind].knob_class != "quality":
            return None
        if leaf.path in self._of_models:
            return f"{self._of_models[leaf.path]} takes this value: part of the architecture"
        if meaning.kind == "image_size" and vocabulary.speaks(leaf.name):
            equal = [t for t in twins if t.value == leaf.value and t.path != leaf.path]
            for twin in equal:
                if (twin.ancestors and not leaf.ancestors) or self._is_of_model(twin):
                    return f"must agree with {twin.path}"
        return None

    def _searched(self, leaf: Leaf, meaning: _Meaning) -> str | None:
        """Search list beside batch sizes or learning rates.

        A run has one of its values.
        """
        if meaning.kind not in {"batch_size", "learning_rate"} or not isinstance(leaf.value, tuple):
            return None
        single = self.catalogue.single_valued
        beside = (o for o in self.leaves if o.mapping == leaf.mapping and o.path != leaf.path)
        return next((o.key for o in beside if o.is_list and single.fullmatch(o.name)), None)

    def _is_of_model(self, leaf: Leaf) -> bool:
        meaning = self._meaning(leaf)
        return meaning is not None and meaning.of_model

    # --- a knob ------------------------------------------------------------------------------

    def _knob(self, leaf: Leaf, meaning: _Meaning) -> Knob:
        spec = REGISTRY[meaning.kind]
        phase = meaning.phase or _phase_of_leaf(self.catalogue, leaf, spec, self.phase, self.names)
        frozen = self._frozen(leaf, spec.kind)
        unit, scope = self._unit(leaf, meaning), self._scope(leaf, meaning)
        why = f"`{leaf.key}`"
        if leaf.ancestors:
            why += f" under `{leaf.ancestors[0]}`"
        why += f" is a {spec.kind} by {meaning.why}"
        if phase != "any":
            why += f", of the {phase} phase"
        return Knob(
            document=self.document.name,
            path=leaf.path,
            kind=spec.kind,
            phase=phase,
            knob_class=spec.class_in(phase),
            value=leaf.value,
            unit=unit,
            scope=scope,
            editable=frozen is None,
            why=f"{why}; not editable: {frozen}" if frozen else why,
            comment=leaf.comment,
        )

    def _frozen(self, leaf: Leaf, kind: str) -> str | None:
        """Reason why the knob is not editable, or None."""
        scalar = leaf.scalar
        if candidate_values.is_ban(leaf.comment, leaf.value):
            return f'the comment beside it says "{leaf.comment}"'
        switch = self._switched_off(leaf)
        if switch:
            return f"{switch.path} = {switch.scalar.text} makes it dead"
        if leaf.is_list:
            return "it is a list of values"
        if not scalar.editable:
            return scalar.why
        kinds = types_of(leaf.value)
        if "auto" in kinds:
            return "auto: another program or file fills it in"
        if "missing" in kinds:
            return "??? stands for a value that another file or the command line gives"
        if leaf.value == "" or (leaf.value is None and not REGISTRY[kind].none_is_a_value):
            return "no value is set here: the program's default decides"
        return None

    def _switched_off(self, leaf: Leaf) -> Leaf | None:
        """Switch beside `leaf` that makes it dead."""
        for switch in self.catalogue.switches:
            beside = self._sibling(leaf, switch.key) if switch.names.fullmatch(leaf.name) else None
            instead = any(map(switch.instead.fullmatch, leaf.siblings))
            if beside and instead and str(beside.value).lower() in switch.values:
                return beside
        return None

    def _unit(self, leaf: Leaf, meaning: _Meaning) -> str | None:
        if meaning.unit or meaning.kind != "batch_size":
            return meaning.unit or REGISTRY[meaning.kind].unit
        for key in self.catalogue.unit_switch_keys & leaf.siblings:
            switch = self._sibling(leaf, key)
            unit = self.catalogue.unit_switch.get(str(switch.value).lower()) if switch else None
            if unit:
                return unit
        return REGISTRY["batch_size"].unit

    def _scope(self, leaf: Leaf, meaning: _Meaning) -> str | None:
        if meaning.kind != "batch_size" or meaning.scope:
            return meaning.scope
        for scope in ("device", "global"):
            if self.catalogue.comments[scope].search(leaf.comment or ""):
                return scope
        return "global" if self._shares_batch else None

    def _sibling(self, leaf: Leaf, name: str) -> Leaf | None:
        return next((o for o in self.leaves if o.mapping == leaf.mapping and o.name == name), None)


def _is_sweep(leaf: Leaf, meaning: _Meaning) -> bool:
    """True for rising batch sizes.

    A resolution that grows makes them fall, and a sampler makes one batch of them all.
    """
    if meaning.kind != "batch_size" or not isinstance(leaf.value, tuple) or len(leaf.value) < 2:
        return False
    sizes = [number for value in leaf.value if (number := number_of(value)) is not None]
    rises = len(sizes) == len(leaf.value) and all(a < b for a, b in itertools.pairwise(sizes))
    return rises and "sampler" not in leaf.words


def _title(document: Document) -> str:
    """Name of the document, or a command's first words."""
    if document.format != "argv":
        return document.path.stem if document.path else ""
    words = document.raw.decode("utf-8", "replace").split("\0")
    own = first_own_word(words)
    behind = itertools.takewhile(lambda word: word[:1] != "-" and "=" not in word, words[own:])
    return " ".join((*words[max(own - 1, 0) : own], *behind))


def _names_with_parent(leaf: Leaf) -> tuple[str, ...]:
    """`dir` under `output` also reads `output_dir`."""
    return (leaf.name, *(f"{parent}_{leaf.name}" for parent in leaf.ancestors[:1]))

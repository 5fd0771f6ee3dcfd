"""Settings of a config or command, and changes."""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Self

from advisor.model.runs import JsonScalar, KnobClass, Phase


def digest_of(facts: object) -> str:
    """Short digest of plain facts, the same for equal ones."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def leaf_of(path: str) -> str:
    """Last part of a path: `c` of `a.b[0].c`."""
    return path.rsplit(".", 1)[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """Tunable setting of the program, with its place."""

    document: str
    """Path of the document as the user named it, or `command line`."""
    path: str
    kind: str
    """A kind of the catalogue: batch_size, num_workers, prefetch_factor, timesteps, ..."""
    phase: Phase
    knob_class: KnobClass
    value: JsonScalar | tuple[JsonScalar, ...]
    unit: str | None = None
    """Unit of the value: sample, token, frame, second, ray."""
    scope: str | None = None
    """device, global or micro: who shares the value."""
    frozen: str | None = None
    """Why it is not edited; None: it may be."""
    why: str = ""
    """Why it is a knob."""
    comment: str | None = None

    @property
    def editable(self) -> bool:
        return self.frozen is None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobConstraint:
    """Knobs that move together or not at all."""

    kind: str
    """product, exclusive, needs-workers or schedule"""
    paths: tuple[str, ...]
    why: str
    document: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FalseMatch:
    """A look-alike that must not be tuned."""

    document: str
    path: str
    why: str


SHORT_NAMES = {"batch_size": "batch", "num_workers": "workers"}
"""Label words for kinds of long names."""


PROCESS = "the process"
"""Document of settings that belong to no line of the program's code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Setting that the probe puts in place of the program's own, inside the process."""

    knob: str
    """A DataLoader argument (`num_workers`), or a switch of the probe (`compile`)."""
    value: JsonScalar = True
    site: str | None = None
    """Line that builds the DataLoader, `train.py:88`; None: every one, or the whole process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One value of one document, before and after."""

    document: str
    path: str
    kind: str
    knob_class: KnobClass
    old: JsonScalar
    new: JsonScalar
    name: str | None = None
    """Longer name where knobs share one: `train.batch_size`."""
    in_code: bool = False
    """The value stands in the running program: a trial overrides it, and the user may write it."""

    @property
    def label(self) -> str:
        """Short name and value: `batch 8`, `train batch 8`, `--batch-size 8`, `lr 0.1`."""
        *above, leaf = (self.name or leaf_of(self.path)).split(".")
        value = self.new if isinstance(self.new, str) else json.dumps(self.new)
        short = SHORT_NAMES.get(self.kind) if leaf == self.kind else None
        return " ".join((*above[:1], short or leaf, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Set of changes to the original document."""

    changes: tuple[Change, ...] = ()

    @property
    def key(self) -> str:
        """Key of the values in any order."""
        values = sorted((c.document, c.path, c.new) for c in self.changes)
        return digest_of(values)

    @property
    def label(self) -> str:
        """Label such as `batch 8 · workers 4 in the code`, or `original`."""
        chosen = [c for c in self.changes if c.kind != "schedule"] or self.changes
        parts = [c.label for c in chosen if not c.in_code]
        coded = ", ".join(c.label for c in chosen if c.in_code)
        return (
            " · ".join([*parts, f"{coded} in the code"] if coded else parts) or "original"
        )

    @property
    def in_code(self) -> Self:
        """Part of this candidate that no file holds."""
        return replace(self, changes=tuple(c for c in self.changes if c.in_code))

    @property
    def overrides(self) -> tuple[Override, ...]:
        """What the probe has to do for it."""
        return tuple(
            Override(
                knob=change.path,
                value=change.new,
                site=None if change.document == PROCESS else change.document,
            )
            for change in self.in_code.changes
        )

    def values_in(self, document: str) -> dict[str, JsonScalar]:
        """New values of one document, by path."""
        return {c.path: c.new for c in self.changes if c.document == document}

    def moved_from(self, base: Self) -> tuple[Change, ...]:
        """Changes that lead from `base` to this candidate."""
        before = {(c.document, c.path): c for c in base.changes}
        after = {(c.document, c.path): c for c in self.changes}
        moves = []
        for key, change in {**before, **after}.items():
            old = before[key].new if key in before else change.old
            new = after[key].new if key in after else change.old
            if old != new:
                moves.append(replace(change, old=old, new=new))
        return tuple(moves)

    def with_changes(self, *changes: Change) -> Self:
        """This candidate with further `changes`."""
        merged = {(c.document, c.path): c for c in (*self.changes, *changes)}
        return replace(self, changes=tuple(c for c in merged.values() if c.new != c.old))

    def only(self, *classes: KnobClass) -> Self:
        """Part of this candidate that belongs to `classes`."""
        return replace(
            self, changes=tuple(c for c in self.changes if c.knob_class in classes)
        )

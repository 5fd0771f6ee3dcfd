"""What a run showed to be knobs joins what names told of, with the links that follow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.knobs.catalogue import catalogue
from advisor.knobs.finder import Classified
from advisor.knobs.links import find_links
from advisor.knobs.tree import leaves, parts_of
from advisor.model import Knob

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from advisor.config import Document
    from advisor.knobs.findings import Findings, Followed
    from advisor.model import KnobConstraint, Phase


def joined(
    document: Document, findings: Findings, followed: Iterable[Followed], phase: Phase
) -> Findings:
    """`findings` of `document`, and the values of it that a run of `phase` followed."""
    mine = {each.path: each for each in followed if each.document == document.name}
    if not mine:
        return findings
    knobs = (*findings.knobs, *(_knob(each, phase) for each in mine.values()))
    before = _links(document, findings, findings.knobs)
    kept = (link for link in findings.links if link not in before)
    return replace(
        findings,
        knobs=knobs,
        links=(*_links(document, findings, knobs), *kept),
        followed=tuple(mine.values()),
    )


def _links(
    document: Document, findings: Findings, knobs: Sequence[Knob]
) -> tuple[KnobConstraint, ...]:
    return find_links(
        Classified(
            document=document,
            leaves=tuple(leaves(document.scalars)),
            knobs=tuple(knobs),
            traps=findings.traps,
            links=(),
            references=findings.references,
            outputs=findings.outputs,
        )
    )


def _knob(found: Followed, phase: Phase) -> Knob:
    kind = catalogue().kinds[found.kind]
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
        why=f"`{parts_of(found.path)[-1]}` is a {found.kind} by experiment",
    )

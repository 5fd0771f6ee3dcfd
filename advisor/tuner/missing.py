"""Loader arguments that the config lacks: those of a mapping that the program was seen to pass on
to its DataLoader are knobs like those that are written down; the others are none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.knobs.default_arguments import mappings

if TYPE_CHECKING:
    from advisor.config import Document
    from advisor.model import JsonScalar
    from advisor.tuner.facts import Source
    from advisor.tuner.standing import TunerState


def settle_missing(now: TunerState) -> TunerState:
    """Without the keys that no DataLoader would be given."""
    passed = dict(now.original.effects.loader_passed)
    sources = tuple(_without_others(source, passed) for source in now.facts.sources)
    return replace(now, facts=replace(now.facts, sources=sources))


def _without_others(source: Source, passed: dict[str, JsonScalar]) -> Source:
    given = passed_on(source.document, passed)
    gone = {each.path for each in source.document.absent if each.beside not in given}
    if not gone:
        return source
    findings = replace(
        source.findings,
        knobs=tuple(knob for knob in source.findings.knobs if knob.path not in gone),
        links=tuple(link for link in source.findings.links if not gone & set(link.paths)),
        traps=tuple(trap for trap in source.findings.traps if trap.path not in gone),
    )
    return replace(source, findings=findings)


def passed_on(document: Document, passed: dict[str, JsonScalar]) -> set[str]:
    """Paths of the values in mappings of which a DataLoader was given every key with its value, by
    a call that passes a mapping on."""
    scalars = document.written
    return {
        path
        for members in mappings(document).values()
        if all(
            key in passed and _same(scalars[path].value, passed[key])
            for key, path in members.items()
        )
        for path in members.values()
    }


def _same(one: JsonScalar, other: JsonScalar) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)

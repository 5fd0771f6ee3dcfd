"""Confidence in a knob: name, observation, experiment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from advisor.knobs.discovery import ASPECTS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from advisor.knobs.findings import Findings
    from advisor.model import Effects, JsonScalar, Knob

Level = Literal["shown", "agrees", "likely", "doubtful"]
"""shown: the program followed it when it was moved. agrees: what was seen equals its value.
likely: its name and value say so. doubtful: something speaks against it."""


ONE_A_PHASE = {"batch_size", "num_workers", "grad_accum", "timesteps"}
"""Kinds of which one phase of a program has one value; of image sizes it may well have several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sureness:
    """Level of confidence, and its reason."""

    level: Level
    reason: Literal["followed", "other-seen", "no-value", "rivals", "same-seen", "name"]
    data: tuple[tuple[str, JsonScalar], ...] = ()


def how_sure(
    knob: Knob,
    found: Sequence[Findings],
    seen: Effects | None = None,
    phases: Collection[str] = (),
) -> Sureness:
    """Judge the confidence in `knob` after a run.

    A knob of another phase than the one that ran is neither confirmed nor contradicted by it.
    """
    if any(
        (each.document, each.path) == (knob.document, knob.path)
        for findings in found
        for each in findings.followed
    ):
        return Sureness(level="shown", reason="followed")
    if knob.value is None or knob.value in ("", "auto", "???"):
        return Sureness(level="doubtful", reason="no-value")
    agrees = _agrees(knob, seen) if seen is not None and knob.phase in phases else None
    if agrees is False:
        return Sureness(level="doubtful", reason="other-seen")
    rivals = [
        other.path
        for findings in found
        for other in findings.knobs
        if (other.kind, other.phase, other.document) == (knob.kind, knob.phase, knob.document)
        and other.editable
        and other.path != knob.path
        and other.value != knob.value
    ]
    if rivals and knob.kind in ONE_A_PHASE:
        data = (("rivals", len(rivals)), ("one", rivals[0]))
        return Sureness(level="doubtful", reason="rivals", data=data)
    if agrees:
        return Sureness(level="agrees", reason="same-seen")
    return Sureness(level="likely", reason="name")


def _agrees(knob: Knob, seen: Effects) -> bool | None:
    """Compare its value with the observation; None without one."""
    aspect = next((aspect for aspect in ASPECTS if aspect.kind == knob.kind), None)
    if aspect is None or not aspect.seen(seen):
        return None
    return aspect.known_from([knob], seen)

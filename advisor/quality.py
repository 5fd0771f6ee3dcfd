"""Does a candidate still do the job: declared measures, read from the program's own output."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.settings import QualityMeasure


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityJudgement:
    """One measure of one candidate against the original's."""

    measure: str
    value: float | None
    """None: the program did not print it."""
    reference: float
    limit: float
    within: bool


def read_measures(measures: Mapping[str, QualityMeasure], output: str) -> dict[str, float]:
    """Values by measure name; the last match in `output` counts, non-finite ones are left out."""
    values = {}
    for name, measure in measures.items():
        matches = re.findall(measure.pattern, output)
        if not matches:
            continue
        last = matches[-1] if isinstance(matches[-1], str) else matches[-1][0]
        try:
            number = float(last)
        except ValueError:
            continue
        if math.isfinite(number):
            values[name] = number
    return values


def judge(
    measures: Mapping[str, QualityMeasure],
    reference: Mapping[str, float],
    values: Mapping[str, float],
) -> list[QualityJudgement]:
    """Each declared measure of a candidate; one that is missing is out of tolerance."""
    return [
        QualityJudgement(
            measure=name,
            value=values.get(name),
            reference=reference[name],
            limit=measure.limit(reference[name]),
            within=name in values and measure.within(values[name], reference[name]),
        )
        for name, measure in measures.items()
    ]


def measure_key(measures: Mapping[str, QualityMeasure], command: tuple[str, ...]) -> str:
    """Identity of what is measured: a reference may be kept only for the same measures."""
    facts = [list(command), {name: m.pattern for name, m in measures.items()}]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def loss_drift(reference: tuple[float, ...], losses: tuple[float, ...]) -> float | None:
    """Relative drift of the mean loss over the last half of the steps both runs made.

    None when fewer than 8 common steps exist. Equal seeds are the program's own business: a
    program that draws new seeds each run shows its own noise here, and fails the guard honestly.
    """
    steps = min(len(reference), len(losses))
    if steps < 8:
        return None
    half = steps // 2
    before = sum(reference[half:steps]) / (steps - half)
    after = sum(losses[half:steps]) / (steps - half)
    if not (math.isfinite(before) and math.isfinite(after)) or before == 0:
        return math.inf
    return abs(after - before) / abs(before)

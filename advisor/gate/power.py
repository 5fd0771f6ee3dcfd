"""What the rule can prove at a given noise: tables of gates that were played, looked up.

The rule's bounds and tests are by ranks and distances. So what it can prove depends on nothing
but how far the true slowdown lies from the threshold, counted in standard deviations of a pair.
`python -m benchmarks.gate_power` plays gates of the rule as it is and prints the tables; a
standard deviation is itself known from a few pairs only, and the tables allow for that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from advisor.gate.rule import LOOKS, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKLOADS = (1, 4, 16, 64)
"""Workloads gating together, for which regressions were played."""

RED: Mapping[tuple[int, int], tuple[float, ...]] = {
    (1, 12): (10.82, 8.45, 7.87, 7.5, 7.24),
    (1, 17): (4.28, 4.09, 4.09, 4.13, 4.14),
    (1, 24): (1.09, 0.89, 0.85, 0.82, 0.79),
    (4, 12): (10.82, 8.45, 7.87, 7.5, 7.24),
    (4, 17): (4.42, 4.1, 4.09, 4.13, 4.14),
    (4, 24): (1.35, 1.08, 1.02, 0.98, 0.95),
    (16, 12): (10.82, 8.45, 7.87, 7.5, 7.24),
    (16, 17): (4.61, 4.15, 4.1, 4.13, 4.14),
    (16, 24): (1.6, 1.27, 1.2, 1.14, 1.11),
    (64, 17): (5.29, 4.79, 4.76, 4.81, 4.83),
    (64, 24): (1.86, 1.47, 1.37, 1.31, 1.27),
}
"""By workloads and the look that the gate may go to: distance above the threshold that turns red
nine times in ten, for a deviation estimated from as many pairs as each of LOOKS."""

PASSED: Mapping[int, tuple[float, ...]] = {
    5: (7.86, 6.42, 6.06, 5.85, 5.69),
    9: (5.49, 4.75, 4.58, 4.5, 4.43),
    12: (4.08, 3.66, 3.58, 3.56, 3.53),
    17: (2.55, 2.05, 1.9, 1.82, 1.75),
    24: (1.25, 1.02, 0.96, 0.93, 0.9),
}
"""By the look that the gate may go to: distance below the threshold that passes nine times in
ten."""


def red_at(
    deviation: float, pairs: int, rule: Rule, *, by: int | None = None, workloads: int = 1
) -> float | None:
    """The slowdown that turns red nine times in ten, on the scale of d.

    `deviation` of a pair was estimated from so many `pairs`; `by` is the number of pairs that the
    gate may go to. None where no regression can fall by then, or the rule was not played.
    """
    if not _played(rule):
        return None
    by = rule.looks[-1] if by is None else max((n for n in LOOKS if n <= by), default=0)
    most = next((m for m in WORKLOADS if m >= workloads), WORKLOADS[-1])
    distance = _known(RED.get((most, by)), pairs)
    return None if distance is None else rule.tau + distance * deviation


def threshold_for(deviation: float, pairs: int, rule: Rule, *, by: int) -> float | None:
    """The smallest tau at which equal arms pass nine times in ten by look `by`; None as above."""
    distance = _known(PASSED.get(by), pairs) if _played(rule) else None
    return None if distance is None else distance * deviation


def _played(rule: Rule) -> bool:
    return (rule.looks, rule.alpha) == (LOOKS, Rule().alpha)


def _known(distances: tuple[float, ...] | None, pairs: int) -> float | None:
    """The distance for an estimate from `pairs`: that of the look before."""
    if distances is None or pairs < LOOKS[0]:
        return None
    found = distances[max(place for place, look in enumerate(LOOKS) if look <= pairs)]
    return found if math.isfinite(found) else None

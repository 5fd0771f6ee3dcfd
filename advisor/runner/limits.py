"""Limits of a trial: start, silence and total."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.model import MeasurePlan
from advisor.settings import Defaults, Workload

START_S = 300.0
HANG_S = 60.0
LATE_START = 5.0
"""A candidate may take so many times as long to its first step as the original took."""
SLOW_WINDOW = 10.0
"""Steps that are longer than the window make it last so many times what was asked for."""
SILENCES = 4.0
"""As many steps of the longest silence are waited for in a window."""
SLOW_CEILINGS = 5.0
"""Starting loader workers takes longer than measuring them."""
TRACE_S = 300.0
"""Longest time for the one step that is traced."""
WHOLE_S = 3600.0
"""A program that is run to its end takes as long as its user made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits in seconds; None follows from other limits."""

    start_s: float | None = None
    """Longest wait for the first step."""
    hang_s: float | None = None
    """Longest silence after a step."""
    run_s: float | None = None
    """Longest run of one process."""
    startup_s: float | None = None
    """Seconds of the original to its first step, once known."""

    def of(self, plan: MeasurePlan) -> tuple[float, float, float]:
        """Return start, hang and total limits for `plan`."""
        start_s = self.start_s or max(START_S, LATE_START * (self.startup_s or 0.0))
        # a recompilation takes no longer than the start, which had one
        hang_s = self.hang_s or max(HANG_S, self.startup_s or 0.0)
        if plan.whatif == "compile":  # no step is finished meanwhile
            hang_s = max(hang_s, start_s)
        window_s = max(SLOW_WINDOW * plan.measure_s, SILENCES * hang_s)
        if plan.mode != "window":
            window_s = max(window_s, WHOLE_S)
        return start_s, hang_s, self.run_s or start_s + window_s + parts_limit_s(plan) + hang_s


def parts_limit_s(plan: MeasurePlan) -> float:
    """Longest time for the parts, each measured alone after the window."""
    if plan.trace:
        return TRACE_S
    parts = 1 + len(plan.ceilings_workers) if plan.ceilings_workers else 0
    return SLOW_CEILINGS * plan.ceilings_s * parts


def of_settings(workload: Workload, defaults: Defaults) -> Limits:
    """Read gpu-advisor.toml: the workload's limits, else those of all."""
    return Limits(
        start_s=workload.start_limit or defaults.start_limit,
        hang_s=workload.hang_limit or defaults.hang_limit,
        run_s=workload.run_limit or defaults.run_limit,
    )

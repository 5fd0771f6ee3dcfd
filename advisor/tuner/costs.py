"""What a short process costs a search, by those that ran."""

import statistics
from dataclasses import dataclass
from typing import Self

from advisor.executor.comparison import Comparison
from advisor.executor.requests import SkippedRun, TrialResult
from advisor.model import Run
from advisor.tuner import policy


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCosts:
    """Costs of the short processes so far, in their order."""

    seconds: tuple[float, ...] = ()
    """Seconds of the budget that each took, waits and preparation included."""
    delays: tuple[float, ...] = ()
    """Each one's seconds over the wall time of the process itself: 1 without any delay."""

    @property
    def price_s(self) -> float:
        """Seconds of the budget that one more takes; cold starts do not count.

        0 before the first process.
        """
        longest_s = policy.COLD_START * min(self.seconds, default=0.0)
        usual_s = [cost_s for cost_s in self.seconds if cost_s <= longest_s]
        return statistics.median(usual_s) if usual_s else 0.0

    def again_s(self, run: Run | None) -> float:
        """Seconds that the candidate of `run` takes once more; without a run, the usual price."""
        return max(self.price_s, run.wall_s) if run is not None else self.price_s

    def with_result(self, result: TrialResult | Comparison | SkippedRun) -> Self:
        """With the process of `result`, if it tells a price: a short one, or a baseline.

        What a baseline measures after its window no other process pays.
        """
        if not isinstance(result, TrialResult) or result.run is None or result.reused:
            return self
        run, request = result.run, result.request
        is_short = request.purpose in {"search", "confirm"} and not request.plan.whole
        if not is_short and request.purpose != "baseline":
            return self
        cost_s = max(result.took_s, run.wall_s)
        delay = cost_s / max(run.wall_s, 1e-9)
        if request.plan.ceilings_workers and run.window_ended_s is not None:
            cost_s -= max(0.0, run.wall_s - run.window_ended_s - policy.ENDING_S)
        return type(self)(seconds=(*self.seconds, cost_s), delays=(*self.delays, delay))

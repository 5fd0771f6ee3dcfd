"""How a stage asks: requests out, results in, and the state that each leaves.

A stage takes a state, yields steps, is sent a result for each, and ends with another state.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from advisor.executor.comparison import Comparison
from advisor.executor.requests import ABTest, SkippedRun, TrialRequest, TrialResult, Variant
from advisor.model import Purpose, Run, SkipCause, TaskKind
from advisor.tuner import reserves
from advisor.tuner.outcomes import Task
from advisor.tuner.state import Result, TunerState


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStep:
    """Request of a stage, with the state in which it was made."""

    request: TrialRequest | ABTest
    state: TunerState
    ahead: Iterable[TrialRequest] = field(default=(), compare=False)
    """Requests that may follow, for further cards; read once, if at all."""


Stage = Generator[SearchStep, Result, TunerState]
"""Stage of the search: requests in, results out, a new state at the end."""


T = TypeVar("T")


Trials = Generator[SearchStep, Result, tuple[TunerState, T]]
"""Part of a stage that ends with the state and the outcome of its trials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End of a search, and why it ended."""

    reason: Literal["done", "baseline-failed", "not-measured", "budget-too-small"]
    state: TunerState
    failed: TrialResult | None = None
    """baseline-failed: the run that did."""
    needed_s: float | None = None
    """budget-too-small: the budget that would do."""


def make_request(
    state: TunerState,
    variant: Variant,
    purpose: Purpose | None = None,
    *,
    ran: Run | None = None,
    **plan: object,
) -> TrialRequest:
    """Request of one short process of `variant`, expected to take as long as `ran` did.

    `plan`: fields of its plan. No kept run will do where the purpose is to confirm.
    """
    purpose = purpose or ("whatif" if state.by_hand else "search")
    return TrialRequest(
        variant=variant,
        purpose=purpose,
        plan=state.plan(variant.candidate, **plan),
        fresh=purpose == "confirm",
        expected_s=state.costs.again_s(ran) + variant.extra_s,
    )


def run_trial(
    state: TunerState,
    request: TrialRequest,
    *,
    kept_s: float | None = None,
    more_s: float = 0.0,
    matters: bool = True,
    ahead: Iterable[TrialRequest] = (),
) -> Trials[TrialResult | None]:
    """Run `request`; None if the budget has no room for it, and it is skipped.

    `kept_s`: seconds that stay for a proof, by default the reserve. `more_s`: seconds of what would
    follow it, for the budget that is named to the user. `ahead`: requests that may follow.
    """
    kind: TaskKind = "pass" if request.title else "trial"
    kind = "quality" if request.purpose == "quality" else kind
    task = Task(kind, request.variant.label)
    kept_s = reserves.reserve_s(state) if kept_s is None else kept_s
    matters = matters and not state.by_hand
    if request.expected_s > state.remaining_s - kept_s:
        needed_s = request.expected_s + more_s
        return state.skip(task, needed_s, kept_s=kept_s, matters=matters), None
    result = yield SearchStep(
        request=replace(request, kept_s=kept_s), state=state, ahead=ahead
    )
    state = state.with_result(result)
    if isinstance(result, SkippedRun):
        cause: SkipCause = "time-limit" if result.stopped else "no-room"
        needed_s = result.needed_s + more_s
        return state.skip(task, needed_s, matters=matters, cause=cause), None
    assert isinstance(result, TrialResult)
    return state.done(task), result


def run_comparison(
    state: TunerState, ab_test: ABTest, task: Task, round_s: float, *, matters: bool = True
) -> Trials[Comparison]:
    """Run the rounds of `ab_test`; those that the budget cut off are told as skipped."""
    result = yield SearchStep(request=ab_test, state=state)
    assert isinstance(result, Comparison)
    state = state.with_result(result)
    if result.cut_short:
        # at least one: where enough count, the last was to repeat a contended one
        missing = max(1, ab_test.rounds - len(result.counted))
        rest = task._replace(rest=True)
        state = state.skip(rest, missing * round_s, matters=matters)
    return state, result

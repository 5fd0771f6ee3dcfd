"""The original: what it does, where its time goes, and how far equal processes differ."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.executor.requests import TrialRequest, TrialResult, Variant
from advisor.model import Candidate
from advisor.stats import noise_band
from advisor.tuner.asking import SearchStep
from advisor.tuner.batch_place import place_of_batch
from advisor.tuner.ignored import with_few_steps
from advisor.tuner.prices import CEILINGS_S

if TYPE_CHECKING:
    from collections.abc import Generator

    from advisor.model import BatchPlace
    from advisor.tuner.standing import Result, TunerState

FEW_PROCESSES = 8
"""A budget that buys fewer has no second baseline: the proof runs the original again anyhow."""
PATIENCE = 0.1
"""Part of the budget, from its first step on, that an item of a sampler is waited for."""
USUAL = 3
MOST = 4
"""The fourth only where the best of three stands alone: two that collapsed are no spread."""
OWN_KINDS = ("batch_size", "num_workers", "prefetch_factor", "persistent_workers", "pin_memory")


def baseline_ask(
    now: TunerState, number: int, forwards: float | None = None, place: BatchPlace | None = None
) -> TrialRequest:
    """The original, run until one item is finished; then its parts alone, in the same process.

    `place`: where the batch is, which no original was read with so far.

    With `forwards` an item is known to take, none has to be finished. Without, a sampler whose
    steps could be fewer is given up after a part of the budget: others may hold the machine.
    """
    cpus = now.facts.cpus
    plan = now.plan(
        Candidate(),
        whole_batches=0 if forwards else 1,
        forwards_per_unit=forwards,
        ceilings_workers=tuple(sorted({0, 1, min(2, cpus), cpus})),
        ceilings_s=CEILINGS_S,
        batch_at=place or now.batch_at,
    )
    patience_s = PATIENCE * now.facts.budget_s if with_few_steps(now).changes else None
    return TrialRequest(
        variant=Variant(),
        purpose="baseline",
        plan=plan,
        fresh=True,
        series=f"{number}",
        limit_s=None if forwards or number else patience_s,
    )


def forwards_by_few_steps(
    now: TunerState,
) -> Generator[SearchStep, Result, tuple[TunerState, float | None]]:
    """Forwards that an item of the original takes, from an item with the fewest steps.

    Cost is linear in the steps, so what a hundredth of them takes tells of all of them.
    """
    few = with_few_steps(now)
    steps = next((c for c in few.changes if c.kind == "timesteps"), None)
    if steps is None or not isinstance(steps.old, int) or not isinstance(steps.new, int):
        return now, None
    request = TrialRequest(
        variant=Variant(candidate=few),
        purpose="effects",
        plan=now.plan(few, whole_batches=1),
        expected_s=1.0,
    )
    answer = yield SearchStep(request=request, standing=now)
    now = now.heard(answer)
    run = answer.run if isinstance(answer, TrialResult) else None
    seen = run.effects.forwards_per_unit if run is not None else None
    return now, None if seen is None else seen * steps.old / steps.new


def baseline(
    now: TunerState,
) -> Generator[SearchStep, Result, tuple[TunerState, TrialResult | None]]:
    """At least two fresh processes of the original, and more where those disagree.

    A failure is handed back: nothing can be told of a program that does not run.
    """
    forwards: float | None = None
    place: BatchPlace | None = None
    for number in range(MOST):
        if number and now.originals and not another(now):
            break
        answer = yield SearchStep(request=baseline_ask(now, number, forwards, place), standing=now)
        now = now.heard(answer)
        if not isinstance(answer, TrialResult):
            if now.originals or forwards:
                break  # the budget ended it
            now, forwards = yield from forwards_by_few_steps(now)
            if forwards is None:
                break
            continue
        if answer.run is None:
            return now, answer
        now = replace(now, originals=(*now.originals, answer.run))
        now = replace(now, prices=now.prices.of_baselines(now.originals))
        if not number:
            now, place = yield from place_of_batch(now)
            if place is not None:  # that run was read without it
                now = replace(now, originals=())
    return replace(now, noise=noise_of(now)) if now.originals else now, None


def another(now: TunerState) -> bool:
    """Whether the original deserves one more process."""
    if len(now.originals) == 1:
        # That a budget is too small is not told from one process, which may have found cold caches.
        few = now.remaining_s <= FEW_PROCESSES * now.price_s
        return not few or now.remaining_s < now.fewest_s
    if len(now.originals) == USUAL and len(now.near_best) > 1:
        return False
    rates = [now.facts.objective.score(run) for run in now.originals]
    apart = max(rates) / min(rates) - 1
    expected = max(now.facts.earlier.host_noise or 0.0, now.facts.smallest_gain)
    return apart > expected and now.remaining_s > FEW_PROCESSES * now.price_s


def noise_of(now: TunerState) -> float:
    """Relative spread between equal processes: of these baselines, and as this host showed before.

    Two draws are a poor estimate of a machine that has two speeds, so the host's record counts.
    """
    here = noise_band([run.windows or (run.units_per_s,) for run in now.usual])
    return max(here or 0.0, now.facts.earlier.host_noise or 0.0)


def worth_trying(now: TunerState) -> bool:
    """Whether any knob might be tuned, or the code holds a loader that might."""
    return bool(now.tunable(*OWN_KINDS, "grad_checkpoint", "precision", "timesteps")) or (
        now.original.effects.workers is not None
    )

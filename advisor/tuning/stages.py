"""Bottleneck first: baseline, ceilings, then loader, batch and precision in the order that pays."""

from __future__ import annotations

import statistics

from advisor import knobs
from advisor.errors import TrialFailedError
from advisor.knobs import precision_choices
from advisor.model import Candidate, Failure, JsonScalar, Knob, Run
from advisor.quality import loss_drift
from advisor.stats import noise_band
from advisor.tuning import effects
from advisor.tuning.runner import OverBudgetError
from advisor.tuning.search import Search, shown

WORTH_A_LOOK = 0.03
"""A wait share below this cannot be worth a loader search: it bounds the gain."""


def measure_baseline(search: Search) -> None:
    """The original, at least twice, in fresh processes. Raises TrialFailedError on any failure.

    If an earlier call measured the same original at another speed, its history is not trusted.
    """
    runner = search.runner
    plan = search.plan(Candidate(), whole_batches=1)
    known = runner.recall_baseline(plan)
    for _ in range(2):
        result = runner.measure(Candidate(), "baseline", plan, fresh=True)
        if isinstance(result, Failure):
            msg = (
                f"The original command failed ({result.kind}): {result.evidence} "
                f"{result.next_step}\n{result.log_tail}".rstrip()
            )
            raise TrialFailedError(result.kind, msg)
        search.baseline.append(result)
    search.noise = noise_here(search)
    search.adopt(Candidate(), search.original)
    if known is not None:
        drift = abs(known.units_per_s / search.original.units_per_s - 1)
        if drift > max(search.band, 0.1):
            runner.forget_history()
            search.notes.append(
                f"Earlier measurements were set aside: the same original ran {drift:.0%} apart."
            )


def noise_here(search: Search) -> float:
    """Relative spread between equal processes: of these baselines, and as this host showed before.

    Two draws are a poor estimate of a machine that has two speeds, so the host's record counts.
    """
    now = noise_band([run.windows or (run.units_per_s,) for run in search.baseline])
    kept = search.runner.history.host_spreads(search.runner.machine_key)
    before = [band for rates in kept if (band := noise_band([[rate] for rate in rates]))]
    return max(now or 0.0, statistics.median(before) if before else 0.0)


def measure_ceilings(search: Search) -> None:
    """Compute alone and loader alone, in one process of the original."""
    cpus = search.machine.cpus
    current = search.original.effects.workers
    if current is None:
        return
    workers = tuple(sorted({0, 1, min(2, cpus), cpus, min(current, 4 * cpus)}))
    try:
        result = search.run(
            Candidate(), "ceilings", ceilings_workers=workers, ceilings_s=1.0, measure_s=1.0
        )
    except OverBudgetError as problem:
        search.over_budget("ceilings", problem, matters=False)
        return
    if isinstance(result, Failure):
        search.notes.append(f"The parts could not be measured alone: {result.evidence}")


def ceilings_of(search: Search) -> Run | None:
    """The run that measured the parts alone, if it did."""
    for taken in search.runner.taken:
        if taken.purpose == "ceilings" and isinstance(taken.result, Run):
            return taken.result
    return None


def tune_free_and_training(search: Search) -> None:
    """Loader while the program waits for it, then batch; again as long as that moved something.

    A batch that gains nothing behind a slow loader may gain behind a faster one.
    """
    for _ in range(4):
        start = search.best_candidate
        if waits(search):
            tune_loader(search)
        tune_batch(search)
        if search.best_candidate == start or not waits(search):
            break
    settle_loader(search)


def waits(search: Search) -> bool:
    """Whether the best so far loses enough time waiting for data."""
    share = search.best.wait_share if search.best else None
    return share is not None and share > WORTH_A_LOOK


# --- loader -------------------------------------------------------------------------------


def tune_loader(search: Search) -> None:
    """Workers in both directions, then prefetch, pinning and persistence at the best count."""
    for knob in search.tunable("num_workers"):
        try_values(search, knob, worker_values(search, knob))
    for knob in search.tunable("prefetch_factor"):
        try_values(search, knob, [v for v in (2, 4, 8) if v != search.current(knob)])
    for knob in search.tunable("pin_memory") if search.has_gpu else []:
        try_values(search, knob, [not search.current(knob)])
    for knob in search.tunable("persistent_workers"):
        if search.best is not None and search.best.effects.workers:
            try_values(search, knob, [not search.current(knob)])


def worker_values(search: Search, knob: Knob) -> list[int]:
    """Worker counts worth a process, best loader first, inside the CPUs this host gives."""
    return worker_counts(search, search.current(knob))


def worker_counts(search: Search, current: object) -> list[int]:
    """The same for a count that is no knob."""
    cpus = search.machine.cpus
    values = {0, 1, 2, cpus // 2, cpus - 1, cpus} | ({4, 8, 16} if cpus >= 8 else set())
    values = {v for v in values if 0 <= v <= cpus and v != current}
    alone = ceilings_of(search)
    rates = (
        {c.workers: c.units_per_s for c in alone.ceilings.loader}
        if (alone and alone.ceilings)
        else {}
    )
    assert search.best is not None
    if search.has_gpu:
        # With the compute on the GPU, a loader slower than the whole cannot make it faster.
        values = {v for v in values if rates.get(v, 1e30) > search.best.units_per_s}
    return sorted(values, key=lambda v: (-rates.get(v, 0.0), v))[:4]


def settle_loader(search: Search) -> None:
    """Say why the loader knobs that were not changed stay."""
    assert search.best is not None
    share = search.best.wait_share
    waiting = "not measured" if share is None else f"{share:.1%} of the window"
    for knob in search.undecided(
        "num_workers", "prefetch_factor", "pin_memory", "persistent_workers"
    ):
        if knob.kind == "pin_memory" and not search.has_gpu:
            search.decide(knob, "kept", "Pinned memory only helps copies to a GPU; none is here.")
        elif waits(search):
            search.decide(knob, "kept", "No other value was tried with a gain.")
        else:
            search.decide(
                knob,
                "kept",
                f"The program waits for data {waiting}; no loader setting can gain more than that.",
                evidence=[f"wait share {waiting} at {search.best_candidate.label}"],
            )


def try_values(search: Search, knob: Knob, values: list[int] | list[bool]) -> None:
    """Run each value on top of the best; adopt the fastest if it is faster by more than a tie."""
    assert search.best is not None
    start, tried, ids = search.best, [], []
    winner: tuple[Candidate, Run] | None = None
    for value in values:
        candidate = search.with_value(knob, value)
        if isinstance(candidate, knobs.Refusal):
            tried.append(f"{value}: {candidate.reason}")
            continue
        try:
            result = search.run(candidate)
        except OverBudgetError as problem:
            search.over_budget(knob.path, problem)
            break
        ids.append(search.last_id())
        if isinstance(result, Failure):
            tried.append(f"{value}: {result.kind} ({result.evidence})")
            continue
        change = next(c for c in candidate.changes if c.path == knob.path)
        if effects.verdict(change, start, result) == "ignored":
            decide_ignored(search, knob, result, ids)
            return
        tried.append(f"{value}: {shown(result)}, wait {result.wait_share or 0:.0%}")
        if search.faster(result, winner[1] if winner else start):
            winner = (candidate, result)
    if not ids and not tried:
        return
    evidence = [f"{search.current(knob)}: {shown(start)}, wait {start.wait_share or 0:.0%}", *tried]
    if winner is None:
        search.decide(
            knob,
            "kept",
            f"None of {len(values)} other values was faster by more than a tie.",
            evidence=evidence,
            trials=ids,
        )
        return
    search.adopt(*winner)
    new = search.current(knob)
    gain = winner[1].units_per_s / start.units_per_s
    search.decide(
        knob,
        "changed",
        f"{new} ran {gain:.2f}x as fast end to end.",
        new=new,
        evidence=evidence,
        trials=ids,
    )


def decide_ignored(search: Search, knob: Knob, run: Run, ids: list[str]) -> None:
    """The program did not follow the knob; say what it did instead."""
    seen = getattr(run.effects, effects.OBSERVED.get(knob.kind, ""), None)
    override = effects.overriding(knob.path, knob.value, run)
    site = f" (DataLoader built at {run.effects.loader_site})" if run.effects.loader_site else ""
    why = f"Ignored by the program: it used {seen} whatever the config says{site}"
    search.decide(knob, "ignored", why + (f"; {override}." if override else "."), trials=ids)


# --- batch --------------------------------------------------------------------------------


def tune_batch(search: Search) -> None:
    """Double until the rate flattens, memory says no, or the document's own constraint does."""
    for knob in search.tunable("batch_size"):
        value = search.current(knob)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            search.decide(knob, "listed", f"{value!r} is no plain count; left alone.")
        else:
            climb(search, knob, value)


def climb(search: Search, knob: Knob, start_value: int) -> None:
    """One batch knob, upwards by doubling; downwards once if doubling gains nothing."""
    assert search.best is not None
    start = search.best
    rates: dict[int, tuple[Candidate, Run]] = {start_value: (search.best_candidate, start)}
    evidence, ids, reason = [f"{start_value}: {shown(start)}"], [], ""
    value, misses, fastest = start_value * 2, 0, start
    # One bad draw on a noisy machine must not end the climb before it gained anything.
    while misses < (2 if fastest is not start else 3):
        candidate = search.with_value(knob, value)
        if isinstance(candidate, knobs.Refusal):
            reason = candidate.reason
            break
        too_big = memory_refusal(search, rates, value)
        if too_big:
            reason = too_big
            break
        try:
            result = search.run(candidate)
        except OverBudgetError as problem:
            search.over_budget(knob.path, problem)
            reason = "the budget was spent"
            break
        ids.append(search.last_id())
        if isinstance(result, Failure):
            reason = f"{value} failed: {result.kind}. {result.evidence}"
            evidence.append(f"{value}: {result.kind}")
            break
        change = next(c for c in candidate.changes if c.path == knob.path)
        seen = result.effects.batch
        if effects.verdict(change, start, result) == "ignored":
            decide_ignored(search, knob, result, ids)
            return
        evidence.append(f"{value}: {shown(result)}")
        if result.peak_mem_gib is not None and result.peak_mem_gib > search.memory_limit_gib:
            reason = (
                f"{value} peaked at {result.peak_mem_gib:.2f} GiB, above the "
                f"{search.memory_limit_gib:.2f} GiB usable on {search.memory_owner}"
            )
            break
        rates[value] = (candidate, result)
        if search.faster(result, fastest):
            fastest, misses = result, 0
        else:
            misses += 1
        if seen is not None and seen < value:
            reason = f"the program never filled a batch of {value}: it saw {seen:g}"
            break
        value *= 2
    reason = reason or "the rate is flat"
    if not ids and search.cut_short:
        search.decide(knob, "skipped", "The budget was spent before another batch could run.")
    else:
        settle_batch(search, knob, start_value, rates, evidence, ids, reason)


def settle_batch(
    search: Search,
    knob: Knob,
    start_value: int,
    rates: dict[int, tuple[Candidate, Run]],
    evidence: list[str],
    ids: list[str],
    reason: str,
) -> None:
    """The smallest batch within a tie of the fastest wins; the original if it is among them."""
    top = max(run.units_per_s for _, run in rates.values())
    tied = [v for v, (_, run) in rates.items() if run.units_per_s * (1 + search.band) >= top]
    value = min(tied)
    start = rates[start_value][1]
    if value == start_value and start_value != knob.value:
        earlier = search.decisions[(knob.document, knob.path)]
        search.decide(knob, "changed", earlier.why, new=value, evidence=evidence, trials=ids)
        return
    if value == start_value:
        search.decide(
            knob,
            "kept",
            f"No larger batch was faster by more than a tie ({search.band:.0%}); "
            f"the search stopped because {reason}.",
            evidence=evidence,
            trials=ids,
        )
        return
    search.adopt(*rates[value])
    for change in search.best_candidate.changes:
        linked = next(
            (
                k
                for k in search.all_knobs
                if (k.document, k.path) == (change.document, change.path) and k != knob
            ),
            None,
        )
        if linked is not None and linked.kind in {"grad_accum", "batch_size"}:
            search.decide(
                linked,
                "changed",
                f"Moves with {knob.path}, so that their product stays.",
                new=change.new,
                trials=ids,
            )
    search.decide(
        knob,
        "changed",
        f"{value} ran {rates[value][1].units_per_s / start.units_per_s:.2f}x as fast; the smallest "
        f"batch within a tie of the fastest; the search stopped because {reason}.",
        new=value,
        evidence=evidence,
        trials=ids,
    )


def memory_refusal(
    search: Search, rates: dict[int, tuple[Candidate, Run]], value: int
) -> str | None:
    """Why `value` must not even be tried, from the memory of the two largest batches that ran."""
    peaks = [(v, run.peak_mem_gib) for v, (_, run) in sorted(rates.items()) if run.peak_mem_gib]
    if not peaks:
        return None
    (last, high) = peaks[-1]
    slope = (high - peaks[-2][1]) / (last - peaks[-2][0]) if len(peaks) > 1 else 0.0
    expected = high + max(slope, 0.0) * (value - last)
    if expected <= search.memory_limit_gib:
        return None
    return (
        f"{value} needs about {expected:.2f} GiB by the peaks measured so far "
        f"({', '.join(f'{v}: {p:.2f} GiB' for v, p in peaks[-2:])}), more than the "
        f"{search.memory_limit_gib:.2f} GiB usable on {search.memory_owner}"
    )


# --- precision ----------------------------------------------------------------------------


def tune_precision(search: Search) -> None:
    """Precisions that exist on the target, behind the numeric guard the user declared."""
    tolerance = search.workload.numeric_tolerance
    for knob in search.undecided("precision"):
        choices = {
            dtype: value
            for dtype, value in precision_choices(knob).items()
            if dtype in search.precisions and value != knob.value
        }
        if not choices:
            search.decide(knob, "kept", "No other precision of this spelling exists here.")
        elif tolerance is None and not search.workload.quality:
            names = ", ".join(str(value) for value in choices.values())
            search.decide(
                knob,
                "listed",
                f"{names} not tried: no numeric-tolerance or quality measure is "
                "declared for this workload in gpu-advisor.toml.",
            )
        else:
            try_precisions(search, knob, list(choices.values()), tolerance)


def try_precisions(
    search: Search, knob: Knob, values: list[JsonScalar], tolerance: float | None
) -> None:
    """Each choice on top of the best; the first that is faster and inside the guard stays."""
    assert search.best is not None
    start, evidence, ids = search.best, [f"{knob.value}: {shown(search.best)}"], []
    for value in values:
        candidate = search.with_value(knob, value)
        if isinstance(candidate, knobs.Refusal):
            evidence.append(f"{value}: {candidate.reason}")
            continue
        try:
            result = search.run(candidate)
        except OverBudgetError as problem:
            search.over_budget(knob.path, problem)
            break
        ids.append(search.last_id())
        if isinstance(result, Failure):
            evidence.append(f"{value}: {result.kind} ({result.evidence})")
            continue
        change = next(c for c in candidate.changes if c.path == knob.path)
        if effects.verdict(change, start, result) == "ignored":
            decide_ignored(search, knob, result, ids)
            return
        drift = loss_drift(start.losses, result.losses)
        guard = "no losses seen" if drift is None else f"loss drift {drift:.2%}"
        evidence.append(f"{value}: {shown(result)}, {guard}")
        inside = drift is not None and tolerance is not None and drift <= tolerance
        if search.faster(result, start) and (inside or (drift is None and search.workload.quality)):
            gain = result.units_per_s / start.units_per_s
            search.adopt(candidate, result)
            search.decide(
                knob,
                "changed",
                f"{value} ran {gain:.2f}x as fast with {guard}.",
                new=value,
                evidence=evidence,
                trials=ids,
            )
            return
    search.decide(
        knob,
        "kept",
        "No other precision was faster inside the numeric guard.",
        evidence=evidence,
        trials=ids,
    )

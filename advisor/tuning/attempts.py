"""Values of one knob, each in a process of its own on top of the best so far."""

from __future__ import annotations

from advisor import knobs
from advisor.model import Candidate, Failure, Knob, Run
from advisor.tuning import effects
from advisor.tuning.runner import OverBudgetError
from advisor.tuning.search import Search, shown


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

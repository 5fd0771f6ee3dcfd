"""Values of one knob, each in a process of its own on top of the best so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from advisor import knobs
from advisor.model import Candidate, Failure, JsonScalar, Knob, Run
from advisor.tuning import effects
from advisor.tuning.runner import OverBudgetError
from advisor.tuning.search import Search, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(kw_only=True)
class Attempts:
    """What became of the values of one knob, as evidence for its decision."""

    search: Search
    knob: Knob
    evidence: list[str] = field(default_factory=list)
    """A line for each value that could not be run."""
    ids: list[str] = field(default_factory=list)
    ignored: bool = False
    """The program did not follow the knob; that is decided already."""

    def of(self, values: Sequence[JsonScalar]) -> Iterator[tuple[JsonScalar, Candidate, Run]]:
        """Those of `values` that ran, each against the best at the start.

        Ends when the budget does, or when the program turns out not to follow the knob.
        """
        search, knob = self.search, self.knob
        start = search.best
        assert start is not None
        for value in values:
            candidate = search.with_value(knob, value)
            if isinstance(candidate, knobs.Refusal):
                self.evidence.append(f"{value}: {candidate.reason}")
                continue
            try:
                result = search.run(candidate)
            except OverBudgetError as problem:
                search.over_budget(knob.path, problem)
                return
            self.ids.append(search.last_id())
            if isinstance(result, Failure):
                self.evidence.append(f"{value}: {result.kind} ({result.evidence})")
                continue
            change = next(c for c in candidate.changes if c.path == knob.path)
            if effects.verdict(change, start, result) == "ignored":
                decide_ignored(search, knob, result, self.ids)
                self.ignored = True
                return
            yield value, candidate, result


def try_values(search: Search, knob: Knob, values: Sequence[JsonScalar]) -> None:
    """Run each value on top of the best; adopt the fastest if it is faster by more than a tie."""
    start = search.best
    assert start is not None
    attempts = Attempts(search=search, knob=knob)
    winner: tuple[Candidate, Run] | None = None
    for value, candidate, result in attempts.of(values):
        attempts.evidence.append(f"{value}: {shown(result)}, wait {result.wait_share or 0:.0%}")
        if search.faster(result, winner[1] if winner else start):
            winner = (candidate, result)
    if attempts.ignored or not (attempts.ids or attempts.evidence):
        return
    was = f"{search.current(knob)}: {shown(start)}, wait {start.wait_share or 0:.0%}"
    evidence = [was, *attempts.evidence]
    if winner is None:
        search.decide(
            knob,
            "kept",
            f"None of {len(values)} other values was faster by more than a tie.",
            evidence=evidence,
            trials=attempts.ids,
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
        trials=attempts.ids,
    )


def decide_ignored(search: Search, knob: Knob, run: Run, ids: list[str]) -> None:
    """The program did not follow the knob; say what it did instead."""
    override = effects.overriding(knob.path, knob.value, run)
    why = f"Ignored by the program: it {effects.done_instead(knob, run)} whatever the config says"
    search.decide(knob, "ignored", why + (f"; {override}." if override else "."), trials=ids)

"""Results inside what the user declared: what fewer steps, precision and rounding must pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.model import Candidate, Failure, MeasurePlan, Run
from advisor.quality import judge, loss_drift, measure_key, read_measures

if TYPE_CHECKING:
    from advisor import documents
    from advisor.tuning.search import Search
    from advisor.versions import Versions


@dataclass(frozen=True, kw_only=True)
class Guard:
    """The declared quality measures and numeric tolerance of one search."""

    search: Search
    command: documents.Document
    """The quality command: the user's own program on a fixed subset."""
    versions: Versions
    """Keeps the reference as long as the config descends from it."""

    @property
    def declared(self) -> bool:
        """Whether the user consented to a change of results, within a tolerance."""
        workload = self.search.workload
        return workload.numeric_tolerance is not None or bool(workload.quality)

    def run(
        self, candidate: Candidate, expected_s: float, whatif: str | None = None
    ) -> Run | Failure:
        """The quality command with `candidate`, to its own end. Raises OverBudgetError."""
        return self.search.runner.measure(
            candidate,
            "quality",
            MeasurePlan(mode="whole", whatif=whatif),
            expected_s=expected_s,
            command_line=self.command,
        )

    def values(self, result: Run | Failure) -> dict[str, float]:
        """What the declared measures were; empty where one was not printed."""
        measures = self.search.workload.quality
        if isinstance(result, Failure):
            return {}
        found = read_measures(measures, result.stdout_tail)
        return found if set(found) == set(measures) else {}

    def reference(self) -> dict[str, float]:
        """What tolerances are taken from: the original's quality, from before the first rewrite.

        Measured where neither this call nor an earlier one did. Empty when it was not printed.
        """
        search = self.search
        if not search.quality_before:
            search.quality_before = self.values(self.run(Candidate(), 3 * search.expected_s()))
        key = measure_key(
            search.workload.quality, search.runner.program.argv(Candidate(), self.command)
        )
        kept = self.versions.quality_reference(key)
        if kept is None and search.quality_before:
            self.versions.keep_quality_reference(key, search.quality_before)
        return kept or search.quality_before

    def drift(self, run: Run) -> str | None:
        """How far the losses of `run` are from the best's, where both had some; costs nothing."""
        assert self.search.best is not None
        seen = loss_drift(self.search.best.losses, run.losses)
        tolerance = self.search.workload.numeric_tolerance
        if seen is None:
            return None
        return f"loss drift {seen:.2%}" + (f" of {tolerance:.2%} allowed" if tolerance else "")

    def within(self, candidate: Candidate, run: Run, whatif: str | None = None) -> tuple[bool, str]:
        """Whether `run` of `candidate` stayed inside the declared tolerance, and what was seen.

        Losses are compared where both runs had some; without, the quality measures are, in a
        quality run. Nothing to compare is not inside. Raises OverBudgetError.
        """
        search = self.search
        assert search.best is not None
        tolerance = search.workload.numeric_tolerance
        drift = loss_drift(search.best.losses, run.losses)
        if drift is not None and tolerance is not None:
            return drift <= tolerance, self.drift(run) or ""
        measures = search.workload.quality
        if not measures:
            return False, "no losses to compare were seen"
        reference = self.reference()
        if not reference:
            return False, "the quality measures were not printed"
        result = self.run(candidate, 3 * search.expected_s(), whatif)
        values = self.values(result)
        judged = judge(measures, reference, values)
        inside = all(judgement.within for judgement in judged)
        search.judgements += [(whatif or candidate.label, judgement) for judgement in judged]
        if inside and whatif is None:
            search.quality_after = values
        return inside, ", ".join(
            f"{j.measure} {'not printed' if j.value is None else format(j.value, 'g')} "
            f"(limit {j.limit:g})"
            for j in judged
        )

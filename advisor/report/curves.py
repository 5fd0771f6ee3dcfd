"""The data behind each figure, and what a reader who cannot see it is told instead."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from advisor import numbers
from advisor.config.spelling import is_number
from advisor.model import leaf_of
from advisor.report import view

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.report.model import Report, Side, TrialEntry

PROVING = ("confirm",)
"""Purposes of runs that prove a gain in rounds, beside the original's."""
MEANT = ("baseline", "search", *PROVING)
"""Those whose rates may be the best so far."""
SEARCHED = (*MEANT, "effects")
"""Those whose rates may be set side by side. What only shows which settings are followed takes the
fewest steps that a sampler can do, whatever they are worth: it is no best so far."""

SAME_WORK = (*MEANT, "whatif")
"""Those that do the work of the original; with a tenth of a sampler's steps all else would be flat
beside the rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCurve:
    """Rate and memory against batch size, all other settings equal."""

    units: str
    rates: dict[float, list[float]]
    """Units/s of each run, by batch size."""
    memory_gib: dict[float, float]
    """Largest peak, by batch size."""
    failed: dict[float, str]
    """How it failed, by batch size."""
    chosen: float | None
    noise_band: float | None
    memory_limit_gib: float | None
    beside: str = ""
    """What the runs have in common that need not be what was chosen."""

    @property
    def means(self) -> dict[float, float]:
        """Mean units/s by batch size, ascending."""
        return {batch: fmean(self.rates[batch]) for batch in sorted(self.rates)}

    @property
    def alt(self) -> str:
        told = "; ".join(
            f"{numbers.count(batch)}: {numbers.number(rate)} {self.units}/s"
            + (f", {numbers.gib(self.memory_gib[batch])}" if batch in self.memory_gib else "")
            for batch, rate in self.means.items()
        )
        ends = "".join(f"; {numbers.count(batch)}: {kind}" for batch, kind in self.failed.items())
        beside = f", with {self.beside}" if self.beside else ""
        return f"Rate and peak memory by batch size{beside}. {told}{ends}."


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSplit:
    """Where one unit's time goes, before and after."""

    unit: str
    bars: dict[str, dict[str, float]]
    """Seconds of each part, by bar."""

    @property
    def alt(self) -> str:
        told = "; ".join(
            f"{bar}: " + ", ".join(f"{part} {numbers.duration(s, 3)}" for part, s in parts.items())
            for bar, parts in self.bars.items()
        )
        return f"Where the time of one {self.unit} goes. {told}."


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSeries:
    """Every trial in the order in which it was run."""

    units: str
    purposes: list[str]
    rates: list[float | None]
    """Units/s; None for a trial that failed, was not rated, or did other work than the rest."""
    failed: dict[int, str]
    """How it failed, by position."""
    original: float | None
    """Mean units/s of the baseline runs."""

    @property
    def best_so_far(self) -> list[float | None]:
        """Largest rate until each trial, among those that may be set side by side."""
        best: list[float | None] = []
        for rate, purpose in zip(self.rates, self.purposes, strict=True):
            new = rate if purpose in MEANT else None
            known = [r for r in (new, best[-1] if best else None) if r is not None]
            best.append(max(known, default=None))
        return best

    @property
    def alt(self) -> str:
        rated = [rate for rate in self.rates if rate is not None]
        ends = "".join(f"; trial {at + 1}: {kind}" for at, kind in self.failed.items())
        return (
            f"Rates of {len(rated)} of {len(self.rates)} trials, from {numbers.number(min(rated))} "
            f"to {numbers.number(max(rated))} {self.units}/s{ends}."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityCurve:
    """One quality measure against the number of timesteps."""

    measure: str
    knob: str
    reference: float
    limit: float
    chosen: float | None
    points: dict[float, float] = field(default_factory=dict)
    """Value by number of steps; the original among them."""

    def within(self, value: float) -> bool:
        """Whether `value` is on the accepted side of the limit."""
        return value <= self.limit if self.limit >= self.reference else value >= self.limit

    @property
    def alt(self) -> str:
        told = "; ".join(
            f"{numbers.count(steps)}: {numbers.measure(value)}"
            for steps, value in sorted(self.points.items())
        )
        return f"{self.measure} by {self.knob}, limit {numbers.measure(self.limit)}. {told}."


def batch_curve(report: Report) -> BatchCurve | None:
    """None with fewer than two batch sizes that differ in nothing else."""
    groups: dict[frozenset[str], list[TrialEntry]] = {}
    names = _names(report, "batch_size")
    for trial in report.trials:
        if trial.purpose in SEARCHED:
            rest = frozenset(
                t for t in _tokens(trial.label) if leaf_of(t.split("=")[0]) not in names
            )
            groups.setdefault(rest, []).append(trial)

    curves = [_batch_curve(report, trials, rest) for rest, trials in groups.items()]
    best = max(curves, key=lambda curve: len(curve.rates), default=None)
    return best if best and len(best.rates) > 1 else None


def _batch_curve(report: Report, trials: list[TrialEntry], rest: frozenset[str]) -> BatchCurve:
    rates: dict[float, list[float]] = {}
    memory: dict[float, float] = {}
    failed: dict[float, str] = {}
    for trial in trials:
        batch = trial.batch or _asked(report, "batch_size", trial.label)
        if not batch:
            continue
        if trial.outcome != "ok":
            failed[batch] = trial.outcome
        elif trial.units_per_s is not None:
            rates.setdefault(batch, []).append(trial.units_per_s)
            if trial.peak_mem_gib is not None:
                memory[batch] = max(trial.peak_mem_gib, memory.get(batch, 0.0))
    side = report.after if report.changes else report.before
    moved = {change.path for change in report.changes}
    return BatchCurve(
        units=numbers.plural(report.unit),
        rates=rates,
        memory_gib=memory,
        failed={batch: kind for batch, kind in failed.items() if batch not in rates},
        beside=", ".join(sorted(rest)) or ("all else as it was" if len(moved) > 1 else ""),
        chosen=side.batch if side.batch in rates else None,
        noise_band=report.noise_band,
        memory_limit_gib=report.target.memory_limit_gib if report.target else None,
    )


def time_split(report: Report) -> TimeSplit | None:
    """None where no shares were measured."""
    names = ("before", "after") if report.changes else ("as it is",)
    bars = {
        name: parts
        for name, side in zip(names, (report.before, report.after), strict=False)
        if (parts := _parts(side))
    }
    return TimeSplit(unit=report.unit, bars=bars) if bars else None


def _parts(side: Side) -> dict[str, float]:
    if not side.units_per_s:
        return {}
    seconds = 1 / side.units_per_s
    known = [name for name in view.SHARES if name in side.shares]
    rest = sorted(set(side.shares) - set(known))
    return {
        view.SHARES.get(name, name.replace("_", " ")): side.shares[name] * seconds
        for name in known + rest
        if side.shares[name] > 0
    }


def trial_series(report: Report) -> TrialSeries | None:
    """None with fewer than three rates: two are no series."""
    rates = [
        trial.units_per_s if trial.outcome == "ok" and trial.purpose in SAME_WORK else None
        for trial in report.trials
    ]
    if sum(rate is not None for rate in rates) < 3:
        return None
    base = [
        trial.units_per_s
        for trial in report.trials
        if trial.purpose == "baseline" and trial.outcome == "ok" and trial.units_per_s is not None
    ]
    return TrialSeries(
        units=numbers.plural(report.unit),
        purposes=[trial.purpose for trial in report.trials],
        rates=rates,
        failed={at: t.outcome for at, t in enumerate(report.trials) if t.outcome != "ok"},
        original=fmean(base) if base else None,
    )


def quality_curves(report: Report) -> list[QualityCurve]:
    """One curve a measure that was taken at two or more numbers of timesteps."""
    knobs = [d for d in report.decisions if d.kind == "timesteps"]
    if not knobs:
        return []
    original = _number(knobs[0].from_)
    chosen = next((_number(c.to) for c in report.changes if c.kind == "timesteps"), original)
    curves: dict[str, QualityCurve] = {}
    for point in report.quality:
        curve = curves.setdefault(
            point.measure,
            QualityCurve(
                measure=point.measure,
                knob=leaf_of(knobs[0].path),
                reference=point.reference,
                limit=point.limit,
                chosen=chosen,
                points={} if original is None else {original: point.reference},
            ),
        )
        steps = _asked(report, "timesteps", point.candidate)
        if steps is not None and point.value is not None:
            curve.points[steps] = point.value
    return [curve for curve in curves.values() if len(curve.points) > 1]


def _asked(report: Report, kind: str, label: str) -> float | None:
    """The value of the first knob of `kind` in a candidate's label; the original's by default."""
    names = _names(report, kind)
    for token in _tokens(label):
        name, _, spelled = token.partition("=")
        if leaf_of(name) in names:
            try:
                return _number(json.loads(spelled))
            except ValueError:
                return None
    tuned = (d for d in report.decisions if d.kind == kind and d.outcome != "skipped")
    return next((_number(decision.from_) for decision in tuned), None)


def _names(report: Report, kind: str) -> set[str]:
    decided = {leaf_of(entry.path) for entry in report.decisions if entry.kind == kind}
    return decided | {leaf_of(change.path) for change in report.changes if change.kind == kind}


def _tokens(label: str) -> Iterator[str]:
    return (token for token in label.split() if "=" in token)


def _number(value: object) -> float | None:
    return float(value) if is_number(value) else None

"""SVG of throughput and memory by batch, and of rounds, for white and dark pages."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import Environment, FileSystemLoader, Template

from advisor import numbers
from advisor.report.markdown import one_line
from advisor.report.schema import ComparisonEntry, Report, TrialEntry

NAMES = ("batch", "rounds")
"""File names of the figures."""
COMPARABLE = ("baseline", "search", "confirm", "effects")
"""Purposes of trials with comparable throughputs."""
TEMPLATES = [folder / "templates" for folder in Path(__file__).resolve().parents[1:3]]
"""Of the package, or else of the source tree."""

MOST_TICKS = 5
NEAR = 4.0
"""A limit so many times the highest peak is not drawn."""


def template(name: str) -> Template:
    """Template that escapes every text."""
    loader = FileSystemLoader(TEMPLATES)
    return Environment(loader=loader, autoescape=True, trim_blocks=True).get_template(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Trials by batch size that share all other settings."""

    beside: str
    """Other settings, where not the original's: `workers 8`."""
    trials: tuple[TrialEntry, ...]

    @property
    def alt(self) -> str:
        """The figure in words."""
        beside = f", with {self.beside}" if self.beside else ""
        return f"Throughput and peak memory by batch size{beside}"

    def by_batch(self, name: str) -> dict[float, list[float]]:
        """Values of a field of the trials, by batch size."""
        found: dict[float, list[float]] = {}
        for trial in sorted(self.trials, key=lambda trial: trial.batch or 0.0):
            value = getattr(trial, name)
            if trial.batch and value is not None:
                found.setdefault(trial.batch, []).append(value)
        return found


def batch_curve(report: Report) -> Curve | None:
    """The curve with the most batch sizes; None without two."""
    groups: dict[str, list[TrialEntry]] = {}
    for trial in report.trials:
        if trial.purpose in COMPARABLE and trial.whatif is None and trial.batch:
            words = trial.label.split(" · ")
            beside = " · ".join(
                w for w in words if "batch" not in w.split() and w != "original"
            )
            groups.setdefault(beside, []).append(trial)
    curves = [
        Curve(beside=beside, trials=tuple(trials)) for beside, trials in groups.items()
    ]
    sizes = [len(curve.by_batch("units_per_s")) for curve in curves]
    return curves[sizes.index(max(sizes))] if max(sizes, default=0) > 1 else None


def draw(report: Report) -> dict[str, bytes]:
    """SVG of each figure by name, the same bytes for the same report."""
    drawn = {"batch": draw_batches(report), "rounds": draw_rounds(report)}
    return {name: f"{svg}\n".encode() for name, svg in drawn.items() if svg}


def draw_batches(report: Report) -> str | None:
    curve = batch_curve(report)
    if curve is None:
        return None
    rates, peaks = curve.by_batch("units_per_s"), curve.by_batch("peak_mem_gib")
    failures = {
        t.batch: t.outcome for t in curve.trials if t.batch and t.batch not in rates
    }
    chosen = (report.after if report.changes else report.before).batch
    panels = [panel(f"throughput, {numbers.plural(report.unit)}/s", rates, median)]
    if peaks:
        limit, highest = report.memory_limit_gib, max(map(max, peaks.values()))
        is_near = limit is not None and limit < NEAR * highest
        title = f"peak memory, GiB{'; the dashed line is the limit' if is_near else ''}"
        panels.append(panel(title, peaks, max, limit if is_near else None))
    notes = [
        "batch size",
        curve.beside,
        "the ring is the chosen size" if chosen in rates else "",
    ]
    notes += [f"x: {failure}" for failure in dict.fromkeys(failures.values())]
    return template("batch.svg.j2").render(
        panels=panels,
        places=across(sorted({*rates, *failures})),
        failures=failures,
        chosen=chosen,
        count=numbers.count,
        caption=one_line("; ".join(filter(None, notes))),
        title=one_line(curve.alt),
    )


def compared(report: Report) -> ComparisonEntry | None:
    """First comparison of two rounds or more."""
    return next((each for each in report.comparisons if len(each.rounds) > 1), None)


def alt_of(comparison: ComparisonEntry) -> str:
    """Alternative text of the figure of rounds."""
    return f"Rounds of {comparison.after} against {comparison.before}"


def draw_rounds(report: Report) -> str | None:
    found = compared(report)
    if found is None:
        return None
    highest = 1.15 * max(max(each.before, each.after) for each in found.rounds) or 1.0
    notes = [f"round; blue: {found.after}, grey: {found.before}"]
    notes += ["hollow: not counted"] * any(not each.counted for each in found.rounds)
    return template("rounds.svg.j2").render(
        heading=one_line(report.objective_unit),
        rounds=found.rounds,
        highest=highest,
        ticks=[(tick / highest, numbers.measure(tick)) for tick in ticks(highest)],
        caption=one_line("; ".join(notes)),
        title=one_line(alt_of(found)),
    )


def across(batches: Sequence[float]) -> dict[float, float]:
    """Place of each batch size from 0 to 1, by its logarithm."""
    first, last = math.log(batches[0]), math.log(batches[-1])
    return {each: (math.log(each) - first) / (last - first) for each in batches}


def panel(
    title: str,
    values: Mapping[float, Sequence[float]],
    typical: Callable[[Sequence[float]], float],
    limit: float | None = None,
) -> dict[str, Any]:
    """Points of one panel by batch size, as shares of its height."""
    highest = 1.15 * max(limit or 0.0, *map(max, values.values())) or 1.0
    return {
        "title": one_line(title),
        "ticks": [(tick / highest, numbers.measure(tick)) for tick in ticks(highest)],
        "line": {batch: typical(each) / highest for batch, each in values.items()},
        "dots": [
            (batch, each / highest) for batch, found in values.items() for each in found
        ],
        "limit": limit and limit / highest,
    }


def ticks(highest: float) -> list[float]:
    """A few round numbers from zero to `highest`."""
    power = 10.0 ** math.floor(math.log10(highest / MOST_TICKS))
    step = next(power * n for n in (1, 2, 5, 10) if highest / (power * n) <= MOST_TICKS)
    return [step * n for n in range(int(highest / step) + 1)]

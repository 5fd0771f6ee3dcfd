"""Figures of a report, as SVG.

matplotlib is imported only to draw.

Backgrounds are transparent and colours are mid-tones: one file reads well on white and on dark
pages.
"""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from advisor import numbers
from advisor.report.markdown import clip

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from advisor.report.schema import ComparisonEntry, Report, TrialEntry

FILES = ("batch.svg", "rounds.svg")
"""Every name that a figure can have."""
COMPARABLE = ("baseline", "search", "confirm", "effects")
"""Purposes of trials whose throughputs may be compared."""
MOST_COMPARED = 2
LONGEST_LABEL = 36

INK = "#717882"
ACCENT = "#2c7ac9"
BAD = "#d54343"

_STYLE: dict[Any, Any] = {
    "savefig.facecolor": "none",
    "axes.facecolor": "none",
    "text.parse_math": False,
    "svg.hashsalt": "gpu-advisor",
    "svg.fonttype": "path",
    "font.family": ["DejaVu Sans"],  # comes with matplotlib
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.markersize": 4,
    "lines.linewidth": 1.5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure that a report has data for."""

    file: str
    alt: str
    height: float
    """Inches; every figure is 7.2 inches wide."""
    paint: Callable[[Canvas], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCurve:
    """Throughput and memory against batch size, all else equal."""

    units: str
    beside: str
    """Settings that all of these runs share: `workers 1`."""
    rates: dict[float, list[float]]
    """Units/s of each run, by batch size."""
    memory_gib: dict[float, float]
    """Largest peak, by batch size."""
    failed: dict[float, str]
    """Kind of failure, by batch size."""
    chosen: float | None
    noise: float | None
    memory_limit_gib: float | None

    @property
    def means(self) -> dict[float, float]:
        """Mean units/s by batch size, ascending."""
        return {batch: fmean(self.rates[batch]) for batch in sorted(self.rates)}

    @property
    def alt(self) -> str:
        points = "; ".join(
            f"{numbers.count(batch)}: {numbers.number(rate)} {self.units}/s"
            + (f", {numbers.gib(self.memory_gib[batch])}" if batch in self.memory_gib else "")
            for batch, rate in self.means.items()
        )
        ends = "".join(f"; {numbers.count(batch)}: {kind}" for batch, kind in self.failed.items())
        beside = f", with {self.beside}" if self.beside else ""
        return f"Throughput and peak memory by batch size{beside}. {points}{ends}."


def plan(report: Report) -> tuple[Figure, ...]:
    """Figures with data in `report`, in reading order."""
    found: list[Figure] = []
    if curve := batch_curve(report):
        height = 3.9 if curve.memory_gib else 2.4
        paint = partial(_paint_batch, curve=curve)
        found.append(Figure(file="batch.svg", alt=curve.alt, height=height, paint=paint))
    confirmed = [each for each in report.comparisons if each.rounds and each.purpose == "confirm"]
    if compared := confirmed[:MOST_COMPARED]:
        unit = report.objective_unit or f"{numbers.plural(report.unit)}/s"
        paint = partial(_paint_rounds, compared=compared, unit=unit)
        alt = f"Rounds of the comparison, {unit}. {_rounds_text(compared)}."
        found.append(Figure(file="rounds.svg", alt=alt, height=2.4, paint=paint))
    return tuple(found)


def draw(report: Report) -> dict[str, bytes] | None:
    """Draw each figure as SVG, by file name.

    None where matplotlib is not installed. The same report and the same matplotlib give the same
    bytes.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        return None
    drawn = {}
    for figure in plan(report):
        with mpl.rc_context(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # a box stands for it
            mpl.rcdefaults()  # a matplotlibrc of the user's must not change the bytes
            mpl.rcParams.update(_STYLE)
            canvas = Canvas(figsize=(7.2, figure.height), layout="constrained")
            figure.paint(canvas)
            svg = io.BytesIO()
            facts = {"Date": None, "Creator": "gpu-advisor", "Title": figure.alt}
            canvas.savefig(svg, format="svg", metadata=facts)
            drawn[figure.file] = svg.getvalue()
    return drawn


# --- data ---------------------------------------------------------------------------------


def batch_curve(report: Report) -> BatchCurve | None:
    """Batch curve with the most sizes; None without two comparable ones."""
    groups: dict[str, list[TrialEntry]] = {}
    for trial in report.trials:
        if trial.purpose in COMPARABLE and trial.whatif is None and trial.batch:
            words = trial.label.split(" · ")
            rest = " · ".join(w for w in words if "batch" not in w.split() and w != "original")
            groups.setdefault(rest, []).append(trial)
    curves = [_curve(report, trials, rest) for rest, trials in groups.items()]
    best = max(curves, key=lambda curve: len(curve.rates), default=None)
    return best if best and len(best.rates) > 1 else None


def _curve(report: Report, trials: list[TrialEntry], rest: str) -> BatchCurve:
    rates: dict[float, list[float]] = {}
    memory: dict[float, float] = {}
    for trial in trials:
        if trial.outcome == "ok" and trial.batch and trial.units_per_s is not None:
            rates.setdefault(trial.batch, []).append(trial.units_per_s)
            if trial.peak_mem_gib is not None:
                memory[trial.batch] = max(trial.peak_mem_gib, memory.get(trial.batch, 0.0))
    side = report.after if report.changes else report.before
    ended = {trial.batch or 0.0: trial.outcome for trial in trials if trial.outcome != "ok"}
    return BatchCurve(
        units=numbers.plural(report.unit),
        beside=rest,
        rates=rates,
        memory_gib=memory,
        failed={batch: kind for batch, kind in ended.items() if batch not in rates},
        chosen=side.batch if side.batch in rates else None,
        noise=report.noise,
        memory_limit_gib=report.target.memory_limit_gib if report.target else None,
    )


def _rounds_text(compared: list[ComparisonEntry]) -> str:
    """Range of the scores of each variant."""
    parts = []
    for each in compared:
        for side in ("before", "after"):
            scores = [getattr(entry, side) for entry in each.rounds]
            bounds = f"{numbers.number(min(scores))} to {numbers.number(max(scores))}"
            parts.append(f"{getattr(each, side)}: {bounds}")
    return "; ".join(parts)


# --- drawing ------------------------------------------------------------------------------


def _paint_batch(canvas: Canvas, *, curve: BatchCurve) -> None:
    panels = canvas.subplots(2 if curve.memory_gib else 1, 1, sharex=True, squeeze=False)[:, 0]
    batches = sorted({*curve.rates, *curve.failed})
    means = curve.means
    best = max(means.values())
    title = f"throughput, {curve.units}/s"
    if curve.noise:
        panels[0].axhspan(best * (1 - curve.noise), best, color=ACCENT, alpha=0.14, linewidth=0)
        title += f"; the band is the noise of equal runs ({numbers.percent(curve.noise)})"
    panels[0].set_title(title)
    panels[0].plot(list(means), list(means.values()), color=ACCENT)
    for batch, runs in curve.rates.items():
        panels[0].plot([batch] * len(runs), runs, "o", color=ACCENT)
    highest = max(max(runs) for runs in curve.rates.values())
    panels[0].set_ylim(0, 1.15 * highest)
    panels[0].plot([*curve.failed], [0.05 * highest] * len(curve.failed), "x", color=BAD)
    _ring(panels[0], means, curve.chosen, ACCENT)
    if curve.memory_gib:
        _paint_memory(panels[1], curve)
    for panel in panels:
        panel.set_xscale("log", base=2)
        panel.set_xticks(batches, [numbers.count(batch) for batch in batches])
        panel.minorticks_off()
        panel.grid(axis="y")
        panel.margins(x=0.06)
    notes = [curve.beside] if curve.beside else []
    notes += ["the ring is the chosen size"] if curve.chosen else []
    notes += [f"x: {', '.join(dict.fromkeys(curve.failed.values()))}"] if curve.failed else []
    panels[-1].set_xlabel(f"batch size ({'; '.join(notes)})" if notes else "batch size")


def _paint_memory(axes: Axes, curve: BatchCurve) -> None:
    peaks, limit = dict(sorted(curve.memory_gib.items())), curve.memory_limit_gib
    axes.plot(list(peaks), list(peaks.values()), "o-", color=INK)
    top, title = max(peaks.values()), "peak memory, GiB"
    if limit is not None and limit < top * 4:
        top, title = max(top, limit), f"{title}; the dashed line is the limit"
        axes.axhline(limit, color=BAD, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_ylim(0, top * 1.15)
    axes.set_title(title)
    _ring(axes, peaks, curve.chosen, INK)


def _ring(axes: Axes, points: dict[float, float], chosen: float | None, colour: str) -> None:
    if chosen in points:
        axes.plot([chosen], [points[chosen]], "o", ms=9, mfc="none", mec=colour, mew=1.6)


def _paint_rounds(canvas: Canvas, *, compared: list[ComparisonEntry], unit: str) -> None:
    panels = canvas.subplots(1, len(compared), sharey=True, squeeze=False)[0]
    top = max(max(entry.before, entry.after) for each in compared for entry in each.rounds)
    for axes, each in zip(panels, compared, strict=True):
        rounds = [entry.round for entry in each.rounds]
        for side, colour in (("before", INK), ("after", ACCENT)):
            scores = [getattr(entry, side) for entry in each.rounds]
            label = clip(getattr(each, side), LONGEST_LABEL)
            axes.plot(rounds, scores, color=colour, label=label)
            for entry, score in zip(each.rounds, scores, strict=True):
                fill = colour if entry.counted else "none"
                axes.plot([entry.round], [score], "o", color=colour, mfc=fill)
        axes.set_ylim(-0.45 * top, top * 1.1)
        axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= top * 1.1])
        axes.legend(loc="lower left", ncols=1, fontsize=8)
        axes.set_xticks(rounds)
        axes.set_xlabel("round; hollow points are not counted")
        axes.grid(axis="y")
    panels[0].set_title(f"rounds of the comparison, {unit}")

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
from typing import TYPE_CHECKING, Any, NamedTuple

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
    "font.family": ["DejaVu Sans"],  # comes with matplotlib
    "font.size": 9,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color", "grid.color"), INK),
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.markersize": 4,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure that a report has data for."""

    file: str
    alt: str
    height: float
    """Inches; every figure is 7.2 inches wide."""
    paint: Callable[[Canvas], None]


class Point(NamedTuple):
    """Runs of one batch size, all else equal."""

    batch: float
    rates: tuple[float, ...]
    """Units/s of each run."""
    peak_gib: float | None
    """Largest peak."""
    failure: str
    """Kind of failure where no run ended well."""


def plan(report: Report) -> tuple[Figure, ...]:
    """Figures with data in `report`, in reading order."""
    found: list[Figure] = []
    beside, points = batch_curve(report)
    if points:
        height = 3.9 if any(point.peak_gib for point in points) else 2.4
        paint = partial(_paint_batch, report=report, beside=beside, points=points)
        alt = f"Throughput and peak memory by batch size{beside and f', with {beside}'}"
        found.append(Figure(file="batch.svg", alt=alt, height=height, paint=paint))
    confirmed = [each for each in report.comparisons if each.rounds and each.purpose == "confirm"]
    if compared := confirmed[:MOST_COMPARED]:
        unit = report.objective_unit or f"{numbers.plural(report.unit)}/s"
        paint = partial(_paint_rounds, compared=compared, unit=unit)
        alt = f"Rounds of the comparison, {unit}"
        found.append(Figure(file="rounds.svg", alt=alt, height=2.4, paint=paint))
    return tuple(found)


def draw(report: Report) -> dict[str, bytes]:
    """Draw each figure as SVG, by file name.

    None is drawn where matplotlib is not installed. The same report and the same matplotlib give
    the same bytes.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        return {}
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


def batch_curve(report: Report) -> tuple[str, list[Point]]:
    """Settings beside the batch, and the points by batch size.

    Runs that share all other settings are compared. No points without two sizes.
    """
    groups: dict[str, dict[float, list[TrialEntry]]] = {}
    for trial in report.trials:
        if trial.purpose in COMPARABLE and trial.whatif is None and trial.batch:
            words = trial.label.split(" · ")
            rest = " · ".join(w for w in words if "batch" not in w.split() and w != "original")
            groups.setdefault(rest, {}).setdefault(trial.batch, []).append(trial)
    curves = {
        rest: [_point(batch, sizes[batch]) for batch in sorted(sizes)]
        for rest, sizes in groups.items()
    }
    sizes = {rest: sum(bool(point.rates) for point in points) for rest, points in curves.items()}
    best = max(sizes, key=lambda rest: sizes[rest], default="")
    return (best, curves[best]) if sizes.get(best, 0) > 1 else ("", [])


def _point(batch: float, trials: list[TrialEntry]) -> Point:
    rates = tuple(trial.units_per_s for trial in trials if trial.units_per_s is not None)
    peaks = [trial.peak_mem_gib for trial in trials if trial.peak_mem_gib is not None]
    failure = "" if rates else trials[-1].outcome
    return Point(batch, rates, max(peaks, default=None), failure)


# --- drawing ------------------------------------------------------------------------------


def _paint_batch(canvas: Canvas, *, report: Report, beside: str, points: list[Point]) -> None:
    ran = [point for point in points if point.rates]
    peaks = {point.batch: point.peak_gib for point in ran if point.peak_gib is not None}
    means = {point.batch: fmean(point.rates) for point in ran}
    panels = canvas.subplots(2 if peaks else 1, 1, sharex=True, squeeze=False)[:, 0]
    chosen = (report.after if report.changes else report.before).batch
    highest = max(max(point.rates) for point in ran)
    panels[0].set_title(f"throughput, {numbers.plural(report.unit)}/s")
    panels[0].set_ylim(0, 1.15 * highest)
    _line(panels[0], means, chosen, ACCENT)
    for point in ran:
        panels[0].plot([point.batch] * len(point.rates), point.rates, "o", color=ACCENT)
    failed = [point for point in points if point.failure]
    panels[0].plot([p.batch for p in failed], [0.05 * highest] * len(failed), "x", color=BAD)
    if peaks:
        limit = report.target.memory_limit_gib if report.target else None
        top, title = max(peaks.values()), "peak memory, GiB"
        if limit is not None and limit < top * 4:
            top, title = max(top, limit), f"{title}; the dashed line is the limit"
            panels[1].axhline(limit, color=BAD, linewidth=1, linestyle=(0, (4, 3)))
        panels[1].set_ylim(0, top * 1.15)
        panels[1].set_title(title)
        _line(panels[1], peaks, chosen, INK)
    for panel in panels:
        panel.set_xscale("log", base=2)
        panel.set_xticks([p.batch for p in points], [numbers.count(p.batch) for p in points])
        panel.minorticks_off()
        panel.grid(axis="y")
    notes = [beside, "the ring is the chosen size" if chosen in means else ""]
    notes += [f"x: {failed[0].failure}"] if failed else []
    panels[-1].set_xlabel("; ".join(filter(None, ("batch size", *notes))))


def _line(axes: Axes, points: dict[float, float], chosen: float | None, colour: str) -> None:
    """Points in a line, with a ring around the chosen one."""
    axes.plot(list(points), list(points.values()), "o-", color=colour)
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

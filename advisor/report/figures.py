"""Figure of a report, as SVG: throughput and memory by batch size.

matplotlib is imported only to draw.

Backgrounds are transparent and colours are mid-tones: one file reads well on white and on dark
pages.
"""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from advisor import numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from advisor.report.schema import Report, TrialEntry

FILE = "batch.svg"
COMPARABLE = ("baseline", "search", "confirm", "effects")
"""Purposes of trials whose throughputs may be compared."""

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
    "lines.markersize": 4,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Runs of one batch size, all else equal."""

    batch: float
    rates: tuple[float, ...]
    """Units/s of each run."""
    peak_gib: float | None
    """Largest peak."""
    failure: str
    """Kind of failure where no run ended well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Runs by batch size that share all other settings."""

    beside: str
    """The other settings, where they are not the original's: `workers 8`."""
    points: tuple[Point, ...]

    @property
    def alt(self) -> str:
        """The figure in words."""
        beside = f", with {self.beside}" if self.beside else ""
        return f"Throughput and peak memory by batch size{beside}"


def batch_curve(report: Report) -> Curve | None:
    """The curve with the most batch sizes; None without two."""
    groups: dict[str, dict[float, list[TrialEntry]]] = {}
    for trial in report.trials:
        if trial.purpose in COMPARABLE and trial.whatif is None and trial.batch:
            words = trial.label.split(" · ")
            rest = " · ".join(w for w in words if "batch" not in w.split() and w != "original")
            groups.setdefault(rest, {}).setdefault(trial.batch, []).append(trial)
    best: Curve | None = None
    most = 1
    for rest, trials in groups.items():
        points = tuple(_point(batch, trials[batch]) for batch in sorted(trials))
        sizes = sum(bool(point.rates) for point in points)
        if sizes > most:
            best, most = Curve(beside=rest, points=points), sizes
    return best


def _point(batch: float, trials: list[TrialEntry]) -> Point:
    rates = tuple(trial.units_per_s for trial in trials if trial.units_per_s is not None)
    peaks = [trial.peak_mem_gib for trial in trials if trial.peak_mem_gib is not None]
    failure = "" if rates else trials[-1].outcome
    return Point(batch=batch, rates=rates, peak_gib=max(peaks, default=None), failure=failure)


# --- drawing ------------------------------------------------------------------------------


def draw(report: Report) -> bytes | None:
    """Draw the curve as SVG; None without one, or without matplotlib.

    The same report and the same matplotlib give the same bytes.
    """
    curve = batch_curve(report)
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        return None
    if curve is None:
        return None
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a box stands for it
        mpl.rcdefaults()  # a matplotlibrc of the user's must not change the bytes
        mpl.rcParams.update(_STYLE)
        height = 3.9 if any(point.peak_gib for point in curve.points) else 2.4
        canvas = Figure(figsize=(7.2, height), layout="constrained")
        _paint(canvas, report, curve)
        svg = io.BytesIO()
        facts = {"Date": None, "Creator": "gpu-advisor", "Title": curve.alt}
        canvas.savefig(svg, format="svg", metadata=facts)
        return svg.getvalue()


def _paint(canvas: Figure, report: Report, curve: Curve) -> None:
    points = curve.points
    ran = [point for point in points if point.rates]
    failed = [point for point in points if point.failure]
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
    notes = [curve.beside, "the ring is the chosen size" if chosen in means else ""]
    notes += [f"x: {failed[0].failure}"] if failed else []
    panels[-1].set_xlabel("; ".join(filter(None, ("batch size", *notes))))


def _line(axes: Axes, points: dict[float, float], chosen: float | None, colour: str) -> None:
    """Points in a line, with a ring around the chosen one."""
    axes.plot(list(points), list(points.values()), "o-", color=colour)
    if chosen in points:
        axes.plot([chosen], [points[chosen]], "o", ms=9, mfc="none", mec=colour, mew=1.6)

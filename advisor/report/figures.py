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
class Curve:
    """Trials by batch size that share all other settings."""

    beside: str
    """The other settings, where they are not the original's: `workers 8`."""
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
            beside = " · ".join(w for w in words if "batch" not in w.split() and w != "original")
            groups.setdefault(beside, []).append(trial)
    curves = [Curve(beside=beside, trials=tuple(trials)) for beside, trials in groups.items()]
    sizes = [len(curve.by_batch("units_per_s")) for curve in curves]
    return curves[sizes.index(max(sizes))] if max(sizes, default=0) > 1 else None


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
        height = 3.9 if curve.by_batch("peak_mem_gib") else 2.4
        canvas = Figure(figsize=(7.2, height), layout="constrained")
        _paint(canvas, report, curve)
        svg = io.BytesIO()
        facts = {"Date": None, "Creator": "gpu-advisor", "Title": curve.alt}
        canvas.savefig(svg, format="svg", metadata=facts)
        return svg.getvalue()


def _paint(canvas: Figure, report: Report, curve: Curve) -> None:
    rates, peaks = curve.by_batch("units_per_s"), curve.by_batch("peak_mem_gib")
    failures = {t.batch: t.outcome for t in curve.trials if t.batch and t.batch not in rates}
    chosen = (report.after if report.changes else report.before).batch
    limit = report.memory_limit_gib
    batches = sorted({*rates, *failures})
    shown: dict[str, tuple[Any, ...]] = {
        f"throughput, {numbers.plural(report.unit)}/s": (rates, fmean, ACCENT),
        "peak memory, GiB": (peaks, max, INK),
    }
    panels = canvas.subplots(2 if peaks else 1, 1, sharex=True, squeeze=False)[:, 0]
    for panel, (title, (values, typical, colour)) in zip(panels, shown.items(), strict=False):
        panel.set_title(title)
        points = {batch: typical(each) for batch, each in values.items()}
        highest = max(map(max, values.values()))
        panel.plot(list(points), list(points.values()), "-", color=colour)
        for batch, each in values.items():
            panel.plot([batch] * len(each), each, "o", color=colour)
        if chosen in points:
            panel.plot([chosen], [points[chosen]], "o", ms=9, mfc="none", mec=colour, mew=1.6)
        if values is rates:
            panel.plot(list(failures), [0.05 * highest] * len(failures), "x", color=BAD)
        elif limit is not None and limit < highest * 4:
            highest = max(highest, limit)
            panel.set_title(f"{title}; the dashed line is the limit")
            panel.axhline(limit, color=BAD, linewidth=1, linestyle=(0, (4, 3)))
        panel.set_ylim(0, 1.15 * highest)
        panel.set_xscale("log", base=2)
        panel.set_xticks(batches, [numbers.count(batch) for batch in batches])
        panel.minorticks_off()
        panel.grid(axis="y")
    notes = ["batch size", curve.beside, "the ring is the chosen size" if chosen in rates else ""]
    notes += [f"x: {failure}" for failure in dict.fromkeys(failures.values())]
    panels[-1].set_xlabel("; ".join(filter(None, notes)))

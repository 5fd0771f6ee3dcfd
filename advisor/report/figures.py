"""Figures of a report, as SVG files. matplotlib is imported only here, and only to draw.

Backgrounds are transparent and every colour is a mid-tone, so that one file reads well on a
white page and on GitHub's dark one (#0d1117).
"""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from advisor import numbers
from advisor.report import curves

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from advisor.report.model import Report

FILES = ("batch.svg", "time.svg", "quality.svg", "trials.svg")
"""Every name that a figure can have."""

INK = "#717882"
ACCENT = "#2c7ac9"
BAD = "#d54343"
PARTS = {
    "waiting for data": "#b6611a",
    "copy to device": "#1e857c",
    "compute": ACCENT,
    "launching kernels": "#7a7e16",
    "waiting for the GPU": "#c05861",
    "sampling": "#8a63c9",
    "validation": "#b5549c",
    "saving": "#48863a",
    "host code between steps": INK,
}
"""Colour of each part of a unit's time, as `view.SHARES` calls it."""

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
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure that a report has data for."""

    file: str
    alt: str
    height: float
    """Inches; all figures are 7.2 inches wide."""
    paint: Callable[[Canvas], None]


def plan(report: Report) -> tuple[Figure, ...]:
    """The figures that `report` has data for, in the order of reading."""
    found: list[Figure] = []
    if batch := curves.batch_curve(report):
        paint = _painter(_paint_batch, batch)
        height = 3.9 if batch.memory_gib else 2.4
        found.append(Figure(file="batch.svg", alt=batch.alt, height=height, paint=paint))
    if split := curves.time_split(report):
        paint = _painter(_paint_time, split)
        height = 0.9 + 0.65 * len(split.bars)
        found.append(Figure(file="time.svg", alt=split.alt, height=height, paint=paint))
    if quality := curves.quality_curves(report):
        alt = " ".join(curve.alt for curve in quality)
        paint = _painter(_paint_quality, quality)
        found.append(
            Figure(file="quality.svg", alt=alt, height=0.5 + 1.9 * len(quality), paint=paint)
        )
    if series := curves.trial_series(report):
        paint = _painter(_paint_trials, series)
        found.append(Figure(file="trials.svg", alt=series.alt, height=2.8, paint=paint))
    return tuple(found)


def draw(report: Report) -> dict[str, bytes] | None:
    """SVG by file name, of what `plan` names; None where matplotlib is not installed.

    The same report and the same matplotlib give the same bytes.
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


def _painter(paint: Callable[[Canvas, Any], None], data: Any) -> Callable[[Canvas], None]:
    return lambda canvas: paint(canvas, data)


def _paint_batch(canvas: Canvas, curve: curves.BatchCurve) -> None:
    panels = canvas.subplots(2 if curve.memory_gib else 1, 1, sharex=True, squeeze=False)[:, 0]
    batches = sorted({*curve.rates, *curve.failed})
    rate, means = panels[0], curve.means

    best = max(means.values())
    if curve.noise_band:
        rate.axhspan(best * (1 - curve.noise_band), best, color=ACCENT, alpha=0.14, linewidth=0)
        chosen = curve.chosen
        crowded = chosen in batches[:2] and means[chosen] == best and chosen != batches[-1]
        _note(
            rate,
            (batches[-1 if crowded else 0], best),
            f"within noise of the best ({numbers.percent(curve.noise_band)})",
            ha="right" if crowded else "left",
        )
    rate.plot(list(means), list(means.values()), color=ACCENT, linewidth=1.6)
    for batch, runs in curve.rates.items():
        rate.plot([batch] * len(runs), runs, "o", color=ACCENT, markersize=4)
    rate.set_ylim(0, max(best * 1.22, *(1.08 * max(runs) for runs in curve.rates.values())))
    rate.set_title(f"{curve.units}/s")
    if curve.chosen is not None:
        _choose(rate, means, curve.chosen, numbers.number)
    _mark_failures(rate, curve.failed)

    if curve.memory_gib:
        memory, peaks = panels[1], dict(sorted(curve.memory_gib.items()))
        memory.plot(list(peaks), list(peaks.values()), "o-", color=INK, linewidth=1.6, markersize=4)
        top = max(peaks.values())
        limit = curve.memory_limit_gib
        if limit is not None and limit < top * 4:
            top = max(top, limit)
            memory.axhline(limit, color=BAD, linewidth=1, linestyle=(0, (4, 3)))
            _beside(memory, limit, f"limit {numbers.gib(limit)}", colour=BAD)
        memory.set_ylim(0, top * 1.25)
        memory.set_title("peak memory, GiB")
        if curve.chosen in peaks:
            _choose(memory, peaks, curve.chosen, numbers.gib, colour=INK)
    for panel in panels:
        panel.set_xscale("log", base=2)
        panel.set_xticks(batches, [numbers.count(batch) for batch in batches])
        panel.minorticks_off()
        panel.grid(axis="y")
        panel.margins(x=0.06)
    panels[-1].set_xlabel("batch size" + f" ({curve.beside})" * bool(curve.beside))


def _paint_time(canvas: Canvas, split: curves.TimeSplit) -> None:
    axes = canvas.subplots()
    longest = max(sum(parts.values()) for parts in split.bars.values())
    factor, scale = next(
        (f, name)
        for f, name in ((1e6, "us"), (1e3, "ms"), (1.0, "s"))
        if longest * f < 1000 or f == 1
    )
    gap = longest * factor * 0.002
    named: set[str] = set()
    for at, parts in enumerate(split.bars.values()):
        left, taken = 0.0, [0.0, 0.0]
        for part, seconds in parts.items():
            width = seconds * factor
            axes.barh(
                at, width - gap, left=left, height=0.52, color=PARTS.get(part, INK), linewidth=0
            )
            _name_part(axes, (at, left, width), longest * factor, part, named, taken)
            left += width
        _note(
            axes, (left, at), numbers.duration(sum(parts.values()), 3), offset=(6, 0), va="center"
        )
    axes.set_yticks(range(len(split.bars)), list(split.bars))
    axes.set_ylim(len(split.bars) - 0.45, -0.62)
    axes.set_xlim(0, longest * factor * 1.16)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_title(f"time of one {split.unit}")
    axes.set_xlabel(scale)
    axes.grid(axis="x")


def _name_part(
    axes: Axes,
    segment: tuple[int, float, float],
    longest: float,
    part: str,
    named: set[str],
    taken: list[float],
) -> None:
    """Inside the segment (bar, left, width) where it fits; else above the first thin one of its
    kind, or below it where the name of another stands above. `taken`: where the last names above
    and below this bar end."""
    at, left, width = segment
    needed = (0.0115 * len(part) + 0.015) * longest
    if width > needed:
        axes.text(left + width / 2, at, part, color="white", ha="center", va="center", fontsize=8)
    elif part not in named and width / longest > 0.015:
        free = [side for side, end in enumerate(taken) if left >= end]
        if free:
            side, offset = free[0], (-0.3, 0.3)[free[0]]
            va = ("bottom", "top")[side]
            axes.text(left, at + offset, part, color=PARTS.get(part, INK), va=va, fontsize=8)
            taken[side] = left + needed
    named.add(part)


def _paint_quality(canvas: Canvas, found: list[curves.QualityCurve]) -> None:
    panels = canvas.subplots(len(found), 1, sharex=True, squeeze=False)[:, 0]
    for axes, curve in zip(panels, found, strict=True):
        points = dict(sorted(curve.points.items()))
        axes.margins(x=0.06, y=0.28)
        axes.plot(list(points), list(points.values()), color=ACCENT, linewidth=1.6)
        for steps, value in points.items():
            good = curve.within(value)
            axes.plot(
                [steps], [value], "o" if good else "x", color=ACCENT if good else BAD, markersize=5
            )
        axes.axhline(curve.limit, color=BAD, linewidth=1, linestyle=(0, (4, 3)))
        _beside(axes, curve.limit, f"limit {numbers.measure(curve.limit)}", colour=BAD)
        if curve.chosen in points:
            _choose(axes, points, curve.chosen, numbers.measure)
        axes.set_title(curve.measure)
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(points), [numbers.count(steps) for steps in points])
        axes.minorticks_off()
        axes.grid(axis="y")
    panels[-1].set_xlabel(found[0].knob)


def _paint_trials(canvas: Canvas, series: curves.TrialSeries) -> None:
    axes = canvas.subplots()
    count = len(series.rates)
    best = [(at + 1, rate) for at, rate in enumerate(series.best_so_far) if rate is not None]
    axes.step(
        [at for at, _ in best], [r for _, r in best], where="post", color=ACCENT, linewidth=1.4
    )
    rated = [(at + 1, rate) for at, rate in enumerate(series.rates) if rate is not None]
    axes.plot([at for at, _ in rated], [r for _, r in rated], "o", color=INK, markersize=4)
    top = max(rate for _, rate in rated)
    axes.set_ylim(0, top * 1.25)
    axes.set_xlim(0.5, count + 0.5)
    if best:
        _beside(axes, best[-1][1], "best so far", colour=ACCENT, va="bottom")
    if series.original is not None:
        axes.axhline(series.original, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        _beside(axes, series.original, "original", va="top")
    _mark_failures(axes, {at + 1.0: kind for at, kind in series.failed.items()})
    _mark_spans(axes, series.purposes)
    axes.set_title(f"{series.units}/s, trial by trial")
    axes.set_xlabel("trial")
    axes.set_xticks(_ticks(count))
    axes.grid(axis="y")


def _mark_spans(axes: Axes, purposes: list[str]) -> None:
    """Name each run of trials of the same purpose above the plot, where there is room."""
    start = 0
    for at in range(1, len(purposes) + 1):
        if at < len(purposes) and purposes[at] == purposes[start]:
            continue
        if start:
            axes.axvline(start + 0.5, color=INK, alpha=0.35, linewidth=0.6)
        if (at - start) / len(purposes) > 0.011 * len(purposes[start]):
            axes.text(
                (start + at + 1) / 2,
                0.985,
                purposes[start],
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="top",
                fontsize=8,
            )
        start = at


def _mark_failures(axes: Axes, failed: dict[float, str]) -> None:
    bottom, top = axes.get_ylim()
    height = bottom + (top - bottom) * 0.06
    for at, kind in failed.items():
        axes.plot([at], [height], "x", color=BAD, markersize=6, markeredgewidth=1.6)
        if len(failed) <= 3:
            _note(axes, (at, height), kind, colour=BAD, ha="center", offset=(0, 6))


def _choose(
    axes: Axes,
    points: dict[float, float],
    x: float,
    show: Callable[[float], str],
    colour: str = ACCENT,
) -> None:
    """Ring the chosen point and name it on the side that the curve leaves free."""
    y, xs = points[x], list(points)
    at = xs.index(x)
    falls_to = at > 0 and points[xs[at - 1]] > y
    rises_from = at + 1 < len(xs) and points[xs[at + 1]] > y
    low, high = axes.get_ylim()
    cramped = y < low + (high - low) * 0.2
    if cramped and low > 0 and (falls_to or rises_from):  # room below, where nought is not the end
        axes.set_ylim(max(0.0, low - (high - low) * 0.2), high)
        cramped = False
    if rises_from and not cramped:
        offset, how = (8, -13), "left"
    elif rises_from and at > 0:
        offset, how = (-8, 6), "right"
    elif falls_to and not cramped:
        offset, how = (-8, -13), "right"
    else:
        offset, how = (0, 9), {0: "left", len(xs) - 1: "right"}.get(at, "center")
    axes.plot([x], [y], "o", ms=9, mfc="none", mec=colour, mew=1.6)
    _note(axes, (x, y), f"chosen: {show(y)}", colour=colour, offset=offset, ha=how, weight="bold")


def _beside(axes: Axes, y: float, text: str, colour: str = INK, va: str = "center") -> None:
    """Name a horizontal line at its right end, outside the plot."""
    axes.annotate(
        text,
        (1.0, y),
        (4, 0),
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        color=colour,
        fontsize=8,
        va=va,
    )


def _ticks(count: int) -> list[int]:
    """1 and then round steps, about eight of them."""
    step = next((s for s in (1, 2, 5, 10, 20, 50, 100) if count / s <= 10), 200)
    return [1, *range(step, count + 1, step)] if step > 1 else list(range(1, count + 1))


def _note(
    axes: Axes,
    at: tuple[float, float],
    text: str,
    *,
    colour: str = INK,
    offset: tuple[float, float] = (0, 4),
    **how: Any,
) -> None:
    axes.annotate(text, at, offset, textcoords="offset points", color=colour, fontsize=8, **how)

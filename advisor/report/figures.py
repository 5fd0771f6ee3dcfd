"""Figures of a report, as SVG.

matplotlib is imported only to draw.

Backgrounds are transparent and colours are mid-tones: one file reads well on white and on dark
pages.
"""

from __future__ import annotations

import io
import json
import warnings
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from advisor import numbers
from advisor.config.spelling import is_number
from advisor.model import leaf_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from advisor.report.schema import ComparisonEntry, Report, TrialEntry

FILES = ("batch.svg", "rounds.svg")
"""Every name that a figure can have."""
COMPARABLE = ("baseline", "search", "confirm", "effects")
"""Purposes of trials whose throughputs may be compared."""
MOST_NAMED_FAILURES = 3

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
    """Inches; every figure is 7.2 inches wide."""
    paint: Callable[[Canvas], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCurve:
    """Throughput and memory against batch size, all else equal."""

    units: str
    rates: dict[float, list[float]]
    """Units/s of each run, by batch size."""
    memory_gib: dict[float, float]
    """Largest peak, by batch size."""
    failed: dict[float, str]
    """Kind of failure, by batch size."""
    chosen: float | None
    noise: float | None
    memory_limit_gib: float | None
    beside: str = ""
    """Settings that all of these runs share."""

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
    if compared := _compared(report):
        paint = partial(_paint_rounds, compared=compared, unit=_unit(report))
        alt = _rounds_alt(report, compared)
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
    """Batch curve; None without two comparable sizes."""
    names = _names(report, "batch_size")
    groups: dict[frozenset[str], list[TrialEntry]] = {}
    for trial in report.trials:
        if trial.purpose in COMPARABLE and trial.whatif is None:
            words = (word for word in trial.label.split() if "=" in word)
            rest = frozenset(w for w in words if leaf_of(w.split("=")[0]) not in names)
            groups.setdefault(rest, []).append(trial)
    curves = [_curve(report, trials, rest) for rest, trials in groups.items()]
    best = max(curves, key=lambda curve: len(curve.rates), default=None)
    return best if best and len(best.rates) > 1 else None


def _curve(report: Report, trials: list[TrialEntry], rest: frozenset[str]) -> BatchCurve:
    rates: dict[float, list[float]] = {}
    memory: dict[float, float] = {}
    failed: dict[float, str] = {}
    for trial in trials:
        batch = batch_of(report, trial)
        if not batch:
            continue
        if trial.outcome != "ok":
            failed[batch] = trial.outcome
        elif trial.units_per_s is not None:
            rates.setdefault(batch, []).append(trial.units_per_s)
            if trial.peak_mem_gib is not None:
                memory[batch] = max(trial.peak_mem_gib, memory.get(batch, 0.0))
    side = report.after if report.changes else report.before
    return BatchCurve(
        units=numbers.plural(report.unit),
        rates=rates,
        memory_gib=memory,
        failed={batch: kind for batch, kind in failed.items() if batch not in rates},
        beside=", ".join(sorted(rest)),
        chosen=side.batch if side.batch in rates else None,
        noise=report.noise,
        memory_limit_gib=report.target.memory_limit_gib if report.target else None,
    )


def batch_of(report: Report, trial: TrialEntry) -> float | None:
    """Batch size of a trial, observed or from its label."""
    if trial.batch:
        return trial.batch
    names = _names(report, "batch_size")
    for word in trial.label.split():
        name, _, spelled = word.partition("=")
        if spelled and leaf_of(name) in names:
            try:
                value = json.loads(spelled)
            except ValueError:
                return None
            return float(value) if is_number(value) else None
    return report.before.batch


def _names(report: Report, kind: str) -> set[str]:
    decided = {leaf_of(entry.path) for entry in report.decisions if entry.kind == kind}
    return decided | {leaf_of(change.path) for change in report.changes if change.kind == kind}


def _compared(report: Report) -> list[ComparisonEntry]:
    """Comparisons that have rounds, those of the result first."""
    found = [each for each in report.comparisons if each.rounds and each.purpose == "confirm"]
    return found[:2]


def _unit(report: Report) -> str:
    return report.objective_unit or f"{numbers.plural(report.unit)}/s"


def _rounds_alt(report: Report, compared: list[ComparisonEntry]) -> str:
    parts = [
        f"{getattr(each, side)}: {_range([getattr(entry, side) for entry in each.rounds])}"
        for each in compared
        for side in ("before", "after")
    ]
    return f"Rounds of the comparison, {_unit(report)}. {'; '.join(parts)}."


def _range(scores: list[float]) -> str:
    return f"{numbers.number(min(scores))} to {numbers.number(max(scores))}"


# --- drawing ------------------------------------------------------------------------------


def _paint_batch(canvas: Canvas, *, curve: BatchCurve) -> None:
    panels = canvas.subplots(2 if curve.memory_gib else 1, 1, sharex=True, squeeze=False)[:, 0]
    batches = sorted({*curve.rates, *curve.failed})
    _paint_throughput(panels[0], curve, batches)
    if curve.memory_gib:
        _paint_memory(panels[1], curve)
    for panel in panels:
        panel.set_xscale("log", base=2)
        panel.set_xticks(batches, [numbers.count(batch) for batch in batches])
        panel.minorticks_off()
        panel.grid(axis="y")
        panel.margins(x=0.06)
    panels[-1].set_xlabel("batch size" + f" ({curve.beside})" * bool(curve.beside))


def _paint_throughput(axes: Axes, curve: BatchCurve, batches: list[float]) -> None:
    means = curve.means
    best = max(means.values())
    if curve.noise:
        axes.axhspan(best * (1 - curve.noise), best, color=ACCENT, alpha=0.14, linewidth=0)
        shown = f"within the noise of the best ({numbers.percent(curve.noise)})"
        at_left = curve.chosen not in batches[:2]
        place = (batches[0 if at_left else -1], best)
        _note(axes, place, shown, ha="left" if at_left else "right", offset=(0, 14))
    axes.plot(list(means), list(means.values()), color=ACCENT, linewidth=1.6)
    for batch, runs in curve.rates.items():
        axes.plot([batch] * len(runs), runs, "o", color=ACCENT, markersize=4)
    axes.set_ylim(0, max(best * 1.3, *(1.08 * max(runs) for runs in curve.rates.values())))
    axes.set_title(f"throughput, {curve.units}/s")
    if curve.chosen is not None:
        _ring(axes, means, curve.chosen, numbers.number)
    _mark_failures(axes, curve.failed)


def _paint_memory(axes: Axes, curve: BatchCurve) -> None:
    peaks = dict(sorted(curve.memory_gib.items()))
    axes.plot(list(peaks), list(peaks.values()), "o-", color=INK, linewidth=1.6, markersize=4)
    top, limit = max(peaks.values()), curve.memory_limit_gib
    if limit is not None and limit < top * 4:
        top = max(top, limit)
        axes.axhline(limit, color=BAD, linewidth=1, linestyle=(0, (4, 3)))
        _beside(axes, limit, f"limit {numbers.gib(limit)}", colour=BAD)
    axes.set_ylim(0, top * 1.25)
    axes.set_title("peak memory, GiB")
    if curve.chosen in peaks:
        _ring(axes, peaks, curve.chosen, numbers.gib, colour=INK)


def _paint_rounds(canvas: Canvas, *, compared: list[ComparisonEntry], unit: str) -> None:
    panels = canvas.subplots(1, len(compared), sharey=True, squeeze=False)[0]
    top = max(max(entry.before, entry.after) for each in compared for entry in each.rounds)
    for axes, each in zip(panels, compared, strict=True):
        for side, colour in (("before", INK), ("after", ACCENT)):
            points = [(entry.round, getattr(entry, side), entry.counted) for entry in each.rounds]
            axes.plot([p[0] for p in points], [p[1] for p in points], color=colour, linewidth=1.2)
            for number, score, counted in points:
                axes.plot(
                    [number], [score], "o", color=colour, markersize=4.5,
                    mfc=colour if counted else "none",
                )  # fmt: skip
            name = _short(getattr(each, side))
            above = score == max(each.rounds[-1].before, each.rounds[-1].after)
            _note(
                axes, points[-1][:2], name, colour=colour, ha="right",
                offset=(0, 7 if above else -13), weight="bold",
            )  # fmt: skip
        axes.set_ylim(0, top * 1.25)
        axes.set_xticks([entry.round for entry in each.rounds])
        axes.set_xlabel("round; hollow points are not counted")
        axes.margins(x=0.08)
        axes.grid(axis="y")
    panels[0].set_title(f"rounds of the comparison, {unit}")


def _short(label: str, limit: int = 36) -> str:
    return label if len(label) <= limit else f"{label[: limit - 3]}..."


def _mark_failures(axes: Axes, failed: dict[float, str]) -> None:
    bottom, top = axes.get_ylim()
    height = bottom + (top - bottom) * 0.06
    for at, kind in failed.items():
        axes.plot([at], [height], "x", color=BAD, markersize=6, markeredgewidth=1.6)
        if len(failed) <= MOST_NAMED_FAILURES:
            _note(axes, (at, height), kind, colour=BAD, ha="center", offset=(0, 6))


def _ring(
    axes: Axes,
    points: dict[float, float],
    x: float,
    show: Callable[[float], str],
    colour: str = ACCENT,
) -> None:
    """Ring the chosen point, with its name below."""
    y, xs = points[x], list(points)
    how = {0: "left", len(xs) - 1: "right"}.get(xs.index(x), "center")
    low, high = axes.get_ylim()
    above = y < low + (high - low) * 0.25
    axes.plot([x], [y], "o", ms=9, mfc="none", mec=colour, mew=1.6)
    offset = (0, 9) if above else (0, -17)
    _note(axes, (x, y), f"chosen: {show(y)}", colour=colour, offset=offset, ha=how, weight="bold")


def _beside(axes: Axes, y: float, text: str, colour: str = INK) -> None:
    """Name a horizontal line beside the plot."""
    axes.annotate(
        text,
        (1.0, y),
        (4, 0),
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        color=colour,
        fontsize=8,
        va="center",
    )


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

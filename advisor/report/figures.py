"""Figures of a report as SVG, for white and dark pages."""

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Any

from advisor import numbers
from advisor.report.bottleneck import PARTS, largest_first
from advisor.report.markdown import one_line
from advisor.report.schema import ComparisonEntry, Report, TrialEntry

NAMES = ("batch", "time", "rounds")
"""File names of the figures."""
COMPARABLE = ("baseline", "search", "confirm", "effects")
"""Purposes of trials with comparable throughputs."""
TIME_ALT = "Parts of the time before and after"
INK, BLUE, BAD = "#717882", "#2c7ac9", "#d54343"
"""Mid-tones: each has a contrast of 4.2 or more on white and on a dark page (WCAG 2)."""
RING: dict[str, Any] = {
    "s": 130,
    "facecolors": "none",
    "edgecolors": BLUE,
    "linewidths": 1.8,
}
"""Around the point that a reader looks for."""
BARS = {
    "compute": (BLUE, ""),
    "data_wait": (BAD, "//"),
    "other": (INK, ""),
    "host_to_device": ("none", "xx"),
    "launch": (INK, ".."),
    "sync": (BLUE, "--"),
    "exchange": (BAD, "++"),
    "saving": ("none", ""),
}
"""Colour and hatch of each part of the time, which differ in grey, too."""
SCALES = ((1.0, "seconds"), (1e-3, "milliseconds"), (0.0, "microseconds"))
"""Least longest time of a unit in seconds, and the unit in which it is shown."""
WIDTH_IN = 6.6
"""Width of a figure in inches: that of a page's text.

Judgement: A4 is 8.3 wide with margins of 0.85. Wider is scaled down with its text, narrower crowds
the labels."""
AROUND_IN = 0.5
"""Height that the axis and the title of a figure take, in inches, beside its panels.

Judgement: less flattens the panel of a figure with one, more leaves white above it."""
DOT = {"s": 16}
"""Area of a trial's dot, in square points."""
ROOM = 1.1
"""An axis ends at so many times the highest value.

Judgement: less cuts the dot and the error bar of the highest value, more flattens all others."""
CLOSE = 1.25
"""Batch sizes whose ratio is below share one number on the axis.

Judgement: smaller prints numbers over each other, larger leaves out those of batches that grow by
half."""
NEAR = 4.0
"""A limit so many times the highest peak is not drawn.

Judgement: larger presses all peaks below a quarter of the axis, smaller hides a limit that a larger
batch would reach."""


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
        values: dict[float, list[float]] = {}
        for trial in sorted(self.trials, key=lambda trial: trial.batch or 0.0):
            value = getattr(trial, name)
            if trial.batch and value is not None:
                values.setdefault(trial.batch, []).append(value)
        return values


def comparable(report: Report) -> list[TrialEntry]:
    """Trials of the original and of settings, whose batch is known."""
    return [
        trial
        for trial in report.trials
        if trial.purpose in COMPARABLE and trial.whatif is None and trial.batch
    ]


def batch_curve(report: Report) -> Curve | None:
    """The curve with the most batch sizes; None without two."""
    groups: dict[str, list[TrialEntry]] = {}
    for trial in comparable(report):
        groups.setdefault(trial.beside, []).append(trial)
    curves = [
        Curve(beside=beside, trials=tuple(trials)) for beside, trials in groups.items()
    ]
    sizes = [len(curve.by_batch("units_per_s")) for curve in curves]
    return curves[sizes.index(max(sizes))] if max(sizes, default=0) > 1 else None


def draw(report: Report) -> dict[str, bytes]:
    """SVG of each figure by name, the same bytes for the same report."""
    drawn = {
        "batch": draw_batches(report),
        "time": draw_time(report),
        "rounds": draw_rounds(report),
    }
    return {name: svg for name, svg in drawn.items() if svg}


@dataclass(kw_only=True)
class Canvas:
    """Panels to draw on, and then their SVG."""

    axes: list[Any]
    svg: bytes = b""


@contextlib.contextmanager
def canvas(alt: str, rows: int = 1, height_in: float = 2.3) -> Iterator[Canvas]:
    """Panels below each other, whose SVG is in `svg` once they are drawn.

    matplotlib takes half a second to import, so only what draws does. Colours are mid-tones,
    for white and dark pages; texts stay texts, and the same data give the same bytes.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "gpu-advisor",
        "font.family": "sans-serif",
        "font.size": 9,
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), INK),
        **dict.fromkeys(("xtick.color", "ytick.color", "grid.color", "hatch.color"), INK),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid.axis": "y",
        "axes.grid": True,
        "grid.alpha": 0.3,
        "legend.frameon": False,
    }
    with mpl.rc_context(style):
        drawing = Figure(
            figsize=(WIDTH_IN, AROUND_IN + height_in * rows), layout="constrained"
        )
        panels = Canvas(
            axes=list(drawing.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])
        )
        yield panels
        out = io.StringIO()
        drawing.savefig(out, format="svg", transparent=True, metadata={"Date": None})
        head, mark, body = out.getvalue().partition("<metadata>")
        title = f"<title>{escape(one_line(alt))}</title>\n "
        panels.svg = f"{head}{title}{mark}{body}".encode()


def plain(text: object) -> str:
    """Text of a figure: one line in which no `$` begins a formula."""
    return one_line(str(text)).replace("$", r"\$")


def from_zero(axis: Any) -> None:
    """Values from zero, with room above the highest: a ratio is seen as it is."""
    axis.set_ylim(0, ROOM * axis.dataLim.ymax)


def batch_axis(axis: Any, batches: Sequence[float]) -> None:
    """Batch sizes on a logarithmic axis; those too close to the next have no number."""
    axis.set_xscale("log", base=2)
    numbered: list[float] = []
    for batch in sorted(batches, reverse=True):
        if not numbered or numbered[-1] / batch > CLOSE:
            numbered.append(batch)
    axis.set_xticks(numbered, [numbers.count(batch) for batch in numbered], minor=False)
    axis.set_xticks([], minor=True)
    axis.set_xlabel("batch size")


def draw_batches(report: Report) -> bytes | None:
    """Throughput and memory by batch size, a dot a trial; None without two sizes.

    Trials that failed are crosses on the axis: where a curve ends says as much as how it rises.
    """
    curve = batch_curve(report)
    if curve is None:
        return None
    rates, peaks = curve.by_batch("units_per_s"), curve.by_batch("peak_mem_gib")
    failures = {
        t.batch: t.outcome for t in curve.trials if t.batch and t.batch not in rates
    }
    aside = [t for t in comparable(report) if t.units_per_s and t not in curve.trials]
    with canvas(curve.alt, rows=2 if peaks else 1) as drawn:
        draw_rates(drawn.axes[0], report, curve, aside)
        draw_failures(drawn.axes[0], failures)
        if peaks:
            draw_peaks(drawn.axes[1], peaks, report.memory_limit_gib)
        for axis in drawn.axes:
            from_zero(axis)
            axis.legend(loc="best", fontsize=8)
        batch_axis(drawn.axes[-1], [*rates, *failures, *(t.batch or 1.0 for t in aside)])
    return drawn.svg


def draw_rates(
    axis: Any, report: Report, curve: Curve, aside: Sequence[TrialEntry]
) -> None:
    """Rates of the curve's trials, hollow dots of those aside, and a ring around the result."""
    chosen = report.after if report.changes else report.before
    where = report.machine.gpus[0].name if report.machine.gpus else report.machine.cpu_model
    beside = f", {curve.beside}" if curve.beside else ""
    axis.set_title(plain(f"{where}{beside}"), loc="left", fontsize=10)
    if dots := [(trial.batch, trial.units_per_s) for trial in aside]:
        hollow = {**DOT, "facecolors": "none", "edgecolors": INK}
        axis.scatter(*zip(*dots, strict=True), **hollow, label="other settings")
    measured(axis, curve.by_batch("units_per_s"), median, BLUE, "each trial")
    axis.set_ylabel(plain(f"{numbers.plural(report.unit)}/s"))
    if chosen.batch and chosen.units_per_s:
        at, rate = [chosen.batch], [chosen.units_per_s]
        axis.scatter(at, rate, **RING, label="after" if report.changes else "before")


def draw_failures(axis: Any, failures: Mapping[float, str]) -> None:
    """A cross for each failed batch size, with one label for each way to fail."""
    for outcome in dict.fromkeys(failures.values()):
        at = [batch for batch, reason in failures.items() if reason == outcome]
        axis.scatter(
            at, [0.0] * len(at), marker="x", color=BAD, clip_on=False, label=plain(outcome)
        )


def draw_peaks(
    axis: Any, peaks: Mapping[float, Sequence[float]], limit_gib: float | None
) -> None:
    """Peak memory of the trials, and the limit unless it lies far above them."""
    measured(axis, peaks, max, INK, "highest of a trial")
    axis.set_ylabel("peak memory, GiB")
    if limit_gib is not None and limit_gib < NEAR * max(map(max, peaks.values())):
        axis.axhline(limit_gib, color=BAD, linestyle="--", label="limit")


def measured(
    axis: Any,
    values: Mapping[float, Sequence[float]],
    typical: Callable[[Sequence[float]], float],
    colour: str,
    label: str,
) -> None:
    """A dot a trial, and a line through the typical ones."""
    dots = [(batch, value) for batch, several in values.items() for value in several]
    axis.scatter(*zip(*dots, strict=True), **DOT, color=colour, label=label)
    axis.plot(list(values), [typical(several) for several in values.values()], color=colour)


def banded(
    axis: Any,
    curve: Mapping[float, Sequence[float]],
    colour: str,
    label: str,
) -> None:
    """A line of predictions with its band as an area; values are typical, low, high."""
    batches = list(curve)
    typical, low, high = (list(column) for column in zip(*curve.values(), strict=True))
    axis.fill_between(
        batches, low, high, color=colour, alpha=0.2, linewidth=0, label="its band"
    )
    axis.plot(batches, typical, color=colour, marker="o", markersize=3.5, label=label)


def draw_predicted(
    title: str,
    unit: str,
    rates: Mapping[float, Sequence[float]],
    memory: Mapping[float, Sequence[float]],
    *,
    limit_gib: float,
    suggested: float | None,
) -> bytes:
    """SVG of predicted speed and memory by batch, with their bands."""
    with canvas(f"{title}: predicted, not measured", rows=2) as drawn:
        speed, room = drawn.axes
        speed.set_title(plain(f"{title}: predicted, not measured"), loc="left", fontsize=10)
        banded(speed, rates, BLUE, "predicted")
        speed.set_ylabel(plain(f"{unit}/s"))
        if suggested is not None and suggested in rates:
            speed.scatter([suggested], [rates[suggested][0]], **RING, label="suggested")
        banded(room, memory, INK, "predicted")
        room.axhline(limit_gib, color=BAD, linestyle="--", label="limit")
        room.set_ylabel("peak memory, GiB")
        for axis in drawn.axes:
            from_zero(axis)
            axis.legend(loc="upper left", fontsize=8)
        batch_axis(room, list(rates))
    return drawn.svg


def has_parts(report: Report) -> bool:
    """True if parts of the time are known before and after a change."""
    return bool(report.changes and report.before.shares and report.after.shares)


def draw_time(report: Report) -> bytes | None:
    """Parts of a unit's time, before and after, as bars of equal scale."""
    if not has_parts(report):
        return None
    parts = [
        name
        for name, _ in largest_first({**report.before.shares, **report.after.shares})
        if max(side.shares.get(name, 0.0) for side in report.sides) >= numbers.WORTH_SAYING
    ]
    with canvas(TIME_ALT, height_in=0.9) as drawn:
        (axis,) = drawn.axes
        left = [0.0, 0.0]
        taken = [1 / side.units_per_s if side.units_per_s else 0.0 for side in report.sides]
        at, unit = next(
            (at, unit) for at, (least_s, unit) in enumerate(SCALES) if max(taken) >= least_s
        )
        for name in parts:
            widths = [
                side.shares.get(name, 0.0) * seconds * 1000**at
                for side, seconds in zip(report.sides, taken, strict=True)
            ]
            colour, hatch = BARS[name]
            axis.barh(
                ["before", "after"], widths, left=left, color=colour, hatch=hatch,
                edgecolor=INK, linewidth=0.6, label=plain(PARTS[name].name),
            )  # fmt: skip
            left = [offset + width for offset, width in zip(left, widths, strict=True)]
        axis.invert_yaxis()
        axis.grid(axis="x", visible=True)
        axis.grid(axis="y", visible=False)
        axis.set_xlabel(plain(f"{unit} {numbers.one(report.unit)}"))
        drawn_above = {
            "loc": "lower left",
            "bbox_to_anchor": (0, 1),
            "ncols": 4,
            "fontsize": 8,
        }
        axis.legend(**drawn_above)
    return drawn.svg


def compared(report: Report) -> ComparisonEntry | None:
    """First comparison of two rounds or more."""
    return next(
        (comparison for comparison in report.comparisons if len(comparison.rounds) > 1),
        None,
    )


def alt_of(comparison: ComparisonEntry) -> str:
    """Alternative text of the figure of rounds."""
    return f"Rounds of {comparison.after} against {comparison.before}"


def draw_rounds(report: Report) -> bytes | None:
    """Each round as a line from before to after; what does not count is hollow."""
    comparison = compared(report)
    if comparison is None:
        return None
    with canvas(alt_of(comparison)) as drawn:
        (axis,) = drawn.axes
        for entry in comparison.rounds:
            axis.plot([entry.round] * 2, [entry.before, entry.after], color=INK, alpha=0.5)
        for arm, colour, marker in (("before", INK, "s"), ("after", BLUE, "o")):
            label = plain(getattr(comparison, arm))
            for counted, face in ((True, colour), (False, "none")):
                rounds = [entry for entry in comparison.rounds if entry.counted is counted]
                axis.scatter(
                    [entry.round for entry in rounds], [getattr(entry, arm) for entry in rounds],
                    marker=marker, facecolors=face, edgecolors=colour,
                    label=label if counted else f"{label}, not counted" if rounds else None,
                )  # fmt: skip
        from_zero(axis)
        axis.set_ylabel(plain(report.objective_unit))
        axis.set_xlabel("round")
        axis.set_xticks([entry.round for entry in comparison.rounds])
        axis.legend(loc="lower right", fontsize=8)
    return drawn.svg

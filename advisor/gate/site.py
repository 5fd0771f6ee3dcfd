"""`gpu-advisor gate --site DIR`: the stored sessions as one page that needs nothing else.

A pure function of history files: every series with its rates, their intervals, and where its
level changed. The page asks no network for anything and follows the reader's light or dark.
"""

from __future__ import annotations

import html
import itertools
import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from advisor import files
from advisor.gate import history, trend
from advisor.report.rendering import templates_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from advisor.gate.history import Series, Session
    from advisor.gate.scatter import Scatter

PAGE, BADGE = "index.html", "badge.svg"
WIDTH, HEIGHT = 860, 190
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 24
MOST_CHANGES = 6
"""A creep is many small steps: the latest are listed, all are drawn."""
LINES = 3
"""Horizontal lines of a chart, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A level that changed, for the better or the worse."""

    created: str
    sha: str
    change_pct: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One series as the page shows it."""

    workload: str
    source: str
    latest: str
    state: str
    kind: str
    """`lost`, `won`, `steady` or `new`: decides the colour."""
    chart: str
    """SVG."""
    changes: tuple[Change, ...]
    sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Series of one hardware key of one file."""

    title: str
    runner: str
    series: tuple[Shown, ...]


def write(folder: Path, histories: Sequence[Path]) -> list[Path]:
    """Write the page and the badge into `folder`; returns what was written.

    Raises ReportError for a history that cannot be read, OutputRefusedError for places that are
    another's.
    """
    machines = [found for path in histories for found in of_history(path.stem, history.read(path))]
    places = {folder / PAGE: page(machines), folder / BADGE: badge(machines)}
    claimed = files.claim(places, ours=_is_ours)
    for place, text in places.items():
        claimed.write(place, f"{text}{files.MARKS['.svg']}\n".encode())
    return list(places)


def of_history(runner: str, past: history.History) -> list[Machine]:
    """The machines of one file, each with its series, the worst first."""
    grouped: dict[str, list[Series]] = {}
    for series in past.series.values():
        if series.sessions:
            grouped.setdefault(_hardware(series.facts), []).append(series)
    order = ("lost", "won", "steady", "new")
    return [
        Machine(
            title=title,
            runner=runner,
            series=tuple(
                sorted(
                    (_shown(series, found) for series in found),
                    key=lambda shown: (order.index(shown.kind), shown.workload),
                )
            ),
        )
        for title, found in grouped.items()
    ]


def page(machines: Sequence[Machine]) -> str:
    return _environment().get_template("gate_site.html.j2").render(machines=machines)


def badge(machines: Sequence[Machine]) -> str:
    """A label as other badges look: how many series lost rate, or that none did."""
    shown = [series for machine in machines for series in machine.series]
    lost = sum(series.kind == "lost" for series in shown)
    known = sum(series.kind != "new" for series in shown)
    if lost:
        said, colour = f"{lost} of {known} lost", "#b3261e"
    elif known:
        said, colour = "steady", "#1a7f37"
    else:
        said, colour = "not known yet", "#59636e"
    label, char = "throughput", 7
    left, right = char * len(label) + 10, char * len(said) + 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="{label}: {said}"><title>{label}: {said}</title>'
        f'<rect width="{left}" height="20" fill="#444c56"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{colour}"/>'
        '<g fill="#fff" font-family="Verdana,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2}" y="14">{label}</text>'
        f'<text x="{left + right / 2}" y="14">{said}</text></g></svg>\n'
    )


def _shown(series: Series, machine: Sequence[Series]) -> Shown:
    rates = [session.units_per_s for session in series.sessions]
    changes = trend.steps([math.log(rate) for rate in rates])
    beside = [history.scatter_of(other) for other in machine if other is not series]
    state, kind = _state(series, beside, changes)
    return Shown(
        workload=series.workload,
        source=series.facts.get("source", ""),
        latest=f"{rates[-1]:.4g} {series.unit}/s",
        state=state,
        kind=kind,
        chart=_chart(series.sessions, changes, series.unit),
        changes=tuple(
            Change(
                created=series.sessions[step.at].created,
                sha=(series.sessions[step.at].sha or "unknown")[:12],
                change_pct=100 * math.expm1(step.change),
            )
            for step in changes[: -MOST_CHANGES - 1 : -1]
        ),
        sessions=len(rates),
    )


def _state(
    series: Series, beside: Sequence[Scatter | None], changes: Sequence[trend.Step]
) -> tuple[str, str]:
    current = history.current(series)
    if len(current) < history.FEWEST_SESSIONS:
        return f"{len(current)} of {history.FEWEST_SESSIONS} sessions of a baseline", "new"
    logs = [math.log(session.units_per_s) for session in current]
    loss = trend.lasting_loss(logs, -math.log1p(-history.SMALLEST_LOSS), beside)
    if loss:
        return f"{-100 * math.expm1(-loss.drop):.1f} % lost of the best that was held", "lost"
    if series.sessions[-1].red:
        return "red in the last session", "lost"
    levels = list(itertools.accumulate((step.change for step in changes), initial=0.0))
    won = levels[-1] - max(levels[:-1], default=0.0)
    if won > math.log1p(history.SMALLEST_LOSS):
        return f"{100 * math.expm1(won):.1f} % faster than ever before", "won"
    return ("recovered" if changes and changes[-1].change > 0 else "steady"), "steady"


def _hardware(facts: dict[str, str]) -> str:
    """What a machine is called: its cards or its CPUs, driver and torch."""
    card = facts.get("gpus")
    named = [card or facts.get("cpu", "unknown machine")]
    for key, label in (("driver", "driver"), ("power_limit_w", "power limit (W)")):
        if card and facts.get(key):
            named.append(f"{label} {facts[key]}")
    if facts.get("torch"):
        named.append(f"torch {facts['torch']}")
    return ", ".join(named)


# --- the chart ----------------------------------------------------------------------------


def _chart(sessions: Sequence[Session], changes: Sequence[trend.Step], unit: str) -> str:
    lows = [session.low_units_per_s or session.units_per_s for session in sessions]
    highs = [session.high_units_per_s or session.units_per_s for session in sessions]
    rates = [session.units_per_s for session in sessions]
    # A wide interval of one night may run out of the picture; the rates may not.
    margin = 0.15 * (max(rates) - min(rates)) or 0.02 * rates[0]
    low, high = min(rates) - margin, max(rates) + margin

    def x(place: float) -> float:
        return round(LEFT + (place + 0.5) / len(sessions) * (WIDTH - LEFT - RIGHT), 1)

    def y(rate: float) -> float:
        inside = min(max(rate, low), high)
        return round(TOP + (high - inside) / (high - low) * (HEIGHT - TOP - BOTTOM), 1)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>rate by session</title>']
    for tick in _ticks(low, high):
        parts.append(f'<path class="grid" d="M{LEFT} {y(tick)}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="end" x="{LEFT - 6}" y="{y(tick) + 4}">{tick:g}</text>')
    band = [f"{x(n)},{y(rate)}" for n, rate in enumerate(highs)]
    band += [f"{x(n)},{y(lows[n])}" for n in reversed(range(len(lows)))]
    parts.append(f'<polygon class="band" points="{" ".join(band)}"/>')
    for step in changes:
        kind = "won" if step.change > 0 else "lost"
        parts.append(f'<path class="{kind}" d="M{x(step.at - 0.5)} {TOP}V{HEIGHT - BOTTOM}"/>')
    line = " ".join(f"{x(n)},{y(rate)}" for n, rate in enumerate(rates))
    parts.append(f'<polyline class="rate" points="{line}"/>')
    for n, session in enumerate(sessions):
        kind = "dot red" if session.red else "dot"
        told = f"{session.created[:16]}, {(session.sha or 'unknown')[:12]}: "
        told += f"{session.units_per_s:.5g} {unit}/s"
        parts.append(
            f'<circle class="{kind}" cx="{x(n)}" cy="{y(rates[n])}" r="2.6">'
            f"<title>{html.escape(told)}</title></circle>"
        )
    for n, anchor in ((0, "start"), (len(sessions) - 1, "end")):
        day = html.escape(sessions[n].created[:10])
        parts.append(f'<text class="{anchor}" x="{x(n)}" y="{HEIGHT - 6}">{day}</text>')
    return "".join([*parts, "</svg>"])


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high`."""
    power = 10.0 ** math.floor(math.log10((high - low) / LINES))
    step = next(power * m for m in (1, 2, 5, 10) if (high - low) / (power * m) <= LINES + 1)
    return [step * n for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(templates_folder()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _is_ours(path: Path) -> bool:
    return files.MARKS[".svg"].encode() in path.read_bytes()[-200:]

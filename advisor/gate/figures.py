"""Two figures of a gate as SVG text: slowdown of each pair, and interval of each workload.

Plain text, so that they are drawn where matplotlib is not installed, as in CI. Colours follow
the reader's light or dark page.
"""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

from advisor.gate import view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.gate.records import GateRecord

FILES = ("gate-pairs.svg", "gate-workloads.svg")
WIDTH = 720
LEFT, RIGHT, TOP, ROW = 240, 20, 56, 26
NAME_CHARS = 36
TICKS = 8
"""At most so many numbers on the axis."""
STYLE = """
  text { font: 12px sans-serif; fill: #24292f } .mid { text-anchor: middle }
  .axis, .zero { stroke: #8c959f; fill: none } .allowed { stroke: #bc4c00; stroke-dasharray: 4 3 }
  .base { stroke: #0969da; stroke-width: 2; fill: #0969da }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .axis, .zero { stroke: #6e7681 }
    .allowed { stroke: #f0883e } .base { stroke: #58a6ff; fill: #58a6ff } }
"""


def draw(record: GateRecord) -> dict[str, str]:
    """By file name: each of the figures; empty where `record` has no data for one."""
    return dict(zip(FILES, (pairs(record), workloads(record)), strict=True))


def pairs(record: GateRecord) -> str:
    """A row a workload, a dot a pair; empty if no pair counts."""
    rows = [
        (name, [(value, value) for value in values], None)
        for program in record.programs
        for name, values in view.pair_slowdowns(program).items()
    ]
    return _draw("Slowdown of head in each pair, %", rows, record) if rows else ""


def workloads(record: GateRecord) -> str:
    """A row a workload: the estimate, and the interval it was proven to lie in."""
    rows = [
        (w.name, [(w.ci_low_pct, w.ci_high_pct)], w.slowdown_pct)
        for w in record.workloads
        if w.ci_low_pct is not None and w.ci_high_pct is not None
    ]
    return _draw("Slowdown of head, %, with its interval", rows, record) if rows else ""


def _draw(
    title: str,
    rows: Sequence[tuple[str, Sequence[tuple[float, float]], float | None]],
    record: GateRecord,
) -> str:
    limit = 100 * record.inputs.threshold
    ends = [end for _, spans, _ in rows for span in spans for end in span]
    low, high = min(0.0, limit, *ends), max(0.0, limit, *ends)
    margin = 0.05 * (high - low)
    low, high = low - margin, high + margin
    bottom = TOP + ROW * len(rows)

    def x(value: float) -> float:
        return round(LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 40}">',
        f"<title>{html.escape(title)}</title><style>{STYLE}</style>",
        f'<text x="{LEFT}" y="20">{html.escape(title)}</text>',
        f'<path class="axis" d="M{LEFT} {bottom}H{WIDTH - RIGHT}"/>',
    ]
    parts += [
        f'<path class="{kind}" d="M{x(value)} {TOP - 8}V{bottom}"/>'
        for kind, value in (("zero", 0.0), ("allowed", limit))
    ]
    parts.append(f'<text class="mid" x="{x(limit)}" y="{TOP - 13}">allowed: {limit:g} %</text>')
    for tick in _ticks(low, high):
        parts.append(f'<path class="axis" d="M{x(tick)} {bottom}v5"/>')
        parts.append(f'<text class="mid" x="{x(tick)}" y="{bottom + 18}">{tick:g}</text>')
    for number, (name, spans, estimate) in enumerate(rows):
        y = TOP + ROW * number + ROW // 2
        short = html.escape(view.short(name, NAME_CHARS))
        parts.append(f'<text x="8" y="{y + 4}">{short}</text>')
        for start, end in spans:
            if end > start:
                parts.append(f'<path class="base" d="M{x(start)} {y}H{x(end)}"/>')
        dots = [start for start, end in spans if start == end] if estimate is None else [estimate]
        parts += [f'<circle class="base" cx="{x(dot)}" cy="{y}" r="3.5"/>' for dot in dots]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high`."""
    power = 10.0 ** math.floor(math.log10((high - low) / TICKS))
    step = next(power * m for m in (1, 2, 5, 10, 20) if (high - low) / (power * m) <= TICKS)
    return [step * n for n in range(math.ceil(low / step), math.floor(high / step) + 1)]

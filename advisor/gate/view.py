"""What the templates ask of a gate's record: short texts, and nothing that is not in it."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from advisor.gate import validity
from advisor.gate.compared import words
from advisor.gate.entries import ARMS
from advisor.gate.records import WorkloadVerdict
from advisor.gate.verdict import difference
from advisor.report.markdown import as_markdown

if TYPE_CHECKING:
    from advisor.gate.entries import PairEntry, ProgramEntry, Rate
    from advisor.gate.records import BisectStep, CalibrationEntry, GateRecord

TITLES = {
    "pass": "No regression",
    "regression": "Regression",
    "inconclusive": "Inconclusive",
    "no-baseline": "No baseline",
    "invalid": "Invalid measurement",
    "error": "Error",
}

NEXT_STEPS = {
    "inconclusive": "A quieter runner or a larger --threshold would decide it; "
    "`gpu-advisor gate --mode calibrate` says what this runner can prove.",
    "no-baseline": "Once this is merged, the next change has something to be compared with.",
    "invalid": "Nothing is said about the code: see that the runner is sound and left alone, "
    "and run the gate again.",
    "error": "This is no slowdown: make the named run work, then run the gate again.",
}

MOST_PAIRS_SHOWN = 48
CHART_BARS = 24
LABEL_CHARS = 24
SMALLEST_SHOWN_PCT = 0.05


def title(record: GateRecord) -> str:
    if record.mode == "calibrate" and record.calibration and record.verdict != "invalid":
        return "Calibrated"
    if record.bisection and record.verdict == "regression":
        return "First bad commit" if len(record.bisection.suspects) == 1 else "Bad commits"
    if record.verdict == "pass" and any(w.accepted for w in record.workloads):
        return "Accepted slowdown"
    return TITLES[record.verdict]


def reason(record: GateRecord) -> str:
    """The reason as a sentence."""
    if record.mode == "calibrate" and record.calibration and record.verdict != "invalid":
        return " ".join(
            f"{entry.workload}: the verdict on equal runs is {entry.placebo}."
            for entry in record.calibration
        )
    return record.reason.rstrip(".: \n") + "."


def next_step(record: GateRecord) -> str:
    """What to do now; nothing where the reason is a message that says it already."""
    if not record.programs:
        return ""
    if record.mode == "history":
        undecided = record.verdict in {"inconclusive", "no-baseline"}
        return "The baseline grows with every call." if undecided else ""
    if record.mode == "calibrate" and record.verdict != "invalid":
        return ""
    why = " ".join(found.sentence for found in record.attribution)
    if record.mode == "bisect":
        return why
    if any(program.stopped for program in record.programs) and record.verdict == "inconclusive":
        return "More time (--max-minutes) would decide it, or a shorter benchmark."
    return why or NEXT_STEPS.get(record.verdict, "")


def pct(value: float | None) -> str:
    """`9.7 %`; `unbounded` where nothing was proven."""
    return "unbounded" if value is None else f"{value:.1f} %"


def slowdown(workload: WorkloadVerdict | GateRecord) -> str:
    """`9.7 % slower (8.9 % to 10.4 %)`; in brackets a negative number means faster."""
    worst = workload if isinstance(workload, WorkloadVerdict) else _worst(workload)
    return _slowdown(workload, worst)


def slowdown_of(step: BisectStep, record: GateRecord) -> str:
    """The same of one commit of a range."""
    return _slowdown(step, _worst(record))


def _slowdown(
    workload: WorkloadVerdict | GateRecord | BisectStep, about: WorkloadVerdict | None
) -> str:
    value = workload.slowdown_pct
    if value is None or about is None:
        return "not measured"
    worse, better, change = words(about.figure, higher_is_better=about.better == "higher")
    said = f"{abs(value):.1f} % {worse if value > 0 else better}"
    if abs(value) < SMALLEST_SHOWN_PCT:
        said = "none"
    if workload.ci_low_pct is None and workload.ci_high_pct is None:
        return f"{said} (too few pairs for bounds)"
    low, high = pct(workload.ci_low_pct), pct(workload.ci_high_pct)
    return f"{said} ({change} between {low} and {high})"


def _worst(record: GateRecord) -> WorkloadVerdict | None:
    """What the record's own figures are of."""
    return next(iter(record.workloads), None)


def allowed_pct(record: GateRecord) -> float:
    """By how much the figure that is told of may worsen."""
    worst = next(iter(record.workloads), None)
    share = worst.threshold if worst and worst.threshold is not None else record.inputs.threshold
    return 100 * share


def mde(workload: WorkloadVerdict | GateRecord) -> str:
    if workload.mde_pct is None:
        return "not known"
    return f"{workload.mde_pct:.1f} %"


def hardware(record: GateRecord) -> str:
    host = record.host
    named = ", ".join(host.gpus) or f"no GPU; {host.cpus or '?'} CPUs of {host.cpu or 'unknown'}"
    driver = f", driver {host.driver}" if host.driver else ""
    clocks = f"; clocks {host.clocks}" if host.gpus else ""
    return f"{named}{driver}{clocks}; {record.validity.rstrip('.')}"


def sources(record: GateRecord) -> str:
    found = sorted({w.source for w in record.workloads if w.source})
    return " and ".join(found) or "nothing"


def revision(record: GateRecord, arm: str) -> str:
    found = record.base if arm == "base" else record.head
    sha = (found.sha or "unknown")[:12]
    named = f" ({found.ref})" if found.ref else ""
    return f"{sha}{named}{', with uncommitted changes' if found.dirty else ''}"


def rate(value: float | None, unit: str = "") -> str:
    """`48.8 sample/s`."""
    return "not measured" if value is None else f"{value:.5g}{f' {unit}/s' if unit else ''}"


def looks(record: GateRecord) -> str:
    """`5, 9, 12, 17, 24`: where a verdict could fall."""
    return ", ".join(map(str, record.inputs.looks))


def pair_rows(program: ProgramEntry) -> list[dict[str, str]]:
    """One row a pair and workload, the latest pairs if there are too many for a page."""
    rows = []
    for pair in program.pairs[-MOST_PAIRS_SHOWN:]:
        for key in list(dict.fromkeys([*pair.base.rates, *pair.head.rates])) or [program.name]:
            base, head = pair.base.rates.get(key), pair.head.rates.get(key)
            change = ""
            if base and head:
                change = f"{_slower_pct(base, head):+.1f} %"
            rows.append(
                {
                    "number": str(pair.number),
                    "order": pair.order,
                    "workload": key,
                    "base": rate(base.mean) if base else _failed(pair.base),
                    "head": rate(head.mean) if head else _failed(pair.head),
                    "change": change,
                    "counts": _counts(pair),
                }
            )
    return rows


def _counts(pair: PairEntry) -> str:
    """Whether the pair counts, and why it does not or does all the same."""
    if pair.discarded:
        return f"no: {pair.discarded}"
    return validity.stands_in(pair) or "yes"


def _failed(run: object) -> str:
    problem = getattr(run, "problem", None)
    return problem.kind if problem else "missing"


# --- the chart ----------------------------------------------------------------------------


def chart(record: GateRecord) -> str:
    """One mermaid chart: slowdown by pair of a single workload, or by workload of several.

    Pairs of a history are head twice: nothing to draw.
    """
    if record.mode == "history":
        return ""
    bars = _pair_bars(record) if len(record.workloads) < 2 else _workload_bars(record)
    if not bars:
        return ""
    limit = 100 * record.inputs.threshold
    values = [value for _, value in bars]
    low = math.floor(min(0.0, limit, *values) - 1)
    high = math.ceil(max(0.0, limit, *values) + 1)
    labels = ", ".join(f'"{label}"' for label, _ in bars)
    what = "pair" if len(record.workloads) < 2 else "workload"
    return as_markdown(
        "\n".join(
            [
                "xychart-beta",
                f'  title "Slowdown by {what} (line: allowed)"',
                f"  x-axis [{labels}]",
                f'  y-axis "slower, %" {low} --> {high}',
                f"  bar [{', '.join(f'{value:.2f}' for value in values)}]",
                f"  line [{', '.join(f'{limit:.2f}' for _ in bars)}]",
            ]
        )
    )


def pair_slowdowns(program: ProgramEntry) -> dict[str, list[float]]:
    """Slowdown in percent of each pair that counts, by workload."""
    found: dict[str, list[float]] = {}
    for pair in program.pairs:
        for key, base in pair.base.rates.items():
            if pair.discarded is None and key in pair.head.rates:
                found.setdefault(key, []).append(_slower_pct(base, pair.head.rates[key]))
    return found


def _slower_pct(base: Rate, head: Rate) -> float:
    """How much slower head was in one pair; below zero where it was faster."""
    return -100 * math.expm1(-difference(base.mean, head.mean))


def _pair_bars(record: GateRecord) -> list[tuple[str, float]]:
    for program in record.programs:
        for values in pair_slowdowns(program).values():
            return [(str(number), value) for number, value in enumerate(values, 1)][-CHART_BARS:]
    return []


def _workload_bars(record: GateRecord) -> list[tuple[str, float]]:
    return [
        (_label(workload.name), workload.slowdown_pct)
        for workload in record.workloads
        if workload.slowdown_pct is not None
    ][:CHART_BARS]


def _label(name: str) -> str:
    """A name that mermaid cannot take for syntax."""
    return re.sub(r"[^A-Za-z0-9_.-]+", " ", short(name, LABEL_CHARS)).strip() or "workload"


def short(name: str, chars: int) -> str:
    """A benchmark without its file, and a long name without its beginning."""
    own = name.rpartition("::")[2]
    return own if len(own) <= chars else f"...{own[3 - chars :]}"


def processes(record: GateRecord) -> int:
    """Processes that were started for the timed pairs and the warm-ups."""
    steps = record.bisection.steps if record.bisection else []
    whole = [*record.programs, *(program for step in steps for program in step.programs)]
    warm_ups = sum(len(program.warm_ups) for program in whole)
    return warm_ups + sum(len(ARMS) * len(program.pairs) for program in whole)


def runs(record: GateRecord) -> int:
    """Processes of the timed pairs."""
    return sum(len(ARMS) * len(program.pairs) for program in record.programs)


# --- calibrate and history ----------------------------------------------------------------


def provable(entry: CalibrationEntry) -> str:
    """`8.0 % by 17 pairs, 6.9 % by 24 pairs`."""
    shown = (f"{pct(value)} by {pairs} pairs" for pairs, value in entry.provable_pct.items())
    return ", ".join(shown) or "not known: too few pairs"


def pairs_needed(record: GateRecord, entry: CalibrationEntry) -> str:
    """How many, or the threshold that a gate can rely on here."""
    if entry.pairs_needed is not None:
        return str(entry.pairs_needed)
    count = f"more than the {record.inputs.looks[-1]} that a gate takes"
    if entry.threshold_pct is None:
        return count
    return f"{count}: here it can rely on --threshold {entry.threshold_pct:g}%"


def rates(record: GateRecord) -> str:
    """The rate of each workload now."""
    return ", ".join(f"{w.name} {rate(w.head_units_per_s, w.unit)}" for w in record.workloads)


def against_history(record: GateRecord) -> str:
    """`20.1 % slower than the sessions before (100 sample/s)`."""
    worst = record.workloads[0] if record.workloads else None
    if worst is None or worst.slowdown_pct is None:
        return "not known yet"
    word = "slower" if worst.slowdown_pct > 0 else "faster"
    before = rate(worst.base_units_per_s, worst.unit)
    return (
        f"{worst.name}: {abs(worst.slowdown_pct):.1f} % {word} than the sessions before ({before})"
    )

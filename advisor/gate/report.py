"""Gate report: gate.md, gate.json and the comment."""

from __future__ import annotations

import json
import math
import os
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from advisor import files, masking
from advisor.errors import OutputRefusedError, ReportError
from advisor.gate import history, validity
from advisor.gate.comparison import words
from advisor.gate.schema import (
    ARMS,
    CONFIDENCE,
    SCHEMA_VERSION,
    GateRecord,
    MovedFigure,
    WorkloadVerdict,
)
from advisor.report.markdown import cell, clip, code, fenced, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from advisor.gate.schema import NoiseCheck, PairEntry, ProgramEntry, Rate, RunEntry

DEFAULT_NAME = "gate.md"
MARKER = "<!-- gpu-advisor gate -->"
"""First line of a sticky comment, by which the next gate finds and replaces it."""
BENCHMARKS = "gate-benchmarks.json"
"""Rates of head for github-action-benchmark and Bencher."""

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
    "`gpu-advisor gate --base-ref HEAD` measures the noise of this runner.",
    "no-baseline": "Once this is merged, the next change has something to be compared with.",
    "invalid": "Nothing is known about the code: see that the runner is sound and left alone, "
    "and run the gate again.",
    "error": "This is no slowdown: make the named run work, then run the gate again.",
}
PARTS = {
    "data_wait": "waiting for data",
    "host_to_device": "host to device",
    "compute": "compute",
    "launch": "launching kernels",
    "sync": "waiting for the GPU",
    "saving": "saving",
    "other": "host code between steps",
}
"""Shares of a unit's time, by their names in a report."""

MOST_PAIRS_SHOWN = 48
SMALLEST_SHOWN_PCT = 0.05
LONGEST = 300
"""Characters of a sentence in the summary lines."""


# --- documents ----------------------------------------------------------------------------


def markdown(record: GateRecord) -> str:
    """The whole report; a pure function of the record."""
    parts = [f"# Throughput gate: {title(record)}", lines(record), *_workloads(record)]
    if record.programs:
        parts += _details(record)
    return "\n\n".join(part for part in parts if part) + "\n"


def comment(record: GateRecord) -> str:
    """Body of a pull request comment. Pure."""
    parts = [MARKER, f"### Throughput gate: {title(record)}", lines(record), *_workloads(record)]
    return "\n\n".join(part for part in parts if part) + "\n"


def lines(record: GateRecord) -> str:
    """The summary lines, for a terminal too."""
    step = next_step(record)
    verdict = f"**{title(record)}**: {text(clip(reason(record), LONGEST))}"
    found = [f"{verdict} {text(clip(step, LONGEST))}" if step else verdict]
    if not record.programs:
        found.append("Nothing was measured.")
    elif record.mode == "noise":
        for entry in record.noise:
            groups = entry.two_groups_pct
            apart = "" if groups is None else f"; they fall into two groups, {groups:.1f} % apart"
            noise = "not measured" if entry.noise_pct is None else f"{entry.noise_pct:.1f} %"
            found.append(
                f"Noise between equal processes of {text(entry.workload)}: {noise}, over "
                f"{entry.pairs} pairs{apart}"
            )
            found.append(f"Smallest threshold that equal code passes: {noise_threshold(entry)}")
    else:
        count = len(record.workloads)
        which = f" of the worst of {count} workloads" if count > 1 else ""
        found.append(f"Slowdown{which}: {slowdown(record)}; allowed: {allowed_pct(record):g} %")
        found.append(
            f"Pairs: {record.pairs} of fresh processes in random order (seed "
            f"{record.inputs.seed}), {record.discarded_pairs} discarded; rates from "
            f"{sources(record)}"
        )
    if record.mode == "history" and record.programs:
        found.append(f"Rates: {text(rates(record))}")
    if record.programs:
        found.append(f"Hardware: {text(hardware(record))}")
    return "\n".join(f"- {line}" for line in found)


def _workloads(record: GateRecord) -> list[str]:
    """Table of the workloads, worst first."""
    if not record.workloads or record.mode == "noise":
        return []
    rows = [
        (
            w.name,
            w.verdict,
            slowdown(w),
            "" if w.threshold is None else f"{100 * w.threshold:g} %",
            rate(w.base_units_per_s, w.unit),
            rate(w.head_units_per_s, w.unit),
            str(w.pairs),
            "not measured" if w.noise_pct is None else f"{w.noise_pct:.1f} %",
        )
        for w in record.workloads
    ]
    head = ("workload", "verdict", "slowdown", "allowed", "base", "head", "pairs", "noise")
    remarks = []
    for number, w in enumerate(record.workloads):
        if number and w.verdict != "pass":
            remarks.append(f"- {text(w.name)}: {text(clip(w.reason, LONGEST))}")
        remarks += [f"- {text(w.name)}: {text(note)}" for note in w.notes]
    parts = [_table(head, rows), "\n".join(remarks)]
    if record.moved:
        figures = [(m.program, m.figure, m.base, m.head, m.change) for m in record.moved]
        parts += ["**Time that moved**", _table(("program", "time", *ARMS, "change"), figures)]
    return parts


def _details(record: GateRecord) -> list[str]:
    host = record.host
    facts = [f"{arm}: {text(revision(record, arm))}" for arm in ARMS]
    facts.append(
        f"mode {record.mode}; error budget {100 * record.inputs.alpha:g} % a side over looks at "
        f"{looks(record)} pairs; intervals at {100 * CONFIDENCE:.0f} % confidence"
    )
    facts.append(
        f"Processes: {processes(record)}, in {record.wall_s:.0f} s; gpu-advisor "
        f"{record.tool_version}; {record.created}"
    )
    facts.append(f"Python {text(host.python or 'unknown')}, torch {text(host.torch or 'not seen')}")
    facts += [f"{text(p.name)}: {code(p.command)}" for p in record.programs]
    facts += [str(text(note)) for note in record.notes]
    parts = [_folded("Revisions, rule and machine", "\n".join(f"- {fact}" for fact in facts))]
    for program in record.programs:
        if program.pairs:
            parts.append(_folded(f"{text(program.name)}: every pair", _pairs(program)))
        for run in program.warm_ups:
            if run.problem:
                body = f"{fenced(run.problem.evidence)}\n\n{text(run.problem.next_step)}"
                parts.append(_folded(f"{text(program.name)}: failure of {run.arm}", body))
    return parts


def _folded(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    bar = "|".join("---" for _ in head)
    body = [f"| {' | '.join(cell(value) for value in row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", f"|{bar}|", *body])


def dump(record: GateRecord) -> str:
    """Format `record` as gate.json, without NaN or infinity."""
    return record.model_dump_json(indent=1) + "\n"


def masked(record: GateRecord) -> GateRecord:
    """`record` without text that looks like a secret."""
    return GateRecord.model_validate(masking.mask_value(record.model_dump()))


def read(path: Path) -> GateRecord:
    """Read the record in `path`.

    Raises ReportError if it is missing, malformed, or another version.
    """
    try:
        content = files.read_whole(path).decode()
    except (OSError, UnicodeDecodeError) as problem:
        msg = f"{path} cannot be read: {problem}. Give a gate.json that `gpu-advisor gate` wrote."
        raise ReportError(msg) from problem
    try:
        return GateRecord.model_validate_json(content)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        msg = (
            f"{path} is no gate record of version {SCHEMA_VERSION}: {where}: {first['msg']}. "
            "Give a gate.json that this version of gpu-advisor wrote."
        )
        raise ReportError(msg) from problem


def claim(path: Path, *, never: Iterable[Path] = ()) -> files.Claim:
    """Claim the report's places before any measurement.

    They are `path`, and beside it JSON, comment and benchmarks. To be called before anything is
    measured; `never` are files that must stay. Raises OutputRefusedError when a place is another's,
    or cannot be written.
    """
    if path.is_dir() or path.name in {"", ".", ".."}:
        msg = f"--report {path} is a folder; name a file in it: {path / DEFAULT_NAME}."
        raise OutputRefusedError(msg)
    if path.suffix == ".json":
        msg = f"{path} would be overwritten by the JSON beside it; name the report *.md."
        raise OutputRefusedError(msg)
    real = Path(os.path.realpath(path))
    places = [real, real.with_suffix(".json"), _comment(real), _benchmarks(real)]
    return files.claim(places, never=never)


def write(record: GateRecord, path: Path, claimed: files.Claim) -> None:
    """Write the report into the claimed places. Raises OutputRefusedError."""
    path = Path(os.path.realpath(path))
    claimed.write(path.with_suffix(".json"), dump(record).encode())
    for place, body in ((path, markdown(record)), (_comment(path), comment(record))):
        claimed.write(place, f"{body}\n{files.MARKS['.md']}\n".encode(errors="replace"))
    rates_of_head = history.export(record)
    if rates_of_head:
        claimed.write(_benchmarks(path), (json.dumps(rates_of_head, indent=1) + "\n").encode())
    else:
        claimed.remove(_benchmarks(path))


def _comment(path: Path) -> Path:
    return path.with_name(f"{path.stem}-comment.md")


def _benchmarks(path: Path) -> Path:
    return path.with_name(BENCHMARKS)


# --- sentences ----------------------------------------------------------------------------


def title(record: GateRecord) -> str:
    """Verdict as a heading."""
    if record.mode == "noise" and record.noise and record.verdict != "invalid":
        return "Noise of this runner"
    return TITLES[record.verdict]


def reason(record: GateRecord) -> str:
    """The reason as a sentence."""
    if record.mode == "noise" and record.noise and record.verdict != "invalid":
        return " ".join(
            f"{n.workload}: the verdict on equal runs is {n.outcome}." for n in record.noise
        )
    return record.reason.rstrip(".: \n") + "."


def next_step(record: GateRecord) -> str:
    """Next step; empty if the reason states it."""
    if not record.programs or record.mode == "noise":
        return ""
    if record.mode == "history":
        undecided = record.verdict in {"inconclusive", "no-baseline"}
        return "The baseline grows with every call." if undecided else ""
    if any(program.stopped for program in record.programs) and record.verdict == "inconclusive":
        return "More time (--max-minutes) would decide it, or a shorter benchmark."
    if record.verdict == "regression" and record.moved:
        most = record.moved[0]
        return f"{most.figure[0].upper()}{most.figure[1:]} grew from {most.base} to {most.head}."
    return NEXT_STEPS.get(record.verdict, "")


def pct(value: float | None) -> str:
    """`9.7 %`; `unbounded` without a bound."""
    return "unbounded" if value is None else f"{value:.1f} %"


def slowdown(workload: WorkloadVerdict | GateRecord) -> str:
    """Slowdown as text; negative means faster.

    `9.7 % slower (90 % interval 8.9 % to 10.4 %)`
    """
    about = workload if isinstance(workload, WorkloadVerdict) else _leading(workload)
    value = workload.slowdown_pct
    if value is None or about is None:
        return "not measured"
    worse, better, change = words(about.figure, higher_is_better=about.better == "higher")
    shown = f"{abs(value):.1f} % {worse if value > 0 else better}"
    if abs(value) < SMALLEST_SHOWN_PCT:
        shown = "none"
    if workload.confidence is None:
        return f"{shown} (too few pairs for an interval)"
    low, high = pct(workload.ci_low_pct), pct(workload.ci_high_pct)
    return f"{shown} ({100 * workload.confidence:.0f} % interval of the {change}: {low} to {high})"


def _leading(record: GateRecord) -> WorkloadVerdict | None:
    return next(iter(record.workloads), None)


def allowed_pct(record: GateRecord) -> float:
    """Allowed worsening of the leading workload, in percent."""
    worst = _leading(record)
    share = worst.threshold if worst and worst.threshold is not None else record.inputs.threshold
    return 100 * share


def hardware(record: GateRecord) -> str:
    """Machine and validity in one line."""
    host = record.host
    named = ", ".join(host.gpus) or f"no GPU; {host.cpus or '?'} CPUs of {host.cpu or 'unknown'}"
    driver = f", driver {host.driver}" if host.driver else ""
    return f"{named}{driver}; {record.validity.rstrip('.')}"


def sources(record: GateRecord) -> str:
    """Origins of the rates."""
    return " and ".join(sorted({w.source for w in record.workloads if w.source})) or "nothing"


def revision(record: GateRecord, arm: str) -> str:
    """Commit of an arm."""
    found = record.base if arm == "base" else record.head
    named = f" ({found.ref})" if found.ref else ""
    dirty = ", with uncommitted changes" if found.dirty else ""
    return f"{(found.sha or 'unknown')[:12]}{named}{dirty}"


def rate(value: float | None, unit: str = "") -> str:
    """`48.8 sample/s`."""
    return "not measured" if value is None else f"{value:.5g}{f' {unit}/s' if unit else ''}"


def looks(record: GateRecord) -> str:
    """Numbers of pairs at which a verdict could fall.

    `5, 9, 12, 17, 24`
    """
    return ", ".join(map(str, record.inputs.looks))


def _pairs(program: ProgramEntry) -> str:
    """Row a pair and workload, the latest pairs only."""
    rows = []
    for pair in program.pairs[-MOST_PAIRS_SHOWN:]:
        for key in list(dict.fromkeys([*pair.base.rates, *pair.head.rates])) or [program.name]:
            base, head = pair.base.rates.get(key), pair.head.rates.get(key)
            rows.append(
                (
                    str(pair.number),
                    pair.order,
                    key,
                    rate(base.mean) if base else _failed(pair.base),
                    rate(head.mean) if head else _failed(pair.head),
                    f"{_slower_pct(base, head):+.1f} %" if base and head else "",
                    _counts(pair),
                )
            )
    return _table(("pair", "order", "workload", "base", "head", "slowdown", "counts"), rows)


def _slower_pct(base: Rate, head: Rate) -> float:
    return 100 * (
        1 - head.mean / base.mean if base.better == "higher" else head.mean / base.mean - 1
    )


def _counts(pair: PairEntry) -> str:
    if pair.discarded:
        return f"no: {pair.discarded}"
    return validity.contention_matched(pair) or "yes"


def _failed(run: RunEntry) -> str:
    return run.problem.kind if run.problem else "missing"


def processes(record: GateRecord) -> int:
    """Processes of warm-ups and pairs."""
    return sum(len(p.warm_ups) + len(ARMS) * len(p.pairs) for p in record.programs)


def rates(record: GateRecord) -> str:
    """Rate of each workload of head."""
    return ", ".join(f"{w.name} {rate(w.head_units_per_s, w.unit)}" for w in record.workloads)


def noise_threshold(entry: NoiseCheck) -> str:
    """Smallest threshold that equal runs pass."""
    return "none" if entry.threshold_pct is None else f"--threshold {entry.threshold_pct:g}%"


# --- figures that moved -------------------------------------------------------------------


def moved(program: ProgramEntry) -> list[MovedFigure]:
    """Parts of a unit's time in base and head.

    Medians over the pairs, largest growth first.
    """
    kept = [pair for pair in program.pairs if not pair.discarded]
    times: dict[str, dict[str, float]] = {}
    for arm in ARMS:
        runs: Sequence[RunEntry] = [getattr(pair, arm) for pair in kept]
        if not runs or any(len(run.rates) != 1 for run in runs):
            return []
        for part in PARTS:
            found = [
                1000 * run.shares[part] / _only(run).mean for run in runs if part in run.shares
            ]
            if len(found) == len(runs):
                times.setdefault(part, {})[arm] = statistics.median(found)
    unit = _only(kept[0].head).unit if kept else ""
    both = {part: each for part, each in times.items() if len(each) == len(ARMS)}
    grown = sorted(both, key=lambda part: both[part]["base"] - both[part]["head"])
    return [
        MovedFigure(
            program=program.name,
            figure=f"{PARTS[part]}, a {unit}",
            base=f"{both[part]['base']:.3g} ms",
            head=f"{both[part]['head']:.3g} ms",
            change=_change(both[part]["base"], both[part]["head"]),
        )
        for part in grown
    ]


def _only(run: RunEntry) -> Rate:
    return next(iter(run.rates.values()))


def _change(before: float, after: float) -> str:
    if not before or not math.isfinite(after / before):
        return ""
    return f"{100 * (after / before - 1):+.0f} %"

"""Gate report: gate.md, gate.json and the comment.

`python -I -m advisor.gate.report gate.json` prints a saved record's comment, rendered
from the validated record. No artifact's text is posted as it stands.
"""

import os
import sys
import textwrap
from pathlib import Path

from advisor import files
from advisor.errors import ReportError
from advisor.gate import verdict
from advisor.gate.comparison import words
from advisor.gate.schema import ARMS, GateRecord, ProgramEntry, WorkloadVerdict
from advisor.gate.sequential_test import ALPHA, CONFIDENCE, LOOKS
from advisor.model import Machine
from advisor.numbers import number
from advisor.report import writing
from advisor.report.markdown import code, details, fenced, stacked, table, text

MARKER = "<!-- gpu-advisor gate -->"
"""First line of a comment, by which the next gate replaces it."""
TITLES = {
    "pass": "No regression",
    "regression": "Regression",
    "inconclusive": "Inconclusive",
    "no-baseline": "No baseline",
    "invalid": "Invalid measurement",
    "error": "Error",
}
NEXT_STEPS = {
    "inconclusive": "More time (--max-minutes), a quieter runner or a larger --threshold would "
    "decide it; `gpu-advisor gate --base-ref HEAD` measures the noise of this runner.",
    "no-baseline": "Once this is merged, the next change has something to be compared with.",
    "invalid": "Nothing is known about the code: see that the runner is sound and left alone, "
    "and run the gate again.",
    "error": "This is no slowdown: make the named run work, then run the gate again.",
}
LONGEST = 300
"""Characters of a sentence in the summary lines."""


def markdown(record: GateRecord) -> str:
    """Whole report. Pure."""
    return stacked(short(record), *_details(record)) + "\n"


def comment(record: GateRecord) -> str:
    """Body of a pull request comment. Pure."""
    return f"{MARKER}\n\n##{short(record)}"


def short(record: GateRecord) -> str:
    """Summary of a job: the report without details."""
    heading = f"# Throughput gate: {title(record)}"
    return stacked(heading, lines(record), *_workloads(record))


def lines(record: GateRecord) -> str:
    """Summary lines, for a terminal too."""
    step = (
        NEXT_STEPS.get(record.verdict, "")
        if record.programs and record.mode == "ab"
        else ""
    )
    said = f"{_short(reason(record))} {step}".rstrip()
    found = [f"**{title(record)}**: {said}"]
    if not record.programs:
        found.append("Nothing was measured.")
    elif record.workloads:
        worst, count = record.workloads[0], len(record.workloads)
        which = f" of the worst of {count} workloads" if count > 1 else ""
        allowed = f"{100 * (worst.threshold or record.inputs.threshold):g} %"
        sources = " and ".join(sorted({w.source for w in record.workloads if w.source}))
        order = f"in random order (seed {record.inputs.seed})"
        counts = (
            f"{record.pairs} of fresh processes {order}, {record.discarded_pairs} discarded"
        )
        found += [
            f"Slowdown{which}: {slowdown(worst)}; allowed: {allowed}",
            f"Pairs: {counts}; rates from {sources or 'nothing'}",
            f"Hardware: {text(f'{_hardware(record.host)}; {record.validity}')}",
            *(text(note) for note in worst.notes),
        ]
    return "\n".join(f"- {line}" for line in found)


def _short(said: str) -> str:
    return text(textwrap.shorten(said, LONGEST, placeholder=" ..."))


def _hardware(host: Machine | None) -> str:
    if host is None or not host.gpus:
        return f"no GPU; {host.cpus} CPUs of {host.cpu_model}" if host else "unknown"
    return f"{', '.join(gpu.name for gpu in host.gpus)}, driver {host.gpus[0].driver}"


def title(record: GateRecord) -> str:
    equal = "Equal code: " if record.mode == "noise" else ""
    return f"{equal}{TITLES[record.verdict]}"


def reason(record: GateRecord) -> str:
    return record.reason.rstrip(".: \n") + "."


def slowdown(workload: WorkloadVerdict) -> str:
    """`9.7 % slower`, with its interval; negative values are faster."""
    value = workload.slowdown_pct
    if value is None:
        return "not measured"
    worse, better, change = words(workload.figure)
    shown = f"{abs(value):.1f} % {worse if value > 0 else better}"
    low, high = workload.ci_low_pct, workload.ci_high_pct
    if workload.confidence is None or low is None or high is None:
        return f"{shown} (no interval)"
    level = f"{100 * workload.confidence:.0f} %"
    return f"{shown} ({level} interval of the {change}: {low:.1f} % to {high:.1f} %)"


def _rate(value: float | None, unit: str = "") -> str:
    """`48.83 sample/s`, `123,456 token/s`."""
    return number(value, 4) + (f" {unit}/s" if unit and value is not None else "")


def _workloads(record: GateRecord) -> list[str]:
    """Table of workloads, worst first, and their remarks."""
    rows, remarks = [], []
    for place, w in enumerate(record.workloads):
        allowed = "" if w.threshold is None else f"{100 * w.threshold:g} %"
        rates = [_rate(value, w.unit) for value in (w.base_units_per_s, w.head_units_per_s)]
        noise = "not measured" if w.noise_pct is None else f"{w.noise_pct:.1f} %"
        rows.append((w.name, w.verdict, slowdown(w), allowed, *rates, str(w.pairs), noise))
        if place:  # the lines above hold those of the worst
            why = w.notes if w.verdict == "pass" else [w.reason, *w.notes]
            remarks += [f"- {text(w.name)}: {_short(each)}" for each in why]
    head = ("workload", "verdict", "slowdown", "allowed", "base", "head", "pairs", "noise")
    return [table(head, "llllllrr", rows), "\n".join(remarks)]


def _details(record: GateRecord) -> list[str]:
    if not record.programs:
        return []
    looks = ", ".join(map(str, LOOKS))
    facts = [
        *(f"{arm}: {text(_revision(record, arm))}" for arm in ARMS),
        f"error budget {100 * ALPHA:g} % a side over looks at {looks} pairs",
        f"intervals at {100 * CONFIDENCE:.0f} % confidence",
        f"Processes: {sum(len(p.runs) for p in record.programs)}, in {record.wall_s:.0f} s",
        f"gpu-advisor {record.tool_version}; {record.created}",
        *(f"{text(p.name)}: {code(p.command)}" for p in record.programs),
        *(str(text(note)) for note in record.notes),
    ]
    listed = "\n".join(f"- {fact}" for fact in facts)
    parts: list[str] = [details("Revisions, rule and machine", listed)]
    for program in record.programs:
        if program.pairs:
            parts.append(details(f"{program.name}: every pair", _pairs(program)))
        for run in program.warm_ups:
            if run.problem:
                body = fenced(run.problem.evidence), text(run.problem.next_step)
                parts.append(details(f"{program.name}: failure of {run.arm}", *body))
    return parts


def _revision(record: GateRecord, arm: str) -> str:
    found = record.base if arm == "base" else record.head
    named = f" ({found.ref})" if found.ref else ""
    dirty = ", with uncommitted changes" if found.dirty else ""
    return f"{(found.sha or 'unknown')[:12]}{named}{dirty}"


def _pairs(program: ProgramEntry) -> str:
    rows = []
    for pair in program.pairs:
        busy = verdict.why_disturbed(*pair.runs)
        counts = (
            f"no: {pair.discarded}"
            if pair.discarded
            else f"yes ({busy})"
            if busy
            else "yes"
        )
        for key in dict.fromkeys([*pair.base.rates, *pair.head.rates]):
            rates = (run.rates.get(key) for run in pair.runs)
            shown = [_rate(rate.mean if rate else None) for rate in rates]
            rows.append((str(pair.number), pair.order, key, *shown, counts))
    return table(("pair", "order", "workload", *ARMS, "counts"), "rllrrl", rows)


def read(path: Path) -> GateRecord:
    return writing.read(path, GateRecord, "gate.json")


def write(record: GateRecord, path: Path, claimed: files.Claim) -> None:
    """Write the report into its claim. Raises OutputRefusedError."""
    report, raw, posted = places(path)
    claimed.write(raw, (record.model_dump_json(indent=1) + "\n").encode())
    for place, body in ((report, markdown(record)), (posted, comment(record))):
        claimed.write(place, f"{body}\n{files.MARKS['.md']}\n".encode(errors="replace"))


def places(path: Path) -> tuple[Path, Path, Path]:
    """Places of report, record and comment."""
    real = Path(os.path.realpath(path))
    return real, real.with_suffix(".json"), real.with_name(f"{real.stem}-comment.md")


if __name__ == "__main__":
    try:
        sys.stdout.write(comment(read(Path(sys.argv[1]))))
    except ReportError as unread:
        sys.exit(f"gpu-advisor: {unread}")

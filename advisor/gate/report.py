"""Gate report: gate.md, gate.json and the comment.

`python -I -m advisor.gate.report gate.json` prints a saved record's comment.

The job that may comment gets the record from a job that ran a pull request's code. So it renders
the comment itself, from the validated record, and posts no text of the artifact as it stands.
"""

import os
import re
import shlex
import sys
import textwrap
from pathlib import Path

from markupsafe import Markup

from advisor import files
from advisor.errors import ReportError
from advisor.gate import verdict
from advisor.gate.comparison import THROUGHPUT, words
from advisor.gate.config import COMMAND
from advisor.gate.schema import ARMS, GateRecord, Inputs, ProgramEntry, WorkloadVerdict
from advisor.gate.sequential_test import ALPHA, LOOKS
from advisor.model import Machine
from advisor.numbers import number
from advisor.report import writing
from advisor.report.markdown import (
    as_markdown,
    code,
    details,
    fenced,
    stacked,
    table,
    text,
)

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
NEXT_STEPS = {  # a pass needs none, and a regression has ACCEPT
    "inconclusive": "More time (--max-minutes), a quieter runner or a larger --threshold would "
    "decide it. `gpu-advisor gate --base-ref HEAD` measures the noise of this runner.",
    "no-baseline": "Once this is merged, the next change has something to be compared with.",
    "invalid": "Nothing is known about the code: see that the runner is sound and left alone, "
    "and run the gate again.",
    "error": "This is no slowdown: make the named run work, then run the gate again.",
}
AT_THE_LAST_LOOK = (
    f"More time changes nothing, as {LOOKS[-1]} pairs are the most. A steadier benchmark, a "
    "quieter runner or a larger --threshold would decide it. `gpu-advisor gate --base-ref HEAD` "
    "measures the noise of this runner."
)
"""Next step where the test has looked for the last time."""
ACCEPT = "Accept it: a bound in base (`[workload.NAME.gate]`), or a maintainer's override."
SENTENCE_CHARACTERS = 300
"""Characters of a sentence in the summary lines.

Judgement: shorter cuts the reason of a verdict, longer buries the table below a message."""
ROWS = 20
"""Rows of the summary's table; the report lists all.

Judgement: fewer hides workloads of an ordinary suite, more pushes the reason out of sight."""
COMMENT_BYTES = 60_000
"""Largest comment in bytes. A part that does not fit is left out whole.

GitHub refuses a longer one: "Body is too long (maximum is 65536 characters)". No text has more
characters than bytes, and the rest is room to spare."""


def markdown(record: GateRecord) -> str:
    """Whole report: summary, all workloads if the summary cut its table, details. Pure."""
    everything = details("Every workload", _table(record, len(record.workloads)))
    all_rows = everything if len(record.workloads) > ROWS else ""
    return stacked(short(record), all_rows, *_details(record)) + "\n"


def comment(record: GateRecord) -> str:
    """Body of a pull request comment, as many whole parts as fit. Pure."""
    body = stacked(MARKER, f"##{_heading(record)}")  # its own # makes three
    for part in (*_parts(record), *_details(record)):
        if part and _bytes(longer := stacked(body, part)) <= COMMENT_BYTES:
            body = longer
    return body


def _bytes(body: str) -> int:
    return len(body.encode(errors="replace"))


def short(record: GateRecord) -> str:
    """Summary of a job: the report without details."""
    return stacked(_heading(record), *_parts(record))


def _heading(record: GateRecord) -> str:
    """`# Throughput: 12.8 % slower (allowed 5 %)`: what happened, by how much, what was allowed."""
    heading = f"{title(record)[:1].lower()}{title(record)[1:]}"
    worst = next(iter(record.workloads), None)
    if (
        worst is None
        or worst.slowdown_pct is None
        or record.verdict in {"error", "invalid"}
    ):
        return f"# Throughput: {heading}"
    name = "Throughput" if worst.figure == THROUGHPUT else worst.figure.capitalize()
    by = _change_in_words(worst)
    what = by if record.verdict == "regression" else f"{heading}, {by}"
    many = len(record.workloads)
    which = f", the worst of {many} workloads" if many > 1 else ""
    return f"# {name}: {what} (allowed {_allowed(worst, record)}{which})"


def _change_in_words(workload: WorkloadVerdict) -> str:
    """`9.7 % slower`: size of the change, its sign as a word of the figure."""
    worse, better, _ = words(workload.figure)
    value = workload.slowdown_pct or 0.0
    return f"{abs(value):.1f} % {worse if value > 0 else better}"


def _allowed(workload: WorkloadVerdict, record: GateRecord) -> str:
    return f"{100 * (workload.threshold or record.inputs.threshold):g} %"


def _parts(record: GateRecord) -> list[str]:
    """Below the heading: the table, what was found, and what to do."""
    left = len(record.workloads) - ROWS
    more = f"{left} more workloads are in the report." if left > 0 else ""
    said = f"{_cut(reason(record))} {_next_step(record)}".rstrip()
    again = _again(record)
    todo = [said, f"Reproduce: {code(again)}."] if again else [said]
    if record.verdict == "regression":
        todo.append(ACCEPT)
    return [_table(record, ROWS), more, "\n".join(todo), _remarks(record)]


def _next_step(record: GateRecord) -> str:
    """Advice by verdict; only where a change was measured against another commit."""
    if not record.programs or record.mode != "ab":
        return ""
    if record.verdict == "inconclusive" and record.pairs >= LOOKS[-1]:
        return AT_THE_LAST_LOOK
    return NEXT_STEPS.get(record.verdict, "")


def _again(record: GateRecord) -> str:
    """Command that measures the same against the same commit; empty if there is none.

    It has the threshold of this call. What the record does not hold, as --setup and --link, is
    the caller's to add.
    """
    names = ",".join(program.name for program in record.programs)
    asked = f"--workload {names}"
    if names == COMMAND:
        asked = f"--command {shlex.quote(record.programs[0].command)}"
    elif not re.fullmatch(r"[\w.,/-]+", names):
        return ""  # not to be typed, or nothing was chosen
    base = f" --base-ref {record.base.sha[:12]}" if record.base.sha else ""
    threshold = record.inputs.threshold
    limit = "" if threshold == Inputs().threshold else f" --threshold {threshold:g}"
    return f"gpu-advisor gate {asked}{base}{limit}"


def lines(record: GateRecord) -> str:
    """Result for stdout, as a list in Markdown."""
    said = f"{_cut(reason(record))} {_next_step(record)}".rstrip()
    said_lines = [f"**{title(record)}**: {said}"]
    if not record.programs:
        said_lines.append("Nothing was measured.")
    elif record.workloads:
        worst, count = record.workloads[0], len(record.workloads)
        which = f" of the worst of {count} workloads" if count > 1 else ""
        said_lines += [
            f"Slowdown{which}: {slowdown(worst)}; allowed: {_allowed(worst, record)}",
            f"Pairs: {_counts(record)}",
            f"Hardware: {text(f'{_hardware(record.host)}; {record.validity}')}",
            *(text(note) for note in worst.notes),
        ]
    return "\n".join(f"- {line}" for line in said_lines)


def _counts(record: GateRecord) -> str:
    """Pairs of the worst workload, discarded pairs of all programs, and origin of the rates."""
    sources = " and ".join(sorted({w.source for w in record.workloads if w.source}))
    order = f"in random order (seed {record.inputs.seed})"
    which, where = "", ""
    if len(record.programs) > 1:
        which, where = " of the worst workload,", " in all programs"
    pairs = f"{record.pairs}{which} of fresh processes {order}"
    counts = f"{pairs}, {record.discarded_pairs} discarded{where}"
    return f"{counts}; rates from {sources or 'nothing'}"


def _cut(said: str) -> Markup:
    """`said` as Markdown text, up to SENTENCE_CHARACTERS of it."""
    return text(textwrap.shorten(said, SENTENCE_CHARACTERS, placeholder=" ..."))


def _hardware(host: Machine | None) -> str:
    if host is None:
        return "unknown"
    if not host.gpus:
        return f"no GPU; {host.cpus} CPUs of {host.cpu_model}"
    return f"{', '.join(gpu.name for gpu in host.gpus)}, driver {host.gpus[0].driver}"


def title(record: GateRecord) -> str:
    equal = "Equal code: " if record.mode == "noise" else ""
    return f"{equal}{TITLES[record.verdict]}"


def reason(record: GateRecord) -> str:
    return record.reason.rstrip(".: \n") + "."


def slowdown(workload: WorkloadVerdict) -> str:
    """`9.7 % slower (95 % interval of the slowdown: 8.1 % to 11.2 %)`.

    A negative bound lies on the better side.
    """
    if workload.slowdown_pct is None:
        return "not measured"
    low, high = workload.ci_low_pct, workload.ci_high_pct
    if workload.confidence is None or low is None or high is None:
        return f"{_change_in_words(workload)} (no interval)"
    change, level = words(workload.figure)[2], f"{100 * workload.confidence:.3g} %"
    interval = f"{level} interval of the {change}: {low:.1f} % to {high:.1f} %"
    return f"{_change_in_words(workload)} ({interval})"


def _change(workload: WorkloadVerdict) -> str:
    """`**-12.8 %** (-14.0 to -11.2, 95 % certain)`: change of the figure itself.

    So a slowdown of a rate is negative, and a growth of memory positive. Bold unless it passed.
    """
    if workload.slowdown_pct is None:
        return "not measured"
    sign = -1 if workload.better == "higher" else 1
    percent = f"{sign * workload.slowdown_pct:+.1f} %"
    percent = percent if workload.verdict == "pass" else f"**{percent}**"
    ends = [workload.ci_low_pct, workload.ci_high_pct]
    bounds = [sign * end for end in ends if end is not None]
    if workload.confidence is None or len(bounds) < len(ends):
        return f"{percent} (no interval)"
    low, high = sorted(bounds)
    return (
        f"{percent} ({low:+.1f} to {high:+.1f}, {100 * workload.confidence:.3g} % certain)"
    )


def _rate(value: float | None, unit: str = "") -> str:
    """`48.83 sample/s`, `123,456 token/s`."""
    return number(value, 4) + (f" {unit}/s" if unit and value is not None else "")


def _table(record: GateRecord, rows: int) -> str:
    """Table of workloads, worst first: their figures in both commits, and the change."""
    arms = [_arm(record, arm) for arm in ARMS]
    commands = {program.name: program.command for program in record.programs}
    listed = []
    for w in record.workloads[:rows]:
        rates = [_rate(value, w.unit) for value in (w.base_units_per_s, w.head_units_per_s)]
        command = commands.get(COMMAND) if w.name == COMMAND else None
        listed.append(
            (
                code(command) if command else w.name,
                *rates,
                as_markdown(_change(w)),
                w.verdict,
            )
        )
    return table(("", *arms, "change", "verdict"), "lrrrl", listed)


def _arm(record: GateRecord, arm: str) -> str:
    """`base 83bec89`, and whether uncommitted changes belong to it."""
    revision = record.base if arm == "base" else record.head
    return f"{arm} {(revision.sha or '')[:7]}".rstrip() + (
        " and changes" if revision.dirty else ""
    )


def _remarks(record: GateRecord) -> str:
    """Reasons of the workloads that did not pass, and notes of all, for the table's rows.

    The reason of the worst is left out: the record's own reason stands above.
    """
    remarks = []
    for place, w in enumerate(record.workloads[:ROWS]):
        sentences = w.notes if w.verdict == "pass" or not place else [w.reason, *w.notes]
        remarks += [f"- {text(w.name)}: {_cut(sentence)}" for sentence in sentences]
    return "\n".join(remarks)


def _details(record: GateRecord) -> list[str]:
    """Folds: facts, every pair, and the logs of warm-ups that failed."""
    if not record.programs:
        return []
    looks = ", ".join(map(str, LOOKS))
    facts = [
        *(f"{arm}: {text(_revision(record, arm))}" for arm in ARMS),
        f"error budget {100 * ALPHA:g} % a side over looks at {looks} pairs",
        f"Pairs: {_counts(record)}",
        f"Hardware: {text(f'{_hardware(record.host)}; {record.validity}')}",
        *(
            f"Noise of {text(w.name)}: {w.noise_pct:.1f} % between equal processes"
            for w in record.workloads[:ROWS]
            if w.noise_pct is not None
        ),
        f"Processes: {sum(len(p.runs) for p in record.programs)}, in {record.wall_s:.0f} s",
        f"gpu-advisor {record.tool_version}; {record.created}",
        *(f"{text(p.name)}: {code(p.command)}" for p in record.programs),
        *(str(text(note)) for note in record.notes),
    ]
    listed = "\n".join(f"- {fact}" for fact in facts)
    parts: list[str] = [details("Machine, noise and rule", listed)]
    for program in record.programs:
        if program.pairs:
            parts.append(details(f"{program.name}: every pair", _pairs(program)))
        for run in program.warm_ups:
            if run.problem:
                body = fenced(run.problem.evidence), text(run.problem.next_step)
                parts.append(details(f"{program.name}: failure of {run.arm}", *body))
    return parts


def _revision(record: GateRecord, arm: str) -> str:
    revision = record.base if arm == "base" else record.head
    named = f" ({revision.ref})" if revision.ref else ""
    dirty = ", with uncommitted changes" if revision.dirty else ""
    return f"{(revision.sha or 'unknown')[:12]}{named}{dirty}"


def _pairs(program: ProgramEntry) -> str:
    rows = []
    for pair in program.pairs:
        busy = verdict.why_disturbed(*pair.runs)
        counts = f"yes ({busy})" if busy else "yes"
        if pair.discarded:
            counts = f"no: {pair.discarded}"
        for key in dict.fromkeys([*pair.base.rates, *pair.head.rates]):
            rates = (run.rates.get(key) for run in pair.runs)
            cells = [_rate(rate.mean if rate else None) for rate in rates]
            rows.append((str(pair.number), pair.order, key, *cells, counts))
    return table(("pair", "order", "workload", *ARMS, "counts"), "rllrrl", rows)


def read(path: Path) -> GateRecord:
    return writing.read(path, GateRecord, "gate.json")


def write(record: GateRecord, path: Path, claimed: files.Claim) -> None:
    """Write report, record and comment to their claimed places. Raises OutputRefusedError."""
    report, record_path, posted = places(path)
    claimed.write(record_path, (record.model_dump_json(indent=1) + "\n").encode())
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

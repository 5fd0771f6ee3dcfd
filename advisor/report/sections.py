"""Sections of a report, in reading order.

Each renders Markdown, or None.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor import numbers
from advisor.config import argv
from advisor.model import leaf_of
from advisor.objective import METRICS, OBJECTIVES, THROUGHPUT
from advisor.report import figures, markdown
from advisor.report.bottleneck import IDLE, PARTS
from advisor.report.markdown import code, details, fenced, fill, table, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from advisor.model import Change, Decision
    from advisor.report.schema import (
        QualityEntry,
        Report,
        RoundEntry,
        Side,
        SuggestionEntry,
        TrialEntry,
    )

EFFECTS = {
    "free": "same work",
    "training": "an update has as many samples as before",
    "numeric": "rounding changes",
    "quality": "the product changes",
}
"""Class of a change to its effect on results."""
ALWAYS_SHOWN = "energy"
"""Metric that is shown wherever it was measured; others if they were asked for."""
OTHER_DRAWS = "same distribution; random draws may differ"
OUTCOME_ORDER = ("changed", "advised", "kept", "ignored", "skipped", "refused", "listed")
MOST_CHANGES, MOST_DIFF_LINES, MOST_ACTIONS = 5, 7, 3
MOST_SETTINGS, MOST_CAVEATS = 6, 3
"""Lines of each part above the details; the rest follows in the details."""
BUSY_PCT = 95
"""Utilisation of a GPU from which on nothing is left to explain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A report, and the files beside its Markdown."""

    report: Report
    stem: str = "report"
    image: str = ""
    """Target of the figure; empty where none was drawn."""

    @property
    def sides(self) -> list[Side]:
        """Columns of the tables: before and after, or the original alone."""
        report = self.report
        return [report.before, report.after] if report.changes else [report.before]


def patch_file(stem: str, number: int) -> str:
    """Name of the patch file of suggestion `number`."""
    return f"{stem}-advice-{number}.patch"


# --- verdict ------------------------------------------------------------------------------


def verdict(page: Page) -> str:
    """Headline, reason, and all that qualifies them."""
    report = page.report
    likely = "Likely, not proven" if report.candidate else "Not finished"
    outcome = {"improved": "Improved", "unchanged": "Unchanged", "partial": likely}[report.verdict]
    if report.config and not report.written and report.verdict != "improved":
        outcome += ": {config} was not changed"
    notes = (f"{measured_on(report)}.", report.isolation_note, report.load_note)
    lines = [
        fill("# {subject}: {title}", subject=subject(report), title=title(report)),
        fill("**{note}**", note=report.baseline_note) if report.baseline_note else "",
        fill(f"**{outcome}.** {{reason}}", reason=report.reason, config=code(report.config)),
        text(gpu_lead(page)) if report.machine.gpus else "",
        text(" ".join(filter(None, notes))),
    ]
    return "\n\n".join(filter(None, lines))


def subject(report: Report) -> str:
    """The config, or the program where there is none."""
    if report.config:
        return report.config
    try:
        words = shlex.split(report.command)
    except ValueError:  # no shell text
        return report.command
    return shlex.join(words[: argv.first_own_word(words)]) or "the program"


def title(report: Report) -> str:
    """Title with the gain, or the outcome.

    `2.91x as many tiles a second`
    """
    gain = report.gain
    if report.verdict != "improved" or gain is None:
        likely = "likely, not proven" if report.candidate else "not finished"
        return likely if report.verdict == "partial" else "unchanged"
    shown = OBJECTIVES[report.objective].gained(gain.size, report.unit)
    kept = " and ".join(report.restored_constraints)
    kept = f"inside {kept}, " if kept else ""
    return f"{kept}{shown}{', not written (dry run)' if report.dry_run else ''}"


def gpu_lead(page: Page) -> str:
    """Lead on the GPU: utilisation and memory."""
    report, last = page.report, page.sides[-1]
    utils = [side.gpu_util_pct for side in page.sides]
    used = [side.gpu_mem_used_gib or side.peak_mem_gib for side in page.sides]
    parts = []
    if None not in utils:
        shown = " to ".join(numbers.percent((util or 0.0) / 100) for util in utils)
        parts.append(f"GPU utilisation {shown} (nvidia-smi's figure){_why_not_full(last)}")
    if None not in used:
        whole = report.machine.gpus[0].memory_total_gib if report.machine.gpus else None
        of = f" of {numbers.gib(whole)}" if whole else ""
        parts.append(f"memory {' to '.join(map(numbers.gib, used))}{of}")
    return f"{'; '.join(parts)}." if parts else ""


def _why_not_full(side: Side) -> str:
    """Largest part of the time that leaves the GPU too little to do."""
    idle = {name: side.shares.get(name, 0.0) for name in IDLE}
    largest = max(idle, key=lambda name: idle[name])
    if (side.gpu_util_pct or 0.0) >= BUSY_PCT or idle[largest] < numbers.WORTH_SAYING:
        return ""
    return f", not 100 % mainly because of {PARTS[largest].name}"


def measured_on(report: Report) -> str:
    """The machine in one line."""
    machine = report.machine
    ram = numbers.gib(machine.ram_limit_gib)
    host = f"{machine.cpu_model}, {numbers.many(machine.cpus, 'CPU')}, {ram} RAM"
    if machine.gpus:
        return f"Measured on {', '.join(gpu.name for gpu in machine.gpus)}; {host}"
    return f"Measured on {host}; NVML shows no GPU"


# --- before and after ---------------------------------------------------------------------


def before_and_after(page: Page) -> str | None:
    """Table of figures and settings; None where nothing was measured."""
    report = page.report
    if report.before.units_per_s is None:
        return None
    measured = _measures(page)
    if not report.changes:
        return table(("", "as it is"), "lr", [row[:2] for row in measured])
    rows = measured + _changed(report.changes)
    lines: list[str] = [table(("", "before", "after", "change"), "lrrl", rows)]
    if report.gain_free and any(c.knob_class in {"numeric", "quality"} for c in report.changes):
        free = report.gain_free.text
        lines.append(text(f"The settings that keep results give {free} of that."))
    return "\n\n".join(lines)


def _changed(changes: Sequence[Change]) -> list[tuple[str, ...]]:
    """Rows of the changed settings, by their short names where these differ."""
    leaves = [leaf_of(change.path) for change in changes]
    rows: list[tuple[str, ...]] = []
    for change, leaf in zip(changes[:MOST_CHANGES], leaves, strict=False):
        name = code(leaf if leaves.count(leaf) == 1 else change.path)
        old, new = markdown.value(change.old), markdown.value(change.new)
        rows.append((name, old, new, effect(change)))
    more = len(changes) - MOST_CHANGES
    return [*rows, (f"and {more} more, in the diff", "", "", "")] if more > 0 else rows


def effect(change: Change) -> str:
    """Effect of one change on results."""
    if change.knob_class == "free" and change.kind == "batch_size":
        return OTHER_DRAWS
    return EFFECTS[change.knob_class]


def _measures(page: Page) -> list[tuple[str, ...]]:
    """Measured rows of the table: label, a value a side, change."""
    report, sides = page.report, page.sides
    units, rates = numbers.plural(report.unit), [side.units_per_s for side in page.sides]
    shown = [
        numbers.interval(side.units_per_s, side.units_per_s_low, side.units_per_s_high)
        for side in sides
    ]
    change = _row("", rates, numbers.number)[-1]
    if report.gain and report.objective == THROUGHPUT.name:
        change = report.gain.text
    thousand = [numbers.duration(1000 / rate if rate else None, 3) for rate in rates]
    rows = [
        (f"{units}/s", *shown, change if report.changes else ""),
        (f"time per 1,000 {units}", *thousand, ""),
        _row("peak memory", [side.peak_mem_gib for side in sides], numbers.gib),
        _row("tokens/s", [side.tokens_per_s for side in sides], numbers.number),
    ]
    asked = " ".join((ALWAYS_SHOWN, report.objective, *report.constraints))
    for name, metric in METRICS.items():
        if name in asked and name != THROUGHPUT.name:
            label = f"{name}, {metric.unit_for(report.unit)}"
            rows.append(_row(label, [side.figures.get(name) for side in sides], numbers.number))
    judged = [each.judgement for each in report.quality]
    limits = {each.measure: f" (limit {numbers.measure(each.limit)})" for each in judged}
    for name in dict.fromkeys([*report.before.quality, *report.after.quality]):
        values = [side.quality.get(name) for side in sides]
        rows.append(_row(f"{name}{limits.get(name, '')}", values, numbers.measure))
    return [row for row in rows if set(row[1:-1]) != {numbers.NOT_MEASURED}]


def _row(
    label: str, values: Sequence[float | None], show: Callable[[float | None], str]
) -> tuple[str, ...]:
    first, last = values[0], values[-1]
    change = numbers.ratio(last / first) if first and last and first != last else ""
    return label, *map(show, values), change


def config_diff(page: Page) -> str | None:
    """The changed lines of the config."""
    lines = page.report.diff.splitlines()
    if len(lines) > MOST_DIFF_LINES:
        lines = [line for line in lines if line[:1] != " "]
    if len(lines) > MOST_DIFF_LINES:
        more = len(lines) - MOST_DIFF_LINES + 1
        lines = [*lines[: MOST_DIFF_LINES - 1], f"... {more} more lines"]
    return fenced("\n".join(lines), "diff") if lines else None


def run_and_undo(page: Page) -> str | None:
    """Commands to run and revert the result."""
    report = page.report
    parts = {"run it": report.how_to_run, "undo it": report.how_to_revert}
    shell = "\n".join(f"# {name}\n{lines.strip()}" for name, lines in parts.items() if lines)
    return fenced(shell, "sh") if shell and report.changes else None


# --- next actions -------------------------------------------------------------------------


def next_actions(page: Page) -> str | None:
    """Steps with the call that does them, and suggestions with their patches."""
    report = page.report
    steps = [fill("  - {step}.", step=step) for step in report.next_actions[:MOST_ACTIONS]]
    if steps:
        steps.insert(0, fill("- Go on with {command}", command=code(report.next_command)))
    numbered = sorted(
        enumerate(report.suggestions, 1),
        key=lambda each: -(each[1].gain.ratio if each[1].gain else 0.0),
    )
    lines = [_suggestion(entry, page.stem, number) for number, entry in numbered]
    shown = [*steps, *_first(lines, MOST_ACTIONS, "suggestion")]
    return "\n".join(("## Next actions\n", *shown)) if shown else None


def _suggestion(entry: SuggestionEntry, stem: str, number: int) -> str:
    line = fill("- Suggested, not applied: **{title}**", title=entry.title)
    line += fill(" at {site}", site=code(entry.site)) if entry.site else ""
    line += fill(", {gain}", gain=entry.gain.text) if entry.gain else ""
    if entry.patch:
        return f"{line}. {code(f'git apply {shlex.quote(patch_file(stem, number))}')}"
    return line + fill(". {detail}", detail=entry.detail)


def _first(lines: list[str], most: int, noun: str) -> list[str]:
    """The first lines, and the number of those in the details."""
    more = len(lines) - most
    rest = [f"- and {numbers.many(more, f'more {noun}')} in the details"] if more > 0 else []
    return [*lines[:most], *rest]


# --- where the time goes ------------------------------------------------------------------


def time(page: Page) -> str | None:
    """One sentence and one table."""
    report = page.report
    found = (report.bottleneck_after if report.changes else None) or report.bottleneck_before
    head = ("before", "after") if report.changes else ("as it is",)
    rows = _time_rows(page.sides)
    if found is None and not rows:
        return None
    blocks: list[str] = ["## Where the time goes", text(found.sentence) if found else ""]
    if rows:
        part = f"part of {numbers.one(report.unit)}"
        blocks.append(table((part, *head), "l" + "r" * len(head), rows))
    return "\n\n".join(filter(None, blocks))


def _time_rows(sides: list[Side]) -> list[tuple[str, ...]]:
    """Time and share of each part that is worth a line."""
    counted_by_events = any("launch" in side.shares for side in sides)
    rows = []
    for part, words in PARTS.items():
        shares = [side.shares.get(part) for side in sides]
        if max(share or 0.0 for share in shares) >= numbers.WORTH_SAYING:
            least = ", at least" if part == "compute" and counted_by_events else ""
            rows.append((f"{words.name}{least}", *map(_part, sides, shares)))
    return rows


def _part(side: Side, share: float | None) -> str:
    if share is None or not side.units_per_s:
        return ""
    return f"{numbers.duration(share / side.units_per_s, 3)} ({numbers.percent(share)})"


def picture(page: Page) -> str | None:
    """Throughput and memory by batch."""
    curve = figures.batch_curve(page.report)
    return f"![{text(curve.alt)}]({page.image})" if curve and page.image else None


# --- settings and caveats -----------------------------------------------------------------


def settings(page: Page) -> str | None:
    """Settings of the running phase, with reasons."""
    lines = _first(_considered(page.report), MOST_SETTINGS, "setting")
    return "\n".join(("## Settings considered\n", *lines)) if lines else None


def _considered(report: Report) -> list[str]:
    entries = sorted(
        (entry for entry in report.decisions if entry.in_phase),
        key=lambda entry: (OUTCOME_ORDER.index(entry.outcome), not entry.trials),
    )
    return [_setting(entry) for entry in entries]


def _setting(entry: Decision) -> str:
    change = "{old} to {new}" if entry.outcome == "changed" else "{old}"
    return fill(
        f"- {{path}} {change}: {{reason}}",
        path=code(entry.path),
        old=markdown.value(entry.old, 40),
        new=markdown.value(entry.new, 40),
        reason=entry.reason,
    )


def caveats(page: Page) -> str | None:
    """Facts that limit the figures, the most important first."""
    lines = _notes(page.report.notes[:MOST_CAVEATS])
    return f"## Caveats\n\n{lines}" if lines else None


def _notes(notes: Iterable[str]) -> str:
    return "\n".join(fill("- {note}", note=note) for note in notes)


# --- details ------------------------------------------------------------------------------


def details_heading(_: Page) -> str:
    """The end of the memo."""
    return "## Details"


def rounds(page: Page) -> str | None:
    """Every round of every comparison."""
    report = page.report
    blocks: list[str] = []
    for each in report.comparisons:
        if each.rounds:
            gain = each.gain.text if each.gain else "no interval"
            blocks.append(
                text(
                    f"{each.after} against {each.before}: {gain}, {report.objective_unit} by round."
                )
            )
            rows = [_round(entry) for entry in each.rounds]
            blocks.append(table(("round", "before", "after", ""), "rrrl", rows))
    return details("Rounds of the comparisons", "\n\n".join(blocks)) if blocks else None


def _round(entry: RoundEntry) -> tuple[object, ...]:
    contended = f"contended: {entry.contended}" if entry.contended else ""
    note = contended + ("" if entry.counted else ", not counted")
    return entry.round, numbers.number(entry.before), numbers.number(entry.after), note


def trials(page: Page) -> str | None:
    """Every process of the call, and the last output of those that failed."""
    report = page.report
    if not report.trials:
        return None
    rate = f"{numbers.plural(report.unit)}/s"
    head = ("trial", "purpose", "variant", rate, "batch", "workers", "wait", "peak memory", "took")
    rows = [(t.id, t.purpose, t.label, *_trial_figures(t)) for t in report.trials]
    blocks: list[str] = [table((*head, ""), "lllrrrrrrl", rows)]
    for trial in report.trials:
        if trial.outcome != "ok" and trial.detail:
            blocks.append(text(f"{trial.id}, {trial.label}, {trial.outcome}:"))
            blocks.append(fenced(trial.detail))
    done = numbers.many(report.runs, "process")
    took = f"{done} in {numbers.duration(report.wall_s)}"
    return details(f"{numbers.many(len(rows), 'trial')}: {took}", "\n\n".join(blocks))


def _trial_figures(trial: TrialEntry) -> Iterable[str]:
    """Figures of a trial, empty where not measured, and its outcome."""
    for show, value in (
        (numbers.number, trial.units_per_s),
        (numbers.count, trial.batch),
        (numbers.count, trial.workers),
        (numbers.percent, trial.wait_share),
        (numbers.gib, trial.peak_mem_gib),
        (numbers.duration, trial.wall_s),
    ):
        yield "" if value is None else show(value)
    outcome = trial.outcome if trial.outcome != "ok" else ""
    yield f"{outcome} {'from history' if trial.reused else ''}".strip()


def quality(page: Page) -> str | None:
    """Every judgement of a quality measure."""
    rows = [_judgement(each) for each in page.report.quality]
    head = ("measure", "variant", "value", "original", "limit", "")
    return details("Quality", table(head, "llrrrl", rows)) if rows else None


def _judgement(entry: QualityEntry) -> tuple[str, ...]:
    found = entry.judgement
    bounds = (found.low, found.high)
    shown = f" ({' to '.join(map(numbers.measure, bounds))})" if None not in bounds else ""
    items = f" of {found.items} items" if found.items > 1 else ""
    judged = "within" if found.within else "outside"
    return (
        found.measure,
        entry.candidate,
        numbers.measure(found.value) + shown,
        numbers.measure(found.reference),
        numbers.measure(found.limit),
        f"{judged}, {found.stage}, {numbers.many(found.runs, 'pair')}{items}",
    )


def evidence(page: Page) -> str | None:
    """Measurements behind the sentence on the time."""
    report = page.report
    blocks: list[str] = []
    for name, found in (("Before", report.bottleneck_before), ("After", report.bottleneck_after)):
        if found is not None and (found.evidence or report.changes):
            blocks.append(text(f"{name}: {found.sentence}"))
            blocks.append("\n".join(fill("- {line}", line=line) for line in found.evidence))
    shown = "\n\n".join(filter(None, blocks))
    return details("Evidence of where the time goes", shown) if shown else None


def not_above(page: Page) -> str | None:
    """Diff and settings that did not fit above."""
    diff, rest = page.report.diff, _considered(page.report)[MOST_SETTINGS:]
    blocks = [details("More settings", "\n".join(rest))] if rest else []
    if len(diff.splitlines()) > MOST_DIFF_LINES:
        blocks.append(details("Diff of the config", fenced(diff, "diff")))
    return "\n\n".join(blocks) or None


def patches(page: Page) -> str | None:
    """Every suggestion with its text and its patch."""
    blocks: list[str] = []
    for number, entry in enumerate(page.report.suggestions, 1):
        blocks.append(fill("**{title}.** {detail}", title=entry.title, detail=entry.detail))
        if entry.patch:
            place = code(patch_file(page.stem, number))
            blocks += [fill("Patch, also in {place}:", place=place), fenced(entry.patch, "diff")]
    return details("Suggestions and patches", "\n\n".join(blocks)) if blocks else None


def machine(page: Page) -> str:
    """Host, card, isolation, noise and the command."""
    report, host, target = page.report, page.report.machine, page.report.target
    rows: list[tuple[str, object]] = [
        ("CPU", f"{host.cpu_model}, {host.cpus} usable"),
        ("memory", numbers.gib(host.ram_limit_gib)),
        ("GPU", ", ".join(gpu.name for gpu in host.gpus) or host.gpu_note or "none"),
        ("driver", host.gpus[0].driver if host.gpus else None),
        ("system", host.os),
        ("Python", host.python),
        ("isolation", report.isolation),
        ("spread of equal runs", report.noise and numbers.percent(report.noise)),
    ]
    if target is not None and target.name != "cpu":
        rows += [("target", target.title), ("capacity", target.figures)]
    later = [f"Not tried: {action}" for action in report.next_actions[MOST_ACTIONS:]]
    blocks = [
        table(("", ""), "ll", [row for row in rows if row[1]]),
        fill("Command, in {cwd}:", cwd=code(report.cwd)),
        fenced(report.command, "sh"),
        _notes((*later, *report.notes[MOST_CAVEATS:])),
    ]
    return details("Machine and call", "\n\n".join(filter(None, blocks)))


SECTIONS: tuple[Callable[[Page], str | None], ...] = (
    verdict,
    before_and_after,
    config_diff,
    run_and_undo,
    next_actions,
    time,
    picture,
    settings,
    caveats,
    details_heading,
    rounds,
    trials,
    quality,
    evidence,
    not_above,
    patches,
    machine,
)
"""Every section, in the order of reading."""


def render(report: Report, stem: str = "report", image: str = "") -> str:
    """`report` as the Markdown of `STEM.md`; `image` is the target of its figure."""
    page = Page(report=report, stem=stem, image=image)
    found = (section(page) for section in SECTIONS)
    return "\n\n".join(each for each in found if each) + "\n"

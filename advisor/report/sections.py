"""Sections of a report, in reading order.

Each renders Markdown, or None.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

from advisor import numbers
from advisor.config import argv
from advisor.objective import OBJECTIVES
from advisor.report import figures, markdown
from advisor.report.markdown import code, details, fenced, fill, table, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from advisor.report.schema import ChangeEntry, DecisionEntry, Report, Side, TrialEntry

EFFECTS = {
    "free": "same work",
    "training": "an update has as many samples as before",
    "numeric": "rounding changes",
    "quality": "the product changes",
}
"""Class of a change to its effect on results."""
OTHER_DRAWS = "same distribution; random draws may differ"
SHARES = {
    "data_wait": "waiting for data",
    "host_to_device": "copy to device",
    "compute": "compute",
    "launch": "launching kernels",
    "sync": "waiting for the GPU",
    "saving": "saving",
    "other": "host code between steps",
}
"""Field of `shares` to its name."""
OUTCOME_ORDER = ("changed", "advised", "kept", "ignored", "skipped", "refused", "listed")
MOST_CHANGES, MOST_DIFF_LINES, MOST_ACTIONS = 5, 7, 3
MOST_PARTS, MOST_SETTINGS, MOST_CAVEATS, MOST_SKIPPED = 3, 6, 3, 3
"""Lines of each part above the details; the rest follows in the details."""
WATCHED_MARGIN = 0.10
"""Growth of the peak memory from which on something is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A report, and the files beside its Markdown."""

    report: Report
    stem: str = "report"
    figures_dir: str = ""
    figures: frozenset[str] = field(default_factory=frozenset)
    """Names of the figures that were drawn."""

    def patch_file(self, number: int) -> str:
        """Name of the patch file of suggestion `number`."""
        return patch_file(self.stem, number)


def patch_file(stem: str, number: int) -> str:
    """Name of the patch file of suggestion `number`."""
    return f"{stem}-advice-{number}.patch"


# --- verdict ------------------------------------------------------------------------------


def verdict(page: Page) -> str:
    """Headline, reason, and all that qualifies them."""
    report = page.report
    lines: list[str] = [fill("# {subject}: {title}", subject=subject(report), title=title(report))]
    lines.append(fill(_verdict_text(report), reason=report.reason, config=code(report.config)))
    if report.baseline_note:
        lines.append(fill("**{note}**", note=report.baseline_note))
    if report.candidate is not None:
        lines.append(_best_so_far(report))
    if report.machine.gpus and (lead := gpu_lead(report)):
        lines.append(text(lead))
    notes = (f"{measured_on(report)}.", report.isolation_note, report.load_note)
    lines.append(text(" ".join(filter(None, notes))))
    return "\n\n".join(lines)


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
    if report.verdict != "improved" or report.gain is None:
        likely = "likely, not proven" if report.candidate else "not finished"
        return likely if report.verdict == "partial" else "unchanged"
    gain = report.gain
    ratio = numbers.ratio(gain.ratio) if gain.high else f"more than {numbers.ratio(gain.low)}"
    one, units = numbers.one(report.unit), numbers.plural(report.unit)
    shown = OBJECTIVES[report.objective].gain_title.format(ratio=ratio, one=one, units=units)
    kept = f"inside {' and '.join(report.restored_constraints)}, "
    kept = kept if report.restored_constraints else ""
    doubt = ", quality not proven" if report.quality_proven is False else ""
    written = ", not written (dry run)" if report.dry_run else ""
    return f"{kept}{shown}{doubt}{written}"


def _verdict_text(report: Report) -> str:
    if report.verdict == "improved":
        return "**Improved.** {reason}"
    if report.verdict == "unchanged":
        same = ": {config} is byte for byte as it was" if report.config else ""
        return f"**Unchanged{same}.** {{reason}}"
    same = ": {config} was not changed" if report.config and not report.written else ""
    outcome = "Likely, not proven" if report.candidate else "Not finished"
    return f"**{outcome}{same}.** {{reason}}"


def _best_so_far(report: Report) -> str:
    best = report.candidate
    assert best is not None
    if best.gain is None:
        seen = f"{numbers.ratio(best.ratio)} in one run, without bounds"
    else:
        seen = f"{numbers.gain(best.gain)} in {numbers.many(best.gain.pairs, 'round')}"
    finish = next((action.command for action in report.next_actions if action.command), None)
    line = fill("Best so far: {label}, {seen}.", label=code(best.label), seen=seen)
    return line + (fill(" To finish it: {command}", command=code(finish)) if finish else "")


def gpu_lead(report: Report) -> str:
    """Lead on the GPU: utilisation, memory and batch limit."""
    sides = [report.before, report.after] if report.changes else [report.before]
    parts = []
    utils = [side.gpu_util_pct for side in sides]
    if None not in utils:
        shown = " to ".join(numbers.percent((util or 0.0) / 100) for util in utils)
        parts.append(f"GPU utilisation {shown} (NVML)")
    used = [side.gpu_mem_used_gib or side.peak_mem_gib for side in sides]
    if None not in used:
        whole = report.machine.gpu_mem_gib
        of = f" of {numbers.gib(whole)}" if whole else ""
        parts.append(f"memory {' to '.join(numbers.gib(gib) for gib in used)}{of}")
    if limit := _batch_limit(report, sides[-1]):
        parts.append(limit)
    return f"{'; '.join(parts)}." if parts else ""


def _batch_limit(report: Report, side: Side) -> str:
    """Largest batch that ran, with its limit.

    `batch 64; 128 is the largest that ran, 256 failed (gpu-oom)`
    """
    if not side.batch:
        return ""
    ran = max((t.batch for t in report.trials if t.outcome == "ok" and t.batch), default=side.batch)
    failed = sorted(
        (batch, trial.outcome)
        for trial in report.trials
        if trial.outcome != "ok" and (batch := figures.batch_of(report, trial)) and batch > ran
    )
    shown = f"batch {numbers.count(side.batch)}; {numbers.count(ran)} is the largest that ran"
    if failed:
        return f"{shown}, {numbers.count(failed[0][0])} failed ({failed[0][1]})"
    limit = report.target.memory_limit_gib if report.target else None
    return shown + (f", memory limit {numbers.gib(limit)}" if limit else "")


def measured_on(report: Report) -> str:
    """The machine in one line."""
    machine = report.machine
    host = f"{machine.cpu}, {numbers.many(machine.cpus, 'CPU')}, {numbers.gib(machine.ram_gib)} RAM"
    if machine.gpus:
        return f"Measured on {', '.join(machine.gpus)}; {host}"
    return f"Measured on {host}; there is no GPU"


# --- before and after ---------------------------------------------------------------------


def before_and_after(page: Page) -> str | None:
    """Table of figures and settings, before and after.

    None where nothing was measured.
    """
    report = page.report
    if report.before.units_per_s is None:
        return None
    if not report.changes:
        as_it_is = [(label, values[0]) for label, values, _ in _measures(report)]
        return table(("", "as it is"), "lr", as_it_is)
    rows: list[tuple[str, ...]] = [
        (label, *values, change) for label, values, change in _measures(report)
    ]
    shown = report.changes[:MOST_CHANGES]
    rows += [
        (code(c.path), markdown.value(c.from_), markdown.value(c.to), effect(report, c))
        for c in shown
    ]
    if more := len(report.changes) - len(shown):
        rows.append((f"and {more} more, in the diff", "", "", ""))
    lines = [table(("", "before", "after", "change"), "lrrl", rows), *_gains_apart(report)]
    return "\n\n".join(lines)


Measure = tuple[str, list[str], str]
"""Label, values before and after, and the change."""


def _measures(report: Report) -> list[Measure]:
    """Measured rows of the table."""
    unit, units = report.unit, numbers.plural(report.unit)
    sides = [report.before, report.after] if report.changes else [report.before]
    speed = _throughput_gain(report)
    rows = [
        (f"{units}/s", [_rate(side) for side in sides], speed),
        (
            f"time per 1,000 {units}",
            [numbers.duration(_seconds(side, 1_000), 3) for side in sides],
            "",
        ),
        _measure("peak memory", [side.peak_mem_gib for side in sides], numbers.gib),
    ]
    asked = (report.objective, *report.constraints)
    if any("latency" in each for each in asked):
        for share in (50, 95):
            values = [getattr(side, f"latency_p{share}_ms") for side in sides]
            rows.append(_measure(f"latency, p{share}", values, _milliseconds))
    if any(side.tokens_per_s for side in sides) and unit != "token":
        rows.append(_measure("tokens/s", [side.tokens_per_s for side in sides], numbers.number))
    energy = [side.energy_j_per_unit for side in sides]
    rows.append(_measure(f"energy {numbers.one(unit)}", energy, _joules))
    if report.price_per_hour is not None and report.objective == "cost":
        costs = [(_seconds(side, 1_000) or 0.0) / 3600 * report.price_per_hour for side in sides]
        rows.append(_measure(f"cost of 1,000 {units}", costs, numbers.measure))
    for name in dict.fromkeys([*report.before.quality, *report.after.quality]):
        values = [side.quality.get(name) for side in sides]
        rows.append(_measure(_quality_label(report, name), values, numbers.measure))
    return [row for row in rows if any(value != numbers.NOT_MEASURED for value in row[1])]


def _measure(
    label: str, values: Sequence[float | None], show: Callable[[float | None], str]
) -> Measure:
    change = ""
    if len(values) > 1 and values[0] and values[1] and values[0] != values[1]:
        change = numbers.ratio(values[1] / values[0])
    return label, [show(value) for value in values], change


def _throughput_gain(report: Report) -> str:
    if not report.changes:
        return ""
    if report.objective == "throughput":
        return numbers.gain(report.gain)
    before, after = report.before.units_per_s, report.after.units_per_s
    return numbers.ratio(after / before) if before and after else ""


def _gains_apart(report: Report) -> list[str]:
    """Gains of settings that keep results, and others."""
    classes = {change.class_ for change in report.changes}
    kept, traded = classes & {"free", "training"}, classes & {"numeric", "quality"}
    if not kept or not traded or not report.gain_free or not report.gain_quality:
        return []
    return [
        text(
            f"The settings that keep results give {numbers.gain(report.gain_free)}; the others "
            f"add {numbers.gain(report.gain_quality)} on top."
        )
    ]


def effect(report: Report, change: ChangeEntry) -> str:
    """Effect of one change on results."""
    if change.class_ == "free" and change.kind == "batch_size":
        return OTHER_DRAWS
    retrained = any(c.kind == "batch_size" and c.class_ == "quality" for c in report.changes)
    if change.class_ == "training" and retrained:
        return "training changes"
    return EFFECTS.get(change.class_, change.class_)


def _rate(side: Side) -> str:
    return numbers.interval(side.units_per_s, side.units_per_s_low, side.units_per_s_high)


def _seconds(side: Side, count: int) -> float | None:
    return count / side.units_per_s if side.units_per_s else None


def _milliseconds(value: float | None) -> str:
    return numbers.quantity(value, "ms")


def _joules(value: float | None) -> str:
    return numbers.quantity(value, "J")


def _quality_label(report: Report, name: str) -> str:
    limits = [point.limit for point in report.quality if point.measure == name]
    return f"{name} (limit {numbers.measure(limits[-1])})" if limits else name


def config_diff(page: Page) -> str | None:
    """The changed lines of the config."""
    lines = page.report.diff.splitlines()
    if not lines:
        return None
    if len(lines) > MOST_DIFF_LINES:
        lines = [line for line in lines if line[:1] != " "]
    if len(lines) > MOST_DIFF_LINES:
        lines = [
            *lines[: MOST_DIFF_LINES - 1],
            f"... {len(lines) - MOST_DIFF_LINES + 1} more lines",
        ]
    return fenced("\n".join(lines), "diff")


def run_and_undo(page: Page) -> str | None:
    """Commands to run and revert the result.

    With the figures to watch.
    """
    report = page.report
    if not report.changes:
        return None
    tuned = report.tuned_command or ""
    parts = [
        ("run it", report.how_to_run),
        ("the tuned command", "" if tuned in report.how_to_run else tuned),
        ("undo it", report.how_to_revert),
    ]
    shell = "\n".join(f"# {name}\n{lines.strip()}" for name, lines in parts if lines)
    blocks: list[str] = [fenced(shell, "sh")] if shell else []
    if watch := watch_line(report):
        blocks.append(watch)
    return "\n\n".join(blocks) or None


def watch_line(report: Report) -> str | None:
    """Figures to watch, with their measured values."""
    side, units = report.after, numbers.plural(report.unit)
    signs = []
    if side.units_per_s and side.units_per_s_low:
        margin = report.tie_threshold or max(report.noise or 0.0, report.smallest_gain)
        least = numbers.number(side.units_per_s_low / (1 + margin))
        low, high = side.units_per_s_low, side.units_per_s_high
        measured = f"{numbers.number(low)} to {numbers.number(high)}"
        signs.append(f"less than {least} {units}/s (measured: {measured})")
    if side.peak_mem_gib:
        most = numbers.gib(side.peak_mem_gib * (1 + WATCHED_MARGIN))
        signs.append(f"a peak above {most} (measured: {numbers.gib(side.peak_mem_gib)})")
    if not signs:
        return None
    return text(
        f"Watch for {' or '.join(signs)}; `gpu-advisor profile` then shows where the time goes."
    )


# --- next actions -------------------------------------------------------------------------


def next_actions(page: Page) -> str | None:
    """Unproven candidates and suggestions, with their commands."""
    report = page.report
    ranked: list[tuple[float, str]] = []
    actions = report.next_actions[:MOST_SKIPPED]
    if actions:
        items = [fill("- {text}.", text=action.text) for action in actions]
        if report.candidate is not None:
            items[-1] += " The call above does it."
        elif command := actions[0].command:
            items[-1] += fill(" One call does it: {command}", command=code(command))
        ranked.append((max(action.ratio or 0.0 for action in actions), "\n".join(items)))
    for number, entry in enumerate(report.suggestions, 1):
        line = fill("- Suggested, not applied: **{title}**", title=entry.title)
        if entry.site:
            line += fill(" at {site}", site=code(entry.site))
        if entry.gain:
            line += fill(", {gain}", gain=numbers.gain(entry.gain))
        line += "." if entry.patch else fill(". {detail}", detail=entry.detail)
        if entry.patch:
            line += f" {code(f'git apply {shlex.quote(page.patch_file(number))}')}"
        ranked.append((entry.gain.ratio if entry.gain else 0.0, line))
    if not ranked:
        return None
    ranked.sort(key=lambda pair: -pair[0])
    lines = [line for _, line in ranked[:MOST_ACTIONS]]
    if more := len(ranked) - len(lines):
        lines.append(f"- and {numbers.many(more, 'more suggestion')} in the details")
    return "## Next actions\n\n" + "\n".join(lines)


# --- where the time goes ------------------------------------------------------------------


def time(page: Page) -> str | None:
    """One sentence and one table."""
    report = page.report
    found = report.bottleneck_after if report.changes else report.bottleneck_before
    sentences = [each.sentence for each in (found or report.bottleneck_before,) if each]
    sides = [report.before, report.after] if report.changes else [report.before]
    rows = _time_rows(sides)
    if not sentences and not rows:
        return None
    blocks: list[str] = ["## Where the time goes", *map(text, sentences)]
    if rows:
        head = ("before", "after") if report.changes else ("as it is",)
        part = f"part of {numbers.one(report.unit)}"
        blocks.append(table((part, *head), "l" + "r" * len(sides), rows))
    return "\n\n".join(blocks)


def _time_rows(sides: list[Side]) -> list[tuple[str, ...]]:
    """Time and share of the largest parts."""
    names = [name for name in SHARES if any(name in side.shares for side in sides)]
    names += sorted({name for side in sides for name in side.shares} - set(names))
    largest = sorted(names, key=lambda n: -max(side.shares.get(n, 0.0) for side in sides))
    large = [n for n in names if n in largest[:MOST_PARTS]]
    rows = [
        (SHARES.get(n, n.replace("_", " ")), *(_part(side, side.shares.get(n)) for side in sides))
        for n in large
        if max(side.shares.get(n, 0.0) for side in sides) >= numbers.WORTH_SAYING
    ]
    rest = [sum(share for n, share in side.shares.items() if n not in large) for side in sides]
    if max(rest, default=0.0) >= numbers.WORTH_SAYING:
        rows.append(("other parts", *map(_part, sides, rest)))
    return rows


def _part(side: Side, share: float | None) -> str:
    if share is None or not side.units_per_s:
        return ""
    return f"{numbers.duration(share / side.units_per_s, 3)} ({numbers.percent(share)})"


def pictures(page: Page) -> str | None:
    """Throughput and memory by batch; rounds of the comparison."""
    planned = figures.plan(page.report)
    if not planned:
        return None
    drawn = [
        f"![{text(each.alt)}]({quote(page.figures_dir)}/{quote(each.file)})"
        for each in planned
        if each.file in page.figures
    ]
    if drawn:
        return "\n".join(drawn)
    return text(
        'No figures: matplotlib is not installed. `pip install "gpu-advisor[plots]"`, then '
        f"`gpu-advisor report {shlex.quote(f'{page.stem}.json')}` draws them."
    )


# --- settings and caveats -----------------------------------------------------------------


def settings(page: Page) -> str | None:
    """Settings of the running phase, with reasons."""
    considered = _considered(page.report)
    if not considered:
        return None
    lines = [_setting(entry) for entry in considered[:MOST_SETTINGS]]
    if more := len(considered) - len(lines):
        lines.append(f"- and {numbers.many(more, 'more setting')} in the details")
    return "## Settings considered\n\n" + "\n".join(lines)


def _considered(report: Report) -> list[DecisionEntry]:
    entries = [entry for entry in report.decisions if entry.in_phase]
    return sorted(entries, key=lambda entry: (OUTCOME_ORDER.index(entry.outcome), not entry.trials))


def _setting(entry: DecisionEntry) -> str:
    shown = {
        "path": code(entry.path),
        "old": markdown.value(entry.from_, 40),
        "new": markdown.value(entry.to, 40),
        "reason": entry.reason,
    }
    change = "{old} to {new}" if entry.outcome == "changed" else "{old}"
    return fill(f"- {{path}} {change}: {{reason}}", **shown)


def caveats(page: Page) -> str | None:
    """Facts that limit the figures, the most important first."""
    lines = [fill("- {note}", note=note) for note in _notes(page.report)[:MOST_CAVEATS]]
    return "## Caveats\n\n" + "\n".join(lines) if lines else None


def _notes(report: Report) -> list[str]:
    notes = list(report.notes)
    if report.files_created:
        shown = ", ".join(f"`{path}`" for path in report.files_created[:3])
        more = f" and {len(report.files_created) - 3} more" * (len(report.files_created) > 3)
        notes.append(f"The command wrote outside the trials' scratch folders: {shown}{more}.")
    return notes


# --- details ------------------------------------------------------------------------------


def details_heading(_: Page) -> str:
    """The end of the memo."""
    return "## Details"


def variants(report: Report) -> dict[str, str]:
    """Letters of the variants, by label.

    A is the original. Labels that set the same values in another order share a letter.
    """
    labels = ["original"]
    for each in report.comparisons:
        labels += [each.before, each.after]
    labels += [trial.label for trial in report.trials]
    keys = dict.fromkeys(_same_values(label) for label in labels)
    letters = {key: _letter(at) for at, key in enumerate(keys)}
    return {label: letters[_same_values(label)] for label in labels}


def _same_values(label: str) -> tuple[str, ...]:
    return tuple(sorted(label.split()))


def _letter(at: int) -> str:
    """A to Z, then AA, AB."""
    return (_letter(at // 26 - 1) if at >= 26 else "") + chr(ord("A") + at % 26)


def legend(page: Page) -> str | None:
    """The letters of the variants."""
    labels: dict[str, str] = {}
    for label, letter in variants(page.report).items():
        labels.setdefault(letter, label)
    if len(labels) == 1:
        return None
    rows = [(letter, code(label)) for letter, label in labels.items()]
    return details("Variants", table(("variant", "settings"), "ll", rows))


def rounds(page: Page) -> str | None:
    """Every round of every comparison."""
    report, named = page.report, variants(page.report)
    unit = report.objective_unit or f"{numbers.plural(report.unit)}/s"
    blocks = []
    for each in report.comparisons:
        if not each.rounds:
            continue
        before, after = named[each.before], named[each.after]
        rows = [
            (
                entry.round,
                numbers.number(entry.before),
                numbers.number(entry.after),
                (f"contended: {entry.contended}" if entry.contended else "")
                + ("" if entry.counted else ", not counted"),
            )
            for entry in each.rounds
        ]
        blocks += [
            fill(
                "{after} against {before}: {gain}, {unit} by round.",
                before=before,
                after=after,
                gain=numbers.gain(each.gain) if each.gain else "no interval",
                unit=unit,
            ),
            table(("round", before, after, ""), "rrrl", rows),
        ]
    return details("Rounds of the comparisons", "\n\n".join(blocks)) if blocks else None


def trials(page: Page) -> str | None:
    """Every process of the call."""
    report, named = page.report, variants(page.report)
    if not report.trials:
        return None
    head = ("trial", "purpose", "variant", f"{numbers.plural(report.unit)}/s", "batch", "workers")
    rows = [
        (
            trial.id,
            trial.purpose,
            named[trial.label],
            *_figures_of(trial),
            (trial.outcome if trial.outcome != "ok" else "")
            + (" from history" if trial.reused else ""),
        )
        for trial in report.trials
    ]
    columns = (*head, "wait", "peak memory", "took", "")
    return details(
        f"{numbers.many(len(report.trials), 'trial')}: {numbers.many(report.runs, 'process')} in "
        f"{numbers.duration(report.wall_s)}",
        table(columns, "lllrrrrrrl", rows),
    )


def _figures_of(trial: TrialEntry) -> Iterable[str]:
    """Figures of a trial; empty where not measured."""
    shown = [
        (trial.units_per_s, numbers.number(trial.units_per_s)),
        (trial.batch, numbers.count(trial.batch)),
        (trial.workers, numbers.count(trial.workers)),
        (trial.wait_share, numbers.percent(trial.wait_share)),
        (trial.peak_mem_gib, numbers.gib(trial.peak_mem_gib)),
        (trial.wall_s, numbers.duration(trial.wall_s)),
    ]
    return ["" if value is None else shown_value for value, shown_value in shown]


def failures(page: Page) -> str | None:
    """Last output of failed trials."""
    named = variants(page.report)
    blocks = []
    for trial in page.report.trials:
        if trial.outcome != "ok" and trial.detail:
            head = {"id": trial.id, "variant": named[trial.label], "outcome": trial.outcome}
            blocks += [fill("{id}, variant {variant}, {outcome}:", **head), fenced(trial.detail)]
    return details("Output of failed trials", "\n\n".join(blocks)) if blocks else None


def quality(page: Page) -> str | None:
    """Every judgement of a quality measure."""
    report, named = page.report, variants(page.report)
    rows = []
    for point in report.quality:
        value = numbers.measure(point.value)
        if point.low is not None and point.high is not None:
            value += f" ({numbers.measure(point.low)} to {numbers.measure(point.high)})"
        verdict_text = "within" if point.within else "outside"
        items = f" of {point.items} items" if point.items > 1 else ""
        rows.append(
            (
                point.measure,
                named.get(point.candidate) or code(point.candidate),
                value,
                numbers.measure(point.reference),
                numbers.measure(point.limit),
                f"{verdict_text}, {point.stage}, {numbers.many(point.runs, 'pair')}{items}",
            )
        )
    if not rows:
        return None
    head = ("measure", "variant", "value", "original", "limit", "")
    return details("Quality", table(head, "llrrrl", rows))


def evidence(page: Page) -> str | None:
    """Measurements behind the sentence on the time."""
    report = page.report
    lines: list[str] = []
    for name, found in (("Before", report.bottleneck_before), ("After", report.bottleneck_after)):
        if found is not None and (found.evidence or report.changes):
            lines.append(fill("{name}: {sentence}", name=name, sentence=found.sentence))
            lines.append("\n".join(fill("- {line}", line=line) for line in found.evidence))
    return (
        details("Evidence of where the time goes", "\n\n".join(filter(None, lines)))
        if lines
        else None
    )


def whole_diff(page: Page) -> str | None:
    """Whole diff, where it did not fit above."""
    diff = page.report.diff
    if len(diff.splitlines()) <= MOST_DIFF_LINES:
        return None
    return details("Diff of the config", fenced(diff, "diff"))


def more_settings(page: Page) -> str | None:
    """Settings that did not fit above."""
    rest = _considered(page.report)[MOST_SETTINGS:]
    return details("More settings", "\n".join(map(_setting, rest))) if rest else None


def patches(page: Page) -> str | None:
    """Every suggestion with its text and its patch."""
    blocks: list[str] = []
    for number, entry in enumerate(page.report.suggestions, 1):
        blocks.append(fill("**{title}.** {detail}", title=entry.title, detail=entry.detail))
        if entry.patch:
            place = code(page.patch_file(number))
            blocks += [fill("Patch, also in {place}:", place=place), fenced(entry.patch, "diff")]
    return details("Suggestions and patches", "\n\n".join(blocks)) if blocks else None


def machine(page: Page) -> str:
    """Host, card, isolation, noise and the command."""
    report, host, target = page.report, page.report.machine, page.report.target
    rows: list[tuple[str, object]] = [
        ("CPU", f"{host.cpu}, {host.cpus} usable"),
        ("memory", numbers.gib(host.ram_gib)),
        ("GPU", ", ".join(host.gpus) or host.gpu_note or "none"),
        ("driver", host.driver),
        ("system", host.os),
        ("Python", host.python),
        ("torch", host.torch),
        ("isolation", report.isolation),
        ("spread of equal runs", numbers.percent(report.noise) if report.noise else None),
    ]
    if target is not None and target.name != "cpu":
        stands = ", a larger card with its memory capped" if target.stood_in else ""
        absent = "" if target.present or target.stood_in else ", not on this machine"
        rows.append(("target", f"{target.title}{stands}{absent}"))
        rows.append(("capacity", target.figures or None))
    shown = table(("", ""), "ll", [row for row in rows if row[1] is not None])
    notes = [fill("- {note}", note=note) for note in _notes(report)[MOST_CAVEATS:]]
    skipped = [fill("- Not tried: {line}", line=line) for line in report.skipped]
    blocks = [
        shown,
        fill("Command, in {cwd}:", cwd=code(report.cwd)),
        fenced(report.command, "sh"),
        "\n".join((*skipped, *notes)),
    ]
    return details("Machine and call", "\n\n".join(filter(None, blocks)))


SECTIONS: tuple[Callable[[Page], str | None], ...] = (
    verdict,
    before_and_after,
    config_diff,
    run_and_undo,
    next_actions,
    time,
    pictures,
    settings,
    caveats,
    details_heading,
    legend,
    rounds,
    trials,
    failures,
    quality,
    evidence,
    whole_diff,
    more_settings,
    patches,
    machine,
)
"""Every section, in the order of reading."""


def render(
    report: Report, stem: str = "report", figures_dir: str = "", drawn: Iterable[str] = ()
) -> str:
    """`report` as the Markdown of `STEM.md`.

    `drawn` are the names of the figures that lie in `figures_dir`.
    """
    page = Page(report=report, stem=stem, figures_dir=figures_dir, figures=frozenset(drawn))
    found = (section(page) for section in SECTIONS)
    return "\n\n".join(each for each in found if each) + "\n"

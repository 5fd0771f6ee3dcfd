"""Sections of a report as Markdown; one with nothing to say is empty."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from advisor import numbers
from advisor.config import argv
from advisor.model import Change, leaf_of
from advisor.objective import METRICS, OBJECTIVES, THROUGHPUT
from advisor.report import figures, markdown
from advisor.report.bottleneck import IDLE, PARTS, largest_first
from advisor.report.markdown import bullets, code, details, fenced, stacked, table, text
from advisor.report.schema import QualityEntry, Report, Side, SuggestionEntry, TrialEntry

EFFECTS = {
    "free": "same work",
    "training": "an update has as many samples as before",
    "numeric": "rounding changes",
    "quality": "the product changes",
}
"""Class of a change to its effect on results."""
OTHER_DRAWS = "same distribution; random draws may differ"
ALWAYS_SHOWN = "energy"
"""Metric shown wherever measured; others if asked for."""
OUTCOME_ORDER = ("changed", "advised", "kept", "ignored", "skipped", "refused", "listed")
MOST_CHANGES, MOST_DIFF_LINES, MOST_ACTIONS = 5, 7, 3
MOST_SETTINGS, MOST_CAVEATS, MOST_CALLS = 6, 3, 5
"""Lines of each part above the details, which hold the rest."""
BUSY_PCT = 95
"""Utilisation of a GPU that leaves nothing to explain."""


def patch_file(report_md: str, number: int) -> str:
    """Name of suggestion `number`'s patch file, beside the report."""
    return f"{Path(report_md).stem}-advice-{number}.patch"


def figure_file(report_md: str, name: str) -> str:
    """Name of a figure's file, beside the report."""
    return f"{Path(report_md).stem}-figures/{name}.svg"


def image(report: Report, name: str, alt: str) -> str:
    return f"![{text(alt)}]({quote(figure_file(report.report, name))})"


def verdict(report: Report) -> str:
    """Headline, reason, and all that qualifies them."""
    said = outcome(report)
    if report.config and not report.written and report.verdict != "improved":
        joint = ";" if ":" in said else ":"
        said += f"{joint} {code(report.config)} was not changed"
    measured = f"{measured_on(report)}."
    notes = (measured, report.isolation_note, report.load_note, report.allocation_note)
    return stacked(
        f"# {text(subject(report))}: {text(title(report))}",
        f"**{text(report.baseline_note)}**" if report.baseline_note else "",
        f"**{said}.** {text(report.reason)}{suggested(report)}",
        text(gpu_lead(report)),
        text(" ".join(filter(None, notes))),
    )


def suggested(report: Report) -> str:
    """Sentence on proven suggestions, where no setting was changed."""
    found = [f"{each.title} ({each.gain.size})" for each in report.suggestions if each.gain]
    if report.changes or not found:
        return ""
    return f" Faster, and yours to apply: {text(', '.join(found[:MOST_ACTIONS]))}."


def subject(report: Report) -> str:
    """Config, or the program without one."""
    if report.config:
        return report.config
    try:
        words = shlex.split(report.command)
    except ValueError:  # no shell text
        return report.command
    return shlex.join(words[: argv.first_own_word(words)]) or "the program"


def outcome(report: Report) -> str:
    """Verdict in words."""
    if report.verdict != "partial":
        return report.verdict.capitalize()
    if report.candidate:
        return report.candidate.outlook
    return "Too noisy to decide" if report.too_noisy else "Not finished"


def title(report: Report) -> str:
    """Gain, such as `2.91x as many tiles a second`, or the outcome."""
    gain = report.gain
    if report.verdict != "improved" or gain is None:
        return outcome(report).lower()
    shown = OBJECTIVES[report.objective].gained(gain.size, report.unit)
    kept = " and ".join(report.restored_constraints)
    kept = f"inside {kept}, " if kept else ""
    return f"{kept}{shown}{', not written (dry run)' if report.dry_run else ''}"


def gpu_lead(report: Report) -> str:
    """Lead on the GPU: utilisation and memory; empty without one."""
    gpus, sides = report.machine.gpus, report.sides
    utils = [
        numbers.percent(side.gpu_util_pct and side.gpu_util_pct / 100) for side in sides
    ]
    used = [numbers.gib(side.gpu_mem_used_gib or side.peak_mem_gib) for side in sides]
    parts = []
    if gpus and numbers.NOT_MEASURED not in utils:
        shown = f"GPU utilisation {' to '.join(utils)} (nvidia-smi's figure)"
        parts.append(shown + _why_not_full(sides[-1]))
    if gpus and numbers.NOT_MEASURED not in used:
        whole = gpus[0].memory_total_gib
        of = f" of {numbers.gib(whole)}" if whole else ""
        parts.append(f"memory {' to '.join(used)}{of}")
    return f"{'; '.join(parts)}." if parts else ""


def _why_not_full(side: Side) -> str:
    """Largest part of the time that leaves the GPU idle."""
    largest = max(IDLE, key=lambda name: side.shares.get(name, 0.0))
    share = side.shares.get(largest, 0.0)
    if (side.gpu_util_pct or 0.0) >= BUSY_PCT or share < numbers.WORTH_SAYING:
        return ""
    return f", not 100 % mainly because of {PARTS[largest].name}"


def measured_on(report: Report) -> str:
    """Machine in one line."""
    machine = report.machine
    ram = numbers.gib(machine.ram_limit_gib)
    host = f"{machine.cpu_model}, {numbers.many(machine.cpus, 'CPU')}, {ram} RAM"
    cards = ", ".join(gpu.name for gpu in machine.gpus)
    return (
        f"Measured on {cards}; {host}"
        if cards
        else f"Measured on {host}; NVML shows no GPU"
    )


def before_and_after(report: Report) -> str:
    """Table of figures and settings, if anything was measured."""
    rows = list(_measures(report))
    if report.before.units_per_s is None:
        return ""
    if not report.changes:
        return table(("", "as it is"), "lr", [row[:2] for row in rows])
    part = ""
    if report.gain_free and any(
        c.knob_class in {"numeric", "quality"} for c in report.changes
    ):
        part = f"The settings that keep results give {report.gain_free.text} of that."
    rows += _changed(report.changes)
    head = ("", "before", "after", "change")
    return stacked(table(head, "lrrl", rows), text(part))


def _changed(changes: Sequence[Change]) -> Iterator[tuple[str, ...]]:
    """Rows of changed settings, by short names where these differ."""
    leaves = [leaf_of(change.path) for change in changes]
    for change, leaf in zip(changes[:MOST_CHANGES], leaves, strict=False):
        name = code(leaf if leaves.count(leaf) == 1 else change.path)
        draws = change.knob_class == "free" and change.kind == "batch_size"
        effect = OTHER_DRAWS if draws else EFFECTS[change.knob_class]
        yield name, markdown.value(change.old), markdown.value(change.new), effect
    if len(changes) > MOST_CHANGES:
        yield f"and {len(changes) - MOST_CHANGES} more, in the diff", "", "", ""


def _measures(report: Report) -> Iterator[tuple[str, ...]]:
    """Measured rows of the table: label, a value a side, change."""
    sides = report.sides
    units = numbers.plural(report.unit)
    rates = [side.units_per_s for side in sides]
    shown = [
        numbers.interval(side.units_per_s, side.units_per_s_low, side.units_per_s_high)
        for side in sides
    ]
    gain = report.gain if report.objective == THROUGHPUT.metric.name else None
    change = gain.text if gain else _row("", rates, numbers.number)[-1]
    yield f"{units}/s", *shown, change
    thousand = [numbers.duration(1000 / rate if rate else None, 3) for rate in rates]
    yield f"time per 1,000 {units}", *thousand, ""
    asked = " ".join((ALWAYS_SHOWN, report.objective, *report.constraints))
    judged = [each.judgement for each in report.quality]
    limits = {each.measure: f" (limit {numbers.measure(each.limit)})" for each in judged}
    rows = [
        _row("peak memory", [side.peak_mem_gib for side in sides], numbers.gib),
        _row("tokens/s", [side.tokens_per_s for side in sides], numbers.number),
    ]
    for name, metric in METRICS.items():
        if name in asked and name != THROUGHPUT.metric.name:
            label = f"{name}, {metric.unit_for(report.unit)}"
            rows.append(
                _row(label, [side.figures.get(name) for side in sides], numbers.number)
            )
    for name in report.before.quality | report.after.quality:
        values = [side.quality.get(name) for side in sides]
        rows.append(_row(f"{name}{limits.get(name, '')}", values, numbers.measure))
    yield from (row for row in rows if set(row[1:-1]) != {numbers.NOT_MEASURED})


def _row(
    label: str, values: Sequence[float | None], show: Callable[[float | None], str]
) -> tuple[str, ...]:
    first, last = values[0], values[-1]
    change = numbers.ratio(last / first) if first and last and first != last else ""
    return label, *map(show, values), change


def config_diff(report: Report) -> str:
    lines = [line for line in report.diff.splitlines() if line[:1] != " "]
    if len(lines) > MOST_DIFF_LINES:
        more = len(lines) - MOST_DIFF_LINES + 1
        lines = [*lines[: MOST_DIFF_LINES - 1], f"... {more} more lines"]
    return fenced("\n".join(lines), "diff")


def run_and_undo(report: Report) -> str:
    parts = {"run it": report.how_to_run, "undo it": report.how_to_revert}
    lines = [f"# {name}\n{shell.strip()}" for name, shell in parts.items() if shell]
    return fenced("\n".join(lines), "sh") if report.changes else ""


def next_actions(report: Report) -> str:
    """Steps with their call, and suggestions with patches."""
    steps = [f"  - {text(step)}." for step in report.next_actions[:MOST_ACTIONS]]
    if steps:
        steps.insert(0, f"- Go on with {code(report.next_command)}")
    numbered = enumerate(report.suggestions, 1)
    lines = [_suggestion(entry, report.report, number) for number, entry in numbered]
    suggestions = _first(lines, MOST_ACTIONS, "suggestion")
    return _below("Next actions", "\n".join(filter(None, (suggestions, *steps))))


def _suggestion(entry: SuggestionEntry, report_md: str, number: int) -> str:
    site = f" at {code(entry.site)}" if entry.site else ""
    gain = f", {entry.gain.text}" if entry.gain else ""
    patch = shlex.quote(patch_file(report_md, number)) if entry.patch else ""
    how = f" {code(f'git apply {patch}')}" if patch else ""
    head = f"- Suggested, not applied: **{text(entry.title)}**{site}{gain}."
    return f"{head} {text(entry.detail)}{how}"


def _first(lines: list[str], most: int, noun: str) -> str:
    """First lines, and the number of those in the details."""
    more = len(lines) - most
    rest = (
        [f"- and {numbers.many(more, f'more {noun}')} in the details"] if more > 0 else []
    )
    return "\n".join((*lines[:most], *rest))


def _below(heading: str, *blocks: str) -> str:
    """Blocks below a heading; nothing without one."""
    body = stacked(*blocks)
    return stacked(f"## {heading}", body) if body else ""


def time(report: Report) -> str:
    """One sentence and one table."""
    found = report.bottleneck_after or report.bottleneck_before
    columns = ("before", "after") if report.changes else ("as it is",)
    head = (f"part of {numbers.one(report.unit)}", *columns)
    rows = table(head, "l" + "r" * len(columns), _time_rows(report.sides))
    return _below("Where the time goes", text(found.sentence if found else ""), rows)


def _time_rows(sides: list[Side]) -> Iterator[tuple[str, ...]]:
    """Time and share of each part worth a line."""
    counted_by_events = any("launch" in side.shares for side in sides)
    for part, _ in largest_first({**sides[0].shares, **sides[-1].shares}):
        words = PARTS[part]
        if max(side.shares.get(part, 0.0) for side in sides) >= numbers.WORTH_SAYING:
            least = ", at least" if part == "compute" and counted_by_events else ""
            yield f"{words.name}{least}", *(_part(side, part) for side in sides)


def _part(side: Side, part: str) -> str:
    if part not in side.shares or not side.units_per_s:
        return ""
    share = side.shares[part]
    return f"{numbers.duration(share / side.units_per_s, 3)} ({numbers.percent(share)})"


def picture(report: Report) -> str:
    """Throughput and memory by batch."""
    curve = figures.batch_curve(report)
    return image(report, "batch", curve.alt) if curve else ""


def settings(report: Report) -> str:
    """Settings of the running phase, with reasons."""
    return _below(
        "Settings considered", _first(_considered(report), MOST_SETTINGS, "setting")
    )


def _considered(report: Report) -> list[str]:
    entries = [entry for entry in report.decisions if entry.in_phase]
    entries.sort(key=lambda entry: (OUTCOME_ORDER.index(entry.outcome), not entry.trials))
    lines = []
    for entry in entries:
        new = f" to {markdown.value(entry.new, 40)}" if entry.outcome == "changed" else ""
        old = markdown.value(entry.old, 40)
        lines.append(f"- {code(entry.path)} {old}{new}: {text(entry.reason)}")
    return lines


def caveats(report: Report) -> str:
    """Facts that limit the figures, most important first."""
    return _below("Caveats", bullets(report.notes[:MOST_CAVEATS]))


def history(report: Report) -> str:
    """Earlier calls for the same config, one line each."""
    lines = [
        f"{each.created[:16].replace('T', ' ')}: {each.outcome} (`{each.kept}`)"
        for each in report.history[:MOST_CALLS]
    ]
    more = len(report.history) - MOST_CALLS
    if more > 0:
        lines.append(f"{numbers.many(more, 'more call')}: `gpu-advisor report --list`")
    return _below("History", bullets(lines))


def rounds(report: Report) -> str:
    drawn = figures.compared(report)
    blocks = [image(report, "rounds", figures.alt_of(drawn))] if drawn else []
    for each in report.comparisons:
        gain = each.gain.text if each.gain else "no interval"
        unit = report.objective_unit
        head = f"{each.after} against {each.before}: {gain}, {unit} by round."
        rows = [
            (one.round, numbers.number(one.before), numbers.number(one.after), one.note)
            for one in each.rounds
        ]
        shown = table(("round", "before", "after", ""), "rrrl", rows)
        blocks += (text(head), shown) if rows else ()
    return details("Rounds of the comparisons", *blocks)


def trials(report: Report) -> str:
    """Every process of the call, with the output of failed ones."""
    rate = f"{numbers.plural(report.unit)}/s"
    head = (
        "trial",
        "purpose",
        "variant",
        rate,
        "batch",
        "workers",
        "wait",
        "peak memory",
        "took",
    )
    blocks = [table((*head, ""), "lllrrrrrrl", map(_trial, report.trials))]
    for trial in report.trials:
        if trial.outcome != "ok" and trial.detail:
            blocks.append(text(f"{trial.id}, {trial.label}, {trial.outcome}:"))
            blocks.append(fenced(trial.detail))
    took = f"{numbers.many(report.runs, 'process')} in {numbers.duration(report.wall_s)}"
    return details(f"{numbers.many(len(report.trials), 'trial')}: {took}", *blocks)


def _trial(trial: TrialEntry) -> tuple[str, ...]:
    """Row of a trial; a figure not measured is empty."""
    figures = (
        numbers.number(trial.units_per_s),
        numbers.count(trial.batch),
        numbers.count(trial.workers),
        numbers.percent(trial.wait_share),
        numbers.gib(trial.peak_mem_gib),
        numbers.duration(trial.wall_s),
    )
    shown = ["" if figure == numbers.NOT_MEASURED else figure for figure in figures]
    outcome = trial.outcome if trial.outcome != "ok" else ""
    notes = (outcome, "from history" if trial.reused else "")
    return trial.id, trial.purpose, trial.label, *shown, " ".join(filter(None, notes))


def quality(report: Report) -> str:
    head = ("measure", "variant", "value", "original", "limit", "")
    return details("Quality", table(head, "llrrrl", map(_judgement, report.quality)))


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


def evidence(report: Report) -> str:
    """Measurements behind the sentence on the time."""
    blocks: list[str] = []
    for name, found in (
        ("Before", report.bottleneck_before),
        ("After", report.bottleneck_after),
    ):
        if found is not None and (found.evidence or report.changes):
            blocks += text(f"{name}: {found.sentence}"), bullets(found.evidence)
    return details("Evidence of where the time goes", *blocks)


def more_settings(report: Report) -> str:
    """Settings that did not fit above."""
    return details("More settings", "\n".join(_considered(report)[MOST_SETTINGS:]))


def whole_diff(report: Report) -> str:
    diff = report.diff
    is_long = len(diff.splitlines()) > MOST_DIFF_LINES
    return details("Diff of the config", fenced(diff, "diff")) if is_long else ""


def patches(report: Report) -> str:
    """Every suggestion with text and patch."""
    blocks: list[str] = []
    for number, entry in enumerate(report.suggestions, 1):
        blocks.append(f"**{text(entry.title)}.** {text(entry.detail)}")
        if entry.patch:
            place = code(patch_file(report.report, number))
            blocks += [f"Patch, also in {place}:", fenced(entry.patch, "diff")]
    return details("Suggestions and patches", *blocks)


def machine(report: Report) -> str:
    """Host, card, isolation, noise and the command."""
    host = report.machine
    rows: list[tuple[str, object]] = [
        ("CPU", f"{host.cpu_model}, {host.cpus} usable"),
        ("memory", numbers.gib(host.ram_limit_gib)),
        ("GPU", ", ".join(gpu.name for gpu in host.gpus) or host.gpu_note or "none"),
        ("driver", host.gpus[0].driver if host.gpus else None),
        ("system", host.os),
        ("Python", host.python),
        ("isolation", report.isolation),
        ("spread of equal runs", report.noise and numbers.percent(report.noise)),
        ("target", report.target),
        ("capacity", report.target and report.target_figures),
    ]
    later = [f"Not tried: {action}" for action in report.next_actions[MOST_ACTIONS:]]
    return details(
        "Machine and call",
        table(("", ""), "ll", [row for row in rows if row[1]]),
        f"Command, in {code(report.cwd)}:",
        fenced(report.command, "sh"),
        bullets((*later, *report.notes[MOST_CAVEATS:])),
    )


FIRST_SCREEN = (verdict, before_and_after, config_diff, run_and_undo, next_actions)
SECTIONS = (*FIRST_SCREEN, time, picture, settings, caveats, history)
DETAILS = (rounds, trials, quality, evidence, more_settings, whole_diff, patches, machine)
"""Sections in reading order; details follow below their own heading."""


def render(report: Report) -> str:
    shown = [section(report) for section in SECTIONS]
    below = [section(report) for section in DETAILS]
    return stacked(*shown, "## Details", *below) + "\n"

"""View of a report: what its templates print, in their order.

Nothing here says where a thing stands: that is for `templates/`. A part with nothing to say
is empty, and its template leaves it out.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from advisor import numbers
from advisor.config import argv
from advisor.model import Change, leaf_of
from advisor.objective import METRICS, OBJECTIVES, THROUGHPUT
from advisor.report import figures, markdown
from advisor.report.bottleneck import IDLE, PARTS, largest_first
from advisor.report.layout import render as rendered
from advisor.report.schema import (
    HistoryEntry,
    QualityEntry,
    Report,
    Side,
    SuggestionEntry,
    TrialEntry,
)

OF_UPDATES = ("grad_accum", "grad_checkpoint", "fused_kernels")
"""Kinds whose effect is seen in updates; a training's batch is one, too."""
TRADED = {"numeric": "rounding changes", "quality": "the product changes"}
"""What a change within a declared tolerance does to results, by its class."""
UNSEEN = "its work showed no difference"
OTHER_DRAWS = "same distribution; random draws may differ"
"""Of a program whose items could not be told apart; the second of an inference's batch."""
ALWAYS_SHOWN = "energy"
"""Metric shown wherever measured; others if asked for."""
OUTCOME_ORDER = ("changed", "advised", "kept", "ignored", "skipped", "refused", "listed")
MOST_CHANGES, MOST_DIFF_LINES, MOST_ACTIONS = 5, 12, 3
FEW_DIFF_LINES = 6
"""Lines of a diff that is too long to be shown whole."""
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


class Table(NamedTuple):
    """Head, alignment and rows; nothing where there are no rows."""

    head: Sequence[object]
    align: str
    """`l` or `r` a column."""
    rows: Sequence[Sequence[object]]

    @property
    def marks(self) -> list[str]:
        return [":--" if letter == "l" else "--:" for letter in self.align]


def table(
    head: Sequence[object], align: str, rows: Iterable[Sequence[object]]
) -> Table | None:
    found = list(rows)
    return Table(head, align, found) if found else None


def render(report: Report) -> str:
    """report.md."""
    return rendered("report.md.j2", view_of(report)).rstrip("\n") + "\n"


def first_screen(report: Report) -> str:
    """What `optimize` prints at its end."""
    return rendered("screen.md.j2", view_of(report)).strip("\n")


def view_of(report: Report) -> dict[str, Any]:
    """All that the templates may print."""
    measured = (f"{measured_on(report)}.", report.isolation_note, report.load_note,
        report.allocation_note)  # fmt: skip
    found = report.bottleneck_after or report.bottleneck_before
    columns = ("before", "after") if report.changes else ("as it is",)
    part = f"part of {numbers.one(report.unit)}"
    considered_ = considered(report)
    more = len(considered_) - MOST_SETTINGS
    actions, more_calls = report.next_actions, len(report.history) - MOST_CALLS
    changed = report.written or report.verdict == "improved"
    suggestions = [
        suggestion(report, n, each) for n, each in enumerate(report.suggestions, 1)
    ]
    return {
        "subject": subject(report),
        "title": title(report),
        "baseline_note": report.baseline_note,
        "outcome": outcome(report),
        "unchanged": "" if changed else report.config,
        "reason": report.reason,
        "to_apply": to_apply(report),
        "gpu_lead": gpu_lead(report),
        "measured": " ".join(filter(None, measured)),
        "figures": before_and_after(report),
        "free_part": free_part(report),
        "diff": short_diff(report),
        "shell": shell(report),
        "suggestions": suggestions,
        "most_actions": MOST_ACTIONS,
        "more_suggestions": over(len(suggestions) - MOST_ACTIONS, "more suggestion"),
        "next_steps": actions[:MOST_ACTIONS],
        "next_command": report.next_command,
        "report": report.report,
        "paste": paste(report),
        "pictures": list(filter(None, (batch_figure(report), time_figure(report)))),
        "time_sentence": found.sentence if found else "",
        "time": table((part, *columns), "l" + "r" * len(columns), _time_rows(report.sides)),
        "settings": considered_[:MOST_SETTINGS],
        "more_settings": considered_[MOST_SETTINGS:],
        "more_settings_count": over(more, "more setting"),
        "caveats": report.notes[:MOST_CAVEATS],
        "history": [past(each) for each in report.history[:MOST_CALLS]],
        "more_history": over(more_calls, "more call"),
        "rounds_figure": rounds_figure(report),
        "comparisons": comparisons(report),
        "trials": trials(report),
        "trials_summary": f"{numbers.many(len(report.trials), 'trial')}: "
        f"{numbers.many(report.runs, 'process')} in {numbers.duration(report.wall_s)}",
        "failures": [
            {"head": f"{each.id}, {each.label}, {each.outcome}:", "detail": each.detail}
            for each in report.trials
            if each.outcome != "ok" and each.detail
        ],
        "quality": table(
            ("measure", "variant", "value", "original", "limit", ""),
            "llrrrl",
            map(_judgement, report.quality),
        ),
        "evidence": evidence(report),
        "long_diff": report.diff if len(changed_lines(report)) > MOST_DIFF_LINES else "",
        "machine": machine(report),
        "cwd": report.cwd,
        "command": report.command,
        "later": [f"Not tried: {action}" for action in actions[MOST_ACTIONS:]]
        + report.notes[MOST_CAVEATS:],
    }


def over(many: int, noun: str) -> str:
    """`2 more settings`; empty where all are shown."""
    return numbers.many(many, noun) if many > 0 else ""


class Figure(NamedTuple):
    alt: str
    url: Markup


def figure(report: Report, name: str, alt: str) -> Figure:
    url = quote(figure_file(report.report, name))
    return Figure(alt, markdown.as_markdown(url))


def batch_figure(report: Report) -> Figure | None:
    """Throughput and memory by batch."""
    curve = figures.batch_curve(report)
    return figure(report, "batch", curve.alt) if curve else None


def time_figure(report: Report) -> Figure | None:
    """Parts of the time before and after."""
    return figure(report, "time", figures.TIME_ALT) if figures.has_parts(report) else None


def rounds_figure(report: Report) -> Figure | None:
    drawn = figures.compared(report)
    return figure(report, "rounds", figures.alt_of(drawn)) if drawn else None


def paste(report: Report) -> str:
    """One line that tells a colleague all of it; empty without a gain."""
    if report.verdict != "improved" or report.gain is None:
        return ""
    units = numbers.plural(report.unit)
    rates = [numbers.number(side.units_per_s) for side in report.sides]
    changes = [
        f"{leaf_of(each.path)} {each.old} to {each.new}"
        for each in report.changes[:MOST_CHANGES]
    ]
    parts = (f"{' to '.join(rates)} {units}/s", report.gain.text, *changes)
    return f"{subject(report)}: {', '.join(parts)}"


def to_apply(report: Report) -> str:
    """Proven suggestions, where no setting was changed."""
    found = [f"{each.title} ({each.gain.size})" for each in report.suggestions if each.gain]
    return "" if report.changes else ", ".join(found[:MOST_ACTIONS])


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


def before_and_after(report: Report) -> Table | None:
    """Table of figures and settings, if anything was measured."""
    rows = list(_measures(report))
    if report.before.units_per_s is None:
        return None
    if not report.changes:
        return table(("", "as it is"), "lr", [row[:2] for row in rows])
    return table(
        ("", "before", "after", "change"),
        "lrrl",
        [*rows, *_changed(report.changes, report.observed)],
    )


def free_part(report: Report) -> str:
    """Sentence on the gain of what keeps results, where other changes are in it."""
    traded = any(c.knob_class in {"numeric", "quality"} for c in report.changes)
    if not (report.gain_free and traded) or report.before.units_per_s is None:
        return ""
    return f"The settings that keep results give {report.gain_free.text} of that."


def _changed(
    changes: Sequence[Change], observed: Mapping[str, str]
) -> Iterator[tuple[str, ...]]:
    """Rows of changed settings, by short names where these differ."""
    leaves = [leaf_of(change.path) for change in changes]
    for change, leaf in zip(changes[:MOST_CHANGES], leaves, strict=False):
        name = markdown.code(leaf if leaves.count(leaf) == 1 else change.path)
        batch = change.kind == "batch_size" and change.knob_class == "training"
        of_updates = batch or change.kind in OF_UPDATES
        unseen = OTHER_DRAWS if change.kind == "batch_size" and not batch else UNSEEN
        seen = observed.get("updates" if of_updates else "items", unseen)
        effect = TRADED.get(change.knob_class, seen)
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


def changed_lines(report: Report) -> list[str]:
    return [line for line in report.diff.splitlines() if line[:1] != " "]


def short_diff(report: Report) -> str:
    """The whole diff where it is short, else the first changed lines."""
    lines = changed_lines(report)
    if len(lines) <= MOST_DIFF_LINES:
        return report.diff
    more = len(lines) - FEW_DIFF_LINES
    return "\n".join([*lines[:FEW_DIFF_LINES], f"... {more} more lines"])


def shell(report: Report) -> str:
    """Commands that use and undo the result."""
    parts = {"run it": report.how_to_run, "undo it": report.how_to_revert}
    lines = [f"# {name}\n{words.strip()}" for name, words in parts.items() if words]
    return "\n".join(lines) if report.changes else ""


def suggestion(report: Report, number: int, entry: SuggestionEntry) -> dict[str, Any]:
    """A suggestion with the command that applies its patch."""
    place = patch_file(report.report, number)
    return {
        "title": entry.title,
        "site": entry.site,
        "gain": entry.gain and entry.gain.text,
        "detail": entry.detail,
        "apply": f"git apply {shlex.quote(place)}" if entry.patch else "",
        "patch": entry.patch,
        "patch_file": place,
    }


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


def considered(report: Report) -> list[dict[str, Any]]:
    """Settings of the running phase, with reasons; changed ones first."""
    entries = [entry for entry in report.decisions if entry.in_phase]
    entries.sort(key=lambda entry: (OUTCOME_ORDER.index(entry.outcome), not entry.trials))
    return [
        {
            "path": entry.path,
            "old": markdown.value(entry.old, 40),
            "new": markdown.value(entry.new, 40) if entry.outcome == "changed" else "",
            "reason": entry.reason,
        }
        for entry in entries
    ]


def past(entry: HistoryEntry) -> dict[str, str]:
    """An earlier call, with its day and minute."""
    return {**entry.model_dump(), "day": entry.created[:16].replace("T", " ")}


def comparisons(report: Report) -> list[dict[str, Any]]:
    """Comparisons with their rounds."""
    found = []
    for each in report.comparisons:
        gain = each.gain.text if each.gain else "no interval"
        head = (
            f"{each.after} against {each.before}: {gain}, {report.objective_unit} by round."
        )
        rows = [
            (one.round, numbers.number(one.before), numbers.number(one.after), one.note)
            for one in each.rounds
        ]
        if rows:
            rounds = table(("round", "before", "after", ""), "rrrl", rows)
            found.append({"head": head, "rounds": rounds})
    return found


def trials(report: Report) -> Table | None:
    """Every process of the call."""
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
    return table((*head, ""), "lllrrrrrrl", map(_trial, report.trials))


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


def evidence(report: Report) -> list[dict[str, Any]]:
    """Measurements behind the sentence on the time."""
    sides = (("Before", report.bottleneck_before), ("After", report.bottleneck_after))
    return [
        {"sentence": f"{name}: {found.sentence}", "lines": found.evidence}
        for name, found in sides
        if found is not None and (found.evidence or report.changes)
    ]


def machine(report: Report) -> Table | None:
    """Host, card, isolation and noise."""
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
    return table(("", ""), "ll", [row for row in rows if row[1]])

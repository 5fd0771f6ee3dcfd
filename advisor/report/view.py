"""View of a report: what its templates print, in their order.

Nothing here says where a thing stands: that is for `templates/`. A part with nothing to say
is empty, and its template leaves it out.
"""

import hashlib
import re
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
"""What a table says of a setting whose effect is not seen in the work itself."""
OTHER_DRAWS = "same distribution; random draws may differ"
"""What it says of the batch of an inference whose items could not be told apart."""
ALWAYS_SHOWN = "energy"
"""Metric shown wherever measured; others if asked for."""
OUTCOME_ORDER = ("changed", "advised", "kept", "ignored", "skipped", "refused", "listed")
# Above the details a report fits 80 lines, so each part has a few.
MOST_CHANGES = 5
"""Changes, a line each."""
MOST_DIFF_LINES = 12
"""Changed lines of a diff that is shown whole.

Judgement: more push the rest off the first page, fewer cut the diff of a usual change."""
MOST_ACTIONS = 3
"""Next steps, a line each.

Judgement: more push the rest off the first page, fewer hide what a user could still do."""
LONGEST_BAR = 24
"""Characters: with its label, rate and gain it fits a line of 80.

Judgement: longer bars break the line, shorter ones make rates that differ by a few percent look
equal."""
BLOCKS = "\u258f\u258e\u258d\u258c\u258b\u258a\u2589\u2588"
"""Bars of one to eight eighths of a character."""
FEW_DIFF_LINES = 5
"""Lines of a diff that is too long to be shown whole.

Judgement: enough to see which file and setting it is of, and more would be half of a diff."""
MOST_SETTINGS = 6
"""Settings, a line each; the details hold the rest, as of the next two.

Judgement: more push the rest off the first page, fewer send most readers to the details."""
MOST_CAVEATS = 3
"""Caveats, a line each.

Judgement: more push the rest off the first page, fewer hide one that bears on the gain."""
MOST_CALLS = 5
"""Earlier calls, a line each.

Judgement: more push the rest off the first page, fewer do not show where rates moved to."""
PATCHED = re.compile(r"^\+\+\+ b/([^\t\r\n]+)", re.MULTILINE)
"""File that a part of a patch changes; that of the code stands last."""
LONGEST_TARGET, DIGEST_DIGITS = 40, 6
"""Characters of a patch's name: of the file that it changes, and of its digest."""
BUSY_PCT = 95
"""Utilisation of a GPU in percent that leaves nothing to explain.

Judgement: smaller keeps quiet about a twentieth of the time, larger explains what the driver's mean
rounds away."""


def patch_file(report_md: str, patch: str) -> str:
    """Name of a patch's file beside the report: `report-train-3fa2c1.patch`.

    It follows the patch's text: a page of an earlier call never names a later patch.
    """
    targets = PATCHED.findall(patch)
    target = (
        re.sub(r"\W+", "-", Path(targets[-1]).stem)[-LONGEST_TARGET:] if targets else "x"
    )
    digest = hashlib.sha256(patch.encode(errors="replace")).hexdigest()[:DIGEST_DIGITS]
    return f"{Path(report_md).stem}-{target}-{digest}.patch"


def patch_place(report: Report, patch: str) -> str:
    """Path of a patch's file, from the folder of the call where it lies in that."""
    place = Path(report.report).with_name(patch_file(report.report, patch))
    within = report.cwd and place.is_relative_to(report.cwd)
    return str(place.relative_to(report.cwd) if within else place)


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
    cells = list(rows)
    return Table(head, align, cells) if cells else None


def render(report: Report) -> str:
    """report.md."""
    return rendered("report.md.j2", view_of(report)).rstrip("\n") + "\n"


def first_screen(report: Report) -> str:
    """What `optimize` prints at its end."""
    return rendered("screen.md.j2", view_of(report)).strip("\n")


def view_of(report: Report) -> dict[str, Any]:
    """All that the templates may print."""
    measured = (
        gpu_lead(report),
        f"{measured_on(report)}.",
        report.isolation_note,
        report.load_note,
        report.allocation_note,
    )
    bottleneck = report.bottleneck_after or report.bottleneck_before
    columns = ("before", "after") if report.changes else ("as it is",)
    part = f"part of {numbers.one(report.unit)}"
    considered_ = considered(report)
    more = len(considered_) - MOST_SETTINGS
    actions, more_calls = report.next_actions, len(report.history) - MOST_CALLS
    changed = report.written or report.verdict == "improved"
    suggestions = [suggestion(report, entry) for entry in report.suggestions]
    return {
        "subject": subject(report),
        "title": title(report),
        "baseline_note": report.baseline_note,
        "outcome": outcome(report),
        "unchanged": "" if changed else report.config,
        "reason": report.reason,
        "to_apply": to_apply(report),
        "measured": " ".join(filter(None, measured)),
        "card": card(report),
        "figures": before_and_after(report),
        "quality_note": report.quality_note,
        "diff": short_diff(report),
        "shell": shell(report),
        "suggestions": suggestions,
        "most_actions": MOST_ACTIONS,
        "more_suggestions": over(len(suggestions) - MOST_ACTIONS, "more suggestion"),
        "next_steps": actions[:MOST_ACTIONS],
        "next_command": report.next_command,
        "report": report.report,
        "pictures": list(filter(None, (batch_figure(report), time_figure(report)))),
        "time_sentence": bottleneck.sentence if bottleneck else "",
        "time": table((part, *columns), "l" + "r" * len(columns), _time_rows(report.sides)),
        "settings": considered_[:MOST_SETTINGS],
        "more_settings": considered_[MOST_SETTINGS:],
        "more_settings_count": over(more, "more setting"),
        "caveats": report.notes[:MOST_CAVEATS],
        "history": [past(call) for call in report.history[:MOST_CALLS]],
        "more_history": over(more_calls, "more call"),
        "rounds_figure": rounds_figure(report),
        "comparisons": comparisons(report),
        "trials": trials(report),
        "trials_summary": f"{numbers.many(len(report.trials), 'trial')}: "
        f"{numbers.many(report.runs, 'process')} in {numbers.duration(report.wall_s)}",
        "failures": [
            {"head": f"{trial.id}, {trial.label}, {trial.outcome}:", "detail": trial.detail}
            for trial in report.trials
            if trial.outcome != "ok" and trial.detail
        ],
        "quality": table(
            ("measure", "variant", "value", "original", "limit", ""),
            "llrrrl",
            map(_judgement, report.quality),
        ),
        "evidence": evidence(report),
        "long_diff": report.diff if is_long(report.diff) else "",
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


def card(report: Report) -> str:
    """A few lines that tell a colleague all of it; empty without a gain."""
    if report.verdict != "improved" or report.gain is None:
        return ""
    changes = ", ".join(
        f"{leaf_of(change.path)} {change.old} to {change.new}"
        for change in report.changes[:MOST_CHANGES]
    )
    gained = bars(report) or f"{report.objective}: {report.gain.text}"
    return f"{markdown.one_line(f'{subject(report)}: {changes}')}\n{gained}"


def to_apply(report: Report) -> str:
    """Proven suggestions, where no setting was changed."""
    suggested = [
        f"{suggestion.title} ({suggestion.gain.size})"
        for suggestion in report.suggestions
        if suggestion.gain
    ]
    return "" if report.changes else ", ".join(suggested[:MOST_ACTIONS])


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
    gained = OBJECTIVES[report.objective].gained
    if report.verdict != "improved" or gain is None:
        told = outcome(report).lower()
        proven = [entry.gain for entry in report.suggestions if entry.gain]
        if not proven:
            return told
        best = max(proven, key=lambda proof: proof.ratio)
        return f"{told}, and {gained(best.size, report.unit)} by a change that is yours"
    headline = gained(gain.size, report.unit)
    if traded(report):
        inside = f"inside {tolerated(report)}"
        headline = f"{headline} {inside}"
        if report.gain_free is not None:
            free = gained(report.gain_free.size, report.unit)
            headline = f"{free} for nothing, {gain.size} {inside}"
    kept = " and ".join(report.restored_constraints)
    kept = f"inside {kept}, " if kept else ""
    load = ", measured under load" if rests_on_load(report) else ""
    return f"{kept}{headline}{load}{', not written (dry run)' if report.dry_run else ''}"


def rests_on_load(report: Report) -> bool:
    """True if half of a proof's rounds ran beside other work, whose gain may differ without it.

    A program that waited for others' CPUs too was told 8.27x, and gained 2.8x on a quieter host.
    """
    for comparison in report.comparisons:
        counted = [round_ for round_ in comparison.rounds if round_.counted]
        beside_work = sum(round_.contended is not None for round_ in counted)
        if comparison.purpose == "confirm" and 2 * beside_work >= max(1, len(counted)):
            return True
    return False


def gpu_lead(report: Report) -> str:
    """Lead on the GPU: utilisation and memory; empty without one."""
    gpus, sides = report.machine.gpus, report.sides
    utils = [
        numbers.percent(side.gpu_util_pct and side.gpu_util_pct / 100) for side in sides
    ]
    used = [numbers.gib(side.gpu_mem_used_gib) for side in sides]
    parts = []
    if gpus and numbers.NOT_MEASURED not in utils:
        sentence = f"GPU utilisation {' to '.join(utils)} (nvidia-smi's figure)"
        parts.append(sentence + _why_not_full(sides[-1]))
    if gpus and numbers.NOT_MEASURED not in used:
        whole = gpus[0].memory_total_gib
        of = f" of {numbers.gib(whole)}" if whole else ""
        parts.append(f"the program held {' to '.join(used)}{of}")
    return f"{'; '.join(parts)}." if parts else ""


def _why_not_full(side: Side) -> str:
    """Largest part of the time that leaves the GPU idle."""
    largest = max(IDLE, key=lambda name: side.shares.get(name, 0.0))
    share = side.shares.get(largest, 0.0)
    if (side.gpu_util_pct or 0.0) >= BUSY_PCT or share < numbers.WORTH_SAYING:
        return ""
    return f", not 100 % mainly because of {PARTS[largest].name}"


def cards_of(report: Report) -> str:
    """The cards that NVML shows, else the one that the program computed on."""
    return ", ".join(gpu.name for gpu in report.machine.gpus) or report.unseen_card


def measured_on(report: Report) -> str:
    """Machine in one line."""
    machine = report.machine
    ram = numbers.gib(machine.ram_limit_gib)
    host = f"{machine.cpu_model}, {numbers.many(machine.cpus, 'CPU')}, {ram} RAM"
    cards = cards_of(report)
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


def traded(report: Report) -> bool:
    """True if a written change altered results within a tolerance."""
    return any(change.knob_class in TRADED for change in report.changes)


def tolerated(report: Report) -> str:
    """`2 % of rmse and 0.03 of slope`."""
    allowances = (f"{spaced(text)} of {name}" for name, text in report.tolerances.items())
    return " and ".join(allowances) or "its tolerance"


def bars(report: Report) -> str:
    """Rates before, with what is free, and after, as bars on one scale; empty without a gain.

    The bars come last: where a page is narrow they go to a line of their own, and nothing that is
    to be read lies beyond its edge.
    """
    sides, gain, free = report.sides, report.gain, report.gain_free
    rates = [side.units_per_s for side in sides]
    before, after = rates[0], rates[-1]
    if not (gain and before and after) or report.objective != THROUGHPUT.metric.name:
        return ""
    rows = [("before", before, ""), ("after", after, gain.text)]
    if free and traded(report):
        rows.insert(1, ("for nothing", before * free.ratio, free.text))
    top = max(rate for _, rate, _ in rows)
    unit = markdown.one_line(f"{numbers.plural(report.unit)}/s")
    texts = [(name, f"{numbers.number(rate)} {unit}", how) for name, rate, how in rows]
    name_width, rate_width, how_width = (
        max(map(len, column)) for column in zip(*texts, strict=True)
    )
    return "\n".join(
        f"{name:<{name_width}}  {rate_text:>{rate_width}}  {how:<{how_width}}  {bar(rate / top)}"
        for (name, rate_text, how), (_, rate, _) in zip(texts, rows, strict=True)
    )


def bar(share: float) -> str:
    """A bar of `share` of the longest, to an eighth of a character."""
    whole, eighths = divmod(max(1, round(8 * LONGEST_BAR * share)), 8)
    return BLOCKS[-1] * whole + (BLOCKS[eighths - 1] if eighths else "")


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
    measures = [
        numbers.interval(side.units_per_s, side.units_per_s_low, side.units_per_s_high)
        for side in sides
    ]
    gain = report.gain if report.objective == THROUGHPUT.metric.name else None
    change = gain.text if gain else _row("", rates, numbers.number)[-1]
    yield f"{units}/s", *measures, change
    thousand = [numbers.duration(1000 / rate if rate else None, 3) for rate in rates]
    yield f"time per 1,000 {units}", *thousand, ""
    asked = " ".join((ALWAYS_SHOWN, report.objective, *report.constraints))
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
        *row, _ = _row(name, values, numbers.measure)
        rows.append((*row, quality_change(report, name)))
    yield from (row for row in rows if set(row[1:-1]) != {numbers.NOT_MEASURED})


def quality_change(report: Report, name: str) -> str:
    """`1.1 % worse (at most 1.6 %); 2 % allowed`; empty where no traded change was confirmed."""
    tolerance = report.tolerances.get(name)
    judged = [
        entry.judgement for entry in report.quality if entry.judgement.measure == name
    ]
    confirmed = [
        judgement
        for judgement in judged
        if judgement.stage == "confirmed" and judgement.within
    ]
    if tolerance is None or not confirmed:
        return ""
    last = confirmed[-1]
    limit, old, new = last.limit, last.reference, last.value
    if limit is None or old is None or new is None:
        return ""
    sign = 1.0 if limit >= old else -1.0
    worst = last.high if sign > 0 else last.low
    share = old if tolerance.endswith("%") and old else None

    def shown(loss: float) -> str:
        return numbers.percent(loss / abs(share)) if share else numbers.measure(loss, 2)

    loss = sign * (new - old)
    change = f"{shown(abs(loss))} {'worse' if loss > 0 else 'better'}" if loss else "equal"
    bound = (
        "" if worst is None else f" (at most {shown(max(0.0, sign * (worst - old)))} worse)"
    )
    return f"{change}{bound}; {spaced(tolerance)} allowed"


def spaced(tolerance: str) -> str:
    """A declared tolerance as prose: `2 %`."""
    return tolerance.strip().replace(" ", "").replace("%", " %")


def _row(
    label: str, values: Sequence[float | None], show: Callable[[float | None], str]
) -> tuple[str, ...]:
    first, last = values[0], values[-1]
    change = numbers.ratio(last / first) if first and last and first != last else ""
    return label, *map(show, values), change


HEADS = ("--- ", "+++ ", "@@ ")
"""How lines of a diff begin that name a file or a place."""


def is_long(diff: str) -> bool:
    """True if a diff changes more lines than a screen shows beside all else."""
    changed = [line for line in diff.splitlines() if line[:1] in {"+", "-"}]
    return sum(not line.startswith(HEADS) for line in changed) > MOST_DIFF_LINES


def short_diff(report: Report) -> str:
    """The whole diff where it is short, else the first changed lines."""
    if not is_long(report.diff):
        return report.diff
    lines = [line for line in report.diff.splitlines() if line[:1] != " "]
    more = sum(not line.startswith(HEADS) for line in lines[FEW_DIFF_LINES:])
    return "\n".join([*lines[:FEW_DIFF_LINES], f"... {more} more changed lines"])


def shell(report: Report) -> str:
    """Commands that use and undo the result."""
    parts = {"run it": report.how_to_run, "undo it": report.how_to_revert}
    lines = [f"# {name}\n{words.strip()}" for name, words in parts.items() if words]
    return "\n".join(lines) if report.changes else ""


def suggestion(report: Report, entry: SuggestionEntry) -> dict[str, Any]:
    """A suggestion with the command that applies its patch."""
    place = patch_place(report, entry.patch) if entry.patch else ""
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
            note = ", at least" if part == "compute" and counted_by_events else ""
            yield f"{words.name}{note}", *(_part(side, part) for side in sides)


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
            "path": f"{entry.path} ({entry.document})" if entry.in_code else entry.path,
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
    sections = []
    for comparison in report.comparisons:
        gain = comparison.gain.text if comparison.gain else "no interval"
        arms = f"{comparison.after} against {comparison.before}"
        head = f"{arms}: {gain}, {report.objective_unit} by round."
        rows = [
            (one.round, numbers.number(one.before), numbers.number(one.after), one.note)
            for one in comparison.rounds
        ]
        if rows:
            rounds = table(("round", "before", "after", ""), "rrrl", rows)
            sections.append({"head": head, "rounds": rounds})
    return sections


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
    cells = ["" if figure == numbers.NOT_MEASURED else figure for figure in figures]
    outcome = trial.outcome if trial.outcome != "ok" else ""
    notes = (outcome, "from history" if trial.reused else "")
    return trial.id, trial.purpose, trial.label, *cells, " ".join(filter(None, notes))


def _judgement(entry: QualityEntry) -> tuple[str, ...]:
    judgement = entry.judgement
    bounds = (judgement.low, judgement.high)
    interval = (
        f" ({' to '.join(map(numbers.measure, bounds))})" if None not in bounds else ""
    )
    items = f" of {judgement.items} items" if judgement.items > 1 else ""
    judged = "within" if judgement.within else "outside"
    return (
        judgement.measure,
        entry.candidate,
        numbers.measure(judgement.value) + interval,
        numbers.measure(judgement.reference),
        numbers.measure(judgement.limit),
        f"{judged}, {judgement.stage}, {numbers.many(judgement.runs, 'pair')}{items}",
    )


def evidence(report: Report) -> list[dict[str, Any]]:
    """Measurements behind the sentence on the time."""
    sides = (("Before", report.bottleneck_before), ("After", report.bottleneck_after))
    return [
        {"sentence": f"{name}: {bottleneck.sentence}", "lines": bottleneck.evidence}
        for name, bottleneck in sides
        if bottleneck is not None and (bottleneck.evidence or report.changes)
    ]


def machine(report: Report) -> Table | None:
    """Host, card, isolation and noise."""
    host = report.machine
    rows: list[tuple[str, object]] = [
        ("CPU", f"{host.cpu_model}, {host.cpus} usable"),
        ("memory", numbers.gib(host.ram_limit_gib)),
        ("GPU", cards_of(report) or host.gpu_note or "none"),
        ("driver", host.gpus[0].driver if host.gpus else None),
        ("system", host.os),
        ("Python", host.python),
        ("isolation", report.isolation),
        ("spread of equal runs", report.noise and numbers.percent(report.noise)),
        ("target", report.target),
        ("capacity", report.target and report.target_figures),
    ]
    return table(("", ""), "ll", [row for row in rows if row[1]])

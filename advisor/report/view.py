"""What a report shows, as rows and sentences: every figure comes out of the report itself."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor import numbers
from advisor.config import argv
from advisor.report import markdown, sentences
from advisor.tuner.standing import MOST_NOISE

if TYPE_CHECKING:
    from advisor.report.model import (
        AdviceEntry,
        ChangeEntry,
        DecisionEntry,
        Gain,
        QualityPoint,
        Report,
        Side,
        TrialEntry,
    )

CLASSES = {
    "free": "free: results cannot change",
    "training": "training: optimisation changes",
    "numeric": "numeric: rounding changes",
    "quality": "quality: the product changes",
}

MADE_UP_FOR = "an update has as many samples as before"
"""Of a training batch whose change an accumulation makes up for."""

MOVED_ALONG = {"schedule", "learning_rate"}
"""Kinds that only follow another change."""

LEFT_ALONE = {
    "advised": "advised: yours to decide",
    "ignored": "ignored by the program",
    "kept": "kept",
    "refused": "refused",
    "listed": "listed, not tried",
    "skipped": "skipped",
}
"""Outcomes that left a knob as it was, in the order in which they are shown."""

SHARES = {
    "data_wait": "waiting for data",
    "host_to_device": "copy to device",
    "compute": "compute",
    "launch": "launching kernels",
    "sync": "waiting for the GPU",
    "sampling": "sampling",
    "validation": "validation",
    "saving": "saving",
    "other": "host code between steps",
}
"""Parts of a unit's time, in the order in which they are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measure, before and after, ready to be read."""

    label: str
    before: str
    after: str


def subject(report: Report) -> str:
    """What the report is about: the config, or without one the program that was run."""
    if report.config:
        return report.config
    try:
        words = shlex.split(report.command)
    except ValueError:  # no shell text
        return report.command
    return shlex.join(words[: argv.first_own_word(words)]) or "the program"


def title(report: Report) -> str:
    """`2.91x as many tiles a second`, or what else became of the config.

    What costs nothing comes first: `2.52x as many tiles a second free, 48.3x with n_timestep 50`.
    """
    if report.verdict == "improved" and report.gain:
        written = ", not written (dry run)" if report.dry_run else ""
        doubt = report.quality_proven is False
        if gains_apart(report) and (free := report.gain_free):
            paid = " and ".join(
                f"{change.path.rpartition('.')[2]} {change.to}"
                for change in report.changes
                if change.class_ in {"numeric", "quality"} and change.kind not in MOVED_ALONG
            )
            unproven = " (quality not proven)" if doubt else ""
            both = f"{_at_least(report.gain)} with {paid}{unproven}{written}"
            return f"{_called(report, _at_least(free))} free, {both}"
        bounds = f" {numbers.gain(report.gain).partition(' ')[2]}" if report.gain.high else ""
        unproven = ", quality not proven" if doubt else ""
        kept = f"inside {' and '.join(report.mended)}, " if report.mended else ""
        return f"{kept}{_called(report, _at_least(report.gain))}{bounds}{unproven}{written}"
    return "not finished" if report.verdict == "partial" else "left as it was"


def _called(report: Report, ratio: str) -> str:
    """`2.91x as many tiles a second`, or what a gain of the report's objective is called."""
    one, units = numbers.one(report.unit), numbers.plural(report.unit)
    return sentences.GAINS[report.objective][1].format(ratio=ratio, one=one, units=units)


def _at_least(gain: Gain) -> str:
    if gain.high is None:
        return f"more than {numbers.ratio(gain.low)}"
    return numbers.ratio(gain.ratio)


def shows_after(report: Report) -> bool:
    """Whether there is an `after` to set beside the `before`."""
    return bool(report.changes)


def gains_apart(report: Report) -> list[tuple[str, Gain]]:
    """Gains of the parts, where the changes are not of one kind."""
    classes = {change.class_ for change in report.changes}
    plain, traded = classes & {"free", "training"}, classes & {"numeric", "quality"}
    if not traded or not report.gain_free:
        return []
    alone = f"The {_listed(plain)} settings alone" if plain else "What changes no result alone"
    parts = [
        (f"{alone}, the rest as it was", report.gain_free),
        (f"The {_listed(traded)} settings on top of those", report.gain_quality),
    ]
    return [(what, found) for what, found in parts if found]


def proven_advice(report: Report) -> list[AdviceEntry]:
    """Advice with an interval; the other stands only in its own section."""
    return [entry for entry in report.advice if entry.gain]


def _listed(classes: set[str]) -> str:
    return " and ".join(name for name in CLASSES if name in classes)


def measures(report: Report) -> list[Row]:
    """Before and after, the measures a reader asks for first."""
    unit, units = report.unit, numbers.plural(report.unit)
    sides = (report.before, report.after)
    with_start = start_up_counted(report)
    extent = ", start-up included (estimate)" if with_start else " (estimate)"
    device = "GPU" if report.machine.gpus else "CPU"
    busy = [side.gpu_util_pct if report.machine.gpus else side.cpu_util_pct for side in sides]

    table = [
        (f"{units}/s", [_rate(side) for side in sides]),
        (f"time {numbers.one(unit)}", [numbers.duration(_seconds(side, 1), 3) for side in sides]),
        *(
            (
                f"{count:,} {units}{extent}",
                [numbers.duration(_seconds(side, count, with_start)) for side in sides],
            )
            for count in (1_000, 10_000)
        ),
        (f"{device} utilisation", [_percent_of_100(value) for value in busy]),
        *(
            [("TFLOP/s, counted on one step", [numbers.number(s.achieved_tflops) for s in sides])]
            if any(side.achieved_tflops is not None for side in sides)
            else []
        ),
        ("peak memory", [numbers.gib(side.peak_mem_gib) for side in sides]),
    ]
    if report.objective == "latency" or any("latency" in each for each in report.constraints):
        for share in (95, 50):
            told = [numbers.quantity(getattr(side, f"latency_p{share}_ms"), "ms") for side in sides]
            table.insert(1, (f"latency of {numbers.one(unit)}, p{share}", told))
    if any(side.tokens_per_s is not None for side in sides) and unit != "token":
        table.insert(1, ("tokens/s", [numbers.number(side.tokens_per_s) for side in sides]))
    if any(side.wait_share is not None for side in sides):
        table.append(("waiting for data", [numbers.percent(side.wait_share) for side in sides]))
    if any(side.power_w is not None for side in sides):
        table.append(("power", [numbers.quantity(side.power_w, "W") for side in sides]))
    if any(side.energy_j_per_unit is not None for side in sides):
        joules = [numbers.quantity(side.energy_j_per_unit, "J") for side in sides]
        table.append((f"energy {numbers.one(unit)}", joules))
    if report.price_per_hour is not None:
        hours = [_seconds(side, 1_000, with_start) for side in sides]
        prices = [
            numbers.measure(None if each is None else each / 3600 * report.price_per_hour, 3)
            for each in hours
        ]
        table.append((f"cost of 1,000 {units} at {report.price_per_hour:g} an hour", prices))
    table += [
        (
            _quality_label(report, name),
            [
                numbers.measure(report.before.quality.get(name)),
                _bounded(report, name, report.after.quality.get(name)),
            ],
        )
        for name in _measure_names(report)
    ]
    return [Row(label=label, before=before, after=after) for label, (before, after) in table]


def start_up_counted(report: Report) -> bool:
    """Whether the times for many units hold the start of the process too."""
    sides = [report.before, report.after] if shows_after(report) else [report.before]
    return all(side.startup_s is not None for side in sides)


def beside(report: Report) -> list[str]:
    """What changed beside the rate, one phrase a measure: memory, energy, quality; of what reads
    the same, nothing."""
    before, after = report.before, report.after
    told = []
    memory = [numbers.gib(side.peak_mem_gib) for side in (before, after)]
    if numbers.NOT_MEASURED not in memory and memory[0] != memory[1]:
        told.append(f"peak memory {memory[0][:-4]} to {memory[1]}")
    energy = [numbers.number(side.energy_j_per_unit) for side in (before, after)]
    if numbers.NOT_MEASURED not in energy and energy[0] != energy[1]:
        told.append(f"energy {energy[0]} to {energy[1]} J {numbers.one(report.unit)}")
    for name in _measure_names(report):
        old, new = before.quality.get(name), after.quality.get(name)
        if old is not None and new is not None and old != new:
            limit = _limit(report, name)
            bound = f" (limit {numbers.measure(limit)})" if limit is not None else ""
            told.append(f"{name} {numbers.measure(old)} to {numbers.measure(new)}{bound}")
    return told


def commands(report: Report) -> str:
    """Shell lines: how to run what was measured, and how to go back."""
    tuned = report.tuned_command or ""
    parts = [
        ("run it", report.how_to_run),
        ("the tuned command", "" if tuned in report.how_to_run else tuned),
        ("undo it", report.how_to_revert),
    ]
    return "\n".join(f"# {what}\n{lines.strip()}" for what, lines in parts if lines)


def figures_of(trial: TrialEntry) -> list[str]:
    """Rate, batch, workers, wait, memory and time of one trial; empty where not measured."""
    shown = [
        (trial.units_per_s, numbers.number(trial.units_per_s)),
        (trial.batch, numbers.count(trial.batch)),
        (trial.workers, numbers.count(trial.workers)),
        (trial.wait_share, numbers.percent(trial.wait_share)),
        (trial.peak_mem_gib, numbers.gib(trial.peak_mem_gib)),
        (trial.wall_s, numbers.duration(trial.wall_s)),
    ]
    return ["" if value is None else text for value, text in shown]


def failures(report: Report) -> list[TrialEntry]:
    """Failed trials whose detail, with the last lines of their log, does not fit into a table."""
    failed = [trial for trial in report.trials if trial.outcome != "ok"]
    return [trial for trial in failed if markdown.clip(trial.detail) != trial.detail]


def missing(report: Report) -> list[str]:
    """What a report that was cut short does not hold."""
    return [
        what
        for absent, what in (
            (report.before.units_per_s is None, "the rate before"),
            (
                not any(entry.purpose == "confirm" for entry in report.comparisons),
                "the proof in interleaved rounds",
            ),
            (report.bottleneck_before is None, "where the time goes"),
            (not report.decisions, "the decisions on the knobs"),
        )
        if absent
    ]


def changed(report: Report) -> list[DecisionEntry]:
    """Decisions behind the values that were changed."""
    return [entry for entry in report.decisions if entry.outcome == "changed"]


def left_alone(report: Report) -> list[DecisionEntry]:
    """Decisions that left a knob as it was, grouped by outcome."""
    order = list(LEFT_ALONE)
    rest = [entry for entry in report.decisions if entry.outcome in LEFT_ALONE]
    return sorted(rest, key=lambda entry: order.index(entry.outcome))


def unit_time(report: Report) -> list[Row]:
    """Where one unit's time goes: seconds and share of each part."""
    before, after = report.before, report.after
    names = [name for name in SHARES if name in before.shares or name in after.shares]
    names += sorted(({*before.shares, *after.shares}) - set(names))
    return [
        Row(
            label=SHARES.get(name, name.replace("_", " ")),
            before=_part(before, name),
            after=_part(after, name),
        )
        for name in names
    ]


def class_told(report: Report, change: ChangeEntry) -> str:
    """What a change touches: its class, and of a training what became of its updates."""
    larger = any(c.kind == "batch_size" and c.class_ == "quality" for c in report.changes)
    if change.class_ == "training" and not larger:
        return f"training: {MADE_UP_FOR}"
    return CLASSES.get(change.class_, change.class_)


def noise(report: Report) -> str:
    """How far equal runs lay apart; beside it the tie of the search, where that was capped."""
    told = numbers.percent(report.noise_band)
    if report.noise_band is None:
        return told
    told += " between equal runs"
    if report.tie is None or report.tie < MOST_NOISE or report.noise_band <= report.tie:
        return told
    return f"{told}; the search called rates within {numbers.percent(report.tie)} a tie, never more"


def measured_on(report: Report) -> str:
    """The machine in one line; without a GPU it says so."""
    machine = report.machine
    host = f"{machine.cpu}, {numbers.many(machine.cpus, 'CPU')}, {numbers.gib(machine.ram_gib)} RAM"
    if machine.gpus:
        return f"{', '.join(machine.gpus)}; {host}"
    done = "tuned for" if report.verdict == "improved" else "measured on"
    return f"{host}; there is no GPU, so this is {done} this CPU"


def _rate(side: Side) -> str:
    return numbers.interval(side.units_per_s, side.units_per_s_low, side.units_per_s_high)


def _seconds(side: Side, count: int, with_start: bool = False) -> float | None:
    if not side.units_per_s:
        return None
    return count / side.units_per_s + ((side.startup_s or 0.0) if with_start else 0.0)


def _percent_of_100(value: float | None) -> str:
    return numbers.percent(None if value is None else value / 100)


def _part(side: Side, name: str) -> str:
    share = side.shares.get(name)
    if share is None or not side.units_per_s:
        return numbers.NOT_MEASURED
    return f"{numbers.duration(share / side.units_per_s, 3)} ({numbers.percent(share)})"


def _measure_names(report: Report) -> list[str]:
    named = [*report.before.quality, *report.after.quality, *(p.measure for p in report.quality)]
    return list(dict.fromkeys(named))


def quality_point(report: Report, name: str) -> QualityPoint | None:
    """What the after of a measure rests on: confirmed before chosen, inside before outside, the
    last of them."""
    points = [point for point in report.quality if point.measure == name]
    order = [(point.stage == "confirmed" and point.within, point.within) for point in points]
    best = max(order, default=None)
    found = [point for point, rank in zip(points, order, strict=True) if rank == best]
    return found[-1] if found else None


def _limit(report: Report, name: str) -> float | None:
    point = quality_point(report, name)
    return point.limit if point is not None else None


def _bounded(report: Report, name: str, value: float | None) -> str:
    """`0.4191 (0.41 to 0.43)`: with its bounds where it has some."""
    point, text = quality_point(report, name), numbers.measure(value)
    if point is None or point.low is None or point.high is None or value != point.value:
        return text
    return f"{text} ({numbers.measure(point.low)} to {numbers.measure(point.high)})"


def quality_told(point: QualityPoint) -> str:
    """What a look at a measure says: how often, on what, and whether that is inside."""
    runs = numbers.many(point.runs, "pair")
    items = f" of {point.items} items" if point.items > 1 else ""
    if point.stage == "confirmed":
        return f"{'confirmed' if point.within else 'not confirmed'}, {runs}{items}"
    return f"{'inside' if point.within else 'out of tolerance'} when chosen, {runs}{items}"


def _quality_label(report: Report, name: str) -> str:
    limit = _limit(report, name)
    return name if limit is None else f"{name} (limit {numbers.measure(limit)})"

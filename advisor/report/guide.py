"""What a reader does next: how long things take now, what to watch, what is good, what if not.

Every threshold follows from what was measured; what was not measured is left out.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.config import argv
from advisor.report import numbers
from advisor.report.view import Row, shows_after, start_up_counted
from advisor.runner.signs import NEXT_STEPS

if TYPE_CHECKING:
    from advisor.report.model import Report, Side

COUNTS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
PASSES = (1, 10, 100)
DATA = ((1, ""), (10, ", ten times the data"))
"""Sizes of a data set that a training may go through: what was run on, and more of the same."""
SHORTEST_S, LONGEST_S = 1.0, 3.2e7
"""Durations worth a line: from a second to a year."""
POINTS = 0.10
"""Of a share: a change by so much has a reason."""
MOST_ROWS = 4
MOST_WATCHED = 20
"""Processes that `top -p` takes."""
_IN_PATTERNS = re.compile(r"[][()+*?^$|{}\\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """A command that shows how it goes, and what it shows."""

    command: str
    shows: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One thing to look at later: what was measured here, and from where on it is bad."""

    label: str
    good: str
    bad: str
    then: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something that may happen on this machine, and what to do then."""

    when: str
    then: str


def as_it_is(report: Report) -> Side:
    """The side that runs from now on."""
    return report.after if shows_after(report) else report.before


# --- time ---------------------------------------------------------------------------------


def has_bounds(report: Report) -> bool:
    """Whether several processes measured it: nothing is told a person to watch for from one."""
    return as_it_is(report).units_per_s_low is not None


def timeline(report: Report) -> list[Row]:
    """Times for many units and for passes over the data set, with the bounds of the rate."""
    before, after = report.before, report.after if shows_after(report) else None
    if not before.units_per_s or report.unit == "token":
        return []
    counts = [(numbers.many(count, report.unit), count) for count in COUNTS]
    counts = [each for each in counts if _worth_a_line(before, each[1])][:MOST_ROWS]
    items, with_start = before.data_items or 0, start_up_counted(report)
    sizes = [(items * times, told) for times, told in DATA] if report.phase == "train" else []
    passes = [
        (
            f"{numbers.many(number, 'pass')} over {numbers.many(size, report.unit)}{told}",
            number * size,
        )
        for size, told in sizes or [(items, "")]
        for number in PASSES
        if size
    ]
    return [
        Row(
            label=label,
            before=_time(before, count, with_start),
            after=_time(after, count, with_start) if after else "",
        )
        for label, count in (*counts, *(each for each in passes if _worth_a_line(before, each[1])))
    ]


def _worth_a_line(side: Side, count: int) -> bool:
    return SHORTEST_S <= count / (side.units_per_s or 1.0) <= LONGEST_S


def _time(side: Side, count: int, with_start: bool) -> str:
    """`11 min 16 s (11 min to 11 min 32 s)`: start-up and work, at the bounds of the rate."""
    start = (side.startup_s or 0.0) if with_start else 0.0
    rates = (side.units_per_s, side.units_per_s_high, side.units_per_s_low)
    middle, low, high = (
        numbers.duration(count / rate + start) if rate else numbers.NOT_MEASURED for rate in rates
    )
    if numbers.NOT_MEASURED in {low, high} or low == high:
        return middle
    return f"{middle} ({low} to {high})"


# --- watching it --------------------------------------------------------------------------


def watching(report: Report) -> list[Watch]:
    """Commands for another terminal while it runs."""
    side, found = as_it_is(report), []
    program = _program(report.command)
    if report.machine.gpus:
        fields = "utilization.gpu,memory.used,power.draw,clocks.sm,temperature.gpu"
        found += [
            Watch(
                command=f"nvidia-smi --query-gpu={fields} --format=csv -l 5",
                shows="how busy the GPU is, its memory, power, clock and heat",
            ),
            Watch(command="nvidia-smi pmon -s um -d 5", shows="who uses it"),
        ]
    if program:
        name = shlex.quote(_IN_PATTERNS.sub(r"\\\g<0>", program))
        found.append(
            Watch(
                command=f"top -d 5 -p $(pgrep -d, -f {name} | cut -d, -f1-{MOST_WATCHED})",
                shows="CPU and memory of the program and its workers",
            )
        )
    if side.workers:
        found.append(Watch(command="df -h /dev/shm", shows="room for the workers' batches"))
    config = f" {shlex.quote(report.config)}" if report.config else ""
    found += [
        Watch(
            command=f"gpu-advisor profile{config} -- {report.how_to_run or report.command}",
            shows="the rate and where the time goes, measured again",
        ),
        Watch(command="gpu-advisor doctor", shows="what the machine itself costs"),
    ]
    return found


def _program(command: str) -> str | None:
    """The script or module that a command runs; None where the command cannot be read."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    return next(reversed(words[: argv.first_own_word(words)]), None)


def signs(report: Report) -> list[Sign]:
    """What was measured, and from where on something is wrong; none from a single process."""
    if not has_bounds(report):
        return []
    side, units = as_it_is(report), numbers.plural(report.unit)
    band = report.tie or max(report.noise_band or 0.0, report.smallest_gain)
    device = "GPU" if report.machine.gpus else "CPU"
    busy = side.gpu_util_pct if report.machine.gpus else side.cpu_util_pct
    limit = report.target.memory_limit_gib if report.target and report.machine.gpus else None
    found = []
    if side.units_per_s and side.units_per_s_low:
        found.append(
            Sign(
                label=f"{units}/s",
                good=numbers.interval(
                    side.units_per_s, side.units_per_s_low, side.units_per_s_high
                ),
                bad=f"below {numbers.number(side.units_per_s_low / (1 + band))}",
                then="see whether others are at work and the machine is well: `gpu-advisor doctor`",
            )
        )
    if side.wait_share is not None and side.wait_share + POINTS < 1:
        found.append(
            Sign(
                label="waiting for data",
                good=numbers.percent(side.wait_share),
                bad=f"above {numbers.percent(side.wait_share + POINTS)}",
                then="the loader has become slower: another disk, fewer CPUs, larger files",
            )
        )
    if busy is not None and busy / 100 > POINTS:
        found.append(
            Sign(
                label=f"{device} utilisation",
                good=numbers.percent(busy / 100),
                bad=f"below {numbers.percent(busy / 100 - POINTS)}",
                then="something keeps it waiting: `gpu-advisor profile` names it",
            )
        )
    if side.peak_mem_gib is not None:
        more = limit if limit and limit > side.peak_mem_gib else side.peak_mem_gib * (1 + POINTS)
        found.append(
            Sign(
                label="peak memory",
                good=numbers.gib(side.peak_mem_gib),
                bad=f"above {numbers.gib(more)}, or growing",
                then="larger inputs than were measured, or something that is kept by each step",
            )
        )
    if side.startup_s is not None:
        found.append(
            Sign(
                label="first step after",
                good=numbers.duration(side.startup_s),
                bad=f"after {numbers.duration(3 * side.startup_s)}",
                then="caches are cold, or the disk or the network is slow",
            )
        )
    return found


# --- when it does not go well -------------------------------------------------------------


def troubles(report: Report) -> list[Trouble]:
    """What failed here, at a setting that can be run by hand; then what this machine is prone
    to."""
    side = as_it_is(report)
    found = []
    failures = [t for t in report.trials if t.outcome != "ok" and t.whatif is None]
    for kind in dict.fromkeys(trial.outcome for trial in failures):
        labels = dict.fromkeys(trial.label for trial in failures if trial.outcome == kind)
        failed = ", ".join(f"`{label}`" for label in list(labels)[:MOST_ROWS])
        step = NEXT_STEPS.get(kind)
        if step:
            found.append(Trouble(when=f"{kind}, as with {failed} here", then=step))
    ran = [t for t in report.trials if t.outcome == "ok" and t.purpose != "ladder"]
    fitted = [t for t in ran if t.batch and t.peak_mem_gib]
    if fitted and side.batch:
        largest = max(fitted, key=lambda trial: (trial.batch, trial.peak_mem_gib))
        runs = "what was proven ran" if report.dry_run and report.changes else "it now runs"
        found.append(
            Trouble(
                when="it runs out of memory",
                then=f"A batch of {numbers.count(largest.batch)} took "
                f"{numbers.gib(largest.peak_mem_gib)} here, the largest that ran; {runs} "
                f"with {numbers.count(side.batch)}. Larger inputs need a smaller batch.",
            )
        )
    if side.workers:
        found.append(
            Trouble(
                when="a loader worker is killed, or a bus error",
                then=f"{NEXT_STEPS['shm']} The measured number of workers is {side.workers}.",
            )
        )
    if report.busy:
        found.append(
            Trouble(
                when="it is faster or slower than here",
                then="Others were at work while this was measured; call `gpu-advisor optimize` "
                "again on a quiet machine.",
            )
        )
    if not report.machine.gpus and report.before.units_per_s:
        found.append(
            Trouble(
                when="it is to run on a GPU",
                then="Tune it there: nothing of this says what is best on a GPU.",
            )
        )
    if report.how_to_revert and report.changes:
        found.append(
            Trouble(
                when="results are not what they were",
                then=f"Go back with `{report.how_to_revert.splitlines()[0]}` and compare.",
            )
        )
    return found

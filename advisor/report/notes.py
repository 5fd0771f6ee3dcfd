"""Caveats of a report: background load, isolation, changed files, runs that fell behind."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence

from advisor import numbers
from advisor.executor.comparison import AFTER, BEFORE, UNDER_LOAD, Comparison, neighbours
from advisor.knobs.discovery import Followed
from advisor.knobs.registry import REGISTRY
from advisor.model import Gpu, Machine, Neighbour, Run
from advisor.report.bottleneck import WAITING
from advisor.report.verdict import TuningResult
from advisor.tuner import output_check

NAMED_CPUS = 0.05
"""CPUs; a program that holds less is not named."""
MOST_NAMED = 3
"""Files or programs that are named."""
SATURATED = 0.9
"""Share of the CPUs from which on all of them are busy."""
MOST_WAIT = 0.9
"""Longest wait from which a need is told."""


def caveats(found: TuningResult) -> Iterator[str]:
    """Notes on the figures, the most important first."""
    state, target = found.state, found.target
    real = [a.result for a in found.attempts if a.result.isolation != "overlay"]  # it keeps none
    created = {path for result in real for path in result.files_created}
    if changed := {path for result in real for path in result.files_changed} - created:
        yield f"The command altered or removed files of yours: {named(changed)}."
    yield from filter(None, map(collapsed, state.confirmations))
    tried = {each.title: each.outcome for each in state.suggestions if each.outcome is not None}
    after = [run for step in (*state.confirmations, *tried.values()) for run in step.runs(AFTER)]
    if unread := output_check.unread(state.originals, after):
        yield (
            f"{named(unread)}: the content differs from the original's, and this format is not "
            "compared. Look at them before you trust the result."
        )
    if found.history_set_aside:
        yield found.history_set_aside
    if target.profile is not None and target.note:
        yield target.note
    if not state.context.has_gpu:
        yield "All of this was measured on this CPU. It says nothing about a GPU."
    yield from map(followed, state.followed)
    if unproven := sorted(tried.keys() - {advice.title for advice in found.advice}):
        yield f"Tried, and not proven to gain: {', '.join(unproven)}."
    runs = [a.run for a in found.attempts if a.request.purpose == "confirm" and a.run is not None]
    for source_of_rate in sorted({run.rate_source.partition(" (")[0] for run in runs}):
        yield f"Throughput was counted by {source_of_rate}."
    if created:
        yield f"The command wrote outside the trials' scratch folders: {named(created)}."


def followed(found: Followed) -> str:
    """Sentence on a value that the program follows, whatever its name."""
    before, after = numbers.count(found.before), numbers.count(found.after)
    suspect, words = found.move.suspect, REGISTRY[found.trace.kind].words
    return (
        f"Found by experiment: `{suspect.path}` ({words}). With "
        f"{found.move.new} in place of {suspect.value} the program showed {after}, not {before}."
    )


def named(paths: Iterable[str]) -> str:
    """The first of these files, and the number of others."""
    files = [f"`{path}`" for path in sorted(paths)]
    more, shown = len(files) - MOST_NAMED, ", ".join(files[:MOST_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown


def collapsed(proof: Comparison) -> str:
    """Sentence on runs that fell far behind their arm; empty without any."""
    arms = proof.ab_test.by_name.items()
    slow = {arm.variant.label: proof.collapsed(name) for name, arm in arms}
    shown = " and ".join(f"{many} of {label}" for label, many in slow.items() if many)
    if not shown:
        return ""
    return (
        f"In the {len(proof.counted)} rounds of the comparison {shown} ran at less than half the "
        "speed of the others; all of them count."
    )


def unused_gpu(runs: Sequence[Run], gpus: Sequence[Gpu]) -> str:
    """Sentence on a card that the program leaves idle; empty without one."""
    if not gpus or not any((run.effects.device or "").startswith("cpu") for run in runs):
        return ""
    return (
        f"Your program does not use the {gpus[0].name}: its model computed on the CPU. "
        "`gpu-advisor doctor -- COMMAND` shows if its torch sees the card; "
        "else look for a missing `.cuda()` or `device` setting."
    )


def more_cpus(runs: Sequence[Run], machine: Machine) -> str:
    """Sentence on CPUs to request from a scheduler; empty where others hold the program back.

    The work of a unit stays the same, so without the wait the loader needs CPUs in proportion.
    """
    waits = [run.wait_share or 0.0 for run in runs]
    busy = [run.disturbance.own_cpus or 0.0 for run in runs]
    if machine.allocation is None or min(waits, default=0.0) < WAITING:
        return ""
    if min(busy) < SATURATED * machine.cpus:
        return ""
    waited, held = statistics.fmean(waits), statistics.fmean(busy)
    gain = 1 / (1 - min(waited, MOST_WAIT))
    return (
        f"The {numbers.many(machine.cpus, 'CPU')} of this allocation hold the program back: it "
        f"kept {held:.1f} of them busy and waited for data {numbers.percent(waited)} of the time. "
        f"Request `--cpus-per-task={math.ceil(held * gain)}`: at most {numbers.ratio(gain)} "
        "(estimated, with as many workers)."
    )


def unprotected(runs: Sequence[Run]) -> str:
    """Missing protection of the user's files, if any."""
    texts = [note for run in runs if run.isolation == "guard" for note in run.notes]
    text = next((note for note in texts if note.startswith("not isolated")), "")
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def load_of(found: TuningResult) -> str:
    """Background load during the comparison, or else during the search."""
    everything = [a.run for a in found.attempts if a.run is not None and not a.reused]
    proofs = found.state.confirmations
    runs = [run for step in proofs for run in (*step.runs(BEFORE), *step.runs(AFTER))] or everything
    steps = proofs or [each.outcome for each in found.state.suggestions if each.outcome]
    used = any(each.used_contended_rounds for each in steps)
    note = load_note(runs, neighbours(everything), found.machine.cpus)
    return f"{note} {UNDER_LOAD}" if note and used else note


def load_note(runs: Sequence[Run], who: Sequence[Neighbour], cpus: int) -> str:
    """Background load during `runs`; empty on a quiet machine."""
    held = [run.disturbance.others_cpus for run in runs if run.disturbance.others_cpus is not None]
    if runs and not held:
        return "Background load could not be read on this machine."
    if not any(run.disturbance.disturbed for run in runs):
        return ""
    mean = numbers.number(statistics.fmean(held), 2)
    busy = [each for each in who[:MOST_NAMED] if each.cpus >= NAMED_CPUS]
    shown = ", ".join(f"{each.name} up to {each.cpus:.1f}" for each in busy)
    names = f" ({shown})" if shown else ""
    of = numbers.many(cpus, "CPU")
    return f"Measured under background load: others held {mean} of {of}{names}."

"""One trial: a measured process from start to classification.

job.py               files, directories, argv and environment of one process
launch.py            starts the job through its supervisor, and ends it
supervisor.py        the process between: no child outlives the parent
monitor.py           waits for the end, and acts on the limits
limits.py            the limits of a trial
output.py            streams: tails, logs, lines counted by a pattern
resources.py         memory and CPU of the process tree; out-of-memory kills
uninstrumented.py    Python processes that the probe is not in, and why
classify.py          the end of a trial to a kind of failure
failure_patterns.py  exceptions and messages that name a failure, as data
fs_changes.py        files that a program created, changed and removed
result_files.py      content of files of items
records.py           format of the probe's records, their parser, their folder
reading.py           the records of all processes to one reading
rates.py             throughput: by the probe, by a pattern, or by the whole run
measuring.py         the event log of each process to its measurement
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from advisor.analysis.window_parts import window_rates
from advisor.errors import AdvisorError, ConfigReadOnlyError, StateBusyError, StateUnusableError
from advisor.machine.contention import LoadMonitor, on_card
from advisor.machine.gpu import load_uvm
from advisor.model import Failure, Run, Telemetry, Trial
from advisor.runner import fs_changes
from advisor.runner.classify import Finding, classify, log_tail
from advisor.runner.job import prepare
from advisor.runner.launch import Launched
from advisor.runner.monitor import Monitor, TrialExit
from advisor.runner.output import Tally
from advisor.runner.rates import Rate, best_rate
from advisor.runner.reading import Reading, glimpse, read
from advisor.runner.result_files import read_copies, read_folder
from advisor.sandbox.capabilities import FORCED, LAYER_FOLDER, LAYER_SIZE
from advisor.sandbox.refusals import refusal

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence

    from advisor.model import Card
    from advisor.runner.job import Job

__all__ = ["Sampler", "SamplerFactory", "run_trial"]


class Sampler(Protocol):
    """Sampler of the GPU; `advisor.machine.telemetry.Sampler` is one."""

    def summary(
        self, window_start: float, window_end: float, used: Sequence[Card] = ()
    ) -> Telemetry:
        """Mean telemetry of the used cards over a window."""
        ...


UNEXPLAINED = {"no-steps", "probe-not-loaded", "hang", "timeout", "work-not-done"}
"""Kinds of failures that say what did not happen, not why."""

SamplerFactory = Callable[[int], AbstractContextManager[Sampler]]
"""Given the process at the root of the trial's tree."""


def run_trial(
    trial: Trial,
    *,
    on_progress: Callable[[str], None] | None = None,
    cancel: threading.Event | None = None,
    sampler: SamplerFactory | None = None,
) -> Run | Failure:
    """Run `trial` to its end; return its run or its failure.

    When this returns or raises, no process of the trial is left and its candidate files are gone;
    logs, records and outputs stay in `trial.scratch`, which belongs to the caller. `on_progress`
    hears a short line every few seconds. Setting `cancel` ends the trial: Failure `interrupted`.
    `sampler` watches the GPU meanwhile.

    Raises ConfigReadOnlyError where a candidate cannot be written beside its original, and
    StateBusyError where a candidate of this name is there already.
    """
    job = prepare(trial)
    if job.sandbox.throws_away:
        load_uvm()
    sandbox = job.sandbox
    before = fs_changes.snapshot(trial.cwd, job.scratch) if sandbox.by_names else None
    tally = Tally(trial.plan.unit_regex)
    with contextlib.ExitStack() as stack:
        launched = stack.enter_context(Launched(job, tally))
        seen = stack.enter_context(sampler(launched.supervisor_pid)) if sampler else None
        load = LoadMonitor(launched.supervisor_pid)
        watch = Monitor(trial, launched, tally, load, on_progress=on_progress, cancel=cancel)
        ending = watch.until_end()
    if refused := _refusal(ending, launched):
        raise refused
    reading = read(ending.processes, trial.plan)
    left = _left(trial, job, before, ending, launched.changes)
    rate = best_rate(trial, ending, reading)
    finding = classify(trial, ending, measured=rate is not None)
    if finding is not None:
        finding = _refused(trial, job, launched, ending, finding) or finding
    facts: dict[str, Any] = {
        "trial_id": trial.id,
        "purpose": trial.purpose,
        "label": trial.label,
        "candidate_key": trial.candidate.key,
        "exit_code": ending.exit_code,
        "wall_s": ending.wall_s,
        "files_created": tuple(map(_text, left.created)),
        "files_changed": tuple(map(_text, (*left.altered, *left.removed))),
        "isolation": sandbox.kind,
    }
    if finding is not None:
        return Failure(
            kind=finding.kind,
            evidence=finding.evidence,
            next_step=finding.next_step,
            log_tail=log_tail(ending),
            effects=glimpse(ending.processes),
            gpu_mem_others_gib=_held_by_others_gib(seen, ending),
            **facts,
        )
    assert rate is not None
    cards = reading.cards if reading else ()
    written_at, results = read_folder(job.outputs)
    telemetry = seen.summary(rate.window_start, rate.window_end, cards) if seen else Telemetry()
    return Run(
        **(_probed(reading) if reading else {})
        | _hosted(reading, ending)
        | _rates(rate, reading)
        | facts,
        telemetry=telemetry,
        disturbance=on_card(load.between(rate.window_start, rate.window_end), telemetry),
        files_in_window=_files_within(launched.changes, written_at, rate, trial),
        results=(*read_copies(launched.changes, trial.cwd), *results),
        output_digest=fs_changes.digest(job.outputs) if trial.plan.mode == "whole" else None,
        stdout_tail=ending.stdout,
        notes=(
            *sandbox.notes,
            *(reading.notes if reading else ()),
            *map(_text, left.notes()),
            *_leftovers(ending),
        ),
    )


def _probed(reading: Reading) -> dict[str, Any]:
    """Return the run fields measured by the probe."""
    names = {field.name for field in dataclasses.fields(reading)} - {"notes", "parts", "unit"}
    return {name: getattr(reading, name) for name in names}


def _rates(rate: Rate, reading: Reading | None) -> dict[str, Any]:
    """Return the speed fields of the window."""
    return {
        "unit": rate.unit,
        "units": rate.units,
        "units_per_s": rate.units_per_s,
        "tokens_per_s": reading.tokens_per_s if reading else None,
        "rank_units_per_s": reading.rank_units_per_s if reading else (),
        "rate_source": rate.rate_source,
        "window_start": rate.window_start,
        "window_end": rate.window_end,
        "windows": window_rates(rate.parts),
    }


def _held_by_others_gib(seen: Sampler | None, ending: TrialExit) -> float | None:
    """Memory of the failed program's card that others held."""
    cards = [process.card for process in ending.processes if process.card is not None]
    return seen.summary(ending.started, ending.ended, cards).gpu_mem_others_gib if seen else None


def _hosted(reading: Reading | None, ending: TrialExit) -> dict[str, float | None]:
    """Return peak memory, sampled outside or self-reported.

    Both count shared pages once.
    """
    if reading is None:
        return {"peak_host_gib": ending.peak_host_gib, "peak_mem_gib": ending.peak_host_gib}
    host = max(ending.peak_host_gib or 0.0, reading.peak_host_gib or 0.0) or None
    on_device = reading.peak_device_gib is not None
    return {"peak_host_gib": host, "peak_mem_gib": reading.peak_mem_gib if on_device else host}


def _text(name: str) -> str:
    """Decode a file name, whatever its bytes."""
    return os.fsencode(name).decode(errors="replace")


def _leftovers(ending: TrialExit) -> tuple[str, ...]:
    pids = ", ".join(map(str, ending.left))
    return (f"processes that would not end: {pids}",) if pids else ()


def _left(
    trial: Trial,
    job: Job,
    before: fs_changes.Snapshot | None,
    ending: TrialExit,
    changes: Mapping[str, Any] | None,
) -> fs_changes.FilesystemChanges:
    """Return file changes outside scratch, by isolation or snapshots."""
    if changes is not None:
        return fs_changes.FilesystemChanges.exact(
            changes, trial.cwd, thrown_away=job.sandbox.throws_away
        )
    if before is None:
        return fs_changes.FilesystemChanges()
    left = fs_changes.compare(before, fs_changes.snapshot(trial.cwd, job.scratch))
    return left.and_written(ending.writes, trial.cwd, before)


def _files_within(
    changes: Mapping[str, Any] | None, written_at: Sequence[float], rate: Rate, trial: Trial
) -> int | None:
    """Count files written inside the window."""
    elsewhere = (changes or {}).get("written_at")
    if elsewhere is None and not written_at:
        return None
    times = (*(elsewhere or ()), *written_at)
    end = float("inf") if trial.plan.whole else rate.window_end
    return sum(1 for time in times if rate.window_start <= time <= end)


def _refused(
    trial: Trial, job: Job, launched: Launched, ending: TrialExit, finding: Finding
) -> Finding | None:
    """Return a failure caused by refused writes, or None."""
    if launched.full and (finding.kind in UNEXPLAINED or launched.refused_stage == "scratch"):
        return Finding.of(
            "disk-full",
            f"the disk of {trial.scratch}, which holds the program's TMPDIR and what is measured, "
            "has no space left",
            "Free space there, or set TMPDIR to another disk.",
        )
    if launched.refused_stage == "isolation":
        return Finding.of(
            "write-denied",
            f"the isolation does not hold any more: {ending.problem}",
            f"Run again, or set {FORCED} to landlock or guard to do without.",
        )
    if ending.end not in {"exited", "measured"}:
        return None
    raised = [each for each in (process.exception for process in ending.processes) if each]
    found = refusal(
        job.sandbox,
        [
            *(f"{each.type}: {each.message}" for each in raised),
            *reversed(ending.stderr.splitlines()),
            *reversed(ending.stdout.splitlines()),
        ],
        cwd=trial.cwd,
        changes=launched.changes,
        variables={"size": LAYER_SIZE, "folder": LAYER_FOLDER},
    )
    return Finding.of(*found) if found else None


def _refusal(ending: TrialExit, launched: Launched) -> AdvisorError | None:
    """Return the error that prevents every trial."""
    if launched.refused_stage == "layout":
        return _candidate_refused(ending)
    if launched.refused_stage == "scratch" and not launched.full:
        msg = (
            f"The trial's own folder could not be made: {ending.problem}. "
            "Set TMPDIR to a folder that may be written."
        )
        return StateUnusableError(msg)
    return None


def _candidate_refused(ending: TrialExit) -> AdvisorError:
    if "File exists" in ending.problem:
        msg = (
            f"A candidate is already there: {ending.problem}. Another gpu-advisor works on this "
            "config, or the machine stopped in the middle of one; in that case remove the file."
        )
        return StateBusyError(msg)
    msg = (
        f"The candidate could not be written beside the config: {ending.problem}. "
        "Make that folder writable."
    )
    return ConfigReadOnlyError(msg)

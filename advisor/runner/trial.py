"""Trial: one measured process from start to run or failure."""

import contextlib
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor import clock
from advisor.analysis.device_time import held_against
from advisor.errors import (
    AdvisorError,
    ConfigReadOnlyError,
    StateBusyError,
    StateUnusableError,
)
from advisor.machine.contention import RUNNING, on_card, starvation
from advisor.machine.gpu import load_uvm
from advisor.machine.recording import Sampler
from advisor.model import Failure, Run, Trial
from advisor.runner.classify import (
    beside_others,
    classify,
    exceptions,
    failed,
    log_tail,
    wanted,
)
from advisor.runner.job import Job, prepare
from advisor.runner.launch import Launched
from advisor.runner.measured_run import failed_effects, finished_by_results, measured_run
from advisor.runner.monitor import Monitor, TrialExit
from advisor.runner.output import short_line
from advisor.runner.written_files import (
    changed_files,
    guarded_changes,
    read_copies,
    read_folder,
)
from advisor.sandbox.capabilities import FORCED
from advisor.sandbox.policy import denied_write, full_space

CLOCK_SET_S = 0.1
"""Seconds that the wall clock may move in one trial; it was set if it moved further.

Judgement: smaller counts no files of a window for a slight correction of the clock, larger counts
files of another time."""
UNEXPLAINED = {"no-steps", "probe-not-loaded", "hang", "timeout", "work-not-done"}
"""Failure kinds that say what did not happen, not why."""


def run_trial(
    trial: Trial,
    *,
    on_progress: Callable[[str], None] = lambda _: None,
    cancel: threading.Event | None = None,
) -> Run | Failure:
    """Run `trial` to its end; return its run or its failure.

    It leaves no process and no candidate file. Records and outputs stay in
    `trial.scratch`. Setting `cancel` ends the trial: Failure `interrupted`.

    Raises ConfigReadOnlyError if a candidate cannot be written beside its original, and
    StateBusyError if one of its name exists.
    """
    job = prepare(trial)
    if job.sandbox.throws_away:
        load_uvm()
    set_ahead_s = clock.set_ahead_s()
    with contextlib.ExitStack() as stack:
        launched = stack.enter_context(Launched(job, trial.plan.unit_regex, wanted(trial)))
        card = stack.enter_context(Sampler(launched.supervisor_pid, job.env))
        RUNNING.add(launched.supervisor_pid)
        stack.callback(RUNNING.discard, launched.supervisor_pid)
        try:
            watch = Monitor(trial, launched, on_progress, cancel or threading.Event())
            ending = watch.until_end()
        except Exception as problem:
            return not_judged(problem)
    _require_laid_out(launched, ending)
    try:
        return _judged(trial, launched, ending, watch, card, set_ahead_s)
    except Exception as problem:
        return not_judged(problem)


def not_judged(problem: Exception) -> Failure:
    """Failure of a run at whose records or output we fell over ourselves.

    Both are written by the program, which may be hostile or broken. What they make of us costs
    this one run, and never the call. Our own refusals go on to the user.
    """
    if isinstance(problem, AdvisorError):
        raise problem
    place = traceback.extract_tb(problem.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno}"
    failure = failed("not-judged", f"{type(problem).__name__} at {where}: {problem}")
    lines = "".join(traceback.format_exception(problem)).splitlines()
    return replace(failure, log_tail="\n".join(map(short_line, lines)))


def _judged(
    trial: Trial,
    launched: Launched,
    ending: TrialExit,
    watch: Monitor,
    card: Sampler,
    set_ahead_s: float,
) -> Run | Failure:
    """Run or failure that the trial's end, records and output show."""
    job = launched.job
    run = measured_run(trial, ending)
    failure = classify(trial, ending, measured=run is not None)
    changes = launched.changes or guarded_changes(ending.processes)
    thrown_away = job.sandbox.throws_away
    created, altered, notes = changed_files(changes, trial.cwd, thrown_away=thrown_away)
    facts: dict[str, Any] = {
        "exit_code": ending.exit_code,
        "wall_s": ending.wall_s,
        "files_created": created,
        "files_changed": altered,
        "isolation": job.sandbox.kind,
        "figures": dict(ending.printed.figures),
        "cut_lines": ending.printed.cut_lines,
    }
    if failure is not None:
        cards = [process.card for process in ending.processes if process.card is not None]
        seen = card.summary(ending.started, ending.ended, cards)
        messages = [exception.message for exception in exceptions(ending)]
        said = "\n".join([*messages, ending.stderr, ending.stdout])
        failure = beside_others(
            failure, said, seen.gpu_mem_others_gib, card.memory_gib(cards)
        )
        return replace(
            _by_sandbox(launched, ending, failure) or failure,
            log_tail=log_tail(ending),
            effects=failed_effects(ending.processes),
            gpu_mem_others_gib=seen.gpu_mem_others_gib,
            **facts,
        )
    assert run is not None
    start, end = run.window_start, run.window_end
    telemetry = card.summary(start, end, run.cards)
    left = ", ".join(map(str, launched.left or ()))
    seen_pct = None  # the figure of a card is one rank's, if nobody else's
    if run.ranks == 1 and telemetry.foreign_pids == 0:
        seen_pct = telemetry.gpu_util_pct
    load = watch.load.between(start, end)
    starved = "" if run.on_gpu else starvation(load, run.shares.compute)
    run = replace(
        run,
        telemetry=telemetry,
        shares=held_against(run.shares, seen_pct),
        disturbance=on_card(load, telemetry),
        to_its_end=trial.plan.mode == "whole",
        stdout_tail=ending.stdout,
        notes=(
            *job.sandbox.notes,
            *run.notes,
            *filter(None, (starved,)),
            *notes,
            *((f"processes that would not end: {left}",) if left else ()),
        ),
        **_results(trial, job, changes, run, set_ahead_s),
        **facts,
    )
    return finished_by_results(run, trial.unit)


def _results(
    trial: Trial, job: Job, changes: Mapping[str, Any], run: Run, set_ahead_s: float
) -> dict[str, Any]:
    """Result files, and those of the window where the wall clock dated them by one time."""
    outside = changes.get("written_at")
    written_at, inside = read_folder(f"{job.scratch}/outputs")
    times = [moment - set_ahead_s for moment in (*(outside or ()), *written_at)]
    kept_on = abs(clock.set_ahead_s() - set_ahead_s) < CLOCK_SET_S
    complete = kept_on and (bool(times) or outside is not None)
    end = float("inf") if trial.plan.whole else run.window_end
    in_window = files_between(run.window_start, end, times, run) if complete else None
    results = [*read_copies(changes, trial.cwd), *inside]
    begun = first_step_of(run) + set_ahead_s if kept_on else float("-inf")
    made = (
        result
        for result in results
        if result.written_at is None or result.written_at >= begun
    )
    return {"files_in_window": in_window, "results": tuple(made)}


def first_step_of(run: Run) -> float:
    """When the work began, in epoch seconds: what was last written before is no result of it.

    Data that a program prepares for itself as it starts holds as many items whatever the work.
    """
    if run.window_ended_s is None or run.startup_s is None:
        return float("-inf")
    return run.window_end - run.window_ended_s + run.startup_s


def files_between(
    start: float, end: float, written_at: Sequence[float], run: Run
) -> int | None:
    """Files last written in the window; None where overwritten."""
    before = run.whole_units - min(run.units, run.whole_units)
    if written_at and min(written_at) >= start and before > (run.effects.batch or 1.0):
        return None
    return sum(start <= time <= end for time in written_at)


def _by_sandbox(launched: Launched, ending: TrialExit, failure: Failure) -> Failure | None:
    """Failure by a wall or a disk of ours, which the program can only report as its own."""
    job = launched.job
    if launched.full and (
        failure.kind in UNEXPLAINED or launched.refused_stage == "scratch"
    ):
        return failed(
            "disk-full",
            f"the disk of {job.scratch} has no space left, or no inode for another file. It holds "
            "the program's TMPDIR and what is measured",
            "Free space there, or set TMPDIR to another disk.",
        )
    if launched.refused_stage == "isolation":
        return failed(
            "write-denied",
            f"the isolation does not hold any more: {ending.problem}",
            f"Run again, or set {FORCED} to landlock or guard to do without.",
        )
    if ending.end not in {"exited", "measured"}:
        return None
    lines = [f"{exception.type}: {exception.message}" for exception in exceptions(ending)]
    lines += [*reversed(ending.stderr.splitlines()), *reversed(ending.stdout.splitlines())]
    layer_full = bool(launched.changes and launched.changes["full"])
    full = full_space(job.sandbox, lines, layer_full=layer_full)
    return full or denied_write(job.sandbox, lines, job.cwd)


def _require_laid_out(launched: Launched, ending: TrialExit) -> None:
    """Raise the error that prevents every trial."""
    if launched.refused_stage == "scratch" and not launched.full:
        msg = (
            f"The trial's own folder could not be made: {ending.problem}. "
            "Set TMPDIR to a folder that may be written."
        )
        raise StateUnusableError(msg)
    if launched.refused_stage != "layout":
        return
    if "File exists" in ending.problem:
        msg = (
            f"A candidate is already there: {ending.problem}. Another gpu-advisor works on this "
            "config, or the machine stopped in the middle of one. In that case remove the file."
        )
        raise StateBusyError(msg)
    msg = (
        f"The candidate could not be written beside the config: {ending.problem}. "
        "Make that folder writable."
    )
    raise ConfigReadOnlyError(msg)

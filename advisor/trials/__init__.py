"""One trial: the user's own command in a fresh process, measured, ended, and judged.

prepare.py    Trial to Job: files, directories, argv, environment
launch.py     starts the job through its guardian and ends it
guardian.py   the process between: nothing outlives the parent
output.py     streams: tails, logs, lines counted by a pattern
records.py    the probe's record files while the program runs
resources.py  memory and CPU of the process tree; out-of-memory kills
watch.py      waits, and acts on the limits: an Ending
signs.py      what programs print when something goes wrong, as data
classify.py   Ending to Finding
traces.py     files left in the working directory; digest of the outputs
reading.py    the probe's final records to a Reading
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from advisor.errors import ConfigReadOnlyError
from advisor.model import Failure, Run, Telemetry, Trial
from advisor.trials import traces
from advisor.trials.classify import classify, log_tail
from advisor.trials.launch import Launched
from advisor.trials.output import Tally
from advisor.trials.prepare import prepare
from advisor.trials.rates import counted_rate, whole_run_rate
from advisor.trials.reading import read_records
from advisor.trials.watch import Watch

if TYPE_CHECKING:
    import threading

__all__ = ["Sampler", "SamplerFactory", "run_trial"]


class Sampler(Protocol):
    """What watches the GPU meanwhile; `advisor.machine.telemetry.Sampler` is one."""

    def summary(self, window_start: float, window_end: float) -> Telemetry:
        """Means over a window of epoch seconds."""
        ...


SamplerFactory = Callable[[int], AbstractContextManager[Sampler]]
"""Given the process at the root of the trial's tree."""


def run_trial(
    trial: Trial,
    *,
    on_progress: Callable[[str], None] | None = None,
    cancel: threading.Event | None = None,
    sampler: SamplerFactory | None = None,
) -> Run | Failure:
    """Run `trial` to its end and tell what it did, or what kept it from doing it.

    When this returns or raises, no process of the trial is left and its candidate files are gone;
    logs, records and outputs stay in `trial.scratch`, which belongs to the caller. `on_progress`
    hears a short line every few seconds. Setting `cancel` ends the trial: Failure `interrupted`.
    `sampler` is given the root of the process tree and watches the GPU meanwhile.

    Raises ConfigReadOnlyError where a candidate cannot be written beside its original.
    """
    job = prepare(trial)
    before = traces.snapshot(trial.cwd, job.scratch)
    tally = Tally(trial.plan.unit_regex)
    with contextlib.ExitStack() as stack:
        launched = stack.enter_context(Launched(job, tally))
        seen = stack.enter_context(sampler(launched.guardian_pid)) if sampler else None
        watch = Watch(trial, launched, tally, on_progress=on_progress, cancel=cancel)
        ending = watch.until_end()
    if ending.own_files:
        msg = (
            f"The candidate could not be written beside the config: {ending.problem}. "
            "Make that folder writable."
        )
        raise ConfigReadOnlyError(msg)
    after = traces.snapshot(trial.cwd, job.scratch)
    created = traces.created(before, after)
    reading = read_records(Path(job.records), trial)
    rate = counted_rate(trial, ending)
    probed = trial.plan.unit_regex is None and reading is not None and bool(reading.units_per_s)
    if rate is None and not probed:
        rate = whole_run_rate(trial, ending)
    finding = classify(trial, ending, reading, measured=probed or rate is not None)
    if finding is not None:
        return Failure(
            trial_id=trial.id,
            purpose=trial.purpose,
            label=trial.label,
            candidate_key=trial.candidate.key,
            kind=finding.kind,
            evidence=finding.evidence,
            next_step=finding.next_step,
            log_tail=log_tail(ending),
            exit_code=ending.exit_code,
            wall_s=ending.wall_s,
            files_created=created,
        )
    facts: dict[str, Any] = {}
    if reading is not None:
        names = {field.name for field in dataclasses.fields(Run)}
        facts = {
            field.name: getattr(reading, field.name)
            for field in dataclasses.fields(reading)
            if field.name in names
        }
    if rate is not None:
        facts |= {
            "unit": rate.unit,
            "units": rate.units,
            "units_per_s": rate.units_per_s,
            "rate_source": rate.source,
            "window_start": rate.start,
            "window_end": rate.end,
        }
    notes = [*facts.pop("notes", ())]
    notes += [f"the program wrote to {name}" for name in traces.altered(before, after)]
    if not (before.complete and after.complete):
        notes.append(f"the working directory holds over {traces.ENTRIES_LIMIT} files: not listed")
    if ending.left:
        notes.append(f"processes that would not end: {', '.join(map(str, ending.left))}")
    whole = trial.plan.mode == "whole"
    return Run(
        **{
            "unit": trial.unit,
            "telemetry": seen.summary(facts["window_start"], facts["window_end"])
            if seen
            else Telemetry(),
            "peak_host_gib": watch.tree.peak_gib,
            "startup_s": None,
            **facts,
            "peak_mem_gib": facts.get("peak_mem_gib") or watch.tree.peak_gib,
            "trial_id": trial.id,
            "purpose": trial.purpose,
            "label": trial.label,
            "candidate_key": trial.candidate.key,
            "files_created": created,
            "output_digest": traces.digest(job.outputs) if whole else None,
            "stdout_tail": ending.stdout,
            "exit_code": ending.exit_code,
            "wall_s": ending.wall_s,
            "notes": tuple(notes),
        }
    )

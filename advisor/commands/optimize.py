"""`gpu-advisor optimize [CONFIG] [-- COMMAND]`: tune, confirm, write and report.

Read top to bottom: `run` is the whole journey.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from advisor import config as documents
from advisor import numbers
from advisor.commands.session import DEFAULT_REPORT, Job, add_arguments, options_of, prepare
from advisor.errors import (
    OPTIMIZE_EXIT_CODES,
    AdvisorError,
    BudgetTooSmallError,
    InterruptedByUserError,
    NotMeasuredError,
    StateUnusableError,
    TrialFailedError,
)
from advisor.executor.engines import EngineSettings, make_engine
from advisor.executor.engines.scratch_dir import cancellable
from advisor.executor.executor import WAIT_SHARE, Budget, Executor
from advisor.executor.program import COMMAND_LINE, Program
from advisor.executor.requests import TrialResult
from advisor.executor.run_cache import RunCache
from advisor.history import History, program_key
from advisor.machine import target
from advisor.model import Candidate, Failure
from advisor.patches import proven_advice
from advisor.quality import measure_key
from advisor.report import build, sections, sentences, writing
from advisor.report.build import trial_entry
from advisor.report.verdict import TuningResult
from advisor.tuner import next_request
from advisor.tuner.confirm import proven_candidate
from advisor.tuner.context import PriorData, TuningContext
from advisor.tuner.decisions import decisions
from advisor.tuner.state import Stop

if TYPE_CHECKING:
    import argparse
    import threading
    from pathlib import Path

    from advisor.executor.engines import Engine
    from advisor.report.progress import Progress
    from advisor.report.schema import Report
    from advisor.tuner.state import Result

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """Tune a config or a command and report it.

    Raises AdvisorError.
    """
    started = time.monotonic()
    options = options_of(args)
    job = prepare(options, command)
    with (
        job.versions.held(),
        job.progress,
        cancellable() as off,
        engine_of(job, off) as engine,
    ):
        lab = open_lab(job, engine, started)
        aim = TargetContext(job=job, facts=facts_of(job, lab))
        answers: list[Result] = []
        problem: AdvisorError | None = None
        stop: Stop | None = None
        try:
            stop = search(aim, lab, answers, job.progress)
        except InterruptedByUserError as interrupted:
            problem = interrupted
        if stop is not None and stop.reason == "baseline-failed":
            raise baseline_failed(stop)
        if stop is not None and stop.reason == "not-measured":
            raise not_measured(stop)
        took_s = time.monotonic() - started
        report, refused = conclude(aim.job, lab, aim.facts, answers, stop, wall_s=took_s)
        problem = problem or refused
        stays = report.unfinished and writing.holds_finished(options.report)
        if stays:
            job.progress.note(f"{options.report} is still that of an earlier call, which finished")
    if not stays:
        writing.write(report, options.report, job.report)
    if problem is not None:
        raise problem
    if stop is not None and stop.reason == "budget-too-small":
        raise BudgetTooSmallError(" ".join(filter(None, (report.load_note, report.reason))))
    show(report, json_only=options.json)
    return OPTIMIZE_EXIT_CODES[report.verdict]


@dataclass(kw_only=True)
class TargetContext:
    """Target of the search, corrected by the first run."""

    job: Job
    facts: TuningContext

    def correct(self, answer: Result) -> None:
        """Take memory and precisions of the card that ran."""
        run = answer.run if isinstance(answer, TrialResult) else None
        if run is None or not run.cards:
            return
        aimed = target.computed_on(self.job.target, self.job.machine, run.cards[0])
        if aimed != self.job.target:
            self.job = replace(self.job, target=aimed)
            self.facts = replace(
                self.facts,
                memory_limit_gib=self.job.memory_limit_gib,
                precisions=aimed.precisions,
                cards=max(1, self.facts.cards),
            )


def search(aim: TargetContext, lab: Executor, answers: list[Result], progress: Progress) -> Stop:
    """Run requests until the tuner stops.

    `answers` keeps them if interrupted.
    """
    stage = ""
    while True:
        turn = next_request(aim.facts, answers)
        if isinstance(turn, Stop):
            return turn
        if turn.request.purpose != stage:
            if stage == "baseline" and (slow := sentences.slow_starts(turn.state.starts)):
                progress.note(slow)
            stage = turn.request.purpose
            progress.stage(stage)
        answers.append(lab.answer(turn.request))
        if stage == "baseline":
            aim.correct(answers[-1])


def not_measured(stop: Stop) -> AdvisorError:
    """Error of an original without a requested figure."""
    run = stop.state.original
    names = " and ".join(stop.state.context.objective.unmeasured(run))
    gaps = "; ".join(f"{what}: {why}" for what, why in run.telemetry.gaps)
    msg = (
        f"The original ran, and its {names} could not be measured{f' ({gaps})' if gaps else ''}. "
        "Nothing was tried. Choose another objective or constraint."
    )
    return NotMeasuredError(msg)


def baseline_failed(stop: Stop) -> AdvisorError:
    """Error of a failed original, with its next step."""
    assert stop.failed is not None
    result = stop.failed.result
    assert isinstance(result, Failure)
    msg = (
        f"The original command failed ({result.kind}): {result.evidence.rstrip('.')}.\n"
        f"{result.next_step}\n{result.log_tail}".rstrip()
    )
    return TrialFailedError(result.kind, msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressListener:
    """Listener that passes events to the progress display."""

    progress: Progress

    def trial_started(self, number: int, label: str, purpose: str) -> None:
        """A process is about to start."""
        self.progress.trial_started(number, label, purpose)

    def trial_done(self, attempt: TrialResult) -> None:
        """A result is there."""
        self.progress.trial_done(trial_entry(attempt))

    def trial_stopped(self, label: str) -> None:
        """The budget ended a process."""
        self.progress.note(f"{label}: stopped, because the budget is spent")


def engine_of(job: Job, off: threading.Event) -> Engine:
    """Engine of this job's processes."""
    return make_engine(
        EngineSettings(
            gpu_uuid=job.target.gpu.uuid if job.target.gpu else None,
            cancel=off,
            on_busy=job.progress.note,
            max_wait_s=WAIT_SHARE * job.budget_s,
        )
    )


def open_lab(job: Job, engine: Engine, started: float) -> Executor:
    """Executor of this job; its budget began at `started`."""
    asked = job.invocation
    return Executor(
        engine=engine,
        program=Program(
            config=asked.config,
            command_line=asked.command_line,
            cwd=asked.cwd,
            unit=asked.workload.unit,
            output_paths=job.sources[0].findings.outputs if asked.config else (),
            output_flags=(*asked.workload.output_flags, *job.sources[-1].findings.outputs),
            env={**dict(job.target.environment), **asked.workload.env},
            seed=asked.settings.defaults.seed,
            memory_cap_gib=job.target.memory_cap_gib,
            allow_writes=job.options.allow_writes,
            limits=job.limits,
        ),
        commands=asked.quality_commands(),
        run_cache=RunCache(
            history=History(job.state / "history.sqlite", job.progress.note),
            machine_key=job.machine.key,
            program_key=program_key(asked.cwd, asked.argv),
            trusted=not job.options.fresh,
        ),
        budget=Budget(total_s=job.budget_s, clock=engine.clock, started=started),
        listener=ProgressListener(progress=job.progress),
    )


def quality_key(job: Job, lab: Executor) -> str:
    """Identity of what the quality command measures."""
    argv = lab.program.argv(Candidate(), lab.commands["quality"])
    return measure_key(job.invocation.workload.quality, argv)


def facts_of(job: Job, lab: Executor) -> TuningContext:
    """All that is known before the first process."""
    kept = job.versions.quality_reference(quality_key(job, lab))
    workload = job.invocation.workload
    return TuningContext(
        sources=job.sources,
        workload=workload,
        objective=job.objective,
        cpus=job.machine.cpus,
        memory_limit_gib=job.memory_limit_gib,
        precisions=job.target.precisions,
        cards=len(job.machine.gpus),
        smallest_gain=job.invocation.settings.defaults.smallest_gain,
        budget_s=job.budget_s,
        safe=job.options.safe,
        measure_s=job.options.window_s,
        earlier=PriorData(
            host_noise=lab.run_cache.host_noise(), quality_reference=tuple((kept or {}).items())
        ),
    )


def conclude(
    job: Job,
    lab: Executor,
    facts: TuningContext,
    answers: list[Result],
    stop: Stop | None,
    *,
    wall_s: float,
) -> tuple[Report, AdvisorError | None]:
    """Write the result and complete the report.

    Where the config cannot be written, the report is that of a dry run, beside the reason.
    """
    options = job.options
    state = (stop or next_request(facts, answers)).state
    winner = proven_candidate(state) if stop is not None else Candidate()
    if state.quality.reference and not facts.earlier.quality_reference:
        try:
            job.versions.keep_quality_reference(
                quality_key(job, lab), dict(state.quality.reference)
            )
        except StateUnusableError as problem:  # the folder was there before the first trial
            job.progress.note(f"{problem} A later call takes its tolerance from the tuned config.")
    text, written = "", None
    refused: AdvisorError | None = None
    if winner.changes:
        text = diff_of(job, lab, winner)
        if not options.dry_run:
            try:
                written = write_tuned(job, lab, winner)
            except AdvisorError as problem:
                refused = problem
    report = build.optimize_report(
        TuningResult(
            stop=stop,
            state=state,
            attempts=tuple(lab.attempts),
            comparisons=tuple(lab.comparisons),
            winner=winner,
            decisions=decisions(state, winner, lab.attempts, whole=stop is not None and stop.whole),
            advice=proven_advice(state, lab.program),
            program=lab.program,
            machine=job.machine,
            diff=text,
            history_set_aside=lab.run_cache.set_aside,
            background_load=lab.background_load,
        ),
        build.RunInfo(
            config=job.config,
            report=options.report,
            output=written,
            rewritten=(written,) if written is not None and job.tuned is None else (),
            dry_run=options.dry_run or refused is not None,
            workload=job.invocation.name,
            command=job.invocation.command,
            cwd=job.invocation.cwd,
            target=job.target,
            price_per_hour=job.price_per_hour,
            wall_s=wall_s,
            resume=resume_words(job),
            typed=tuple(job.typed),
        ),
    )
    return report, refused


def resume_words(job: Job) -> tuple[str, ...]:
    """The call again, without its budget and its command."""
    options = job.options
    words = ["gpu-advisor", "optimize"]
    if options.config is not None:
        words.append(str(options.config))
    named = {
        "--workload": options.workload,
        "--target": options.target,
        "--output": options.output,
        "--objective": options.objective,
        "--report": options.report if options.report != DEFAULT_REPORT else None,
    }
    for flag, value in named.items():
        words += [] if value is None else [flag, str(value)]
    if options.constraints:
        words += ["--constraint", *options.constraints]
    switches = {
        "--safe": options.safe,
        "--dry-run": options.dry_run,
        "--allow-writes": options.allow_writes,
    }
    return (*words, *(flag for flag, given in switches.items() if given))


def diff_of(job: Job, lab: Executor, winner: Candidate) -> str:
    """Diff of the config; empty without one."""
    config = job.invocation.config
    if config is None:
        return ""
    new = lab.program.content(winner)
    after = documents.parse(new, config.format, config.name)
    return documents.masked_diff(config, after, str(job.config))


def write_tuned(job: Job, lab: Executor, winner: Candidate) -> Path | None:
    """Write the tuned config; None where only flags changed.

    The bytes that were there are kept first. Raises AdvisorError.
    """
    config, path = job.invocation.config, job.config
    new = lab.program.content(winner)
    if config is None or path is None or new == config.raw:
        return None
    if job.tuned is not None and job.output is not None:
        job.tuned.write(job.output, new)
        job.versions.wrote(job.output, new)
        return job.output
    version = job.versions.keep(
        config, new, [c for c in winner.changes if c.document != COMMAND_LINE]
    )
    try:
        documents.write_atomic(path, new, config.raw)
    except AdvisorError:
        job.versions.forget(version)
        raise
    return path


def show(report: Report, *, json_only: bool) -> None:
    """Print one JSON object, or the verdict."""
    if json_only:
        sys.stdout.write(json.dumps(writing.headline(writing.masked(report)), indent=2) + "\n")
        return
    lines = [f"{sections.subject(report)}: {report.verdict}. {report.reason}"]
    if report.load_note:
        lines.append(f"  {report.load_note}")
    lines += [f"  {c.path}: {c.from_} -> {c.to}" for c in report.changes]
    lines += [
        f"  suggested, not applied: {entry.title}, {numbers.gain(entry.gain)}"
        for entry in report.suggestions
        if entry.gain
    ]
    if report.tuned_command:
        lines.append(f"tuned command: {report.tuned_command}")
    if report.how_to_revert:
        lines.append(f"undo: {report.how_to_revert}")
    lines.append(f"report: {report.report}")
    sys.stdout.write("\n".join(lines) + "\n")

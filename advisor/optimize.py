"""`gpu-advisor optimize CONFIG`: measure, choose, prove, write, report.

Read top to bottom: `run` is the whole journey.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import documents, invocation, knobs, revert
from advisor.advice import proven_advice
from advisor.engines.local import LocalEngine
from advisor.engines.workplace import cancellable
from advisor.errors import (
    AdvisorError,
    BudgetTooSmallError,
    InterruptedByUserError,
    TrialFailedError,
    UsageError,
)
from advisor.experiments.lab import WAIT_SHARE, Budget, Lab
from advisor.experiments.program import COMMAND_LINE, Program
from advisor.experiments.recall import Recall
from advisor.history import History, program_key, state_folder
from advisor.machine import profiles, target
from advisor.machine.host import read_machine
from advisor.model import Candidate, Failure
from advisor.objective import THROUGHPUT
from advisor.quality import measure_key
from advisor.report import compose, numbers, writing
from advisor.report.entries import trial_entry
from advisor.report.progress import Progress
from advisor.settings import parse_duration_s
from advisor.strategy import next_turn
from advisor.strategy.decisions import decisions
from advisor.strategy.proof import proven_candidate
from advisor.strategy.standing import Facts, Source, Stop
from advisor.trials import limits
from advisor.versions import Versions, diff

if TYPE_CHECKING:
    import argparse
    import threading

    from advisor.engines import Engine
    from advisor.experiments.attempts import Attempt
    from advisor.model import Change, Machine
    from advisor.report.model import Report
    from advisor.strategy.standing import Answer
    from advisor.trials.limits import Limits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `gpu-advisor optimize`."""
    parser.add_argument("config", type=Path, help="JSON, YAML or TOML config of your program")
    parser.add_argument("--budget", metavar="TIME", help="wall clock to spend: 90s, 10m (default)")
    parser.add_argument(
        "--target",
        metavar="NAME",
        help="GPU to tune for: auto (default), a profile such as rtx-4060, or a profile file",
    )
    parser.add_argument(
        "--output", type=Path, metavar="PATH", help="write the tuned config here, not in place"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="measure and report, but write no config"
    )
    parser.add_argument(
        "--report",
        type=Path,
        default=Path("report.md"),
        metavar="PATH",
        help="where the report goes (default report.md; report.json beside it)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument(
        "--window", metavar="TIME", default="3s", help="measured window of a trial (default 3s)"
    )
    limits.add_arguments(parser)
    parser.add_argument(
        "--seed",
        type=int,
        help="exported to your command as GPU_ADVISOR_SEED "
        "and PYTHONHASHSEED, the same in every trial",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="do not reuse measurements of earlier calls"
    )
    parser.add_argument(
        "--allow-writes",
        action="store_true",
        help="go on although the command writes over existing files of yours",
    )


def options_of(args: argparse.Namespace) -> Options:
    """The flags, checked. Raises UsageError."""
    try:
        return Options(
            config=args.config,
            budget_s=parse_duration_s(args.budget) if args.budget else None,
            target=args.target,
            output=args.output,
            dry_run=args.dry_run,
            report=args.report,
            json=args.json,
            window_s=parse_duration_s(args.window),
            seed=args.seed,
            fresh=args.fresh,
            allow_writes=args.allow_writes,
            limits=limits.of_flags(args),
        )
    except ValueError as problem:
        raise UsageError(str(problem)) from problem


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """The journey from a config to a tuned config and a report. Raises AdvisorError."""
    started = time.monotonic()
    options = options_of(args)
    job = prepare(options, command)
    with job.progress, cancellable() as off, engine_of(job, off) as engine:
        lab = open_lab(job, engine, started)
        facts = facts_of(job, lab)
        answers: list[Answer] = []
        problem: AdvisorError | None = None
        stop: Stop | None = None
        try:
            stop = search(facts, lab, answers, job.progress)
        except InterruptedByUserError as interrupted:
            problem = interrupted
        if stop is not None and stop.reason == "baseline-failed":
            raise baseline_failed(stop)
        report = conclude(job, lab, facts, answers, stop, wall_s=time.monotonic() - started)
    writing.write(report, options.report)
    if problem is not None:
        raise problem
    if stop is not None and stop.reason == "budget-too-small":
        raise BudgetTooSmallError(report.reason)
    show(report, json_only=options.json)
    return 0


def search(facts: Facts, lab: Lab, answers: list[Answer], progress: Progress) -> Stop:
    """Ask, answer, ask again; what was answered so far is in `answers`, also when interrupted."""
    stage = ""
    while True:
        turn = next_turn(facts, answers)
        if isinstance(turn, Stop):
            return turn
        if turn.ask.purpose != stage:
            stage = turn.ask.purpose
            progress.stage(stage)
        answers.append(lab.answer(turn.ask))


def baseline_failed(stop: Stop) -> AdvisorError:
    """The original command must run: what it failed with, and what to do."""
    assert stop.failed is not None
    result = stop.failed.result
    assert isinstance(result, Failure)
    msg = (
        f"The original command failed ({result.kind}): {result.evidence.rstrip('.')}.\n"
        f"{result.next_step}\n{result.log_tail}".rstrip()
    )
    return TrialFailedError(result.kind, msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one call was asked to do, as the flags said it."""

    config: Path
    budget_s: float | None
    target: str | None
    output: Path | None
    dry_run: bool
    report: Path
    json: bool
    window_s: float
    seed: int | None
    fresh: bool
    allow_writes: bool
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """Passes what the lab says on to the progress display."""

    progress: Progress

    def trial_started(self, number: int, label: str, purpose: str) -> None:
        """A process is about to start."""
        self.progress.trial_started(number, label, purpose)

    def trial_done(self, attempt: Attempt) -> None:
        """A result is there."""
        self.progress.trial_done(trial_entry(attempt))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the flags lead to, all of it read and checked before the first process starts."""

    options: Options
    invocation: invocation.Invocation
    config: documents.Document
    sources: tuple[Source, ...]
    machine: Machine
    target: target.Target
    versions: Versions
    state: Path
    budget_s: float
    limits: Limits
    progress: Progress

    @property
    def output(self) -> Path:
        """Where the tuned config goes."""
        return self.options.output or self.options.config

    @property
    def memory_limit_gib(self) -> float:
        """What a candidate may use: of the target card, or of this host."""
        host = 0.9 * self.machine.ram_limit_gib
        if self.target.profile is not None:
            usable = profiles.usable_gib(self.target.profile)
            return usable if self.target.gpu else min(usable, host)
        if self.target.gpu is not None and self.target.gpu.memory_free_gib is not None:
            return 0.92 * self.target.gpu.memory_free_gib
        return host


def prepare(options: Options, command: list[str] | None) -> Job:
    """Read everything and refuse early. Raises AdvisorError; nothing has been run or written."""
    asked = invocation.resolve(options.config, command)
    assert asked.config is not None, "it was named"
    if not options.dry_run and options.output is None:
        invocation.require_writable(options.config)
    if options.report.resolve() == options.config.resolve():
        msg = f"--report {options.report} is the config itself. Name another file."
        raise UsageError(msg)
    defaults = asked.settings.defaults
    machine = read_machine()
    state = state_folder(revert.project_root(options.config))
    budget_s = options.budget_s or defaults.budget
    return Job(
        options=options,
        invocation=asked,
        config=asked.config,
        sources=tuple(
            Source(document=document, findings=knobs.find(document))
            for document in (asked.config, documents.of_command(asked.argv))
        ),
        machine=machine,
        target=target.resolve(options.target or defaults.target, machine),
        versions=Versions(state, options.config),
        state=state,
        budget_s=budget_s,
        limits=options.limits.or_else(limits.of_settings(asked.workload, defaults)),
        progress=Progress(unit=asked.workload.unit, budget_s=budget_s),
    )


def engine_of(job: Job, off: threading.Event) -> LocalEngine:
    """Where the processes of this job run."""
    return LocalEngine(
        gpu_uuid=job.target.gpu.uuid if job.target.gpu else None,
        cancel=off,
        on_busy=job.progress.note,
        patience_s=WAIT_SHARE * job.budget_s,
    )


def open_lab(job: Job, engine: Engine, started: float) -> Lab:
    """Where the candidates of this job are measured; its budget began at `started`."""
    asked, seed = job.invocation, job.options.seed
    env = {**dict(job.target.environment), **asked.workload.env}
    if seed is not None:
        env |= {"GPU_ADVISOR_SEED": str(seed), "PYTHONHASHSEED": str(seed)}
    return Lab(
        engine=engine,
        program=Program(
            config=job.config,
            command_line=job.sources[1].document,
            cwd=asked.cwd,
            unit=asked.workload.unit,
            output_paths=job.sources[0].findings.outputs,
            output_flags=(*asked.workload.output_flags, *job.sources[1].findings.outputs),
            env=env,
            memory_cap_gib=job.target.memory_cap_gib,
            allow_writes=job.options.allow_writes,
            limits=job.limits,
        ),
        quality_command=documents.of_command(asked.quality_argv()),
        recall=Recall(
            history=History(job.state / "history.sqlite"),
            machine_key=job.machine.key,
            program_key=program_key(asked.cwd),
            trusted=not job.options.fresh,
        ),
        budget=Budget(total_s=job.budget_s, clock=engine.clock, started=started),
        listener=Telling(progress=job.progress),
    )


def quality_key(job: Job, lab: Lab) -> str:
    """Identity of what the quality command measures."""
    argv = lab.program.argv(Candidate(), lab.quality_command)
    return measure_key(job.invocation.workload.quality, argv)


def facts_of(job: Job, lab: Lab) -> Facts:
    """All that is known before the first process."""
    kept = job.versions.quality_reference(quality_key(job, lab))
    return Facts(
        sources=job.sources,
        workload=job.invocation.workload,
        objective=THROUGHPUT,
        cpus=job.machine.cpus,
        memory_limit_gib=job.memory_limit_gib,
        precisions=job.target.precisions,
        has_gpu=bool(job.machine.gpus),
        smallest_gain=job.invocation.settings.defaults.smallest_gain,
        budget_s=job.budget_s,
        measure_s=job.options.window_s,
        host_noise=lab.recall.host_noise(),
        quality_reference=tuple((kept or {}).items()),
    )


def conclude(
    job: Job, lab: Lab, facts: Facts, answers: list[Answer], stop: Stop | None, *, wall_s: float
) -> Report:
    """Decide what is written, write it, and put everything into the report."""
    options = job.options
    now = (stop or next_turn(facts, answers)).standing
    winner = proven_candidate(now) if stop is not None else Candidate()
    if now.quality.before and not facts.quality_reference:
        job.versions.keep_quality_reference(quality_key(job, lab), dict(now.quality.before))
    text = ""
    if winner.changes:
        new = lab.program.content(winner)
        text = diff(job.config.raw, new, str(options.config))
        if not options.dry_run and new != job.config.raw:
            write_config(job, winner, new)
    return compose.optimize_report(
        compose.Outcome(
            stop=stop,
            standing=now,
            attempts=tuple(lab.attempts),
            comparisons=tuple(lab.comparisons),
            winner=winner,
            decisions=decisions(now, winner, lab.attempts),
            advice=proven_advice(now, lab.program),
            program=lab.program,
            machine=job.machine,
            diff=text,
        ),
        compose.Asked(
            config=options.config,
            report=options.report,
            output=job.output,
            dry_run=options.dry_run,
            workload=job.invocation.name,
            command=job.invocation.command,
            cwd=job.invocation.cwd,
            target=job.target,
            price_per_hour=job.invocation.settings.defaults.price_per_hour,
            wall_s=wall_s,
        ),
    )


def write_config(job: Job, winner: Candidate, new: bytes) -> None:
    """Put the tuned config in place; the original's bytes are kept first."""
    original, options = job.config, job.options
    if options.output is not None and options.output.resolve() != options.config.resolve():
        options.output.touch()
        documents.write_atomic(options.output, new, options.output.read_bytes())
        return
    ours: list[Change] = [c for c in winner.changes if c.document != COMMAND_LINE]
    job.versions.keep(original, new, ours)
    try:
        documents.write_atomic(options.config, new, original.raw)
    except AdvisorError:
        job.versions.forget(job.versions.all()[-1])
        raise


def show(report: Report, *, json_only: bool) -> None:
    """The result on stdout: one JSON object, or the verdict and where to read on."""
    if json_only:
        sys.stdout.write(json.dumps(writing.headline(report), indent=2) + "\n")
        return
    lines = [f"{report.config}: {report.verdict}. {report.reason}"]
    if report.busy:
        lines.append(f"  {report.busy}")
    lines += [f"  {c.path}: {c.from_} -> {c.to}" for c in report.changes]
    lines += [
        f"  yours to decide: {advice.title}, {numbers.gain(advice.gain)}"
        for advice in report.advice
        if advice.gain
    ]
    if report.tuned_command:
        lines.append(f"tuned command: {report.tuned_command}")
    if report.how_to_revert:
        lines.append(f"undo: {report.how_to_revert}")
    lines.append(f"report: {report.report}")
    sys.stdout.write("\n".join(lines) + "\n")

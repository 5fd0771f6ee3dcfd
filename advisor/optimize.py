"""`gpu-advisor optimize CONFIG`: measure, choose, prove, write, report.

Read top to bottom: `run` is the whole journey.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import documents, files, invocation, knobs, versions
from advisor.engines.local import LocalEngine
from advisor.engines.workplace import cancellable, scratch_folder
from advisor.errors import AdvisorError, InterruptedByUserError, UsageError
from advisor.history import History, program_key
from advisor.machine import profiles, target
from advisor.machine.host import read_machine
from advisor.machine.lock import gpu_lock
from advisor.report import compose, numbers, writing
from advisor.report.entries import trial_entry
from advisor.report.progress import Progress
from advisor.settings import parse_duration_s
from advisor.state import project_root, state_folder
from advisor.tuning import ignored, loader, precision, stages, steps, whatif
from advisor.tuning.confirm import (
    Confirmation,
    affordable_arms,
    confirm,
    proven_candidate,
    reserve_s,
)
from advisor.tuning.guard import Guard
from advisor.tuning.program import COMMAND_LINE, Program
from advisor.tuning.runner import Runner, Taken
from advisor.tuning.search import Search, Source
from advisor.versions import Versions

if TYPE_CHECKING:
    import argparse
    import threading

    from advisor.model import Candidate, Change, Machine
    from advisor.report.model import Report


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
    parser.add_argument(
        "--seed",
        type=int,
        help="exported to your command as GPU_ADVISOR_SEED "
        "and PYTHONHASHSEED, the same in every trial",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace files that gpu-advisor did not write at the places of report and --output",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="do not reuse measurements of earlier calls"
    )
    parser.add_argument(
        "--allow-writes",
        action="store_true",
        help="go on although the command writes over existing files of yours",
    )


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """The journey from a config to a tuned config and a report. Raises AdvisorError."""
    started = time.monotonic()
    job = prepare(args, command)
    with (
        job.versions.held(),
        job.progress,
        gpu_lock(job.gpu_uuid),
        scratch_folder() as scratch,
        cancellable() as off,
    ):
        search = start_search(job, args, scratch, off, started)
        proof: Confirmation | None = None
        problem: AdvisorError | None = None
        try:
            proof = tune(search, job)
        except InterruptedByUserError as stop:
            problem = stop
        report = conclude(
            job,
            args,
            search,
            proof,
            interrupted=problem is not None,
            wall_s=time.monotonic() - started,
        )
    writing.write(report, args.report, job.report)
    if problem is not None:
        raise problem
    show(report, args)
    return 0


@dataclass(frozen=True, slots=True)
class Telling:
    """Passes what the runner says on to the progress display."""

    progress: Progress

    def trial_started(self, number: int, label: str, purpose: str) -> None:
        """A process is about to start."""
        self.progress.trial_started(number, label, purpose)

    def trial_done(self, trial: Taken) -> None:
        """A result is there."""
        self.progress.trial_done(trial_entry(trial))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one call was asked to do, all of it checked before the first process starts."""

    invocation: invocation.Invocation
    config: documents.Document
    sources: tuple[Source, ...]
    machine: Machine
    target: target.Target
    versions: Versions
    state: Path
    budget_s: float
    progress: Progress
    output: Path
    report: files.Claim
    tuned: files.Claim | None
    """The place of --output; None where the config itself is rewritten."""

    @property
    def gpu_uuid(self) -> str | None:
        """The card to be locked; None locks the host."""
        return self.target.gpu.uuid if self.target.gpu else None

    def memory_limit(self) -> tuple[float, str]:
        """GiB a candidate may use, and whose memory that is."""
        host = 0.9 * self.machine.ram_limit_gib
        if self.target.profile is not None:
            usable = profiles.usable_gib(self.target.profile)
            return (usable if self.target.gpu else min(usable, host)), self.target.title
        if self.target.gpu is not None and self.target.gpu.memory_free_gib is not None:
            return 0.92 * self.target.gpu.memory_free_gib, self.target.title
        return host, "this host"


def prepare(args: argparse.Namespace, command: list[str] | None) -> Job:
    """Read everything and refuse early. Raises AdvisorError; nothing has been run or written."""
    left = versions.recover(args.config)
    asked = invocation.resolve(args.config, command)
    assert asked.config is not None, "it was named"
    if not args.dry_run and args.output is None:
        invocation.require_writable(args.config)
    try:
        budget = args.budget or asked.settings.defaults.budget
        budget_s = parse_duration_s(budget)
        parse_duration_s(args.window)
    except ValueError as problem:
        raise UsageError(str(problem)) from problem
    machine = read_machine()
    state = state_folder(project_root(args.config))
    kept = Versions(state, args.config)
    report, tuned = claim_places(args, kept)
    progress = Progress(unit=asked.workload.unit, budget_s=budget_s)
    for note in left:
        progress.note(note)
    return Job(
        invocation=asked,
        config=asked.config,
        sources=tuple(
            Source(document=document, findings=knobs.find(document))
            for document in (asked.config, documents.of_command(asked.argv))
        ),
        machine=machine,
        target=target.resolve(args.target or asked.settings.defaults.target, machine),
        versions=kept,
        state=state,
        budget_s=budget_s,
        progress=progress,
        output=args.output or args.config,
        report=report,
        tuned=tuned,
    )


def claim_places(
    args: argparse.Namespace, kept: Versions
) -> tuple[files.Claim, files.Claim | None]:
    """Where the report goes, and where --output does. Raises OutputRefusedError."""
    config = args.config
    in_place = args.output is None or os.path.realpath(args.output) == os.path.realpath(config)
    never = [config] if in_place else [config, args.output]
    report = writing.claim(args.report, never=never, like=config, overwrite=args.overwrite)
    if in_place:
        return report, None
    return report, files.claim(
        [args.output], never=[config], like=config, overwrite=args.overwrite, ours=kept.is_output
    )


def start_search(
    job: Job, args: argparse.Namespace, scratch: Path, off: threading.Event, started: float
) -> Search:
    """The search's state, before anything was measured."""
    asked = job.invocation
    limit_gib, owner = job.memory_limit()
    env = {**dict(job.target.environment), **asked.workload.env}
    if args.seed is not None:
        env |= {"GPU_ADVISOR_SEED": str(args.seed), "PYTHONHASHSEED": str(args.seed)}
    runner = Runner(
        engine=LocalEngine(cancel=off),
        history=History(job.state / "history.sqlite", job.progress.note),
        machine_key=job.machine.key,
        program_key=program_key(asked.cwd),
        program=Program(
            config=job.config,
            command_line=job.sources[1].document,
            cwd=asked.cwd,
            unit=asked.workload.unit,
            output_paths=job.sources[0].findings.outputs,
            output_flags=(*asked.workload.output_flags, *job.sources[1].findings.outputs),
            env=env,
            memory_cap_gib=job.target.memory_cap_gib,
            allow_writes=args.allow_writes,
        ),
        scratch=scratch,
        budget_s=job.budget_s,
        listener=Telling(job.progress),
        reuse=not args.fresh,
        started=started,
    )
    return Search(
        runner=runner,
        sources=job.sources,
        workload=asked.workload,
        machine=job.machine,
        memory_limit_gib=limit_gib,
        memory_owner=owner,
        precisions=job.target.precisions,
        has_gpu=bool(job.machine.gpus),
        smallest_gain=asked.settings.defaults.smallest_gain,
        measure_s=parse_duration_s(args.window),
    )


def tune(search: Search, job: Job) -> Confirmation | None:
    """All stages; returns the proof of the winner, or None when nothing was worth proving."""
    progress = job.progress
    guard = Guard(
        search=search,
        command=documents.of_command(job.invocation.quality_argv()),
        versions=job.versions,
    )
    progress.stage("baseline")
    stages.measure_baseline(search)
    each = search.expected_s()
    search.runner.reserve_s = lambda: reserve_s(search)
    progress.note(
        f"one process takes about {each:.0f} s; expect up to "
        f"{search.runner.spent_s + 12 * each + reserve_s(search):.0f} s of the "
        f"{search.runner.budget_s:.0f} s budget; what does not fit is skipped and said"
    )
    progress.stage("search")
    stages.measure_ceilings(search)
    stages.tune_free_and_training(search)
    precision.tune_precision(search, guard)
    steps.tune_steps(search, guard)
    if loader.waits(search):
        loader.tune_loader(search)
    ignored.settle_quality(search, guard.command)
    progress.stage("code")
    whatif.advise(search, guard)
    if not search.best_candidate.changes:
        search.stop_reason = search.stop_reason or "no candidate was faster by more than a tie"
        return None
    progress.stage("confirm")
    assert search.best is not None
    expected = search.best.units_per_s / search.original.units_per_s
    arms = affordable_arms(search, search.best_candidate, expected)
    if not arms:
        search.stop_reason, search.cut_short = "the budget was spent before the confirmation", True
        return None
    return confirm(search, search.best_candidate, arms, expected)


def conclude(
    job: Job,
    args: argparse.Namespace,
    search: Search,
    proof: Confirmation | None,
    *,
    interrupted: bool,
    wall_s: float,
) -> Report:
    """Decide what is written, write it, and put everything into the report."""
    winner = proven_candidate(proof, search.smallest_gain)
    text = ""
    if winner.changes and not interrupted:
        new = search.runner.program.content(winner)
        after = documents.parse(new, job.config.format, job.config.name)
        text = documents.masked_diff(job.config, after, str(args.config))
        if not args.dry_run and new != job.config.raw:
            write_config(job, args, winner, new)
    return compose.optimize_report(
        search,
        proof,
        winner,
        compose.Asked(
            config=args.config,
            report=args.report,
            output=job.output,
            dry_run=args.dry_run,
            workload=job.invocation.name,
            command=job.invocation.command,
            cwd=job.invocation.cwd,
            target=job.target,
            diff=text,
            price_per_hour=job.invocation.settings.defaults.price_per_hour,
            interrupted=interrupted,
            wall_s=wall_s,
        ),
    )


def write_config(job: Job, args: argparse.Namespace, winner: Candidate, new: bytes) -> None:
    """Put the tuned config in place; the original's bytes are kept first."""
    original = job.config
    if job.tuned is not None:
        job.tuned.write(args.output, new)
        job.versions.wrote(args.output, new)
        return
    ours: list[Change] = [c for c in winner.changes if c.document != COMMAND_LINE]
    version = job.versions.keep(original, new, ours)
    try:
        documents.write_atomic(args.config, new, original.raw)
    except AdvisorError:
        job.versions.forget(version)
        raise


def show(report: Report, args: argparse.Namespace) -> None:
    """The result on stdout: one JSON object, or the verdict and where to read on."""
    if args.json:
        sys.stdout.write(json.dumps(writing.headline(writing.masked(report)), indent=2) + "\n")
        return
    lines = [f"{report.config}: {report.verdict}. {report.reason}"]
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

"""`gpu-advisor optimize [CONFIG ...] [-- COMMAND]`: tune, confirm, write and report.

Read top to bottom: `run` is the whole journey.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from advisor import config as documents
from advisor.commands.measuring import opened, program_of
from advisor.commands.prepare import DEFAULT_REPORT, Job, add_arguments, prepare
from advisor.errors import (
    OPTIMIZE_EXIT_CODES,
    AdvisorError,
    BudgetTooSmallError,
    InterruptedByUserError,
    NotMeasuredError,
    StateUnusableError,
    TrialFailedError,
)
from advisor.executor.requests import TrialResult
from advisor.machine import target
from advisor.model import Candidate, Failure
from advisor.patches import proven_advice
from advisor.quality import measure_key
from advisor.report import build, notes, screen, writing
from advisor.report.verdict import TuningResult
from advisor.tuner import next_request
from advisor.tuner.confirm import proven_candidate
from advisor.tuner.context import PriorData, TuningContext
from advisor.tuner.decisions import decisions
from advisor.tuner.state import Stop

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from advisor.executor.executor import Executor
    from advisor.report.schema import Report
    from advisor.tuner.state import Result

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """Tune configs or a command and report it.

    Raises AdvisorError.
    """
    started = time.monotonic()
    job = prepare(args, command)
    program = program_of(
        job.asked,
        job.target,
        allow_writes=args.allow_writes,
        seed=job.asked.settings.defaults.seed,
    )
    with contextlib.ExitStack() as stack:
        for versions in job.versions:
            stack.enter_context(versions.held())
        lab = stack.enter_context(
            opened(
                job.asked,
                program,
                target=job.target,
                machine=job.machine,
                state=job.state,
                budget_s=job.budget_s,
                started=started,
                progress=job.progress,
                earlier_calls=not args.fresh,
            )
        )
        search = Search(job=job, context=context_of(job, lab), answers=[])
        problem: AdvisorError | None = None
        stop: Stop | None = None
        try:
            stop = search.run(lab)
        except InterruptedByUserError as interrupted:
            problem = interrupted
        if stop is not None:
            refuse_without_result(stop)
        report, refused = conclude(search, lab, stop, wall_s=time.monotonic() - started)
        problem = problem or refused
        stays = report.unfinished and writing.holds_finished(args.report)
        if stays:
            job.progress.note(f"{args.report} is still that of an earlier call, which finished")
    if not stays:
        writing.write(report, args.report, job.report)
    if problem is not None:
        raise problem
    if stop is not None and stop.reason == "budget-too-small":
        raise BudgetTooSmallError(" ".join(filter(None, (report.load_note, report.reason))))
    show(report, json_only=args.json)
    return OPTIMIZE_EXIT_CODES[report.verdict]


@dataclass(kw_only=True)
class Search:
    """Search of one job; the first run corrects its target."""

    job: Job
    context: TuningContext
    answers: list[Result]
    """Results so far, kept if the search is interrupted."""

    def run(self, lab: Executor) -> Stop:
        """Run requests until the tuner stops."""
        stage = ""
        while True:
            turn = next_request(self.context, self.answers)
            if isinstance(turn, Stop):
                return turn
            if turn.request.purpose != stage:
                unused = notes.unused_gpu(turn.state.originals, self.job.machine.gpus)
                if stage == "baseline" and unused:
                    self.job.progress.note(unused)
                stage = turn.request.purpose
                self.job.progress.stage(stage)
            self.answers.append(lab.answer(turn.request))
            if stage == "baseline":
                self.correct(self.answers[-1])

    def correct(self, answer: Result) -> None:
        """Take memory and precisions of the card that ran."""
        run = answer.run if isinstance(answer, TrialResult) else None
        if run is None or not run.cards:
            return
        aimed = target.computed_on(self.job.target, self.job.machine, run.cards[0])
        if aimed != self.job.target:
            self.job = replace(self.job, target=aimed)
            self.context = replace(
                self.context,
                memory_limit_gib=self.job.memory_limit_gib,
                precisions=aimed.precisions,
                cards=max(1, self.context.cards),
            )


def refuse_without_result(stop: Stop) -> None:
    """Raise where the original failed or lacks a figure."""
    if stop.reason == "not-measured":
        run = stop.state.original
        names = " and ".join(stop.state.context.objective.unmeasured(run))
        gaps = "; ".join(f"{what}: {why}" for what, why in run.telemetry.gaps)
        msg = (
            f"The original ran, and its {names} could not be measured"
            f"{f' ({gaps})' if gaps else ''}. Nothing was tried. "
            "Choose another objective or constraint."
        )
        raise NotMeasuredError(msg)
    if stop.reason == "baseline-failed":
        assert stop.failed is not None
        result = stop.failed.result
        assert isinstance(result, Failure)
        msg = (
            f"The original command failed ({result.kind}): {result.evidence.rstrip('.')}.\n"
            f"{result.next_step}\n{result.log_tail}".rstrip()
        )
        raise TrialFailedError(result.kind, msg)


def quality_key(job: Job, lab: Executor) -> str:
    """Identity of what the quality command measures."""
    argv = lab.program.argv(Candidate(), lab.commands["quality"])
    return measure_key(job.asked.workload.quality, argv)


def context_of(job: Job, lab: Executor) -> TuningContext:
    """All that is known before the first process."""
    kept = job.versions[0].quality_reference(quality_key(job, lab)) or {}
    return TuningContext(
        sources=job.sources,
        workload=job.asked.workload,
        objective=job.objective,
        cpus=job.machine.cpus,
        memory_limit_gib=job.memory_limit_gib,
        precisions=job.target.precisions,
        cards=len(job.machine.gpus),
        smallest_gain=job.asked.settings.defaults.smallest_gain,
        budget_s=job.budget_s,
        safe=job.args.safe,
        measure_s=job.args.window,
        earlier=PriorData(
            host_noise=lab.run_cache.host_noise(), quality_reference=tuple(kept.items())
        ),
    )


def conclude(
    search: Search, lab: Executor, stop: Stop | None, *, wall_s: float
) -> tuple[Report, AdvisorError | None]:
    """Write the result and complete the report.

    Where a config cannot be written, the report is that of a dry run, beside the reason.
    """
    job, context = search.job, search.context
    state = (stop or next_request(context, search.answers)).state
    winner = proven_candidate(state) if stop is not None else Candidate()
    if state.quality.reference and not context.earlier.quality_reference:
        reference = dict(state.quality.reference)
        try:
            job.versions[0].keep_quality_reference(quality_key(job, lab), reference)
        except StateUnusableError as problem:  # the folder was there before the first trial
            job.progress.note(f"{problem} A later call takes its tolerance from the tuned config.")
    diff = diff_of(lab, winner)
    written: tuple[Path, ...] = ()
    refused: AdvisorError | None = None
    try:
        written = () if job.args.dry_run else write_tuned(job, lab, winner)
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
            diff=diff,
            history_set_aside=lab.run_cache.set_aside,
            background_load=lab.background_load,
        ),
        build.RunInfo(
            configs=job.asked.paths,
            report=job.args.report,
            written=written,
            dry_run=job.args.dry_run or refused is not None,
            workload=job.asked.name,
            command=job.asked.command,
            cwd=job.asked.cwd,
            target=job.target,
            wall_s=wall_s,
            resume=resume_words(job.args),
            typed=job.typed,
        ),
    )
    return report, refused


def resume_words(args: argparse.Namespace) -> tuple[str, ...]:
    """The call again, without its budget and its command."""
    words = ["gpu-advisor", "optimize", *map(str, args.configs)]
    for name in ("workload", "target", "output", "objective", "report"):
        value = getattr(args, name)
        if value is not None and value != DEFAULT_REPORT:
            words += [f"--{name}", str(value)]
    if args.constraint:
        words += ["--constraint", *args.constraint]
    switches = {"--safe": args.safe, "--dry-run": args.dry_run, "--allow-writes": args.allow_writes}
    return (*words, *(flag for flag, given in switches.items() if given))


def diff_of(lab: Executor, winner: Candidate) -> str:
    """Diff of the configs; empty without a change."""
    diffs = []
    for config in lab.program.configs:
        new = lab.program.content(config, winner)
        if new != config.raw:
            after = documents.parse(new, config.format, config.name)
            diffs.append(documents.masked_diff(config, after, config.name))
    return "\n".join(diffs)


def write_tuned(job: Job, lab: Executor, winner: Candidate) -> tuple[Path, ...]:
    """Write the tuned configs, all or none; return their paths.

    The bytes that were there are kept first. Raises AdvisorError.
    """
    done: list[Path] = []
    with contextlib.ExitStack() as undo:
        for config, path, versions in zip(
            lab.program.configs, job.asked.paths, job.versions, strict=False
        ):
            new = lab.program.content(config, winner)
            if new == config.raw:
                continue
            if job.output is not None:
                job.output.write(job.args.output, new)
                return (job.args.output,)
            changes = [change for change in winner.changes if change.document == config.name]
            version = versions.keep(config, new, changes)
            undo.callback(versions.forget, version)
            documents.write_atomic(path, new, config.raw)
            undo.callback(documents.write_atomic, path, config.raw, new)
            done.append(path)
        undo.pop_all()
    return tuple(done)


def show(report: Report, *, json_only: bool) -> None:
    """Print one JSON object, or the verdict."""
    if json_only:
        sys.stdout.write(json.dumps(writing.headline(writing.masked(report)), indent=2) + "\n")
        return
    screen.show(writing.masked(report))

"""`gpu-advisor optimize [CONFIG ...] [-- COMMAND]`: tune, confirm, write and report."""

import argparse
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from advisor import config as documents
from advisor.commands import each_engine, output
from advisor.commands.prepare import Job, add_arguments, prepare
from advisor.errors import (
    OPTIMIZE_EXIT_CODES,
    AdvisorError,
    BudgetTooSmallError,
    EngineError,
    InterruptedByUserError,
    NodeLostError,
    NotMeasuredError,
    TrialFailedError,
)
from advisor.executor.executor import Executor
from advisor.executor.requests import TrialResult
from advisor.machine import target
from advisor.model import Candidate, Failure
from advisor.patches import proven_advice
from advisor.quality import measure_key
from advisor.report import build, progress, verdict, writing
from advisor.report.schema import Report
from advisor.report.verdict import TuningResult
from advisor.tuner.confirm import proven_candidate
from advisor.tuner.decisions import decisions
from advisor.tuner.pipeline import next_request
from advisor.tuner.state import Result, Stop, TuningContext

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """Tune configs or a command and print the result. Raises AdvisorError."""
    if len(each_engine.names_of(args.engine)) > 1:
        return each_engine.run(args, command, tune)
    report = tune(args, command)
    shown = writing.masked(report)
    if args.json:
        output.show(writing.headline(shown), "", as_json=True)
    else:
        progress.show(shown)
    return OPTIMIZE_EXIT_CODES[report.verdict]


def tune(args: argparse.Namespace, command: list[str] | None) -> Report:
    """Tune on one engine; write config and report.

    Raises AdvisorError, once the report of what was measured is written.
    """
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        job = prepare(args, command, stack)
        for versions in job.versions:
            stack.enter_context(versions.held())
        executor = job.session.executor(started, earlier_calls=not args.fresh, several=True)
        lab = stack.enter_context(executor)
        search = Search(job=job, context=context_of(job, lab), answers=[])
        problem: AdvisorError | None = None
        stop: Stop | None = None
        try:
            stop = search.run(lab)
        except (InterruptedByUserError, EngineError, NodeLostError) as interrupted:
            problem = interrupted
        if stop is not None:
            refuse_without_result(stop)
        report, refused = conclude(search, lab, stop, wall_s=time.monotonic() - started)
        problem = problem or refused
        stays = report.unfinished and writing.holds_finished(args.report)
        if stays:
            job.session.progress.note(
                f"{args.report} is still that of an earlier call, which finished"
            )
    if not stays:
        writing.write(report, args.report, job.report)
    if problem is not None:
        raise problem
    if stop is not None and stop.reason == "budget-too-small":
        raise BudgetTooSmallError(" ".join(filter(None, (report.load_note, report.reason))))
    return report


@dataclass(kw_only=True)
class Search:
    """Search of one job; the first run corrects its target."""

    job: Job
    context: TuningContext
    answers: list[Result]
    """Results so far, kept if the search is interrupted."""

    def run(self, lab: Executor) -> Stop:
        """Run requests until the tuner stops."""
        stage, session = "", self.job.session
        while True:
            turn = next_request(self.context, self.answers)
            if isinstance(turn, Stop):
                return turn
            if turn.request.purpose != stage:
                unused = verdict.unused_gpu(turn.state.originals, session.machine.gpus)
                if stage == "baseline" and unused:
                    session.progress.note(unused)
                stage = turn.request.purpose
                session.progress.stage(stage)
            self.answers.append(lab.answer(turn.request, turn.ahead))
            if stage == "baseline":
                self.correct(self.answers[-1])

    def correct(self, answer: Result) -> None:
        """Take memory and precisions of the card that ran."""
        run, session = answer.run if isinstance(answer, TrialResult) else None, self.job.session
        if run is None or not run.cards:
            return
        aimed = target.computed_on(session.target, session.machine, run.cards[0])
        if aimed != session.target:
            self.job = replace(self.job, session=replace(session, target=aimed))
            self.context = replace(
                self.context,
                memory_limit_gib=self.job.memory_limit_gib,
                precisions=aimed.precisions,
                has_gpu=True,
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
    argv = lab.program.argv(Candidate(), lab.program.commands["quality"])
    return measure_key(job.asked.workload.quality, argv)


def context_of(job: Job, lab: Executor) -> TuningContext:
    """All that is known before the first process."""
    kept = job.versions[0].quality_reference(quality_key(job, lab)) or {}
    session = job.session
    return TuningContext(
        sources=job.sources,
        workload=job.asked.workload,
        objective=job.objective,
        cpus=session.machine.cpus,
        memory_limit_gib=job.memory_limit_gib,
        precisions=session.target.precisions,
        has_gpu=bool(session.machine.gpus),
        smallest_gain=job.asked.settings.defaults.smallest_gain,
        budget_s=session.budget_s,
        safe=job.args.safe,
        measure_s=job.args.window,
        quality_reference=tuple(kept.items()),
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
    written: tuple[Path, ...] = ()
    refused: AdvisorError | None = None
    try:
        if state.quality.reference and not context.quality_reference:
            reference = dict(state.quality.reference)
            job.versions[0].keep_quality_reference(quality_key(job, lab), reference)
        written = () if job.args.dry_run else write_tuned(job, lab, winner)
    except AdvisorError as problem:
        refused = problem
    report = build.optimize_report(
        TuningResult(
            stop=stop,
            state=state,
            lab=lab,
            winner=winner,
            decisions=decisions(state, winner, lab.attempts, stop),
            advice=proven_advice(state, lab.program),
            machine=job.session.machine,
            diff=diff_of(lab, winner),
            configs=job.asked.paths,
            report=job.args.report,
            written=written,
            dry_run=job.args.dry_run or refused is not None,
            command=job.asked.command,
            target=job.session.target,
            wall_s=wall_s,
            resume=without_budget(job.args.words),
            typed=job.typed,
        )
    )
    return report, refused


def without_budget(words: Sequence[str]) -> tuple[str, ...]:
    """Options of this call for one that goes on with a larger budget."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--budget")
    parser.add_argument("--fresh", action="store_true")
    return ("gpu-advisor", "optimize", *parser.parse_known_args(words)[1])


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
    """Write the tuned configs, all or none; return their paths."""
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

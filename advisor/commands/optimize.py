"""`gpu-advisor optimize [CONFIG ...] [-- COMMAND]`: tune, confirm, write and report."""

import argparse
import contextlib
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from advisor import config as documents, errors, files, knobs, objective
from advisor.commands import each_engine, invocation, output
from advisor.commands.measuring import MeasuringCall, measuring_of, node_of
from advisor.commands.program_options import record_options
from advisor.config.originals import Versions
from advisor.errors import AdvisorError
from advisor.executor.executor import Executor
from advisor.executor.requests import Program, TrialResult
from advisor.machine import target
from advisor.model import Candidate, Failure, Machine
from advisor.patches import proven_advice
from advisor.quality import measure_key
from advisor.report import archive, build, progress, verdict, writing
from advisor.report.schema import Report
from advisor.report.verdict import FinishedTuning
from advisor.tuner import policy
from advisor.tuner.confirm import proven_candidate
from advisor.tuner.context import Source, TuningContext
from advisor.tuner.decisions import decisions
from advisor.tuner.pipeline import next_request
from advisor.tuner.stages import SearchStep, Stop
from advisor.tuner.state import Result, TunerState
from advisor.tuner.time_plan import plan_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "gpu-advisor optimize [CONFIG ...] [OPTIONS] [-- COMMAND ...]"
    runs = parser.add_argument_group("program")
    invocation.add_flags(
        runs, "configs", "--workload", "--engine", "--wait", "--allow-writes"
    )
    search = parser.add_argument_group("search")
    invocation.add_flags(search, "--budget", "--window")
    search.add_argument(
        "--target",
        metavar="NAME",
        help="GPU to tune for: auto (default) or a profile such as rtx-4060",
    )
    search.add_argument(
        "--objective",
        choices=tuple(objective.OBJECTIVES),
        metavar="METRIC",
        help="throughput (default), latency or energy of a unit of work",
    )
    search.add_argument(
        "--constraint",
        type=invocation.argument(lambda text: objective.parse_constraint(text).text),
        action="extend",
        nargs="+",
        metavar="BOUND",
        help="bounds that must hold: 'memory<=7GiB' 'latency_p95<=80ms' 'power<=250W'",
    )
    search.add_argument(
        "--safe",
        action="store_true",
        help="change neither rounding nor results: only batch, workers and loader settings",
    )
    search.add_argument(
        "--fresh", action="store_true", help="do not reuse measurements of earlier calls"
    )
    written = parser.add_argument_group("files")
    written.add_argument(
        "--output",
        type=Path,
        metavar="PATH",
        help="write the tuned config here, not in place",
    )
    written.add_argument(
        "--dry-run", action="store_true", help="measure and report, but write no config"
    )
    written.add_argument(
        "--report",
        type=Path,
        default=Path("report.md"),
        metavar="PATH",
        help="place of the report (default report.md; report.json beside it)",
    )
    invocation.add_flags(written, "--overwrite")
    invocation.add_flags(parser, "--json")
    parser.epilog = (
        "Limits of a trial, the seed and quality measures are keys of "
        "gpu-advisor.toml: see docs/configuration.md."
    )


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """Tune configs or a command and print the result. Raises AdvisorError."""
    if args.debug:
        sys.stderr.write(policy.listed())
    if len(each_engine.names_of(args.engine)) > 1:
        return each_engine.run(args, command, tune)
    report = tune(args, command)
    printed = writing.masked(report)
    if args.json:
        output.show(writing.headline(printed), "", as_json=True)
    else:
        progress.show(printed)
    return report.exit_code


def tune(args: argparse.Namespace, command: list[str] | None) -> Report:
    """Tune on one engine; write config and report. Raises AdvisorError."""
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        call = prepare(args, command, stack)
        for versions in call.versions:
            stack.enter_context(versions.held())
        executor = call.measuring.executor(
            started, earlier_calls=not args.fresh, several=True
        )
        lab = stack.enter_context(executor)
        # while versions are held: the reference of quality is kept beside them
        call.context = context_of(call)
        problem: AdvisorError | None = None
        stop: Stop | None = None
        try:
            stop = call.search(lab)
        except (
            errors.InterruptedByUserError,
            errors.EngineError,
            errors.NodeLostError,
        ) as end:
            problem = end
        else:
            refuse_without_result(stop)
        report, refused = conclude(call, lab, stop, wall_s=time.monotonic() - started)
        problem = problem or refused
        state = call.asked.state()
        earlier = archive.history(archive.all_of([state]), report)
        report = report.model_copy(update={"history": earlier})
        kept = archive.keep(state, report)
        stays = report.unfinished and writing.holds_finished(args.report)
        if stays:
            note = f"{args.report} is still that of an earlier call, which finished"
            call.measuring.progress.note(f"{note}; this call's is {kept}" if kept else note)
    if not stays:
        writing.write(report, args.report, call.report)
    if problem is not None:
        raise problem
    if stop is not None and stop.reason == "budget-too-small":
        raise errors.BudgetTooSmallError(
            " ".join(filter(None, (report.load_note, report.reason)))
        )
    return report


BEFORE_PLAN = ("baseline", "effects")
"""Purposes of trials that show what there is to search."""


class Narrator:
    """Says on stderr what a search does next, and what it left out."""

    def __init__(self, measuring: MeasuringCall) -> None:
        self._measuring = measuring
        self._stage = ""
        self._left_out: set[str] = set()
        """Told already."""
        self._planned = False

    def tell_left_out(self, state: TunerState) -> None:
        """Tell of each variant that was left out since."""
        for entry in state.left_out:
            if entry.text not in self._left_out:
                self._left_out.add(entry.text)
                self._measuring.progress.note(f"left out: {entry.text}")

    def tell_stage(self, step: SearchStep) -> None:
        """Tell where a stage begins: before it what the baselines showed, and the plan once."""
        purpose, listener = step.request.purpose, self._measuring.progress
        if purpose == self._stage:
            return
        if self._stage == "baseline":
            gpus = self._measuring.machine.gpus
            if unused := verdict.unused_gpu(step.state.originals, gpus):
                listener.note(unused)
        if not self._planned and purpose not in BEFORE_PLAN:
            listener.note(plan_of(step).sentence)
            self._planned = True
        self._stage = purpose
        listener.stage(purpose)


@dataclass(kw_only=True)
class TuningCall:
    """Program, places and answers of a call; its first run may correct the target."""

    args: argparse.Namespace
    typed: tuple[str, ...]
    """Command, if typed after `--`."""
    measuring: MeasuringCall
    objective: objective.Objective
    versions: tuple[Versions, ...]
    """Originals of each config, or of the settings file beside the command."""
    report: files.Claim
    output: files.Claim
    """Place of --output; none where the configs are rewritten."""
    context: TuningContext = field(init=False)
    answers: list[Result] = field(default_factory=list)
    """Results so far, kept if the search is interrupted."""

    @property
    def asked(self) -> invocation.Invocation:
        return self.measuring.asked

    def search(self, lab: Executor) -> Stop:
        """Run requests until the tuner stops.

        The tuner remembers nothing. Each time it gets all answers so far and says what to ask
        next, so that an interrupted call is reported from what it has.
        """
        narrator = Narrator(self.measuring)
        while True:
            turn = next_request(self.context, self.answers)
            narrator.tell_left_out(turn.state)
            if isinstance(turn, Stop):
                return turn
            narrator.tell_stage(turn)
            self.answers.append(lab.answer(turn.request, turn.ahead))
            if turn.request.purpose == "baseline":
                self.correct(self.answers[-1])

    def correct(self, answer: Result) -> None:
        """Take memory and precisions of the card that ran."""
        measuring = self.measuring
        run = answer.run if isinstance(answer, TrialResult) else None
        if run is None or not run.cards:
            return
        aimed = target.computed_on(measuring.target, measuring.machine, run.cards[0])
        if aimed != measuring.target:
            self.measuring = replace(measuring, target=aimed)
            self.context = replace(context_of(self), has_gpu=True)


def prepare(
    args: argparse.Namespace, command: list[str] | None, stack: contextlib.ExitStack
) -> TuningCall:
    """Check everything before the first run; `stack` keeps a node.

    What would be refused at the end is refused now, before minutes are spent: a config that
    cannot be written, a report that is not ours, an objective that nothing here can measure.
    """
    asked = invocation.resolve(args.configs, command, workload=args.workload)
    asked = replace(asked, notes=[*asked.notes, *left_untuned(asked)])
    for config in asked.configs:
        if not any(config.leaves):  # a lone scalar has no name
            msg = (
                f"{config.name} holds no setting. Name the config that the program reads, or leave "
                "it out."
            )
            raise errors.UsageError(msg)
    elsewhere: list[Path] = []
    if args.output is not None:
        if len(asked.paths) != 1:
            msg = f"--output is for one config, and {len(asked.paths)} were named. Leave it out."
            raise errors.UsageError(msg)
        if os.path.realpath(args.output) != os.path.realpath(asked.paths[0]):
            elsewhere = [args.output]
    for path in () if args.dry_run or elsewhere else asked.paths:
        invocation.require_writable(path)
    like = next(iter(asked.paths), None)
    never = [*asked.paths, *elsewhere]
    report = writing.claim(args.report, never=never, like=like, overwrite=args.overwrite)
    output = files.claim(elsewhere, never=asked.paths, like=like, overwrite=args.overwrite)
    defaults = asked.settings.defaults
    node = stack.enter_context(node_of(args.engine, asked))
    measuring = measuring_of(
        asked,
        node=node,
        target=args.target or defaults.target,
        budget_s=args.budget or defaults.budget,
        allow_writes=args.allow_writes,
        seed=defaults.seed,
        wait_s=args.wait,
    )
    state = asked.state()
    return TuningCall(
        args=args,
        typed=tuple(command or ()),
        measuring=measuring,
        objective=objective_of(args, asked, measuring.machine),
        versions=tuple(Versions(state, path) for path in asked.versioned),
        report=report,
        output=output,
    )


def objective_of(
    args: argparse.Namespace, asked: invocation.Invocation, machine: Machine
) -> objective.Objective:
    """Objective of flags, workload entry or defaults."""
    entry, defaults = asked.workload, asked.settings.defaults
    given = (args.constraint, entry.constraints, defaults.constraints)
    bounds = next(each for each in given if each is not None)
    name = args.objective or entry.objective or defaults.objective
    parsed = objective.parse(name, bounds)
    metrics = (parsed.metric, *(constraint.metric for constraint in parsed.constraints))
    of_cards = [metric.name for metric in metrics if metric.from_card]
    if of_cards and not machine.gpus:
        msg = (
            f"Only a GPU's own counters tell {' and '.join(dict.fromkeys(of_cards))}, and "
            f"{machine.gpu_note or 'there is no GPU here'}. Choose another objective, or run it "
            "where there is one."
        )
        raise errors.NotMeasuredError(msg)
    return parsed


def left_untuned(asked: invocation.Invocation) -> list[str]:
    """Notes on untuned options and configs."""
    notes = []
    if not asked.configs:
        env = tuple(sorted(asked.workload.env.items()))
        known = record_options(asked.argv, asked.cwd, env)
        if known.why_unknown:
            notes.append(f"only the options that you typed are known: {known.why_unknown}")
        elif known.untold:
            notes.append(f"the command may have further options: {known.untold}")
    tuned = {os.path.realpath(path) for path in asked.paths}
    named = invocation.configs_among(asked.argv, asked.cwd)
    others = [path for path in named if os.path.realpath(asked.cwd / path) not in tuned]
    left = [path for path in others if path.suffix != ".py"]  # as often a program
    if left:
        words = shlex.join(map(str, (*asked.paths, *left)))
        names = " and ".join(map(str, left))
        notes.append(
            f"{names}: left alone. `gpu-advisor optimize {words} -- ...` tunes it too."
        )
    return notes


def refuse_without_result(stop: Stop) -> None:
    """Raise where the original failed or lacks a figure."""
    if stop.reason == "not-measured":
        run = stop.state.original
        names = " and ".join(stop.state.context.objective.unmeasured(run))
        gaps = "; ".join(f"{what}: {reason}" for what, reason in run.telemetry.gaps)
        msg = (
            f"The original ran, and its {names} could not be measured"
            f"{f' ({gaps})' if gaps else ''}. Nothing was tried. "
            "Choose another objective or constraint."
        )
        raise errors.NotMeasuredError(msg)
    if stop.reason == "baseline-failed":
        assert stop.failed is not None
        result = stop.failed.result
        assert isinstance(result, Failure)
        msg = (
            f"The original command failed ({result.kind}): {result.evidence.rstrip('.')}.\n"
            f"{result.next_step}\n{result.log_tail}".rstrip()
        )
        raise errors.TrialFailedError(result.kind, msg)


def quality_key(call: TuningCall) -> str:
    """Identity of what the quality command measures."""
    program = call.measuring.program
    argv = program.argv(Candidate(), program.commands["quality"])
    return measure_key(call.asked.workload.quality, argv)


def context_of(call: TuningCall) -> TuningContext:
    """All that is known before the first process."""
    kept = call.versions[0].quality_reference(quality_key(call)) or {}
    asked, measuring, machine = call.asked, call.measuring, call.measuring.machine
    ram_gib = 0.9 * machine.ram_limit_gib
    return TuningContext(
        sources=tuple(
            Source(document=each, findings=knobs.find(each, phase=asked.phase))
            for each in (*asked.configs, asked.command_line)
        ),
        workload=asked.workload,
        objective=call.objective,
        cpus=machine.cpus,
        memory_limit_gib=target.memory_limit_gib(measuring.target, ram_gib),
        host_memory_gib=ram_gib,
        precisions=measuring.target.precisions,
        has_gpu=bool(machine.gpus),
        smallest_gain=asked.settings.defaults.smallest_gain,
        budget_s=measuring.budget_s,
        safe=call.args.safe,
        measure_s=call.args.window,
        quality_reference=tuple(kept.items()),
    )


def conclude(
    call: TuningCall, lab: Executor, stop: Stop | None, *, wall_s: float
) -> tuple[Report, AdvisorError | None]:
    """Write the result and complete the report: a dry run's if refused.

    A config that was edited meanwhile refuses its result. What was measured is reported all the
    same, with the values to write by hand.
    """
    state = (stop or next_request(call.context, call.answers)).state
    winner = proven_candidate(state) if stop is not None else Candidate()
    written: tuple[Path, ...] = ()
    refused: AdvisorError | None = None
    try:
        if state.quality.reference and not call.context.quality_reference:
            reference = dict(state.quality.reference)
            call.versions[0].keep_quality_reference(quality_key(call), reference)
        if not call.args.dry_run:
            written = write_tuned(call, winner)
    except AdvisorError as problem:
        refused = problem
    report = build.optimize_report(
        FinishedTuning(
            stop=stop,
            state=state,
            lab=lab,
            winner=winner,
            decisions=decisions(state, winner, lab.attempts, stop),
            advice=proven_advice(state, lab.program),
            machine=call.measuring.machine,
            diff=diff_of(call.measuring.program, winner),
            configs=call.asked.paths,
            report=call.args.report,
            written=written,
            dry_run=call.args.dry_run or refused is not None,
            command=call.asked.command,
            target=call.measuring.target,
            wall_s=wall_s,
            words=(
                *without_budget(call.args.words),
                *(("--", *call.typed) if call.typed else ()),
            ),
        )
    )
    return report, refused


def without_budget(words: Sequence[str]) -> list[str]:
    """The call's words without those that a call with a larger budget would not repeat."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--budget")
    parser.add_argument("--wait")
    parser.add_argument("--fresh", action="store_true")
    return parser.parse_known_args(words)[1]


def diff_of(program: Program, winner: Candidate) -> str:
    """Changes of all configs as one diff, secrets masked; empty without any."""
    diffs = []
    for config in program.configs:
        new = program.content(config, winner)
        if new != config.raw:
            after = documents.parse(new, config.format, config.name)
            diffs.append(documents.masked_diff(config, after, config.name))
    return "\n".join(diffs)


def write_tuned(call: TuningCall, winner: Candidate) -> tuple[Path, ...]:
    """Write the tuned configs, all or none; return their paths.

    Where one cannot be written, those before it are taken back, and so are their kept originals.
    """
    done: list[Path] = []
    with contextlib.ExitStack() as undo:
        for config, versions in zip(call.asked.configs, call.versions, strict=False):
            path, new = Path(config.name), call.measuring.program.content(config, winner)
            if new == config.raw:
                continue
            if call.output.places:
                call.output.write(call.args.output, new)
                return (call.args.output,)
            changes = [
                change for change in winner.changes if change.document == config.name
            ]
            version = versions.keep(config, new, changes)
            undo.callback(versions.forget, version)
            documents.write_atomic(path, new, config.raw)
            undo.callback(documents.write_atomic, path, config.raw, new)
            done.append(path)
        undo.pop_all()
    return tuple(done)

"""`gpu-advisor optimize [CONFIG ...] [-- COMMAND]`: tune, confirm, write and report.

`tune` is one call on one engine: `prepare` checks what it needs, `TuningCall.search` measures what
the tuner asks for, and `conclude` writes the configs and makes the report.
"""

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

HOST_MEMORY_SHARE = 0.9
"""Share of the host's memory (the smaller of RAM and the cgroup's limit) that a search plans with.

Judgement: more leaves too little to the system, which may then kill the program. Less gives up
batches and loader workers."""


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
        help="change neither rounding nor results: only batch, workers, loader settings and "
        "activation checkpointing",
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
    """Tune configs or a command, print the result and return the exit code.

    Several names of --engine are tuned on one after another (`each_engine`). Raises AdvisorError.
    """
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
    """Tune on one engine; write configs and report. Raises AdvisorError.

    Where the original failed, or lacks a figure that was asked for, nothing was tried and there is
    no report. Ctrl-C and an engine's error in the search, a budget that is too small and a refused
    write are raised once the report is kept.
    """
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        call = prepare(args, command, stack)
        for versions in call.versions:
            stack.enter_context(versions.held())
        executor = stack.enter_context(
            call.measuring.executor(started, earlier_calls=not args.fresh, several=True)
        )
        # only under the lock of the versions: it reads the original's quality, which they keep
        call.context = context_of(call)
        problem: AdvisorError | None = None
        stop: Stop | None = None
        try:
            stop = call.search(executor)
        except (
            errors.InterruptedByUserError,
            errors.EngineError,
            errors.NodeLostError,
        ) as end:
            problem = end
        else:
            refuse_without_result(stop)
        report, refused = conclude(call, executor, stop, wall_s=time.monotonic() - started)
        problem = problem or refused
        state = call.asked.state()
        earlier = archive.history(archive.all_of([state]), report)
        report = report.model_copy(update={"history": earlier})
        kept = archive.keep(state, report)
        earlier_stays = report.unfinished and writing.holds_finished(args.report)
        if earlier_stays:
            note = f"{args.report} is still that of an earlier call, which finished"
            call.measuring.progress.note(f"{note}; this call's is {kept}" if kept else note)
    if not earlier_stays:
        writing.write(report, args.report, call.report)
    if problem is not None:
        raise problem
    if stop is not None and stop.reason == "budget-too-small":
        raise errors.BudgetTooSmallError(
            " ".join(filter(None, (report.load_note, report.reason)))
        )
    return report


BEFORE_PLAN = ("baseline", "effects")
"""Purposes of trials before the plan of the budget is told: they show what there is to search."""


class Narrator:
    """Says on stderr what a search does next, and what it left out."""

    def __init__(self, measuring: MeasuringCall) -> None:
        self._measuring = measuring
        self._purpose = ""
        """Of the latest trial; a stage is a row of trials of one purpose."""
        self._told: set[str] = set()
        """Texts of variants that were told to be left out."""
        self._plan_told = False

    def tell_left_out(self, state: TunerState) -> None:
        """Tell of each faster variant that is not taken, once."""
        for entry in state.left_out:
            if entry.text not in self._told:
                self._told.add(entry.text)
                self._measuring.progress.note(f"left out: {entry.text}")

    def tell_stage(self, step: SearchStep) -> None:
        """Tell that a stage begins, if `step` is its first.

        Behind the baselines it is told first that they left a GPU unused; before the first trial
        that is not in BEFORE_PLAN the plan of the budget.
        """
        purpose, progress = step.request.purpose, self._measuring.progress
        if purpose == self._purpose:
            return
        if self._purpose == "baseline":
            gpus = self._measuring.machine.gpus
            if unused := verdict.unused_gpu(step.state.originals, gpus):
                progress.note(unused)
        if not self._plan_told and purpose not in BEFORE_PLAN:
            progress.note(plan_of(step).sentence)
            self._plan_told = True
        self._purpose = purpose
        progress.stage(purpose)


@dataclass(kw_only=True)
class TuningCall:
    """A call on one engine: what was asked, where it writes, and its results so far.

    Its target and context may change with each baseline, which tells on which card it computed.
    """

    args: argparse.Namespace
    typed: tuple[str, ...]
    """Command as typed after `--`; empty where gpu-advisor.toml gives it."""
    measuring: MeasuringCall
    objective: objective.Objective
    versions: tuple[Versions, ...]
    """Kept originals of each config, in their order, and the lock on it.

    Without a config there is one for gpu-advisor.toml of the current folder, whether that exists or
    not: it is never rewritten, and serves as the lock."""
    report: files.Claim
    """Places of the report and of what is written beside it."""
    output: files.Claim
    """Place of --output; empty where the configs themselves are rewritten."""
    context: TuningContext = field(init=False)
    """Given to the tuner; set once the versions are held."""
    answers: list[Result] = field(default_factory=list)
    """Results so far, kept if the search is interrupted."""

    @property
    def asked(self) -> invocation.Invocation:
        """Command, configs and settings of the call."""
        return self.measuring.asked

    def search(self, executor: Executor) -> Stop:
        """Run requests until the tuner stops. Raises InterruptedByUserError and NodeLostError.

        The tuner remembers nothing. Each time it gets all answers so far and says what to ask
        next, so that an interrupted call is reported from what it has.
        """
        narrator = Narrator(self.measuring)
        while True:
            step = next_request(self.context, self.answers)
            narrator.tell_left_out(step.state)
            if isinstance(step, Stop):
                return step
            narrator.tell_stage(step)
            self.answers.append(executor.answer(step.request, step.ahead))
            if step.request.purpose == "baseline":
                self.aim_at_card_of(self.answers[-1])

    def aim_at_card_of(self, answer: Result) -> None:
        """Aim at the card on which a baseline computed, if that is not the target already.

        Its memory and precisions then limit what is tried. A failed run tells of no card.
        `target.computed_on` says which cards leave the target as it is.
        """
        measuring = self.measuring
        run = answer.run if isinstance(answer, TrialResult) else None
        if run is None or not run.cards:
            return
        aimed = target.computed_on(measuring.target, measuring.machine, run.cards[0])
        if aimed != measuring.target:
            self.measuring = replace(measuring, target=aimed)
            # a GPU ran, though NVML may list none, as in a container
            self.context = replace(context_of(self), has_gpu=True)


def prepare(
    args: argparse.Namespace, command: list[str] | None, stack: contextlib.ExitStack
) -> TuningCall:
    """Check what a call needs before its first trial; `stack` holds the engine's node, if any.

    What would be refused at the end is refused now, before minutes are spent: a config that
    cannot be written, a file of the user's in the place of the report, an objective that nothing
    here can measure. The program may be started up to where it parses its arguments.
    """
    asked = invocation.resolve(args.configs, command, workload=args.workload)
    asked = replace(asked, notes=[*asked.notes, *left_untuned(asked)])
    for config in asked.configs:
        if not any(config.leaves):  # it is empty, or a lone value, whose path is empty
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
    if not args.dry_run and not elsewhere:
        for path in asked.paths:
            invocation.require_writable(path)
    like = next(iter(asked.paths), None)
    never = [*asked.paths, *elsewhere]
    report = writing.claim(args.report, never=never, like=like, overwrite=args.overwrite)
    tuned = files.claim(elsewhere, never=asked.paths, like=like, overwrite=args.overwrite)
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
        output=tuned,
    )


def objective_of(
    args: argparse.Namespace, asked: invocation.Invocation, machine: Machine
) -> objective.Objective:
    """Metric and bounds, each as the flags give it, else the workload's entry, else the defaults.

    Raises NotMeasuredError where only a GPU could tell one of them, and there is none.
    """
    entry, defaults = asked.workload, asked.settings.defaults
    by_rank = (args.constraint, entry.constraints, defaults.constraints)
    bounds = next(texts for texts in by_rank if texts is not None)
    name = args.objective or entry.objective or defaults.objective
    parsed = objective.parse(name, bounds)
    metrics = (parsed.metric, *(constraint.metric for constraint in parsed.constraints))
    of_cards = [metric.name for metric in metrics if metric.from_card]
    if of_cards and not machine.gpus:
        msg = (
            f"Only a GPU's own counters tell {' and '.join(dict.fromkeys(of_cards))}. "
            f"{machine.gpu_note or 'There is no GPU here.'} "
            "Choose another objective or constraint, or run it where there is a GPU."
        )
        raise errors.NotMeasuredError(msg)
    return parsed


def left_untuned(asked: invocation.Invocation) -> list[str]:
    """Notes on options that no parser told, and on configs that only the command names."""
    notes = []
    if not asked.configs:
        env = tuple(sorted(asked.workload.env.items()))
        options = record_options(asked.argv, asked.cwd, env)
        if options.why_unknown:
            notes.append(
                f"only the options that you typed are known: {options.why_unknown}"
            )
        elif options.untold:
            notes.append(f"the command may have further options: {options.untold}")
    tuned = {os.path.realpath(path) for path in asked.paths}
    named = invocation.configs_among(asked.argv, asked.cwd)
    others = [path for path in named if os.path.realpath(asked.cwd / path) not in tuned]
    left = [path for path in others if path.suffix != ".py"]  # may be a program
    if left:
        words = shlex.join(map(str, (*asked.paths, *left)))
        names = " and ".join(map(str, left))
        notes.append(
            f"{names}: left alone. `gpu-advisor optimize {words} -- ...` tunes it too."
        )
    return notes


def refuse_without_result(stop: Stop) -> None:
    """Raise TrialFailedError if the original failed; NotMeasuredError if it lacks a figure.

    That is the figure of the objective or of a bound. Any other end has something to report.
    """
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
    """Key of the kept quality: of the declared measures, and of the command that prints them."""
    program = call.measuring.program
    argv = program.argv(Candidate(), program.commands["quality"])
    return measure_key(call.asked.workload.quality, argv)


def context_of(call: TuningCall) -> TuningContext:
    """What the search is given, for the target as it is known now. Versions have to be held."""
    reference = call.versions[0].quality_reference(quality_key(call)) or {}
    asked, measuring, machine = call.asked, call.measuring, call.measuring.machine
    host_gib = HOST_MEMORY_SHARE * machine.ram_limit_gib
    return TuningContext(
        sources=tuple(
            Source(document=each, findings=knobs.find(each, phase=asked.phase))
            for each in (*asked.configs, asked.command_line)
        ),
        workload=asked.workload,
        objective=call.objective,
        cpus=machine.cpus,
        memory_limit_gib=target.memory_limit_gib(measuring.target, host_gib),
        host_memory_gib=host_gib,
        precisions=measuring.target.precisions,
        has_gpu=bool(machine.gpus),
        smallest_gain=asked.settings.defaults.smallest_gain,
        budget_s=measuring.budget_s,
        safe=call.args.safe,
        measure_s=call.args.window,
        quality_reference=tuple(reference.items()),
    )


def conclude(
    call: TuningCall, executor: Executor, stop: Stop | None, *, wall_s: float
) -> tuple[Report, AdvisorError | None]:
    """Write the tuned configs and make the report; return it, and the error that refused a write.

    A config that was edited meanwhile is one that refuses. The report is then that of a dry run:
    what was measured, with the values to write by hand. Without `stop` the search was cut short,
    and no config is written. `wall_s`: seconds of the call so far.
    """
    state = (stop or next_request(call.context, call.answers)).state
    winner = proven_candidate(state) if stop is not None else Candidate()
    written: tuple[Path, ...] = ()
    refused: AdvisorError | None = None
    try:
        # the first one stays, so that tolerances of several calls do not add up
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
            lab=executor,
            winner=winner,
            decisions=decisions(state, winner, executor.attempts, stop),
            advice=proven_advice(state, executor.program),
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
                *repeated_words(call.args.words),
                *(("--", *call.typed) if call.typed else ()),
            ),
        )
    )
    return report, refused


def repeated_words(words: Sequence[str]) -> list[str]:
    """Words of this call that the next one repeats: all but --budget, --wait and --fresh.

    The next call names a larger budget, and reuses what this one measured.
    """
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
    """Write the configs that have new values, all or none; return the paths. Raises AdvisorError.

    With --output its place is written instead of the one config, and no original is kept. Where a
    config cannot be written, those before it are taken back, and so are their kept originals.
    """
    done: list[Path] = []
    with contextlib.ExitStack() as undo:
        # not strict: without a config there is a Versions all the same, for its lock
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

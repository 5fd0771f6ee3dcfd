"""`gpu-advisor compare A B [C ...] [-- COMMAND]`: variants in interleaved rounds."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from advisor import config as documents
from advisor import knobs, masking, numbers, settings
from advisor.commands import invocation
from advisor.errors import BudgetTooSmallError, CommandMissingError, TrialFailedError, UsageError
from advisor.executor.engines import EngineSettings, make_engine
from advisor.executor.engines.scratch_dir import cancellable
from advisor.executor.equal_work import work_differences
from advisor.executor.executor import WAIT_SHARE, Budget, Executor
from advisor.executor.program import Program
from advisor.executor.requests import ABTest, SkippedRun, TrialRequest, TrialResult, Variant
from advisor.executor.run_cache import RunCache
from advisor.history import History, program_key
from advisor.machine import target
from advisor.machine.host import read_machine
from advisor.model import Failure, Interval, MeasurePlan, Run
from advisor.objective import COST_UNITS, THROUGHPUT
from advisor.quality import judge, read_measures
from advisor.report.build import trial_entry
from advisor.report.progress import Progress
from advisor.runner import limits
from advisor.sandbox.capabilities import isolation_warnings
from advisor.settings import parse_duration_s
from advisor.state import project_root, state_folder

if TYPE_CHECKING:
    import argparse
    import threading
    from collections.abc import Sequence

    from advisor.executor.comparison import Comparison
    from advisor.model import Purpose
    from advisor.quality import QualityJudgement

FEWEST, MOST = 2, 6
"""Variants of one call."""
ROUNDS = 6
"""The fewest with exact bounds."""
QUALITY_ROUNDS = 3
MARGIN = 1.2
"""A process may take so many times what its warm-up took."""
SEPARATOR = "--vs"

Verdict = Literal[
    "reference", "faster", "not slower", "slower", "undecided", "failed", "other work", "worse"
]
"""`worse`: the declared quality is out of its tolerance."""
BAD = {"slower", "failed", "other work", "worse"}
EXIT_CODES = {"ok": 0, "failed": 1, "undecided": 3}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `gpu-advisor compare`."""
    parser.add_argument(
        "configs",
        type=Path,
        nargs="*",
        metavar="CONFIG",
        help="2 to 6 configs for one command; none where commands are compared: "
        f"-- CMD A {SEPARATOR} CMD B",
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"interleaved rounds (default {ROUNDS})"
    )
    parser.add_argument(
        "--window", metavar="TIME", default="3s", help="measured window of a process (default 3s)"
    )
    parser.add_argument("--budget", metavar="TIME", help="wall clock to spend (default 10m)")
    parser.add_argument(
        "--threshold",
        type=float,
        default=3.0,
        metavar="PERCENT",
        help="slowdown against the first variant that fails the call (default 3)",
    )
    parser.add_argument(
        "--workload", metavar="NAME", help="entry of gpu-advisor.toml with unit and quality"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """Compare all variants in interleaved rounds.

    Returns 0, or 1 for a slower or broken one, 3 if undecided.
    """
    started = time.monotonic()
    options = options_of(args)
    entries = variants_of(args.configs, command, args.workload)
    budget_s = options.budget_s or entries[0].invocation.settings.defaults.budget
    with Progress(unit=entries[0].invocation.workload.unit) as progress, cancellable() as off:
        result = measure(entries, options, progress, off, budget_s=budget_s, started=started)
    shown = json.dumps(masking.mask_value(as_object(result)), indent=2) if args.json else ""
    sys.stdout.write((shown or masking.mask_text(as_table(result))) + "\n")
    return EXIT_CODES[result.outcome]


# --- command line to programs -------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The flags, checked."""

    rounds: int
    window_s: float
    budget_s: float | None
    threshold: float
    """As a share."""


def options_of(args: argparse.Namespace) -> Options:
    """The flags, checked. Raises UsageError."""
    try:
        window_s = parse_duration_s(args.window)
        budget_s = parse_duration_s(args.budget) if args.budget else None
    except ValueError as problem:
        raise UsageError(str(problem)) from problem
    if args.rounds < FEWEST:
        msg = f"--rounds {args.rounds}: an interval needs {FEWEST} rounds. Six have exact bounds."
        raise UsageError(msg)
    if not 0 < args.threshold < 100:
        msg = f"--threshold {args.threshold:g}: write a percentage above 0 and below 100."
        raise UsageError(msg)
    return Options(
        rounds=args.rounds,
        window_s=window_s,
        budget_s=budget_s,
        threshold=args.threshold / 100,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Variant as the command line names it."""

    name: str
    """`A`"""
    label: str
    """The config's path, or the command."""
    invocation: invocation.Invocation


def variants_of(
    configs: Sequence[Path], command: list[str] | None, workload: str | None
) -> list[Entry]:
    """Variants in order.

    Raises UsageError, CommandMissingError and the Config errors.
    """
    blocks = split_blocks(command or [])
    if configs and len(blocks) > 1:
        msg = f"Compare configs, or commands separated by {SEPARATOR}, not both at once."
        raise UsageError(msg)
    found = _of_configs(configs, command, workload) if configs else _of_commands(blocks, workload)
    if not FEWEST <= len(found) <= MOST:
        msg = (
            f"compare takes {FEWEST} to {MOST} variants, and {len(found)} "
            f"{'was' if len(found) == 1 else 'were'} named. Name configs, as in "
            "`gpu-advisor compare a.yaml b.yaml -- python train.py --config a.yaml`, or commands, "
            f"as in `gpu-advisor compare -- python a.py {SEPARATOR} python b.py`."
        )
        raise UsageError(msg)
    for entry in found:
        environ = {**os.environ, **entry.invocation.workload.env}
        invocation.require_program(entry.invocation.argv, entry.invocation.cwd, environ)
    return found


def split_blocks(command: list[str]) -> list[list[str]]:
    """Split commands at the separators.

    Raises UsageError for an empty one.
    """
    blocks: list[list[str]] = [[]]
    for word in command:
        if word == SEPARATOR:
            blocks.append([])
        else:
            blocks[-1].append(word)
    if len(blocks) > 1 and not all(blocks):
        msg = f"A command is missing beside {SEPARATOR}. Write `-- CMD A {SEPARATOR} CMD B`."
        raise UsageError(msg)
    return [block for block in blocks if block]


def _of_commands(blocks: list[list[str]], workload: str | None) -> list[Entry]:
    return [
        Entry(name=name, label=found.command, invocation=found)
        for name, block in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", blocks, strict=False)
        for found in [invocation.resolve(None, block, workload=workload, use_case="compare")]
    ]


def _of_configs(
    configs: Sequence[Path], command: list[str] | None, workload: str | None
) -> list[Entry]:
    """Put each config in the place of the first.

    That is where the command names one of them, or `{config}`.
    """
    template = [_placeholder(word, configs) for word in command] if command else None
    workload = workload or _known_workload(configs)
    first = invocation.resolve(configs[0], template, workload=workload, use_case="compare")
    found = []
    for name, config in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", configs, strict=False):
        document = documents.read(config)
        if template is None:
            argv = invocation.split(first.workload.command, config, first.cwd)
        else:
            argv = tuple(word.replace("{config}", str(config)) for word in template)
        if why := invocation.why_not_taken(argv, config, document, first.cwd):
            raise CommandMissingError(why)
        line = invocation.command_document(argv, first.cwd, document)
        own = replace(first, config=document, path=config, argv=argv, command_line=line)
        found.append(Entry(name=name, label=str(config), invocation=own))
    return found


def _known_workload(configs: Sequence[Path]) -> str | None:
    """Workload name of the first known config."""
    for config in configs:
        known = settings.load(settings.find(config.parent)).workload_for(config)
        if known is not None:
            return known[0]
    return None


def _placeholder(word: str, configs: Sequence[Path]) -> str:
    """Replace a config's path in `word` by `{config}`."""
    flag, equals, value = word.rpartition("=")
    named = {os.path.realpath(config) for config in configs}
    return f"{flag}{equals}{{config}}" if os.path.realpath(value) in named else word


def program_of(entry: Entry, environment: dict[str, str]) -> Program:
    """The variant as something to be run."""
    asked = entry.invocation
    line = knobs.find(asked.command_line)
    return Program(
        config=asked.config,
        command_line=asked.command_line,
        cwd=asked.cwd,
        unit=asked.workload.unit,
        output_paths=knobs.find(asked.config).outputs if asked.config else (),
        output_flags=(*asked.workload.output_flags, *line.outputs),
        env={**environment, **asked.workload.env},
        limits=limits.of_settings(asked.workload, asked.settings.defaults),
    )


# --- measurement --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantResult:
    """One variant, measured."""

    entry: Entry
    runs: tuple[Run, ...] = ()
    """In the counted rounds."""
    units_per_s: float | None = None
    gain: Interval | None = None
    """Throughput over that of the first variant."""
    verdict: Verdict = "undecided"
    reason: str = ""

    @property
    def peak_mem_gib(self) -> float | None:
        """The highest peak of its runs."""
        return max((run.peak_mem_gib for run in self.runs if run.peak_mem_gib), default=None)

    @property
    def time_per_1000_s(self) -> float | None:
        """Seconds for 1,000 units."""
        return COST_UNITS / self.units_per_s if self.units_per_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All variants, and what became of the rounds."""

    variants: tuple[VariantResult, ...]
    unit: str
    rounds: int
    threshold: float
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Literal["ok", "failed", "undecided"]:
        """`failed` where a variant is slower or differs."""
        verdicts = {each.verdict for each in self.variants}
        if verdicts & BAD:
            return "failed"
        return "undecided" if "undecided" in verdicts else "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listener:
    """Passes processes on to the progress display."""

    progress: Progress

    def trial_started(self, number: int, label: str, purpose: str) -> None:
        self.progress.trial_started(number, label, purpose)

    def trial_done(self, attempt: TrialResult) -> None:
        self.progress.trial_done(trial_entry(attempt))

    def trial_stopped(self, label: str) -> None:
        self.progress.note(f"{label}: stopped, because the budget is spent")


@dataclass(kw_only=True)
class _Measurement:
    """Warm-ups, rounds and quality of the variants, on one executor."""

    entries: list[Entry]
    options: Options
    executor: Executor
    warm_ups: dict[str, Run] = field(default_factory=dict)
    failed: dict[str, tuple[Verdict, str]] = field(default_factory=dict)
    """Verdict and reason of the variants that are out."""

    def request(self, entry: Entry, purpose: Purpose) -> TrialRequest:
        """Run one process of a variant.

        It takes what its warm-up took.
        """
        warm_up = self.warm_ups.get(entry.name)
        regex = entry.invocation.workload.unit_regex
        return TrialRequest(
            variant=Variant(program=entry.name),
            purpose=purpose,
            plan=MeasurePlan(measure_s=self.options.window_s, unit_regex=regex),
            title=f"{entry.name}: {entry.label}",
            fresh=True,
            expected_s=MARGIN * warm_up.wall_s if warm_up else 0.0,
        )

    def warm_up(self) -> None:
        """Warm up each variant; these runs are not counted.

        They fill caches. Raises TrialFailedError where the first variant fails,
        BudgetTooSmallError.
        """
        for entry in self.entries:
            request = self.request(entry, "profile")
            answer = self.executor.run_for(request, earlier_calls=False)
            if isinstance(answer, SkippedRun):
                msg = (
                    "The budget ended before each variant had run once. Call again with a larger "
                    "--budget."
                )
                raise BudgetTooSmallError(msg)
            result = answer.result
            if isinstance(result, Run):
                self.warm_ups[entry.name] = result
                continue
            reason = failure_text(result)
            if entry is self.entries[0]:
                msg = f"The first variant, {entry.label}, failed ({result.kind}): {reason}"
                raise TrialFailedError(result.kind, msg)
            self.failed[entry.name] = ("failed", reason)

    @property
    def sound(self) -> list[Entry]:
        """Variants that are still to be measured."""
        return [entry for entry in self.entries if entry.name not in self.failed]

    def compare(self) -> Comparison | None:
        """Run the rounds of all sound variants.

        None where only the first is left.
        """
        first = self.warm_ups[self.entries[0].name]
        for entry in self.sound[1:]:
            self.check_work(entry, [first], [self.warm_ups[entry.name]])
        if len(self.sound) < FEWEST:
            return None
        noise = self.executor.run_cache.host_noise() or 0.0
        found = self.executor.compare(
            ABTest(
                purpose="confirm",
                title="compare",
                requests=tuple(self.request(entry, "confirm") for entry in self.sound),
                names=tuple(entry.name for entry in self.sound),
                rounds=self.options.rounds,
                sigma=math.log1p(noise) / math.sqrt(2),
            )
        )
        if found.failure is not None:
            arms = found.rounds[-1].runs
            name = next(name for name, attempt in arms.items() if attempt.run is None)
            self.failed[name] = ("failed", failure_text(found.failure))
        first_runs = found.runs(self.entries[0].name)
        for entry in self.sound[1:]:
            self.check_work(entry, first_runs, found.runs(entry.name))
        return found

    def check_work(self, entry: Entry, first: Sequence[Run], runs: Sequence[Run]) -> None:
        """Drop variants whose work differs from the first's."""
        if different := work_differences(first, runs):
            self.failed[entry.name] = ("other work", "; ".join(different))

    def check_quality(self) -> None:
        """Drop variants with a worse quality than the first's."""
        measures = self.entries[0].invocation.workload.quality
        if not measures or len(self.sound) < FEWEST:
            return
        requests = tuple(
            replace(
                self.request(entry, "quality"),
                command="quality" if entry.invocation.config is not None else "own",
                plan=MeasurePlan(mode="whole"),
                fresh=False,
                expected_s=0.0,
            )
            for entry in self.sound
        )
        names = tuple(entry.name for entry in self.sound)
        found = self.executor.compare(
            ABTest(
                purpose="quality",
                title="quality",
                requests=requests,
                names=names,
                rounds=QUALITY_ROUNDS,
                reseeded=True,
            )
        )
        first = [read_measures(measures, run.stdout_tail) for run in found.runs(names[0])]
        for entry in self.sound[1:]:
            other = [read_measures(measures, r.stdout_tail) for r in found.runs(entry.name)]
            if not other:
                failure = failure_text(found.failure) if found.failure else "the budget ended"
                self.failed[entry.name] = ("undecided", f"quality not measured: {failure}")
                continue
            pairs = list(zip(first, other, strict=True))
            worst = [each for each in judge(measures, pairs, "chosen") if not each.within]
            if worst:
                self.failed[entry.name] = ("worse", quality_text(worst[0]))


def measure(
    entries: list[Entry],
    options: Options,
    progress: Progress,
    off: threading.Event,
    *,
    budget_s: float,
    started: float,
) -> Result:
    """All variants on one engine."""
    machine, first = read_machine(), entries[0].invocation
    aim = target.resolve("auto", machine)
    environment = dict(aim.environment)
    programs = {entry.name: program_of(entry, environment) for entry in entries}
    for note in isolation_warnings(str(first.cwd), {**os.environ, **first.workload.env}):
        progress.note(note)
    on_host = EngineSettings(
        gpu_uuid=aim.gpu.uuid if aim.gpu else None,
        cancel=off,
        on_busy=progress.note,
        max_wait_s=WAIT_SHARE * budget_s,
    )
    with make_engine(on_host) as engine:
        state = state_folder(project_root(first.path or Path.cwd() / "gpu-advisor.toml"))
        executor = Executor(
            engine=engine,
            program=programs[entries[0].name],
            commands={},
            programs=programs,
            program_commands={each.name: each.invocation.quality_commands() for each in entries},
            run_cache=RunCache(
                history=History(state / "history.sqlite", progress.note),
                machine_key=machine.key,
                program_key=program_key(first.cwd, first.argv),
                trusted=False,
            ),
            budget=Budget(total_s=budget_s, clock=engine.clock, started=started),
            listener=_Listener(progress=progress),
        )
        work = _Measurement(entries=entries, options=options, executor=executor)
        work.warm_up()
        progress.stage("confirm")
        comparison = work.compare()
        work.check_quality()
    return result_of(work, comparison)


def result_of(work: _Measurement, comparison: Comparison | None) -> Result:
    """Verdicts of the variants that did equal work."""
    variants = []
    for entry in work.entries:
        measured = comparison is not None and entry.name in comparison.ab_test.names
        runs = comparison.runs(entry.name) if comparison and measured else ()
        found = VariantResult(
            entry=entry,
            runs=runs,
            units_per_s=comparison.typical(THROUGHPUT, entry.name)
            if comparison and measured
            else None,
            gain=comparison.interval(THROUGHPUT, entry.name) if comparison and measured else None,
        )
        variants.append(judged(found, work))
    notes = []
    if comparison is not None and comparison.used_contended_rounds:
        notes.append("Measured under background load; rerun on an idle machine.")
    if comparison is not None and comparison.cut_short:
        notes.append("The budget ended before all rounds had run; a larger --budget has them all.")
    return Result(
        variants=tuple(variants),
        unit=work.entries[0].invocation.workload.unit,
        rounds=len(comparison.counted) if comparison else 0,
        threshold=work.options.threshold,
        notes=tuple(notes),
    )


def judged(found: VariantResult, work: _Measurement) -> VariantResult:
    """The verdict on one variant, with its reason."""
    threshold, gain = work.options.threshold, found.gain
    if found.entry is work.entries[0]:
        return replace(found, verdict="reference", gain=None)
    if found.entry.name in work.failed:
        verdict, reason = work.failed[found.entry.name]
        kept = gain if verdict in {"worse", "undecided"} else None
        return replace(found, verdict=verdict, reason=reason, gain=kept)
    if gain is None:
        return replace(found, reason="fewer than two rounds could be counted")
    if gain.high < 1 - threshold:
        return replace(found, verdict="slower", reason=f"by more than {numbers.percent(threshold)}")
    if gain.low >= 1 - threshold:
        return replace(found, verdict="faster" if gain.low > 1 else "not slower")
    share = numbers.percent(threshold)
    return replace(found, reason=f"a slowdown of {share} is neither proven nor ruled out")


def failure_text(failure: Failure) -> str:
    """Evidence and next step."""
    return f"{failure.evidence.rstrip('.')}. {failure.next_step}".strip()


def quality_text(judgement: QualityJudgement) -> str:
    """`psnr: 30.1, limit 31.2 (31.5 in the first variant)`."""
    value, limit, first = (
        numbers.measure(each) for each in (judgement.value, judgement.limit, judgement.reference)
    )
    return f"{judgement.measure}: {value}, limit {limit} ({first} in the first variant)"


# --- output -------------------------------------------------------------------------------


def as_object(result: Result) -> dict[str, Any]:
    """The result as JSON."""
    return {
        "outcome": result.outcome,
        "unit": result.unit,
        "rounds": result.rounds,
        "threshold": result.threshold,
        "variants": [
            {
                "name": each.entry.name,
                "label": each.entry.label,
                "command": each.entry.invocation.command,
                "units_per_s": each.units_per_s,
                "runs": [run.units_per_s for run in each.runs],
                "time_per_1000_s": each.time_per_1000_s,
                "peak_mem_gib": each.peak_mem_gib,
                "gain": each.gain
                and {"ratio": each.gain.estimate, "low": each.gain.low, "high": each.gain.high},
                "verdict": each.verdict,
                "reason": each.reason,
            }
            for each in result.variants
        ],
        "notes": list(result.notes),
    }


def as_table(result: Result) -> str:
    """Format the result as a table and verdicts."""
    units = numbers.plural(result.unit)
    rows = [("", "variant", f"{units}/s", "memory", f"1,000 {units}", "against A")]
    rows += [
        (
            each.entry.name,
            each.entry.label,
            numbers.number(each.units_per_s),
            numbers.memory(each.peak_mem_gib),
            numbers.duration(each.time_per_1000_s),
            _gain_text(each.gain),
        )
        for each in result.variants
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.append("")
    lines += [
        f"{each.entry.name}: {each.verdict}{f', {each.reason}' if each.reason else ''}"
        for each in result.variants[1:]
    ]
    rounds = numbers.many(result.rounds, "interleaved round")
    lines.append(f"{rounds} of fresh processes; brackets are 95 % intervals.")
    return "\n".join([*lines, *result.notes])


def _gain_text(gain: Interval | None) -> str:
    return f"{gain.estimate:.2f}x ({gain.low:.2f} to {gain.high:.2f})" if gain else "-"

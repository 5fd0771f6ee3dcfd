"""`gpu-advisor compare A B [C ...] [-- COMMAND]`: variants in interleaved rounds."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from advisor import config as documents, masking, numbers, settings
from advisor.commands import invocation
from advisor.commands.measuring import opened, program_of
from advisor.errors import BudgetTooSmallError, CommandMissingError, TrialFailedError, UsageError
from advisor.executor.equal_work import work_differences
from advisor.executor.requests import ABTest, SkippedRun, TrialRequest, Variant
from advisor.machine import target
from advisor.machine.host import read_machine
from advisor.model import MeasurePlan, Run
from advisor.objective import THROUGHPUT
from advisor.quality import judge, read_measures
from advisor.report.progress import Progress
from advisor.sandbox.capabilities import isolation_warnings
from advisor.state import project_root, state_folder

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from advisor.executor.executor import Executor
    from advisor.model import Failure, Interval, Purpose

FEWEST, MOST = 2, 6
"""Variants of one call."""
ROUNDS = 6
"""The fewest with exact bounds."""
QUALITY_ROUNDS = 3
MARGIN = 1.2
"""A process may take so many times what its warm-up took."""
SEPARATOR = "--vs"
NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

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
        "--threshold",
        type=float,
        default=3.0,
        metavar="PERCENT",
        help="slowdown against the first variant that fails the call (default 3)",
    )
    invocation.add_flags(parser, "--window", "--budget", "--workload", "--json")


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """Compare all variants in interleaved rounds.

    Returns 0, or 1 for a slower or broken one, 3 if undecided.
    """
    started = time.monotonic()
    if args.rounds < FEWEST or not 0 < args.threshold < 100:
        msg = (
            f"--rounds {args.rounds} --threshold {args.threshold:g}: an interval needs {FEWEST} "
            "rounds, and a threshold lies above 0 and below 100 percent."
        )
        raise UsageError(msg)
    arms = arms_of(args.configs, command, args.workload)
    found = measure(arms, args, started)
    shown = json.dumps(masking.mask_value(found), indent=2) if args.json else ""
    sys.stdout.write((shown or masking.mask_text(as_table(found))) + "\n")
    return EXIT_CODES[found["outcome"]]


@dataclass(kw_only=True)
class Arm:
    """One variant, and its result as far as it is known."""

    name: str
    """`A`"""
    label: str
    """The config's path, or the command."""
    asked: invocation.Invocation
    warm_up: Run | None = None
    runs: tuple[Run, ...] = ()
    """In the counted rounds."""
    units_per_s: float | None = None
    gain: Interval | None = None
    """Throughput over that of the first variant."""
    verdict: Verdict | None = None
    reason: str = ""

    def drop(self, verdict: Verdict, reason: str) -> None:
        """Set its verdict; skipped or failed work has no gain."""
        self.verdict, self.reason = verdict, reason
        if verdict in {"failed", "other work"}:
            self.gain = None

    def as_object(self) -> dict[str, Any]:
        """The variant as JSON."""
        gain, peaks = self.gain, [run.peak_mem_gib for run in self.runs if run.peak_mem_gib]
        return {
            "name": self.name,
            "label": self.label,
            "command": self.asked.command,
            "units_per_s": self.units_per_s,
            "runs": [run.units_per_s for run in self.runs],
            "time_per_1000_s": 1000 / self.units_per_s if self.units_per_s else None,
            "peak_mem_gib": max(peaks, default=None),
            "gain": gain and {"ratio": gain.estimate, "low": gain.low, "high": gain.high},
            "verdict": self.verdict,
            "reason": self.reason,
        }


# --- command line to variants -------------------------------------------------------------


def arms_of(configs: Sequence[Path], command: list[str] | None, workload: str | None) -> list[Arm]:
    """Variants in order.

    Raises UsageError, CommandMissingError and the Config errors.
    """
    blocks = split_blocks(command or [])
    if configs and len(blocks) > 1:
        msg = f"Compare configs, or commands separated by {SEPARATOR}, not both at once."
        raise UsageError(msg)
    if configs:
        found = _of_configs(configs, command, workload)
    else:
        asked = [
            invocation.resolve([], block, workload=workload, use_case="compare", with_options=False)
            for block in blocks
        ]
        found = [
            Arm(name=name, label=each.command, asked=each)
            for name, each in zip(NAMES, asked, strict=False)
        ]
    if not FEWEST <= len(found) <= MOST:
        msg = (
            f"compare takes {FEWEST} to {MOST} variants, and {len(found)} "
            f"{'was' if len(found) == 1 else 'were'} named. Name configs, as in "
            "`gpu-advisor compare a.yaml b.yaml -- python train.py --config a.yaml`, or commands, "
            f"as in `gpu-advisor compare -- python a.py {SEPARATOR} python b.py`."
        )
        raise UsageError(msg)
    for arm in found:
        invocation.require_program(arm.asked.argv, arm.asked.cwd, arm.asked.environ)
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


def _of_configs(
    configs: Sequence[Path], command: list[str] | None, workload: str | None
) -> list[Arm]:
    """Put each config in the place of the first.

    That is where the command names one of them, or `{config}`.
    """
    template = [_placeholder(word, configs) for word in command] if command else None
    for config in configs:
        known = settings.load(settings.find(config.parent)).workload_for(config)
        workload = workload or (known[0] if known else None)
    first = invocation.resolve(configs[:1], template, workload=workload, use_case="compare")
    found = []
    for name, config in zip(NAMES, configs, strict=False):
        document = documents.read(config)
        if template is None:
            argv = invocation.split(first.workload.command, [config], first.cwd)
        else:
            argv = tuple(word.replace("{config}", str(config)) for word in template)
        if why := invocation.why_not_taken(argv, document, first.cwd):
            raise CommandMissingError(why)
        line = documents.of_command(argv)
        own = replace(first, configs=(document,), argv=argv, command_line=line)
        found.append(Arm(name=name, label=str(config), asked=own))
    return found


def _placeholder(word: str, configs: Sequence[Path]) -> str:
    """Replace a config's path in `word` by `{config}`."""
    flag, equals, value = word.rpartition("=")
    named = {os.path.realpath(config) for config in configs}
    return f"{flag}{equals}{{config}}" if os.path.realpath(value) in named else word


# --- measurement --------------------------------------------------------------------------


def measure(arms: list[Arm], args: argparse.Namespace, started: float) -> dict[str, Any]:
    """Warm up, run the rounds and judge; the result as JSON.

    Raises TrialFailedError where the first variant fails, BudgetTooSmallError.
    """
    machine, first = read_machine(), arms[0].asked
    aim = target.resolve("auto", machine)
    programs = {arm.name: program_of(arm.asked, aim) for arm in arms}
    progress = Progress(unit=first.workload.unit)
    for note in isolation_warnings(str(first.cwd), first.environ):
        progress.note(note)
    with opened(
        first,
        programs[arms[0].name],
        target=aim,
        machine=machine,
        state=state_folder(project_root((*first.paths, Path.cwd() / settings.FILE_NAME)[0])),
        budget_s=args.budget or first.settings.defaults.budget,
        started=started,
        progress=progress,
        earlier_calls=False,
    ) as lab:
        lab.programs = programs
        lab.program_commands = {arm.name: arm.asked.quality_commands() for arm in arms}
        warm_up(arms, lab, args.window)
        progress.stage("confirm")
        rounds, notes = compare(arms, lab, args)
        check_quality(sound(arms), lab, args.window)
    judge_gains(arms, args.threshold / 100)
    verdicts = {arm.verdict for arm in arms}
    undecided = "undecided" if "undecided" in verdicts else "ok"
    return {
        "outcome": "failed" if verdicts & BAD else undecided,
        "unit": first.workload.unit,
        "rounds": rounds,
        "threshold": args.threshold / 100,
        "variants": [arm.as_object() for arm in arms],
        "notes": notes,
    }


def sound(arms: Sequence[Arm]) -> list[Arm]:
    """Variants that are still to be measured."""
    return [arm for arm in arms if arm.verdict is None]


def request(arm: Arm, purpose: Purpose, window_s: float) -> TrialRequest:
    """One process of a variant, which takes what its warm-up took."""
    plan = MeasurePlan(measure_s=window_s, unit_regex=arm.asked.workload.unit_regex)
    return TrialRequest(
        variant=Variant(program=arm.name),
        purpose=purpose,
        plan=plan,
        title=f"{arm.name}: {arm.label}",
        fresh=True,
        expected_s=MARGIN * arm.warm_up.wall_s if arm.warm_up else 0.0,
    )


def warm_up(arms: Sequence[Arm], lab: Executor, window_s: float) -> None:
    """Run each variant once; caches are full then."""
    for arm in arms:
        answer = lab.run_once(request(arm, "profile", window_s), earlier_calls=False)
        if isinstance(answer, SkippedRun):
            msg = (
                "The budget ended before each variant had run once. Call again with a larger "
                "--budget."
            )
            raise BudgetTooSmallError(msg)
        result = answer.result
        if isinstance(result, Run):
            arm.warm_up = result
        elif arm is arms[0]:
            msg = f"The first variant, {arm.label}, failed ({result.kind}): {failure_text(result)}"
            raise TrialFailedError(result.kind, msg)
        else:
            arm.drop("failed", failure_text(result))


def compare(arms: Sequence[Arm], lab: Executor, args: argparse.Namespace) -> tuple[int, list[str]]:
    """Run the rounds of all sound variants.

    Returns the number of rounds that count, and notes on them.
    """
    first = arms[0]
    check_work(first, sound(arms), [[arm.warm_up] for arm in sound(arms) if arm.warm_up])
    measured = sound(arms)
    if len(measured) < FEWEST:
        return 0, []
    noise = lab.run_cache.host_noise() or 0.0
    found = lab.compare(
        ABTest(
            purpose="confirm",
            title="compare",
            requests=tuple(request(arm, "confirm", args.window) for arm in measured),
            names=tuple(arm.name for arm in measured),
            rounds=args.rounds,
            sigma=math.log1p(noise) / math.sqrt(2),
        )
    )
    for arm in measured:
        arm.runs = found.runs(arm.name)
        arm.units_per_s = found.typical(THROUGHPUT, arm.name)
        arm.gain = found.interval(THROUGHPUT, arm.name) if arm is not first else None
        if found.failure is not None and found.rounds[-1].runs[arm.name].run is None:
            arm.drop("failed", failure_text(found.failure))
    check_work(first, measured, [arm.runs for arm in measured])
    notes = []
    if found.used_contended_rounds:
        notes.append("Measured under background load; rerun on an idle machine.")
    if found.cut_short:
        notes.append("The budget ended before all rounds had run; a larger --budget has them all.")
    return len(found.counted), notes


def check_work(first: Arm, arms: Sequence[Arm], runs: Sequence[Sequence[Run]]) -> None:
    """Drop variants whose work differs from the first's."""
    for arm, own in zip(arms, runs, strict=True):
        different = work_differences(runs[0], own) if arm is not first else ()
        if different and arm.verdict is None:
            arm.drop("other work", "; ".join(different))


def check_quality(arms: Sequence[Arm], lab: Executor, window_s: float) -> None:
    """Drop variants with a worse quality than the first's."""
    measures = arms[0].asked.workload.quality
    if not measures or len(arms) < FEWEST:
        return
    requests = tuple(
        replace(
            request(arm, "quality", window_s),
            command="quality" if arm.asked.configs else "own",
            plan=MeasurePlan(mode="whole"),
            fresh=False,
            expected_s=0.0,
        )
        for arm in arms
    )
    found = lab.compare(
        ABTest(
            purpose="quality",
            title="quality",
            requests=requests,
            names=tuple(arm.name for arm in arms),
            rounds=QUALITY_ROUNDS,
            reseeded=True,
        )
    )
    first, *others = (
        [read_measures(measures, run.stdout_tail) for run in found.runs(arm.name)] for arm in arms
    )
    for arm, other in zip(arms[1:], others, strict=True):
        if not other:
            failure = failure_text(found.failure) if found.failure else "the budget ended"
            arm.drop("undecided", f"quality not measured: {failure}")
            continue
        judged = judge(measures, list(zip(first, other, strict=True)), "chosen")
        for each in [each for each in judged if not each.within][:1]:
            value, limit, before = map(numbers.measure, (each.value, each.limit, each.reference))
            reason = f"{each.measure}: {value}, limit {limit} ({before} in the first variant)"
            arm.drop("worse", reason)


def judge_gains(arms: Sequence[Arm], threshold: float) -> None:
    """Set the verdict of each variant that has none."""
    share = numbers.percent(threshold)
    arms[0].verdict = arms[0].verdict or "reference"
    for arm in sound(arms):
        if arm.gain is None:
            arm.drop("undecided", "fewer than two rounds could be counted")
        elif arm.gain.high < 1 - threshold:
            arm.drop("slower", f"by more than {share}")
        elif arm.gain.low >= 1 - threshold:
            arm.drop("faster" if arm.gain.low > 1 else "not slower", "")
        else:
            arm.drop("undecided", f"a slowdown of {share} is neither proven nor ruled out")


def failure_text(failure: Failure) -> str:
    """Evidence and next step."""
    return f"{failure.evidence.rstrip('.')}. {failure.next_step}".strip()


def as_table(found: dict[str, Any]) -> str:
    """Format the result as a table and verdicts."""
    units, variants = numbers.plural(found["unit"]), found["variants"]
    rows = [("", "variant", f"{units}/s", "memory", f"1,000 {units}", "against A")]
    for arm in variants:
        ratio = (
            "{ratio:.2f}x ({low:.2f} to {high:.2f})".format(**arm["gain"]) if arm["gain"] else "-"
        )
        rate, memory = numbers.number(arm["units_per_s"]), numbers.gib(arm["peak_mem_gib"])
        took = numbers.duration(arm["time_per_1000_s"])
        rows.append((arm["name"], arm["label"], rate, memory, took, ratio))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.append("")
    for arm in variants[1:]:
        reason = f", {arm['reason']}" if arm["reason"] else ""
        lines.append(f"{arm['name']}: {arm['verdict']}{reason}")
    rounds = numbers.many(found["rounds"], "interleaved round")
    lines.append(f"{rounds} of fresh processes; brackets are 95 % intervals.")
    return "\n".join([*lines, *found["notes"]])

"""`gpu-advisor compare A B [C ...] [-- COMMAND]`: variants in interleaved rounds."""

import argparse
import contextlib
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor import files, masking, numbers, settings
from advisor.analysis import trend
from advisor.commands import invocation, output
from advisor.commands.measuring import measuring_of, node_of, program_of
from advisor.commands.rank_scaling import GOOD_EFFICIENCY, counts_of, what_limits
from advisor.commands.variants import FEWEST, SEPARATOR, ComparedVariant, arms_of
from advisor.errors import BudgetTooSmallError, TrialFailedError, UsageError
from advisor.executor.comparison import UNDER_LOAD, Comparison
from advisor.executor.equal_units import work_differences
from advisor.executor.executor import Executor
from advisor.executor.requests import ABTest, SkippedRun, TrialRequest, Variant
from advisor.gate import referee
from advisor.gate.sequential_test import RULING_LOOKS, ChangeRuling, keep_or_drop
from advisor.model import UNFINISHED, Failure, MeasurePlan, Purpose, Run
from advisor.objective import THROUGHPUT
from advisor.quality import judge, patterns, read_measures
from advisor.report import markdown

ROUNDS = 6
"""The fewest with exact bounds."""
QUALITY_ROUNDS = 3
"""Rounds in which the declared quality is measured, each process to its own end."""
MARGIN = 1.2
"""A process may take so many times its warm-up."""
UNFIT = {"failed", "other work", "worse"}
"""Verdicts of variants that take no part in the ranking."""
BAD = {"slower", "failed", "other work", "worse"}
EXIT_CODES = {"ok": 0, "failed": 1, "undecided": 3}


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
        "--ranks",
        type=invocation.argument(counts_of),
        metavar="N,M",
        help="compare one command with so many ranks: --ranks 1,2,4 -- torchrun train.py",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        default=3.0,
        metavar="PERCENT",
        help="slowdown against the first variant that fails the call (default 3)",
    )
    parser.add_argument(
        "--report", type=Path, metavar="PATH", help="write the table as Markdown, too"
    )
    parser.add_argument(
        "--base-ref",
        metavar="REV",
        help="compare the working tree with this commit: keep the change, or drop it",
    )
    parser.add_argument(
        "--keep-if",
        type=invocation.argument(_gain),
        metavar="SHARE",
        help="gain worth keeping; rounds end once it is proven or ruled out (default 2%%)",
    )
    parser.add_argument(
        "--link",
        action="append",
        default=[],
        metavar="PATH",
        help="with --base-ref: data that git ignores, shown to base too",
    )
    invocation.add_flags(
        parser,
        *(
            "--window",
            "--budget",
            "--wait",
            "--workload",
            "--engine",
            "--overwrite",
            "--json",
        ),
    )


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """Compare variants: 1 for a slower or broken one, 3 if undecided."""
    started = time.monotonic()
    if args.base_ref is not None:
        _require_alone(args, command or [])
        return referee.run(args, command)
    if args.keep_if is not None:
        args.rounds = RULING_LOOKS[-1]
    if args.rounds < FEWEST or not 0 < args.threshold < 100:
        msg = (
            f"--rounds {args.rounds} --threshold {args.threshold:g}: an interval needs {FEWEST} "
            "rounds, and a threshold lies above 0 and below 100 percent."
        )
        raise UsageError(msg)
    arms = arms_of(args, command or [])
    if args.keep_if is not None and len(arms) > FEWEST:
        msg = f"--keep-if rules on one change: name two variants, not {len(arms)}."
        raise UsageError(msg)
    never = [path for arm in arms for path in arm.asked.paths]
    places = [args.report] if args.report else []
    claimed = files.claim(places, never=never, overwrite=args.overwrite)
    answer = measure(arms, args, started)
    text = as_table(answer)
    if args.report:
        body = markdown.fenced(masking.mask_text(text))
        names = markdown.text(" against ".join(arm.label for arm in arms))
        page = f"# {names}\n\n{body}\n\n{files.MARKS['.md']}\n"
        claimed.write(args.report, page.encode(errors="replace"))
    output.show(answer, text, as_json=args.json)
    if answer["ruling"]:
        return referee.EXIT_CODES[answer["ruling"]["verdict"]]
    return EXIT_CODES[answer["outcome"]]


def _gain(text: str) -> float:
    share = settings.parse_share(text)
    if not 0 < share < 10:
        msg = f"{text!r} must lie above 0 %; write 2% or 0.02"
        raise ValueError(msg)
    return share


def _require_alone(args: argparse.Namespace, command: Sequence[str]) -> None:
    """Refuse what a comparison with a commit does not take. Raises UsageError."""
    if args.configs or args.ranks or SEPARATOR in command:
        msg = (
            "--base-ref compares one command in two commits, without configs, --ranks or "
            f"{SEPARATOR}: `gpu-advisor compare --base-ref {args.base_ref} -- python train.py`."
        )
        raise UsageError(msg)


def measure(
    arms: list[ComparedVariant], args: argparse.Namespace, started: float
) -> dict[str, Any]:
    """Warm up, run rounds and judge; the result as JSON."""
    first = arms[0].asked
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(node_of(args.engine, first))
        measuring = measuring_of(first, node=node, budget_s=args.budget, wait_s=args.wait)
        executor = stack.enter_context(measuring.executor(started, earlier_calls=False))
        executor.programs = {
            arm.name: program_of(arm.asked, measuring.target) for arm in arms
        }
        warm_up(arms, executor, args.window)
        measuring.progress.stage("compare")
        rounds = compare(sound(arms), executor, args)
        check_quality(sound(arms), executor)
    judge_gains(arms, rounds, args.threshold / 100)
    if rounds and args.ranks:
        judge_scaling(arms, rounds, measuring.machine.cpus)
    verdicts = {arm.verdict for arm in arms}
    undecided = "undecided" if "undecided" in verdicts else "ok"
    notes = same_as_first(arms)
    notes += [UNDER_LOAD] if rounds and rounds.used_contended_rounds else []
    counted = arms[0].warm_up
    if counted and counted.counted in UNFINISHED:
        notes.append(
            f"Rates are in {numbers.plural(counted.unit)}: {UNFINISHED[counted.counted]}."
        )
    if rounds and rounds.cut_short:
        notes.append(
            "The budget ended before all rounds had run; a larger --budget has them all."
        )
    return {
        "outcome": "failed" if verdicts & BAD else undecided,
        "unit": counted.unit if counted else first.workload.unit,
        "rounds": len(rounds.counted) if rounds else 0,
        "threshold": args.threshold / 100,
        "ruling": ruling(arms, rounds, args.keep_if),
        "variants": [arm.as_object(rounds) for arm in arms],
        "notes": notes,
    }


def decision_of(rounds: Comparison, keep_if: float) -> ChangeRuling:
    """Sequential test of the second variant against the first, over the rounds that count."""
    gains = rounds.log_gains(THROUGHPUT, rounds.ab_test.names[-1], rounds.counted)
    return keep_or_drop(gains, math.log1p(keep_if))


def ruling(
    arms: Sequence[ComparedVariant], rounds: Comparison | None, keep_if: float | None
) -> dict[str, Any] | None:
    """Whether to keep the second variant: other work, failures and worse outputs drop it."""
    if keep_if is None:
        return None
    arm = arms[-1]
    if arm.verdict in UNFIT:
        return {
            "verdict": "drop",
            "cause": arm.verdict,
            "keep_if": keep_if,
            "confidence": None,
        }
    if rounds is None or not rounds.counted:
        return {
            "verdict": "undecided",
            "cause": "budget",
            "keep_if": keep_if,
            "confidence": None,
        }
    decision = decision_of(rounds, keep_if)
    causes = {"keep": "gain-proven", "drop": "gain-ruled-out"}
    left = "budget" if rounds.cut_short else "noise"
    return {
        "verdict": decision.ruling,
        "cause": causes.get(decision.ruling, left),
        "keep_if": keep_if,
        "confidence": decision.confidence,
    }


def same_as_first(arms: Sequence[ComparedVariant]) -> list[str]:
    """Sentence on variants that are the first one again: an A/A comparison."""

    def is_first(arm: ComparedVariant) -> bool:
        first = arms[0].asked
        texts = [[config.raw for config in asked.configs] for asked in (first, arm.asked)]
        named = [set(map(str, asked.paths)) for asked in (first, arm.asked)]
        words = [
            ["{config}" if word in paths else word for word in asked.argv]
            for asked, paths in zip((first, arm.asked), named, strict=True)
        ]
        return texts[0] == texts[1] and words[0] == words[1] and arm.ranks == arms[0].ranks

    same = [arm.name for arm in arms[1:] if is_first(arm)]
    if not same:
        return []
    names = " and ".join(same)
    return [
        f"{names} is the same as A (an A/A comparison): its interval shows the noise here."
    ]


def ranking(variants: Sequence[Mapping[str, Any]], threshold: float) -> str:
    """`C ran 2.65x faster than B, 5.74x faster than A.`, of proven differences.

    The rounds compare each variant with the first. Of two others there is no interval, so
    their rates have to differ by more than `threshold`.
    """
    able = [v for v in variants if v["units_per_s"] and v["verdict"] not in UNFIT]
    if len(able) < FEWEST:
        return ""
    best = max(able, key=lambda variant: variant["units_per_s"])
    slower = []
    for variant in sorted(able, key=lambda variant: -variant["units_per_s"]):
        ratio = best["units_per_s"] / variant["units_per_s"]
        gains = [v["gain"] for v in (best, variant) if v["gain"]]
        reference = variants[0] in (best, variant)
        apart = any(gain["low"] > 1 or gain["high"] < 1 for gain in gains)
        if variant is not best and (apart if reference else ratio > 1 + threshold):
            slower.append(f"{numbers.ratio(ratio)} faster than {variant['name']}")
    if not slower:
        return "No variant is proven faster than another."
    return f"{best['name']} ({best['label']}) ran {', '.join(slower)}."


def sound(arms: Sequence[ComparedVariant]) -> list[ComparedVariant]:
    """Variants still to be measured."""
    return [arm for arm in arms if arm.verdict is None]


def request(arm: ComparedVariant, purpose: Purpose, window_s: float) -> TrialRequest:
    """Process of a variant, as long as its warm-up."""
    entry = arm.asked.workload
    plan = MeasurePlan(
        measure_s=window_s,
        validation=entry.validation,
        trains=False if arm.warm_up and not arm.warm_up.trains else entry.trains,
        unit_regex=entry.unit_regex,
    )
    return TrialRequest(
        variant=Variant(program=arm.name),
        purpose=purpose,
        plan=plan,
        title=f"{arm.name}: {arm.label}",
        fresh=True,
        expected_s=MARGIN * arm.warm_up.wall_s if arm.warm_up else 0.0,
    )


def warm_up(arms: Sequence[ComparedVariant], executor: Executor, window_s: float) -> None:
    """Run each variant once, to fill caches and to learn what a process takes.

    Where the first fails nothing is left to compare with, and the call ends. Raises
    TrialFailedError and BudgetTooSmallError.
    """
    for arm in arms:
        answer = executor.run_once(request(arm, "profile", window_s))
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


def compare(
    arms: Sequence[ComparedVariant], executor: Executor, args: argparse.Namespace
) -> Comparison | None:
    """Run the rounds of all variants; None without a second one.

    One that does other work for its units, or may owe its rate to cheaper items, is dropped:
    its ratio would be true and mean nothing.
    """
    if len(arms) < FEWEST:
        return None
    requests = tuple(request(arm, "confirm", args.window) for arm in arms)
    keep_if = args.keep_if

    def decided(so_far: Comparison) -> bool:
        return (
            decision_of(so_far, keep_if).ruling != "undecided" if so_far.counted else False
        )

    rounds_run = run_rounds(
        arms,
        executor,
        requests,
        args.rounds,
        decided=decided if keep_if is not None else None,
    )
    works = [list(filter(None, (arm.warm_up, *rounds_run.runs(arm.name)))) for arm in arms]
    for arm, work in zip(arms[1:], works[1:], strict=True):
        if different := work_differences(works[0], work):
            arm.drop("other work", "; ".join(different))
        elif later := later_items(works[0], work, args.threshold / 100):
            arm.drop("other work", later)
    for arm in arms if rounds_run.failure else ():
        last = rounds_run.rounds[-1].runs.get(arm.name)
        if last is not None and isinstance(last.result, Failure):
            arm.drop("failed", failure_text(last.result))
    return rounds_run


def later_items(first: Sequence[Run], runs: Sequence[Run], threshold: float) -> str:
    """Sentence on a rate that cheaper items explain, of data in order of cost; else empty."""
    ahead = math.expm1(statistics.median(trend.head_start(first, run) for run in runs))
    if ahead <= threshold:
        return ""
    return f"later items cost less: {numbers.percent(ahead)} of its rate may be theirs"


def run_rounds(
    arms: Sequence[ComparedVariant],
    executor: Executor,
    requests: tuple[TrialRequest, ...],
    rounds: int,
    decided: Callable[[Comparison], bool] | None = None,
) -> Comparison:
    purpose, names = requests[0].purpose, tuple(arm.name for arm in arms)
    test = ABTest(
        purpose=purpose, requests=requests, names=names, rounds=rounds, decided=decided
    )
    return executor.compare(test)


def check_quality(arms: Sequence[ComparedVariant], executor: Executor) -> None:
    """Drop variants of worse quality than the first."""
    measures = arms[0].asked.workload.quality
    if not measures or len(arms) < FEWEST:
        return
    requests = tuple(
        TrialRequest(
            variant=Variant(program=arm.name),
            purpose="quality",
            plan=MeasurePlan(mode="whole", figures=patterns(measures)),
            command="quality" if arm.asked.configs else "own",
            title=f"{arm.name}: {arm.label}",
        )
        for arm in arms
    )
    rounds = run_rounds(arms, executor, requests, QUALITY_ROUNDS)
    first, *others = (
        [read_measures(measures, run.figures) for run in rounds.runs(arm.name)]
        for arm in arms
    )
    for arm, other in zip(arms[1:], others, strict=True):
        if not other:
            failure = failure_text(rounds.failure) if rounds.failure else "the budget ended"
            arm.drop("undecided", f"quality not measured: {failure}")
            continue
        judged = judge(measures, list(zip(first, other, strict=True)), "chosen")
        outside = [judgement for judgement in judged if not judgement.within]
        for judgement in outside[:1]:
            value, limit, before = map(
                numbers.measure, (judgement.value, judgement.limit, judgement.reference)
            )
            reason = f"{judgement.measure}: {value}, limit {limit} ({before} in the first variant)"
            arm.drop("worse", reason)


def judge_gains(
    arms: Sequence[ComparedVariant], rounds: Comparison | None, threshold: float
) -> None:
    """Set each missing verdict."""
    share = numbers.percent(threshold)
    arms[0].verdict = arms[0].verdict or "reference"
    for arm in sound(arms):
        gain = arm.gain(rounds)
        if gain is None:
            arm.drop("undecided", "fewer than two rounds could be counted")
        elif gain.high < 1 - threshold:
            arm.drop("slower", f"by more than {share}")
        elif gain.low >= 1 - threshold:
            arm.drop("faster" if gain.low > 1 else "not slower")
        else:
            arm.drop("undecided", f"a slowdown of {share} is neither proven nor ruled out")


def judge_scaling(arms: Sequence[ComparedVariant], rounds: Comparison, cpus: int) -> None:
    """Give each number of ranks its efficiency, and a poor one its cause."""
    first = arms[0]
    for arm in arms[1:]:
        gain = arm.gain(rounds)
        if gain is None or not arm.ranks or not first.ranks:
            continue
        efficiency = gain.estimate * first.ranks / arm.ranks
        sentence = f"efficiency {numbers.percent(efficiency)}"
        if efficiency < GOOD_EFFICIENCY:
            sentence += (
                f"; {what_limits(rounds.runs(first.name), rounds.runs(arm.name), cpus)}"
            )
        arm.reason = "; ".join(filter(None, (arm.reason, sentence)))


def failure_text(failure: Failure) -> str:
    """Evidence and next step."""
    return f"{failure.evidence.rstrip('.')}. {failure.next_step}".strip()


def as_table(answer: dict[str, Any]) -> str:
    units, variants = numbers.plural(answer["unit"]), answer["variants"]
    rows = [("", "variant", f"{units}/s", f"1,000 {units}", "memory", "against A")]
    for arm in variants:
        gain = arm["gain"]
        ratio = "{ratio:.2f}x ({low:.2f} to {high:.2f})".format(**gain) if gain else "-"
        per_s, memory = arm["units_per_s"], numbers.gib(arm["peak_mem_gib"])
        takes = numbers.duration(1000 / per_s if per_s else None)
        rows.append(
            (arm["name"], arm["label"], numbers.number(per_s), takes, memory, ratio)
        )
    lines = [*output.table(rows), ""]
    for arm in variants[1:]:
        reason = f", {arm['reason']}" if arm["reason"] else ""
        lines.append(f"{arm['name']}: {arm['verdict']}{reason}")
    rounds = numbers.many(answer["rounds"], "interleaved round")
    lines.append(f"{rounds} of fresh processes; brackets are 95 % intervals.")
    lines += [*answer["notes"], "", ranking(variants, answer["threshold"])]
    if answer["ruling"]:
        ruled, share = (
            answer["ruling"]["verdict"],
            numbers.percent(answer["ruling"]["keep_if"]),
        )
        lines.append(f"{referee.WORDS[ruled]}: B, if {share} or more is worth keeping.")
    return "\n".join(lines).rstrip()

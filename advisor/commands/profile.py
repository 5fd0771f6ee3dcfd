"""`gpu-advisor profile [CONFIG ...] [-- COMMAND ...]`: two measured runs."""

import argparse
import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from advisor import numbers
from advisor.commands import invocation, output
from advisor.commands.measuring import MeasuringCall, measuring_of, node_of
from advisor.executor.background_load import neighbours
from advisor.machine import target
from advisor.model import TRAINING_STEPS, Candidate, Failure, MeasurePlan, Run, RunPhase
from advisor.objective import METRICS
from advisor.report import bottleneck, verdict
from advisor.report.bottleneck import diagnose, member, ranged, typical
from advisor.report.schema import Bottleneck
from advisor.tuner import policy

RUNS = 2
"""Processes that are measured: one alone shows no spread.

Judgement: more would tell the spread better, and each takes as long as the first."""

OF_RUN = (
    "units", "units_per_s", "tokens_per_s", "wait_share", "step_ms", "achieved_tflops", "ranks",
    "peak_mem_gib", "host_growth_gib_per_min",
)  # fmt: skip
OF_EFFECTS = ("batch", "workers", "forwards_per_unit")
OF_CARD = ("gpu_util_pct", "gpu_mem_used_gib", "power_w")
"""Figures of run, effects and card in the JSON object."""

WORK = ("training", "inference")
"""Phases that are counted in steps."""
WORTH = 0.05
"""Share of the run from which a remedy is worth a line.

Judgement: smaller lists remedies that gain less than runs differ, larger hides gains of 5 %."""
REMEDIES = {
    "start": "Start-up is paid once a run: the share falls with longer runs.",
    "between epochs": "persistent_workers=True keeps a loader's workers from epoch to epoch.",
    "validation": "`validation = true` in gpu-advisor.toml lets `optimize` tune its loader.",
    "saving": "Save less often, or copy to the CPU and save in a thread.",
}
GROWTH = 0.01
"""Share of the peak; less growth a minute counts as steady.

Judgement: at this pace memory doubles in 100 minutes; what fills a cache ends before."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    invocation.add_flags(parser, "configs")
    parser.add_argument(
        "--whole",
        type=invocation.argument(invocation.parse_budget_s),
        metavar="TIME",
        help="one run to its own end, or for TIME: start, epochs, validation, saving, pauses",
    )
    invocation.add_flags(
        parser, "--workload", "--engine", "--wait", "--window", "--json", "--allow-writes"
    )


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """Measure and print; return 0 or the failure's code."""
    asked = invocation.resolve(
        args.configs,
        command,
        workload=args.workload,
        use_case="profile",
        with_options=False,
    )
    with node_of(args.engine, asked) as node:
        measuring = measuring_of(
            asked, node=node, allow_writes=args.allow_writes, wait_s=args.wait
        )
        result = measure(measuring, *plan_of(asked, args, measuring.machine.cpus))
    if isinstance(result, Failure):
        return output.show_failure(result, as_json=args.json)
    aim, cards, machine = measuring.target, result[0].cards, measuring.machine
    if cards:
        aim = target.computed_on(aim, machine, cards[0])
    more_workers = not verdict.are_cpus_busy(result, machine.cpus)
    diagnosis = diagnose(result, profile=aim.profile, more_workers=more_workers)
    unused = verdict.unused_gpu(result, machine.gpus)
    text = whole_memo(result[0]) if diagnosis is None else memo(result, diagnosis)
    load = verdict.load_note(result, neighbours(result), machine.cpus)
    fields = as_object(result, diagnosis) | {
        "unused_gpu": unused or None,
        "load_note": load or None,
    }
    request = verdict.more_cpus(result, machine)
    trust = f"Not to be trusted yet. {load}" if load and fields["disturbed"] else ""
    printed = "\n\n".join(filter(None, (trust, in_order(unused, text, request))))
    output.show(fields, printed, as_json=args.json)
    return 0


def plan_of(
    asked: invocation.Invocation, args: argparse.Namespace, cpus: int
) -> tuple[MeasurePlan, int]:
    """Plan of each run, and the number of runs."""
    entry = asked.workload
    plan = MeasurePlan(
        measure_s=args.window, unit_regex=entry.unit_regex, trains=entry.trains
    )
    if args.whole is not None:
        return replace(plan, measure_s=args.whole, longest_s=args.whole), 1
    workers = tuple(sorted({0, cpus}))
    plan = replace(plan, validation=entry.validation)
    return replace(
        plan, min_steps=8, ceilings_workers=workers, ceilings_s=policy.CEILINGS_S
    ), RUNS


def measure(
    measuring: MeasuringCall, plan: MeasurePlan, runs: int
) -> tuple[Run, ...] | Failure:
    """Equal runs of the program as it is."""
    done: list[Run] = []
    with measuring.trials() as run_trial:
        for _ in range(runs):
            result = run_trial(plan, Candidate())
            if isinstance(result, Failure):
                return result
            done.append(result)
            if not result.trains:  # the next one need not wait for updates
                plan = replace(plan, trains=False)
    return tuple(done)


def as_object(result: tuple[Run, ...], diagnosis: Bottleneck | None) -> dict[str, Any]:
    """Object of `--json`: means over the runs, with the rate's range."""
    run = typical(result)
    effects, rates = run.effects, [measured.units_per_s for measured in result]
    shares = dataclasses.asdict(run.shares)
    return {
        **{name: getattr(run, name) for name in OF_RUN},
        **{name: getattr(effects, name) for name in OF_EFFECTS},
        **{name: getattr(run.telemetry, name) for name in OF_CARD},
        "ok": True,
        "failure": None,
        "unit": numbers.plural(run.unit),
        "window": {"start": run.window_start, "end": run.window_end},
        "units_per_s_range": [min(rates), max(rates)],
        "runs": len(result),
        "notes": notes_of(run),
        "disturbed": any(measured.disturbance.disturbed for measured in result),
        "effects": dataclasses.asdict(effects) | {"arguments": dict(effects.arguments)},
        "shares": {name: share for name, share in shares.items() if share is not None}
        or None,
        "bottleneck": diagnosis and diagnosis.model_dump(),
        "phases": [dataclasses.asdict(phase) for phase in run.phases]
        if diagnosis is None
        else None,
    }


def in_order(unused: str, text: str, *limits: str) -> str:
    """Memo behind an unused card; limits of its figures come second."""
    first, _, rest = text.partition("\n\n")
    return "\n\n".join(filter(None, (unused, first, *limits, rest)))


def notes_of(run: Run) -> list[str]:
    """Limits of the figures of a run."""
    return [*run.notes, *filter(None, [run.device_note])]


def memo(runs: tuple[Run, ...], diagnosis: Bottleneck) -> str:
    """Memo: the bottleneck, then its evidence."""
    run = typical(runs)
    sections = {
        "Measured": _measured(runs, run),
        "Where the time goes": (*bottleneck.parts_of_time(runs), *bottleneck.networks(run)),
        "Memory of a step at its peak": bottleneck.footprint_lines(run),
        "Evidence": tuple(diagnosis.evidence),
        "Notes": notes_of(run),
    }
    parts = [diagnosis.sentence]
    for title, lines in sections.items():
        if lines:
            parts.append("\n".join([title, *(f"  {line}" for line in lines)]))
    return "\n\n".join(parts) + "\n"


def _measured(runs: tuple[Run, ...], run: Run) -> list[str]:
    units, effects = numbers.plural(run.unit), run.effects
    rate = ranged(runs, lambda r: r.units_per_s, numbers.number)
    done = f"{numbers.count(round(run.units, 2))} {units}"
    seconds = numbers.duration(run.window_end - run.window_start)
    facts = [f"{rate} {units}/s; the last run did {done} in {seconds} ({run.rate_source})"]
    if run.tokens_per_s is not None and run.unit != "token":
        facts.append(f"{ranged(runs, lambda r: r.tokens_per_s, numbers.number)} tokens/s")
    facts_by_name = {
        "batch": _batch(run),
        "workers": numbers.count(effects.workers),
        numbers.plural(member(run)): numbers.count(run.ranks) if run.ranks > 1 else None,
        "step": numbers.duration(run.step_ms and run.step_ms / 1000, 3),
        "peak memory": numbers.gib(run.peak_mem_gib),
        "dtype": effects.dtype or numbers.NOT_MEASURED,
        "device": effects.device or numbers.NOT_MEASURED,
    }
    facts.append(
        ", ".join(f"{name} {value}" for name, value in facts_by_name.items() if value)
    )
    return facts + _gpu(run)


def _batch(run: Run) -> str:
    """Batch as text: `8 a rank, 64 an update`."""
    effects = run.effects
    words = numbers.count(effects.batch) + f" a {member(run)}" * (run.ranks > 1)
    many = (effects.accumulation or 1.0) * (effects.group_batch or effects.batch or 0.0)
    if many and many != effects.batch and run.step_kind in TRAINING_STEPS:
        words += f", {numbers.count(many)} an update"
    return words


def _gpu(run: Run) -> list[str]:
    """Readings of the card, and reasons for missing ones."""
    seen = run.telemetry
    joules = METRICS["energy"].read(run)
    facts_by_name = {
        "{} busy": None
        if seen.gpu_util_pct is None
        else numbers.percent(seen.gpu_util_pct / 100),
        "{} in use on the card": seen.gpu_mem_used_gib
        and numbers.gib(seen.gpu_mem_used_gib),
        "{}": seen.power_w and f"{numbers.number(seen.power_w)} W",
        f"{{}} {numbers.one(run.unit)}": joules and f"{numbers.number(joules)} J",
        "SM clock {}": seen.sm_clock_mhz and f"{numbers.number(seen.sm_clock_mhz)} MHz",
    }
    parts = [words.format(value) for words, value in facts_by_name.items() if value]
    if not parts:
        return []
    unread = (f"not measured: {what} ({reason})" for what, reason in seen.gaps)
    return [f"GPU {', '.join(parts)}", *unread]


def whole_memo(run: Run) -> str:
    """Memo of a whole run: phases, then host memory and remedies."""
    if not run.phases:
        return (
            "The phases are not known: the probe saw no steps, or the program has several ranks.\n"
            f"{_memory(run)}\n"
        )
    total_s = sum(phase.seconds for phase in run.phases)
    largest = sorted(run.phases, key=lambda phase: -phase.seconds)
    shares = ", ".join(
        f"{phase.name} {numbers.percent(phase.seconds / total_s)}"
        for phase in largest
        if phase.seconds >= 0.01 * total_s
    )
    lines = [f"{numbers.duration(total_s)} of your program: {shares}.", ""]
    for phase in run.phases:
        lines.append(_phase(phase, total_s))
        if phase is _steps_of(run):
            lines += _parts_of_steps(run, phase.seconds / total_s)
    lines += ["", _memory(run)]
    helps = sorted(_remedies(run, total_s), reverse=True)
    if helps:
        lines += ["", "What would help, the costliest first"]
        lines += [
            f"  {name}, {numbers.percent(share)}: {remedy}" for share, name, remedy in helps
        ]
    return "\n".join(lines) + "\n"


def _steps_of(run: Run) -> RunPhase | None:
    """Phase of the counted steps: the largest that works."""
    work = [phase for phase in run.phases if phase.name in WORK]
    return max(work, key=lambda phase: phase.seconds, default=None)


def _parts_of_steps(run: Run, share: float) -> list[str]:
    """Lines on what the counted steps did, as shares of the whole run."""
    parts = dataclasses.asdict(run.shares)
    parts["data_wait"] = bottleneck.part_share(run, "data_wait")
    return [
        f"    {bottleneck.part_name(run, name):<25}{numbers.percent(share * part):>7}"
        for name, part in bottleneck.largest_first(parts)
        if part >= numbers.WORTH_SAYING
    ]


def _remedies(run: Run, total_s: float) -> Iterator[tuple[float, str, str]]:
    """Share of the whole run, name and remedy of each part that is worth one."""
    costs = [(p.seconds / total_s, p.name, REMEDIES.get(p.name, "")) for p in run.phases]
    if (steps := _steps_of(run)) is not None:
        for name in bottleneck.IDLE:
            share = bottleneck.part_share(run, name) or 0.0
            part = bottleneck.PARTS[name]
            costs.append((share * steps.seconds / total_s, part.name, f"{part.how}."))
    yield from (cost for cost in costs if cost[0] >= WORTH and cost[2])


def _phase(phase: RunPhase, total_s: float) -> str:
    share = numbers.percent(phase.seconds / total_s)
    row = f"  {phase.name:<15}{numbers.duration(phase.seconds):>12}{share:>7}"
    if phase.name in WORK:
        return f"{row}  {numbers.count(phase.times)} steps"
    if phase.times > 1:
        return f"{row}  {phase.times} times, {numbers.duration(phase.seconds / phase.times)} each"
    return row


def _memory(run: Run) -> str:
    peak, growth = run.peak_host_gib, run.host_growth_gib_per_min
    if peak is None:
        return "Host memory was not measured."
    sentence = f"Host memory: at most {numbers.gib(peak)}"
    if growth is None:
        return f"{sentence}. The run was too short to tell if it grows."
    if growth < GROWTH * peak:
        return f"{sentence}, and steady."
    return f"{sentence}. It grows by {numbers.gib(growth)} a minute: something keeps what it loads."

"""`gpu-advisor predict [CONFIG ...] --target CARDS`: speed, memory, price elsewhere."""

import argparse
import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from advisor import files, knobs, numbers
from advisor.commands import invocation, output
from advisor.commands.measuring import MeasuringCall, RunTrial, measuring_of
from advisor.config import Document
from advisor.errors import PredictionError, UsageError
from advisor.executor.requests import COMMAND_LINE, contended
from advisor.files import Claim
from advisor.machine import calibration, profiles
from advisor.model import (
    BEFORE_TRAINING,
    SAMPLER_FORWARDS,
    Candidate,
    Change,
    Failure,
    GpuProfile,
    JsonScalar,
    MeasurePlan,
    Override,
    Run,
)
from advisor.prediction import estimate
from advisor.prediction.estimate import Estimate, Traced
from advisor.prediction.trace import Trace, at_batch, parse
from advisor.report import figures
from advisor.runner.job import replace_paths

PLAN = MeasurePlan(measure_s=1.0, min_steps=3, trace=True)
"""Plan of a traced run; a CPU's, whose speed tells nothing, ends with one whole step."""
AUTOCAST = Override(knob="autocast", value="bfloat16")
SPLITS_FROM = 8
"""Least batch, in samples, that is traced at its half as well; smaller ones are doubled.

Judgement: the half of a smaller one nears a batch of one, which may be a special case. A larger
bound traces more batches at four times their size, which takes longer."""
NEEDS_CUDA = "The program needs more of CUDA than a CPU can stand in for."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    invocation.add_flags(parser, "configs")
    parser.add_argument(
        "--target",
        metavar="CARDS",
        required=True,
        help="cards, with commas: rtx-3090,rtx-4060,h100 (`gpu-advisor gpus` lists them)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="write one config per card here, with the suggested batch and `predicted` in its name",
    )
    invocation.add_flags(
        parser, "--overwrite", "--workload", "--wait", "--json", "--allow-writes"
    )


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """Trace, predict and print; return 0 or the failure's code."""
    cards = [
        profiles.by_name(name.strip()) for name in args.target.split(",") if name.strip()
    ]
    if not cards:
        msg = "--target names no card. Write one or more profiles: --target rtx-3090,h100."
        raise UsageError(msg)
    asked = invocation.resolve(
        args.configs, command, workload=args.workload, use_case="predict"
    )
    prices = {
        profiles.by_name(name).name: price for name, price in asked.settings.price.items()
    }
    calibrated = calibration.kept(asked.state())
    cards = [calibration.applied(card, calibrated) for card in cards]
    claim = claimed(asked, cards, args) if args.output else None
    measuring = measuring_of(asked, allow_writes=args.allow_writes, wait_s=args.wait)
    with measuring.trials() as run_trial:
        stand_in = None if measuring.machine.gpus else cards[0]
        plan = replace(PLAN, stand_in=stand_in, longest_s=0.0 if stand_in else None)
        outcome = trace_program(asked, run_trial, plan)
        half = autocast_too(asked, run_trial, plan, outcome)
    if isinstance(outcome, Failure):
        hint = NEEDS_CUDA if needs_cuda(outcome) and not measuring.machine.gpus else ""
        return output.show_failure(outcome, hint, as_json=args.json)
    traced, unit = outcome.traced, numbers.plural(outcome.traced.run.unit)
    entries, dtype = estimate.estimates(traced, cards, prices), traced.run.effects.dtype
    by_precision = estimate.precisions(traced, half, cards) if dtype == "float32" else []
    next_steps = [
        next_step(measuring, outcome.change, entry, args.output, claim)
        for entry in entries
        if outcome.change
        and entry.suggested
        and (claim or outcome.change.document == COMMAND_LINE)
    ]
    for card in cards if claim else ():
        drawn = draw(traced, card, entries, unit)
        if drawn and claim:
            claim.write(figure_place(args.output, card.name), drawn)
    remarks = notes(outcome, cards, entries)
    loader = loader_rate(traced.run)
    fields = {
        "ok": True,
        "failure": None,
        "unit": unit,
        "dtype": dtype,
        "batch": traced.step.batch,
        "loader_units_per_s": loader,
        "trains": traced.run.trains,
        "stand_in": outcome.stand_in,
        "predictions": [asdict(entry) for entry in entries],
        "precisions": [asdict(entry) for entry in by_precision],
        "next": next_steps,
        "notes": remarks,
    }
    headline = verdict(entries, cards, unit, loader)
    lines = [headline, "", *output.table(rows(entries, unit)), ""]
    if by_precision:
        lines += [
            "By precision, each at its suggested batch; bfloat16 is that of autocast:"
        ]
        lines += [*output.table(rows(by_precision, unit), indent="  "), ""]
    if next_steps:
        lines += ["On the card, this confirms the suggested batch and goes on from it:"]
        steps = [(step["card"], step["command"]) for step in next_steps]
        lines += [*output.table(steps, indent="  "), ""]
    output.show(fields, "\n".join([*lines, *remarks]), as_json=args.json)
    return 0


def needs_cuda(failure: Failure) -> bool:
    """True where the program's own error speaks of CUDA.

    Not where a step was only slow, and not by the name of a file in a stack: our own stand-in
    for CUDA lies on every stack.
    """
    tail = failure.log_tail.splitlines()
    said = [line for line in tail if not line.lstrip().startswith(("File ", "process "))]
    return (
        failure.kind.startswith("crash") and "cuda" in f"{failure.evidence} {said}".lower()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedProgram:
    """Traces of a program, and how they were made."""

    traced: Traced
    change: Change | None = None
    """Change to the other batch."""
    reason: str = ""
    """Reason for a missing trace of another batch."""
    stand_in: str | None = None
    """Card that the program believed to have."""
    refused: str = ""
    """Evidence of failure with such a card; the program ran without one."""


def trace_program(
    asked: invocation.Invocation, run_trial: RunTrial, plan: MeasurePlan
) -> TracedProgram | Failure:
    """Trace the program with a card or without, then with another batch.

    Two batches whose steps did the same operations give every other by a line. Where the first
    other batch failed or took another way through the program, the next one is tried.
    """
    refused = ""
    first = run_trial(plan, Candidate())
    if isinstance(first, Failure) and plan.stand_in and first.kind != "interrupted":
        plan, failed = replace(plan, stand_in=None), first
        first, refused = run_trial(plan, Candidate()), failed.evidence
        first = failed if isinstance(first, Failure) else first
    if isinstance(first, Failure):
        return first
    if contended(first) and not plan.stand_in:  # its time goes into every figure
        again = run_trial(plan, Candidate())
        first = again if isinstance(again, Run) and not contended(again) else first
    used = first.cards[0] if first.cards else None
    card = profiles.match(used.name or "", used.total_gib) if used else None
    card = card and calibration.applied(card, calibration.kept(asked.state()))
    program = TracedProgram(
        traced=Traced(run=first, step=trace_of(first), measured_on=card),
        stand_in=plan.stand_in.title if plan.stand_in else None,
        refused=refused,
    )
    reason, traces = "no setting of the batch was found", [program.traced.step]
    for change in other_batches(asked, traces[0].batch):
        run = run_trial(shortened(plan, first), Candidate(changes=(change,)))
        if isinstance(run, Failure):
            if run.kind == "interrupted":
                return run
            reason = f"batch {change.new} failed here ({run.kind})"
            continue
        traces.append(trace_of(run))
        for trace in traces[:-1]:
            try:
                at_batch(trace, traces[-1], trace.batch)
            except PredictionError as problem:
                reason = str(problem)
            else:
                traced = replace(program.traced, line=(trace, traces[-1]))
                return replace(program, traced=traced, change=change)
    return replace(program, reason=reason)


def shortened(plan: MeasurePlan, run: Run) -> MeasurePlan:
    """Plan of a run after `run`: a sampler need not finish an item again."""
    forwards = run.effects.forwards_per_unit or 1.0
    return (
        replace(plan, forwards_per_unit=forwards) if forwards >= SAMPLER_FORWARDS else plan
    )


def autocast_too(
    asked: invocation.Invocation,
    run_trial: RunTrial,
    plan: MeasurePlan,
    program: TracedProgram | Failure,
) -> Traced | None:
    """Trace of a 32-bit program under autocast; None for others or failures."""
    if isinstance(program, Failure) or program.traced.run.effects.dtype != "float32":
        return None
    stand_in = plan.stand_in if program.stand_in else None
    plan = replace(plan, overrides=(AUTOCAST,), stand_in=stand_in)
    with contextlib.suppress(PredictionError):
        half = trace_program(asked, run_trial, shortened(plan, program.traced.run))
        return None if isinstance(half, Failure) else half.traced
    return None


def trace_of(run: Run) -> Trace:
    """Trace of a run. Raises PredictionError."""
    for override in run.overrides:
        if not override.applied:
            msg = f"Autocast could not be put around the program's model: {override.why}."
            raise PredictionError(msg)
    if run.trace is None or not run.effects.batch or not run.step_ms:
        reason = (run.flops.why if run.flops else None) or (
            "its batch or its steps are not known, or it has several processes"
        )
        msg = f"No step of the program could be traced: {reason}."
        raise PredictionError(msg)
    try:
        return parse(run.trace, run.effects.batch)
    except ValidationError as problem:
        reason = problem.errors()[0]["msg"]
        msg = (
            f"The trace of the program's step could not be read: {reason}. "
            "--debug shows all of it."
        )
        raise PredictionError(msg) from problem


def other_batches(asked: invocation.Invocation, batch: float) -> Iterator[Change]:
    """Other batches of the run's setting: half and twice, or larger.

    Accumulation stays: both steps do the same. A batch of one may be a special case.
    """
    halves = batch >= SPLITS_FROM and batch % 2 == 0
    wanted = (batch / 2, 2 * batch) if halves else (2 * batch, 4 * batch)
    for document in (*asked.configs, asked.command_line):
        for knob in knobs.find(document, phase=asked.phase).knobs:
            old = knob.value
            holds_it = (
                knob.kind == "batch_size" and knob.editable and str(old) == f"{batch:g}"
            )
            if not holds_it or isinstance(old, tuple):
                continue
            for new in (like(old, size) for size in wanted):
                if document.takes(knob.path, new):
                    yield Change(
                        document=document.name,
                        path=knob.path,
                        kind=knob.kind,
                        knob_class=knob.knob_class,
                        old=old,
                        new=new,
                    )
            return


def like(old: JsonScalar, batch: float) -> JsonScalar:
    """Batch in the type of the value replaced."""
    return str(int(batch)) if isinstance(old, str) else int(batch)


def place(folder: Path, config: Document, card: str) -> Path:
    """Path of a card's config: `train.predicted-h100-sxm.yaml`."""
    config_path = Path(config.name)
    return folder / f"{config_path.stem}.predicted-{card}{config_path.suffix}"


def figure_place(folder: Path, card: str) -> Path:
    return folder / f"predicted-{card}.svg"


def draw(
    traced: Traced, card: GpuProfile, entries: Sequence[Estimate], unit: str
) -> bytes | None:
    """SVG of speed and memory by batch; None for a single batch."""
    of_card = [entry for entry in entries if entry.card == card.name]
    sizes = {entry.batch for entry in of_card}
    sizes |= {size for size in traced.sizes if size <= max(sizes)}
    if len(sizes) == 1:
        return None
    curve = [estimate.estimate_of(traced, card, size) for size in sorted(sizes)]
    rates = {point.batch: [point.units_per_s, *point.units_per_s_range] for point in curve}
    memory = {point.batch: [point.memory_gib, *point.memory_gib_range] for point in curve}
    svg = figures.draw_predicted(
        card.title,
        unit,
        rates,
        memory,
        limit_gib=estimate.room_gib(card) + card.context_mib / 1024,
        suggested=next((entry.batch for entry in of_card if entry.suggested), None),
    )
    return svg + f"{files.MARKS['.svg']}\n".encode()


def claimed(
    asked: invocation.Invocation, cards: Sequence[GpuProfile], args: argparse.Namespace
) -> Claim:
    """Claim all files to write. Raises OutputRefusedError and UsageError."""
    if not asked.configs:
        msg = "--output writes configs, and none was named. Leave it out: the command is printed."
        raise UsageError(msg)
    places = [
        place(args.output, config, card.name) for config in asked.configs for card in cards
    ]
    places += [figure_place(args.output, card.name) for card in cards]
    return files.claim(
        places, never=asked.paths, like=asked.paths[0], overwrite=args.overwrite
    )


def next_step(
    measuring: MeasuringCall,
    moved: Change,
    entry: Estimate,
    folder: Path | None,
    claim: Claim | None,
) -> dict[str, Any]:
    """Command that confirms a card's batch, for `--json`; write its config if asked."""
    asked, program = measuring.asked, measuring.program
    change = replace(moved, new=like(moved.old, entry.batch))
    candidate = Candidate(changes=(change,))
    argv, names = (
        program.argv(candidate),
        {config.name: config.name for config in asked.configs},
    )
    written = None
    for config in asked.configs:
        if claim and folder and config.name == change.document:
            path = place(folder, config, entry.card)
            claim.write(path, program.content(config, candidate))
            names[config.name] = written = str(path)
            seen = {config.name: os.path.relpath(path, asked.cwd)}
            argv = replace_paths(argv, str(asked.cwd), seen)
    words = ("gpu-advisor", "optimize", *names.values(), "--", *argv)
    return {"card": entry.card, "command": shlex.join(words), "config": written}


def notes(
    program: TracedProgram, cards: Sequence[GpuProfile], entries: Sequence[Estimate]
) -> list[str]:
    """Sentences on what the figures rest on."""
    traced, run, here = program.traced, program.traced.run, program.traced.measured_on
    unknown = ", ".join(card.title for card in cards if traced.error(card) is None)
    measured = ", ".join(
        f"{card.title} ({card.measured_on})" for card in cards if card.measured_on
    )
    task = "training" if run.trains else "inference"
    dtype = run.effects.dtype or "its own precision"
    launches = any(entry.bound == "launches" for entry in entries)
    lines = {
        f"{BEFORE_TRAINING}.": BEFORE_TRAINING in run.notes,
        f"Only the batch as configured: {program.reason.rstrip('.')}.": program.reason,
        f"The program ran on this CPU and believed to have the card {program.stand_in}; nothing "
        "was compiled.": program.stand_in,
        f"With a stand-in for CUDA it failed ({program.refused}), so it ran as on a CPU.":
            program.refused,
        "Nothing was timed on a card: the rates are those of datasheets. "
        f"The operations are those of this host's {'GPU' if run.on_gpu else 'CPU'}, in {dtype}.":
            here is None,
        f"Speed is the one measured on this {here and here.title}, in {dtype}, scaled by the "
        "datasheets of both cards.": here,
        "Others disturbed the run here, twice: the program may be faster than these figures.":
            here and contended(run),
        f"Rates measured by `gpu-advisor doctor --calibrate`: {measured}.": measured,
        "Bands of speed hold 9 in 10 published models (16 bits, large batches) of the cards "
        f"that were compared. Elsewhere they are ±{numbers.percent(estimate.NOT_VALIDATED)}. "
        f"Memory: ±{numbers.percent(estimate.MEMORY_ERROR)}, not validated on a card.": True,
        f"Speed of {task} in {dtype} not validated: {unknown}.": unknown,
        "Where launches limit, the speed of the host there decides: not validated.": launches,
        f"No batch above {traced.largest:,} was looked at.": traced.line is not None,
        "Another batch changes a training: see its learning rate.":
            run.trains and any(e.suggested and e.batch != traced.step.batch for e in entries),
        "The rate of the loader there, and of the program's own Python, is not known; either may "
        "be the limit.": True,
    }  # fmt: skip
    return [line for line, holds in lines.items() if holds]


def about(value: float) -> str:
    """Figure with as many digits as its band supports."""
    return numbers.number(float(f"{value:.2g}"))


def loader_rate(run: Run) -> float | None:
    """Units/s of the loader alone on this host; None with workers, which load ahead."""
    here = run.effects.workers == 0 and run.wait_share
    return run.units_per_s / here if here else None


def verdict(
    entries: Sequence[Estimate],
    cards: Sequence[GpuProfile],
    unit: str,
    loader: float | None = None,
) -> str:
    """Sentences on the fastest card, the loader here if slower, and the cheapest card."""
    fitting = [entry for entry in entries if entry.fits]
    if not fitting:
        return "It fits on none of these cards."
    fastest = max(fitting, key=lambda entry: entry.units_per_s)
    best = smallest_tie(fitting, fastest, fastest.units_per_s)
    title = next(card.title for card in cards if card.name == best.card)
    titles = {card.name: card.title for card in cards}
    rate = f"{about(best.units_per_s)} {unit}/s with batch {best.batch:g}"
    line = f"{title}: about {rate}, predicted, not measured."
    if loader and loader < best.units_per_s_range[0]:
        enough = smallest_tie(fitting, fastest, loader)
        line = (
            f"{title}: about {about(loader)} {unit}/s with batch {enough.batch:g}, which the "
            f"loader here gives without workers. The card alone: about {rate}, predicted, not "
            "measured."
        )
    priced = [(entry.price_of_1000, entry) for entry in fitting if entry.price_of_1000]
    if len({entry.card for _, entry in priced}) > 1:
        price, cheapest = min(priced, key=lambda pair: pair[0])
        line += f" Cheapest: {titles[cheapest.card]}, {about(price)} for 1,000 {unit}."
    return line


def smallest_tie(
    entries: Sequence[Estimate], fastest: Estimate, units_per_s: float
) -> Estimate:
    """Smallest batch on that card whose rate ties with `units_per_s` or exceeds it."""
    enough = units_per_s / (1 + estimate.TIE)
    same = [e for e in entries if e.card == fastest.card and e.units_per_s >= enough]
    return min(same, key=lambda entry: entry.batch, default=fastest)


def rows(entries: Sequence[Estimate], unit: str) -> list[tuple[str, ...]]:
    priced = any(entry.price_of_1000 for entry in entries)
    head = ("card", "batch", f"{unit}/s", "band", "memory", "band", "limited by")
    return [
        (*head, f"1,000 {unit} cost") if priced else head,
        *(_row(entry, priced=priced) for entry in entries),
    ]


def _row(entry: Estimate, *, priced: bool) -> tuple[str, ...]:
    low, high = map(about, entry.units_per_s_range)
    low_gib, high_gib = entry.memory_gib_range
    marks = ["suggested"] * entry.suggested + ["largest"] * entry.largest_batch
    row = (
        f"{entry.card} {entry.precision or ''}".rstrip(),
        f"{entry.batch:g}" + (f" ({', '.join(marks)})" if marks else ""),
        about(entry.units_per_s),
        f"{low} - {high}",
        numbers.gib(entry.memory_gib) + ("" if entry.fits else " (does not fit)"),
        f"{low_gib:.2f} - {high_gib:.2f}",
        entry.bound,
    )
    if not priced:
        return row
    price, bounds = entry.price_of_1000, entry.price_of_1000_range
    if price is None or bounds is None:
        return (*row, "no price known")
    return (*row, f"{about(price)} ({about(bounds[0])} - {about(bounds[1])})")

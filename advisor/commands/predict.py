"""`gpu-advisor predict [CONFIG ...] --target CARDS`: speed, memory and price on absent GPUs."""

import argparse
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from advisor import files, knobs, numbers
from advisor.commands import invocation, output
from advisor.commands.measuring import Session, session_of
from advisor.config import Document
from advisor.errors import PredictionError, UsageError
from advisor.executor.requests import COMMAND_LINE
from advisor.files import Claim
from advisor.machine import profiles
from advisor.model import Candidate, Change, Failure, GpuProfile, JsonScalar, MeasurePlan, Run
from advisor.prediction import estimate
from advisor.prediction.estimate import MEMORY_ERROR, Estimate, Traced, estimates
from advisor.prediction.trace import Trace, at_batch, parse
from advisor.runner.job import replace_paths

PLAN = MeasurePlan(measure_s=1.0, min_steps=3, trace=True)
AUTOCAST = "autocast=bfloat16"
NEEDS_CUDA = "The program needs more of CUDA than a CPU can stand in for."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `gpu-advisor predict`."""
    invocation.add_flags(parser, "configs")
    parser.add_argument(
        "--target",
        metavar="CARDS",
        required=True,
        help="cards, with commas: rtx-3090,rtx-4060,h100 (`gpu-advisor gpus` lists them)",
    )
    parser.add_argument(
        "--autocast",
        action="store_true",
        help="as if the program computed its forward passes in bfloat16 under autocast",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="write one config per card here, with the suggested batch and `predicted` in its name",
    )
    invocation.add_flags(parser, "--overwrite", "--workload", "--json", "--allow-writes")


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """Trace, predict and print; return 0 or the failure's code."""
    cards = [profiles.by_name(name.strip()) for name in args.target.split(",") if name.strip()]
    if not cards:
        msg = "--target names no card. Write one or more profiles: --target rtx-3090,h100."
        raise UsageError(msg)
    asked = invocation.resolve(args.configs, command, workload=args.workload, use_case="predict")
    prices = {profiles.by_name(name).name: each for name, each in asked.settings.price.items()}
    claim = claimed(asked, cards, args) if args.output else None
    session = session_of(asked, allow_writes=args.allow_writes)
    with session.trials() as run_trial:
        stand_in = None if session.machine.gpus else cards[0]
        plan = replace(PLAN, stand_in=stand_in, whatif=AUTOCAST if args.autocast else None)
        found = trace_program(asked, run_trial, plan)
    if isinstance(found, Failure):
        needs_cuda = "cuda" in f"{found.evidence}{found.log_tail}".lower()
        hint = NEEDS_CUDA if needs_cuda and not session.machine.gpus else ""
        return output.show_failure(found, hint, as_json=args.json)
    traced, unit = found.traced, numbers.plural(found.traced.run.unit)
    entries = estimates(traced, cards, prices)
    next_steps = [
        next_step(session, found.doubling, entry, args.output, claim)
        for entry in entries
        if found.doubling and entry.suggested and (claim or found.doubling.document == COMMAND_LINE)
    ]
    remarks = notes(found, cards, entries)
    fields = {
        "ok": True,
        "failure": None,
        "unit": unit,
        "dtype": traced.run.effects.dtype,
        "batch": traced.own.batch,
        "trains": traced.run.trains,
        "stand_in": found.stand_in,
        "predictions": [asdict(entry) for entry in entries],
        "next": next_steps,
        "notes": remarks,
    }
    lines = [verdict(entries, cards, unit), "", *output.table(rows(entries, unit)), ""]
    if next_steps:
        lines += ["On the card, this confirms the suggested batch and goes on from it:"]
        steps = [(step["card"], step["command"]) for step in next_steps]
        lines += [*output.table(steps, indent="  "), ""]
    output.show(fields, "\n".join([*lines, *remarks]), as_json=args.json)
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Traces of a program, and how they were made."""

    traced: Traced
    doubling: Change | None = None
    """Change that doubled the batch."""
    why: str = ""
    """Reason for a missing trace of another batch."""
    stand_in: str | None = None
    """Card that the program believed to have."""
    refused: str = ""
    """Evidence of the failure with such a card, where the program ran without one."""


def trace_program(
    asked: invocation.Invocation,
    run_trial: Callable[[MeasurePlan, Candidate], Run | Failure],
    plan: MeasurePlan,
) -> Findings | Failure:
    """Trace the program with a card or without, then with twice its batch."""
    refused = ""
    first = run_trial(plan, Candidate())
    if isinstance(first, Failure) and plan.stand_in and first.kind != "interrupted":
        plan, failed = replace(plan, stand_in=None), first
        first, refused = run_trial(plan, Candidate()), failed.evidence
        first = failed if isinstance(first, Failure) else first
    if isinstance(first, Failure):
        return first
    used = first.cards[0] if first.cards else None
    card = profiles.match(used.name or "", used.total_gib) if used else None
    found = Findings(
        traced=Traced(run=first, own=trace_of(first), measured_on=card),
        stand_in=plan.stand_in.title if plan.stand_in else None,
        refused=refused,
    )
    change = twice_the_batch(asked, found.traced.own.batch)
    if change is None:
        return replace(found, why="no setting of the batch was found")
    second = run_trial(plan, Candidate(changes=(change,)))
    if isinstance(second, Failure):
        if second.kind == "interrupted":
            return second
        return replace(found, why=f"twice the batch failed here ({second.kind})")
    try:
        doubled = trace_of(second)
        at_batch(found.traced.own, doubled, found.traced.own.batch)
    except PredictionError as problem:
        return replace(found, why=str(problem))
    return replace(found, traced=replace(found.traced, doubled=doubled), doubling=change)


def trace_of(run: Run) -> Trace:
    """Trace of a run. Raises PredictionError."""
    if run.whatif is not None and not run.whatif.applied:
        msg = f"Autocast could not be put around the program's model: {run.whatif.why}."
        raise PredictionError(msg)
    if run.trace is None or not run.effects.batch or not run.step_ms:
        why = run.flops.why if run.flops else None
        why = why or "its batch or its steps are not known, or it has several processes"
        msg = f"No step of the program could be traced: {why}."
        raise PredictionError(msg)
    try:
        return parse(run.trace, run.effects.batch)
    except (ValidationError, IndexError) as problem:
        msg = "The trace of the program's step could not be read."
        raise PredictionError(msg) from problem


def twice_the_batch(asked: invocation.Invocation, batch: float) -> Change | None:
    """Change of the first setting that holds the batch of the run.

    Accumulation stays, so that both steps do the same operations.
    """
    for document in (*asked.configs, asked.command_line):
        for knob in knobs.find(document, phase=asked.phase).knobs:
            old = knob.value
            holds_it = knob.kind == "batch_size" and knob.editable and str(old) == f"{batch:g}"
            if not holds_it or isinstance(old, tuple):
                continue
            new = like(old, 2 * batch)
            if document.takes(knob.path, new):
                return Change(
                    document=document.name,
                    path=knob.path,
                    kind=knob.kind,
                    knob_class=knob.knob_class,
                    old=old,
                    new=new,
                )
    return None


def like(old: JsonScalar, batch: float) -> JsonScalar:
    """A batch in the type of the value that it replaces."""
    return str(int(batch)) if isinstance(old, str) else int(batch)


def place(folder: Path, config: Document, card: str) -> Path:
    """Path of a card's config: `train.predicted-h100-sxm.yaml`."""
    own = Path(config.name)
    return folder / f"{own.stem}.predicted-{card}{own.suffix}"


def claimed(
    asked: invocation.Invocation, cards: Sequence[GpuProfile], args: argparse.Namespace
) -> Claim:
    """Claim of all files that may be written. Raises OutputRefusedError and UsageError."""
    if not asked.configs:
        msg = "--output writes configs, and none was named. Leave it out: the command is printed."
        raise UsageError(msg)
    places = [place(args.output, config, card.name) for config in asked.configs for card in cards]
    return files.claim(places, never=asked.paths, like=asked.paths[0], overwrite=args.overwrite)


def next_step(
    session: Session, doubling: Change, entry: Estimate, folder: Path | None, claim: Claim | None
) -> dict[str, Any]:
    """Write the config of a card, if asked; the command that confirms it there, as in `--json`."""
    asked, program = session.asked, session.program
    change = replace(doubling, new=like(doubling.old, entry.batch))
    candidate = Candidate(changes=(change,))
    argv, names = program.argv(candidate), {config.name: config.name for config in asked.configs}
    written = None
    for config in asked.configs:
        if claim and folder and config.name == doubling.document:
            path = place(folder, config, entry.card)
            claim.write(path, program.content(config, candidate))
            names[config.name] = written = str(path)
            seen = {config.name: os.path.relpath(path, asked.cwd)}
            argv = replace_paths(argv, str(asked.cwd), seen)
    words = ("gpu-advisor", "optimize", *names.values(), "--", *argv)
    return {"card": entry.card, "command": shlex.join(words), "config": written}


def notes(found: Findings, cards: Sequence[GpuProfile], entries: Sequence[Estimate]) -> list[str]:
    """Sentences on what the figures rest on."""
    traced, run, here = found.traced, found.traced.run, found.traced.measured_on
    unknown = ", ".join(card.title for card in cards if traced.error(card) is None)
    task = "training" if run.trains else "inference"
    dtype = run.effects.dtype or "its own precision"
    launches = any(entry.bound == "launches" for entry in entries)
    lines = {
        f"Only the batch as configured: {found.why.rstrip('.')}.": found.why,
        f"The program ran on this CPU and believed to have the card {found.stand_in}; nothing was "
        "compiled.": found.stand_in,
        f"With a stand-in for CUDA it failed ({found.refused}), so it ran as on a CPU.":
            found.refused,
        f"Nothing was timed on a card: the operations are those of this host's "
        f"{'GPU' if run.on_gpu else 'CPU'}, in {dtype}, the rates are those of datasheets.":
            here is None,
        f"Speed is the one measured on this {here and here.title}, in {dtype}, scaled by the "
        "datasheets of both cards.": here,
        "Bands of speed hold 9 in 10 published models (16 bits, large batches) of the cards "
        f"that were compared, and are ±{numbers.percent(estimate.NOT_VALIDATED)} elsewhere. "
        f"Memory: ±{numbers.percent(MEMORY_ERROR)}, not validated on a card.": True,
        f"Speed of {task} in {dtype} not validated: {unknown}.": unknown,
        "Where launches limit, the speed of the host there decides: not validated.": launches,
        f"No batch above {traced.largest:,} was looked at.": traced.doubled is not None,
        "Another batch changes a training: see its learning rate.":
            run.trains and any(e.suggested and e.batch != traced.own.batch for e in entries),
        "The rate of the loader there, and of the program's own Python, is not known; either may "
        "be the limit.": True,
    }  # fmt: skip
    return [line for line, holds in lines.items() if holds]


def about(value: float) -> str:
    """A figure with as many digits as its band supports."""
    return numbers.number(float(f"{value:.2g}"))


def verdict(entries: Sequence[Estimate], cards: Sequence[GpuProfile], unit: str) -> str:
    """The fastest card, in one sentence, and the cheapest where prices are known."""
    fitting = [entry for entry in entries if entry.fits]
    if not fitting:
        return "It fits on none of these cards."
    best = max(fitting, key=lambda entry: entry.units_per_s)
    titles = {card.name: card.title for card in cards}
    rate = f"{about(best.units_per_s)} {unit}/s with batch {best.batch:g}"
    line = f"{titles[best.card]}: about {rate}, predicted, not measured."
    priced = [(entry.price_of_1000, entry) for entry in fitting if entry.price_of_1000]
    if len({entry.card for _, entry in priced}) > 1:
        price, cheapest = min(priced, key=lambda pair: pair[0])
        line += f" Cheapest: {titles[cheapest.card]}, {about(price)} for 1,000 {unit}."
    return line


def rows(entries: Sequence[Estimate], unit: str) -> list[tuple[str, ...]]:
    """Rows of the table, below its head."""
    priced = any(entry.price_of_1000 for entry in entries)
    head = ("card", "batch", f"{unit}/s", "band", "memory", "band", "limited by")
    return [
        (*head, f"1,000 {unit} cost") if priced else head,
        *(_row(entry, priced=priced) for entry in entries),
    ]


def _row(entry: Estimate, *, priced: bool) -> tuple[str, ...]:
    low, high = map(about, entry.units_per_s_range)
    least, most = entry.memory_gib_range
    marks = [name for name, holds in (("suggested", entry.suggested),
             ("largest", entry.largest_batch)) if holds]  # fmt: skip
    row = (
        entry.card,
        f"{entry.batch:g}" + (f" ({', '.join(marks)})" if marks else ""),
        about(entry.units_per_s),
        f"{low} - {high}",
        numbers.gib(entry.memory_gib) + ("" if entry.fits else " (does not fit)"),
        f"{least:.2f} - {most:.2f}",
        entry.bound,
    )
    if not priced:
        return row
    price, bounds = entry.price_of_1000, entry.price_of_1000_range
    if price is None or bounds is None:
        return (*row, "no price known")
    return (*row, f"{about(price)} ({about(bounds[0])} - {about(bounds[1])})")

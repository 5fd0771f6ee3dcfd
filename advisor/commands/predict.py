"""`gpu-advisor predict [CONFIG ...] --target CARDS`: speed and memory on absent GPUs."""

from __future__ import annotations

import functools
import json
import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from advisor import knobs, masking, numbers
from advisor.commands import invocation
from advisor.commands.measuring import program_of
from advisor.commands.profile import failure_memo
from advisor.errors import FAILURE_EXIT_CODES, PredictionError, UsageError
from advisor.executor.engines import EngineSettings, make_engine
from advisor.executor.engines.scratch_dir import cancellable
from advisor.executor.requests import TrialRequest, TrialResult, Variant
from advisor.machine import profiles, target
from advisor.machine.host import read_machine
from advisor.model import Candidate, Change, Failure, MeasurePlan, Run
from advisor.prediction import speed
from advisor.prediction.allocator import peak_of
from advisor.prediction.speed import NOT_VALIDATED, VALIDATED, step_time
from advisor.prediction.trace import Trace, at_batch, parse
from advisor.report.build import trial_entry
from advisor.report.progress import Progress
from advisor.sandbox.capabilities import isolation_warnings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from advisor.executor.program import Program
    from advisor.model import GpuProfile

PLAN = MeasurePlan(measure_s=1.0, min_steps=3, trace=True)
WORKSPACE_GIB = 8.1 / 1024
"""cuBLAS's own memory."""
FITS_SHARE = 0.9
"""Share of the usable memory that the largest batch may need."""
MEMORY_ERROR = 0.15
"""Not validated on a card."""
LARGEST_BATCH = 1 << 16
GIB = 1024.0**3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `gpu-advisor predict`."""
    invocation.add_flags(parser, "configs")
    parser.add_argument(
        "--target",
        metavar="CARDS",
        required=True,
        help="profiles of GPUs, with commas: rtx-3090,rtx-4060,h100",
    )
    invocation.add_flags(parser, "--workload", "--json", "--allow-writes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """Program as it was traced here."""

    run: Run
    own: Trace
    doubled: Trace | None
    """With twice the batch; None: no other batch is predicted."""
    why: str = ""
    """Reason for the missing one."""

    @property
    def units_per_item(self) -> float:
        """Units of work of one traced step for each item of its batch."""
        return self.run.units_per_s * (self.run.step_ms or 0.0) / 1000 / self.own.batch

    @property
    def rates(self) -> speed.Rates:
        """Rates that programs of this kind reach."""
        return speed.TRAINING if self.run.trains else speed.INFERENCE

    @property
    def largest(self) -> int:
        """Largest batch that is worth a look."""
        return min(LARGEST_BATCH, int(self.run.effects.data_items or LARGEST_BATCH))

    def error(self, card: GpuProfile) -> float | None:
        """Error that published rates of such programs on `card` support, or None."""
        half = self.run.effects.dtype in ("float16", "bfloat16")
        return VALIDATED.get((card.name, self.run.trains)) if half else None

    def at(self, batch: float) -> Trace:
        """Trace of another batch."""
        if self.doubled is None or batch == self.own.batch:
            return self.own
        return at_batch(self.own, self.doubled, batch)


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """Trace, predict and print.

    Returns 0 or the failure's code. Raises AdvisorError.
    """
    cards = [profiles.by_name(name.strip()) for name in args.target.split(",") if name.strip()]
    if not cards:
        msg = "--target names no card. Write one or more profiles: --target rtx-3090,h100."
        raise UsageError(msg)
    asked = invocation.resolve(args.configs, command, workload=args.workload, use_case="predict")
    invocation.require_program(asked.argv, asked.cwd, asked.environ)
    machine = read_machine()
    aim = target.resolve("auto", machine)
    program = program_of(asked, aim, allow_writes=args.allow_writes)
    gpu_uuid = aim.gpu.uuid if aim.gpu else None
    with Progress(unit=program.unit) as progress:
        found = trace_twice(asked, program, progress, gpu_uuid)
    code, unit = 0, asked.workload.unit
    if isinstance(found, Failure):
        code, shown = FAILURE_EXIT_CODES[found.kind], failure_memo(found)
        if not machine.gpus and "cuda" in f"{found.evidence}{found.log_tail}".lower():
            shown += "The program needs CUDA: predict can only trace one that runs on this host.\n"
        names = ("kind", "evidence", "next_step")
        failure = {name: getattr(found, name) for name in names}
        fields: dict[str, Any] = {"ok": False, "failure": failure, "predictions": []}
    else:
        unit = numbers.plural(found.run.unit)
        entries = list(predictions(found, cards))
        device = "GPU" if found.run.on_gpu else "CPU"
        fields = {
            "ok": True,
            "failure": None,
            "unit": unit,
            "dtype": found.run.effects.dtype,
            "batch": found.own.batch,
            "trains": found.run.trains,
            "predictions": entries,
            "notes": notes(found, cards, entries, device),
        }
        shown = memo(fields, cards)
    if args.json:
        shown = json.dumps(masking.mask_value(fields), indent=2) + "\n"
    sys.stdout.write(shown if args.json else masking.mask_text(shown))
    return code


# --- runs ---------------------------------------------------------------------------------


def trace_twice(
    asked: invocation.Invocation, program: Program, progress: Progress, gpu_uuid: str | None
) -> Traced | Failure:
    """Trace the program as it is, and with twice its batch."""
    with (
        cancellable() as off,
        make_engine(
            EngineSettings(gpu_uuid=gpu_uuid, on_progress=progress.status, cancel=off)
        ) as engine,
    ):
        for note in isolation_warnings(str(program.cwd), {**os.environ, **program.env}):
            progress.note(note)
        progress.stage("profile")

        def attempt(number: int, candidate: Candidate) -> Run | Failure:
            request = TrialRequest(
                variant=Variant(candidate=candidate), purpose="profile", plan=PLAN
            )
            trial = program.trial(f"{number:03d}", request, engine.scratch(f"{number:03d}"))
            progress.trial_started(number, trial.label)
            result = engine.run(trial)
            done = TrialResult(id=trial.id, request=request, result=result, remaining_s=0.0)
            progress.trial_done(trial_entry(done))
            return result

        first = attempt(1, Candidate())
        if isinstance(first, Failure):
            return first
        own = trace_of(first)
        found = Traced(run=first, own=own, doubled=None)
        change = twice_the_batch(asked, own.batch)
        if change is None:
            return replace(found, why="no setting of the batch was found")
        second = attempt(2, Candidate(changes=(change,)))
    if isinstance(second, Failure):
        if second.kind == "interrupted":
            return second
        return replace(found, why=f"twice the batch failed here ({second.kind})")
    try:
        doubled = trace_of(second)
        at_batch(own, doubled, own.batch)
    except PredictionError as problem:
        return replace(found, why=str(problem))
    return replace(found, doubled=doubled)


def trace_of(run: Run) -> Trace:
    """Trace of a run. Raises PredictionError."""
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
            if knob.kind != "batch_size" or not knob.editable or isinstance(old, (bool, tuple)):
                continue
            if str(old) != f"{batch:g}":
                continue
            new = str(int(2 * batch)) if isinstance(old, str) else int(2 * batch)
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


# --- predictions --------------------------------------------------------------------------


def predictions(found: Traced, cards: list[GpuProfile]) -> Iterator[dict[str, Any]]:
    """Entries of each card, at the batch as configured and at the largest."""

    @functools.cache
    def reserved_gib(batch: float) -> float:
        return peak_of(found.at(batch)).reserved / GIB

    for card in cards:
        largest = largest_batch(found, card, reserved_gib)
        own = found.own.batch
        yield prediction(found, card, own, reserved_gib(own), largest=largest == own)
        if largest not in (None, own):
            yield prediction(found, card, float(largest), reserved_gib(largest), largest=True)


def largest_batch(
    found: Traced, card: GpuProfile, reserved_gib: Callable[[float], float]
) -> float | None:
    """Largest batch that fits, to a sixteenth; None where no other batch is known."""
    if found.doubled is None:
        return None

    def fits(batch: int) -> bool:
        limit_gib = FITS_SHARE * profiles.usable_gib(card)
        return reserved_gib(float(batch)) + WORKSPACE_GIB <= limit_gib

    if fits(found.largest):
        return found.largest
    low, high = 0, 1
    while high < found.largest and fits(high):
        low, high = high, min(2 * high, found.largest)
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low or None


def prediction(
    found: Traced, card: GpuProfile, batch: float, reserved_gib: float, *, largest: bool
) -> dict[str, Any]:
    """Speed and memory of one batch on one card."""
    trace, error = found.at(batch), found.error(card)
    took = step_time(trace, card, found.rates)
    if took.bound == "launches":
        error = None
    off = NOT_VALIDATED if error is None else error
    per_s = found.units_per_item * batch / took.seconds
    context_gib = card.context_mib / 1024
    memory_gib = reserved_gib + context_gib + WORKSPACE_GIB
    limit_gib = FITS_SHARE * profiles.usable_gib(card)
    return {
        "card": card.name,
        "batch": batch,
        "largest_batch": largest,
        "fits": reserved_gib + WORKSPACE_GIB <= limit_gib,
        "units_per_s": per_s,
        "units_per_s_range": [per_s / (1 + off), per_s / (1 - off)],
        "step_ms": 1000 * took.seconds,
        "bound": took.bound,
        "memory_gib": memory_gib,
        "memory_gib_range": [memory_gib * (1 - MEMORY_ERROR), memory_gib * (1 + MEMORY_ERROR)],
        "memory_parts_gib": {
            "allocated": peak_of(trace).allocated / GIB,
            "reserved": reserved_gib,
            "context": context_gib,
            "cublas": WORKSPACE_GIB,
        },
        "speed_validated": error is not None,
        "memory_validated": False,
    }


# --- text ---------------------------------------------------------------------------------


def notes(
    found: Traced, cards: list[GpuProfile], entries: list[dict[str, Any]], device: str
) -> list[str]:
    """Sentences on what the figures rest on."""
    unknown = [card.title for card in cards if found.error(card) is None]
    task = "training" if found.run.trains else "inference"
    dtype = found.run.effects.dtype or "its own precision"
    lines = [
        (
            f"Nothing was timed on a card: the operations are those of this host's {device}, in "
            f"{dtype} without TF32, the rates are those of datasheets."
        ),
        (
            "Bands of speed hold 9 in 10 published models (timm, autocast, large batches) of the "
            f"cards that were compared, and are ±{numbers.percent(NOT_VALIDATED)} elsewhere. "
            "Memory: ±15 %, not validated on a card."
        ),
        (
            "The rate of the loader there, and of the program's own Python, is not known; either "
            "may be the limit."
        ),
        "Nothing is written. `gpu-advisor optimize --target NAME` on the card confirms.",
    ]
    if found.doubled is not None:
        lines.insert(2, f"No batch above {found.largest:,} was looked at.")
    if any(entry["bound"] == "launches" for entry in entries):
        lines.insert(2, "Where launches limit, the speed of the host there decides: not validated.")
    if unknown:
        lines.insert(2, f"Speed of {task} in {dtype} not validated: {', '.join(unknown)}.")
    if found.why:
        lines.insert(0, f"Only the batch as configured: {found.why.rstrip('.')}.")
    return lines


def about(rate: float) -> str:
    """A rate with as many digits as its band supports."""
    return numbers.number(float(f"{rate:.2g}"))


def memo(fields: dict[str, Any], cards: list[GpuProfile]) -> str:
    """Verdict, table and notes."""
    entries, unit = fields["predictions"], fields["unit"]
    titles = {card.name: card.title for card in cards}
    fitting = [entry for entry in entries if entry["fits"]]
    verdict = "It fits on none of these cards."
    if fitting:
        best = max(fitting, key=lambda entry: float(entry["units_per_s"]))
        equal = {e["card"] for e in fitting if e["units_per_s"] > 0.99 * best["units_per_s"]}
        first = "These cards are equally fast" if len(equal) > 1 else titles[best["card"]]
        verdict = (
            f"{first}: about {about(best['units_per_s'])} "
            f"{unit}/s with batch {best['batch']:g}, predicted, not measured."
        )
    rows = [("card", "batch", f"{unit}/s", "band", "memory", "band", "limited by")]
    for entry in entries:
        low, high = map(about, entry["units_per_s_range"])
        least, most = entry["memory_gib_range"]
        mark = "" if entry["fits"] else " (does not fit)"
        rows.append(
            (
                entry["card"],
                f"{entry['batch']:g}" + " (largest)" * entry["largest_batch"],
                about(entry["units_per_s"]),
                f"{low} - {high}",
                numbers.gib(entry["memory_gib"]) + mark,
                f"{least:.2f} - {most:.2f}",
                entry["bound"],
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([verdict, "", *lines, "", *fields["notes"]]) + "\n"

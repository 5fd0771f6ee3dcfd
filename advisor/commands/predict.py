"""`gpu-advisor predict [CONFIG ...] --target CARDS`: speed and memory on absent GPUs."""

from __future__ import annotations

import bisect
import functools
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from pydantic import ValidationError

from advisor import knobs, numbers
from advisor.commands import invocation, output
from advisor.commands.measuring import session_of
from advisor.errors import PredictionError, UsageError
from advisor.machine import profiles
from advisor.model import Candidate, Change, Failure, MeasurePlan, Run
from advisor.prediction import speed
from advisor.prediction.allocator import peak_of
from advisor.prediction.trace import Trace, at_batch, parse

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from advisor.model import GpuProfile
    from advisor.prediction.allocator import Peak

PLAN = MeasurePlan(measure_s=1.0, min_steps=3, trace=True)
WORKSPACE_GIB = 8.1 / 1024
"""cuBLAS's own memory."""
FITS_SHARE = 0.9
"""Share of the usable memory that the largest batch may need."""
MEMORY_ERROR = 0.15
"""Not validated on a card."""
LARGEST_BATCH = 1 << 16
NEEDS_CUDA = "The program needs CUDA: predict can only trace one that runs on this host."
GIB = 1024.0**3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `gpu-advisor predict`."""
    invocation.add_flags(parser, "configs")
    parser.add_argument(
        "--target",
        metavar="CARDS",
        required=True,
        help="profiles of GPUs, with commas: rtx-3090,rtx-4060,h100-sxm",
    )
    invocation.add_flags(parser, "--workload", "--json", "--allow-writes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """Program as it was traced here."""

    run: Run
    own: Trace
    doubled: Trace | None = None
    """With twice the batch; None: no other batch is predicted."""
    why: str = ""
    """Reason for the missing one."""

    @property
    def units_per_item(self) -> float:
        """Units of work of one traced step for each item of its batch."""
        return self.run.units_per_s * (self.run.step_ms or 0.0) / 1000 / self.own.batch

    @property
    def largest(self) -> int:
        """Largest batch that is worth a look."""
        return min(LARGEST_BATCH, int(self.run.effects.data_items or LARGEST_BATCH))

    def error(self, card: GpuProfile) -> float | None:
        """Error that published rates of such programs on `card` support, or None."""
        half = self.run.effects.dtype in ("float16", "bfloat16")
        return speed.VALIDATED.get((card.name, self.run.trains)) if half else None

    def at(self, batch: float) -> Trace:
        """Trace of another batch."""
        if self.doubled is None or batch == self.own.batch:
            return self.own
        return at_batch(self.own, self.doubled, batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Speed and memory of one batch on one card, as in `--json`."""

    card: str
    batch: float
    largest_batch: bool
    fits: bool
    units_per_s: float
    units_per_s_range: tuple[float, float]
    step_ms: float
    bound: str
    memory_gib: float
    memory_gib_range: tuple[float, float]
    allocated_gib: float
    """Of tensors alone."""
    speed_validated: bool


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """Trace, predict and print.

    Returns 0 or the failure's code. Raises AdvisorError.
    """
    cards = [profiles.by_name(name.strip()) for name in args.target.split(",") if name.strip()]
    if not cards:
        msg = "--target names no card. Write one or more profiles: --target rtx-3090,h100."
        raise UsageError(msg)
    asked = invocation.resolve(args.configs, command, workload=args.workload, use_case="predict")
    session = session_of(asked, allow_writes=args.allow_writes)
    with session.trials() as run_trial:
        found = trace_twice(asked, run_trial)
    if isinstance(found, Failure):
        needs_cuda = "cuda" in f"{found.evidence}{found.log_tail}".lower()
        hint = NEEDS_CUDA if needs_cuda and not session.machine.gpus else ""
        return output.show_failure(found, hint, as_json=args.json)
    entries, unit = predictions(found, cards), numbers.plural(found.run.unit)
    remarks = notes(found, cards, entries)
    fields = {
        "ok": True,
        "failure": None,
        "unit": unit,
        "dtype": found.run.effects.dtype,
        "batch": found.own.batch,
        "trains": found.run.trains,
        "predictions": [asdict(entry) for entry in entries],
        "notes": remarks,
    }
    lines = [verdict(entries, cards, unit), "", *output.table(rows(entries, unit)), "", *remarks]
    output.show(fields, "\n".join(lines), as_json=args.json)
    return 0


# --- runs ---------------------------------------------------------------------------------


def trace_twice(
    asked: invocation.Invocation, run_trial: Callable[[MeasurePlan, Candidate], Run | Failure]
) -> Traced | Failure:
    """Trace the program as it is, and with twice its batch."""
    first = run_trial(PLAN, Candidate())
    if isinstance(first, Failure):
        return first
    found = Traced(run=first, own=trace_of(first))
    change = twice_the_batch(asked, found.own.batch)
    if change is None:
        return replace(found, why="no setting of the batch was found")
    second = run_trial(PLAN, Candidate(changes=(change,)))
    if isinstance(second, Failure):
        if second.kind == "interrupted":
            return second
        return replace(found, why=f"twice the batch failed here ({second.kind})")
    try:
        doubled = trace_of(second)
        at_batch(found.own, doubled, found.own.batch)
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
            if knob.kind != "batch_size" or not knob.editable or isinstance(old, tuple):
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


def predictions(found: Traced, cards: Sequence[GpuProfile]) -> list[Prediction]:
    """Figures of each card, at the batch as configured and at the largest."""

    @functools.cache
    def peak(batch: float) -> Peak:
        return peak_of(found.at(batch))

    own = found.own.batch
    made: list[Prediction] = []
    for card in cards:
        most = largest_batch(found, card, lambda batch: peak(batch).reserved / GIB)
        made += [
            prediction(found, card, batch, peak(batch), largest=batch == most)
            for batch in sorted({own, most or own})
        ]
    return made


def largest_batch(
    found: Traced, card: GpuProfile, reserved_gib: Callable[[float], float]
) -> float | None:
    """Largest batch that fits; None where no other batch is known."""
    if found.doubled is None:
        return None
    batches = range(1, found.largest + 1)
    return float(bisect.bisect_right(batches, room_gib(card), key=reserved_gib)) or None


def room_gib(card: GpuProfile) -> float:
    """Memory of a card for what the program reserves."""
    return FITS_SHARE * profiles.usable_gib(card) - WORKSPACE_GIB


def prediction(
    found: Traced, card: GpuProfile, batch: float, peak: Peak, *, largest: bool
) -> Prediction:
    """Speed and memory of one batch on one card."""
    rates = speed.TRAINING if found.run.trains else speed.INFERENCE
    took = speed.step_time(found.at(batch), card, rates)
    error = None if took.bound == "launches" else found.error(card)
    off = speed.NOT_VALIDATED if error is None else error
    per_s = found.units_per_item * batch / took.seconds
    reserved_gib = peak.reserved / GIB
    memory_gib = reserved_gib + card.context_mib / 1024 + WORKSPACE_GIB
    return Prediction(
        card=card.name,
        batch=batch,
        largest_batch=largest,
        fits=reserved_gib <= room_gib(card),
        units_per_s=per_s,
        units_per_s_range=(per_s / (1 + off), per_s / (1 - off)),
        step_ms=1000 * took.seconds,
        bound=took.bound,
        memory_gib=memory_gib,
        memory_gib_range=(memory_gib * (1 - MEMORY_ERROR), memory_gib * (1 + MEMORY_ERROR)),
        allocated_gib=peak.allocated / GIB,
        speed_validated=error is not None,
    )


# --- text ---------------------------------------------------------------------------------


def notes(found: Traced, cards: Sequence[GpuProfile], entries: Sequence[Prediction]) -> list[str]:
    """Sentences on what the figures rest on."""
    unknown = ", ".join(card.title for card in cards if found.error(card) is None)
    task = "training" if found.run.trains else "inference"
    dtype = found.run.effects.dtype or "its own precision"
    launches = any(entry.bound == "launches" for entry in entries)
    lines = {
        f"Only the batch as configured: {found.why.rstrip('.')}.": found.why,
        f"Nothing was timed on a card: the operations are those of this host's "
        f"{'GPU' if found.run.on_gpu else 'CPU'}, in {dtype} without TF32, the rates are those of "
        "datasheets.": True,
        "Bands of speed hold 9 in 10 published models (timm, autocast, large batches) of the cards "
        f"that were compared, and are ±{numbers.percent(speed.NOT_VALIDATED)} elsewhere. "
        "Memory: ±15 %, not validated on a card.": True,
        f"Speed of {task} in {dtype} not validated: {unknown}.": unknown,
        "Where launches limit, the speed of the host there decides: not validated.": launches,
        f"No batch above {found.largest:,} was looked at.": found.doubled is not None,
        "The rate of the loader there, and of the program's own Python, is not known; either may "
        "be the limit.": True,
        "Nothing is written. `gpu-advisor optimize --target NAME` on the card confirms.": True,
    }
    return [line for line, holds in lines.items() if holds]


def about(rate: float) -> str:
    """A rate with as many digits as its band supports."""
    return numbers.number(float(f"{rate:.2g}"))


def verdict(entries: Sequence[Prediction], cards: Sequence[GpuProfile], unit: str) -> str:
    """The fastest card, in one sentence."""
    fitting = [entry for entry in entries if entry.fits]
    if not fitting:
        return "It fits on none of these cards."
    best = max(fitting, key=lambda entry: entry.units_per_s)
    titles = {card.name: card.title for card in cards}
    rate = f"{about(best.units_per_s)} {unit}/s with batch {best.batch:g}"
    return f"{titles[best.card]}: about {rate}, predicted, not measured."


def rows(entries: Sequence[Prediction], unit: str) -> list[tuple[str, ...]]:
    """Rows of the table, below its head."""
    found: list[tuple[str, ...]] = [
        ("card", "batch", f"{unit}/s", "band", "memory", "band", "limited by")
    ]
    for entry in entries:
        low, high = map(about, entry.units_per_s_range)
        least, most = entry.memory_gib_range
        mark = "" if entry.fits else " (does not fit)"
        found.append(
            (
                entry.card,
                f"{entry.batch:g}" + " (largest)" * entry.largest_batch,
                about(entry.units_per_s),
                f"{low} - {high}",
                numbers.gib(entry.memory_gib) + mark,
                f"{least:.2f} - {most:.2f}",
                entry.bound,
            )
        )
    return found

"""Estimates of speed, memory and price of a traced program on cards.

Each operation takes as long as the slower of its arithmetic and its memory traffic would at the
card's peak rates, of which programs reach a share (the roofline). The sum of all is the card's
time, and the host's time to launch them runs beside it: a step takes the longer of both.

Shares of a peak are fitted for classes of operations and not for models, so that they hold for a
model that nobody has published. What that costs is in `VALIDATED`, which every figure is given
with. Where a card of this host has timed the program, its time scales the estimate, and only the
ratio of both cards is predicted.
"""

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from advisor.machine import profiles
from advisor.model import GpuProfile, Run
from advisor.prediction.allocator import fits, peak_of
from advisor.prediction.trace import Operation, Trace, at_batch
from advisor.probe.op_trace import ATTENTION, CONVOLUTION, GROUPED, MATRIX, OTHER


class ReachedShares(NamedTuple):
    """Shares of a card's peak rates that programs reach."""

    compute: dict[int, float]
    """By class of operation."""
    bandwidth: float


INFERENCE = ReachedShares(
    compute={MATRIX: 0.9, CONVOLUTION: 0.9, GROUPED: 0.4, ATTENTION: 0.9, OTHER: 1.0},
    bandwidth=0.7,
)
"""Fitted on 52 models of timm's RTX 3090 table, every fifth of those traced by then.

Record: benchmarks/results/prediction.md: of 1,144 others 9 in 10 were within 24 %."""
TRAINING = ReachedShares(
    compute={MATRIX: 0.9, CONVOLUTION: 0.9, GROUPED: 0.1, ATTENTION: 0.3, OTHER: 1.0},
    bandwidth=0.55,
)
"""Fitted on 32 models of that table; attention on 28 rows of llm-foundry's A100 table.

Record: benchmarks/results/prediction.md: of 659 others of the first table 9 in 10 were within 44 %,
of 111 of the second within 15 %."""
VALIDATED = {
    ("rtx-3090", False): 0.25,
    ("rtx-3090", True): 0.45,
    ("rtx-4090", False): 0.3,
    ("a100-80", True): 0.15,
    ("a100-40", True): 0.2,
}
"""Errors of 9 in 10 unfitted models, rounded up, by card and `trains`.

Record: benchmarks/results/prediction.md."""
NOT_VALIDATED = 0.6
"""Error assumed elsewhere.

Record: benchmarks/results/prediction.md: of 62 unfitted rows of language models in float32, on six
cards, 9 in 10 were within 54 %. Those of the L4 were not: 68 %."""
TRANSFER_ERROR = 0.3
"""Error if the program was timed on another card.

Record: benchmarks/results/prediction.md: from an RTX 3090 to an RTX 4090, 9 in 10 of 40 models were
within 18 %. That other pairs of cards stay within 30 % is judgement."""
STEADY_CLOCK = 0.83
"""Share of its tensor rates that a card other than GeForce holds in products.

GeForce cards run above the clock of their datasheets. Fitted together with the attention of
`TRAINING`; a rate that was measured on the card itself needs no such share.
"""
KERNEL_S = 3e-6
"""Least time of a kernel on the card.

Judgement, measured on no card: too large makes steps of many small operations too slow."""
LAUNCH_S = 6e-6
"""Host time to launch one operation of an eager program.

Judgement, measured on no host. It alone sets the rate of a program that launches bound; a time that
`doctor --calibrate` measured takes its place."""


class StepTime(NamedTuple):
    """Seconds of one step, and the limit that sets most of them."""

    seconds: float
    bound: str
    """launches, compute or bandwidth."""


def step_time(trace: Trace, card: GpuProfile, rates: ReachedShares = INFERENCE) -> StepTime:
    """Time of one step of `trace` on `card`; the host launches ahead of the card."""
    seconds = {"compute": 0.0, "bandwidth": 0.0}
    for op in trace.ops:
        compute_s = op.flops / (rates.compute[op.kind] * _peak_flops(card, op))
        memory_s = op.bytes / (rates.bandwidth * card.bandwidth_gb_per_s * 1e9)
        longest = max(compute_s, memory_s, KERNEL_S)
        seconds["compute" if compute_s > memory_s else "bandwidth"] += longest
    launch_s = (card.launch_s or LAUNCH_S) * len(trace.ops)
    card_s = sum(seconds.values())
    if launch_s >= card_s:
        return StepTime(launch_s, "launches")
    return StepTime(card_s, max(seconds, key=lambda limit: seconds[limit]))


def _peak_flops(card: GpuProfile, op: Operation) -> float:
    """Operations of this kind a second on the card."""
    on_tensor_cores = card.tflops(op.dtype) if op.dtype != "float32" else None
    if on_tensor_cores is None:
        return card.fp32_tflops * 1e12
    steady = (
        "GeForce" in card.title or card.measured_on or op.kind not in (MATRIX, CONVOLUTION)
    )
    return on_tensor_cores * 1e12 * (1.0 if steady else STEADY_CLOCK)


WORKSPACE_GIB = 8.125 / 1024
"""cuBLAS's own memory: 2 x 4096 KiB and 8 x 16 KiB, torch's default but for Hopper.

Source of both: `parseChosenWorkspaceSize` of torch's CublasHandlePool.cpp."""
HOPPER_WORKSPACE_GIB = 32 / 1024
HOPPER = "9.0"
"""Its compute capability: H100, H200, GH200."""
FITS_SHARE = 0.9
"""Share of usable memory that the largest batch may need.

Judgement, on top of `profiles.MARGIN`: both leave 19.3 GiB of an RTX 3090 to what is reserved. The
record, benchmarks/results/prediction.md, is of 22.3 GiB, so some batches that fit are left out."""
MEMORY_ERROR = 0.15
"""Error of a predicted peak; judgement, as no card of ours validated it.

Record: benchmarks/results/prediction.md: 3.8 % at most beside torch's own tracker; whether a batch
fits was right for 302 of 305 published ones. A guide's model was 25 % too high."""
LARGEST_BATCH = 1 << 16
"""Largest batch that is predicted, where the data set does not bound it.

Judgement: a line through two traced batches is not believed any farther."""
DOUBLINGS = 16
"""Halvings and doublings of the traced batch that are tried."""
TIE = 0.05
"""A batch whose rate is better by more is worth its memory.

Judgement: too small suggests the largest batch for a gain within the error of the estimate."""
GIB = 1024.0**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """Program as it was traced here."""

    run: Run
    step: Trace
    """At the batch as configured."""
    line: tuple[Trace, Trace] | None = None
    """Traces of two batches, maybe its own, that give any other."""
    measured_on: GpuProfile | None = None
    """This host's card that ran the program, if its profile is known."""
    ran: Trace | None = None
    """Trace that was timed here, where `step` is of another precision."""

    @property
    def largest(self) -> int:
        """Largest batch worth a look."""
        return min(LARGEST_BATCH, self.run.effects.data_items or LARGEST_BATCH)

    @property
    def sizes(self) -> list[float]:
        """Batches of a figure: doublings and halves of the configured one."""
        sizes = (self.step.batch * 2.0**n for n in range(-DOUBLINGS, DOUBLINGS))
        return [size for size in sizes if size >= 1 and size.is_integer()]

    @property
    def rates(self) -> ReachedShares:
        """Shares of peak rates that such programs reach."""
        return TRAINING if self.run.trains else INFERENCE

    def error(self, card: GpuProfile) -> float | None:
        """Error that published rates of such programs on `card` support, or None."""
        if self.measured_on is not None:
            return TRANSFER_ERROR
        half = self.run.effects.dtype in ("float16", "bfloat16")
        return VALIDATED.get((card.name, self.run.trains)) if half else None

    def computed_in(self, dtype: str) -> Self:
        """Copy with 32-bit products in `dtype`."""
        line = self.line and (
            self.line[0].computed_in(dtype),
            self.line[1].computed_in(dtype),
        )
        ran = self.ran or self.step  # one measurement scales the figures of all precisions
        return replace(self, step=self.step.computed_in(dtype), line=line, ran=ran)

    def precision_on(self, card: GpuProfile) -> str:
        """Precision of its 32-bit products on a card: `float32`, `tf32`, or one for each kind."""
        wide = {op.dtype for op in self.step.ops if op.flops} & {"float32", "tf32"}
        dtypes = wide if card.tf32_tflops else {"float32"}
        return " and ".join(sorted(dtypes)) or "float32"

    def at(self, batch: float) -> Trace:
        if self.line is None or batch == self.step.batch:
            return self.step
        return at_batch(*self.line, batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Speed, memory and price of one batch on one card, as in `--json`."""

    card: str
    batch: float
    precision: str | None = None
    """Precision of products, if not the program's own."""
    suggested: bool = False
    """Smallest batch whose rate ties with the best that fits."""
    largest_batch: bool = False
    fits: bool
    units_per_s: float
    units_per_s_range: tuple[float, float]
    step_ms: float
    bound: str
    memory_gib: float
    memory_gib_range: tuple[float, float]
    allocated_gib: float
    """Peak memory of tensors alone, without the allocator's rounding and the context."""
    speed_validated: bool
    price_of_1000: float | None
    """Price of 1,000 units; None: no price is known."""
    price_of_1000_range: tuple[float, float] | None


def estimates(
    traced: Traced, cards: Sequence[GpuProfile], prices: Mapping[str, float]
) -> list[Estimate]:
    """Figures of each card at the configured, suggested and largest batch."""
    batch_here = traced.step.batch
    made: list[Estimate] = []
    for card in cards:
        largest = largest_batch(traced, card)
        best = suggested_batch(traced, card, largest) if largest else None
        for batch in sorted({batch_here, best or batch_here, largest or batch_here}):
            estimate = estimate_of(traced, card, batch, prices.get(card.name))
            made.append(
                replace(estimate, suggested=batch == best, largest_batch=batch == largest)
            )
    return made


def precisions(
    traced: Traced, autocast: Traced | None, cards: Sequence[GpuProfile]
) -> list[Estimate]:
    """Figures of each card at the suggested batch of its precisions, the program's own first.

    Those of its own precision are those of `estimates`: one page holds one figure of a thing.
    `autocast` is the program as traced under bfloat16; without it that precision is left out.
    """
    others = {"tf32": traced.computed_in("tf32")}
    others |= {"bfloat16": autocast} if autocast else {}
    made = []
    for card in cards:
        supported = {name: variant for name, variant in others.items() if card.tflops(name)}
        variants = {traced.precision_on(card): traced}
        variants = {**variants, **supported, **variants}  # its own first, and as it is
        for dtype, variant in variants.items():
            largest = largest_batch(variant, card)
            best = (
                suggested_batch(variant, card, largest) if largest else variant.step.batch
            )
            made.append(replace(estimate_of(variant, card, best), precision=dtype))
    return made


def largest_batch(traced: Traced, card: GpuProfile) -> float | None:
    """Largest batch that fits; None if no other batch is known, or not even one item fits.

    Found by bisection, which takes it that a larger batch needs no less memory.
    """
    if traced.line is None:
        return None
    room, batches = room_gib(card) * GIB, range(1, traced.largest + 1)
    too_large = bisect.bisect_left(
        batches, True, key=lambda batch: not fits(traced.at(batch), room)
    )
    return float(too_large) or None  # an index, of batches that count from 1


def suggested_batch(traced: Traced, card: GpuProfile, largest: float) -> float:
    """Smallest of `largest` and sizes below that ties with the best."""
    sizes = [*(size for size in traced.sizes if size < largest), largest]
    times = (step_time(traced.at(size), card, traced.rates).seconds for size in sizes)
    rates = [size / seconds for size, seconds in zip(sizes, times, strict=True)]
    return next(
        s for s, rate in zip(sizes, rates, strict=True) if rate >= max(rates) / (1 + TIE)
    )


def room_gib(card: GpuProfile) -> float:
    """Card memory for what the program reserves."""
    return FITS_SHARE * profiles.usable_gib(card) - workspace_gib(card)


def workspace_gib(card: GpuProfile) -> float:
    """What torch gives to cuBLAS on that card, for one stream."""
    return HOPPER_WORKSPACE_GIB if card.compute_capability == HOPPER else WORKSPACE_GIB


def estimate_of(
    traced: Traced, card: GpuProfile, batch: float, price_per_hour: float | None = None
) -> Estimate:
    """Figures of one batch on one card; `price_per_hour` in whatever currency it was told.

    The rate starts from the one measured here, whose units need not be items of the batch: a
    step of twice the items in the same time is twice the rate, whatever it counts.
    """
    trace, room = traced.at(batch), room_gib(card) * GIB
    fitting = fits(trace, room)
    peak = peak_of(trace, room) if fitting else peak_of(trace)
    took = step_time(trace, card, traced.rates)
    run, seconds = traced.run, took.seconds
    own_s = (run.step_ms or 0.0) / 1000
    if traced.measured_on is not None:
        timed = traced.ran or traced.step
        seconds *= own_s / step_time(timed, traced.measured_on, traced.rates).seconds
    error = None if took.bound == "launches" else traced.error(card)
    off = NOT_VALIDATED if error is None else error
    per_s = run.units_per_s * own_s / traced.step.batch * batch / seconds
    slow, fast = per_s / (1 + off), per_s / (1 - off)
    price = price_per_hour / 3.6 if price_per_hour else None
    memory_gib = peak.reserved / GIB + card.context_mib / 1024 + workspace_gib(card)
    return Estimate(
        card=card.name,
        batch=batch,
        fits=fitting,
        units_per_s=per_s,
        units_per_s_range=(slow, fast),
        step_ms=1000 * seconds,
        bound=took.bound,
        memory_gib=memory_gib,
        memory_gib_range=(memory_gib * (1 - MEMORY_ERROR), memory_gib * (1 + MEMORY_ERROR)),
        allocated_gib=peak.allocated / GIB,
        speed_validated=error is not None,
        price_of_1000=price / per_s if price else None,
        price_of_1000_range=(price / fast, price / slow) if price else None,
    )

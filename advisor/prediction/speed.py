"""Time of a step on a card: a roofline over its operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from advisor.prediction.trace import ATTENTION, CONVOLUTION, GROUPED, MATRIX, OTHER

if TYPE_CHECKING:
    from advisor.model import GpuProfile
    from advisor.prediction.trace import Trace


class Rates(NamedTuple):
    """Shares of a card's peak rates that programs reach."""

    compute: dict[int, float]
    """By class of operation."""
    bandwidth: float


INFERENCE = Rates(
    compute={MATRIX: 0.9, CONVOLUTION: 0.9, GROUPED: 0.4, ATTENTION: 0.9, OTHER: 1.0},
    bandwidth=0.7,
)
"""Fitted on 52 models of timm's published RTX 3090 table (autocast, inference).

On the 208 others the median error was 13 %, and 9 in 10 were within 26 %. On 260 of the RTX 4090
table, of which none was fitted, these were 17 and 47 %.
"""
TRAINING = Rates(
    compute={MATRIX: 0.9, CONVOLUTION: 0.9, GROUPED: 0.1, ATTENTION: 0.18, OTHER: 1.0},
    bandwidth=0.5,
)
"""Fitted on 32 models of timm's published RTX 3090 table (autocast, training).

On the 128 others the median error was 14 %, and 9 in 10 were within 49 %.
"""
VALIDATED = {
    ("rtx-3090", False): 0.35,
    ("rtx-3090", True): 0.5,
    ("rtx-4090", False): 0.5,
    ("a100-80", True): 0.4,
    ("a100-40", True): 0.4,
}
"""Errors of 9 in 10 models that were not fitted, rounded up, by card and `trains`.

Image models on the RTX cards, language models on the A100, in 16 bits.
"""
NOT_VALIDATED = 0.6
"""Error that is assumed elsewhere.

Of 62 rows of language models in float32 on six cards, none fitted, 9 in 10 were within 54 %.
"""
TRANSFER_ERROR = 0.3
"""Error where the program was timed on another card."""
KERNEL_S = 3e-6
"""Least time of a kernel on the card."""
LAUNCH_S = 6e-6
"""Time of the host to launch one operation of an eager program."""


class StepTime(NamedTuple):
    """Seconds of one step, and the limits that set them."""

    seconds: float
    compute_s: float
    """Of operations that the arithmetic rate limits."""
    bandwidth_s: float
    launch_s: float
    """Of the host, which launches ahead of the card."""

    @property
    def bound(self) -> str:
        """The limit of the largest part."""
        if self.launch_s >= self.seconds:
            return "launches"
        return "compute" if self.compute_s >= self.bandwidth_s else "bandwidth"


def step_time(trace: Trace, card: GpuProfile, rates: Rates = INFERENCE) -> StepTime:
    """Time of one step of `trace` on `card`."""
    seconds = {"compute": 0.0, "bandwidth": 0.0}
    for op in trace.ops:
        peak = (card.tflops(op.dtype) or card.fp32_tflops) * 1e12
        compute_s = op.flops / (rates.compute[op.kind] * peak)
        memory_s = op.bytes / (rates.bandwidth * card.bandwidth_gb_per_s * 1e9)
        longest = max(compute_s, memory_s, KERNEL_S)
        seconds["compute" if compute_s > memory_s else "bandwidth"] += longest
    launch_s = LAUNCH_S * len(trace.ops)
    return StepTime(
        seconds=max(seconds["compute"] + seconds["bandwidth"], launch_s),
        compute_s=seconds["compute"],
        bandwidth_s=seconds["bandwidth"],
        launch_s=launch_s,
    )

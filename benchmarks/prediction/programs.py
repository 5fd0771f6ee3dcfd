"""Peaks of 30 small programs: predicted from batches 4 and 8 for 32, against torch's MemTracker.

MemTracker counts the bytes of a real step at batch 32. Nothing was fitted.
"""

import itertools
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.checkpoint import checkpoint

from advisor.prediction.allocator import peak_of
from advisor.prediction.trace import at_batch
from benchmarks.prediction.tracing import traced

SMALL, LARGE, ASKED = 4, 8, 32
SETUPS = ("sgd", "adam", "autocast", "accumulation", "checkpointing", "inference")


def _convolution(inputs: int, outputs: int) -> nn.Module:
    norm = nn.BatchNorm2d(outputs)
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), norm, nn.ReLU())


class UNet(nn.Module):
    """Two levels with a skip; `timed`: as a denoiser that is told the noise's level."""

    def __init__(self, *, timed: bool) -> None:
        super().__init__()
        self.level = nn.Linear(1, 32) if timed else None
        self.first, self.deep = _convolution(3, 32), _convolution(32, 64)
        self.up, self.last = nn.ConvTranspose2d(64, 32, 2, stride=2), nn.Conv2d(64, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        high = self.first(x)
        if self.level is not None:
            high = high + self.level(torch.rand(len(x), 1))[:, :, None, None]
        low = self.deep(nn.functional.max_pool2d(high, 2))
        return self.last(torch.cat([high, self.up(low)], dim=1))


class Words(nn.Module):
    """Transformer over words."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(128, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x))


class Recurrent(nn.Module):
    """Two layers of LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(64, 128, 2, batch_first=True), nn.Linear(128, 100)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0])


FAMILIES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "cnn": (lambda: nn.Sequential(*itertools.starmap(
        _convolution, itertools.pairwise((3, 32, 64, 64, 128)))), (3, 48, 48)),
    "u-net": (lambda: UNet(timed=False), (3, 64, 64)),
    "transformer": (Words, (64, 128)),
    "lstm": (Recurrent, (64, 64)),
    "diffusion": (lambda: UNet(timed=True), (3, 64, 64)),
}  # fmt: skip


class Program:
    """One family in one setup."""

    def __init__(self, family: str, setup: str, batch: int) -> None:
        build, shape = FAMILIES[family]
        self.setup = setup
        self.model = build()
        self.x = torch.rand(batch, *shape)
        self.model.train(setup != "inference")
        adam = torch.optim.AdamW if setup in ("adam", "autocast") else torch.optim.SGD
        self.optimizer: Any = None
        if setup != "inference":
            self.optimizer = adam(self.model.parameters(), lr=1e-3, foreach=True)

    def step(self, after_part: Callable[[], object] = dict) -> None:
        """One update, or one forward."""
        if self.optimizer is None:
            with torch.no_grad():
                self.model(self.x)
            after_part()
            return
        parts = self.x.chunk(2) if self.setup == "accumulation" else (self.x,)
        self.optimizer.zero_grad()
        for part in parts:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.setup == "autocast"):
                if self.setup == "checkpointing":
                    out = checkpoint(self.model, part, use_reentrant=False)
                else:
                    out = self.model(part)
            out.float().square().mean().backward()
            after_part()
        self.optimizer.step()


def tracked(family: str, setup: str) -> float:
    """Peak bytes of a real step at the large batch, by MemTracker."""
    program, tracker = Program(family, setup, ASKED), MemTracker()
    external = (program.model, program.optimizer, program.x)
    tracker.track_external(*filter(lambda each: each is not None, external))
    with tracker:
        program.step(tracker.reset_mod_stats)
        program.step(tracker.reset_mod_stats)
    peaks = tracker.get_tracker_snapshot("peak")
    return float(sum(peak["Total"] for peak in peaks.values()))


def predicted(family: str, setup: str) -> float:
    """Peak bytes at the large batch, from two smaller ones."""
    found = []
    for batch in (SMALL, LARGE):
        program = Program(family, setup, batch)
        found.append(traced(program.step, batch, program.optimizer))
    return peak_of(at_batch(*found, ASKED)).allocated


def main() -> None:
    """Print each error, and their median."""
    off = []
    for family, setup in itertools.product(FAMILIES, SETUPS):
        # oneDNN computes no LSTM of 16 bits on most CPUs, torch itself does
        torch.backends.mkldnn.enabled = (family, setup) != ("lstm", "autocast")
        ours, truth = predicted(family, setup), tracked(family, setup)
        off.append(abs(ours / truth - 1))
        print(f"{family:<12} {setup:<14} {ours / 2**20:8.1f} MiB of {truth / 2**20:8.1f}")
    print(f"{len(off)} programs: median error {statistics.median(off):.1%}, most {max(off):.1%}")

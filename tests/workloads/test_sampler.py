"""The sampler of the terrain workload: what its steps and a batch may change of a fill."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "benchmarks" / "workloads" / "dem_completion" / "diffusion.py"
diffusion = SimpleNamespace(**runpy.run_path(str(SOURCE)))
Denoiser = torch.nn.Module
SEEDS = [3, 4]
LAST_LOG_SIGNAL = -45.0
"""Of a thousand steps from 0.0001 to 0.09: every schedule here leaves as little at its end."""


class Prior(Denoiser):
    """The best denoiser of fills that are standard normal: it expects `sqrt(gamma)` times them."""

    def __init__(self, confidence: float = 1.0) -> None:
        super().__init__()
        self.confidence = confidence

    def forward(self, noisy: Tensor, condition: Tensor, gamma: Tensor) -> Tensor:
        del condition
        signal, hidden = gamma.sqrt()[:, None, None, None], (1 - gamma).sqrt()[:, None, None, None]
        clean = self.confidence * signal * noisy
        return (signal * noisy - clean) / hidden


def schedule(steps: int) -> NDArray[np.float64]:
    """Betas of as many steps, which end at one level of signal."""
    low, high = 1e-4, 1 - 1e-6
    while high - low > 1e-9:
        middle = (low + high) / 2
        too_little = np.log1p(-diffusion.betas("linear", steps, 1e-4, middle)).sum()
        low, high = (middle, high) if too_little > LAST_LOG_SIGNAL else (low, middle)
    return diffusion.betas("linear", steps, 1e-4, low)


def fills(steps: int, denoiser: Denoiser | None = None, seeds: list[int] = SEEDS) -> Tensor:
    condition = torch.zeros(len(seeds), 3, 8, 8)
    condition[:, 1, 2:6, 2:6] = 1
    return diffusion.sample(denoiser or Prior(), condition, schedule(steps), seeds)


@pytest.mark.parametrize("steps", [500, 250, 100])
def test_equal_seeds_give_comparable_fills_whatever_the_steps(steps) -> None:
    """They differ by less than a twentieth, where other seeds differ by all of it."""
    many, fewer, other = fills(1000), fills(steps), fills(1000, seeds=[5, 6])
    size = many.square().mean().sqrt()
    assert (fewer - many).square().mean().sqrt() < 0.05 * size
    assert (other - many).square().mean().sqrt() > 0.5 * size


def test_a_denoiser_that_is_clipped_at_every_step_does_not_diverge() -> None:
    """Its noise is told by the clipped fill; a thousand steps by the unclipped one overflow."""
    fill = fills(1000, Prior(confidence=50.0))
    assert fill.abs().max() <= diffusion.CLIP


def test_a_tile_is_filled_alike_in_any_batch_and_only_inside_its_void() -> None:
    both, alone = fills(50), fills(50, seeds=SEEDS[1:])
    assert torch.allclose(both[1:], alone, atol=1e-6)
    assert both[:, :, 0].abs().max() == 0

"""Language models of two published tables: NeuSight's, in float32, and llm-foundry's, in bfloat16.

Of NeuSight's rows, none of which was fitted, those are read whose card has a profile, of one GPU,
without fusion and without experts. The step of llm-foundry is one micro-batch of one GPU: the
optimizer and the exchange between GPUs are left out. Every fifth of its rows chose the rate of
attention in training and that of matrix products on cards other than GeForce.
"""

import csv
import functools
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from advisor.machine import profiles
from advisor.prediction import estimate
from advisor.prediction.estimate import ReachedShares
from advisor.prediction.trace import Trace
from benchmarks.prediction.errors import Pair, errors
from benchmarks.prediction.tracing import traced


class Shape(NamedTuple):
    """Size of a transformer."""

    layers: int
    width: int
    heads: int
    words: int


PUBLISHED = {
    "bert_large": Shape(24, 1024, 16, 30522), "gpt2_large": Shape(36, 1280, 20, 50257),
    "gpt3_xl": Shape(24, 2048, 16, 50257), "gpt3_27": Shape(32, 2560, 32, 50257),
    "opt_13": Shape(24, 2048, 32, 50272), "125m": Shape(12, 768, 12, 50368),
    "350m": Shape(24, 1024, 16, 50368), "760m": Shape(24, 1536, 12, 50368),
    "1b": Shape(24, 2048, 16, 50368), "3b": Shape(32, 2560, 20, 50368),
    "7b": Shape(32, 4096, 32, 50368), "13b": Shape(40, 5120, 40, 50368),
    "30b": Shape(48, 7168, 56, 50368), "70b": Shape(80, 8192, 64, 50368),
}  # fmt: skip
CARDS = {
    "NVIDIA_A100_80GB_PCIe": "a100-80-pcie", "NVIDIA_A100-PCIE-40GB": "a100-40-pcie",
    "NVIDIA_L4": "l4", "Tesla_V100-PCIE-32GB": "v100-pcie-32", "Tesla_T4": "t4",
    "NVIDIA_H100_80GB_HBM3": "h100-sxm", "a100_80gb": "a100-80", "a100_40gb": "a100-40",
}  # fmt: skip
METHODS = ("neusight", "roofline", "habitat")


class Block(nn.Module):
    """Layer of a transformer, with its attention in one operation or in three."""

    def __init__(self, shape: Shape, *, fused: bool) -> None:
        super().__init__()
        width = shape.width
        self.heads, self.fused = shape.heads, fused
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.inward(self.norms[0](x)).chunk(3, dim=-1)
        q, k, v = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts)
        if self.fused:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
            mixed = (scores + 0.0).softmax(dim=-1) @ v
        x = x + self.outward(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


@functools.cache
def step_of(
    name: str,
    layers: int,
    length: int,
    batch: int,
    *,
    trains: bool,
    half: bool,
    recomputes: bool = False,
) -> Trace:
    """Trace of one forward, or of one forward and backward, with so many layers."""
    shape = PUBLISHED[name]
    dtype = torch.bfloat16 if half else torch.float32
    torch.set_default_dtype(dtype)
    with FakeTensorMode(allow_non_fake_inputs=True):
        blocks = nn.ModuleList(Block(shape, fused=half) for _ in range(layers))
        words, head = nn.Embedding(shape.words, shape.width), nn.Linear(shape.width, shape.words)
        model = nn.ModuleList([words, blocks, head])
        ids = torch.zeros(batch, length, dtype=torch.long)

        def step() -> None:
            model.zero_grad()
            with torch.set_grad_enabled(trains):
                x = model[0](ids)
                for block in model[1]:  # type: ignore[union-attr]
                    x = checkpoint(block, x, use_reentrant=False) if recomputes else block(x)
                out = model[2](x)
            if trains:
                functional.cross_entropy(out.float().flatten(0, 1), ids.flatten()).backward()

        return traced(step, batch, warm=False)


def seconds(
    card: str, rates: ReachedShares, name: str, length: int, batch: int, **how: bool
) -> float:
    """Predicted time of a step: all layers are alike, so that two of them tell it."""
    profile = profiles.by_name(card)
    one, two = (
        estimate.step_time(step_of(name, layers, length, batch, **how), profile, rates).seconds
        for layers in (1, 2)
    )
    return one + (PUBLISHED[name].layers - 1) * (two - one)


def compare(table: Path, fitted: int) -> None:
    """Print the errors of each card, beside those of the methods in the table.

    Of llm-foundry's rows every `fitted`th chose the rates, and is left out.
    """
    with table.open() as file:
        rows = list(csv.DictReader(file))
    if "model_name" in rows[0]:
        found = _neusight(rows)
    else:
        found = _foundry([row for number, row in enumerate(rows) if number % fitted])
    for method in next(iter(found.values())):
        whole: list[Pair] = []
        for card, pairs in found.items():
            whole += pairs[method]
            if method == "predicted":
                print(f"  {card}, {len(pairs[method])} rows: {errors(pairs[method])}")
        print(f"{method}, {len(whole)} rows: {errors(whole)}")


def _neusight(rows: list[dict[str, str]]) -> dict[str, dict[str, list[Pair]]]:
    found: dict[str, dict[str, list[Pair]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        name, card = row["model_name"], CARDS.get(row["device"])
        if card is None or row["option"] or name not in PUBLISHED:
            continue
        trains = row["mode"] == "train"
        rates = estimate.TRAINING if trains else estimate.INFERENCE
        length, batch = int(row["seqlen"]), int(row["batch"])
        took = seconds(card, rates, name, length, batch, trains=trains, half=False)
        measured = float(row["label_all_e2e_latency"])
        found[card]["predicted"].append((1000 * took, measured))
        for method in METHODS:
            if text := row.get(f"{method}_all_e2e_latency"):
                found[card][method].append((float(text), measured))
    return found


def _foundry(rows: list[dict[str, Any]]) -> dict[str, dict[str, list[Pair]]]:
    found: dict[str, dict[str, list[Pair]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        length, batch = int(row["SeqLen (T)"]), int(row["MicroBatchSize"])
        recomputes = row["Activation Checkpointing"] == "True"
        card = CARDS[row["GPU"]]
        how = {"trains": True, "half": True, "recomputes": recomputes}
        took = seconds(card, estimate.TRAINING, row["Model"], length, batch, **how)
        rate = float(row["Throughput (T/s/GPU)"])
        found[card]["predicted"].append((length * batch / took, rate))
    return found

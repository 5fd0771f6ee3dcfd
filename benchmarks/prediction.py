"""Errors of predicted rates against published ones of image models.

    python -m benchmarks.prediction TABLE.csv --card rtx-3090 [--models 60] [--fitted 5]

TABLE is a result file of pytorch-image-models (https://github.com/huggingface/pytorch-image-models,
folder `results`), of inference or training, AMP, channels last; `pip install timm` brings the
models. Each is traced by the recorder's own mode over tensors without data. The rates in
`advisor/prediction/speed.py` were chosen on every fifth row of the RTX 3090 tables; the errors
are of the others. The baseline divides the operations by the card's peak rate.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import statistics
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from advisor.machine import profiles
from advisor.prediction import speed
from advisor.prediction.trace import Trace, parse
from advisor.probe.op_trace import OpTrace

SEED = 7
KEYS = ("samples_per_sec", "batch_size", "img_size")


class Row(NamedTuple):
    """One published rate."""

    model: str
    rate: float
    batch: int
    size: int


def read(table: Path) -> tuple[list[Row], bool]:
    """Rows in an order drawn once, and True for training."""
    with table.open() as file:
        rows = list(csv.DictReader(file))
    trains = "train_samples_per_sec" in rows[0]
    names = [f"{'train' if trains else 'infer'}_{key}" for key in KEYS]
    found = [
        Row(
            row["model"], float(row[names[0]]), int(float(row[names[1]])), int(float(row[names[2]]))
        )
        for row in rows
    ]
    random.Random(SEED).shuffle(found)
    return found, trains


def traced(row: Row, *, trains: bool) -> Trace:
    """Trace of one step of the model, over tensors without data."""
    import timm
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        model = timm.create_model(row.model, pretrained=False, img_size=row.size)
    except TypeError:
        model = timm.create_model(row.model, pretrained=False)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    for module in model.modules():
        for name, value in list(module.named_parameters(recurse=False)):
            data = fake.from_tensor(value.detach())
            module.register_parameter(name, torch.nn.Parameter(data, value.requires_grad))
        for name, value in list(module.named_buffers(recurse=False)):
            module.register_buffer(name, fake.from_tensor(value))
    with fake:
        images = torch.randn(row.batch, 3, row.size, row.size)
        labels = torch.zeros(row.batch, dtype=torch.long)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9) if trains else None
        model.train(trains)

        def step() -> None:
            with torch.set_grad_enabled(trains), torch.autocast("cpu", torch.bfloat16):
                out = model(images)
            if optimizer is not None:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(out.float(), labels).backward()
                optimizer.step()

        step()
        trace = OpTrace(SimpleNamespace(torch=torch, fetching=False), optimizer)
        trace.begin()
        step()
        return parse(json.loads(json.dumps(trace.end()))["trace"], row.batch)


def errors(pairs: list[tuple[float, float]]) -> str:
    """Median and 90th percentile of the relative errors."""
    found = sorted(abs(predicted / rate - 1) for predicted, rate in pairs)
    return (
        f"median {statistics.median(found):.1%}, 90th percentile {found[int(0.9 * len(found))]:.1%}"
    )


def ranked(pairs: list[tuple[float, float]]) -> float:
    """Share of pairs of models whose order is right."""
    both = [(one, other) for at, one in enumerate(pairs) for other in pairs[:at]]
    return statistics.fmean((a[0] > b[0]) == (a[1] > b[1]) for a, b in both)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--card", required=True)
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--fitted", type=int, default=5, help="leave out one row in so many")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    card = profiles.by_name(args.card)
    rows, trains = read(args.table)
    rates = speed.TRAINING if trains else speed.INFERENCE
    found: list[tuple[float, float]] = []
    naive: list[tuple[float, float]] = []
    number = 0
    for row in rows:
        if len(found) == args.models:
            break
        try:
            trace: Any = traced(row, trains=trains)
        except Exception as problem:  # a model that this version does not hold, or cannot trace
            sys.stderr.write(f"{row.model}: {type(problem).__name__}\n")
            continue
        number += 1
        if args.fitted and number % args.fitted == 1:
            continue
        found.append((row.batch / speed.step_time(trace, card, rates).seconds, row.rate))
        peak = (card.tflops("bfloat16") or card.fp32_tflops) * 1e12
        naive.append((row.batch * peak / sum(op.flops for op in trace.ops), row.rate))
        sys.stderr.write(f"{len(found)} {row.model}: {found[-1][0]:.0f} of {row.rate:.0f}\n")
    print(f"{card.title}, {'training' if trains else 'inference'}, {len(found)} models not fitted:")
    print(f"  predicted: {errors(found)}; order right in {ranked(found):.1%} of pairs")
    print(f"  operations over the peak rate: {errors(naive)}; order {ranked(naive):.1%}")


if __name__ == "__main__":
    main()

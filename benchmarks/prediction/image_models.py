"""Image models of timm's published result tables: speed, speed from another card, memory.

The rates in `advisor/prediction/estimate.py` were chosen on every fifth row of the RTX 3090 tables;
the errors are of the others. The baseline divides the operations by the card's peak rate.
"""

import csv
import math
import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from advisor.machine import profiles
from advisor.prediction import estimate
from advisor.prediction.allocator import fits, peak_of
from advisor.prediction.estimate import GIB
from advisor.prediction.trace import Trace
from advisor.probe.cuda_stand_in import autocast_as_on_card
from benchmarks.prediction.errors import Pair, errors, ranked
from benchmarks.prediction.tracing import traced, without_data

SEED = 7
KEYS = ("samples_per_sec", "batch_size", "img_size")
FIRST_BATCH = 256
"""A table's runs began there or at twice that, and took the next smaller one until it fitted."""
ROOM_GIB = 22.3
"""Memory of an RTX 3090 that torch for CUDA 11 could reserve, by public out-of-memory messages."""


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
    rate, batch, size = (f"{'train' if trains else 'infer'}_{key}" for key in KEYS)
    found = [
        Row(row["model"], float(row[rate]), int(float(row[batch])), int(float(row[size])))
        for row in rows
    ]
    random.Random(SEED).shuffle(found)
    return found, trains


def step_of(row: Row, batch: int, *, trains: bool) -> Trace:
    """Trace of one step of the model.

    The torch 1.12 of the training table had no fused attention, nor has timm 0.6; it updated
    parameters one by one and kept gradients.
    """
    import timm

    if hasattr(timm, "layers"):
        timm.layers.set_fused_attn(not trains)
    try:
        model = timm.create_model(row.model, pretrained=False, img_size=row.size)
    except TypeError:
        model = timm.create_model(row.model, pretrained=False)
    with without_data(model):
        images = torch.randn(batch, 3, row.size, row.size)
        labels = torch.zeros(batch, dtype=torch.long)
        sgd = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)
        optimizer = sgd if trains else None
        model.train(trains)

        def step() -> None:
            with torch.set_grad_enabled(trains), torch.autocast("cpu", torch.bfloat16):
                out = model(images)
            if optimizer is not None:
                optimizer.zero_grad(set_to_none=False)
                torch.nn.functional.cross_entropy(out.float(), labels).backward()
                optimizer.step()

        return traced(step, batch, optimizer)


def rows_with_traces(
    table: Path, models: int, fitted: int = 0
) -> Iterator[tuple[Row, Trace, bool]]:
    """Rows that were not fitted with their traces; a model that cannot be traced is left out."""
    warnings.filterwarnings("ignore")
    autocast_as_on_card(torch)
    rows, trains = read(table)
    number = found = 0
    for row in rows:
        if found == models:
            return
        try:
            trace = step_of(row, row.batch, trains=trains)
        except Exception as problem:  # a model that this version does not hold, or cannot trace
            sys.stderr.write(f"{row.model}: {type(problem).__name__}\n")
            continue
        number += 1
        if not fitted or number % fitted != 1:
            found += 1
            yield row, trace, trains


def compare_speed(table: Path, card: str, models: int, fitted: int) -> None:
    """Print the errors of predicted rates."""
    profile = profiles.by_name(card)
    found: list[Pair] = []
    naive: list[Pair] = []
    peak = (profile.tflops("bfloat16") or profile.fp32_tflops) * 1e12
    for row, trace, trains in rows_with_traces(table, models, fitted):
        rates = estimate.TRAINING if trains else estimate.INFERENCE
        found.append((row.batch / estimate.step_time(trace, profile, rates).seconds, row.rate))
        naive.append((row.batch * peak / sum(op.flops for op in trace.ops), row.rate))
        sys.stderr.write(f"{len(found)} {row.model}: {found[-1][0]:.0f} of {row.rate:.0f}\n")
    print(f"{profile.title}, {table.name}, {len(found)} models not fitted:")
    print(f"  predicted: {errors(found)}; order right in {ranked(found):.1%} of pairs")
    print(f"  operations over the peak rate: {errors(naive)}; order {ranked(naive):.1%}")


def compare_transfer(table: Path, card: str, source_table: Path, source: str, models: int) -> None:
    """Print the errors of rates on one card that were predicted from those on another."""
    known = {(row.model, row.size): row.rate for row in read(source_table)[0]}
    target, other = profiles.by_name(card), profiles.by_name(source)
    found: list[Pair] = []
    for row, trace, trains in rows_with_traces(table, models):
        if (rate := known.get((row.model, row.size))) is None:
            continue
        rates = estimate.TRAINING if trains else estimate.INFERENCE
        there, here = (estimate.step_time(trace, each, rates).seconds for each in (target, other))
        found.append((rate * here / there, row.rate))
    print(f"{target.title} from rates of {other.title}, {len(found)} models: {errors(found)}")


def next_larger(batch: int) -> int | None:
    """Batch that the table tried before this one; None where it began with it."""
    if batch >= FIRST_BATCH:
        return None
    power = 2 ** int(math.log2(batch))
    return batch + power // 2 if power > 1 else batch + 1


def compare_fits(table: Path, models: int) -> None:
    """Print how often a batch that fitted is said to fit, and one that did not is said not to."""
    right, asked = Counter[bool](), Counter[bool]()
    off_gib = []
    for row, trace, trains in rows_with_traces(table, models):
        larger = next_larger(row.batch)
        tried = {True: trace} | ({False: step_of(row, larger, trains=trains)} if larger else {})
        for fitted, each in tried.items():
            asked[fitted] += 1
            right[fitted] += fits(each, ROOM_GIB * GIB) == fitted
            if fits(each, ROOM_GIB * GIB) != fitted:
                off_gib.append(abs(peak_of(each).allocated / GIB - ROOM_GIB))
                sys.stderr.write(f"{row.model} {each.batch:g}: {off_gib[-1]:.1f} GiB off\n")
    print(f"{ROOM_GIB} GiB of room, {asked[True]} models:")
    print(f"  published batch fits: {right[True]} of {asked[True]}")
    print(f"  next larger does not: {right[False]} of {asked[False]}")
    print(f"  GiB of tensors from the room, where wrong: {sorted(round(g, 1) for g in off_gib)}")

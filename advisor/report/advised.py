"""The words for what is proven and not ours to write. Nothing is decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.report import numbers, retrained
from advisor.report.numbers import as_float
from advisor.report.sentences import TRAINS, seen
from advisor.report.surroundings import BESIDE_OTHERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.model import Advice

ADVICE = {
    "switch": "In the code: {code}.{seen}{cost}{caution}",
    "loader": "They stand in the code and no config key holds them.{caution}",
    "sharing": "Loader and model compute on the same {cpus}: workers alone take them from the "
    "model. {given}`torch.set_num_threads({threads})`, or `OMP_NUM_THREADS={threads}` before the "
    "command, leaves them room.{caution}",
    "buckets": "{padding} of the positions of its batches are padding, which is work for nothing; "
    "drawn from pools of items of like length it is {padding_after}. Give the DataLoader a "
    "`batch_sampler` that sorts some hundred batches by length, cuts them, and shuffles the "
    "batches.{reading}{caution}",
    "together": "{overlap}",
    "training-batch": "{trains}It changes how the model is trained, so it is yours to decide: one "
    "update then averages over {times} times the samples, the learning rate and its schedule "
    "have to follow, and an epoch has fewer updates. {start}{untaken}",
}

ADDS_UP = 0.9
"""Part of the product of single gains from which on they are told to add up."""
LOADER_ARGUMENTS = ("num_workers", "prefetch_factor", "persistent_workers")
FEEDING = ("DataLoader", "Batches")
"""How titles of advice begin that is about the data, not the model."""


def advised(advice: Advice) -> str:
    """The sentence of one advice."""
    data = dict(advice.data)
    cost, caution = data.get("cost_s"), data.get("caution")
    looked = seen(data)
    padding = [
        numbers.percent(as_float(data[name]))
        if data.get(name) is not None
        else numbers.NOT_MEASURED
        for name in ("padding_before", "padding_after")
    ]
    text = ADVICE[advice.kind].format(
        code=data.get("code"),
        seen=f" It stayed inside its guard{looked}." if looked else "",
        cost=f" It takes {as_float(cost):.0f} s once, at the start." if cost else "",
        reading=f" To read the length of every item took {numbers.duration(as_float(cost))} at the "
        "start; where yours are known from their files, give those."
        if cost
        else "",
        caution=f" Mind that {caution}." if caution else "",
        times=numbers.measure(as_float(data.get("times")), 3),
        start=retrained.where_to_start(data),
        untaken=retrained.untaken(data),
        padding=padding[0],
        padding_after=padding[1],
        overlap=overlap(advice) if advice.kind == "together" else "",
        cpus=numbers.many(int(as_float(data.get("cpus", 0))), "CPU"),
        threads=data.get("threads"),
        given=f"Give the DataLoader `{given}`. " if (given := arguments(data)) else "",
        trains=TRAINS.get(str(data.get("trains")), ""),
    )
    pairs = numbers.many(advice.gain.n, "interleaved pair")
    beside = f" {BESIDE_OTHERS}" if advice.stood_in else ""
    return f"{text} Measured in {pairs} of fresh processes.{beside}"


def arguments(data: Mapping[str, object]) -> str:
    """`num_workers=1, persistent_workers=True`; empty where the config holds them all."""
    return ", ".join(f"{name}={data[name]!r}" for name in LOADER_ARGUMENTS if name in data)


def overlap(advice: Advice) -> str:
    """How far the single gains add up, and what overlaps where they do not."""
    data = dict(advice.data)
    parts, product = str(data["parts"]).splitlines(), as_float(data["product"])
    reached = advice.gain.estimate / product
    told = f"The product of the {len(parts)} gains is {product:.2f}x"
    unpatched = str(data.get("unpatched") or "").splitlines()
    left = f" The patch leaves out what has none of its own: {', '.join(unpatched)}."
    left = left if unpatched and advice.patch else ""
    if reached >= ADDS_UP:
        return f"{told}, and {numbers.percent(reached)} of it was reached.{left}"
    feeds = [part for part in parts if part.startswith(FEEDING)]
    computes = [part for part in parts if part not in feeds]
    shared = [
        f"{' and '.join(those)} save parts of the same time, {what}"
        for those, what in ((feeds, "that of the data"), (computes, "that of the model"))
        if len(those) > 1
    ]
    if feeds and computes:
        shared.append(
            "once the data or the model is quicker, the other sets the pace, so that what speeds "
            "up the one hides what speeds up the other"
        )
    return f"{told}, and {numbers.percent(reached)} of it was reached: {'; '.join(shared)}.{left}"

"""The words for what is proven and not ours to write. Nothing is decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import numbers
from advisor.numbers import as_float
from advisor.report import retrained
from advisor.report.sentences import TRAINS, seen
from advisor.report.surroundings import BESIDE_OTHERS

if TYPE_CHECKING:
    from advisor.model import Advice

ADVICE = {
    "switch": "In the code: {code}.{seen}{cost}{caution}",
    "loader": "They stand in the code and no config key holds them.{caution}",
    "buckets": "{padding} of the positions of its batches are padding, which is work for nothing; "
    "drawn from pools of items of like length it is {padding_after}. Give the DataLoader a "
    "`batch_sampler` that sorts some hundred batches by length, cuts them, and shuffles the "
    "batches.{reading}{caution}",
    "together": "{overlap}",
    "training-batch": "{trains}It changes how the model is trained, so it is yours to decide: one "
    "update then averages over {times} times the samples, the learning rate and its schedule "
    "have to follow, and an epoch has fewer updates. {start}",
}

ADDS_UP = 0.9
"""Part of the product of single gains from which on they are told to add up."""
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
        padding=padding[0],
        padding_after=padding[1],
        overlap=overlap(advice) if advice.kind == "together" else "",
        trains=TRAINS.get(str(data.get("trains")), ""),
    )
    pairs = numbers.many(advice.gain.n, "interleaved pair")
    beside = f" {BESIDE_OTHERS}" if advice.stood_in else ""
    return f"{text} Measured in {pairs} of fresh processes.{beside}"


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

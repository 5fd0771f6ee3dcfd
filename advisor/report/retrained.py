"""The words for a batch that changes a training, and for the learning rate beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.report.numbers import as_float, measure
from advisor.tuner.training_batch import rule_for

if TYPE_CHECKING:
    from collections.abc import Mapping

UNTAKEN = {
    "no-rule": "no rule is known for the learning rate of its optimizer",
    "no-rate": "its learning rate stands in no config and no option",
    "budget": "the budget was spent before",
    "not-faster": "with its learning rate it was no faster",
    "rate-not-followed": "the program did not follow the learning rate that goes with it",
    "not-proven": "the gain was not proven",
}
"""Why a batch that was asked for was not written after all."""


def untaken(data: Mapping[str, object]) -> str:
    """Why --training-batch did not write it; empty where it was not given."""
    why = UNTAKEN.get(str(data.get("untaken")))
    return f" --training-batch did not write it: {why}." if why else ""


def rated(data: Mapping[str, object]) -> str:
    """What became of the learning rate beside a batch that is written."""
    if data.get("own"):
        return "and the program moved its learning rate itself"
    factor = measure(as_float(data.get("factor")), 3)
    return (
        f"and the learning rate is {factor} times what it was: the "
        f"{data.get('rule')} rule, as it steps with {data.get('optimizer')}"
    )


def where_to_start(data: Mapping[str, object]) -> str:
    """The learning rate that people begin with, by the rule for the optimizer that was seen."""
    times = as_float(data.get("times"))
    linear, root = f"{measure(times, 3)} times", f"{measure(times**0.5, 3)} times (the square root)"
    names = str(data.get("optimizer") or "")
    rules = {rule_for(name) for name in names.split(", ")}
    rule = rules.pop() if len(rules) == 1 else None
    if rule is None:
        return (
            f"Where people start: {linear} the rate with SGD, {root} with Adam; neither was tried "
            "here."
        )
    start = linear if rule[1] == 1.0 else root
    return (
        f"It steps with {names}, so people start at {start} the rate; `--training-batch` sets "
        "that, and writes both if the speed is proven."
    )

"""The learning rate beside a batch that changes a training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.numbers import as_float, measure
from advisor.tuner.grid_settled import rule_for

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    return f"It steps with {names}, so people start at {start} the rate; that was not tried here."

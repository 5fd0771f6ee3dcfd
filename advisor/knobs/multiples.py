"""What a comment beside a knob says it must be a multiple of: a bound on values, and no ban."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from advisor.knobs.catalogue import catalogue
from advisor.knobs.tree import number_of

if TYPE_CHECKING:
    from advisor.model import JsonScalar, Knob


def is_ban(comment: str | None, value: JsonScalar | tuple[JsonScalar, ...]) -> bool:
    """Whether `comment` says that `value` must be left alone."""
    said = comment or ""
    if multiple_of(comment, value) is not None:
        said = catalogue().comments["multiple"].sub(" ", said)
    return bool(catalogue().comments["constraint"].search(said))


def multiple_of(comment: str | None, value: JsonScalar | tuple[JsonScalar, ...]) -> float | None:
    """A number whose multiples are all right, where `comment` speaks of multiples; else None.

    It is the one number that is named, else `value`: what that is a multiple of (of devices, of
    another setting), its own multiples are too.
    """
    said = catalogue().comments["multiple"].search(comment or "")
    number = None if isinstance(value, tuple) else number_of(value)
    if said is None or comment is None or not number or number < 0:
        return None
    only = len(re.findall(r"\d+", comment)) == 1
    return float(said["divisor"]) if said["divisor"] and only else number


def no_multiple(knob: Knob, value: JsonScalar) -> str | None:
    """Why the comment beside `knob` rules out `value`; None if it does not."""
    step, number = multiple_of(knob.comment, knob.value), number_of(value)
    if not step or number is None or number % step == 0:
        return None
    return f'{value} is no multiple of {step:g}, and the comment beside it says "{knob.comment}"'

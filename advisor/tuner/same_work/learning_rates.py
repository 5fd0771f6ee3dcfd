"""Learning rates by update, their schedule, and other numbers of the optimizer."""

import math
from collections.abc import Sequence

from advisor import numbers
from advisor.model import Run
from advisor.tuner import policy
from advisor.tuner.same_work.facts import (
    Compared,
    Differences,
    ends,
    suggested,
    updates_of,
)
from advisor.tuner.same_work.updates import steps_of_an_update


def other_rates(compared: Compared) -> Differences:
    """Another learning rate at the same update; none where equal runs differ by themselves."""
    of_originals = [rates_of(run) for run in compared.originals]
    for name, new in rates_of(compared.after).items():
        old = [rates[name] for rates in of_originals if rates.get(name)]
        moved = first_other(old, new) if old and new else None
        if moved is not None:
            at, old_rate, rate = moved
            change = " where it was ".join(texts_of(rate, old_rate))
            of = f" by {name}" if name else ""
            yield suggested(
                "learning-rate", f"The learning rate of update {at}{of} is {change}."
            )
            return


def rates_of(run: Run) -> dict[str, tuple[float | None, ...]]:
    """Learning rates by update: of the first group of the optimizer that steps most, and others."""
    updates = updates_of(run)
    return {"": updates.rates, **updates.other_rates}


def first_other(
    originals: Sequence[Sequence[float | None]], new: Sequence[float | None]
) -> tuple[int, float, float] | None:
    """First update with another rate than the originals', both rates; None without one.

    None as well where equal runs differ before: the rate follows the losses, or the clock.
    """
    begun = start_of(originals[0])
    for at, (rate, *rates) in enumerate(zip(new, *originals, strict=False), 1):
        if any(differ(rates[0], other) for other in rates):
            return None
        if differ(rates[0], rate) and not is_rounding(begun, rates[0], rate):
            return at, float(rates[0] or 0), float(rate or 0)
    return None


def start_of(rates: Sequence[float | None]) -> float | None:
    """Rate from which a schedule moves: 0 for a warm-up from nothing, else the first."""
    first, second = (*rates[:2], None, None)[:2]
    from_nothing = first and second and second >= policy.FROM_NOTHING * first
    return 0.0 if from_nothing else first


def is_rounding(begun: float | None, old: float | None, new: float | None) -> bool:
    """True if a schedule moved nearly as far, as one over `len(loader) // accumulation` does."""
    if begun is None or old is None or new is None or old == begun:
        return False
    return abs(new - old) <= policy.SCHEDULE_TIE * abs(old - begun)


def texts_of(one: float, other: float) -> tuple[str, str]:
    """Two numbers that differ as text, with as many digits as show that they do."""
    pairs = [
        (numbers.measure(one, digits), numbers.measure(other, digits))
        for digits in range(4, 18)
    ]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[-1])


def differ(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return False
    return not math.isclose(one, other, rel_tol=policy.RATE_TIE, abs_tol=1e-15)


def other_settings(compared: Compared) -> Differences:
    """Numbers of the optimizer, such as its momentum, that follow the batch."""
    originals, before, after = compared.originals, compared.before, compared.after
    old, new = updates_of(before).settings, updates_of(after).settings
    for name in sorted(old.keys() & new.keys() - {"initial_lr"}):
        steady = all(
            not differ(old[name], updates_of(r).settings.get(name)) for r in originals
        )
        if steady and differ(old[name], new[name]):
            change = f"{new[name]:g} where it was {old[name]:g}"
            yield suggested("optimizer-settings", f"The optimizer's {name} is {change}.")
            return


def other_schedule(compared: Compared) -> Differences:
    """Another number of scheduler steps in an update."""
    old, new = (steps_of_an_update(updates_of(run).schedule) for run in ends(compared))
    if old is not None and new is not None and old != new:
        times = f"{new:g} times an update where it stepped {old:g} times"
        yield suggested("schedule", f"The learning rate's scheduler steps {times}.")

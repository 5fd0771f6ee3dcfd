"""Sentences on decisions, from reasons and data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import numbers
from advisor.executor.comparison import AFTER, BEFORE
from advisor.executor.startup_budget import WHOLE_SEARCH
from advisor.objective import OBJECTIVES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.executor.comparison import Comparison
    from advisor.executor.startup_budget import StartupBudget
    from advisor.knobs.findings import Followed
    from advisor.model import BatchPlace, Interval

NAMED = 4
"""Files that are named."""

KINDS = {
    "batch_size": "the batch size",
    "num_workers": "the number of loader workers",
    "grad_accum": "the gradient accumulation",
    "timesteps": "the number of sampling steps",
    "precision": "the precision",
    "image_size": "the image size",
}
"""Kinds that an experiment finds."""

SHOWN = {
    "batch_size": "its batches held {after}, not {before}",
    "num_workers": "the workers of its loader were {after}, not {before}",
    "grad_accum": "it took {after} backward passes an update, not {before}",
    "timesteps": "it took {after} forwards {one}, not {before}",
    "precision": "it computed in {after}, not {before}",
    "image_size": "its model saw sides of {after}, not {before}",
}
"""Observations of a followed value."""

SCOPES = {
    "global": ", counted over all that is shared out",
    "micro": ", counted by the smallest part",
    "device": ", counted by device",
    None: "",
}


def followed(found: Followed, unit: str = "unit") -> str:
    """Sentence on a followed value.

    `zorp is the batch size: with 40 in place of 20 its batches held 40, not 20.`
    """
    shown = SHOWN[found.shown_in].format(
        one=numbers.one(unit),
        before=_count_or_word(found.before),
        after=_count_or_word(found.after),
    )
    return (
        f"`{found.path}` is {KINDS[found.kind]}{SCOPES[found.scope]}: with {found.moved_to} in "
        f"place of {found.value}, {shown}."
    )


def _count_or_word(shown: float | str) -> str:
    return shown if isinstance(shown, str) else numbers.count(shown)


def unread(paths: Sequence[str]) -> str:
    """Sentence on changed results that cannot be compared."""
    some = ", ".join(paths[:NAMED]) + ("" if len(paths) <= NAMED else " and others")
    return (
        f"{some}: another content than the original's, which was the same in each of its runs. The "
        "content of this format is not compared, so it may be rounding or another result: look at "
        "them before trusting what was tried."
    )


def batch_place(place: BatchPlace) -> str:
    """Sentence on the batch's place, found by experiment."""
    return (
        f"A batch is dimension {place.axis + 1} of input {place.input + 1} of the model that is "
        f"called at {place.site}: it followed the setting of the batch when that was moved."
    )


def slow_starts(starts: StartupBudget) -> str | None:
    """Sentence on start-up and a sufficient budget.

    None where there is enough.
    """
    if starts.whole_s <= starts.budget_s:
        return None
    many = int(starts.bought)
    return (
        f"Each process takes {numbers.duration(starts.usual_s)} to its first step, and at most a "
        f"third of the budget goes to that: {numbers.many(many, 'process')}. A "
        f"whole search takes about {WHOLE_SEARCH}; --budget {numbers.whole_minutes(starts.whole_s)}"
        " holds it."
    )


def gained(interval: Interval, unit: str, objective: str = "throughput") -> str:
    """Sentence on a proven gain.

    `did 2.04x the tiles a second in 6 rounds ...; 95 % interval 1.98 to 2.11`
    """
    rounds = f"{numbers.many(interval.n, 'interleaved round')} of fresh processes"
    wide = too_wide(interval)
    ratio = f"more than {interval.low:.2f}" if wide else f"{interval.estimate:.2f}"
    template = OBJECTIVES[objective].gain_sentence
    did = template.format(ratio=ratio, one=numbers.one(unit), units=numbers.plural(unit))
    if wide:
        return (
            f"{did} in {rounds} (lower 95 % bound); the machine was too unsteady to say how much "
            "more"
        )
    return f"{did} in {rounds}; 95 % interval {interval.low:.2f} to {interval.high:.2f}"


WIDE = 4.0
"""An interval whose high is so many times its low tells a direction and no size."""


def too_wide(interval: Interval) -> bool:
    """True if only the lower bound is worth showing."""
    return interval.high > WIDE * interval.low


def changed_files(paths: Sequence[str]) -> str:
    """Files of the user that the command altered or removed."""
    shown = ", ".join(f"`{path}`" for path in paths[:3])
    more = f" and {len(paths) - 3} more" * (len(paths) > 3)
    return f"The command altered or removed files of yours: {shown}{more}."


def collapsed(proof: Comparison) -> str:
    """Sentence on collapsed runs of a proof.

    Empty where none fell far behind the others of its arm.
    """
    before, after = proof.ab_test.before.variant.label, proof.ab_test.after.variant.label
    slow, slow_before, rounds = proof.collapsed(AFTER), proof.collapsed(BEFORE), len(proof.counted)
    if not slow and not slow_before:
        return ""
    text = (
        f"In the proof of {after} {slow} of its {rounds} runs and {slow_before} of the {rounds} of "
        f"{before} were less than half as fast as the others; all of them count."
    )
    if slow > max(1, slow_before):
        text += f" If that is no accident, {after} is slower than its usual runs look."
    return text


UNDER_LOAD = "Some rounds ran under background load; rerun on an idle machine."
"""Note on every gain that rests on such rounds."""

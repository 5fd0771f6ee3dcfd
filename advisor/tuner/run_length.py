"""Settings that count batches or updates: a run's length, a warm-up, what comes every so often.

A batch that grows while accumulation shrinks leaves an update as it was. A run of so many
batches then goes through more samples, and no short window shows its end. One run that is
made short tells: it ends by itself after few updates, or goes on. What others of these settings
count is not tried; a change of the batch that is left to the user names them all.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from advisor import knobs
from advisor.executor.requests import COMMAND_LINE, TrialRequest, Variant
from advisor.knobs.tree import canonical, parts_of
from advisor.model import Candidate, Change, Knob
from advisor.tuner import policy
from advisor.tuner.moves import with_value
from advisor.tuner.stages import Trials, run_trial
from advisor.tuner.state import TunerState

LENGTHS = re.compile(
    r"(max|total|num|nb|n)?_?(train|training|optim)?_?(steps|iters?|iterations|updates)"
)
"""Names of a run's length; those of warm-ups, intervals and horizons have other words."""
COUNTED = {
    "steps", "step", "iters", "iter", "iterations", "updates", "batches", "every", "interval",
    "freq", "frequency", "period",
}  # fmt: skip
"""Words of a name that counts batches or updates, or says how often something comes."""
OTHERWISE = {
    "epoch", "epochs", "seconds", "minutes", "hours", "time", "accumulate", "accumulation", "size",
    "rate", "inference", "sampling", "diffusion", "denoising", "noise", "timesteps",
}  # fmt: skip
"""Words of names that count something else."""
MOST_NAMED = 6
"""Settings that a sentence names at most.

Judgement: more make a sentence that nobody reads to its end, fewer hide one that has to move along.
"""


class BatchCounter(NamedTuple):
    document: str
    path: str
    value: int
    line: int

    @property
    def shown(self) -> str:
        """Its name and its place."""
        typed = self.document == COMMAND_LINE
        return f"`{self.path}`{'' if typed else f' ({self.document}, line {self.line})'}"


class Length(NamedTuple):
    """Setting of a run's length."""

    counter: BatchCounter
    accumulation: int


def counters(state: TunerState) -> Iterator[BatchCounter]:
    """Settings whose names say that they count batches or updates."""
    of_knobs = {(knob.document, knob.path) for knob in state.all_knobs}
    for source in state.context.sources:
        document = source.document
        for path, scalar in document.scalars.items():
            name, number = canonical(str(parts_of(path)[-1])), scalar.value
            words = set(name.split("_"))
            if (
                words & COUNTED
                and not words & OTHERWISE
                and type(number) is int
                and number > 1
                and scalar.editable
                and scalar.given
                and (document.name, path) not in of_knobs
            ):
                line = document.text.count("\n", 0, scalar.start) + 1
                yield BatchCounter(document.name, path, number, line)


def also_moves(state: TunerState, times: float, but: BatchCounter | None = None) -> str:
    """Sentence on what a batch `times` as large moves along, with lines and values; or empty."""
    named = [counter for counter in counters(state) if counter != but][:MOST_NAMED]
    if not named or not state.trains or times <= 1:
        return ""
    moves = (
        f"{counter.shown} {counter.value} to {max(1, round(counter.value / times))}"
        for counter in named
    )
    return f" If they count batches, these have to move along: {', '.join(moves)}."


def length_of(state: TunerState, batch: Knob) -> Length | None:
    """Setting of the run's length that a move of `batch` may stretch; None without one."""
    value = state.current(batch)
    if not isinstance(value, int) or not state.trains:
        return None
    larger = with_value(state, batch, 2 * value)
    if isinstance(larger, knobs.InvalidChange):
        return None
    moved = (change for change in larger.changes if change.kind == "grad_accum")
    old = next((int(float(str(change.old))) for change in moved), 1)
    if old < 2:
        return None
    for counter in counters(state):
        name = canonical(str(parts_of(counter.path)[-1]))
        if LENGTHS.fullmatch(name) and counter.value > 2 * policy.SHORT_RUN_UPDATES * old:
            return Length(counter, old)
    return None


def counts_batches(state: TunerState, length: Length) -> Trials[bool]:
    """True unless the run was seen to go on after as many batches; in doubt, too."""
    short = Change(
        document=length.counter.document,
        path=length.counter.path,
        kind="length",
        knob_class="quality",
        old=length.counter.value,
        new=policy.SHORT_RUN_UPDATES * length.accumulation,
    )
    variant = Variant(candidate=Candidate().with_changes(short))
    request = TrialRequest(
        variant=variant,
        purpose="effects",
        plan=replace(state.short_plan(), min_steps=policy.LONG_WINDOW_UPDATES),
        expected_s=state.costs.price_s,
    )
    state, trial = yield from run_trial(state, request, matters=False)
    work = trial.run.work if trial is not None and trial.run is not None else None
    seen = work.updates_seen if work is not None else None
    return state, seen is None or seen <= policy.SHORT_RUN_UPDATES


def why_kept(state: TunerState, length: Length, batch: Knob) -> str:
    """Sentences on a run that would go through more samples."""
    counter = length.counter
    return (
        f"Not tried: {counter.shown} counts batches, so a larger batch trains on more samples. "
        f"For twice the `{batch.path}` set it to {counter.value // 2}, or write "
        f'`accept = ["counters"]`.{also_moves(state, 2.0, counter)}'
    )

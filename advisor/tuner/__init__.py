"""Which candidates to run, in which order, and when to stop: a pure function.

`next_turn` is given the facts and everything that was answered so far, and says what to run next.
It holds no clock, no process and no file, so the same answers give the same ask on any machine.
The stages are written as generators, read top to bottom; asking anew replays them from the start.

`journey.py` names the stages in their order; docs/architecture.md says what each module is for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.tuner.journey import journey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.tuner.asking import SearchStep, Stop
    from advisor.tuner.facts import TuningContext
    from advisor.tuner.standing import Result

__all__ = ["next_turn"]


def next_turn(facts: TuningContext, answers: Sequence[Result]) -> SearchStep | Stop:
    """What to run after `answers`, or the reason to stop."""
    steps = journey(facts)
    try:
        turn = next(steps)
        for answer in answers:
            turn = steps.send(answer)
    except StopIteration as end:
        stop: Stop = end.value
        return stop
    return turn

"""Which candidates to run, in which order, and when to stop: a pure function.

`next_turn` is given the facts and everything that was answered so far, and says what to run next.
It holds no clock, no process and no file, so the same answers give the same ask on any machine.
The stages are written as generators, read top to bottom; asking anew replays them from the start.

journey.py     the stages in their order
facts.py       what is known beforehand, and what stages say on the way
standing.py    where the search stands
baseline.py discover.py grid.py loader.py precision.py steps.py ignored.py whatif.py    the stages
ladder.py      larger models as they are declared, measured once and never written
cells.py       which batch and workers are worth the next process
surface.py     what is known of such programs, fitted to the runs
prices.py      what one more process takes
switches.py    what no config holds and can be tried from inside the process, as data
proof.py       how many rounds, and what was proven
guard.py       results inside what the user declared: what chooses, and what confirms
rounding.py    the same of losses and outputs
effects.py     what a candidate asked for against what the program did
decisions.py   what became of every knob, from the answers and the winner
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.strategy.journey import journey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.strategy.facts import Facts
    from advisor.strategy.standing import Answer, Stop, Turn

__all__ = ["next_turn"]


def next_turn(facts: Facts, answers: Sequence[Answer]) -> Turn | Stop:
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

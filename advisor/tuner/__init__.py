"""Search for faster settings, from results to the next request.

It holds no clock, no process and no file: the same results give the same request anywhere.
Stages are generators, in the order of `pipeline.py`; each request replays them from the start.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.tuner.pipeline import pipeline
from advisor.tuner.state import Result, SearchStep, Stop, TuningContext

__all__ = ["next_request"]


def next_request(context: TuningContext, results: Sequence[Result]) -> SearchStep | Stop:
    """The request that follows `results`, or the end of the search."""
    steps = pipeline(context)
    try:
        step = next(steps)
        for result in results:
            step = steps.send(result)
    except StopIteration as end:
        stop: Stop = end.value
        return stop
    return step

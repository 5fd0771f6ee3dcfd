"""Search for faster settings, from results to the next request.

A pure function: it holds no clock, no process and no file.

It holds no clock, no process and no file: the same results give the same request anywhere.
Stages are generators, in the order of `pipeline.py`; each request replays them from the start.

context.py           what is known before the first process
state.py             measurements, verdicts and budget after each result
prices.py            wall time of one more process
pipeline.py          the stages in their order
baseline.py          the original: rate, noise, place of the batch
discovery.py         knobs by experiment; loader arguments that the config lacks
search.py            batch and workers together
throughput_model.py  rate by batch and workers, fitted to the runs
value_trials.py      one value of one knob after the other
confirm.py           interleaved rounds that confirm a candidate
quality_gate.py      results inside the declared tolerance; fewer sampling steps
output_check.py      results that a candidate loses or changes
effects.py           knobs that the program ignores
code_suggestions.py  changes of the code, tried from inside the process
decisions.py         a verdict and its sentence for every knob
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.tuner.pipeline import pipeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.tuner.context import TuningContext
    from advisor.tuner.state import Result, SearchStep, Stop

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

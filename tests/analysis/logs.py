"""Event logs written by hand: loops as a recorder would have seen them."""

from advisor.analysis.events import (
    PASS_ENDED,
    BatchFetch,
    EventLog,
    ForwardCall,
    LoaderFacts,
    ModuleFacts,
    OptimizerStep,
    Span,
)
from advisor.analysis.step_detection import detect_steps
from advisor.analysis.step_series import StepSeries
from advisor.analysis.window import Window, find_window
from advisor.model import MeasurePlan

PLAN = MeasurePlan(measure_s=0.5, min_steps=10)


def log_with(
    loaders: int = 1,
    workers: int = 0,
    prefetch: int | None = None,
    *,
    persistent: bool = False,
    items: int | None = None,
) -> EventLog:
    """Empty log of one network and so many loaders of `items`."""
    arguments = {
        "num_workers": workers, "prefetch_factor": prefetch, "persistent_workers": persistent,
    }  # fmt: skip
    facts = LoaderFacts(arguments=arguments, pass_items=items, iterated=True)
    log = EventLog()
    log.loaders = dict.fromkeys(range(loaders), facts)
    log.modules = {0: ModuleFacts(name="Linear", parameters=2)}
    return log


def fetch(log: EventLog, start: float, end: float, loader: int, items: float) -> None:
    """Append a fetch."""
    log.fetches.append(BatchFetch(start, end, loader, items))


def call(log: EventLog, start: float, end: float, items: float, *, graded: bool = True) -> None:
    """Append a call of the network."""
    log.calls.append(ForwardCall(start, end, 0, items, graded))


def backward(log: EventLog, start: float, end: float) -> None:
    """Append a backward pass."""
    log.backwards.append(Span(start, end))


def update(log: EventLog, start: float, end: float, optimizer: int = 1) -> None:
    """Append a step of an optimizer."""
    log.updates.append(OptimizerStep(start, end, optimizer))


def train(
    log: EventLog,
    steps_made: int,
    *,
    start: float = 0.0,
    load: float = 0.002,
    work: float = 0.008,
    batch: float = 4.0,
    accumulate: int = 1,
    loader: int = 0,
) -> float:
    """Append training steps; returns when they ended."""
    now = start
    for _ in range(steps_made):
        for _ in range(accumulate):
            fetch(log, now, now + load, loader, batch)
            now += load
            call(log, now, now + work / 2, batch)
            backward(log, now + work / 2, now + work)
            now += work
        update(log, now, now)
    return now


def infer(
    log: EventLog, batches: int, *, start: float, length: float = 0.003, batch: float = 10.0
) -> float:
    """Append a pass of forwards without gradient over the second loader; returns its end."""
    now = start
    for _ in range(batches):
        fetch(log, now, now + length / 3, 1, batch)
        call(log, now + length / 3, now + length, batch, graded=False)
        now += length
    fetch(log, now, now, 1, PASS_ENDED)
    return now


def detected(log: EventLog, plan: MeasurePlan = PLAN) -> StepSeries:
    """Steps of `log`, which must have some."""
    series = detect_steps(log, plan)
    assert series is not None
    return series


def measured(log: EventLog, plan: MeasurePlan = PLAN, *, ended: bool = False) -> Window:
    """Window that `plan` finds in `log`, of a program that `ended` by itself or runs on."""
    log.ended = ended
    found, _ = find_window(log, detected(log, plan), plan, whole=ended)
    assert found is not None
    return found

"""Measurement of one process: throughput, breakdown and facts of its window."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from advisor.analysis import breakdown
from advisor.analysis.averages import quantile
from advisor.analysis.device_time import DeviceClock
from advisor.analysis.events import NO_LOADER, NO_MODULE, Span
from advisor.analysis.phases import phases
from advisor.analysis.stages import stages
from advisor.analysis.step_detection import detect_steps
from advisor.analysis.step_series import dominant_module
from advisor.analysis.sync_calls import sync_points
from advisor.analysis.window import find_window, warm_up
from advisor.model import RunPhase, Shares, Stage, SyncPoint, TrainingSign

if TYPE_CHECKING:
    from advisor.analysis.events import EventLog
    from advisor.analysis.facts import LoaderFacts, ModuleFacts
    from advisor.analysis.step_series import StepSeries
    from advisor.analysis.window import Window
    from advisor.model import MeasurePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measured window of one process. Times are epoch seconds."""

    kind: str
    """optimizer step, training step, loader batch, root forward."""
    source: str
    """Description of how the units were counted."""
    unit: str | None = None
    """`step` where samples could not be counted."""
    units_per_s: float
    window_start: float
    window_end: float
    units: float
    """Units finished inside the window."""
    part_rates: tuple[float, ...] = ()
    """Units a second of consecutive parts of the window."""
    step_ms: float
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    wait_share: float | None = None
    shares: Shares | None = None
    stages: tuple[Stage, ...] = ()
    phases: tuple[RunPhase, ...] = ()
    first_step: float
    """Epoch seconds at which the first step was finished."""
    whole_units: float = 0.0
    finished_batches: int = 0
    batch: float | None = None
    forwards_per_unit: float | None = None
    notes: tuple[str, ...] = ()
    shrunk_from: float | None = None
    """Batch for which memory ran out before the window, in place of which a smaller one ran."""

    @property
    def seconds(self) -> float:
        """Length of the window, validation included."""
        return self.window_end - self.window_start


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Measurement of one process, from its event log."""

    measured: Measured | None = None
    unmeasured: str | None = None
    """Reason why there is no rate although steps were seen."""
    loader: LoaderFacts = NO_LOADER
    """DataLoader whose batches were measured; before any step the only one."""
    module: ModuleFacts = NO_MODULE
    """Module that took most time."""
    accumulation: float | None = None
    trains: TrainingSign | None = None
    syncs: tuple[SyncPoint, ...] = field(default=())


def measure(
    log: EventLog,
    plan: MeasurePlan,
    *,
    ended: bool = False,
    cut_short: bool = False,
    ran_out: tuple[float, float] | None = None,
) -> Measurement:
    """Measurement of a log that is complete.

    `ended`: the program came to its own end. `cut_short`: it was stopped before its window was
    full. `ran_out`: when memory ran out last, and the items of the batch that it was for.
    """
    series = detect_steps(log, plan, ended=ended)
    if series is None:
        root = dominant_module(log)
        only = next(iter(log.loaders)) if len(log.loaders) == 1 else None
        return Measurement(
            loader=log.loader(only) if only is not None else NO_LOADER,
            module=log.module(root) if root is not None else NO_MODULE,
        )
    whole = ended or cut_short or plan.mode != "window"
    window, _ = find_window(log, series, plan, whole=whole)
    clock = DeviceClock(log.marks) if log.marks else None
    on_device = window.on_device(clock) if window is not None and clock is not None else None
    window = on_device or window
    measured = None
    if window is not None and window.units_per_s() is not None:
        measured = _measured(log, window, plan, clock, ran_out)
    return Measurement(
        measured=measured,
        unmeasured=None if measured is not None else series.source,
        loader=log.loader(series.loader) if series.loader is not None else NO_LOADER,
        module=log.module(series.root) if series.root is not None else NO_MODULE,
        accumulation=series.accumulation,
        trains=log.trains,
        syncs=sync_points(log, window, on_device=clock is not None) if window is not None else (),
    )


def _measured(
    log: EventLog,
    window: Window,
    plan: MeasurePlan,
    clock: DeviceClock | None,
    ran_out: tuple[float, float] | None,
) -> Measured:
    series = window.series
    rate = window.units_per_s() or 0.0
    took_s = window.batch_seconds()
    stretch = recorded_stretch(log, series, plan, window)
    found = breakdown.shares(log, window, stretch, clock)
    return Measured(
        kind=series.kind,
        source=series.source,
        unit=None if series.unit == "sample" else series.unit,
        units_per_s=rate,
        window_start=window.start + log.clock,
        window_end=window.end + log.clock,
        units=sum(series.units[window.first : window.last]),
        part_rates=window.part_rates(),
        step_ms=1000.0 * window.seconds / window.count,
        latency_p50_ms=1000.0 * quantile(took_s, 0.5) if took_s else None,
        latency_p95_ms=1000.0 * quantile(took_s, 0.95) if took_s else None,
        wait_share=breakdown.wait_share(log, window, clock),
        shares=Shares(**found) if found else None,
        stages=stages(log, window, stretch, clock),
        phases=phases(log, series),
        first_step=series.bounds[0] + log.clock,
        whole_units=series.whole_units,
        finished_batches=series.finished_batches,
        batch=series.batch,
        forwards_per_unit=series.forwards_per_unit,
        notes=(*window.notes, *_aside(window)),
        shrunk_from=_shrunk_from(ran_out, window.start, series.batch),
    )


def recorded_stretch(log: EventLog, series: StepSeries, plan: MeasurePlan, window: Window) -> Span:
    """Longest stretch after warm-up with every event kind."""
    steady = min(warm_up(log, series, plan.measure_s), window.first)
    since, until = series.bounds[steady], max(window.end, series.bounds[-1])
    found = [
        Span(max(start, since), min(end, until))
        for start, end in log.hooked_spans()
        if end > since and start < until
    ]
    return max(found, key=lambda span: span.end - span.start, default=Span(since, since))


def _aside(window: Window) -> list[str]:
    """Note on the validation that the rate leaves out."""
    if window.aside_s < 0.01 * window.seconds:
        return []
    measured, aside = f"{window.seconds:.1f} s", f"{window.aside_s:.1f} s"
    return [f"the rate is of {measured} of training, without {aside} of validation in between"]


def _shrunk_from(
    ran_out: tuple[float, float] | None, start: float, batch: float | None
) -> float | None:
    """Batch size that ran out of memory before."""
    if ran_out is None or batch is None:
        return None
    when, items = ran_out
    return items if when < start and batch < items else None

"""Measurement of one process: its run alone, and what else was seen."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from advisor.analysis import breakdown
from advisor.analysis.device_time import DeviceClock
from advisor.analysis.events import EventLog, LoaderFacts, ModuleFacts, Span, typed
from advisor.analysis.step_detection import detect_steps, measured_part
from advisor.analysis.step_series import GENERATION, dominant_module
from advisor.analysis.window import Window, find_window, warm_up
from advisor.analysis.work_facts import work_facts
from advisor.model import Effects, MeasurePlan, Run

NO_RUN = Run(
    unit="sample",
    units=0.0,
    units_per_s=0.0,
    rate_source="",
    window_start=0.0,
    window_end=0.0,
)
"""A run not yet measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Measurement of one process, from its event log."""

    run: Run | None = None
    """Run of this process alone; None: no rate."""
    unmeasured: str | None = None
    """Reason for no rate although steps were seen."""
    missing: str = ""
    """What it did not finish, and the limit that would hold it; empty where it did."""
    effects: Effects | None = None
    """None where no DataLoader or module is known."""
    first_step: float = 0.0
    """Epoch seconds when the first step was finished."""


def measure(log: EventLog, plan: MeasurePlan, *, cut_short: bool = False) -> Measurement:
    """Measurement of a complete log; `cut_short`: its window was not full."""
    trains, log = log.trains, measured_part(log, plan)
    series = detect_steps(log, plan)
    if series is None:
        only = next(iter(log.loaders)) if len(log.loaders) == 1 else None
        module = dominant_module(log)
        seen = only is not None or module is not None
        effects = effects_of(log.loader(only), log.module(module))
        return Measurement(effects=effects if seen else None)
    whole = log.ended or cut_short or plan.mode != "window"
    window, _ = find_window(log, series, plan, whole=whole)
    clock = DeviceClock(log.marks)
    if window is not None:
        window = window.on_device(clock) or window
    effects = effects_of(log.loader(series.loader), log.module(series.root))
    effects = replace(effects, batch=series.batch, accumulation=series.accumulation)
    effects = replace(
        effects,
        trains=trains,
        forwards_per_unit=series.forwards_per_unit,
        all_parameters=sum(module.added_parameters for module in log.modules.values())
        or None,
    )
    measured = window is not None and window.units_per_s() is not None
    return Measurement(
        run=_run(log, window, plan, clock, effects)
        if window is not None and measured
        else None,
        unmeasured=None if measured else series.missing or series.source,
        missing=series.missing,
        effects=effects,
        first_step=series.bounds[0] + log.clock,
    )


def _run(
    log: EventLog, window: Window, plan: MeasurePlan, clock: DeviceClock, effects: Effects
) -> Run:
    """Run of one process in its window; times of the log become epoch seconds (`log.clock`)."""
    series = window.series
    rate = window.units_per_s() or 0.0
    took_ms = sorted(1000.0 * seconds for seconds in window.batch_seconds())
    stretch = recorded_stretch(log, plan, window)
    loader, module = log.loader(series.loader), log.module(series.root)
    tokens = loader.tokens_per_item or module.tokens_per_item
    shares = breakdown.shares(log, window, stretch, clock)
    return Run(
        unit=series.unit,
        units=sum(series.units[window.first : window.last]),
        units_before=sum(series.units[: window.first]),
        units_per_s=rate,
        tokens_per_s=tokens * rate
        if tokens is not None and series.unit == "sample" and series.kind != GENERATION
        else None,
        rate_source=series.source,
        counted=series.counted,
        window_start=window.start + log.clock,
        window_end=window.end + log.clock,
        windows=window.part_rates(),
        step_ms=1000.0 * window.seconds / window.count,
        probe_share=probe_share(log, window),
        step_kind=series.kind,
        latency_p50_ms=_quantile(took_ms, 0.5),
        latency_p95_ms=_quantile(took_ms, 0.95),
        wait_share=shares.data_wait,
        shares=shares,
        backward_share=breakdown.backward_share(log, stretch, clock),
        stages=breakdown.stages(log, window, stretch, clock),
        phases=breakdown.phases(log, series),
        whole_units=series.whole_units,
        effects=effects,
        work=work_facts(log, series),
        syncs=breakdown.sync_points(log, window),
        notes=(*window.notes, *_aside(window, validates=log.validations is not None)),
    )


SEEN: dict[str, type] = {
    "tf32": bool, "cudnn_benchmark": bool, "threads": int, "compiled": bool, "channels_last": bool,
    "device": str, "prefetch_factor": int, "persistent_workers": bool, "pin_memory": bool,
}  # fmt: skip
"""Module flags and loader arguments that are effects of the same name."""


def effects_of(loader: LoaderFacts, module: ModuleFacts) -> Effects:
    """Effects of a loader's arguments, and of a module's flags in force."""
    flags, arguments = module.flags, loader.arguments
    model_dtype, compute_dtype, autocast_dtype = (
        typed(flags, name, str)
        for name in ("model_dtype", "compute_dtype", "autocast_dtype")
    )
    if autocast_dtype is None and compute_dtype != model_dtype:
        autocast_dtype = compute_dtype  # entered inside the forward
    seen: dict[str, Any] = {
        n: typed({**arguments, **flags}, n, kind) for n, kind in SEEN.items()
    }
    return Effects(
        batch_asked=typed(arguments, "batch_size", int),
        workers=loader.workers if loader.iterated else None,
        data_items=loader.pass_items,
        left_out=loader.left_out,
        padding_share=loader.padding_share,
        loader_arguments=tuple(arguments.items()),
        loader_site=loader.site,
        dtype=compute_dtype or autocast_dtype or model_dtype,
        autocast_dtype=autocast_dtype,
        input_shapes=module.shapes,
        model_site=module.site,
        parameters=module.parameters or None,
        inputs=module.inputs,
        outputs=module.outputs,
        rows=module.rows,
        carries=module.carries,
        **seen,
    )


def recorded_stretch(log: EventLog, plan: MeasurePlan, window: Window) -> Span:
    """Longest stretch with every event kind, after warm-up if there is one.

    A slow moment may put the end of warm-up past all that was recorded.
    """
    series = window.series
    steady = min(warm_up(log, series, plan.measure_s), window.first)
    until = max(window.end, series.bounds[-1])
    for since in (series.bounds[steady], series.bounds[0]):
        spans = [
            Span(max(start, since), min(end, until)) for start, end in log.hooked_spans()
        ]
        longest = max(spans, key=lambda span: span.end - span.start)
        if longest.end > longest.start:
            return longest
    return Span(until, until)


def probe_share(log: EventLog, window: Window) -> float:
    """Share of the window that the hooks took from the program; 0 on a card.

    On a card the host runs ahead of the device, and what it spends in hooks is hidden behind the
    device's work.
    """
    inside = [
        reading for reading in log.spent if window.start <= reading.time <= window.end
    ]
    if log.marks or len(inside) < 2:
        return 0.0
    (began, before_s), (ended, after_s) = inside[0], inside[-1]
    return max(0.0, (after_s - before_s) / (ended - began)) if ended > began else 0.0


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None


def _aside(window: Window, *, validates: bool) -> list[str]:
    if window.aside_s < 0.01 * window.seconds and not validates:
        return []
    measured, aside = f"{window.seconds:.1f} s", f"{window.aside_s:.1f} s"
    kind, other = ("validation", "training") if validates else ("training", "validation")
    return [f"the rate is of {measured} of {kind}, without {aside} of {other} in between"]

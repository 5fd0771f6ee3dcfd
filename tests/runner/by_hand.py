"""Records of processes, as the probe would have left them, with what their logs would say."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from advisor.analysis.facts import LoaderFacts, ModuleFacts
from advisor.analysis.measurement import NO_RUN, Measurement, effects_of
from advisor.model import Run, Shares
from advisor.probe.record import VERSION
from advisor.runner.process_records import ProcessRecord, parse


def content(pid: int, **other: Any) -> dict[str, Any]:
    """A record of a process that trained for ten seconds, as it stands in its file."""
    start = other.pop("start", 100.0)
    return {
        "version": VERSION, "pid": pid, "ppid": 1, "boot_time": start - 5, "state": "stopped",
        "steps": 10, "rank": 0, "world_size": 1,
        "first_step_time": start - 1, "last_step_time": start + 10, "errors": [], "notes": [],
        "swallowed": [], "writes": [],
        "losses": [3.0, 2.0], "memory": {"rss_gib": 1.0, "workers_rss_gib": 0.5}, **other,
    }  # fmt: skip


def run(rate: float, start: float = 100.0, **measured: Any) -> Run:
    """Run of ten seconds of training."""
    found = replace(
        NO_RUN,
        step_kind="optimizer step",
        rate_source="by hand",
        units_per_s=rate,
        window_start=start,
        window_end=start + 10,
        units=10 * rate,
        windows=(rate, rate),
        step_ms=1000.0,
        wait_share=0.25,
        shares=Shares(data_wait=0.25, other=0.75),
        whole_units=rate * 10,
    )
    return replace(found, **measured)


def process(
    pid: int,
    rate: float | None,
    *,
    measured: dict[str, Any] | None = None,
    flags: dict[str, Any] | None = None,
    **other: Any,
) -> ProcessRecord:
    """A process that trained at `rate`; None: it made no steps."""
    start = other.get("start", 100.0)
    record = parse(pid, json.dumps(content(pid, **other)).encode())
    effects = effects_of(LoaderFacts(iterated=True), ModuleFacts(flags=flags or {}))
    alone = None
    if rate is not None:
        alone = run(rate, start, effects=effects, **(measured or {}))
    found = Measurement(run=alone, first_step=start, finished_batches=10)
    return replace(record, measurement=found)

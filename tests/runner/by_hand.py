"""Records of processes, as the probe would have left them."""

from __future__ import annotations

from typing import Any

from advisor.probe.record import VERSION


def record(pid: int, rate: float, **other: Any) -> dict[str, Any]:
    """A record of a process that trained for ten seconds."""
    start = other.pop("start", 100.0)
    measured = {
        "kind": "optimizer step",
        "source": "by hand",
        "units_per_s": rate,
        "window_start": start,
        "window_end": start + 10,
        "parts": [(start, start + 5, rate * 5, 0), (start + 5, start + 10, rate * 5, 1)],
        "step_ms": 1000.0,
        "wait_share": 0.25,
        "backward_share": None,
        "shares": {"data_wait": 0.25, "other": 0.75},
        "whole_units": rate * 10,
        "finished_batches": 10,
        "batch": 4.0,
        "forwards_per_unit": None,
        "notes": [],
    }
    measured.update(other.pop("measured", {}))
    return {
        "version": VERSION, "pid": pid, "ppid": 1, "boot_time": start - 5, "state": "stopped",
        "steps": 10, "rank": 0, "world_size": 1,
        "first_step_time": start - 1, "last_step_time": start + 10, "errors": [], "notes": [],
        "swallowed": [], "writes": [], "measured": measured, "loader": {},
        "losses": [3.0, 2.0], "memory": {"rss_gib": 1.0, "workers_rss_gib": 0.5}, **other,
    }  # fmt: skip

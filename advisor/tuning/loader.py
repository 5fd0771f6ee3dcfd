"""Loader settings: workers in both directions, prefetch, pinning, persistence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.tuning.attempts import try_values

if TYPE_CHECKING:
    from advisor.model import Knob
    from advisor.tuning.search import Search

WORTH_A_LOOK = 0.03
"""A wait share below this cannot be worth a loader search: it bounds the gain."""


def waits(search: Search) -> bool:
    """Whether the best so far loses enough time waiting for data."""
    share = search.best.wait_share if search.best else None
    return share is not None and share > WORTH_A_LOOK


def tune_loader(search: Search) -> None:
    """Workers in both directions, then prefetch, pinning and persistence at the best count."""
    for knob in search.tunable("num_workers"):
        try_values(search, knob, worker_values(search, knob))
    for knob in search.tunable("prefetch_factor"):
        try_values(search, knob, [v for v in (2, 4, 8) if v != search.current(knob)])
    for knob in search.tunable("pin_memory") if search.has_gpu else []:
        try_values(search, knob, [not search.current(knob)])
    for knob in search.tunable("persistent_workers"):
        if search.best is not None and search.best.effects.workers:
            try_values(search, knob, [not search.current(knob)])


def worker_values(search: Search, knob: Knob) -> list[int]:
    """Worker counts worth a process, best loader first, inside the CPUs this host gives."""
    return worker_counts(search, search.current(knob))


def worker_counts(search: Search, current: object) -> list[int]:
    """The same for a count that is no knob."""
    cpus = search.machine.cpus
    values = {0, 1, 2, cpus // 2, cpus - 1, cpus} | ({4, 8, 16} if cpus >= 8 else set())
    values = {v for v in values if 0 <= v <= cpus and v != current}
    alone = search.ceilings
    rates = {c.workers: c.units_per_s for c in alone.loader} if alone else {}
    assert search.best is not None
    if search.has_gpu:
        # With the compute on the GPU, a loader slower than the whole cannot make it faster.
        values = {v for v in values if rates.get(v, 1e30) > search.best.units_per_s}
    return sorted(values, key=lambda v: (-rates.get(v, 0.0), v))[:4]


def settle_loader(search: Search) -> None:
    """Say why the loader knobs that were not changed stay."""
    assert search.best is not None
    share = search.best.wait_share
    waiting = "not measured" if share is None else f"{share:.1%} of the window"
    for knob in search.undecided(
        "num_workers", "prefetch_factor", "pin_memory", "persistent_workers"
    ):
        if knob.kind == "pin_memory" and not search.has_gpu:
            search.decide(knob, "kept", "Pinned memory only helps copies to a GPU; none is here.")
        elif waits(search):
            search.decide(knob, "kept", "No other value was tried with a gain.")
        else:
            search.decide(
                knob,
                "kept",
                f"The program waits for data {waiting}; no loader setting can gain more than that.",
                evidence=[f"wait share {waiting} at {search.best_candidate.label}"],
            )

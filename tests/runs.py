"""Runs, failures, trials, changes, cards as a test needs them: the rest of each is filled in."""

from collections.abc import Iterable
from typing import Any

from advisor.machine import profiles
from advisor.model import Candidate, Change, Failure, Gpu, Run, Trial


def of_steady_host(notes: Iterable[str]) -> list[str]:
    """Notes but those that a host gives which is busy during some part of a window."""
    return [note for note in notes if "within the window" not in note]


def a_run(**given: Any) -> Run:
    """A measured run of the original, one unit a second; `given` fields of Run as they are."""
    usual: dict[str, Any] = {
        "unit": "sample",
        "units": 1.0,
        "units_per_s": 1.0,
        "rate_source": "loader batches",
        "window_start": 0.0,
        "window_end": 1.0,
    }
    return Run(**{**usual, **given})


def a_failure(kind: str, **given: Any) -> Failure:
    """A failure that says a little of itself."""
    return Failure(**{"kind": kind, "evidence": "it died", "next_step": "mend it", **given})


def a_trial(*command: str, **given: Any) -> Trial:
    """A trial of the original."""
    usual = {"id": "1", "purpose": "baseline", "label": "original", "candidate": Candidate()}
    return Trial(command=command, **{**usual, "cwd": "/", "scratch": "/s", **given})


def a_change(path: str = "batch_size", **given: Any) -> Change:
    """A batch of 1 that becomes 8."""
    usual = {"document": "c.json", "kind": "batch_size", "knob_class": "free", "old": 1, "new": 8}
    return Change(**{"path": path, **usual, **given})


def a_gpu(name: str, total_gib: float, capability: str, index: int = 0) -> Gpu:
    """A card that nobody uses, with its profile where there is one."""
    found = profiles.match(name, total_gib)
    return Gpu(
        index=index,
        name=name,
        uuid=f"GPU-{index}",
        memory_total_gib=total_gib,
        memory_free_gib=total_gib - 0.3,
        driver="560",
        power_limit_w=None,
        compute_capability=capability,
        profile=found.name if found else None,
    )

"""A program that exists only as a formula: an engine that answers trials from a model.

The strategy is judged on it because its true optimum is known; no process is started.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from advisor.model import (
    Ceilings,
    Disturbance,
    Effects,
    Failure,
    LoaderCeiling,
    Machine,
    Neighbour,
    Run,
    Trial,
    WhatIfOutcome,
)

MACHINE = Machine(
    cpu_model="formula",
    cpus=8,
    ram_gib=64.0,
    ram_limit_gib=64.0,
    shm_gib=32.0,
    os="Linux",
    python="3.11",
)


@dataclass(kw_only=True)
class Surface:
    """Seconds a unit of data takes to load, and of compute at a batch, on an imagined device."""

    load_s: float = 0.004
    """One worker's time for one unit."""
    launch_s: float = 0.004
    """Fixed cost of one step, whatever the batch."""
    unit_s: float = 0.0005
    """Compute of one unit in a full device."""
    contention: float = 0.0
    """How much longer loading takes for each worker: they share a disk or CPUs."""
    base_gib: float = 1.0
    unit_gib: float = 0.1
    oom_gib: float = 1e9
    items: int = 10**9
    """What the data holds: a batch is never fuller."""
    bf16_speedup: float = 1.5
    bf16_drift: float = 0.001
    bf16_rmse: float = 0.0
    """What bfloat16 adds to the quality measure."""
    trains: bool = True
    """Whether losses are seen."""
    forwards_per_step: int = 0
    """Above 0: an iterative sampler whose steps knob is `steps`."""
    rmse_of_steps: Any = None
    """Quality by steps, for whole runs."""
    ignored: frozenset[str] = frozenset()
    noise: float = 0.0
    coded: dict[str, Any] = field(default_factory=dict)
    """Values that stand in the program's code: batch_size, num_workers."""
    switches: dict[str, float] = field(default_factory=dict)
    """Speed-up of each what-if that is no loader argument; others do not apply."""
    drifts: dict[str, float] = field(default_factory=dict)
    """Shift of the losses by what-if."""
    observed: dict[str, Any] = field(default_factory=dict)
    """Further fields of Effects."""
    step_kind: str | None = None
    fail_on: Any = None
    """Called with the values; a Failure kind or None."""
    process_s: float = 1.0
    """Wall clock of one process."""
    first_s: float = 0.0
    """What the first process takes on top: cold caches."""
    others: Any = None
    """Called with the number of the process, from 0; CPUs that others hold meanwhile."""
    slowed: float = 0.0
    """How much longer a step takes for each CPU that others hold."""
    seed: int = 0
    now_s: float = 0.0
    """The clock of this engine: it stands still but for what processes take."""
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    tried: list[str | None] = field(default_factory=list)
    original: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def machine(self) -> Machine:
        return MACHINE

    def clock(self) -> float:
        return self.now_s

    def scratch(self, trial_id: str) -> Path:
        """Nothing is written there."""
        return Path("scratch", trial_id)

    def wait_until_quiet(self, limit_s: float) -> tuple[Neighbour, ...]:
        """Nobody waits for a formula."""
        del limit_s
        return ()

    def run(self, trial: Trial) -> Run | Failure:
        values = {**self.coded, **yaml.safe_load(trial.files[0].content)}
        values |= _arguments(trial.plan.whatif)
        alone = trial.plan.ceilings_workers
        wall_s = self.process_s + (trial.plan.ceilings_s * (len(alone) + 1) if alone else 0.0)
        wall_s += 0.0 if self.seen else self.first_s
        self.tried.append(trial.plan.whatif)
        if not self.original:
            self.original = values
        self.seen.append((trial.purpose, values))
        used = {k: (self.original[k] if k in self.ignored else v) for k, v in values.items()}
        kind = self.fail_on(values) if self.fail_on else None
        batch, workers = used["batch_size"], used["num_workers"]
        memory = self.base_gib + self.unit_gib * batch
        if memory > self.oom_gib:
            kind = "gpu-oom"
        if wall_s > trial.total_limit_s:
            kind, wall_s = "timeout", trial.total_limit_s
        self.now_s += wall_s
        if kind:
            return Failure(
                trial_id=trial.id,
                purpose=trial.purpose,
                label=trial.label,
                candidate_key=trial.candidate.key,
                kind=kind,
                evidence=f"batch {batch}",
                next_step="less",
                wall_s=wall_s,
            )
        return replace(self._run(trial, used, batch, workers, memory), wall_s=wall_s)

    def _run(
        self, trial: Trial, used: dict[str, Any], batch: int, workers: int, memory: float
    ) -> Run:
        asked, batch = batch, min(batch, self.items)
        speed = self.bf16_speedup if used.get("precision") == "bf16" else 1.0
        steps = used.get("steps", 1) if self.forwards_per_step else 1
        step_s = (self.launch_s + self.unit_s * batch) * steps / speed
        load_s = batch * self.load_s * (1 + self.contention * workers) / max(workers, 1)
        whole_s = step_s + load_s if workers == 0 else max(step_s, load_s)
        whatif = trial.plan.whatif or ""
        rate = self.switches.get(whatif, 1.0) * batch / whole_s
        rate *= 1 + self.noise * self._random.gauss(0, 1)
        held = self.others(len(self.seen) - 1) if self.others else 0.0
        rate /= 1 + self.slowed * (held or 0.0)
        drift = self.bf16_drift if used.get("precision") == "bf16" else 0.0
        drift += self.drifts.get(whatif, 0.0)
        effects: dict[str, Any] = {
            "batch": batch,
            "batch_asked": asked,
            "workers": workers,
            "forwards_per_unit": float(steps),
            "dtype": "bfloat16" if used.get("precision") == "bf16" else "float32",
            "input_shapes": ("3x8x8",),
            "fingerprint": "same",
            "accumulation": used.get("accumulation_steps", 1),
        }
        quality = ""
        if self.rmse_of_steps is not None:
            rmse = self.rmse_of_steps(used.get("steps", 1))
            rmse += self.bf16_rmse if used.get("precision") == "bf16" else 0.0
            quality = f"rmse: {rmse}\n"
        return Run(
            trial_id=trial.id,
            purpose=trial.purpose,
            label=trial.label,
            candidate_key=trial.candidate.key,
            unit="item",
            units=rate * 3,
            units_per_s=rate,
            rate_source="formula",
            window_start=0.0,
            window_end=3.0,
            windows=(rate, rate),
            step_ms=step_s * 1000,
            wait_share=max(0.0, 1 - step_s / whole_s),
            peak_mem_gib=memory,
            losses=tuple(1.0 + drift for _ in range(16)) if self.trains else (),
            effects=Effects(**{**effects, **self.observed}),
            step_kind=self.step_kind,
            whatif=WhatIfOutcome(
                name=whatif,
                applied=whatif in self.switches or whatif.startswith("loader."),
                why="nothing to switch",
            )
            if whatif
            else None,
            ceilings=Ceilings(
                compute_units_per_s=batch / step_s,
                loader=tuple(
                    LoaderCeiling(workers=w, units_per_s=max(w, 1) / self.load_s)
                    for w in trial.plan.ceilings_workers
                ),
            )
            if trial.plan.ceilings_workers
            else None,
            stdout_tail=quality,
            output_digest="same",
            disturbance=Disturbance(
                disturbed=None if held is None else held > 0,
                others_cpus=held,
                who=(Neighbour(name="stress", cpus=held),) if held else (),
            ),
        )


def _arguments(whatif: str | None) -> dict[str, Any]:
    """What `loader.num_workers=2@train.py:3` sets."""
    words = (whatif or "").partition("@")[0].split(",")
    pairs = [word.removeprefix("loader.").split("=") for word in words if "loader." in word]
    return {name: int(value) for name, value in pairs}

"""A program that exists only as a formula, so that its true optimum is known."""

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from advisor.model import (
    Counted,
    Effects,
    Failure,
    Footprint,
    JsonScalar,
    LoaderCeiling,
    MeasurePlan,
    OverrideOutcome,
    Run,
    Shares,
    Telemetry,
    Trial,
)
from advisor.runner.classify import NEXT_STEPS
from tests.support.simulator.engine import Values, arguments_of, switches_of

HALF = {"bf16", "bf16-mixed", "bfloat16"}
ENDING_S = 0.3
"""From the end of the window to that of the process."""
LOSSES = 16
NAMED = {"gradient_checkpointing": "recomputes"}
"""Settings whose effect has another name."""
WARM_STEPS = 6
"""In which a process warms up, before its window."""


@dataclass(frozen=True, kw_only=True)
class Formula:
    """Loader, launch cost, compute and memory of an imagined program and device.

    A batch is loaded by workers beside the step before it, or before it where there are none; a
    step costs a fixed launch and then each unit's compute.
    """

    load_s: float = 0.004
    """One worker's time for one unit."""
    load_cpu_s: float | None = None
    """The CPU time in it, of which workers sleep the rest; None: not told."""
    contention: float = 0.0
    """How much longer loading takes for each worker: they share a disk or CPUs."""
    launch_s: float = 0.004
    """Fixed cost of one step, whatever the batch."""
    unit_s: float = 0.0005
    """Compute of one unit in a full device."""
    base_gib: float = 1.0
    unit_gib: float = 0.1
    worker_gib: float | None = None
    """Memory of one loader worker."""
    own_count_alone: bool = False
    """The loader runs alone with the config's own workers only: it deals its items by them."""
    card_gib: float = 1e9
    """A batch that needs more fails with gpu-oom."""
    tells_footprint: bool = False
    """A run tells which part of its peak stays and which grows with the batch."""
    items: int = 10**9
    """What the data holds: a batch is never fuller."""
    whole_units: int = 200
    """What a run to the program's own end finishes."""
    startup_s: float = 2.0
    """To the first step."""
    process_s: float | Callable[[Trial], float] | None = None
    """What a process takes; None: what start-up, window and ending add up to."""
    copies: float | None = None
    """Share of the time in which data is copied to a card."""
    bf16_speedup: float = 1.5
    bf16_drift: float = 0.001
    """Relative shift of the losses."""
    bf16_quality: float = 0.0
    """What bfloat16 adds to the quality measure."""
    trains: bool = True
    """Whether losses are seen."""
    sampler: bool = False
    """An iterative sampler: compute is linear in its steps knob."""
    quality: Callable[[int], float] | None = None
    """The quality measure by sampler steps; every run prints it as `quality: NUMBER`."""
    quality_name: str = "quality"
    quality_items: int = 1
    """Figures that a run prints, one a line."""
    quality_noise: float = 0.0
    """Their standard deviation, drawn anew for each seed, number of steps, item and command."""
    quality_of_seed: float = 0.0
    """The same, one draw for all items of a run."""
    quality_of_pair: float = 0.0
    """The same, one draw for both arms of a pair: a walk from the seed's noise without chance."""
    quality_draw: int = 0
    """Another number is another world."""
    follows_seed: bool = True
    """Whether GPU_ADVISOR_SEED is followed; else equal runs print equal figures."""
    files: Callable[[int], int] | None = None
    """Files that a batch of so many items leaves; None: not known."""
    ignored: frozenset[str] = frozenset()
    """Settings that the program does not follow."""
    coded: Mapping[str, JsonScalar] = field(default_factory=dict)
    """Values that stand in the program's code."""
    switches: Mapping[str, float] = field(default_factory=dict)
    """Speed-up of each override that is no loader argument; others do not apply."""
    flags: Mapping[str, float] = field(default_factory=dict)
    """Speed-up of each setting that is true; Effects tells of some which are."""
    on: Mapping[str, str] = field(default_factory=dict)
    """By flag, the word that switches it on, where it is none of true and 1."""
    drifts: Mapping[str, float] = field(default_factory=dict)
    """Relative shift of the losses by override."""
    fails: Callable[[Values, Trial], str | None] | None = None
    """Kind of failure of a trial with these settings in force, if any."""
    step_kind: str | None = None
    counted: Counted | None = None
    power_w: Callable[[float], float] | None = None
    """The card's draw by units a second, of which energy follows; None: it tells neither."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What the program calls batch_size, num_workers, precision, steps, accumulation_steps."""
    observed: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of Effects."""

    def rate(self, values: Values, switches: Sequence[str] = ()) -> float:
        """Units a second at `values`, without noise."""
        batch, step_s, load_s = self._costs(values)
        workers = self._number(values, "num_workers", 0)
        whole_s = max(step_s, load_s) if workers else step_s + load_s
        speedup = math.prod(self.switches.get(each, 1.0) for each in switches)
        return speedup * batch / whole_s

    def answer(self, trial: Trial, values: Values, original: Values) -> Run | Failure:
        """One process at `values`; ignored settings are as in `original`."""
        used = {**self.coded, **values}
        first = {**self.coded, **original}
        used |= {name: first[name] for name in self.ignored if name in first}
        used |= arguments_of(trial.plan)
        memory_gib = self.base_gib + self.unit_gib * self._number(used, "batch_size", 1)
        kind = self.fails(used, trial) if self.fails else None
        if memory_gib > self.card_gib:
            kind = "gpu-oom"
        if kind:
            return Failure(
                kind=kind,
                evidence=f"{kind} at {memory_gib:.2f} GiB",
                next_step=NEXT_STEPS[kind],
                wall_s=self._process_s(trial) or self.startup_s + ENDING_S,
            )
        return self._run(trial, used, memory_gib)

    def _run(self, trial: Trial, used: Values, memory_gib: float) -> Run:
        plan, switches = trial.plan, switches_of(trial.plan)
        batch, step_s, _ = self._costs(used)
        rate = self.rate(used, switches)
        whole = plan.mode == "whole"
        steps = max(plan.min_steps, plan.whole_batches)
        seconds = self.whole_units / rate if whole else max(plan.measure_s, steps * batch / rate)
        startup_s, ending_s = self.startup_s, ENDING_S
        process_s = self._process_s(trial)
        if process_s is not None:
            startup_s, seconds, ending_s = 0.0, process_s, 0.0
        alone_s = plan.ceilings_s * (1 + len(plan.ceilings_workers)) * bool(plan.ceilings_workers)
        finished = rate * seconds if plan.whole or not self.sampler else 0.0
        finished = float(self.whole_units) if whole else finished
        half = self._half(used)
        drift = self.bf16_drift * half + sum(self.drifts.get(each, 0.0) for each in switches)
        losses = tuple(1.0 + drift for _ in range(LOSSES)) if self.trains else ()
        return Run(
            unit=trial.unit,
            units=float(self.whole_units) if whole else rate * seconds,
            units_per_s=rate,
            rate_source="formula",
            counted=self.counted,
            window_start=0.0,
            window_end=seconds,
            step_ms=1000.0 * batch / rate / self._sampler_steps(used),
            step_kind=self.step_kind,
            latency_p50_ms=1000.0 * batch / rate,
            latency_p95_ms=1000.0 * batch / rate,
            telemetry=self._told_by_card(rate, seconds),
            wait_share=max(0.0, 1.0 - step_s * self.rate(used) / batch),
            whole_units=finished + (0.0 if plan.whole or self.sampler else WARM_STEPS * batch),
            peak_mem_gib=memory_gib,
            footprint=self._footprint(memory_gib),
            losses=losses,
            shares=Shares(host_to_device=self.copies),
            effects=self._effects(used),
            overrides=self._outcomes(plan),
            ceilings=tuple(
                LoaderCeiling(
                    workers=each,
                    units_per_s=1 / self._load_s(1, each),
                    busy_cpus=self.load_cpu_s and self.load_cpu_s / self._load_s(1, each),
                    worker_gib=self.worker_gib,
                )
                for each in plan.ceilings_workers
                if not self.own_count_alone or each == self._number(used, "num_workers", 0)
            ),
            figures=self._figures(used, trial),
            to_its_end=True,
            files_in_window=math.ceil(finished / batch) * self.files(batch) if self.files else None,
            startup_s=startup_s,
            window_ended_s=startup_s + seconds,
            exit_code=0,
            wall_s=startup_s + seconds + alone_s + ending_s,
        )

    def _footprint(self, memory_gib: float) -> Footprint | None:
        fixed, whole = int(self.base_gib * 2**30), int(memory_gib * 2**30)
        told = Footprint(model=fixed, gradients=0, optimizer=0, activations=whole - fixed)
        return told if self.tells_footprint else None

    def _told_by_card(self, rate: float, seconds: float) -> Telemetry:
        if self.power_w is None:
            return Telemetry()
        watts = self.power_w(rate)
        return Telemetry(power_w=watts, energy_j=watts * seconds)

    def _process_s(self, trial: Trial) -> float | None:
        return self.process_s(trial) if callable(self.process_s) else self.process_s

    def _costs(self, values: Values) -> tuple[int, float, float]:
        """(units in a batch, seconds of its step, seconds to load it by all workers)."""
        batch = min(self._number(values, "batch_size", 1), self.items)
        step_s = (self.launch_s + self.unit_s * batch) * self._sampler_steps(values)
        step_s /= self.bf16_speedup if self._half(values) else 1.0
        for name, speedup in self.flags.items():
            step_s /= speedup if values.get(name) == self.on.get(name, 1) else 1.0
        return batch, step_s, self._load_s(batch, self._number(values, "num_workers", 0))

    def _load_s(self, batch: int, workers: int) -> float:
        return batch * self.load_s * (1 + self.contention * workers) / max(workers, 1)

    def _effects(self, used: Values) -> Effects:
        seen: dict[str, Any] = {
            "batch": float(min(self._number(used, "batch_size", 1), self.items)),
            "batch_asked": self._number(used, "batch_size", 1),
            "workers": self._number(used, "num_workers", 0),
            "forwards_per_unit": float(self._sampler_steps(used)),
            "dtype": "bfloat16" if self._half(used) else "float32",
            "input_shapes": ("3x8x8",),
            "accumulation": float(self._number(used, "accumulation_steps", 1)),
        }
        seen |= dict(self.observed)
        told = {field.name for field in fields(Effects)}
        for name in self.flags:
            effect = NAMED.get(name, name)
            seen |= {effect: used.get(name) == 1} if effect in told else {}
        return Effects(**seen)

    def _outcomes(self, plan: MeasurePlan) -> tuple[OverrideOutcome, ...]:
        known = {
            switch.partition("=")[0] for switch in switches_of(plan) if switch in self.switches
        }
        known |= arguments_of(plan).keys()
        return tuple(
            OverrideOutcome(knob=each.knob, applied=each.knob in known) for each in plan.overrides
        )

    def _figures(self, used: Values, trial: Trial) -> dict[str, tuple[str, ...]]:
        """What the plan's patterns find in what this program prints."""
        text = self._printed(used, trial)
        found = {each.name: tuple(re.findall(each.pattern, text)) for each in trial.plan.figures}
        return {name: texts for name, texts in found.items() if texts}

    def _printed(self, used: Values, trial: Trial) -> str:
        if self.quality is None:
            return ""
        steps, half = self._sampler_steps(used), self._half(used)
        value = self.quality(steps) + self.bf16_quality * half
        seed = dict(trial.env).get("GPU_ADVISOR_SEED", "") if self.follows_seed else ""
        files = {file.original for file in trial.files}
        command = [word for word in trial.command if word not in files]
        facts = (self.quality_draw, seed, steps, half, *command)
        rng = random.Random(repr(facts))
        value += rng.gauss(0.0, self.quality_of_seed)
        both = random.Random(repr((self.quality_draw, seed, *command)))
        value += both.gauss(0.0, self.quality_of_pair)
        figures = [value + rng.gauss(0.0, self.quality_noise) for _ in range(self.quality_items)]
        return "".join(f"{self.quality_name}: {figure}\n" for figure in figures)

    def _sampler_steps(self, values: Values) -> int:
        return self._number(values, "steps", 1) if self.sampler else 1

    def _half(self, values: Values) -> bool:
        return values.get(self.names.get("precision", "precision")) in HALF

    def _number(self, values: Values, kind: str, default: int) -> int:
        value = values.get(self.names.get(kind, kind), default)
        return int(value) if isinstance(value, (int, float)) else default

"""An engine without processes: it answers from a formula or from recorded runs, in virtual time.

A table of recorded runs is one JSON file: `{"machine": Machine, "cells": [{"values": {"batch_size":
8}, "outcomes": [Run or Failure, ...]}, ...]}`, the fields as in `advisor.model`.
"""

import functools
import itertools
import math
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Protocol, Self

from pydantic import Field, TypeAdapter

from advisor import config as documents
from advisor.config.document import SUFFIXES
from advisor.knobs.registry import loader_arguments
from advisor.model import (
    Disturbance,
    Failure,
    JsonScalar,
    Machine,
    MeasurePlan,
    Neighbour,
    Run,
    Trial,
    leaf_of,
)
from advisor.runner.classify import NEXT_STEPS

Values = Mapping[str, JsonScalar]
"""Settings in force by the last word of their path: `batch_size`."""
WINDOWS = 8
"""Sub-windows of a run."""
QUIET_MACHINE = Machine(
    cpu_model="recorded", cpus=8, ram_gib=64.0, ram_limit_gib=64.0, os="Linux", python="3.11"
)


class Surface(Protocol):
    """What a program does at given settings, without noise; its runs begin at second 0."""

    def answer(self, trial: Trial, values: Values, original: Values) -> Run | Failure:
        """What comes of `trial`; `original` are the settings before any change."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What makes equal processes differ."""

    between: float = 0.0
    """Relative standard deviation between processes."""
    collapse: float = 0.0
    """Share of processes that run at a tenth of their rate."""

    def factor(self, rng: random.Random) -> float:
        """Factor on the rate of one process."""
        factor = math.exp(rng.gauss(0.0, self.between))
        return 0.1 * factor if rng.random() < self.collapse else factor


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """A trial that was run, and the settings that were in force in it."""

    trial: Trial
    values: Values


class RecordedEngine:
    """Answers trials from `surface`, with noise and disturbance, on a clock of its own."""

    equal_gpus: tuple[str, ...] = ()

    def __init__(
        self,
        surface: Surface,
        *,
        noise: Noise | None = None,
        held: Callable[[int, Values], float | None] | None = None,
        slowed: float = 1.0,
        startup_s: float | None = None,
        seed: int = 0,
    ) -> None:
        """`startup_s` stands in for what the surface says.

        `held`: CPUs that another program keeps busy beside a process; None: the host does not tell.
        Each makes the process `slowed` longer.
        """
        self.asked: list[RunInfo] = []
        self._surface = surface
        self._noise = noise or Noise()
        self._held, self._slowed = held, slowed
        self._startup_s = startup_s
        self._random = random.Random(seed)
        self._now_s = 0.0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        """Nobody else could hold it."""
        self._folder = tempfile.TemporaryDirectory(prefix="gpu-advisor-")
        return self

    def __exit__(self, *exc: object) -> None:
        """The folder goes."""
        if self._folder is not None:
            self._folder.cleanup()

    def clock(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def scratch(self, trial_id: str) -> Path:
        """A path of its own; nothing is written there."""
        assert self._folder is not None, "enter the engine first"
        return Path(self._folder.name, trial_id)

    def run(self, trial: Trial) -> Run | Failure:
        """Answer one trial, and let as much time pass as it would have taken."""
        values = settings_of(trial)
        self.asked.append(RunInfo(trial=trial, values=values))
        found = self._surface.answer(trial, values, self.asked[0].values)
        if isinstance(found, Failure):
            self._now_s += found.wall_s
            return found
        run = self._limited(trial, self._played(trial, found, values))
        self._now_s += run.wall_s
        return run

    def _played(self, trial: Trial, found: Run, values: Values) -> Run:
        """The surface's answer as this process, at this time, would have come by it."""
        startup_s = self._startup_s if self._startup_s is not None else found.startup_s or 0.0
        start_s = self._now_s + startup_s
        seconds = found.window_end - found.window_start
        after_s = max(0.0, found.wall_s - (found.startup_s or 0.0) - seconds)
        disturbance, slow = self._disturbed(values)
        longer = slow / self._noise.factor(self._random)
        rate = found.units_per_s / longer
        units = rate * seconds
        if trial.plan.mode == "whole":
            units, seconds = found.units, seconds * longer
        return replace(
            found,
            units=units,
            units_per_s=rate,
            latency_p50_ms=_times(found.latency_p50_ms, longer),
            latency_p95_ms=_times(found.latency_p95_ms, longer),
            windows=(rate,) * WINDOWS,
            window_start=start_s,
            window_end=start_s + seconds,
            startup_s=startup_s,
            window_ended_s=startup_s + seconds,
            wall_s=startup_s + seconds + after_s,
            disturbance=disturbance,
        )

    def _disturbed(self, values: Values) -> tuple[Disturbance, float]:
        """What others took from the whole window, and how many times slower it was."""
        if self._held is None:
            return Disturbance(disturbed=False, others_cpus=0.0), 1.0
        held = self._held(len(self.asked) - 1, values)
        if held is None:
            return Disturbance(), 1.0
        who = (Neighbour(name="stress", cpus=held),) if held else ()
        disturbance = Disturbance(disturbed=held > 0, others_cpus=held, who=who)
        return disturbance, 1 + self._slowed * held

    def _limited(self, trial: Trial, run: Run) -> Run | Failure:
        """A run that would have broken one of the trial's limits did not come to its end."""
        if (run.startup_s or 0.0) > trial.start_limit_s:
            evidence = f"no step within {trial.start_limit_s:.0f} s"
            return _failure("no-steps", evidence, trial.start_limit_s)
        at_work_s = trial.total_limit_s if trial.steps_limit_s is None else trial.steps_limit_s
        most_s = min(trial.total_limit_s, (run.startup_s or 0.0) + at_work_s)
        if run.wall_s > most_s:
            return _failure("timeout", f"still running after {most_s:.0f} s", most_s)
        return run


def settings_of(trial: Trial) -> dict[str, JsonScalar]:
    """Settings in force in `trial`: of its files, of its changes, and of its overrides."""
    values: dict[str, JsonScalar] = {}
    for file in trial.files:
        form = SUFFIXES.get(Path(file.original).suffix, "yaml")
        parsed = documents.parse(file.content, form, file.original)
        values |= {leaf_of(scalar.path): scalar.value for scalar in parsed.scalars.values()}
    changes = (change for change in trial.candidate.changes if not change.in_code)
    values |= {leaf_of(change.path): change.new for change in changes}
    return values | arguments_of(trial.plan)


def arguments_of(plan: MeasurePlan) -> dict[str, JsonScalar]:
    """DataLoader arguments that the plan overrides."""
    kinds = ("batch_size", *loader_arguments())
    return {each.knob: each.value for each in plan.overrides if each.knob in kinds}


def switches_of(plan: MeasurePlan) -> list[str]:
    """Other overrides of the plan: `cudnn_benchmark`, `threads=2`."""
    return [
        each.knob if each.value is True else f"{each.knob}={each.value}"
        for each in plan.overrides
        if each.knob not in arguments_of(plan)
    ]


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _failure(kind: str, evidence: str, wall_s: float) -> Failure:
    return Failure(kind=kind, evidence=evidence, next_step=NEXT_STEPS[kind], wall_s=wall_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPoint:
    """What was recorded at one set of values."""

    values: dict[str, JsonScalar]
    outcomes: Annotated[tuple[Run | Failure, ...], Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A surface of recorded runs: those of a cell are given one after another, then again."""

    cells: tuple[GridPoint, ...]
    machine: Machine = QUIET_MACHINE
    """Where they were recorded."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """From a file."""
        return TypeAdapter(cls).validate_json(path.read_bytes())

    @functools.cached_property
    def _turns(self) -> list[Iterator[Run | Failure]]:
        return [itertools.cycle(cell.outcomes) for cell in self.cells]

    def answer(self, trial: Trial, values: Values, original: Values) -> Run | Failure:
        """The next run of the first cell whose values are all in force."""
        del original
        for cell, turn in zip(self.cells, self._turns, strict=True):
            if all(values.get(name) == value for name, value in cell.values.items()):
                return next(turn)
        shown = " ".join(f"{name}={value}" for name, value in values.items())
        return _failure("crash-start", f"nothing was recorded at {shown}", 0.0)

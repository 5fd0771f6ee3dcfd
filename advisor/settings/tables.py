"""The tables of gpu-advisor.toml."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from advisor.settings.forms import (
    Bounds,
    Command,
    Duration,
    NumberRegex,
    ObjectiveName,
    Regex,
    Share,
    Text,
    Tolerance,
    Variables,
    parse_share,
)


def dashed(name: str) -> str:
    """The key of a field: `quality-command`."""
    return name.replace("_", "-")


class _Table(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        alias_generator=dashed,
        populate_by_name=True,
    )


class QualityMeasure(_Table):
    """Number in the program's output that measures its product."""

    pattern: Regex
    """Regular expression over the output; group 1 is the number."""
    matches: Literal["each", "last"] = "each"
    """each: every match is an item of its own, paired with the same one of the original. last: the
    program prints one figure again and again, and the last of them counts."""
    better: Literal["lower", "higher"] = "lower"
    tolerance: Tolerance = "0%"
    """Largest loss against the original: `2%` relative, `0.01` absolute."""

    @property
    def sign(self) -> float:
        """1 where a lower value is better, else -1."""
        return 1.0 if self.better == "lower" else -1.0

    def limit(self, reference: float) -> float:
        """The worst value still accepted, given the original's `reference`."""
        return reference + self.sign * self.slack(reference)

    def slack(self, reference: float) -> float:
        """Accepted loss against `reference`."""
        text = self.tolerance.strip()
        return abs(reference) * parse_share(text) if text.endswith("%") else float(text)


class GateLimits(_Table):
    """Largest allowed loss of each figure."""

    throughput: Share | None = Field(default=None, gt=0, lt=1)
    """Largest drop of the rate, in place of the gate's --threshold."""
    memory: Share | None = Field(default=None, gt=0)
    """Largest growth of the peak memory that the device's allocator held."""
    energy: Share | None = Field(default=None, gt=0)
    """Largest growth of the energy a unit."""
    latency_p95: Share | None = Field(default=None, gt=0)
    """Largest growth of what 95 in a hundred batches take, or less."""
    benchmarks: dict[Text, Share] = Field(default_factory=dict)
    """Largest change for the worse of single benchmarks, by name."""

    def shares(self) -> dict[str, float]:
        """Limits by name."""
        return self.model_dump(exclude={"benchmarks"}, exclude_none=True)


class TrialLimits(_Table):
    """Limits of one process."""

    start_limit: Duration | None = None
    """Longest wait for the first step (5m, or five times the original's)."""
    hang_limit: Duration | None = None
    """Longest silence after a step (60s)."""
    run_limit: Duration | None = None
    """Longest run of one process (the window and the other limits together)."""


class Workload(TrialLimits):
    """Command of the user, and its judgement settings."""

    config: Text | None = None
    """Path of the config, relative to this file."""
    command: Command
    """The user's own command; `{config}` stands for the config's path."""
    phase: Literal["train", "eval", "test", "any"] = "any"
    """Phase that the command runs; knobs of other phases stay as they are."""
    unit: str = "sample"
    """Name of one unit of work in reports."""
    unit_regex: Regex | None = None
    """Counts units in the output of a program the probe cannot recognise."""
    metric_regex: NumberRegex | None = None
    """Reads a rate (units/s) from the output, for the gate."""
    objective: ObjectiveName | None = None
    """Figure of a unit that decides; that of [defaults] if not given."""
    constraints: Bounds | None = None
    """Bounds that hold beside it: `memory<=7GiB`, `latency_p95<=80ms`, `power<=250W`."""
    quality: dict[str, QualityMeasure] = Field(default_factory=dict)
    """Measures by name. Declaring one is the consent to trade within its tolerance."""
    quality_command: Command | None = None
    """A shorter command for the quality measures, on a fixed subset of items. It is run with
    several seeds: `{seed}` in it, and GPU_ADVISOR_SEED in its environment."""
    confirm_quality_command: Command | None = None
    """The same measures on other items: what `quality-command` chose is confirmed by it."""
    numeric_tolerance: Share | None = None
    """Largest relative drift of the training loss, or of an inference's outputs, that a change of
    rounding may cause."""
    gate: GateLimits = GateLimits()
    """Limits of the gate, read in the commit that a change is compared with."""
    output_flags: list[Text] = Field(default_factory=list)
    """Extra flags that name output directories; they are pointed into scratch."""
    env: Variables = Field(default_factory=dict)
    """Environment of the command, on top of the caller's."""


class Defaults(TrialLimits):
    """Values that flags and workloads do not give."""

    budget: Duration = 600.0
    target: str = "auto"
    objective: ObjectiveName = "throughput"
    """Figure of a unit that decides, where a workload names none."""
    constraints: Bounds = ()
    """Bounds that must hold, where a workload names none."""
    smallest_gain: Share = 0.03
    """The smallest gain worth a change of the config."""
    seed: int | None = None
    """Exported to every run as GPU_ADVISOR_SEED and PYTHONHASHSEED."""


class EngineTable(_Table):
    """Way to a node that runs the trials."""

    command: Command
    """Words that start a program there and carry its input and output: `ssh gpu-box`, or
    `srun --partition=gpu --gres=gpu:1 --cpus-per-task=8`."""
    python: Text | None = None
    """Python of the node that has gpu-advisor, if not at the path of this one."""


class Settings(_Table):
    """gpu-advisor.toml."""

    defaults: Defaults = Defaults()
    workload: dict[str, Workload] = Field(default_factory=dict)
    price: dict[Text, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Price of an hour of a card, by its name, in any currency: `predict` tells that of 1,000
    units."""
    engine: dict[str, EngineTable] = Field(default_factory=dict)
    """By the name that `--engine` takes."""
    root: Path = Field(default=Path(), exclude=True)
    """Directory of the file; set by `load`, never read from it."""

    def workload_for(self, config: Path) -> tuple[str, Workload] | None:
        """Return the first entry with this `config`."""
        real = os.path.realpath(config)
        for name, entry in self.workload.items():
            if entry.config and os.path.realpath(self.root / entry.config) == real:
                return name, entry
        return None

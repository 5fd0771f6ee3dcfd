"""gpu-advisor.toml, `[tool.gpu-advisor]` in pyproject.toml, and their JSON Schema."""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from advisor.errors import SettingsError
from advisor.model import Tier  # noqa: TC001  pydantic reads it
from advisor.objective import parse_constraint

FILE_NAME = "gpu-advisor.toml"


_NUMBER = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile(
    rf"\s*(?:{_NUMBER}\s*h)?\s*(?:{_NUMBER}\s*m)?\s*(?:{_NUMBER}\s*s)?\s*", re.IGNORECASE
)


def parse_duration_s(text: str | float) -> float:
    """`90`, `90s`, `1.5m`, `3m30s`, `1h5m` to seconds. Raises ValueError with the forms allowed."""
    forms = "write 90s, 10m, 3m30s or 1h"
    bare = re.fullmatch(rf"\s*{_NUMBER}\s*", str(text))
    parts = _DURATION.fullmatch(str(text))
    if isinstance(text, bool) or not (bare or (parts and any(parts.groups()))):
        msg = f"{text!r} is no duration; {forms}"
        raise ValueError(msg)
    if bare:
        seconds = float(bare[1])
    else:
        assert parts is not None
        hours, minutes, rest = (float(part or 0) for part in parts.groups())
        seconds = 3600 * hours + 60 * minutes + rest
    if not 0 < seconds < math.inf:
        msg = f"{text!r} is not above zero; {forms}"
        raise ValueError(msg)
    return seconds


def parse_share(text: str | float) -> float:
    """`5%` or `0.05` to 0.05. Raises ValueError with the forms allowed."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%)?\s*", str(text))
    if not match:
        msg = f"{text!r} is no share; write 5% or 0.05"
        raise ValueError(msg)
    return float(match[1]) / (100 if match[2] else 1)


def needs_shell(command: str) -> bool:
    """Whether a declared command has shell operators in it, so that bash has to run it."""
    return any(mark in command for mark in ("&&", "||", ";", "|", "`", "$(", "<", ">"))


def _no_nul(text: str) -> str:
    if "\0" in text:
        msg = "has a NUL in it; remove it"
        raise ValueError(msg)
    return text


def _parsed_command(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError as problem:
        if needs_shell(text):
            return _no_nul(text)
        msg = f"is no command ({problem}); close the quote, or put a backslash before it"
        raise ValueError(msg) from problem
    if not words:
        msg = "names no program"
        raise ValueError(msg)
    return _no_nul(text)


def _parsed_regex(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as problem:
        msg = f"is no regular expression: {problem}"
        raise ValueError(msg) from problem
    return text


def _parsed_number_regex(text: str) -> str:
    if not re.compile(_parsed_regex(text)).groups:
        msg = "has no group; put the number in brackets, such as ([0-9.]+)"
        raise ValueError(msg)
    return text


def _parsed_tolerance(text: str | float) -> str:
    value = str(text).strip()
    try:
        slack = parse_share(value) if value.endswith("%") else float(value)
    except ValueError:
        slack = math.nan
    if not 0 <= slack < math.inf:
        msg = "is no tolerance; write 2% (relative) or 0.01 (absolute)"
        raise ValueError(msg)
    return value


def _parsed_bounds(bounds: tuple[str, ...]) -> tuple[str, ...]:
    for bound in bounds:
        parse_constraint(bound)
    return bounds


def _variables(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            msg = f"{name!r} can be no environment variable"
            raise ValueError(msg)
    return env


Text = Annotated[str, AfterValidator(_no_nul)]
Command = Annotated[str, AfterValidator(_parsed_command)]
Regex = Annotated[str, AfterValidator(_parsed_regex)]
NumberRegex = Annotated[str, AfterValidator(_parsed_number_regex)]
Tolerance = Annotated[str, BeforeValidator(_parsed_tolerance, json_schema_input_type=float | str)]
Bounds = Annotated[tuple[Text, ...], AfterValidator(_parsed_bounds)]
Variables = Annotated[dict[str, str], AfterValidator(_variables)]
Duration = Annotated[float, BeforeValidator(parse_duration_s, json_schema_input_type=float | str)]
Share = Annotated[float, BeforeValidator(parse_share, json_schema_input_type=float | str)]


KNOWN_FIGURES = ("throughput", "memory", "energy", "latency_p95")
"""What the gate measures by itself."""


def _own_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,39}", name, re.ASCII) or name in KNOWN_FIGURES:
        msg = "can be no name of a figure; use letters, digits, _ . -, and none that is known"
        raise ValueError(msg)
    return name


FigureName = Annotated[str, AfterValidator(_own_name)]


def _dashed(name: str) -> str:
    return name.replace("_", "-")


class _Table(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        alias_generator=_dashed,
        populate_by_name=True,
    )


class QualityMeasure(_Table):
    """A number in the program's own output that says how good its product is."""

    pattern: Regex
    """Regular expression over the output; group 1 is the number."""
    matches: Literal["each", "last"] = "each"
    """each: every match is an item of its own, paired with the same one of the original. last: the
    program prints one figure again and again, and the last of them counts."""
    better: Literal["lower", "higher"] = "lower"
    tolerance: Tolerance = "0%"
    """How much worse than the original it may become: `2%` relative, `0.01` absolute."""

    def limit(self, reference: float) -> float:
        """The worst value still accepted, given the original's `reference`."""
        slack = self.slack(reference)
        return reference + slack if self.better == "lower" else reference - slack

    def slack(self, reference: float) -> float:
        """How much worse than `reference` is still accepted."""
        text = self.tolerance.strip()
        return abs(reference) * parse_share(text) if text.endswith("%") else float(text)

    def within(self, value: float, reference: float) -> bool:
        """Whether `value` is no worse than the tolerance allows."""
        limit = self.limit(reference)
        return value <= limit if self.better == "lower" else value >= limit


class GateMetric(_Table):
    """A figure in the program's own output, for the gate to bound."""

    pattern: NumberRegex
    """Regular expression over a line of the output; group 1 is the number, above zero. The last
    line that matches counts."""
    better: Literal["lower", "higher"]
    """Which way is better."""
    limit: Share = Field(gt=0, lt=1)
    """The largest share by which it may worsen."""


class GateLimits(_Table):
    """By how much each figure may worsen before `gpu-advisor gate` is red; of the base side."""

    throughput: Share | None = Field(default=None, gt=0, lt=1)
    """Largest drop of the rate, in place of the gate's --threshold."""
    memory: Share | None = Field(default=None, gt=0)
    """Largest growth of the peak memory that the device's allocator held."""
    energy: Share | None = Field(default=None, gt=0)
    """Largest growth of the energy a unit."""
    latency_p95: Share | None = Field(default=None, gt=0)
    """Largest growth of what 95 in a hundred batches take, or less."""
    metrics: dict[FigureName, GateMetric] = Field(default_factory=dict)
    """Figures of the program's own, by name."""

    def shares(self) -> dict[str, float]:
        """What is bounded, by name."""
        known = {name: getattr(self, name) for name in KNOWN_FIGURES}
        own = {name: metric.limit for name, metric in self.metrics.items()}
        return {name: share for name, share in known.items() if share is not None} | own


class Workload(_Table):
    """One command of the user's and how to judge it."""

    config: Text | None = None
    """Path of the config, relative to this file."""
    command: Command
    """The user's own command; `{config}` stands for the config's path."""
    phase: Literal["train", "eval", "test", "any"] = "any"
    """Which part of the config the command uses: knobs of other phases are left alone."""
    unit: str = "sample"
    """What one unit of work is called in reports."""
    unit_regex: Regex | None = None
    """Counts units in the output of a program the probe cannot recognise."""
    metric_regex: NumberRegex | None = None
    """Reads a rate (units/s) from the output, for the gate."""
    objective: Literal["throughput", "latency", "energy", "cost"] | None = None
    """What is maximised: units a second; or made small: the time a unit's user waits, the card's
    energy for a unit, or what a unit costs. Of [defaults] if not given."""
    constraints: Bounds | None = None
    """Bounds that hold beside it: `memory<=7GiB`, `latency_p95<=80ms`, `power<=250W`."""
    quality: dict[str, QualityMeasure] = Field(default_factory=dict)
    """Measures by name. Declaring one is the consent to trade within its tolerance."""
    quality_command: Command | None = None
    """A shorter command for the quality measures, on a fixed subset of items. It is run with
    several seeds: `{seed}` in it, and GPU_ADVISOR_SEED in its environment."""
    confirm_quality_command: Command | None = None
    """The same measures on other items: what `quality-command` chose is confirmed by it."""
    quality_proof: Literal["bounds", "one-run"] = "bounds"
    """bounds: results may change only where the bounds of repeated pairs lie inside the tolerance.
    one-run: one run a value decides, and the report says that nothing is proven by it."""
    tier: Tier = "fastest"
    """How far results may change: not (safe), by rounding (balanced), or also in the product
    (fastest); always inside the tolerances."""
    numeric_tolerance: Share | None = None
    """Largest relative drift of the training loss, or of an inference's outputs, that a change of
    rounding may cause."""
    gate: GateLimits = GateLimits()
    """What the gate allows; it reads this in the commit that a change is compared with."""
    output_flags: list[Text] = Field(default_factory=list)
    """Extra flags that name output directories; they are pointed into scratch."""
    env: Variables = Field(default_factory=dict)
    """Environment of the command, on top of the caller's."""
    start_limit: Duration | None = None
    """Longest wait for the first step; follows from what the original takes if not given."""
    hang_limit: Duration | None = None
    """Longest silence after a step."""
    run_limit: Duration | None = None
    """Longest run of one process; follows from the window and the other limits if not given."""


class Accepted(_Table):
    """A slowdown that `gpu-advisor gate` lets pass once; read in the commit that a change is
    compared with."""

    workload: Text = Field(min_length=1)
    """As the report names it: `train`, `train: memory`, or a benchmark of a suite."""
    up_to: Share = Field(gt=0)
    """The largest slowdown, or growth, that is accepted."""
    of: str = Field(pattern=r"^(#[1-9][0-9]*|[0-9a-f]{7,64})$")
    """Of which one pull request (`#412`), or commit (by seven characters or more)."""
    who: Text = Field(min_length=1)
    """Who accepts it."""
    why: Text = Field(min_length=1)
    """What it is worth it for."""


class Defaults(_Table):
    """What the flags would say."""

    budget: Duration = 600.0
    target: str = "auto"
    start_limit: Duration | None = None
    """Longest wait for a program's first step (5m, or five times the original's)."""
    hang_limit: Duration | None = None
    """Longest silence after a step (60s)."""
    run_limit: Duration | None = None
    """Longest run of one process (the window and the other limits together)."""
    objective: Literal["throughput", "latency", "energy", "cost"] = "throughput"
    """What is maximised or made small, where a workload does not say."""
    constraints: Bounds = ()
    """Bounds that hold beside it, where a workload does not say."""
    smallest_gain: Share = 0.03
    """The smallest gain worth a change of the config."""
    price_per_hour: float | None = Field(default=None, gt=0)
    """What an hour of this machine costs, in any currency; the report then tells it a unit, and
    the objective `cost` can be asked for."""


class Settings(_Table):
    """gpu-advisor.toml."""

    defaults: Defaults = Defaults()
    workload: dict[str, Workload] = Field(default_factory=dict)
    accepted: tuple[Accepted, ...] = ()
    """Slowdowns that the gate lets pass once."""
    root: Path = Field(default=Path(), exclude=True)
    """Directory of the file; set by `load`, never read from it."""

    def workload_for(self, config: Path) -> tuple[str, Workload] | None:
        """The entry whose `config` is this file, by real path; the first one wins."""
        real = os.path.realpath(config)
        for name, entry in self.workload.items():
            if entry.config and os.path.realpath(self.root / entry.config) == real:
                return name, entry
        return None


def find(start: Path) -> Path | None:
    """gpu-advisor.toml, or a pyproject.toml with [tool.gpu-advisor], in `start` or above."""
    real = Path(os.path.realpath(start))
    for folder in (real, *real.parents):
        own = folder / FILE_NAME
        if own.is_file():
            return own
        project = folder / "pyproject.toml"
        with contextlib.suppress(OSError):  # a project of somebody else's further up
            if project.is_file() and b"[tool.gpu-advisor" in project.read_bytes():
                return project
        if (folder / ".git").exists():
            return None
    return None


def load(path: Path | None) -> Settings:
    """Settings of `path`; all defaults for None. Raises SettingsError naming key and fix."""
    if path is None:
        return Settings()
    try:
        table: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        msg = f"{path} cannot be read: {problem.strerror}. Make it readable and call again."
        raise SettingsError(msg) from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
        msg = f"{path} is no valid TOML: {problem}. Fix that line and call again."
        raise SettingsError(msg) from problem
    if path.name != FILE_NAME:
        table = table.get("tool", {})
        table = table.get("gpu-advisor", {}) if isinstance(table, dict) else {}
    if not isinstance(table, dict):
        msg = f"{path}: tool.gpu-advisor is {table!r:.80}, not a table."
        raise SettingsError(msg)
    table.pop("root", None)
    try:
        settings = Settings.model_validate(table)
    except ValidationError as problem:
        raise SettingsError(_explain(path, problem)) from problem
    return settings.model_copy(update={"root": path.parent.resolve()})


def json_schema() -> str:
    """The JSON Schema of gpu-advisor.toml, as committed in gpu-advisor.schema.json."""
    schema = Settings.model_json_schema(by_alias=True)
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def _explain(path: Path, problem: ValidationError) -> str:
    first: Any = problem.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = {
            _dashed(name)
            for table in (
                *(Settings, Defaults, Workload, QualityMeasure),
                *(GateLimits, GateMetric, Accepted),
            )
            for name in table.model_fields
        } - {"root"}
        near = difflib.get_close_matches(str(first["loc"][-1]), sorted(known), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return f"{path}: unknown key {where!r}.{hint}"
    return f"{path}: {where} = {first['input']!r}: {first['msg']}."

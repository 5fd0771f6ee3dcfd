"""gpu-advisor.toml or `[tool.gpu-advisor]`: tables, reader and JSON Schema."""

import contextlib
import difflib
import math
import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from advisor.errors import SettingsError
from advisor.model import WorkCause
from advisor.objective import OBJECTIVES, parse_constraint

_NUMBER = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile(
    rf"\s*(?:{_NUMBER}\s*(?:h|hr|hrs|hours?))?\s*(?:{_NUMBER}\s*(?:m|mins?|minutes?))?"
    rf"\s*(?:{_NUMBER}\s*(?:s|secs?|seconds?))?\s*",
    re.IGNORECASE,
)
"""`90s`, `5min`, `1 hour 5 minutes`."""


def parse_duration_s(text: str | float) -> float:
    """Seconds of `90s`, `1.5m` or `1h5m`. Raises ValueError."""
    spelled = re.sub(rf"\A\s*{_NUMBER}\s*\Z", r"\1s", str(text))  # bare numbers are seconds
    parts = None if isinstance(text, bool) else _DURATION.fullmatch(spelled)
    hours, minutes, seconds = (
        (float(part or 0) for part in parts.groups()) if parts else (0, 0, 0)
    )
    total = 3600 * hours + 60 * minutes + seconds
    if not 0 < total < math.inf:
        msg = f"{text!r} is no duration above zero; write 90s, 10m, 3m30s or 1h"
        raise ValueError(msg)
    return total


def parse_share(text: str | float) -> float:
    """Parse `5%` or `0.05`. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:e-\d+)?)\s*(%)?\s*", str(text))
    if not match:
        msg = f"{text!r} is no share; write 5% or 0.05"
        raise ValueError(msg)
    return float(match[1]) / (100 if match[2] else 1)


def needs_shell(command: str) -> bool:
    return any(mark in command for mark in ("&&", "||", ";", "|", "`", "$(", "<", ">"))


def _parsed_command(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError as problem:
        if needs_shell(text):
            return text
        msg = f"is no command ({problem}); close the quote, or put a backslash before it"
        raise ValueError(msg) from problem
    if not words:
        msg = "names no program"
        raise ValueError(msg)
    return text


def parsed_regex(text: str) -> str:
    """Check a regular expression. Raises ValueError."""
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as problem:
        msg = f"is no regular expression: {problem}"
        raise ValueError(msg) from problem
    return text


def _parsed_number_regex(text: str) -> str:
    if not re.compile(parsed_regex(text)).groups:
        msg = "has no group; put the number in brackets, such as ([0-9.]+)"
        raise ValueError(msg)
    return text


def _known_objective(name: str) -> str:
    if name not in OBJECTIVES:
        msg = f"is no objective; write {' or '.join(OBJECTIVES)}"
        raise ValueError(msg)
    return name


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


PlainText = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
Command = Annotated[PlainText, AfterValidator(_parsed_command)]
Regex = Annotated[str, AfterValidator(parsed_regex)]
NumberRegex = Annotated[str, AfterValidator(_parsed_number_regex)]
Tolerance = Annotated[
    str, BeforeValidator(_parsed_tolerance, json_schema_input_type=float | str)
]
ObjectiveName = Annotated[
    str,
    AfterValidator(_known_objective),
    Field(json_schema_extra={"enum": list(OBJECTIVES)}),
]
BoundText = Annotated[PlainText, AfterValidator(lambda text: parse_constraint(text).text)]
Variables = dict[Annotated[str, StringConstraints(pattern=r"^[^=\x00]+$")], PlainText]
Duration = Annotated[
    float, BeforeValidator(parse_duration_s, json_schema_input_type=float | str)
]
Share = Annotated[float, BeforeValidator(parse_share, json_schema_input_type=float | str)]


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
    """each: every match is an item of its own, and is compared with the same item of the original.
    last: only the last match counts, as of a figure that the program prints again and again."""
    better: Literal["lower", "higher"] = "lower"
    """Direction in which the number improves."""
    tolerance: Tolerance = "0%"
    """Largest loss against the original: `2%` relative, `0.01` absolute."""

    @property
    def sign(self) -> float:
        """1 where a lower value is better, else -1."""
        return 1.0 if self.better == "lower" else -1.0

    def limit(self, reference: float) -> float:
        """Worst value accepted, given the original's `reference`."""
        return reference + self.sign * self.slack(reference)

    def slack(self, reference: float) -> float:
        """Accepted loss against `reference`."""
        text = self.tolerance.strip()
        return abs(reference) * parse_share(text) if text.endswith("%") else float(text)


class GateLimits(_Table):
    """Largest allowed loss of each figure."""

    throughput: Share | None = Field(default=None, gt=0, lt=1)
    """Largest drop of the rate, as `5%` or 0.05; it takes the place of the gate's --threshold."""
    memory: Share | None = Field(default=None, gt=0)
    """Largest growth of the peak memory: of the device's allocator, and without a device of all
    the program's processes."""
    energy: Share | None = Field(default=None, gt=0)
    """Largest growth of the energy that one unit takes."""
    latency_p95: Share | None = Field(default=None, gt=0)
    """Largest growth of the 95th percentile of the time of a batch."""
    benchmarks: dict[PlainText, Share] = Field(default_factory=dict)
    """Largest change for the worse of single benchmarks, by their names in the suite."""

    def shares(self) -> dict[str, float]:
        return self.model_dump(exclude={"benchmarks"}, exclude_none=True)


class TrialLimits(_Table):
    """Limits of one process."""

    start_limit: Duration | None = None
    """Longest wait for the first step. Default: 5m, or five times what the original took."""
    hang_limit: Duration | None = None
    """Longest time without a step, once there was one. Default: 60s."""
    run_limit: Duration | None = None
    """Longest run of one process. Default: the window and the other two limits together."""


class Workload(TrialLimits):
    """Command of the user, and its judgement settings."""

    config: PlainText | None = None
    """Path of the config, relative to this file."""
    command: Command
    """The user's own command; `{config}` stands for the config's path."""
    phase: Literal["train", "eval", "test", "any"] = "any"
    """Phase that the command runs; knobs of other phases stay as they are."""
    validation: bool = False
    """Measure and tune the validations of a training, instead of its updates. The command has to
    reach one within the budget, and only the loaders are tuned."""
    unit: str = "sample"
    """Name of one unit of work in reports: `tile`, `frame`. It changes no measurement."""
    unit_regex: Regex | None = None
    """Counts finished work by output lines, in place of the steps that are seen in the program.
    Each line that matches is one unit; with a group, the number in group 1 counts instead."""
    metric_regex: NumberRegex | None = None
    """Reads the program's own rate in units/s from its output, for the gate. Group 1 is the
    number."""
    objective: ObjectiveName | None = None
    """Figure that tuning improves. Default: that of [defaults]."""
    constraints: tuple[BoundText, ...] | None = None
    """Bounds that have to hold as well: `memory<=7GiB`, `latency_p95<=80ms`, `power<=250W`.
    Default: those of [defaults]."""
    quality: dict[str, QualityMeasure] = Field(default_factory=dict)
    """Measures of the product's quality, by name. To declare one is to consent: what changes the
    product is tried, and written if the measure stays within its tolerance."""
    quality_command: Command | None = None
    """A shorter command for the quality measures, on a fixed subset of items. It is run with
    several seeds: `{seed}` in it, and GPU_ADVISOR_SEED in its environment."""
    confirm_quality_command: Command | None = None
    """A command for the same measures on other items. What `quality-command` chose is confirmed
    by it, so that no choice is fitted to the items that it was made on."""
    keep: tuple[PlainText, ...] = ()
    """Settings that stay as they are, whatever would be faster: a path such as `data.batch_size`,
    its last part, or a kind such as `num_workers`. For what no run shows, as an evaluation that
    ranks the items of a batch against each other."""
    accept: tuple[WorkCause, ...] = ()
    """Differences of the work that you accept, by the names that reports give them. Without one a
    value is only written where the program trains on the same items, in updates of as many
    samples, by the same learning rates, from datasets in the same state."""
    numeric_tolerance: Share | None = None
    """Largest relative drift of the training loss, or of an inference's outputs, that a change of
    rounding may cause."""
    gate: GateLimits = GateLimits()
    """Limits of the gate, read in the commit that a change is compared with."""
    output_flags: list[PlainText] = Field(default_factory=list)
    """Further flags of the command that name an output folder. Trials give them a temporary one."""
    env: Variables = Field(default_factory=dict)
    """Variables for the command, beside those of the caller."""

    @property
    def trains(self) -> bool | None:
        """False where the command only evaluates; None where its runs tell."""
        return False if self.phase in {"eval", "test"} and not self.validation else None


class Defaults(TrialLimits):
    """Values that flags and workloads do not give."""

    budget: Duration = 600.0
    """Longest time of a call, in seconds or as `10m`; what was measured by then is used."""
    target: str = "auto"
    """Card to aim at: a name that `gpu-advisor gpus` lists, or auto for the one in use."""
    objective: ObjectiveName = "throughput"
    """Figure that tuning improves, where a workload names none."""
    constraints: tuple[BoundText, ...] = ()
    """Bounds that have to hold as well, where a workload names none."""
    smallest_gain: Share = 0.03
    """Smallest gain worth a change of the config: 0.03, or `3%`."""
    seed: int | None = None
    """Given to every run as GPU_ADVISOR_SEED and PYTHONHASHSEED."""


class EngineTable(_Table):
    """Way to a node that runs the trials."""

    command: Command
    """Words that start a program there and carry its input and output: `ssh gpu-box`, or
    `srun --partition=gpu --gres=gpu:1 --cpus-per-task=8`."""
    more_nodes: tuple[Command, ...] = ()
    """One `command` for each further node. Every trial then runs on all nodes, as one distributed
    job."""
    python: PlainText | None = None
    """Python of the node in which gpu-advisor is installed. Default: the path of this one."""
    price: Annotated[float, Field(gt=0)] | None = None
    """Price of an hour of the node, in any currency."""


class Settings(_Table):
    """gpu-advisor.toml."""

    defaults: Defaults = Defaults()
    """Values that hold where neither a flag nor a workload gives one."""
    workload: dict[str, Workload] = Field(default_factory=dict)
    """Commands to tune or to gate, by the name that `--workload` takes."""
    price: dict[PlainText, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Price of an hour by card, in any currency, from which `predict` tells that of 1,000 units."""
    engine: dict[str, EngineTable] = Field(default_factory=dict)
    """Ways to other machines, by the name that `--engine` takes."""
    root: Path = Field(default=Path(), exclude=True)
    """Directory of the file; set by `load`, never read from it."""

    def workload_for(self, config: Path) -> str | None:
        """Name of the first entry with this `config`."""
        real = os.path.realpath(config)
        for name, entry in self.workload.items():
            if entry.config and os.path.realpath(self.root / entry.config) == real:
                return name
        return None


FILE_NAME = "gpu-advisor.toml"


def find(start: Path) -> Path | None:
    """Find gpu-advisor.toml or pyproject.toml in or above `start`."""
    real = Path(os.path.realpath(start))
    for folder in (real, *real.parents):
        file = folder / FILE_NAME
        if file.is_file():
            return file
        project = folder / "pyproject.toml"
        with contextlib.suppress(OSError):  # an unrelated project further up
            if project.is_file() and b"[tool.gpu-advisor" in project.read_bytes():
                return project
        if (folder / ".git").exists():
            return None
    return None


def load(path: Path | None) -> Settings:
    """Settings of `path`, defaults for None. Raises SettingsError."""
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
    for key in () if path.name == FILE_NAME else ("tool", "gpu-advisor"):
        table = table.get(key, {}) if isinstance(table, dict) else {}
    try:
        settings = Settings.model_validate(table)
    except ValidationError as problem:
        raise SettingsError(_explain(path, problem)) from problem
    return settings.model_copy(update={"root": path.parent.resolve()})


def _explain(path: Path, problem: ValidationError) -> str:
    errors: list[Any] = list(problem.errors())
    # A missing key is mostly a misspelled one.
    first = next(
        (error for error in errors if error["type"] == "extra_forbidden"), errors[0]
    )
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        keys = {
            dashed(name)
            for table in (
                Settings,
                Defaults,
                Workload,
                QualityMeasure,
                GateLimits,
                EngineTable,
            )
            for name in table.model_fields
        } - {"root"}
        near = difflib.get_close_matches(str(first["loc"][-1]), sorted(keys), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return f"{path}: unknown key {where!r}.{hint}"
    return f"{path}: {where} = {first['input']!r}: {first['msg']}."

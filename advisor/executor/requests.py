"""Requests for measurements and their results, all frozen.

    TrialRequest    one process                 TrialResult   it ran, as a Run or a Failure
    ABTest          rounds of several variants  SkippedRun    it did not fit the budget
    Program         command and configs, from which a request becomes a Trial

The tuner makes requests and reads results. It starts nothing itself, so it can be tested without
a process, and a call made again asks the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from advisor import config as documents
from advisor.config import argv
from advisor.model import Candidate, Failure, MeasurePlan, Purpose, Run, Trial, TrialFile
from advisor.runner.resources import ProcessLimits

CommandName = Literal["own", "quality", "confirm-quality"]
"""The user's own command, or one declared for quality measures."""
KnobKey = tuple[str, str]
"""Document and path of a knob."""
BEFORE, AFTER = "before", "after"
"""Names of the two variants of most tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Changes to the original, or another program."""

    candidate: Candidate = field(default_factory=Candidate)
    extra_s: float = 0.0
    """Paid once before the window: compilation."""
    program: str | None = None
    """Name of its own program: another config or command; None: the executor's."""

    @property
    def label(self) -> str:
        return self.candidate.label


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRequest:
    """One measured process, and its purpose."""

    variant: Variant
    purpose: Purpose
    plan: MeasurePlan
    command: CommandName = "own"
    repeat: int | None = None
    """Number of the repetition, with its own seed; None: the call's seed, if any."""
    series: str = ""
    """Name of a repetition: two series of one measurement never replace each other."""
    fresh: bool = False
    """No kept run will do."""
    expected_s: float = 0.0
    """Expected time; not begun with less left. 0: needed whatever it takes."""
    limit_s: float | None = None
    """Given up as unfit so long after its first step; None: with the budget."""
    kept_s: float = 0.0
    """Budget left for a proof: a process that runs into it is ended."""
    title: str = ""
    """Label in place of the changes."""

    @property
    def label(self) -> str:
        return self.title or self.variant.label


@dataclass(frozen=True, slots=True, kw_only=True)
class ABTest:
    """Variants for interleaved rounds of fresh processes."""

    purpose: Purpose
    requests: tuple[TrialRequest, ...]
    """One a variant, compared with the first."""
    names: tuple[str, ...] = (BEFORE, AFTER)
    rounds: int
    """Uncontended rounds, fixed before the first."""
    max_rounds: int = 0
    """Most rounds, but for those that outlive collapsed runs.

    Time decides how many, and the number of collapses, never a rate itself: the bounds hold."""
    sigma: float = 0.0
    """Standard deviation of a log ratio of two equal processes, known before."""
    finish_once: bool = False
    """In round one, and in those that run at once with it, the last variant finishes an item."""
    decided: Callable[[Any], bool] | None = None
    """Ends the rounds once true of the `Comparison` so far; its errors must allow for the looks."""

    @property
    def by_name(self) -> dict[str, TrialRequest]:
        return dict(zip(self.names, self.requests, strict=True))

    @property
    def before(self) -> Variant:
        return self.requests[0].variant

    @property
    def after(self) -> Variant:
        return self.requests[-1].variant


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """Requested process, and its result."""

    id: str
    request: TrialRequest
    result: Run | Failure
    reused: bool = False
    """Taken from history: measured by an earlier call."""
    repeated: bool = False
    """Contended, and run again: nothing rests on it."""
    took_s: float = 0.0
    """Time of the process with preparation."""
    remaining_s: float

    @property
    def run(self) -> Run | None:
        """Run, unless it failed."""
        return self.result if isinstance(self.result, Run) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRun:
    """Process or test that did not fit the budget."""

    request: TrialRequest | ABTest
    needed_s: float
    remaining_s: float
    stopped: bool = False
    """Ended by our limit: it needs more than `needed_s`."""


def contended(run: Run) -> bool:
    """True if background load disturbed the rate."""
    return run.disturbance.disturbed is True


COMMAND_LINE = "command line"
"""Name of the command's document, beside the paths of configs."""
SEED = "{seed}"
"""Word of a command in whose place a run's seed is put."""
SEED_VARIABLES = ("GPU_ADVISOR_SEED", "PYTHONHASHSEED")
"""Variables that hold it."""
SEEDS = 2**32
"""Number of seeds, that of Python's hashes.

`PYTHONHASHSEED` is at most 4294967295: https://docs.python.org/3/using/cmdline.html"""


def with_seed(command: tuple[str, ...], seed: int | None) -> tuple[str, ...]:
    """Fill in the seed where `command` says `{seed}`; 0 by default."""
    return tuple(token.replace(SEED, str((seed or 0) % SEEDS)) for token in command)


@dataclass(frozen=True, kw_only=True)
class Program:
    """Command with configs and places of outputs."""

    configs: tuple[documents.Document, ...] = ()
    command_line: documents.Document
    """The user's argv as a document: `argv` format."""
    commands: Mapping[CommandName, documents.Document] = field(default_factory=dict)
    """Commands of quality measures; without one the user's own measures."""
    cwd: Path
    unit: str
    output_paths: tuple[KnobKey, ...] = ()
    """Config scalars that name output directories: pointed into scratch."""
    output_flags: tuple[str, ...] = ()
    """Flags of the command that name output directories: pointed into scratch."""
    env: Mapping[str, str] = field(default_factory=dict)
    memory_cap_gib: float | None = None
    allow_writes: bool = False
    limits: ProcessLimits = field(default_factory=ProcessLimits)
    seed: int | None = None
    """Given to the command in every run; None: its own."""

    def content(
        self, config: documents.Document, candidate: Candidate, outputs: str | None = None
    ) -> bytes:
        """Text of a config with the candidate's values, and its output folders at `outputs`."""
        values = candidate.values_in(config.name)
        if outputs is not None:
            values |= {
                path: outputs for name, path in self.output_paths if name == config.name
            }
        return config.with_values(values)

    def argv(
        self,
        candidate: Candidate,
        command_line: documents.Document | None = None,
        outputs: str | None = None,
    ) -> tuple[str, ...]:
        """Words of the command with the candidate's options.

        A trial writes to `outputs`. An output option that was typed gets it in its place; one
        that the program only knows is added at the end.
        """
        document = command_line or self.command_line
        scalars = document.scalars
        changed = candidate.values_in(COMMAND_LINE)
        values = {path: value for path, value in changed.items() if path in scalars}
        flags = self.output_flags if outputs is not None else ()
        given = {
            path for path, scalar in scalars.items() if scalar.editable and scalar.given
        }
        typed = [flag for flag in flags if flag in given]
        command = argv.split(
            document.with_values({**values, **dict.fromkeys(typed, outputs)})
        )
        added = (
            word for flag in flags if flag not in typed for word in (flag, str(outputs))
        )
        return (*command, *added)

    def values(self, candidate: Candidate) -> object:
        """Config values as the program reads them: comments and layout are no part of a run."""
        read = (
            documents.parse(self.content(config, candidate), config.format, config.name)
            for config in self.configs
        )
        return [
            {path: leaf.value for path, leaf in document.leaves.items()}
            for document in read
        ]

    def trial(self, id_: str, request: TrialRequest, scratch: Path) -> Trial:
        """Trial of a request: command, configs, environment and limits of one process.

        Each repetition has a seed of its own, by variables that the program or Python may read
        and in place of `{seed}`. Both arms of a round have the same one.
        """
        candidate = request.variant.candidate
        overrides = (*request.plan.overrides, *candidate.overrides)
        plan = replace(request.plan, overrides=overrides)
        outputs = str(scratch / "outputs")
        seed = self.seed if request.repeat is None else (self.seed or 0) + request.repeat
        document = self.commands.get(request.command)
        command = with_seed(self.argv(candidate, document, outputs), seed)
        seeded = {} if seed is None else dict.fromkeys(SEED_VARIABLES, str(seed % SEEDS))
        start_s, hang_s, total_s = self.limits.of(plan)
        return Trial(
            id=id_,
            purpose=request.purpose,
            label=request.label,
            candidate=candidate,
            command=command,
            cwd=str(self.cwd),
            scratch=str(scratch),
            files=tuple(
                TrialFile(
                    original=config.name, content=self.content(config, candidate, outputs)
                )
                for config in self.configs
            ),
            env=tuple({**self.env, **seeded}.items()),
            plan=replace(plan, memory_cap_gib=self.memory_cap_gib),
            unit=self.unit,
            start_limit_s=start_s,
            hang_limit_s=hang_s,
            total_limit_s=total_s,
            allow_writes=self.allow_writes,
            caches=str(scratch.parent / "caches"),
        )

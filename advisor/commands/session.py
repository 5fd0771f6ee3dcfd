"""Flags and settings of `optimize`, checked before any process."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import files, knobs, objective, settings
from advisor.commands import invocation, program_options
from advisor.config import originals
from advisor.config.originals import Versions
from advisor.errors import NotMeasuredError, UsageError
from advisor.knobs.default_arguments import with_absent
from advisor.machine import target
from advisor.machine.host import read_machine
from advisor.report import writing
from advisor.report.progress import Progress
from advisor.runner import limits
from advisor.sandbox.capabilities import isolation_warnings
from advisor.settings import parse_duration_s
from advisor.state import existing_folders, project_root, state_folder
from advisor.tuner.context import Source

if TYPE_CHECKING:
    import argparse

    from advisor.model import Machine
    from advisor.runner.limits import Limits

DEFAULT_REPORT = Path("report.md")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `gpu-advisor optimize`."""
    parser.usage = "gpu-advisor optimize [CONFIG] [OPTIONS] [-- COMMAND ...]"
    runs = parser.add_argument_group("program")
    runs.add_argument(
        "config",
        type=Path,
        nargs="?",
        help="JSON, YAML, TOML or Python config that COMMAND reads; without one the options of "
        "COMMAND are tuned",
    )
    runs.add_argument("--workload", metavar="NAME", help="entry of gpu-advisor.toml to run")
    runs.add_argument(
        "--allow-writes",
        action="store_true",
        help="go on although COMMAND writes over existing files of yours",
    )
    search = parser.add_argument_group("search")
    search.add_argument("--budget", metavar="TIME", help="time to spend: 90s, 10m (default)")
    search.add_argument(
        "--window", metavar="TIME", default="3s", help="measured window of a trial (default 3s)"
    )
    search.add_argument(
        "--target",
        metavar="NAME",
        help="GPU to tune for: auto (default), a profile such as rtx-4060, or a profile file",
    )
    search.add_argument(
        "--objective",
        choices=objective.AIMS,
        metavar="METRIC",
        help="throughput (default), latency, energy or cost of a unit of work",
    )
    search.add_argument(
        "--constraint",
        action="extend",
        nargs="+",
        metavar="BOUND",
        help="bounds that must hold: 'memory<=7GiB' 'latency_p95<=80ms' 'power<=250W'",
    )
    search.add_argument(
        "--safe",
        action="store_true",
        help="change neither rounding nor results: only batch, workers and loader settings",
    )
    search.add_argument(
        "--fresh", action="store_true", help="do not reuse measurements of earlier calls"
    )
    written = parser.add_argument_group("files")
    written.add_argument(
        "--output", type=Path, metavar="PATH", help="write the tuned config here, not in place"
    )
    written.add_argument(
        "--dry-run", action="store_true", help="measure and report, but write no config"
    )
    written.add_argument(
        "--report",
        type=Path,
        default=DEFAULT_REPORT,
        metavar="PATH",
        help="place of the report (default report.md; report.json beside it)",
    )
    written.add_argument(
        "--overwrite",
        action="store_true",
        help="replace files that gpu-advisor did not write at the places of report and --output",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.epilog = (
        "Limits of a trial, the seed, the price of an hour and quality measures are keys of "
        "gpu-advisor.toml: see docs/configuration.md."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Flags of one call."""

    config: Path | None
    workload: str | None
    budget_s: float | None
    target: str | None
    output: Path | None
    dry_run: bool
    safe: bool
    report: Path
    json: bool
    objective: str | None
    constraints: tuple[str, ...] | None
    window_s: float
    overwrite: bool
    fresh: bool
    allow_writes: bool


def options_of(args: argparse.Namespace) -> Options:
    """The flags, checked. Raises UsageError."""
    try:
        return Options(
            config=args.config,
            workload=args.workload,
            budget_s=parse_duration_s(args.budget) if args.budget else None,
            target=args.target,
            output=args.output,
            dry_run=args.dry_run,
            safe=args.safe,
            report=args.report,
            json=args.json,
            objective=args.objective,
            constraints=bounds_of(args.constraint),
            window_s=parse_duration_s(args.window),
            overwrite=args.overwrite,
            fresh=args.fresh,
            allow_writes=args.allow_writes,
        )
    except ValueError as problem:
        raise UsageError(str(problem)) from problem


def bounds_of(words: list[str] | None) -> tuple[str, ...] | None:
    """Parse constraints.

    Raises ValueError with the forms allowed.
    """
    for word in words or ():
        objective.parse_constraint(word)
    return None if words is None else tuple(words)


def objective_of(
    options: Options, asked: invocation.Invocation, machine: Machine
) -> objective.Objective:
    """Objective of flags, workload entry or defaults.

    Raises UsageError, and NotMeasuredError where no card here could tell it.
    """
    entry, defaults = asked.workload, asked.settings.defaults
    aim = options.objective or entry.objective or defaults.objective
    bounds = options.constraints
    if bounds is None:
        bounds = entry.constraints if entry.constraints is not None else defaults.constraints
    try:
        found = objective.parse(aim, bounds, defaults.price_per_hour)
    except ValueError as problem:
        msg = f"{problem}."
        raise UsageError(msg) from problem
    asked_for = (found.metric, *(each.metric for each in found.constraints))
    of_cards = [metric.name for metric in asked_for if metric.from_card]
    if of_cards and not machine.gpus:
        msg = (
            f"Only a GPU's own counters tell {' and '.join(dict.fromkeys(of_cards))}, and "
            f"{machine.gpu_note or 'there is no GPU here'}. Choose another objective, or run it "
            "where there is one."
        )
        raise NotMeasuredError(msg)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything about a call, checked before the first process."""

    options: Options
    invocation: invocation.Invocation
    typed: tuple[str, ...]
    """The command, where it was typed after `--`."""
    config: Path | None
    """As the user or gpu-advisor.toml named it."""
    sources: tuple[Source, ...]
    """The config, if there is one, and then the command line."""
    machine: Machine
    target: target.Target
    versions: Versions
    state: Path
    objective: objective.Objective
    price_per_hour: float | None
    budget_s: float
    limits: Limits
    progress: Progress
    report: files.Claim
    tuned: files.Claim | None
    """The place of --output; None where the config itself is rewritten."""

    @property
    def output(self) -> Path | None:
        """Place of the tuned config."""
        return self.options.output or self.config

    @property
    def memory_limit_gib(self) -> float:
        """Memory limit of a candidate, in GiB."""
        return target.memory_limit_gib(self.target, 0.9 * self.machine.ram_limit_gib)


def prepare(options: Options, command: list[str] | None) -> Job:
    """Check everything before the first run.

    Nothing is run or written. Raises AdvisorError.
    """
    left = originals.recover(options.config) if options.config else []
    asked = invocation.resolve(options.config, command, workload=options.workload)
    if asked.path is not None and options.config is None:  # gpu-advisor.toml named it
        left = originals.recover(asked.path)
        asked = invocation.resolve(asked.path, command, workload=options.workload)
    if asked.config is not None:
        asked = replace(asked, config=with_absent(asked.config))
    if asked.path is None and options.output is not None:
        msg = (
            "--output is for a tuned config, and none was named. The report prints a tuned command."
        )
        raise UsageError(msg)
    if asked.path is not None and not options.dry_run and options.output is None:
        invocation.require_writable(asked.path)
    environ = {**os.environ, **asked.workload.env}
    invocation.require_program(asked.argv, asked.cwd, environ)
    defaults = asked.settings.defaults
    machine = read_machine()
    aim = objective_of(options, asked, machine)
    aimed = target.resolve(options.target or defaults.target, machine)
    kept_for = asked.path or Path.cwd() / settings.FILE_NAME
    root = project_root(kept_for)
    report, tuned = claim_places(options, asked.path, root)
    state = state_folder(root)
    kept = Versions(state, kept_for)
    kept.make_folders()
    budget_s = options.budget_s or defaults.budget
    progress = Progress(unit=asked.workload.unit, budget_s=budget_s)
    absent = [] if aimed.present else [aimed.note]
    unsafe = isolation_warnings(str(asked.cwd), environ)
    for note in (*left, *absent, *left_untuned(asked), *unsafe):
        progress.note(note)
    return Job(
        options=options,
        invocation=asked,
        typed=tuple(command or ()),
        config=asked.path,
        sources=tuple(
            Source(document=document, findings=knobs.find(document, phase=asked.phase))
            for document in (asked.config, asked.command_line)
            if document is not None
        ),
        machine=machine,
        target=aimed,
        versions=kept,
        state=state,
        objective=aim,
        price_per_hour=defaults.price_per_hour,
        budget_s=budget_s,
        limits=limits.of_settings(asked.workload, defaults),
        progress=progress,
        report=report,
        tuned=tuned,
    )


def left_untuned(asked: invocation.Invocation) -> list[str]:
    """Notes on configs that stay untuned."""
    if asked.path is not None:
        return []
    env = invocation.environment(asked.workload)
    why = program_options.recorded(asked.argv, asked.cwd, env).why_unknown
    unread = [f"only the options that you typed are tuned: {why}"] if why else []
    return [
        *unread,
        *(
            f"{path} is read by the command and left alone; "
            f"`gpu-advisor optimize {shlex.quote(str(path))} -- ...` tunes it"
            for path in invocation.configs_among(asked.argv, asked.cwd)
            if path.suffix != ".py"  # as often a program
        ),
    ]


def claim_places(
    options: Options, config: Path | None, root: Path
) -> tuple[files.Claim, files.Claim | None]:
    """Claim the places of the report and of --output. Raises OutputRefusedError."""
    over, output = options.overwrite, options.output
    if config and output and os.path.realpath(output) == os.path.realpath(config):
        output = None
    never = [path for path in (config, output) if path is not None]
    report = writing.claim(options.report, never=never, like=config, overwrite=over)
    tuned = None
    if output is not None and config is not None:
        tuned = files.claim(
            [output],
            never=[config],
            like=config,
            overwrite=over,
            ours=lambda path: any(
                Versions(state, config).is_output(path) for state in existing_folders(root)
            ),
        )
    return report, tuned

"""Flags and settings of `optimize`, checked before any process."""

import argparse
import contextlib
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from advisor import files, knobs, objective
from advisor.commands import invocation
from advisor.commands.measuring import Session, node_of, session_of
from advisor.config.originals import Versions
from advisor.errors import NotMeasuredError, UsageError
from advisor.machine import target
from advisor.machine.host import read_machine
from advisor.model import Machine
from advisor.report import writing
from advisor.tuner.state import Source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `gpu-advisor optimize`."""
    parser.usage = "gpu-advisor optimize [CONFIG ...] [OPTIONS] [-- COMMAND ...]"
    runs = parser.add_argument_group("program")
    invocation.add_flags(runs, "configs", "--workload", "--engine", "--allow-writes")
    search = parser.add_argument_group("search")
    invocation.add_flags(search, "--budget", "--window")
    search.add_argument(
        "--target",
        metavar="NAME",
        help="GPU to tune for: auto (default) or a profile such as rtx-4060",
    )
    search.add_argument(
        "--objective",
        choices=tuple(objective.OBJECTIVES),
        metavar="METRIC",
        help="throughput (default), latency or energy of a unit of work",
    )
    search.add_argument(
        "--constraint",
        type=invocation.argument(lambda text: objective.parse_constraint(text).text),
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
        default=Path("report.md"),
        metavar="PATH",
        help="place of the report (default report.md; report.json beside it)",
    )
    invocation.add_flags(written, "--overwrite")
    invocation.add_flags(parser, "--json")
    parser.epilog = (
        "Limits of a trial, the seed and quality measures are keys of "
        "gpu-advisor.toml: see docs/configuration.md."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything about a call, checked before the first process."""

    args: argparse.Namespace
    typed: tuple[str, ...]
    """The command, where it was typed after `--`."""
    session: Session
    objective: objective.Objective
    versions: tuple[Versions, ...]
    """Originals of each config; without one, of the settings file beside the command."""
    report: files.Claim
    output: files.Claim | None
    """The place of --output; None where the configs themselves are rewritten."""

    @property
    def asked(self) -> invocation.Invocation:
        """Command, configs and settings."""
        return self.session.asked

    @property
    def sources(self) -> tuple[Source, ...]:
        """The configs, and then the command line."""
        documents = (*self.asked.configs, self.asked.command_line)
        phase = self.asked.phase
        return tuple(Source(document=d, findings=knobs.find(d, phase=phase)) for d in documents)

    @property
    def memory_limit_gib(self) -> float:
        """Memory limit of a candidate, in GiB."""
        host_gib = 0.9 * self.session.machine.ram_limit_gib
        return target.memory_limit_gib(self.session.target, host_gib)


def prepare(args: argparse.Namespace, command: list[str] | None, held: contextlib.ExitStack) -> Job:
    """Check everything before the first run; `held` keeps a node."""
    asked = invocation.resolve(args.configs, command, workload=args.workload)
    asked = replace(asked, notes=[*asked.notes, *left_untuned(asked)])
    elsewhere: list[Path] = []
    if args.output is not None:
        if len(asked.paths) != 1:
            msg = f"--output is for one config, and {len(asked.paths)} were named. Leave it out."
            raise UsageError(msg)
        if os.path.realpath(args.output) != os.path.realpath(asked.paths[0]):
            elsewhere = [args.output]
    for path in () if args.dry_run or elsewhere else asked.paths:
        invocation.require_writable(path)
    like = asked.paths[0] if asked.paths else None
    never = [*asked.paths, *elsewhere]
    report = writing.claim(args.report, never=never, like=like, overwrite=args.overwrite)
    output = None
    if elsewhere:
        output = files.claim(elsewhere, never=asked.paths, like=like, overwrite=args.overwrite)
    defaults = asked.settings.defaults
    node = held.enter_context(node_of(args.engine, asked))
    machine = node.machine if node else read_machine()
    aim = objective_of(args, asked, machine)
    session = session_of(
        asked,
        node=node,
        target=args.target or defaults.target,
        budget_s=args.budget or defaults.budget,
        allow_writes=args.allow_writes,
        seed=defaults.seed,
    )
    state = asked.state()
    return Job(
        args=args,
        typed=tuple(command or ()),
        session=session,
        objective=aim,
        versions=tuple(Versions(state, path) for path in asked.kept_for),
        report=report,
        output=output,
    )


def objective_of(
    args: argparse.Namespace, asked: invocation.Invocation, machine: Machine
) -> objective.Objective:
    """Objective of flags, workload entry or defaults."""
    entry, defaults = asked.workload, asked.settings.defaults
    given = (args.constraint, entry.constraints, defaults.constraints)
    bounds = next(each for each in given if each is not None)
    name = args.objective or entry.objective or defaults.objective
    found = objective.parse(name, bounds)
    metrics = (found.metric, *(each.metric for each in found.constraints))
    of_cards = [metric.name for metric in metrics if metric.from_card]
    if of_cards and not machine.gpus:
        msg = (
            f"Only a GPU's own counters tell {' and '.join(dict.fromkeys(of_cards))}, and "
            f"{machine.gpu_note or 'there is no GPU here'}. Choose another objective, or run it "
            "where there is one."
        )
        raise NotMeasuredError(msg)
    return found


def left_untuned(asked: invocation.Invocation) -> list[str]:
    """Notes on options and configs that stay untuned."""
    notes = []
    if not asked.configs:
        env = tuple(sorted(asked.workload.env.items()))
        why = invocation.recorded(asked.argv, asked.cwd, env).why_unknown
        notes = [f"only the options that you typed are tuned: {why}"] if why else []
    tuned = {os.path.realpath(path) for path in asked.paths}
    left = [
        path
        for path in invocation.configs_among(asked.argv, asked.cwd)
        if os.path.realpath(asked.cwd / path) not in tuned
        and path.suffix != ".py"  # as often a program
    ]
    if left:
        words = shlex.join(map(str, (*asked.paths, *left)))
        names = " and ".join(map(str, left))
        notes.append(f"{names}: left alone. `gpu-advisor optimize {words} -- ...` tunes it too.")
    return notes

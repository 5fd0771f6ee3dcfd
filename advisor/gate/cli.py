"""`gpu-advisor gate`: base against head, to an exit code.

Arguments are checked before any file is touched. From then on the call ends with a report and
outputs whatever happens: a step with empty outputs is taken for a success by the next.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import __version__
from advisor.errors import (
    GATE_EXIT_CODES,
    AdvisorError,
    InterruptedByUserError,
    NoBaselineError,
    OutputRefusedError,
    StateBusyError,
    UsageError,
)
from advisor.executor.engines.scratch_dir import cancellable, require_room, scratch_folder
from advisor.gate import checkout, code_identity, config, github, history, report, setup_step
from advisor.gate.comparison import limits_of
from advisor.gate.process import ProcessRunner
from advisor.gate.runner import RunContext, Session, exclusive_engine, measured
from advisor.gate.schema import ARMS, GateRecord, HostEntry, Inputs
from advisor.machine.gpu import read_gpus
from advisor.machine.host import read_machine
from advisor.settings import parse_share

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from advisor.executor.engines import Engine
    from advisor.files import Claim
    from advisor.gate.checkout import Checkout
    from advisor.gate.schema import Variant, Verdict
    from advisor.model import Gpu

ON_VERDICT = ("warn", "fail", "pass")
PLAIN_NUMBER = re.compile(r"\d+\.?\d*|\.\d+", re.ASCII)
NOISE_PAIRS = 12
HISTORY_PAIRS = 2
"""Pairs of head with itself that make one session of the history: four processes."""
SETUP_LIMIT_S = 3600.0
BISECT_SKIP = 125
"""Exit code with which `git bisect run` skips a commit."""
STACK_QUERY = (
    "import platform, importlib.metadata as m; print(platform.python_version()); "
    "print(m.version('torch'))"
)
"""Asks an interpreter for its version and torch's without importing torch."""


# --- arguments ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Checked arguments."""

    workloads: tuple[str, ...]
    command: str | None
    base_ref: str | None
    setup: str | None
    links: tuple[str, ...]
    keep_network: bool
    inputs: Inputs
    allow_forks: bool
    report: Path
    history: Path | None
    bisect_exit: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `gpu-advisor gate`."""
    add = parser.add_argument
    # A switch may carry a value, as an action's inputs do: `--keep-network` means `=true`.
    switch = functools.partial(add, nargs="?", const="true", default="false", metavar="true|false")
    add("--workload", action="append", default=[], metavar="NAME",
        help="an entry of gpu-advisor.toml; several times, or several with commas")  # fmt: skip
    add("--command", metavar="CMD", help="one shell string to measure instead of a workload")
    add("--base-ref", metavar="REF",
        help="compare with this commit, or with a second checkout in this folder (default: "
        "merge-base with the target branch); HEAD measures the noise of this runner")  # fmt: skip
    add("--setup", metavar="CMD", help="shell string run once in each arm before measuring")
    add("--link", action="append", default=[], metavar="PATH",
        help="data of head that git ignores, shown to base too")  # fmt: skip
    add("--keep-env", default="", metavar="NAMES",
        help="variables that look like secrets and are handed over, comma-separated")  # fmt: skip
    switch("--keep-network", help="leave the network open for base and head")
    add("--threshold", default="5%", help="largest drop of the rate that is allowed (default 5%%)")
    add("--max-minutes", default="30", metavar="N",
        help="budget for warm-up and pairs, without --setup (default 30)")  # fmt: skip
    add("--on-inconclusive", default="fail", metavar="warn|fail|pass",
        help="exit code 3 on fail (default), else 0; also for no-baseline")  # fmt: skip
    add("--allow-removed", default="", metavar="NAMES",
        help="workloads or benchmarks that may be missing in head, comma-separated")  # fmt: skip
    switch("--allow-forks", help="run pull requests from forks on self-hosted runners")
    add("--report", type=Path, default=Path("gate.md"), metavar="PATH",
        help="Markdown report (default gate.md; gate.json beside it)")  # fmt: skip
    add("--history", type=Path, metavar="PATH",
        help="compare head with the past sessions in this file, and add one")  # fmt: skip
    switch("--bisect-exit", help="exit code 125 where nothing is decided, for git bisect run")


def check(args: argparse.Namespace, command: Sequence[str] | None) -> Options:
    """Check `args` and return Options.

    Raises UsageError naming the flag, the value and the allowed values.
    """
    if args.base_ref and args.history:
        msg = "--base-ref has no meaning with --history. Leave one of them out."
        raise UsageError(msg)
    inputs = Inputs(
        threshold=_threshold(args.threshold),
        max_minutes=_minutes(args.max_minutes),
        allow_removed=_names(args.allow_removed),
        on_inconclusive=_one_of("--on-inconclusive", args.on_inconclusive, ON_VERDICT),
        seed=secrets.randbelow(2**31),
    )
    return Options(
        workloads=tuple(name for text in args.workload for name in _names(text)),
        command=shlex.join(command) if command else args.command,
        base_ref=args.base_ref or None,
        setup=args.setup or None,
        links=tuple(name for text in args.link for name in _names(text)),
        keep_network=_switch("--keep-network", args.keep_network),
        inputs=inputs,
        allow_forks=_switch("--allow-forks", args.allow_forks),
        report=args.report,
        history=args.history,
        bisect_exit=_switch("--bisect-exit", args.bisect_exit),
    )


def _one_of(flag: str, value: str, allowed: Sequence[str]) -> str:
    if value in allowed:
        return value
    msg = f"{flag} {value!r} is not known. Use one of: {', '.join(allowed)}."
    raise UsageError(msg)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _switch(flag: str, value: str) -> bool:
    return _one_of(flag, value, ("true", "false")) == "true"


def _threshold(text: str) -> float:
    try:
        share = parse_share(text)
    except ValueError as problem:
        msg = f"--threshold: {problem}."
        raise UsageError(msg) from problem
    if not 0 < share < 1:
        msg = f"--threshold {text!r} must lie between 0 % and 100 %. Write 5% or 0.05."
        raise UsageError(msg)
    return share


def _minutes(text: str) -> float:
    minutes = float(text) if PLAIN_NUMBER.fullmatch(text.strip()) else math.nan
    if not (math.isfinite(minutes) and minutes > 0):
        msg = f"--max-minutes {text!r} is no number above zero. Write 30, without separators."
        raise UsageError(msg)
    return minutes


# --- the whole call -----------------------------------------------------------------------


def run(args: argparse.Namespace, command: Sequence[str] | None = None) -> int:
    """Run the gate and return its exit code.

    See errors.GATE_EXIT_CODES. An unexpected exception ends as an error too: Python's exit code for
    it means regression here.
    """
    job = github.take(os.environ, keep=_names(args.keep_env))
    started = time.monotonic()
    record = _unfinished("error", "the gate did not come to its end: see the log of this step")
    options: Options | None = None
    claimed: Claim | None = None
    try:
        options = check(args, command)
        claimed = report.claim(options.report, options.history)
        report.write(record, options.report, claimed)  # in case this call is killed
        record = _measure(options, job)
    except Exception as problem:
        shown = traceback.format_exc()
        if isinstance(problem, AdvisorError):
            record = _unfinished(_verdict_of(problem), str(problem), options)
            shown = f"gpu-advisor: {problem}\n{shown if args.debug else ''}"
        sys.stderr.write(github.harmless(shown))
    finally:
        record = record.model_copy(update={"wall_s": time.monotonic() - started})
        record = report.masked(record)
        code = exit_code(record, options)
        published = _publish(record, args.report, job, code, claimed)
    if record.programs:  # else the message on stderr has it all
        sys.stdout.write(github.harmless(report.lines(record) + "\n"))
    return code if published else code or GATE_EXIT_CODES["error"]


def exit_code(record: GateRecord, options: Options | None) -> int:
    """Exit code of the verdict.

    0 where an undecided one may pass, 125 for a bisect.
    """
    code = GATE_EXIT_CODES[record.verdict]
    if options is None:
        return code
    undecided = record.verdict in {"inconclusive", "no-baseline"}
    if options.bisect_exit:
        return BISECT_SKIP if code not in {0, 1} else code
    if undecided and options.inputs.on_inconclusive != "fail":
        return 0
    return code


def _measure(options: Options, job: github.Job) -> GateRecord:
    cwd = Path.cwd()
    github.refuse_forks(os.environ, allow=options.allow_forks)
    github.refuse_unisolated(os.environ, setup_step.unprotected(cwd))
    with github.no_commands(job), cancellable() as cancel, scratch_folder() as scratch:
        context = RunContext(cwd=cwd, scratch=scratch, cancel=cancel, say=_say)
        record = _of_head(options, context) if options.history else _compared(options, context)
    notes = [*record.notes, *setup_step.isolation_notes(cwd, job.withheld)]
    return record.model_copy(update={"notes": notes})


def _verdict_of(problem: AdvisorError) -> Verdict:
    """Verdict of a gate that could not be finished."""
    if isinstance(problem, NoBaselineError):
        return "no-baseline"
    interrupted = isinstance(problem, (InterruptedByUserError, StateBusyError))
    return "invalid" if interrupted else "error"


def _unfinished(verdict: Verdict, reason: str, options: Options | None = None) -> GateRecord:
    return GateRecord(
        verdict=verdict,
        reason=reason,
        tool_version=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        inputs=options.inputs if options else Inputs(),
    )


def _publish(
    record: GateRecord, path: Path, job: github.Job, code: int, claimed: Claim | None
) -> bool:
    """Write outputs, summary, annotation and report.

    Returns False if one of them could not be written.
    """
    if job.active:
        sys.stderr.write(github.annotation(record, github.level(record, code)) + "\n")
    published = True
    ways: list[Callable[[], None]] = [
        lambda: github.write_outputs(job, github.outputs(record, path if claimed else None)),
        lambda: github.write_summary(job, report.markdown(record)),
    ]
    if claimed is not None:
        ways.append(lambda: report.write(record, path, claimed))
    for way in ways:
        try:
            way()
        except OutputRefusedError as problem:
            sys.stderr.write(github.harmless(f"gpu-advisor: {problem}\n"))
            published = False
    return published


def _say(line: str) -> None:
    sys.stderr.write(github.harmless(f"gate: {line}\n"))
    sys.stderr.flush()


# --- ways to a record ---------------------------------------------------------------------


def _compared(options: Options, context: RunContext) -> GateRecord:
    """Compare base with head.

    Where both are one clean commit, the noise of this runner is measured.
    """
    head = checkout.head_checkout(context.cwd)
    programs = config.choose(head, options.workloads, options.command)
    with contextlib.ExitStack() as stack:
        engine, host = stack.enter_context(_machine(options, context))
        base = stack.enter_context(checkout.base_of(head, options.base_ref, options.links))
        limits = limits_of(base, [program.name for program in programs])
        inputs = options.inputs.model_copy(update={"limits": limits})
        options = dataclasses.replace(options, inputs=inputs)
        session = _session(options, context, {"base": base, "head": head}, programs, engine)
        same = base.revision.sha == head.revision.sha and not head.revision.dirty
        session.fixed_pairs = NOISE_PAIRS if same else None
        for program in programs:
            if reason := config.why_not_comparable(program, base):
                session.update(program.name, no_baseline=reason)
        _set_up(options, context, session)
        return measured(session, host, "noise" if same else "ab")


def _of_head(options: Options, context: RunContext) -> GateRecord:
    """Compare head with past sessions and append it."""
    path = options.history
    assert path is not None, "the caller asks only with a history"
    head = checkout.head_checkout(context.cwd)
    programs = config.choose(head, options.workloads, options.command)
    with history.opened(path):  # a file that cannot be used is refused before all else
        pass
    with _machine(options, context) as (engine, host):
        session = _session(options, context, {"base": head, "head": head}, programs, engine)
        session.fixed_pairs, session.processes.needs_quiet = HISTORY_PAIRS, True
        _set_up(options, context, session)
        record = measured(session, host, "history")
    if record.verdict == "no-baseline":  # both arms were head, so its failure is an error
        record = record.model_copy(update={"verdict": "error"})
    if record.verdict in {"error", "invalid"}:
        return record
    with history.opened(path) as (past, claimed):  # others may have added to it since
        record, longer = history.judge(past, record)
        claimed.write(path, (longer.model_dump_json(indent=1) + "\n").encode())
    return record


# --- session and setup --------------------------------------------------------------------


@contextlib.contextmanager
def _machine(options: Options, context: RunContext) -> Iterator[tuple[Engine, HostEntry]]:
    """Hold the first GPU's engine and read the host."""
    machine = read_machine()
    gpu = machine.gpus[0] if machine.gpus else None
    wait_s = 60 * options.inputs.max_minutes
    with exclusive_engine(gpu.uuid if gpu else None, wait_s, context) as engine:
        python, torch = _software(context.cwd)
        host = HostEntry(
            cpu=machine.cpu_model,
            cpus=machine.cpus,
            gpus=[found.name for found in machine.gpus],
            driver=gpu.driver if gpu else None,
            power_limit_w=gpu.power_limit_w if gpu else None,
            python=python,
            torch=torch,
        )
        yield engine, host


def _session(
    options: Options,
    context: RunContext,
    arms: Mapping[Variant, Checkout],
    programs: Sequence[config.Program],
    engine: Engine,
) -> Session:
    head = arms["head"]
    shared = checkout.shared_data(head, options.links)
    # A hosted runner throws the checkout away, and without isolation nothing prevents writes.
    hosted = os.environ.get("RUNNER_ENVIRONMENT") == "github-hosted"
    thrown_away = hosted or bool(setup_step.unprotected(head.cwd))
    processes = ProcessRunner(
        engine=engine,
        between=code_identity.difference(arms["base"], head, shared),
        arms=arms,
        scratch=context.scratch,
        device=_first_gpu,
        allow_writes=os.environ.get("CI") == "true" and thrown_away,
        keep_network=options.keep_network,
        shown=tuple(map(str, shared)),
    )
    return Session(
        processes=processes, selected=tuple(programs), inputs=options.inputs, say=context.say
    )


def _set_up(options: Options, context: RunContext, session: Session) -> None:
    """Run --setup once in each arm.

    A head that fails is an error, a base no baseline.
    """
    if options.setup is None:
        return
    arms = session.processes.arms
    different: tuple[Variant, ...] = ("head",) if arms["base"] is arms["head"] else ARMS
    for arm in different:
        session.say(f"setting up {arm}")
        failed = setup_step.set_up(
            arms[arm],
            options.setup,
            {"GPU_ADVISOR_ARM": arm, "GPU_ADVISOR_HEAD": str(arms["head"].top)},
            scratch=context.scratch / f"setup-{arm}",
            limit_s=SETUP_LIMIT_S,
            cancel=context.cancel,
        )
        require_room(context.scratch)
        for program in session.selected if failed else ():
            if arm == "base":
                session.fail_base(program.name, f"base: {failed}")
            else:
                session.update(program.name, error=f"head: {failed}")


def _first_gpu() -> Gpu | None:
    gpus, _ = read_gpus()
    return gpus[0] if gpus else None


def _software(cwd: Path) -> tuple[str | None, str | None]:
    """Versions of the `python` on PATH and its torch."""
    path = shutil.which("python") or shutil.which("python3")
    if path is None:
        return None, None
    try:
        done = subprocess.run(
            [path, "-I", "-c", STACK_QUERY],  # -I: the checkout's platform.py is not platform
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, None
    lines = [*done.stdout.split(), None, None]
    return lines[0], lines[1]

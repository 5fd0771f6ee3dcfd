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

from advisor import __version__, stats
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
from advisor.gate import (
    checkout,
    code_identity,
    config,
    github,
    history,
    report,
    setup_step,
    thresholds,
)
from advisor.gate.comparison import Comparison, Workload, modes, spread_between_processes
from advisor.gate.process import ProcessRunner
from advisor.gate.runner import RunContext, Session, decided, exclusive_engine, measured
from advisor.gate.schema import ARMS, GateRecord, HostEntry, Inputs, NoiseCheck
from advisor.gate.sequential_test import judge
from advisor.gate.verdict import PRECEDENCE, rule_of
from advisor.machine.gpu import read_gpus
from advisor.machine.host import read_machine
from advisor.model import MeasurePlan
from advisor.settings import parse_share

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from advisor.executor.engines import Engine
    from advisor.files import Claim
    from advisor.gate.checkout import Checkout
    from advisor.gate.schema import ProgramEntry, Variant, Verdict, WorkloadVerdict
    from advisor.model import Gpu

ON_VERDICT = ("warn", "fail", "pass")
PLAIN_NUMBER = re.compile(r"\d+\.?\d*|\.\d+", re.ASCII)
DEFAULT_REPORT = Path("gate.md")
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
    keep_env: tuple[str, ...]
    keep_network: bool
    inputs: Inputs
    allow_forks: bool
    report: Path
    history: Path | None
    replay: Path | None
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
    add("--report", type=Path, default=DEFAULT_REPORT, metavar="PATH",
        help="Markdown report (default gate.md; gate.json beside it)")  # fmt: skip
    add("--history", type=Path, metavar="PATH",
        help="compare head with the past sessions in this file, and add one")  # fmt: skip
    add("--replay", type=Path, metavar="GATE_JSON", help="decide again from a saved gate.json")
    switch("--bisect-exit", help="exit code 125 where nothing is decided, for git bisect run")


def check(args: argparse.Namespace, command: Sequence[str] | None) -> Options:
    """Check `args` and return Options.

    Raises UsageError naming the flag, the value and the allowed values.
    """
    if args.replay and args.history:
        msg = "--replay and --history exclude each other. Give one of them."
        raise UsageError(msg)
    if args.base_ref and (args.replay or args.history):
        msg = "--base-ref has no meaning with --replay or --history. Leave it out."
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
        keep_env=tuple(_names(args.keep_env)),
        keep_network=_switch("--keep-network", args.keep_network),
        inputs=inputs,
        allow_forks=_switch("--allow-forks", args.allow_forks),
        report=args.report,
        history=args.history,
        replay=args.replay,
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
    try:
        minutes = float(text) if PLAIN_NUMBER.fullmatch(text.strip()) else math.nan
    except ValueError:
        minutes = math.nan
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
        try:
            options = check(args, command)
            claimed = _claim(options)
            report.write(record, options.report, claimed)  # in case this call is killed
            record = _measure(options, job)
        except AdvisorError as problem:
            record = _explained(problem, options)
            sys.stderr.write(github.harmless(f"gpu-advisor: {problem}\n"))
            if args.debug:
                sys.stderr.write(github.harmless(traceback.format_exc()))
        except Exception:
            sys.stderr.write(github.harmless(traceback.format_exc()))
    finally:
        record = record.model_copy(update={"wall_s": time.monotonic() - started})
        record = report.masked(record)
        code = exit_code(record, options)
        published = _publish(record, args.report, job, code, claimed)
    if record.programs:  # else the message on stderr has it all
        sys.stdout.write(github.harmless(report.lines(record) + "\n"))
    return code if published else code or GATE_EXIT_CODES["error"]


def _claim(options: Options) -> Claim:
    """Claim the places of the report."""
    read = [path for path in (options.replay, options.history) if path]
    return report.claim(options.report, never=read)


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
    if options.replay:
        return _replayed(options)
    cwd = Path.cwd()
    github.refuse_forks(os.environ, allow=options.allow_forks)
    github.refuse_unisolated(os.environ, setup_step.unprotected(cwd))
    with github.no_commands(job), cancellable() as cancel, scratch_folder() as scratch:
        context = RunContext(
            cwd=cwd, scratch=scratch, cancel=cancel, say=_say, steering=job.steering
        )
        record = _of_head(options, context) if options.history else _compared(options, context)
    notes = [*record.notes, *setup_step.isolation_notes(cwd, job.withheld)]
    return record.model_copy(update={"notes": notes})


def _explained(problem: AdvisorError, options: Options | None) -> GateRecord:
    """Record of a gate that could not be finished."""
    verdict: Verdict = "error"
    if isinstance(problem, NoBaselineError):
        verdict = "no-baseline"
    elif isinstance(problem, (InterruptedByUserError, StateBusyError)):
        verdict = "invalid"
    return _unfinished(verdict, str(problem), options.inputs if options else Inputs())


def _unfinished(verdict: Verdict, reason: str, inputs: Inputs | None = None) -> GateRecord:
    return GateRecord(
        verdict=verdict,
        reason=reason,
        tool_version=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        inputs=inputs or Inputs(),
    )


def _publish(
    record: GateRecord, path: Path, job: github.Job, code: int, claimed: Claim | None
) -> bool:
    """Write outputs, summary, annotation and report.

    Returns False if one of them could not be written.
    """
    if job.active:
        sys.stderr.write(github.annotation(record, github.level(record, code)) + "\n")
    ways: list[Callable[[], None]] = [
        lambda: github.write_outputs(job, github.outputs(record, path if claimed else None)),
        lambda: github.write_summary(job, report.markdown(record)),
    ]
    if claimed is not None:
        ways.append(lambda: report.write(record, path, claimed))
    published = True
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

    Head is compared with itself where both are one clean commit.
    """
    head = checkout.head_checkout(context.cwd)
    programs = config.choose(head, options.workloads, options.command)
    with contextlib.ExitStack() as stack:
        engine, host = stack.enter_context(_machine(options, context))
        base = stack.enter_context(_base(head, options))
        names = [program.name for program in programs]
        inputs = thresholds.with_base_limits(options.inputs, base, names)
        options = dataclasses.replace(options, inputs=inputs)
        session = _session(options, context, {"base": base, "head": head}, programs, engine)
        same = base.revision.sha == head.revision.sha and not head.revision.dirty
        if same:
            session.fixed_pairs = NOISE_PAIRS
        for program in programs:
            if reason := config.why_not_comparable(program, base):
                session.update(program.name, no_baseline=reason)
        _set_up(options, context, session)
        record = measured(session, host, "noise" if same else "ab")
    if same:
        return _with_noise(record)
    red = {w.program for w in record.workloads if w.verdict == "regression"}
    moved = [line for p in record.programs if p.name in red for line in report.moved(p)]
    return record.model_copy(update={"moved": moved})


@contextlib.contextmanager
def _base(head: Checkout, options: Options) -> Iterator[Checkout]:
    folder = Path(options.base_ref or "")
    if options.base_ref and (folder / ".git").exists():
        yield checkout.second_checkout(head, folder.resolve())
        return
    revision = checkout.base_revision(head, options.base_ref)
    with checkout.base_checkout(head, revision, options.links) as base:
        yield base


def _of_head(options: Options, context: RunContext) -> GateRecord:
    """Compare head with past sessions and append it."""
    path = options.history
    assert path is not None, "the caller asks only with a history"
    head = checkout.head_checkout(context.cwd)
    programs = config.choose(head, options.workloads, options.command)
    with history.held(path):  # a file that cannot be used is refused before all else
        history.read(path)
        claimed = history.claim(path)
    with _machine(options, context) as (engine, host):
        session = _session(options, context, {"base": head, "head": head}, programs, engine)
        session.fixed_pairs, session.may_match_contention = HISTORY_PAIRS, False
        _set_up(options, context, session)
        record = measured(session, host, "history")
    if record.verdict == "no-baseline":  # both arms were head, so its failure is an error
        record = record.model_copy(update={"verdict": "error"})
    if record.verdict in {"error", "invalid"}:
        return record
    verdicts: list[WorkloadVerdict] = []
    with history.held(path):
        past = history.read(path)  # others may have added to it since
        for entry in record.programs:
            found, past = history.judge(past, entry, record)
            verdicts += found
        claimed.write(path, history.dump(past))
    verdicts.sort(key=lambda w: (PRECEDENCE.index(w.verdict), -(w.slowdown_pct or 0)))
    leading = verdicts[0]
    return record.model_copy(
        update={
            "verdict": leading.verdict,
            "reason": f"{leading.name}: {leading.reason}",
            "slowdown_pct": leading.slowdown_pct,
            "ci_low_pct": None,
            "ci_high_pct": None,
            "confidence": None,
            "pairs": leading.pairs,
            "workloads": verdicts,
        }
    )


def _replayed(options: Options) -> GateRecord:
    """Decide again from a saved record; measures nothing."""
    assert options.replay is not None, "the caller asks only with a record"
    saved = report.read(options.replay)
    kept = {name: getattr(saved.inputs, name) for name in ("limits", "own_figures", "seed")}
    inputs = options.inputs.model_copy(update=kept)
    record = decided(saved.programs, inputs, saved.host, "replay")
    note = f"the saved verdict was: {saved.verdict}"
    return record.model_copy(
        update={"base": saved.base, "head": saved.head, "notes": [*record.notes, note]}
    )


def _with_noise(record: GateRecord) -> GateRecord:
    """Add the noise of equal runs to `record`.

    It is invalid if they came out red.
    """
    found = [each for program in record.programs for each in noise_of(program, record.inputs)]
    record = record.model_copy(update={"noise": found})
    if record.verdict != "regression":
        return record
    reason = "equal runs came out as a regression: this runner cannot be measured on"
    return record.model_copy(update={"verdict": "invalid", "reason": reason})


def noise_of(program: ProgramEntry, inputs: Inputs) -> list[NoiseCheck]:
    """Noise of each workload from pairs of equal code.

    None with fewer than two pairs.
    """
    pairs = tuple(pair for pair in program.pairs if not pair.discarded)
    runs = [run for pair in pairs for run in (pair.base, pair.head)]
    keys = set.intersection(*(set(run.rates) for run in runs)) if len(pairs) > 1 else set()
    rule, found = rule_of(inputs), []
    for key in sorted(keys):
        workload = Workload(program.name, None if key == program.name else key)
        compared = Comparison(
            workload=workload,
            program=program,
            pairs=pairs,
            threshold=inputs.threshold,
            values={arm: [getattr(p, arm).rates[key].mean for p in pairs] for arm in ARMS},
            unit=runs[0].rates[key].unit,
        )
        judgement = judge({workload: compared.differences}, rule)[workload]
        logs = [[math.log(v) for v in compared.values[arm]] for arm in ARMS]
        spread, groups = spread_between_processes(logs), modes([v for arm in logs for v in arm])
        look = max(n for n in rule.looks if n <= max(len(pairs), rule.looks[0]))
        bounds = stats.walsh_interval(compared.differences, rule.level(look, "pass"))
        high = thresholds.worse_pct(max(-bounds.low, bounds.high), higher=True)
        found.append(
            NoiseCheck(
                workload=workload.name,
                pairs=len(pairs),
                noise_pct=None if spread is None else 100 * spread,
                outcome=judgement.outcome,
                threshold_pct=None if high is None else float(max(1, math.ceil(high))),
                two_groups_pct=None if groups is None else 100 * math.expm1(groups[1] - groups[0]),
            )
        )
    return found


# --- session and setup --------------------------------------------------------------------


@contextlib.contextmanager
def _machine(options: Options, context: RunContext) -> Iterator[tuple[Engine, HostEntry]]:
    """Hold the first GPU's engine and read the host."""
    machine = read_machine()
    uuid = machine.gpus[0].uuid if machine.gpus else None
    with exclusive_engine(uuid, 60 * options.inputs.max_minutes, context) as engine:
        gpu = machine.gpus[0] if machine.gpus else None
        python, torch = _software(context.cwd)
        yield (
            engine,
            HostEntry(
                key=machine.key,
                cpu=machine.cpu_model,
                cpus=machine.cpus,
                ram_gib=machine.ram_gib,
                os=machine.os,
                gpus=[found.name for found in machine.gpus],
                driver=gpu.driver if gpu else None,
                power_limit_w=gpu.power_limit_w if gpu else None,
                boot_id=_text("/proc/sys/kernel/random/boot_id"),
                cpu_governor=_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
                load_1min=os.getloadavg()[0],
                python=python,
                torch=torch,
            ),
        )


def _session(
    options: Options,
    context: RunContext,
    arms: Mapping[Variant, Checkout],
    programs: Sequence[config.Program],
    engine: Engine,
) -> Session:
    base, head = arms["base"], arms["head"]
    shared = checkout.shared_data(head, options.links)
    processes = ProcessRunner(
        engine=engine,
        between=code_identity.difference(base, head, shared),
        arms=arms,
        scratch=context.scratch,
        device=_first_gpu,
        window=MeasurePlan(mode="window"),
        own_figures=options.inputs.own_figures,
        allow_writes=_is_thrown_away(head),
        keep_network=options.keep_network,
        shown=tuple(map(str, shared)),
    )

    def why_base_fails(message: str) -> str | None:
        path = config.left_behind(head, base, message)
        if path is None:
            return None
        return (
            f"{path!r}, which git ignores, is in head and not in base: share it with --link "
            f"{path}, or make it in --setup"
        )

    session = Session(
        processes=processes,
        selected=tuple(programs),
        inputs=options.inputs,
        say=context.say,
        why_base_fails=why_base_fails,
    )
    for program in programs if processes.between else ():
        session.update(program.name, known=config.known_names(program, base, options.history))
    return session


def _is_thrown_away(head: Checkout) -> bool:
    """True if head may write in its checkout.

    Only in CI: a hosted runner throws it away, and without isolation nothing prevents it.
    """
    hosted = os.environ.get("RUNNER_ENVIRONMENT") == "github-hosted"
    return os.environ.get("CI") == "true" and (hosted or bool(setup_step.unprotected(head.cwd)))


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
                session.fail_base(program.name, f"base: {failed}", failed or "")
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


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None

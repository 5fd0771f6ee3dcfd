"""`gpu-advisor gate`: compare base with head, and turn the verdict into an exit code.

Once the arguments are valid, every ending writes the report and the outputs of the step. A later
step of the workflow that found none would take that for success.
"""

import argparse
import contextlib
import functools
import math
import os
import secrets
import shlex
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from advisor import errors, masking
from advisor.commands import invocation
from advisor.executor.engines import Engine, EngineSettings
from advisor.executor.engines.joint import make_engine
from advisor.executor.engines.scratch_dir import cancellable, require_room, scratch_folder
from advisor.executor.engines.turn import taken
from advisor.files import Claim, claim
from advisor.gate import checkout, config, github, history, report, setup_step
from advisor.gate.process import ProcessRunner
from advisor.gate.runner import GateMeasurement, gate_rule, measured, say
from advisor.gate.schema import ARMS, Arm, GateMode, GateRecord, GateVerdict, Inputs
from advisor.machine.host import read_machine
from advisor.model import Machine
from advisor.settings import parse_share

VERDICTS_OF_ERRORS: dict[type[Exception], GateVerdict] = {
    errors.NoBaselineError: "no-baseline",
    errors.InterruptedByUserError: "invalid",
    errors.StateBusyError: "invalid",
}
"""Verdict of a gate that ended by such an error; any other error is the verdict `error`."""
BISECT_SKIP = 125  # skips a commit in `git bisect run`: git-bisect(1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    switch = functools.partial(add, action="store_true")
    names = functools.partial(add, type=_names, default=[])
    names("--workload", action="extend", metavar="NAME",
        help="an entry of gpu-advisor.toml; several times, or several with commas")  # fmt: skip
    add(
        "--command", metavar="CMD", help="one shell string to measure instead of a workload"
    )
    baseline = parser.add_mutually_exclusive_group()
    baseline.add_argument("--base-ref", metavar="REF",
        help="compare with this commit, or with a checkout in this folder (default: "
        "merge-base with the target branch). HEAD measures the noise of this runner")  # fmt: skip
    baseline.add_argument("--history", type=Path, metavar="PATH",
        help="compare head with the past sessions in this file, and add one")  # fmt: skip
    add("--setup", metavar="CMD", help="shell string run once in each arm before measuring")
    names("--link", action="extend", metavar="PATH",
        help="data of head that git ignores, shown to base too")  # fmt: skip
    names("--keep-env", metavar="NAMES",
        help="variables that look like secrets and are handed over, comma-separated")  # fmt: skip
    switch("--keep-network", help="leave the network open for base and head")
    add("--threshold", type=invocation.argument(_threshold), default=0.05, metavar="SHARE",
        help="largest drop of the rate that is allowed (default 5%%)")  # fmt: skip
    add("--max-minutes", type=invocation.argument(_minutes), default=30.0, metavar="N",
        help="budget for warm-up and pairs, without --setup (default 30)")  # fmt: skip
    add("--on-inconclusive", default="fail", choices=("warn", "fail"),
        help="exit code 3 (default), or 0 with a warning; also for no-baseline")  # fmt: skip
    names("--allow-removed", metavar="NAMES",
        help="workloads or benchmarks that may be missing in head, comma-separated")  # fmt: skip
    switch("--allow-forks", help="run pull requests from forks on self-hosted runners")
    add("--report", type=Path, default=Path("gate.md"), metavar="PATH",
        help="Markdown report (default gate.md; gate.json beside it)")  # fmt: skip
    switch(
        "--bisect-exit", help="exit code 125 where nothing is decided, for git bisect run"
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _threshold(text: str) -> float:
    share = parse_share(text)
    if not 0 < share < 1:
        msg = f"{text!r} must lie between 0 % and 100 %; write 5% or 0.05"
        raise ValueError(msg)
    return share


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0 < minutes < math.inf:
        msg = f"{text!r} is no number above zero"
        raise ValueError(msg)
    return minutes


def run(args: argparse.Namespace, command: Sequence[str] | None = None) -> int:
    """Run the gate and return its exit code.

    Every exception ends in a report. Left to Python, it would end with code 1, which is that of
    a regression.
    """
    args.command = shlex.join(command) if command else args.command
    step = github.take(os.environ, keep=args.keep_env)
    started = time.monotonic()
    inputs = _inputs(args)
    unfinished = "the gate did not come to its end: see the log of this step"
    record = GateRecord(verdict="error", reason=unfinished, inputs=inputs)
    claimed: Claim | None = None
    try:
        claimed = claim(report.places(args.report), never=filter(None, [args.history]))
        report.write(record, args.report, claimed)  # in case this call is killed
        record = _measure(args, inputs, step)
    except Exception as problem:
        record = _ended_by(problem, record, debug=args.debug)
    finally:
        created = datetime.now(UTC).isoformat(timespec="seconds")
        facts = {"wall_s": time.monotonic() - started, "created": created}
        record = GateRecord.model_validate(masking.mask_value(record.model_dump() | facts))
        code = exit_code(record, bisect=args.bisect_exit)
        published = _publish(record, args.report, step, code, claimed)
    if record.programs:  # else stderr has it all
        sys.stdout.write(github.harmless(report.lines(record) + "\n"))
    if not published and code == 0:  # a pass that could not be published is none
        code = errors.GATE_EXIT_CODES["error"]
    return code


def _inputs(args: argparse.Namespace) -> Inputs:
    """Settings of this call, with a new seed for the orders within pairs."""
    asked = {
        name: value for name, value in vars(args).items() if name in Inputs.model_fields
    }
    return Inputs(**asked, seed=secrets.randbelow(2**31))


def _ended_by(problem: Exception, record: GateRecord, *, debug: bool) -> GateRecord:
    """`record` of a gate that `problem` ended; stderr gets the details.

    A refusal of ours is told in its sentence. Anything else is our own fault: the record keeps
    its verdict `error`, and the log gets the traceback.
    """
    details = "".join(traceback.format_exception(problem))
    if isinstance(problem, errors.AdvisorError):
        verdict = VERDICTS_OF_ERRORS.get(type(problem), "error")
        record = record.model_copy(update={"verdict": verdict, "reason": str(problem)})
        details = f"gpu-advisor: {problem}\n{details if debug else ''}"
    sys.stderr.write(github.harmless(details))
    return record


def exit_code(record: GateRecord, *, bisect: bool) -> int:
    """Exit code of a verdict, or what the call wants to have in its place.

    `git bisect run` knows good (0), bad (1) and skip (125): with `bisect` all that is neither a
    pass nor a regression skips the commit. Else --on-inconclusive=warn lets an undecided gate pass.
    """
    code = errors.GATE_EXIT_CODES[record.verdict]
    if bisect:
        return BISECT_SKIP if code not in {0, 1} else code
    undecided = record.verdict in {"inconclusive", "no-baseline"}
    return 0 if undecided and record.inputs.on_inconclusive != "fail" else code


def _publish(
    record: GateRecord,
    path: Path,
    step: github.GithubStep,
    code: int,
    claimed: Claim | None,
) -> bool:
    """Publish the record; False if a place was not written."""
    if step.active:
        sys.stderr.write(github.annotation(record, code) + "\n")
    outputs = github.delimited(github.outputs(record, path if claimed else None))
    ways: list[Callable[[], None]] = [
        lambda: github.append(step.output, outputs),
        lambda: github.append(step.summary, report.short(record) + "\n"),
        lambda: report.write(record, path, claimed) if claimed else None,
    ]
    published = True
    for way in ways:
        try:
            way()
        except errors.OutputRefusedError as problem:
            sys.stderr.write(github.harmless(f"gpu-advisor: {problem}\n"))
            published = False
    return published


def _measure(
    args: argparse.Namespace, inputs: Inputs, step: github.GithubStep
) -> GateRecord:
    """Measure base against head, or one commit for a history. Raises AdvisorError.

    All that can be refused is refused before the first process: forks, commands, the history.
    """
    cwd = Path.cwd()
    unprotected = setup_step.unprotected(cwd)
    if os.geteuid() == 0:
        say(setup_step.AS_ROOT)
    github.refuse_foreign(os.environ, allow=args.allow_forks, unprotected=unprotected)
    with contextlib.ExitStack() as stack:
        if step.active:
            stack.enter_context(github.no_commands())
        cancel = stack.enter_context(cancellable())
        scratch = stack.enter_context(scratch_folder())
        head = checkout.head_checkout(cwd)
        base = head  # measured against a history, this commit is both arms
        shared = checkout.shared_data(head, args.link)
        programs = config.choose(head, args.workload, args.command)
        host = read_machine()
        engine = _hold_engine(stack, host, inputs, cancel)
        if (
            args.history
        ):  # refused now if unreadable or not replaceable; `_judged` writes it
            history.read(args.history)
            claim([args.history], overwrite=True)
        else:
            base = stack.enter_context(checkout.base_of(head, args.base_ref, args.link))
            # limits are read from base: a change may not loosen the limit that it is judged by
            known = config.declared(base)
            limits = {
                p.name: known[p.name].workload.gate for p in programs if p.name in known
            }
            inputs = inputs.model_copy(update={"limits": limits})
        arms: dict[Arm, checkout.Checkout] = {"base": base, "head": head}
        # In CI a program may write into its checkout where a ban would gain nothing: a hosted
        # machine is thrown away after the job, and without isolation only a program that means
        # no harm would keep to it.
        hosted = os.environ.get("RUNNER_ENVIRONMENT") == "github-hosted"
        processes = ProcessRunner(
            engine=engine,
            between=checkout.difference(base, head, shared),
            arms=arms,
            scratch=scratch,
            allow_writes=os.environ.get("CI") == "true" and (hosted or bool(unprotected)),
            keep_network=args.keep_network,
            shown=tuple(map(str, shared)),
        )
        same = base.revision.sha == head.revision.sha and not head.revision.dirty
        mode: GateMode = "history" if args.history else "noise" if same else "ab"
        measurement = GateMeasurement(
            processes=processes,
            selected=programs,
            inputs=inputs,
            rule=gate_rule(inputs, mode),
        )
        if args.setup:
            _set_up(args.setup, measurement, cancel)
        record = measured(measurement, host, mode)
        if args.history:
            record = _judged(record, args.history)
    notes = [*record.notes, *setup_step.isolation_notes(cwd, unprotected, step.withheld)]
    return record.model_copy(update={"notes": notes})


def _judged(record: GateRecord, path: Path) -> GateRecord:
    """`record` against the history in `path`, which it joins."""
    if record.verdict in {"error", "invalid", "no-baseline"}:
        return record
    past, claimed = history.read(path), claim([path], overwrite=True)
    record, longer = history.judge(past, record)
    claimed.write(path, (longer.model_dump_json(indent=1) + "\n").encode())
    return record


def _hold_engine(
    stack: contextlib.ExitStack, host: Machine, inputs: Inputs, cancel: threading.Event
) -> Engine:
    """Hold the engine of the first GPU, or of the host.

    Waits for another gate no longer than the budget.
    """
    uuid = host.gpus[0].uuid if host.gpus else None
    engine = make_engine(EngineSettings(gpu_uuid=uuid, cancel=cancel))
    stack.enter_context(taken(engine, 60 * inputs.max_minutes, cancel, say))
    return engine


def _set_up(command: str, measurement: GateMeasurement, cancel: threading.Event) -> None:
    """Run --setup once in each checkout, and close the programs of an arm where it fails."""
    arms, scratch = measurement.processes.arms, measurement.processes.scratch
    # measured against a history, both arms are one checkout
    arms_to_set_up: tuple[Arm, ...] = ("head",) if arms["base"] is arms["head"] else ARMS
    for arm in arms_to_set_up:
        say(f"setting up {arm}")
        env = {"GPU_ADVISOR_ARM": arm, "GPU_ADVISOR_HEAD": str(arms["head"].top)}
        place = scratch / f"setup-{arm}"
        failed = setup_step.set_up(
            arms[arm],
            command,
            env,
            scratch=place,
            cancel=cancel,
            tops=[checkout.top for checkout in arms.values()],
        )
        require_room(scratch)
        for program in measurement.selected if failed else ():
            if arm == "base":
                measurement.fail_base(program.name, f"base: {failed}")
            else:
                measurement.update(program.name, error=f"head: {failed}")

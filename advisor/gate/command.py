"""`gpu-advisor gate`: base against head, to a verdict, a report and an exit code.

`run` is the whole way; it ends with a report and outputs whatever happens, because a step that
leaves its outputs empty is taken for a success by the next.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
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
)
from advisor.executor.engines.scratch_dir import cancellable, scratch_folder
from advisor.gate import forks, github, modes, options, report, site, texts, walls
from advisor.gate.options import add_arguments
from advisor.gate.records import GateRecord, Inputs
from advisor.gate.workbench import Place

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from advisor.files import Claim
    from advisor.gate.options import Options
    from advisor.gate.records import Verdict

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace, command: Sequence[str] | None = None) -> int:
    """Gate as `args` say; returns the exit code of the verdict (errors.GATE_EXIT_CODES).

    A mistake of our own ends as an error too: Python's exit code for it means regression here.
    """
    if args.site:
        return _write_site(args)
    job = github.take(os.environ, keep=[name.strip() for name in args.keep_env.split(",")])
    started = time.monotonic()
    record = _unfinished("error", "the gate did not come to its end: see the log of this step")
    code = GATE_EXIT_CODES["error"]
    asked: Options | None = None
    claimed: Claim | None = None
    try:
        try:
            claimed = _claimed(args)
            asked = options.check(args, command)
            report.write(record, args.report, claimed)  # what stands there if this call is killed
            record = _measure(asked, job)
            code = exit_code(record, asked)
        except AdvisorError as problem:
            record = _explained(problem, asked)
            code = exit_code(record, asked) if asked else GATE_EXIT_CODES[record.verdict]
            sys.stderr.write(github.harmless(f"gpu-advisor: {problem}\n"))
            if args.debug:
                sys.stderr.write(github.harmless(traceback.format_exc()))
        except Exception:
            sys.stderr.write(github.harmless(traceback.format_exc()))
    finally:
        record = record.model_copy(update={"wall_s": time.monotonic() - started})
        record = texts.masked(record)
        told = _tell(record, args.report, job, code, claimed)
    _show(record, args)
    return code if told else code or GATE_EXIT_CODES["error"]


def _write_site(args: argparse.Namespace) -> int:
    """The page of past sessions; raises what `site.write` does, for the top to tell."""
    for place in site.write(args.site, args.histories or [args.history]):
        sys.stdout.write(f"{place}\n")
    return 0


def _claimed(args: argparse.Namespace) -> Claim:
    """The report's places; what is read is not among them."""
    read = (*args.replay, *args.base_runs, *args.head_runs, args.history)
    return report.claim(args.report, never=read, overwrite=args.overwrite == "true")


def exit_code(record: GateRecord, asked: Options) -> int:
    """0 where the caller asked that this verdict should not fail the job."""
    code = GATE_EXIT_CODES[record.verdict]
    if record.verdict in {"inconclusive", "no-baseline"} and asked.inputs.on_inconclusive != "fail":
        return 0
    if record.verdict == "invalid" and asked.inputs.on_invalid != "fail":
        return 0
    advisory = asked.mode == "calibrate" or (asked.mode == "history" and not asked.enforce)
    if advisory and record.verdict in {"regression", "inconclusive", "no-baseline"}:
        return 0
    return code


def _measure(asked: Options, job: github.Job) -> GateRecord:
    forks.refuse(os.environ, allow=asked.allow_forks)
    cwd = Path.cwd()
    if asked.mode != "replay":
        forks.refuse_unprotected(os.environ, walls.unprotected(cwd))
    with github.no_commands(job), cancellable() as cancel, scratch_folder() as scratch:
        place = Place(cwd=cwd, scratch=scratch, cancel=cancel, say=_say, steering=job.steering)
        record = modes.MODES[asked.mode](asked, place)
    if asked.mode == "replay":
        return record
    notes = [*record.notes, *walls.notes(cwd, job.withheld, allow_writes=asked.allow_writes)]
    return record.model_copy(update={"notes": notes})


def _explained(problem: AdvisorError, asked: Options | None) -> GateRecord:
    """The record of a gate that could not be finished."""
    verdict: Verdict = "error"
    if isinstance(problem, NoBaselineError):
        verdict = "no-baseline"
    elif isinstance(problem, (InterruptedByUserError, StateBusyError)):
        verdict = "invalid"
    return _unfinished(verdict, str(problem), asked.inputs if asked else Inputs())


def _unfinished(verdict: Verdict, reason: str, inputs: Inputs | None = None) -> GateRecord:
    return GateRecord(
        verdict=verdict,
        reason=reason,
        tool_version=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        inputs=inputs or Inputs(),
    )


def _tell(
    record: GateRecord, path: Path, job: github.Job, code: int, claimed: Claim | None
) -> bool:
    """Outputs, summary, annotation and, in places that are ours, the report; whether all of it
    could be written."""
    if job.active:
        sys.stderr.write(github.annotation(record, github.level(record, code)) + "\n")
    ways: list[Callable[[], None]] = [
        lambda: github.write_outputs(job, github.outputs(record, path if claimed else None)),
        lambda: github.write_summary(job, report.markdown(record)),
    ]
    if claimed is not None:
        ways.append(lambda: report.write(record, path, claimed))
    told = True
    for tell in ways:
        try:
            tell()
        except OutputRefusedError as problem:
            sys.stderr.write(github.harmless(f"gpu-advisor: {problem}\n"))
            told = False
    return told


def _show(record: GateRecord, args: argparse.Namespace) -> None:
    if args.json:
        sys.stdout.write(texts.headline(record).replace("##[", "#\\u0023[") + "\n")
    elif record.programs:  # else the message on stderr has said it all
        sys.stdout.write(github.harmless(report.lines(record)))


def _say(line: str) -> None:
    sys.stderr.write(github.harmless(f"gate: {line}\n"))
    sys.stderr.flush()

"""A verdict from saved runs: no process, no GPU. For audits, and for suites that ran elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor import files
from advisor.errors import ReportError, UsageError
from advisor.gate import suites, texts
from advisor.gate.entries import PairEntry, ProgramEntry, RunEntry
from advisor.gate.suites import NoRateError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from advisor.gate.entries import Variant
    from advisor.gate.records import GateRecord

SUITE = "benchmarks"
"""Name of the program whose runs came as the JSON of a suite."""


def saved(paths: Sequence[Path]) -> tuple[GateRecord, ...]:
    """The records in `paths`. Raises ReportError, and UsageError if a program occurs twice."""
    found = tuple(texts.read(path) for path in paths)
    names = [program.name for record in found for program in record.programs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        msg = f"{twice[0]!r} is in more than one of the files given. Replay them one by one."
        raise UsageError(msg)
    return found


def from_benchmarks(base: Sequence[Path], head: Sequence[Path]) -> ProgramEntry:
    """Pairs of processes from the JSON of a suite: file i of base with file i of head.

    Raises UsageError for unequal numbers of files, ReportError for one that cannot be read.
    """
    if len(base) != len(head) or not base:
        msg = (
            f"{len(base)} files of --base-runs against {len(head)} of --head-runs: give one file "
            "a process, as many of base as of head."
        )
        raise UsageError(msg)
    _each_once([*base, *head])
    pairs = []
    for number, (one, other) in enumerate(zip(base, head, strict=True), 1):
        runs = {"base": _run("base", one), "head": _run("head", other)}
        first = runs["base"].started <= runs["head"].started
        pairs.append(
            PairEntry(
                number=number,
                order="base first" if first else "head first",
                base=runs["base"],
                head=runs["head"],
            )
        )
    return ProgramEntry(name=SUITE, command="saved runs", definition="", pairs=pairs)


def _each_once(paths: Sequence[Path]) -> None:
    """Raise UsageError where one process would count as several, by its file or a copy of it."""
    seen: dict[bytes, Path] = {}
    for path in paths:
        first = seen.setdefault(_content(path), path)
        if first is not path:
            msg = (
                f"{path} holds the same run as {first}: one process counts once. Give one file a "
                "process."
            )
            raise UsageError(msg)


def _content(path: Path) -> bytes:
    try:
        return files.read_whole(path)
    except OSError as problem:
        reason = problem.strerror or problem
        msg = f"{path} cannot be read: {reason}. Give what the suite wrote."
        raise ReportError(msg) from problem


def _run(arm: Variant, path: Path) -> RunEntry:
    raw = _content(path)
    try:
        found = suites.read(raw)
    except NoRateError as problem:
        return RunEntry(arm=arm, started=0.0, wall_s=0.0, problem=problem.problem)
    return RunEntry(
        arm=arm, started=found.started, wall_s=0.0, source=found.source, rates=found.rates
    )

"""The gate's flags, and their text checked: an action passes strings, and all of them may be wrong.

Nothing is checked by argparse itself, so that even a wrong flag ends with a report and outputs.
"""

from __future__ import annotations

import functools
import math
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, get_args

from advisor.errors import UsageError
from advisor.gate.accepted import DEFAULT_LABEL
from advisor.gate.layouts import FEWEST
from advisor.gate.records import Inputs, Metric, Mode
from advisor.runner import limits
from advisor.settings import parse_duration_s, parse_share

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from advisor.runner.limits import Limits

T = TypeVar("T", bound=str)

MODES: tuple[Mode, ...] = get_args(Mode)
METRICS: tuple[Metric, ...] = get_args(Metric)
PLAIN_NUMBER = re.compile(r"\d+\.?\d*|\.\d+", re.ASCII)
ON_VERDICT = ("warn", "fail", "pass")
MOST_REBUILDS = 24
DEFAULT_REPORT = Path("gate.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked for, checked."""

    mode: Mode
    workloads: tuple[str, ...]
    command: str | None
    base_ref: str | None
    bisect: str | None
    first_parent: bool
    rebuilds: int
    accept_label: str
    setup: str | None
    links: tuple[str, ...]
    inputs: Inputs
    window_s: float
    limits: Limits
    report: Path
    json: bool
    lock_clocks: bool
    python: str
    allow_forks: bool
    allow_writes: bool
    overwrite: bool
    enforce: bool
    history: Path
    replay: tuple[Path, ...]
    base_runs: tuple[Path, ...]
    head_runs: tuple[Path, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `gpu-advisor gate`."""
    add = parser.add_argument
    # A switch may carry a value, as an action's inputs do: `--enforce` is `--enforce=true`.
    switch = functools.partial(add, nargs="?", const="true", default="false", metavar="true|false")
    add(
        "--workload",
        action="append",
        default=[],
        metavar="NAME",
        help="an entry of gpu-advisor.toml; several times, or several with commas",
    )
    add("--command", metavar="CMD", help="one shell string to measure instead of a workload")
    add("--mode", default="ab", help="ab (default), replay, history or calibrate")
    add(
        "--base-ref",
        metavar="REF",
        help="compare with this commit (default: merge-base with the target branch)",
    )
    add(
        "--bisect",
        metavar="GOOD..BAD",
        help="find the first commit of this range that is slower than GOOD by the threshold",
    )
    switch("--first-parent", help="let --bisect follow the main line alone: a merge is one commit")
    add("--setup", metavar="CMD", help="shell string run once in each arm before measuring")
    add(
        "--rebuilds",
        default="1",
        metavar="N",
        help="build each arm N times (--setup in N checkouts; 3 or more), and let builds be what "
        "is compared",
    )
    add(
        "--link",
        action="append",
        default=[],
        metavar="PATH",
        help="data that git ignores, of head, to be shown to base too; several, or with commas",
    )
    add(
        "--keep-env",
        default="",
        metavar="NAMES",
        help="variables that look like secrets and are handed to base and head, comma-separated",
    )
    add(
        "--metric",
        default="throughput",
        help="throughput (default: the program's own `throughput:` line, else pytest-benchmark's"
        " JSON, else the probe, else the time of the run), probe, or run-time",
    )
    add("--threshold", default="5%", help="largest drop of the rate that is allowed (default 5%%)")
    add(
        "--max-minutes",
        default="30",
        metavar="N",
        help="budget for warm-up and pairs, without --setup (default 30)",
    )
    add(
        "--on-inconclusive",
        default="fail",
        metavar="warn|fail|pass",
        help="exit code 3 on fail (default), else 0; also for no-baseline",
    )
    add(
        "--on-invalid",
        default="fail",
        metavar="warn|fail|pass",
        help="exit code 4 on fail (default), else 0",
    )
    add(
        "--allow-removed",
        default="",
        metavar="NAMES",
        help="workloads or benchmarks that may be missing in head, comma-separated",
    )
    add(
        "--accept-label",
        default=DEFAULT_LABEL,
        metavar="LABEL",
        help="labels of a pull request that accept a slowdown begin with this: "
        "'LABEL: train 12%%' (default: %(default)s; empty: none does)",
    )
    switch(
        "--cap-rule",
        help="at the last look, red also if certainly slower and about the threshold or more",
    )
    add(
        "--report",
        type=Path,
        default=DEFAULT_REPORT,
        metavar="PATH",
        help="Markdown report (default gate.md; gate.json and figures beside it)",
    )
    add("--json", action="store_true", help="print the result as one JSON object")
    add(
        "--window",
        default="5s",
        metavar="TIME",
        help="measured window of a program that is too long to be run to its end (default 5s)",
    )
    limits.add_arguments(parser)
    add(
        "--lock-clocks",
        default="auto",
        metavar="auto|off",
        help="hold the GPU's clocks while measuring, where permitted",
    )
    add(
        "--python", default="python", help="the interpreter of the measured program, for the record"
    )
    switch(
        "--allow-forks",
        help="run pull requests from forks on self-hosted runners",
    )
    switch(
        "--allow-writes",
        help="go on although the command writes over existing files",
    )
    add(
        "--history",
        type=Path,
        default=Path("gate-history.json"),
        metavar="PATH",
        help="file of past sessions, for --mode history",
    )
    switch(
        "--overwrite",
        help="replace files at the report's places that gpu-advisor did not write",
    )
    add(
        "--site",
        type=Path,
        metavar="DIR",
        help="measure nothing: write a page and a badge of what --history holds into DIR",
    )
    add(
        "--histories",
        type=Path,
        nargs="+",
        default=[],
        metavar="PATH",
        help="histories of several runners, for --site",
    )
    add(
        "--smallest-loss",
        default="2%",
        help="smallest lasting loss that --mode history tells, a creep too (default 2%%)",
    )
    switch("--enforce", help="let --mode history fail, not only advise")
    add(
        "--replay",
        type=Path,
        action="append",
        default=[],
        metavar="GATE_JSON",
        help="saved gate.json to decide again, for --mode replay",
    )
    add(
        "--base-runs",
        type=Path,
        nargs="+",
        default=[],
        metavar="JSON",
        help="JSON of a suite of base, one file a process, for --mode replay",
    )
    add(
        "--head-runs",
        type=Path,
        nargs="+",
        default=[],
        metavar="JSON",
        help="JSON of a suite of head, for --mode replay",
    )


def check(args: argparse.Namespace, command: Sequence[str] | None) -> Options:
    """`args` as Options. Raises UsageError naming the flag, the value and what is allowed."""
    mode = _mode(args)
    _only_in_replay(mode, args)
    text = shlex.join(command) if command else args.command
    inputs = Inputs(
        threshold=_threshold("--threshold", args.threshold),
        smallest_loss=_threshold("--smallest-loss", args.smallest_loss),
        max_minutes=_minutes(args.max_minutes),
        cap_rule=_switch("--cap-rule", args.cap_rule),
        metric=_one_of("--metric", args.metric, METRICS),
        allow_removed=_names(args.allow_removed),
        on_inconclusive=_one_of("--on-inconclusive", args.on_inconclusive, ON_VERDICT),
        on_invalid=_one_of("--on-invalid", args.on_invalid, ON_VERDICT),
    )
    return Options(
        mode=mode,
        workloads=tuple(name for text in args.workload for name in _names(text)),
        command=text,
        base_ref=args.base_ref or None,
        bisect=args.bisect or None,
        first_parent=_switch("--first-parent", args.first_parent),
        rebuilds=_rebuilds(mode, args),
        accept_label=args.accept_label.strip(),
        setup=args.setup or None,
        links=tuple(name for text in args.link for name in _names(text)),
        inputs=inputs,
        window_s=_duration("--window", args.window),
        limits=limits.of_flags(args),
        report=args.report,
        json=args.json,
        lock_clocks=_one_of("--lock-clocks", args.lock_clocks, ("auto", "off")) == "auto",
        python=args.python,
        allow_forks=_switch("--allow-forks", args.allow_forks),
        allow_writes=_switch("--allow-writes", args.allow_writes),
        overwrite=_switch("--overwrite", args.overwrite),
        enforce=_switch("--enforce", args.enforce),
        history=args.history,
        replay=tuple(args.replay),
        base_runs=tuple(args.base_runs),
        head_runs=tuple(args.head_runs),
    )


def _mode(args: argparse.Namespace) -> Mode:
    mode = _one_of("--mode", args.mode, MODES)
    if mode == "bisect" and not args.bisect:
        msg = "--mode bisect needs a range: --bisect GOOD..BAD."
        raise UsageError(msg)
    if args.bisect and mode not in {"ab", "bisect"}:
        msg = f"--bisect measures commits, --mode {mode} does not. Leave one of them out."
        raise UsageError(msg)
    if args.bisect and args.base_ref:
        msg = "--bisect names both ends itself. Leave --base-ref out."
        raise UsageError(msg)
    if args.first_parent != "false" and not args.bisect:
        msg = "--first-parent says how --bisect walks. Give --bisect GOOD..BAD, or leave it out."
        raise UsageError(msg)
    return "bisect" if args.bisect else mode


def _rebuilds(mode: Mode, args: argparse.Namespace) -> int:
    text = args.rebuilds.strip()
    number = int(text) if re.fullmatch(r"\d{1,2}", text, re.ASCII) else 0
    if not (number == 1 or FEWEST <= number <= MOST_REBUILDS):
        msg = (
            f"--rebuilds {args.rebuilds!r} is not known. Give 1, or {FEWEST} to {MOST_REBUILDS}: "
            "two builds of each side prove nothing."
        )
        raise UsageError(msg)
    if number > 1 and mode != "ab":
        msg = f"--rebuilds is of --mode ab, not of {mode}. Leave it out."
        raise UsageError(msg)
    if number > 1 and not args.setup:
        msg = "--rebuilds takes several builds, and nothing is built: give --setup CMD."
        raise UsageError(msg)
    return number


def _only_in_replay(mode: Mode, args: argparse.Namespace) -> None:
    for flag in ("replay", "base_runs", "head_runs"):
        if getattr(args, flag) and mode != "replay":
            said = flag.replace("_", "-")
            msg = (
                f"--{said} names saved runs, and --mode {mode} measures new ones. Give "
                f"--mode replay, or leave --{said} out."
            )
            raise UsageError(msg)


def _one_of(flag: str, value: str, allowed: Sequence[T]) -> T:
    for known in allowed:
        if value == known:
            return known
    msg = f"{flag} {value!r} is not known. Use one of: {', '.join(allowed)}."
    raise UsageError(msg)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _switch(flag: str, value: str) -> bool:
    return _one_of(flag, value, ("true", "false")) == "true"


def _threshold(flag: str, text: str) -> float:
    try:
        share = parse_share(text)
    except ValueError as problem:
        msg = f"{flag}: {problem}."
        raise UsageError(msg) from problem
    if not 0 < share < 1:
        msg = f"{flag} {text!r} must lie between 0 % and 100 %. Write 5% or 0.05."
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


def _duration(flag: str, text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as problem:
        msg = f"{flag}: {problem}."
        raise UsageError(msg) from problem

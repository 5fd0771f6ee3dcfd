"""`gpu-advisor doctor`: costly settings of a machine, and their remedies.

Looks only: nothing is written or changed, and no program of the user's is run.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.commands.doctor.checks import Readings, Row, checked, verdict
from advisor.commands.doctor.interpreter import ask_torch
from advisor.machine import contention, lock
from advisor.machine.condition import nvidia_devices, read_conditions
from advisor.machine.gpu import uvm_loaded
from advisor.machine.host_condition import read_host_condition
from advisor.sandbox.capabilities import detect_isolation

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence


LOOK_S = 0.5
"""Time in which others are watched."""
WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `gpu-advisor doctor`."""
    parser.add_argument(
        "--python",
        metavar="PATH",
        help="the interpreter whose torch is asked (default: that of the command after `--`, "
        "else the first python on PATH)",
    )
    parser.add_argument("--json", action="store_true", help="print the checks as one JSON object")
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 when there is something to fix"
    )


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """Print the verdict and every check.

    Returns 0, or with --strict 1 where one is not good. Raises UsageError for an interpreter or an
    isolation that is not there.
    """
    rows = checked(take(args.python, command or [], os.environ))
    sys.stdout.write(as_json(rows) if args.json else as_text(rows))
    return int(args.strict and any(row.status == "fix" for row in rows))


def take(python: str | None, command: Sequence[str], environ: Mapping[str, str]) -> Readings:
    """Read everything; this takes about three seconds."""
    cards, no_cards = read_conditions(environ)
    return Readings(
        host=read_host_condition(environ),
        environ=environ,
        cards=cards,
        no_cards=no_cards,
        nvidia_devices=nvidia_devices(),
        uvm_missing=bool(cards) and not uvm_loaded(),
        crowd=contention.look(LOOK_S),  # before anything of ours works beside it
        own_calls=lock.holders(),
        isolation=detect_isolation(str(Path.cwd()), environ),
        torch=ask_torch(python, command, environ),
    )


def as_json(rows: Sequence[Row]) -> str:
    """Format the rows as one JSON object."""
    to_fix = sum(row.status == "fix" for row in rows)
    checks = [row._asdict() for row in rows]
    shown = {"verdict": verdict(rows), "to_fix": to_fix, "checks": checks}
    return json.dumps(shown, indent=2) + "\n"


def as_text(rows: Sequence[Row]) -> str:
    """Format the verdict, the remedies and the other checks."""
    lines = [verdict(rows)]
    for row in rows:
        if row.status == "fix":
            lines += ["", f"{row.area}, {row.name}: {row.value}"]
            lines += [*_wrapped(f"  why   {row.why}"), f"  fix   {row.fix}"]
    rest = [row for row in rows if row.status != "fix"]
    width = max((len(f"{row.area}, {row.name}") for row in rest), default=0)
    lines.append("")
    for row in rest:
        mark = "good" if row.status == "good" else "?"
        lines += _wrapped(f"  {mark:<4}  {f'{row.area}, {row.name}':<{width}}  {row.value}")
    return "\n".join(lines) + "\n"


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent=" " * 8, break_on_hyphens=False)

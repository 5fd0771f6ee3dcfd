"""`gpu-advisor doctor`: costly settings of a machine, and their remedies.

Looks only: nothing is written or changed, and no program of the user's is run.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.commands.doctor.card_checks import CARD_CHECKS, PRESENCE
from advisor.commands.doctor.host_checks import HOST_CHECKS
from advisor.commands.doctor.interpreter import ask_torch
from advisor.commands.doctor.table import Readings, Row, examine, verdict
from advisor.commands.doctor.torch_checks import TORCH_CHECKS
from advisor.errors import AdvisorError
from advisor.machine import contention
from advisor.machine.condition import nvidia_devices, read_conditions
from advisor.machine.gpu import uvm_loaded
from advisor.machine.host_condition import read_host_condition, swapped_pages
from advisor.sandbox.capabilities import detect_isolation

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from advisor.sandbox.capabilities import Capability

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

    Returns 0, or with --strict 1 where one is not good. Raises UsageError for an interpreter that
    is not there.
    """
    rows = checked(take(args.python, command or [], os.environ))
    sys.stdout.write(as_json(rows) if args.json else as_text(rows))
    return int(args.strict and any(row.status == "fix" for row in rows))


def take(python: str | None, command: Sequence[str], environ: Mapping[str, str]) -> Readings:
    """Read everything; this takes about three seconds."""
    cards, no_cards = read_conditions(environ)
    swapped = swapped_pages()
    crowd = contention.look(LOOK_S)  # before anything of ours works beside it
    isolation = _isolation(environ)
    torch = ask_torch(python, command, environ)
    now = swapped_pages()
    return Readings(
        host=read_host_condition(environ),
        environ=environ,
        cards=cards,
        no_cards=no_cards,
        nvidia_devices=nvidia_devices(),
        uvm_missing=bool(cards) and not uvm_loaded(),
        isolation=isolation,
        crowd=crowd,
        swapped_pages=None if swapped is None or now is None else now - swapped,
        torch=torch,
    )


def checked(readings: Readings) -> tuple[Row, ...]:
    """Run every check, in the order of display."""
    rows = examine("GPU", PRESENCE, readings)
    for card in readings.cards:
        rows += examine(f"GPU {card.gpu.index}", CARD_CHECKS, card)
    rows += examine("host", HOST_CHECKS, readings)
    rows += examine("torch", TORCH_CHECKS, readings)
    return tuple(rows)


def as_json(rows: Sequence[Row]) -> str:
    """Format the rows as one JSON object."""
    fields: dict[str, Any] = {
        "verdict": verdict(rows),
        "to_fix": sum(row.status == "fix" for row in rows),
        "checks": [dataclasses.asdict(row) for row in rows],
    }
    return json.dumps(fields, indent=2) + "\n"


def as_text(rows: Sequence[Row]) -> str:
    """Format the verdict, the remedies and the checks."""
    lines = [verdict(rows)]
    for row in rows:
        if row.status == "fix":
            lines += ["", f"{row.area}, {row.name}: {row.value}"]
            lines += _detail("good", row.good) + _detail("why", row.why)
            lines += [f"  fix   {row.fix}"] if row.fix else []
    rest = [row for row in rows if row.status != "fix"]
    width = max((len(row.name) for row in rest), default=0)
    for area in dict.fromkeys(row.area for row in rest):
        lines += ["", area]
        for row in rest:
            if row.area == area:
                mark = {"good": "good", "unknown": "?"}[row.status]
                indent = " " * (width + 10)
                lines += _wrapped(f"  {mark:<4}  {row.name:<{width}}  {row.value}", indent)
                lines += _wrapped(f"{indent}good: {row.good}", indent)
                lines += _wrapped(f"{indent}why: {row.why}", indent)
    return "\n".join(lines) + "\n"


def _detail(what: str, text: str) -> list[str]:
    return _wrapped(f"  {what:<4}  {text}", " " * 8)


def _wrapped(line: str, indent: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def _isolation(environ: Mapping[str, str]) -> Capability | str:
    try:
        return detect_isolation(str(Path.cwd()), environ)
    except (AdvisorError, OSError) as problem:
        return str(problem)

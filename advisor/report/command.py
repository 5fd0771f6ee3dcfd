"""`gpu-advisor report report.json`: render report.md and its figures again, measuring nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.report import writing

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `gpu-advisor report`."""
    parser.add_argument("report", type=Path, help="a report.json written by `optimize`")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="PATH",
        help="where the Markdown goes (default: beside the JSON, with the suffix .md)",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace files at the report's place that gpu-advisor did not write",
    )


def run(args: argparse.Namespace, command: list[str] | None) -> int:
    """Re-render. Raises ReportError when the JSON is missing, malformed or of another
    version, and OutputRefusedError when a file that is not ours is in the way."""
    del command
    output: Path = args.output or args.report.with_suffix(".md")
    report = writing.load(args.report)
    beside = Path(os.path.realpath(output)).with_suffix(".json")
    rendered_in_place = beside == Path(os.path.realpath(args.report))
    claimed = writing.claim(
        output,
        never=() if rendered_in_place else (args.report,),
        like=args.report,
        overwrite=args.overwrite,
    )
    writing.write(report, output, claimed)
    sys.stdout.write(f"{output}\n")
    return 0
